#!/bin/sh
# docs/embedding.md shows the programs of examples/tour and what they print. This holds it to that.
#
#   OUT=build/<hash> [CXX=c++] tests/embedding.sh    run the programs, compare the page with them
#   OUT=build/<hash> tests/embedding.sh --update     write the page's blocks anew
#
# Behind a line `<!-- file PATH -->` the page has a fenced block with that file, behind `<!-- prints NAME -->` one with
# what examples/tour/NAME prints. The page is written anew from files and programs, and must be what it was; each
# file of the tour must be on it. EXEC goes in front of the programs. The last line counts.

set -u
: "${OUT:?the folder of the build}"
page=docs/embedding.md
passed=0
failed=0
skipped=0

skip() {
    echo "skip: $1"
    skipped=$((skipped + 1))
}

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
case $OUT in /*) programs=$OUT/examples/tour ;; *) programs=$(pwd)/$OUT/examples/tour ;; esac

# verdict NAME OFFENDERS: passes if there are none.
verdict() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        echo "FAIL $1:"
        echo "$2" | head -n 40 | sed 's/^/     /'
        failed=$((failed + 1))
    fi
}

# check SOURCE COMMAND...: run it, note what it prints.
check() {
    source=$1
    name=$(basename "${source%.*}")
    shift
    problem=$(cd "$scratch" && "$@" 2>&1 >"$name.prints" || echo "ended with $?")
    verdict "$name runs" "$problem"
}
for source in examples/tour/*.c; do
    # shellcheck disable=SC2086 # EXEC is a list of words
    check "$source" ${EXEC-} "$programs/$(basename "$source" .c)"
done
# What cannot run here keeps the block that the page has.
root=$(pwd)
source=examples/tour/from_cpp.cpp
# shellcheck disable=SC2086
if ! command -v "${CXX:-c++}" >/dev/null 2>&1; then
    skip "$source: there is no C++ compiler here"
elif ${CXX:-c++} -std=c++17 -Wall -Wextra -Werror ${SANITIZERS-} -Iinclude -o "$scratch/from_cpp" $source "$OUT/libcellar.a" -lm; then
    check $source ${EXEC-} "$scratch/from_cpp"
else
    verdict "$source compiles" "it does not"
fi
source=examples/tour/from_python.py
if [ -n "${EXEC-}${SANITIZE-}" ] || ! command -v python3 >/dev/null 2>&1; then
    skip "$source: there is no python3 here, or it would have to run in a wrapper"
else
    case $OUT in /*) library=$OUT/libcellar.so ;; *) library=$root/$OUT/libcellar.so ;; esac
    check $source env CELLAR_LIBRARY="$library" PYTHONPATH="$root/python" PYTHONDONTWRITEBYTECODE=1 python3 "$root/$source"
fi
for source in examples/tour/*.c examples/tour/*.cpp examples/tour/*.py; do
    name=$(basename "${source%.*}")
    verdict "$name is on the page with what it prints" "$(
        grep -qxF "<!-- file $source -->" $page || echo "$page has no line: <!-- file $source -->"
        grep -qxF "<!-- prints $name -->" $page || echo "$page has no line: <!-- prints $name -->"
    )"
done
verdict "the toy model is on the page" "$(grep -qxF '<!-- file examples/tour/toy_model.h -->' $page || echo missing)"

awk -v scratch="$scratch" '
    # The lines of a file; 0 if there are none.
    function show(file,    line, n) {
        while ((getline line < file) > 0) { print line; n++ }
        close(file)
        return n
    }
    /^<!-- file .* -->$/ { source = $3 }
    /^<!-- prints .* -->$/ { source = scratch "/" $3 ".prints" }
    is_inside { if (/^```$/) { is_inside = 0; print }; next }
    { print }
    /^```/ && source { is_inside = show(source) > 0; source = "" }
' $page >"$scratch/page"
if [ "${1-}" = --update ]; then cat "$scratch/page" >$page; fi
verdict "$page shows the programs as they are (tests/embedding.sh --update writes them)" \
    "$(diff -u $page "$scratch/page" 2>&1)"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
