#!/bin/sh
# What the library shows to the outside, and which instructions it uses where.
#
#   OUT=build/<hash> [NM=... OBJDUMP=...] tests/symbols.sh          (make symbols)
#
#   1. the shared library exports names that begin with cellar_, and nothing else;
#   2. every call of the header is exported, and every export stands in the header;
#   3. in the static library every global name begins with cellar_ or cl_;
#   4. AVX registers occur in files named *_avx2 and *_avx512 only, and those of 512 bits in the latter, so that the
#      program starts on any processor; on AArch64, NEON is everywhere, but CRC-32C instructions are in one file;
#   5. the library calls nothing that ends the process or prints;
#   6. the program defines no name of the libraries that it is linked with: theirs would be called by ours, or ours by
#      theirs, and neither linker nor compiler says a word.
# The last line counts; exit 1 if something failed.

set -u
: "${OUT:?the folder of the build}"
shared=$OUT/libcellar.so
static=$OUT/libcellar.a
passed=0
failed=0
skipped=0

# verdict NAME OFFENDERS: passes if there are none.
verdict() {
    if [ -z "$2" ]; then
        echo "ok   $1"
        passed=$((passed + 1))
    else
        echo "FAIL $1:"
        echo "$2" | head -n 20 | sed 's/^/     /'
        failed=$((failed + 1))
    fi
}

nm=${NM:-nm}
objdump=${OBJDUMP:-objdump}
for tool in "$nm" "$objdump" awk; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "skip: there is no $tool here"
        echo "0 passed, 0 failed, 8 skipped"
        exit 0
    fi
done

exported=$("$nm" -D --defined-only "$shared" | awk '{ print $3 }' | sed 's/@.*//' | sort -u)
[ -n "$exported" ] || exported=the_library_exports_nothing
verdict "libcellar.so exports only cellar_*" "$(echo "$exported" | grep -v '^cellar_')"

# Declarations of the header: CELLAR_API ... name( over one or more lines, comments removed.
declared=$(awk '{ gsub(/\/\*[^*]*\*\//, "") } /CELLAR_API[^;]/ && !/define/ { text = $0
        while (text !~ /\(/ && (getline line) > 0) text = text " " line
        sub(/\(.*/, "", text); n = split(text, word, /[ *]+/); print word[n] }' include/cellar.h | sort -u)
difference=$(
    echo "$declared" | while read -r name; do
        echo "$exported" | grep -qx "$name" || echo "$name is in cellar.h, not in the library"
    done
    echo "$exported" | while read -r name; do
        echo "$declared" | grep -qx "$name" || echo "$name is in the library, not in cellar.h"
    done
)
verdict "cellar.h and libcellar.so name the same calls" "$difference"

verdict "libcellar.a defines only cellar_* and cl_*" \
    "$("$nm" -g --defined-only "$static" | awk 'NF == 3 { print $3 }' | grep -Ev '^(cellar_|cl_)' | sort -u)"

# With a sanitizer, and off x86, there is nothing to see in the code.
case $("$objdump" -f "$OUT"/lib/*.o 2>/dev/null | awk '/^architecture/ { print $2; exit }') in
i386:x86-64,)
    offenders=$(find "$OUT/lib" "$OUT/kernels" "$OUT/app" -name '*.o' ! -name '*_avx2.o' ! -name '*_avx512.o' | sort | while read -r object; do
        "$objdump" -d --no-show-raw-insn "$object" | grep -Eq '%(ymm|zmm)[0-9]' && echo "$object"
    done)
    verdict "AVX registers occur only in *_avx2.o and *_avx512.o" "$offenders"
    offenders=$(for object in "$OUT"/kernels/*_avx2.o; do
        "$objdump" -d --no-show-raw-insn "$object" 2>/dev/null | grep -Eq '%(zmm|k)[0-9]' && echo "$object"
    done)
    verdict "registers of 512 bits and masks occur only in *_avx512.o" "$offenders"
    for object in "$OUT"/kernels/*_avx2.o "$OUT"/kernels/*_avx512.o; do
        [ -e "$object" ] || continue
        extra=$("$nm" -g --defined-only "$object" | awk '{ print $3 }' | grep -Evx 'cl_[a-z0-9_]+_fill_avx(2|512)')
        [ -z "$extra" ] || wide="${wide-}$object defines $extra
"
    done
    verdict "each of them exports its fill function alone" "${wide-}"
    ;;
aarch64,)
    offenders=$(find "$OUT/lib" "$OUT/kernels" "$OUT/app" -name '*.o' ! -name crc32c_neon.o | sort | while read -r object; do
        "$objdump" -d --no-show-raw-insn "$object" | grep -Eq '[[:space:]]crc32c?[bhwx][[:space:]]' && echo "$object"
    done)
    verdict "CRC-32C instructions occur only in crc32c_neon.o" "$offenders"
    for object in "$OUT"/kernels/*_neon.o; do
        extra=$("$nm" -g --defined-only "$object" | awk '{ print $3 }' | grep -Evx 'cl_[a-z0-9]+_fill_neon')
        [ -z "$extra" ] || wide="${wide-}$object defines $extra
"
    done
    verdict "each *_neon.o exports its fill function alone" "${wide-}"
    ;;
*)
    echo "skip: neither x86-64 nor AArch64, or nothing was built: no vector instructions to look for"
    skipped=$((skipped + 3))
    ;;
esac

verdict "the library neither ends the process nor prints" \
    "$("$nm" -u "$static" | awk '/:$/ { file = $1 } /^ +U / { print file, $2 }' |
        grep -E ' (abort|exit|_exit|_Exit|quick_exit|raise|kill|printf|puts|putchar|fprintf|fputs|fputc|fwrite|perror|vprintf|vfprintf|stdout|stderr)$')"

libraries=$(ldd "$OUT/cellar" 2>/dev/null | awk '$3 ~ /^\// { print $3 }')
if [ -z "$libraries" ]; then
    echo "skip: there is no program, or not one that this machine can start: no names of other libraries"
    skipped=$((skipped + 1))
else
    names=$(mktemp) || exit 1
    trap 'rm -f "$names"' EXIT
    "$nm" -g --defined-only "$OUT/libapp.a" "$static" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u >"$names"
    both=$(for library in $libraries; do
        "$nm" -D --defined-only "$library" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u | comm -12 - "$names" |
            sed "s|\$| is also in ${library##*/}|"
    done)
    verdict "no name of the program is one of a library's" "$both"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
