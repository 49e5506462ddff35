#!/bin/sh
# Where time goes: a prompt, generation, and generation behind a long text, by kind of work, as Markdown.
#
#   tools/bench_breakdown.sh [MODEL.gguf] [DEPTH] [THREADS]
#
# Uses perf's clock of the processor (no hardware counters are needed), with K and V in f16, so that numbers which
# are decoded from blocks belong to weights. What is done before the work that is asked for (loading, the long text) is
# waited for and not counted. CELLAR names the program (build/cellar). Without perf it says so, and fails.

set -u
program=${CELLAR-build/cellar}
model=${1-}
depth=${2-4096}
threads=${3-1}
command -v perf >/dev/null || { echo "bench_breakdown.sh: there is no perf" >&2; exit 1; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

bench() {
    "$program" bench model ${model:+-m "$model"} -t "$threads" "$@"
}

# breakdown MILLISECONDS ARGUMENTS: percent by kind of work, one on a line; kinds go by the names of functions.
breakdown() {
    delay=$1
    shift
    perf record -q -e cpu-clock -F 997 -D "$delay" -o "$scratch/data" -- \
        "$program" bench model ${model:+-m "$model"} -t "$threads" "$@" >/dev/null 2>"$scratch/err" || {
        cat "$scratch/err" >&2
        exit 1
    }
    perf report -i "$scratch/data" --stdio --no-children -g none -F overhead,symbol 2>/dev/null | awk '
        function kind(name, place) {
            if (place == "[k]") return "the system"
            if (name ~ /attend|sweep|storage|decode_f16|f32_from_f16/) return "attention"
            if (name ~ /matmul|multiply|decode_|product|unpack/) return "products with weights"
            if (name ~ /norm|silu|gelu|activat|rope|rotat|residual/) return "norms, activations, rotation"
            if (name ~ /encode_/) return "storing rows"
            if (name ~ /spin|wait|threads/) return "waiting for threads"
            return "everything else"
        }
        /^ *[0-9.]+%/ { sub(/%/, "", $1); percent[kind($3, $2)] += $1 }
        END { for (k in percent) printf "%s\t%.1f\n", k, percent[k] }' | sort
}

# Milliseconds until everything before the last token is done.
before() {
    start=$(date +%s%N)
    bench -p 0 -n 1 -r 1 -d "$1" >/dev/null || exit 1
    end=$(date +%s%N)
    echo $(((end - start) * 13 / 10000000))
}

short=$(before 0)
long=$(before "$depth")
breakdown "$short" -p 512 -n 0 -r 10 >"$scratch/prompt"
breakdown "$short" -p 0 -n 128 -r 10 >"$scratch/near"
breakdown "$long" -p 0 -n 64 -r 20 -d "$depth" >"$scratch/far"

echo "| percent of processor time | prompt of 512 | generation | generation behind $depth |"
echo "| --- | --- | --- | --- |"
cut -f 1 "$scratch/prompt" "$scratch/near" "$scratch/far" | sort -u | while read -r kind; do
    printf '| %s' "$kind"
    for part in prompt near far; do
        percent=$(awk -F '\t' -v k="$kind" '$1 == k { print $2 }' "$scratch/$part")
        printf ' | %s' "${percent:-0.0}"
    done
    echo ' |'
done
