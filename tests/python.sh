#!/bin/sh
# The Python module against the library that was built: without numpy, and with it where it is installed.
#
#   OUT=build/<hash> tests/python.sh
#
# Skipped, and said so, where there is no python3, where programs run in a wrapper (EXEC), and with sanitizers, which
# want to be in the process before python is. The last line counts.

set -u
: "${OUT:?the folder of the build}"
passed=0
failed=0
skipped=0

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
case $OUT in /*) library=$OUT/libcellar.so ;; *) library=$(pwd)/$OUT/libcellar.so ;; esac
export CELLAR_LIBRARY="$library" PYTHONDONTWRITEBYTECODE=1

if [ -n "${EXEC-}${SANITIZE-}" ]; then
    echo 'skip: python loads the library as it is, not in a wrapper or with sanitizers'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi

# The first python3 at all, and the first that has numpy; Debian's numpy is for Debian's python.
plain=
with_numpy=
for candidate in python3 /usr/bin/python3; do
    command -v $candidate >/dev/null 2>&1 || continue
    [ -n "$plain" ] || plain=$candidate
    if [ -z "$with_numpy" ] && $candidate -c 'import numpy' >/dev/null 2>&1; then with_numpy=$candidate; fi
done

# run NAME COMMAND...
run() {
    name=$1
    shift
    "$@" >"$scratch/log" 2>&1
    code=$?
    counts=$(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$scratch/log")
    # shellcheck disable=SC2086 # a list of three
    set -- ${counts:-0 1 0}
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    if [ "$code" -ne 0 ] && [ "$2" -eq 0 ]; then failed=$((failed + 1)); fi
    if [ "$code" -ne 0 ]; then
        echo "FAIL $name ended with $code:"
        sed 's/^/     /' "$scratch/log"
    fi
}

if [ -z "$plain" ]; then
    echo 'skip: there is no python3 here'
    skipped=1
else
    run 'without numpy' env WITHOUT_NUMPY=1 "$plain" tests/test_cellar.py
    if [ -n "$with_numpy" ]; then
        run 'with numpy' "$with_numpy" tests/test_cellar.py
    else
        echo 'skip: with numpy: it is not installed (Debian: python3-numpy)'
        skipped=$((skipped + 1))
    fi
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
