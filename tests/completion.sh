#!/bin/sh
# What shells offer behind `cellar`, what the program takes, and what the manual says: all of one table.
#
#   OUT=build/<hash> tests/completion.sh
#
#   1. the tables that --help=options prints are compared with the option_*() lines of the sources: none is missing;
#   2. each of the three shells, asked as it asks itself, offers exactly the names of the table, and the values of a choice;
#   3. every option stands in docs/man/cellar.1 and in the help of its command.
# A shell that is not there is skipped and counted. The last line counts; exit 1 if something failed.

set -u
: "${OUT:?the folder of the build}"
passed=0
failed=0
skipped=0
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
root=$(pwd)
case $OUT in
/*) program=$OUT/cellar ;;
*) program=$root/$OUT/cellar ;;
esac
# Another machine's program (aarch64-check) is run by an emulator, which no shell would do.
if ! "$program" version >/dev/null 2>&1; then
    echo "skip: the program does not run here by itself"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
mkdir "$scratch/bin" "$scratch/home"
ln -s "$program" "$scratch/bin/cellar"
PATH=$scratch/bin:$PATH
HOME=$scratch/home
export PATH HOME

ok() {
    echo "ok   $1"
    passed=$((passed + 1))
}
# same NAME EXPECTED FOUND: files with the same lines, in any order.
same() {
    sort -u "$2" >"$scratch/a"
    sort -u "$3" >"$scratch/b"
    if [ -s "$scratch/a" ] && cmp -s "$scratch/a" "$scratch/b"; then
        ok "$1"
    else
        echo "FAIL $1:"
        diff "$scratch/a" "$scratch/b" | sed 's/^/     /' | head -n 20
        failed=$((failed + 1))
    fi
}

# The tables: command line, tab, kind, word, letter, values.
table() {
    # shellcheck disable=SC2086 # a list of words
    "$program" $1 --help=options 2>/dev/null | sed '/^$/,$d' | sed "s/^/$1	/"
}
commands=$("$program" --help=options | cut -f 2)
for command in $commands; do
    case $command in
    help) table help | sed 's/^help	word/help	operand/' ;;
    *) table "$command" ;;
    esac
done >"$scratch/first"
{
    grep -v '	word	' "$scratch/first"
    grep '	word	' "$scratch/first" | cut -f 1,3 | while IFS='	' read -r command part; do table "$command $part"; done
} >"$scratch/tables"

# ---- 1. against the sources, read with grep alone

grep -hoE 'option_(text|flag|integer|number|choice)\([^;]*"[a-z0-9-]+"' app/cli/*.c app/cli/*.h | grep -oE '"[a-z0-9-]+"' | tr -d '"' |
    sed 's/^/--/' >"$scratch/written"
echo --help >>"$scratch/written"
grep -v '	operand	' "$scratch/tables" | cut -f 3 >"$scratch/printed"
same "the tables hold every option that the sources have" "$scratch/written" "$scratch/printed"
"$program" help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p' >"$scratch/written"
echo "$commands" >"$scratch/printed"
same "the tables hold every command that help lists" "$scratch/written" "$scratch/printed"

# ---- 2. the shells

ask_bash() {
    # shellcheck disable=SC2016 # for bash
    bash --norc --noprofile -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cellar; printf "%s\n" "${COMPREPLY[@]}"' \
        packaging/completion/cellar.bash "$@"
}
# Not on a terminal: what zsh's own functions are given is printed.
ask_zsh() {
    # shellcheck disable=SC2016 # for zsh
    zsh -f -c '
        compadd() { while [[ $1 = -* && $1 != -- ]]; do shift; done; [[ $1 = -- ]] && shift
            local c; for c in "$@"; do [[ $c = ${PREFIX}* ]] && print -r -- $c; done; true }
        _describe() { local c; for c in "${(@P)@[-1]}"; do [[ ${c%%:*} = ${PREFIX}* ]] && print -r -- ${c%%:*}; done; true }
        _message() { true }
        _files() { print -l -- ${PREFIX}*(N) }
        compset() { [[ $PREFIX = --*=* ]] || return 1; IPREFIX=${PREFIX%%=*}=; PREFIX=${PREFIX#*=} }
        script=$1; shift
        words=("$@") CURRENT=$# PREFIX=$words[-1] IPREFIX=
        source $script' zsh packaging/completion/_cellar "$@"
}
ask_fish() {
    # shellcheck disable=SC2016 # for fish
    fish --no-config -c 'source packaging/completion/cellar.fish; complete -C $argv[1]' "$*" 2>/dev/null | cut -f 1
}

for shell in bash zsh fish; do
    if ! command -v "$shell" >/dev/null 2>&1; then
        echo "skip: there is no $shell here"
        skipped=$((skipped + 1))
        continue
    fi
    echo "$commands" >"$scratch/expected"
    "ask_$shell" cellar '' >"$scratch/found"
    same "$shell offers the commands" "$scratch/expected" "$scratch/found"
    "ask_$shell" cellar help '' >"$scratch/found"
    same "$shell offers the commands behind help" "$scratch/expected" "$scratch/found"
    grep '^session	word	' "$scratch/first" | cut -f 3 >"$scratch/expected"
    "ask_$shell" cellar session '' >"$scratch/found"
    same "$shell offers the parts of session" "$scratch/expected" "$scratch/found"

    cut -f 1 "$scratch/tables" | sort -u | grep -v '^help$' | while read -r words; do
        # shellcheck disable=SC2086 # a list of words
        "ask_$shell" cellar $words -- | grep -v '^$' | sed "s/^/$words	/"
    done >"$scratch/found"
    grep -v '	operand	' "$scratch/tables" | cut -f 1,3 >"$scratch/expected"
    same "$shell offers every option of every command" "$scratch/expected" "$scratch/found"

    awk -F '\t' '$3 == "--cache-type-k" && $1 == "run" { n = split($5, v, " "); for (i = 1; i <= n; i++) print v[i] }' \
        "$scratch/tables" >"$scratch/expected"
    "ask_$shell" cellar run --cache-type-k '' >"$scratch/found"
    same "$shell offers the values of a choice" "$scratch/expected" "$scratch/found"
    echo q8_0 >"$scratch/expected"
    "ask_$shell" cellar run -q --ctv q8 >"$scratch/found"
    same "$shell offers those that begin so" "$scratch/expected" "$scratch/found"
    if [ "$shell" = bash ]; then
        "ask_$shell" cellar run --ctv = q8 >"$scratch/found"
    else
        "ask_$shell" cellar run --ctv=q8 | sed 's/^--ctv=//' >"$scratch/found"
    fi
    same "$shell offers values behind an equals sign" "$scratch/expected" "$scratch/found"
    echo README.md >"$scratch/expected"
    "ask_$shell" cellar run -f READ >"$scratch/found"
    same "$shell offers files for a text" "$scratch/expected" "$scratch/found"
    "ask_$shell" cellar inspect --json READ >"$scratch/found"
    same "$shell offers files for an operand" "$scratch/expected" "$scratch/found"
done

# ---- 3. the manual and the help

# Second names of options are for fingers that know them from elsewhere; they need not be taught.
grep -vE '	operand	|	--(n-predict|no-display-prompt|ctx-size|ctk|ctv)	' "$scratch/tables" >"$scratch/taught"
cut -f 3 "$scratch/taught" >"$scratch/expected"
sed 's/\\-/-/g; s/\\fI//g; s/\\fR//g' docs/man/cellar.1 | grep -oE -e '--[a-z][a-z0-9-]*' >"$scratch/words"
grep -xFf "$scratch/expected" "$scratch/words" >"$scratch/found"
same "every option stands in the manual page" "$scratch/expected" "$scratch/found"

grep -v '	--help	' "$scratch/taught" | cut -f 1,3 >"$scratch/expected"
cut -f 1 "$scratch/expected" | sort -u | while read -r words; do
    # shellcheck disable=SC2086 # a list of words
    "$program" $words --help | grep -oE -e '--[a-z][a-z0-9-]*' | sed "s/^/$words	/"
done >"$scratch/words"
grep -xFf "$scratch/expected" "$scratch/words" >"$scratch/found"
same "every option stands in the help of its command" "$scratch/expected" "$scratch/found"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
