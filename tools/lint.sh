#!/bin/sh
# What no compiler checks: form, direction of includes, lengths, names.
#
#   tools/lint.sh [--strict]          (make lint)
#
# A check whose tool is missing is skipped and counted; --strict makes that a failure (.ci/run uses it). A function over 80
# lines needs a reason: a comment above or inside it with the words "long because". The last line counts.

set -u
strict=${1-}
passed=0
failed=0
skipped=0

sources() {
    find include lib kernels app tests fuzz examples \( -name '*.c' -o -name '*.h' -o -name '*.hpp' \) 2>/dev/null | sort
}
texts() {
    sources
    find Makefile .ci tools tests packaging docs *.md .editorconfig .gitignore .clang-format app -type f \
        \( -name '*.sh' -o -name '*.py' -o -name '*.md' -o -name '*.in' -o -name '*.S' -o -name '*.cpp' -o -name '*.1' \
        -o -name Makefile -o -name '*.mk' -o -name '*.bash' -o -name '_cellar' -o -name '*.fish' -o -name '*.awk' -o -name run -o -name '.*' \) 2>/dev/null | sort -u
}

# verdict NAME OFFENDERS
verdict() {
    if [ -z "$2" ]; then
        echo "ok   $1"
        passed=$((passed + 1))
    else
        echo "FAIL $1:"
        echo "$2" | head -n 40 | sed 's/^/     /'
        failed=$((failed + 1))
    fi
}
skip() {
    if [ "$strict" ]; then
        verdict "$1" "$2"
    else
        echo "skip: $1: $2"
        skipped=$((skipped + 1))
    fi
}

# ---- form

# Versions of clang-format disagree with each other; this project is formatted by 14.
formatter=
for candidate in clang-format-14 clang-format; do
    if $candidate --version 2>/dev/null | grep -q 'version 14\.'; then
        formatter=$candidate
        break
    fi
done
if [ "$formatter" ]; then
    # shellcheck disable=SC2046 # no file name holds a space
    verdict "formatted by .clang-format" "$($formatter --dry-run --Werror $(sources) 2>&1 |
        sed -n 's/^\([^:]*:[0-9]*\):.*/\1 is formatted otherwise/p' | awk -F: '!n[$1]++')"
else
    skip "formatted by .clang-format" "there is no clang-format 14"
fi
# shellcheck disable=SC2046
{
    verdict "no white space at line ends" "$(grep -nE '[[:space:]]+$' $(texts) | cut -c 1-100)"
    verdict "no tabs in sources" "$(grep -n "$(printf '\t')" $(sources) | cut -c 1-100)"
    verdict "every file ends with a line end" "$(for f in $(texts); do
        [ -z "$(tail -c 1 "$f")" ] || echo "$f"
    done)"
    verdict "every source opens with a comment of at least five lines" "$(for f in $(sources); do
        awk 'NR == 1 && !/^\/\*/ { exit } /\*\// { print NR; exit }' "$f" | awk -v f="$f" '{ n = $1 } END { if (n < 5) print f }'
    done)"
    verdict "nothing is left to be done" "$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $(sources) | cut -c 1-100)"
}

# ---- names and places

verdict "file names are unique" "$(find include lib kernels app tests fuzz tools -type f \
    \( -name '*.c' -o -name '*.h' -o -name '*.S' -o -name '*.sh' -o -name '*.py' \) ! -path 'tests/cli/cases/*' |
    sed 's|.*/||' | sort | uniq -d)"
verdict "file names are lower case words" "$(sources | grep -vE '^[a-z0-9_/]+\.(c|h|hpp)$')"

# includes FOLDER: "file header" for every quoted include.
includes() {
    grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' -r "$1" --include='*.c' --include='*.h' |
        sed -n 's/^\([^:]*\):[0-9]*:[^"]*"\([^"]*\)".*/\1 \2/p'
}
# Headers of a folder, by the names under which they are included.
headers() {
    find "$1" -name '*.h' 2>/dev/null | sed "s|^$1/||"
}
forbid() {
    from=$1
    shift
    for folder in "$@"; do
        headers "$folder" >"$scratch/headers"
        includes "$from" | while read -r file header; do
            if grep -qxF "$header" "$scratch/headers"; then echo "$file includes $folder/$header"; fi
        done
    done
}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
verdict "kernels include nothing above them" "$(forbid kernels lib app include tests)"
verdict "the library includes nothing of the program" "$(forbid lib app tests)"
verdict "the program includes nothing inside the library" "$(forbid app lib tests)"

# Inside the library, includes point down. Lower numbers are lower; a header that is not listed may be used by all.
cat >"$scratch/levels" <<'END'
1 cells.h
1 rope.h
1 runs.h
2 sequence_table.h
2 sequences.h
2 storage.h
3 placement.h
4 group.h
5 memory.h
END
verdict "includes inside the library point down" "$(includes lib | awk -v levels="$scratch/levels" '
    BEGIN { while ((getline line < levels) > 0) { split(line, word, " "); level[word[2]] = word[1] } }
    { own = $1; sub(/.*\//, "", own); sub(/\.c$/, ".h", own)
      if ((own in level) && ($2 in level) && level[$2] > level[own]) print $1 " includes " $2 }')"
verdict "library and kernels neither print nor end the process" "$(grep -nE \
    '\b(printf|fprintf|puts|fputs|putchar|perror|exit|_Exit|abort)[[:space:]]*\(' $(find lib kernels -name '*.[ch]') |
    grep -vE '^[^:]*:[0-9]+:[[:space:]]*(\*|//|/\*)' | cut -c 1-100)"

# ---- lengths

# A public header is one file by intention: the book of the library, most of it prose.
verdict "no source is longer than 600 lines" "$(for f in $(sources | tr ' ' '\n' | grep -v '^include/'); do
    awk -v f="$f" 'END { if (NR > 600) print f ": " NR " lines" }' "$f"
done)"
if ctags --version 2>/dev/null | grep -q Universal; then
    # shellcheck disable=SC2046
    ctags -x --c-kinds=f --_xformat='%F %{line} %{end} %N' $(sources | grep -v '\.hpp$') 2>/dev/null |
        awk 'NF == 4 { print $3 - $2 + 1, $1, $2, $3, $4 }' | sort -n >"$scratch/lengths"
    verdict "functions over 80 lines say why" "$(awk '$1 > 80' "$scratch/lengths" | while read -r n file first last name; do
        from=$((first > 25 ? first - 25 : 1))
        sed -n "${from},${last}p" "$file" | grep -qi 'long because' || echo "$file:$first: $name has $n lines"
    done)"
    awk '{ n[NR] = $1 } END { if (NR) printf "     %d functions: median %d lines, nine of ten within %d, longest %d\n",
        NR, n[int((NR + 1) / 2)], n[int(NR * 0.9)], n[NR] }' "$scratch/lengths"
else
    skip "functions over 80 lines say why" "there is no universal-ctags"
fi

# ---- scripts and manual page

verdict "scripts parse" "$(for f in tools/*.sh tests/*.sh tests/cli/*.sh tests/cli/cases/*.sh; do
    sh -n "$f" 2>&1
done
[ ! -f .ci/run ] || bash -n .ci/run 2>&1)"
if command -v groff >/dev/null 2>&1; then
    verdict "the manual page formats without a warning" "$(for f in docs/man/*.1; do
        groff -ww -man -Tutf8 -z "$f" 2>&1
    done)"
else
    skip "the manual page formats without a warning" "there is no groff"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
