#!/bin/sh
# Make the manual pages that are not written by hand.
#
#   OUT=build/<hash> VERSION=0.1.0 [EXEC=wrapper] tools/make_manuals.sh          (make manuals)
#
# $OUT/man/man1: docs/man/cellar.1, and a page for each command (and each part of one that has a help of its own) from what
# the program says about it. $OUT/man/man3: cellar(3) and a page for every declaration of cellar.h from its comments.
# A program of another machine cannot be asked: without EXEC its commands have no pages then, and a note says so.

set -eu
: "${OUT:?the folder of the build}" "${VERSION:?major.minor.patch}"
export LC_ALL=C
man=$OUT/man
date=$(awk '$1 == ".TH" { print $4; exit }' docs/man/cellar.1)
tab=$(printf '\t')

rm -rf "$man"
mkdir -p "$man/man1" "$man/man3"
cp docs/man/cellar.1 "$man/man1/cellar.1"
awk -v to="$man/man3" -v version="$VERSION" -v date="$date" -f tools/header_pages.awk include/cellar.h

ask() {
    # shellcheck disable=SC2086 # a list of words
    ${EXEC-} "$OUT/cellar" "$@"
}
# page NAME SUMMARY <help
page() {
    awk -v name="$1" -v summary="$2" -v version="$VERSION" -v date="$date" -f tools/help_pages.awk >"$man/man1/cellar-$1.1"
}
if ! ask version >/dev/null 2>&1; then
    echo "note: the program does not run here, so there are no pages of its commands" >&2
    exit 0
fi
ask --help=options >"$man/commands"
while IFS=$tab read -r _ command _ summary; do
    ask help "$command" >"$man/help"
    page "$command" "$summary" <"$man/help"
    ask "$command" --help=options 2>/dev/null </dev/null | grep "^word$tab" >"$man/parts" || continue
    [ "$command" != help ] || continue
    while IFS=$tab read -r _ part _; do
        ask "$command" "$part" --help >"$man/part" </dev/null
        cmp -s "$man/help" "$man/part" || page "$command-$part" "$summary" <"$man/part"
    done <"$man/parts"
done <"$man/commands"
rm -f "$man/commands" "$man/help" "$man/parts" "$man/part"
