#!/bin/sh
# Fuzz each parser for TIME seconds, starting from its corpus.
#
#   OUT=build/<hash> TIME=60 tools/fuzz.sh PARSER...          (make fuzz TIME=60)
#
# What the fuzzer learns is kept in $BUILD/fuzz/<parser>/, beside the seeds of fuzz/corpus/<parser>/, which it never
# changes. An input that makes a target fail is left in $BUILD/fuzz/, to be added to the corpus with its
# fix. A parser that wants more than the memory limit because a file says so has failed.

set -u
: "${OUT:?the folder of the build}"
build=$(dirname "$OUT")
passed=0
failed=0

for parser in "$@"; do
    learned=$build/fuzz/$parser
    mkdir -p "$learned"
    seeds=
    [ ! -d "fuzz/corpus/$parser" ] || seeds=fuzz/corpus/$parser
    dictionary=
    [ ! -f "fuzz/$parser.dict" ] || dictionary=-dict=fuzz/$parser.dict
    log=$build/fuzz/$parser.log
    echo "== $parser, ${TIME:-60} s"
    # shellcheck disable=SC2086 # seeds and dictionary may be nothing
    if "$OUT/fuzz/fuzz_$parser" -max_total_time="${TIME:-60}" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 \
        -artifact_prefix="$build/fuzz/$parser-" -print_final_stats=1 $dictionary "$learned" $seeds \
        >"$log" 2>&1 </dev/null; then
        grep -E 'number_of_executed_units|new_units_added' "$log" | sed 's/^stat::/   /'
        passed=$((passed + 1))
    else
        tail -n 60 "$log"
        failed=$((failed + 1))
    fi
done

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
