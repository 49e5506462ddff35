#!/bin/sh
# Install into an empty folder, build a foreign program against what lies there, run it.
#
#   OUT=build/<hash> CC=cc tests/install.sh          (make installcheck)
#
# The program is compiled in a folder of its own with nothing but what pkg-config says, once against the
# shared and once against the static library (and as C++, plain and through
# cellar.hpp), and has to remember and forget some tokens. The same by CMake's find_package, also after the
# installation was moved elsewhere.
# Then everything is uninstalled and nothing may be left. The last line counts; exit 1 if something failed.

set -u
: "${OUT:?the folder of the build}"
CC=${CC:-cc}
CXX=${CXX:-c++}
make=${MAKE:-make}
passed=0
failed=0
skipped=0

ok() {
    echo "ok   $1"
    passed=$((passed + 1))
}
bad() {
    echo "FAIL $1"
    [ ! -s "$scratch/log" ] || sed 's/^/     /' "$scratch/log"
    failed=$((failed + 1))
}
skip() {
    echo "skip: $1"
    skipped=$((skipped + 1))
}
# try NAME COMMAND...
try() {
    name=$1
    shift
    if "$@" >"$scratch/log" 2>&1 </dev/null; then ok "$name"; else bad "$name"; fi
}

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
root=$scratch/root
prefix=/usr/local
libdir=$prefix/lib/somewhere

# The same build as the caller's: these reach the inner make through the environment or the line.
run_make() {
    $make --no-print-directory "$@" DESTDIR="$root" PREFIX="$prefix" LIBDIR="$libdir"
}
try "make install DESTDIR=" run_make install

for file in bin/cellar include/cellar.h include/cellar.hpp lib/somewhere/libcellar.a lib/somewhere/libcellar.so \
    lib/somewhere/libcellar.so.0 lib/somewhere/pkgconfig/cellar.pc lib/somewhere/cmake/cellar/cellarConfig.cmake \
    lib/somewhere/cmake/cellar/cellarConfigVersion.cmake share/man/man1/cellar.1 share/man/man3/cellar.3 \
    share/man/man3/cellar_create.3 \
    share/bash-completion/completions/cellar share/zsh/site-functions/_cellar \
    share/fish/vendor_completions.d/cellar.fish; do
    try "there is $file" test -s "$root$prefix/$file"
done
try "nothing installed mentions the scratch folder" sh -c "! grep -rlF '$scratch' '$root' --include=*.pc --include=*.h"
try "nothing installed has a word left to be filled in" sh -c "! grep -rlE '@[A-Z_]+@' '$root' --include=*.pc --include=*.cmake"
try "what is installed can be read by all" sh -c "test -z \"\$(find '$root' ! -type l ! -perm -444)\""
try "the installed program runs" "$root$prefix/bin/cellar" --version

cat >"$scratch/foreign.c" <<'END'
#include <cellar.h>
#include <stdio.h>

int main(void)
{
    static float rows[3 * 8], out[3 * 8];
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = layer.n_kv_heads = 1;
    layer.k_size = layer.v_size = 8;
    layer.rope.kind = CELLAR_ROPE_NEOX;
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = 64;
    cellar_memory *memory;
    cellar_error error;
    if (cellar_create(&config, &memory, &error) != CELLAR_OK) return puts(error.message), 1;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 3;
    for (int i = 0; i < 24; i++) rows[i] = (float)i / 24;
    if (cellar_begin(memory, &batch, &error) != CELLAR_OK ||
        cellar_store(memory, 0, 0, rows, rows, &error) != CELLAR_OK ||
        cellar_attend(memory, 0, 0, rows, out, &error) != CELLAR_OK ||
        cellar_commit(memory, &error) != CELLAR_OK ||
        cellar_copy(memory, 0, 7, 0, -1, &error) != CELLAR_OK ||
        cellar_remove(memory, 0, 1, -1, &error) != CELLAR_OK)
        return puts(error.message), 1;
    const int is_right = cellar_position_max(memory, 0) == 0 && cellar_position_max(memory, 7) == 2;
    cellar_destroy(memory);
    printf("cellar %s\n", cellar_version());
    return is_right ? 0 : 1;
}
END
cp "$scratch/foreign.c" "$scratch/foreign_too.cpp"

cat >"$scratch/wrapped.cpp" <<'END'
#include <cellar.hpp>
#include <cstdio>

int main()
{
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = layer.n_kv_heads = 1;
    layer.k_size = layer.v_size = 8;
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = 64;
    cellar::memory memory(config);
    const std::vector<cellar_token> tokens = {1, 2};
    const std::vector<float> rows(16, 0.5f);
    cellar::step step(memory, cellar::batch(tokens));
    step.store(0, 0, rows, rows);
    step.commit();
    std::printf("cellar %s\n", cellar_version());
    return memory.sequence(0).pos_next == 2 ? 0 : 1;
}
END

if command -v pkg-config >/dev/null 2>&1; then
    export PKG_CONFIG_PATH="$root$libdir/pkgconfig"
    export PKG_CONFIG_SYSROOT_DIR="$root"
    flags=$(pkg-config --cflags cellar)
    libs=$(pkg-config --libs cellar)
    static_libs=$(pkg-config --static --libs cellar | sed 's/-lcellar/-l:libcellar.a/')
    version=$(pkg-config --modversion cellar)
    try "pkg-config and the program agree on the version" \
        test "cellar $version" = "$("$root$prefix/bin/cellar" version | head -n 1)"
else
    skip "there is no pkg-config here; its answers are assumed"
    flags=-I$root$prefix/include
    libs="-L$root$libdir -lcellar"
    static_libs="-L$root$libdir -l:libcellar.a -lm"
fi
sanitizers=${SANITIZERS-}

cd "$scratch" || exit 1
# shellcheck disable=SC2086 # lists of words
{
    try "compiles against the shared library" $CC -std=c11 $sanitizers $flags -o shared foreign.c $libs
    try "runs with the shared library" env LD_LIBRARY_PATH="$root$libdir" ./shared
    try "needs the soname" sh -c "readelf -d shared | grep -q 'NEEDED.*libcellar.so.0'"
    try "compiles against the static library" $CC -std=c11 $sanitizers $flags -o static foreign.c $static_libs
    try "runs with the static library" ./static
    try "the static program needs no libcellar" sh -c "! readelf -d static | grep -q libcellar"
    if command -v "$CXX" >/dev/null 2>&1; then
        try "compiles as C++" $CXX -std=c++11 $sanitizers $flags -o as_cxx foreign_too.cpp $libs
        try "runs as C++" env LD_LIBRARY_PATH="$root$libdir" ./as_cxx
        try "compiles with cellar.hpp" $CXX -std=c++17 $sanitizers $flags -o wrapped wrapped.cpp $libs
        try "runs with cellar.hpp" env LD_LIBRARY_PATH="$root$libdir" ./wrapped
    else
        skip "there is no C++ compiler here"
    fi
}
cd "$OLDPWD" || exit 1

# ---- CMake

cat >"$scratch/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.10)
project(foreign C)
find_package(cellar ${WANTED} REQUIRED COMPONENTS ${PARTS})
add_executable(foreign foreign.c)
target_link_libraries(foreign ${LINKED})
END

# cmake_builds FOLDER PREFIX LINKED PARTS WANTED: configure and build there, against what is installed in that prefix.
cmake_builds() {
    cmake -S "$scratch" -B "$scratch/$1" -DCMAKE_PREFIX_PATH="$2" -DLINKED="$3" -DPARTS="$4" -DWANTED="$5" \
        -Dcellar_DIR="$2/${libdir#"$prefix"/}/cmake/cellar" -DCMAKE_C_COMPILER="${CC%% *}" -DCMAKE_C_FLAGS="$sanitizers" &&
        cmake --build "$scratch/$1"
}
if command -v cmake >/dev/null 2>&1; then
    own=$("$root$prefix/bin/cellar" version | sed -n '1s/cellar //p')
    try "CMake builds with the shared library" cmake_builds by_shared "$root$prefix" cellar::cellar "" "$own"
    try "what CMake built runs with the shared library" "$scratch/by_shared/foreign"
    try "it needs the soname" sh -c "readelf -d '$scratch/by_shared/foreign' | grep -q 'NEEDED.*libcellar.so.0'"
    try "CMake builds with the static library" cmake_builds by_static "$root$prefix" cellar::cellar static 0.1
    try "what CMake built runs with the static library" "$scratch/by_static/foreign"
    try "it needs no libcellar" sh -c "! readelf -d '$scratch/by_static/foreign' | grep -q libcellar"
    try "CMake refuses a version that is to come" sh -c "! cmake -S '$scratch' -B '$scratch/later' -DLINKED=cellar::cellar \
        -DWANTED=99.0 -Dcellar_DIR='$root$libdir/cmake/cellar' >/dev/null 2>&1"
    mv "$root$prefix" "$scratch/moved"
    try "CMake builds with an installation that was moved" cmake_builds by_moved "$scratch/moved" cellar::static "shared;static" ""
    try "what CMake built from there runs" "$scratch/by_moved/foreign"
    mv "$scratch/moved" "$root$prefix"
else
    skip "there is no cmake here"
fi

try "make uninstall" run_make uninstall
left=$(find "$root" ! -type d)$(find "$root" -type d -name "cellar*")
try "nothing is left after make uninstall" test -z "$left"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
