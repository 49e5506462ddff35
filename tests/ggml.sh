#!/bin/sh
# examples/ggml: attention that ggml computes, held against Cellar's own. Skipped where there is no ggml.
#
#   OUT=build/<hash> [CC=cc] tests/ggml.sh
#   GGML_CFLAGS=-I... GGML_LIBS='-L... -lggml -lggml-cpu -lggml-base' tests/ggml.sh     a ggml that lies elsewhere
#
# Without those, pkg-config is asked, and then the compiler's own folders. ggml is nothing that Cellar needs: it is
# built and installed by whoever wants to see the two together. The last line counts.

set -u
: "${OUT:?the folder of the build}"
CC=${CC:-cc}

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

cflags=${GGML_CFLAGS-}
libs=${GGML_LIBS-}
if [ -z "$libs" ] && command -v pkg-config >/dev/null 2>&1 && pkg-config --exists ggml; then
    cflags=$(pkg-config --cflags ggml)
    libs="$(pkg-config --libs ggml) -lggml-cpu -lggml-base"
fi
[ -n "$libs" ] || libs='-lggml -lggml-cpu -lggml-base'
# Warnings of foreign headers are not ours.
cflags=$(printf '%s' "$cflags" | sed 's/-I */-isystem /g')

printf '#include <ggml-cpu.h>\nint main(void) { return !ggml_backend_cpu_init(); }\n' >"$scratch/try.c"
# shellcheck disable=SC2086 # lists of words
if ! $CC $cflags -o "$scratch/try" "$scratch/try.c" $libs >/dev/null 2>&1; then
    echo 'skip: there is no ggml here (GGML_CFLAGS and GGML_LIBS say where one is)'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi
# shellcheck disable=SC2086
if $CC -std=c11 -O2 -Wall -Wextra -Wshadow -Wcast-qual -Werror -Iinclude $cflags ${SANITIZERS-} -o "$scratch/ggml_attention" \
    examples/ggml/ggml_attention.c "$OUT/libcellar.a" $libs -lm && ${EXEC-} "$scratch/ggml_attention"; then
    echo '1 passed, 0 failed, 0 skipped'
else
    echo "FAIL ggml_attention ended with $?"
    echo '0 passed, 1 failed, 0 skipped'
    exit 1
fi
