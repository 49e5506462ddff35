#!/bin/sh
# Run test programs, as many at a time as there are processors, and add up what they say.
#
#   OUT=build/<hash> [EXEC=wrapper] [TEST_JOBS=n] tools/run_tests.sh TEST...
#
# A TEST is a program or a script. TEST@scalar runs it with CELLAR_CPU=scalar, so that the portable kernels are
# tested on a machine that has better ones. NAME@skip:REASON only counts a test that cannot run here. They are begun
# in the order given, so that the longest should come first.
#
# Understood: cmocka's summary, and a last line "N passed, N failed, N skipped". A program that ends badly
# without counting a failure (a crash, a sanitizer, a leak, a time-out) is one failure; so is one that counts
# nothing. The output of a failed program is shown whole, at the end; every output is kept in $OUT/logs/. Ends with
# the totals on a line of their own and exits 1 if anything failed or nothing ran.

set -u
: "${OUT:?the folder of the build}"
logs=$OUT/logs
mkdir -p "$logs"

# Leaks count; a sanitizer's report ends the program with a code of its own.
export ASAN_OPTIONS="${ASAN_OPTIONS-detect_leaks=1:detect_stack_use_after_return=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS-halt_on_error=1}"
# cmocka prints in one form whatever the user's environment says, and never writes files.
export CMOCKA_MESSAGE_OUTPUT=stdout
unset CMOCKA_XML_FILE

limit=
if command -v timeout >/dev/null 2>&1; then limit="timeout -k 10 ${TEST_TIMEOUT:-1800}"; fi

# Prints "passed failed skipped" of a log.
count() {
    awk '
        /^\[  PASSED  \] [0-9]+ test/ { passed += $4; seen = 1 }
        /^\[  FAILED  \] [0-9]+ test/ { failed += $4; seen = 1 }
        /^\[  SKIPPED \] [0-9]+ test/ { skipped += $4; seen = 1 }
        /^[0-9]+ passed, [0-9]+ failed/ { p = $1; f = $3; s = ($6 ~ /skipped/) ? $5 : 0; own = 1 }
        END {
            if (own) print p, f, s
            else if (seen) print passed + 0, failed + 0, skipped + 0
            else print "none"
        }' "$1"
}

# What one test came to goes to a file beside its output: passed, failed, skipped and its name; when it failed, why.
record() {
    printf '%s\n' "$1 $name" "$reason" >"$log.counts"
}

# One test. What it prints comes in one piece, so that tests beside each other do not mix their lines.
run() {
    test=$1
    reason=
    program=${test%%@*}
    variant=
    case $test in *@*) variant=${test#*@} ;; esac
    name=$(basename "$program" .sh)

    case $variant in
    scalar)
        name="$name (scalar)"
        cpu=scalar
        ;;
    *) cpu=${CELLAR_CPU-} ;;
    esac

    log=$logs/$(printf '%s' "$name" | tr -c 'a-zA-Z0-9_\n' '_').log
    case $variant in
    skip:*)
        printf '  %-6s %-28s %s\n' skip "$name" "${variant#skip:}"
        : >"$log"
        record '0 0 1'
        return
        ;;
    esac

    # Arguments: UNIT_RUNS_ARGUMENTS for unit_runs, or the corpus of a fuzz target.
    arguments=
    case ${program##*/} in
    corpus_*) arguments="fuzz/corpus/${program##*/corpus_}" ;;
    crash) arguments=${CRASH_ARGUMENTS-} ;;
    unit_serve_load) arguments=${SERVE_LOAD_ARGUMENTS-} ;;
    unit_serve_kill) arguments=${SERVE_KILL_ARGUMENTS-} ;;
    kernel_check) arguments=${KERNEL_CHECK_ARGUMENTS-} ;;
    differential) arguments=${DIFFERENTIAL_ARGUMENTS-} ;;
    attention_matrix) arguments=${ATTENTION_MATRIX_ARGUMENTS-} ;;
    esac
    # Scripts run the wrapper themselves, around the programs they start.
    case $program in
    *.sh) wrapper= ;;
    *) wrapper=${EXEC-} ;;
    esac

    start=$(date +%s)
    # shellcheck disable=SC2086 # wrapper and arguments are lists of words
    if [ -n "$cpu" ]; then
        CELLAR_CPU=$cpu $limit $wrapper "$program" $arguments >"$log" 2>&1 </dev/null
    else
        $limit $wrapper "$program" $arguments >"$log" 2>&1 </dev/null
    fi
    code=$?
    seconds=$(($(date +%s) - start))

    counts=$(count "$log")
    case $counts in
    none)
        counts='0 1 0'
        reason="ended with code $code and reported no result"
        ;;
    esac
    # shellcheck disable=SC2086
    set_counts() { passed=$1 failed=$2 skipped=$3; }
    # shellcheck disable=SC2086
    set_counts $counts
    if [ "$code" -ne 0 ] && [ "$failed" -eq 0 ]; then
        failed=1
        reason="ended with code $code"
        [ "$code" -ne 124 ] || reason="took longer than ${TEST_TIMEOUT:-1800} seconds"
    fi

    what="$passed passed"
    [ "$failed" -eq 0 ] || what="$what, $failed failed"
    [ "$skipped" -eq 0 ] || what="$what, $skipped skipped"
    line=ok
    [ "$failed" -eq 0 ] || line=FAIL
    line=$(printf '  %-6s %-28s %s (%d s)' "$line" "$name" "$what" "$seconds")
    # Say why something did not run.
    if [ "$failed" -eq 0 ] && [ "$skipped" -ne 0 ]; then
        line="$line
$(grep -i '^ *skip' "$log" | sed 's/^ */         /' | head -n 12)"
    fi
    printf '%s\n' "$line"
    record "$passed $failed $skipped"
}

if [ "${1-}" = --one ]; then
    run "$2"
    exit 0
fi

rm -f "$logs"/*.counts
[ $# -gt 0 ] || set -- "no test@skip:none was chosen"
jobs=${TEST_JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)}
printf '%s\0' "$@" | xargs -0 -n 1 -P "$jobs" "$0" --one

total_passed=0
total_failed=0
total_skipped=0
ended=0
bad=
for file in "$logs"/*.counts; do
    [ -e "$file" ] || continue
    { read -r passed failed skipped name && read -r reason; } <"$file"
    ended=$((ended + 1))
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
    [ "$failed" -ne 0 ] || continue
    printf '\n%s failed:\n' "$name"
    sed 's/^/    | /' "${file%.counts}"
    [ -z "$reason" ] || printf '    %s %s\n' "$name" "$reason"
    bad="$bad $name;"
done

# A test that came to nothing, or two of one name, would hide what they should have said.
if [ "$ended" -ne $# ]; then
    echo "of $# tests $ended came to an end"
    total_failed=$((total_failed + 1))
fi
[ -z "$bad" ] || printf 'failed:%s see %s\n' "$bad" "$logs"
printf '%d passed, %d failed, %d skipped\n' "$total_passed" "$total_failed" "$total_skipped"
[ "$total_failed" -eq 0 ] && [ "$total_passed" -gt 0 ]
