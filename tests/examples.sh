#!/bin/sh
# Run every example. Each checks itself and ends with 0 if all is well.
#
#   OUT=build/<hash> tests/examples.sh
#
# EXEC goes in front of the programs.

set -u
: "${OUT:?the folder of the build}"
passed=0
failed=0

for source in examples/*.c; do
    name=$(basename "$source" .c)
    # shellcheck disable=SC2086 # EXEC is a list of words
    if ${EXEC-} "$OUT/examples/$name"; then
        passed=$((passed + 1))
    else
        echo "FAIL $name ended with $?"
        failed=$((failed + 1))
    fi
done

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
