#!/bin/sh
# examples/ggml: attention that ggml computes, held against Cellar's own. Skipped where there is no ggml.
#
#   OUT=build/<hash> [CC=cc] tests/ggml.sh
#   GGML_CFLAGS=-I... GGML_LIBS='-L... -lggml -lggml-cpu -lggml-base' tests/ggml.sh     a ggml that lies elsewhere
#
# Looked for in this order: those two, pkg-config, the compiler's own folders, CMake (CMAKE_PREFIX_PATH). ggml is nothing
# that Cellar needs: it is built and installed by whoever wants to see the two together. The last line counts.

set -u
: "${OUT:?the folder of the build}"
CC=${CC:-cc}
warnings='-Wall -Wextra -Wshadow -Wcast-qual -Werror'

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
program=$scratch/ggml_attention

cflags=${GGML_CFLAGS-}
libs=${GGML_LIBS-}
if [ -z "$libs" ] && command -v pkg-config >/dev/null 2>&1 && pkg-config --exists ggml; then
    cflags=$(pkg-config --cflags ggml)
    libs="$(pkg-config --libs ggml) -lggml-cpu -lggml-base"
fi
[ -n "$libs" ] || libs='-lggml -lggml-cpu -lggml-base'
# Warnings of foreign headers are not ours.
cflags=$(printf '%s' "$cflags" | sed 's/-I */-isystem /g')

with_flags() {
    # shellcheck disable=SC2086 # lists of words
    $CC -std=c11 -O2 $warnings -Iinclude $cflags ${SANITIZERS-} -o "$program" examples/ggml/ggml_attention.c \
        "$OUT/libcellar.a" $libs -lm
}
with_cmake() {
    cmake --build "$scratch/cmake" >"$scratch/log" 2>&1 && cp "$scratch/cmake/ggml_attention" "$program"
}

printf '#include <ggml-cpu.h>\nint main(void) { return !ggml_backend_cpu_init(); }\n' >"$scratch/try.c"
case $OUT in /*) library=$OUT/libcellar.a ;; *) library=$(pwd)/$OUT/libcellar.a ;; esac
# shellcheck disable=SC2086
if $CC $cflags -o "$scratch/try" "$scratch/try.c" $libs >/dev/null 2>&1; then
    build=with_flags
elif command -v cmake >/dev/null 2>&1 &&
    cmake -S examples/ggml -B "$scratch/cmake" -DCMAKE_C_COMPILER="$CC" -DCMAKE_C_FLAGS="$warnings ${SANITIZERS-}" \
        -DCELLAR_INCLUDE="$(pwd)/include" -DCELLAR_LIBRARY="$library" >/dev/null 2>&1; then
    build=with_cmake
else
    echo 'skip: there is no ggml here (GGML_CFLAGS and GGML_LIBS, or CMAKE_PREFIX_PATH, say where one is)'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi

if ! $build; then
    [ ! -s "$scratch/log" ] || sed 's/^/     /' "$scratch/log"
    echo "FAIL ggml_attention does not build ($build)"
elif ${EXEC-} "$program"; then
    echo '1 passed, 0 failed, 0 skipped'
    exit 0
else
    echo "FAIL ggml_attention ended with $?"
fi
echo '0 passed, 1 failed, 0 skipped'
exit 1
