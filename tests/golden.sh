#!/bin/sh
# Replay the recorded logits of another engine.
#
#   OUT=build/<hash> tests/golden.sh [TRACE...]
#
# Each trace holds what sequences of operations have to give; build/replay runs them against the library and the
# engine. Traces and models are too large for the repository: they are looked for in $CELLAR_SHARED (../shared where
# that is not set), golden/NAME.json beside models/random/NAME.gguf, and skipped, loudly, where they are absent.
# CELLAR_CPU chooses the kernels, EXEC goes in front of the program.

set -u
: "${OUT:?the folder of the build}"
shared=${CELLAR_SHARED:-../shared}
[ $# -gt 0 ] || set -- llama llama-f16 llama-q8_0 llama-q4_0 llama256-q4_k llama256-q6_k \
    qwen2 qwen3 qwen2vl phi3 gemma2 gemma3 gemma4 swa-all cohere2 granite_swa bloom mpt deepseek2 t5 \
    mamba mamba2 rwkv6 rwkv7 lfm2 falcon-h1 jamba
passed=0
failed=0
skipped=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
trap 'exit 1' HUP INT TERM

for name in "$@"; do
    trace=$shared/golden/$name.json
    model=$shared/models/random/$name.gguf
    if [ ! -r "$trace" ] || [ ! -r "$model" ]; then
        echo "skip: $name: $trace or $model is not here (CELLAR_SHARED names the folder)"
        skipped=$((skipped + 1))
        continue
    fi
    echo "== $name"
    # shellcheck disable=SC2086 # EXEC is a list of words
    ${EXEC-} "$OUT/tests/replay" "$trace" "$model" >"$log" 2>&1
    code=$?
    cat "$log"
    counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$log" | tail -n 1)
    # A replayer that ends without a result, or badly without a failure, has failed.
    [ -n "$counts" ] || counts='0 1 0'
    # shellcheck disable=SC2086
    add() {
        [ "$code" -eq 0 ] || [ "$2" -gt 0 ] || set -- "$1" 1 "$3"
        passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    }
    # shellcheck disable=SC2086
    add $counts
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
