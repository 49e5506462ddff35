#!/bin/sh
# The tarball of a release: the same bytes twice, and from its own contents.
#
#   MAKE=make tests/dist.sh          (a part of make installcheck)
#
# Packed twice with another umask, locale and time zone between, then unpacked and packed again where there is no git.
# That what was unpacked builds and passes its tests takes minutes: tests/packages.sh. The last line counts.

set -u
make=${MAKE:-make}
passed=0
failed=0
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# check NAME COMMAND...
check() {
    name=$1
    shift
    if "$@" >"$scratch/log" 2>&1; then
        echo "ok   $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        sed 's/^/     /' "$scratch/log"
        failed=$((failed + 1))
    fi
}
pack() {
    $make --no-print-directory -C "$1" dist BUILD="$2"
}
version=$($make -s print-version)
tarball=cellar-$version.tar.xz
if ! command -v xz >/dev/null 2>&1; then
    echo "skip: there is no xz here"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

check "make dist" pack . "$scratch/one"
check "make dist, by somebody else" env TZ=Pacific/Auckland LC_ALL=C.UTF-8 sh -c "umask 077; $make -s dist BUILD='$scratch/two'"
check "both have the same bytes" cmp "$scratch/one/$tarball" "$scratch/two/$tarball"
check "it unpacks into one folder" sh -c "cd '$scratch' && tar xJf one/$tarball && test -f cellar-$version/Makefile"
check "without git the same bytes come out" sh -c "cd '$scratch/cellar-$version' && $make -s dist &&
    cmp build/$tarball '$scratch/one/$tarball'"
check "SOURCE_DATE_EPOCH is the age of every file" sh -c "SOURCE_DATE_EPOCH=86400 $make -s dist BUILD='$scratch/old' &&
    test \"\$(TZ=UTC tar tvJf '$scratch/old/$tarball' | grep -c ' 1970-01-02 00:00 ')\" = \
        \"\$(tar tJf '$scratch/old/$tarball' | wc -l)\""
check "nothing that was made is in it" sh -c "! tar tJf '$scratch/one/$tarball' | grep -E '/(build|\.git|__pycache__)/|\.o\$'"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
