#!/bin/sh
# The manual: is everything in it, and does it format?
#
#   OUT=build/<hash> tests/manual.sh          (a part of make installcheck)
#
#   1. every name that libcellar.so exports, and every type, has a page that names it in its first lines;
#   2. every other word of cellar.h that begins with CELLAR_ stands in some page, with the value that it has;
#   3. every comment of the header is there to its last word;
#   4. every command has a page with all its options;
#   5. groff, and mandoc if it is there, format all pages without a warning.
# The names come from nm and grep, not from what made the pages. The last line counts; exit 1 if something failed.

set -u
: "${OUT:?the folder of the build}"
passed=0
failed=0
skipped=0
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
man=$OUT/man

# verdict NAME OFFENDERS
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
# The page of a name, .so followed.
page_of() {
    file=$man/man3/$1.3
    [ -f "$file" ] || return 1
    while target=$(sed -n '1s/^\.so //p' "$file") && [ -n "$target" ]; do file=$man/$target; done
    cat "$file"
}

calls=$(${NM:-nm} -D --defined-only "$OUT/libcellar.so" | awk '{ print $3 }' | sed 's/@.*//' | grep '^cellar_' | sort -u)
# Inline calls and types are no symbols: words of the header that end as only declarations do.
types=$(grep -oE '^} (cellar_[a-z0-9_]+);' include/cellar.h | tr -d '}; '
    grep -oE '^static inline [a-z_0-9 ]+ \**cellar_[a-z0-9_]+\(' include/cellar.h | grep -oE 'cellar_[a-z0-9_]+\(' | tr -d '('
    grep -E '^typedef [^{]*;' include/cellar.h | grep -oE '\(\*cellar_[a-z0-9_]+|cellar_[a-z0-9_]+;' | tr -d '(*;')
verdict "there are calls and types to look for" \
    "$([ "$(echo "$calls" | wc -l)" -gt 80 ] && [ "$(echo "$types" | wc -l)" -gt 40 ] || echo "fewer than there were")"
verdict "every call and type has a page that names it" "$(for name in $calls $types; do
    page_of "$name" | sed '/^\.SH SYNOPSIS/,$d' | grep -qw "$name" || echo "$name"
done)"
verdict "every call's page has its prototype" "$(for name in $calls; do
    page_of "$name" | sed -n '/^\.SH SYNOPSIS/,/^\.SH DESC/p' | grep -q "[ *]$name(" || echo "$name"
done)"

# Bare text of all pages, and of the header, words only.
cat "$man"/man3/*.3 | sed -e 's/\\f[BIR]//g' -e 's/\\-/-/g' -e 's/\\e/\\/g' >"$scratch/pages"
verdict "every constant stands in a page" "$(grep -oE '\bCELLAR_[A-Z0-9_]+' include/cellar.h | sort -u |
    grep -vxE 'CELLAR_(H|API|MUST_USE|[A-Z_]*_ENUM)' | while read -r word; do
    grep -qw "$word" "$scratch/pages" || echo "$word"
done)"
# Of each comment the last five words before its end, also inside structs.
sed 's/^ *\* / /' "$scratch/pages" | tr -s ' \n' '  ' | sed -e 's/ \.[A-Z][A-Z]*\( \\(bu 2\)\{0,1\}\( 4\)\{0,1\}\( \.nf\)\{0,1\}\( \.B\)\{0,1\}/ /g' \
    -e 's/ \.fi//g' -e 's/  */ /g' >"$scratch/pages_text"
verdict "every comment is there to its last word" "$(awk '
    { gsub(/^ *\* /, " "); text = text " " $0 }
    END {
        while (match(text, /\/\*([^*]|\*[^\/])*\*\//)) {
            comment = substr(text, RSTART + 2, RLENGTH - 4)
            text = substr(text, RSTART + RLENGTH)
            n = split(comment, word, " ")
            # Rules between parts, what closes a conditional, and guards are no comments to be read.
            if (comment ~ /----/ || comment ~ /^ CELLAR_H $/ || n == 0) continue
            line = word[n]
            for (i = n - 1; i > 0 && i > n - 5; i--) line = word[i] " " line
            print line
        }
    }' include/cellar.h | while read -r line; do
    grep -qF -e "$line" "$scratch/pages_text" || echo "$line"
done)"

# ---- the program

if [ -f "$man/man1/cellar-run.1" ]; then
    verdict "every command has a page with its options" "$("$OUT/cellar" help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p' |
        while read -r command; do
            [ -f "$man/man1/cellar-$command.1" ] || echo "cellar-$command"
            "$OUT/cellar" "$command" --help=options </dev/null 2>/dev/null | sed '/^$/,$d' | cut -f 2 | grep -e '^--' |
                grep -vxE -e '--(n-predict|no-display-prompt|ctx-size|ctk|ctv|help)' | while read -r name; do
                sed -e 's/\\-/-/g' "$man/man1/cellar-$command.1" | grep -qE -e "(^|[^a-z-])$name([^a-z-]|\$)" ||
                    echo "$name in cellar-$command.1"
            done
        done)"
else
    echo "skip: the program does not run here, its commands have no pages"
    skipped=$((skipped + 1))
fi

# ---- form

if command -v groff >/dev/null 2>&1; then
    verdict "groff formats every page without a warning" "$(cd "$man" && groff -ww -man -Tutf8 -z man1/*.1 man3/*.3 2>&1)"
else
    echo "skip: there is no groff here"
    skipped=$((skipped + 1))
fi
if command -v mandoc >/dev/null 2>&1; then
    verdict "mandoc finds nothing to say about them" \
        "$(cd "$man" && mandoc -T lint -W warning man1/*.1 man3/*.3 2>&1 | grep -v 'so is fragile')"
else
    echo "skip: there is no mandoc here"
    skipped=$((skipped + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
