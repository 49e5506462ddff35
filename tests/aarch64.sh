#!/bin/sh
# Build for AArch64 with a cross compiler, and run there what needs no more than libc.
#
#   tests/aarch64.sh          (make aarch64-check)
#
# Everything is compiled, the program too; what is run are the tests of the kernels and of the library that link
# without other libraries, in an emulator and therefore short. Installs nothing: without a cross compiler, its libc or
# QEMU it says what is missing and counts as skipped. Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross
# qemu-user-static. AARCH64_CC and AARCH64_EXEC name others. The last line counts; exit 1 if something failed.

set -u
compiler=${AARCH64_CC:-aarch64-linux-gnu-gcc}
make=${MAKE:-make}

skip() {
    echo "skip: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

[ "$(uname -m)" != aarch64 ] || skip "this is AArch64: make check has tested it"
command -v "$compiler" >/dev/null 2>&1 || skip "no $compiler here (Debian: gcc-aarch64-linux-gnu)"

emulator=${AARCH64_EXEC-}
for name in qemu-aarch64-static qemu-aarch64; do
    [ -n "$emulator" ] || ! command -v $name >/dev/null 2>&1 || emulator="$name -L /usr/$("$compiler" -dumpmachine)"
done
[ -n "$emulator" ] || skip "no qemu-aarch64 here (Debian: qemu-user-static)"

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
echo 'int main(void) { return 0; }' >"$scratch/try.c"
"$compiler" -o "$scratch/try" "$scratch/try.c" 2>"$scratch/log" ||
    skip "$compiler links nothing (Debian: libc6-dev-arm64-cross): $(head -n 1 "$scratch/log")"
# shellcheck disable=SC2086 # a command and its arguments
$emulator "$scratch/try" 2>"$scratch/log" ||
    skip "a program does not start with $emulator: $(head -n 1 "$scratch/log")"

tools=${compiler%gcc}
passed=0
failed=0
skipped=0
# part COMMAND...: run it, show it, add up its last line.
part() {
    "$@" >"$scratch/log" 2>&1
    code=$?
    grep -Ev '^  (CC|AS|AR|LINK) |^make\[' "$scratch/log"
    counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$scratch/log" | tail -n 1)
    [ -n "$counts" ] || counts='0 1 0'
    # shellcheck disable=SC2086
    set -- $counts
    [ "$code" -eq 0 ] || [ "$2" -ne 0 ] || set -- "$1" 1 "$3"
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

export KERNEL_CHECK_ARGUMENTS=--quick DIFFERENTIAL_ARGUMENTS='--operations 2000'
part "$make" CC="$compiler" APP_LIBS= EXEC="$emulator" check ONLY='kernel_check differential faults crash'
part "$make" CC="$compiler" NM="${tools}nm" OBJDUMP="${tools}objdump" symbols
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
