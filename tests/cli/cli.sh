#!/bin/sh
# The program as a user meets it: command lines, and what they have to print and return.
#
#   OUT=build/<hash> tests/cli/cli.sh [NAME...]             all cases, or these
#   OUT=build/<hash> tests/cli/cli.sh --update [NAME...]    write down what the program says now
#
# A case is a script, tests/cli/cases/NAME.sh, run by sh in an empty folder with `cellar` in the path, no input
# and no terminal. Beside it stand what it has to print and return:
#
#   NAME.out  NAME.err     standard output and error; no file: nothing may be printed
#   NAME.exit              the exit code; no file: 0
#
# A line that begins with "~ " is a shell pattern for one line ("~ kernels  *"); every other line has to
# match to the letter. --update leaves files with patterns alone. A case that prints a line "skip: REASON"
# on standard output and exits 77 cannot run here. Available to cases: $CASES (this folder), $ROOT (the
# repository), $SHARED (models and traces that are not in it), and gguf.sh beside this file.

set -u
: "${OUT:?the folder of the build}"
root=$(pwd)
cases=$root/tests/cli/cases
shared=$(cd "${CELLAR_SHARED:-../shared}" 2>/dev/null && pwd)
update=
if [ "${1-}" = --update ]; then
    update=yes
    shift
fi

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
case $OUT in /*) program=$OUT/cellar ;; *) program=$root/$OUT/cellar ;; esac
mkdir "$scratch/bin"
# A script, so that EXEC (valgrind, an emulator) goes in front of every call.
cat >"$scratch/bin/cellar" <<END
#!/bin/sh
exec ${EXEC-} "$program" "\$@"
END
chmod +x "$scratch/bin/cellar"

# matches EXPECTED ACTUAL: line by line, with patterns.
matches() {
    awk -v actual="$2" '
        # A shell pattern with * and ? as a regular expression.
        function pattern(text) {
            gsub(/[][\\.^$+(){}|\/]/, "\\\\&", text); gsub(/\*/, ".*", text); gsub(/\?/, ".", text)
            return "^" text "$"
        }
        {
            if ((getline line < actual) <= 0) exit bad = 1
            if (substr($0, 1, 2) == "~ ") { if (line !~ pattern(substr($0, 3))) exit bad = 1 }
            else if (line != $0) exit bad = 1
        }
        END { if (!bad && (getline line < actual) > 0) bad = 1; exit bad }' "$1"
}

# compare NAME KIND ACTUAL: 0 if it is as expected.
compare() {
    expected=$cases/$1.$2
    [ -e "$expected" ] || expected=/dev/null
    if [ "$update" ]; then
        ! grep -q '^~ ' "$expected" || return 0
        if [ -s "$3" ]; then cp "$3" "$cases/$1.$2"; else rm -f "$cases/$1.$2"; fi
        return 0
    fi
    matches "$expected" "$3" && return 0
    echo "     $2 differs from tests/cli/cases/$1.$2:"
    diff -u "$expected" "$3" | sed -e 1,2d -e 's/^/     /' | head -n 40
    return 1
}

passed=0
failed=0
skipped=0
if [ $# -eq 0 ]; then
    for script in "$cases"/*.sh; do set -- "$@" "$(basename "$script" .sh)"; done
fi
for name in "$@"; do
    work=$scratch/work
    rm -rf "$work"
    mkdir "$work"
    (
        cd "$work" || exit 1
        unset CELLAR_CPU
        [ -z "${CELLAR_CPU_FOR_CASES-}" ] || export CELLAR_CPU="$CELLAR_CPU_FOR_CASES"
        PATH=$scratch/bin:$PATH ROOT=$root CASES=$cases SHARED=$shared LC_ALL=C TERM=dumb \
            exec sh "$cases/$name.sh" >"$scratch/out" 2>"$scratch/err" </dev/null
    )
    code=$?
    if [ "$code" -eq 77 ] && grep -q '^skip' "$scratch/out"; then
        sed -n "s/^skip: */skip: $name: /p" "$scratch/out"
        skipped=$((skipped + 1))
        continue
    fi
    if [ "$code" -eq 0 ]; then : >"$scratch/exit"; else echo "$code" >"$scratch/exit"; fi
    good=yes
    for kind in exit out err; do
        compare "$name" $kind "$scratch/$kind" >>"$scratch/why" || good=
    done
    if [ "$good" ]; then
        passed=$((passed + 1))
        [ -z "$update" ] || echo "wrote $name"
    else
        echo "FAIL $name"
        cat "$scratch/why"
        failed=$((failed + 1))
    fi
    rm -f "$scratch/why"
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
