#!/bin/sh
# The tests that take hours.
#
#   tools/nightly.sh          (make nightly)
#
# Ten million random operations from a seed of the day, plain and sanitized; fifty attention matrices; saves killed at 400 moments; a server
# under a mixed load of 6,400 requests, and one killed fifty times; every test under the address and undefined sanitizers with both compilers; the core under valgrind; FUZZ seconds (3600) of fuzzing shared by the parsers. Ends
# with totals; exit 1 if something failed.

set -u
make=${MAKE:-make}
seed=$(date +%Y%m%d)
passed=0
failed=0

part() {
    echo "=== $*"
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "FAILED: $*"
        failed=$((failed + 1))
    fi
}

parsers=$(find fuzz -name 'fuzz_*.c' | wc -l)
part env DIFFERENTIAL_ARGUMENTS="--operations 10000000 --seed $seed" \
    ATTENTION_MATRIX_ARGUMENTS="--seed $seed --repeat 50" CRASH_ARGUMENTS="--moments 400 --seed $seed" \
    SERVE_LOAD_ARGUMENTS="--requests 200 --seed $seed" SERVE_KILL_ARGUMENTS="--kills 50 --seed $seed" "$make" check
part env DIFFERENTIAL_ARGUMENTS="--operations 1000000 --seed $seed" "$make" check SANITIZE=address,undefined
part env DIFFERENTIAL_ARGUMENTS="--operations 1000000 --seed $seed" "$make" check CC=clang SANITIZE=address,undefined
part env DIFFERENTIAL_ARGUMENTS="--operations 200000 --seed $seed" "$make" check SANITIZE=thread
part "$make" valgrind
[ "$parsers" -eq 0 ] || part "$make" fuzz TIME=$((${FUZZ:-3600} / parsers))

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
