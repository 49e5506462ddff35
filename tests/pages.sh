#!/bin/sh
# The pages of docs/ are true where a program can tell.
#
#   tests/pages.sh
#
#   1. a page begins with its title and then says, in prose, what it is for;
#   2. every call, constant and field of Cellar that a page names is in include/cellar.h;
#   3. every link to a file leads to one, and every page is linked to from the README or another page;
#   4. docs/from-llama-memory.md has every call that it is about, and something of ours for each of them.
# The last line counts; exit 1 if something failed.

set -u
passed=0
failed=0

# verdict NAME OFFENDERS: passes if there are none.
verdict() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        echo "FAIL $1:"
        echo "$2" | head -n 40 | sed 's/^/     /'
        failed=$((failed + 1))
    fi
}

# Names of the header, and of its headers' users that are no calls: the C++ header, files, the program's own.
known=$(grep -oE '\b(cellar|CELLAR)_[A-Za-z0-9_]+' include/cellar.h include/cellar.hpp 2>/dev/null | sed 's/.*://' | sort -u)
environment='CELLAR_CPU CELLAR_SHARED CELLAR_LIBRARY CELLAR_SHARED_PASSWORD'

for page in docs/*.md; do
    verdict "$page says what it is for" "$(awk '
        NR == 1 && !/^# [A-Z]/ { print "the first line is no title"; exit }
        NR == 2 && $0 != "" { print "no empty line after the title"; exit }
        NR == 3 && !/^[A-Z`*]/ { print "the page does not begin with a sentence: " $0; exit }
        NR == 4 { exit }' "$page")"
    # A name that ends with _ or * stands for many.
    verdict "what $page names is in cellar.h" "$(grep -oE '\b(cellar|CELLAR)_[A-Za-z0-9_]+\*?' "$page" | sort -u |
        while read -r name; do
            case $name in
            *_ | *\*) continue ;;
            esac
            echo "$environment" | tr ' ' '\n' | grep -qxF "$name" && continue
            echo "$known" | grep -qxF "$name" || echo "$name"
        done)"
done

for page in docs/*.md *.md; do
    folder=$(dirname "$page")
    verdict "links of $page lead somewhere" "$(grep -oE '\]\([^)#]+' "$page" | sed 's/^](//' | grep -v '^https\?:' |
        while read -r target; do [ -e "$folder/$target" ] || echo "$target"; done)"
done
verdict "every page is linked to" "$(for page in docs/*.md; do
    grep -lF "$(basename "$page")" README.md docs/*.md | grep -qvxF "$page" || echo "$page"
done)"

page=docs/from-llama-memory.md
for call in memory_clear memory_seq_rm memory_seq_cp memory_seq_keep memory_seq_add memory_seq_div memory_seq_pos_min \
    memory_seq_pos_max memory_can_shift state_get_size state_get_data state_set_data state_load_file state_save_file \
    state_seq_get_size state_seq_get_data state_seq_set_data state_seq_save_file state_seq_load_file \
    state_seq_get_size_ext state_seq_get_data_ext state_seq_set_data_ext; do
    verdict "$page has llama_$call and its counterpart" \
        "$(grep -qE "^\| .llama_$call\(.*\| (.cellar_[a-z_]+.|not needed)" $page || echo "no row for llama_$call")"
done

# Fields that the page names stand in the header, as members of a struct.
verdict "fields in $page are in cellar.h" "$(for field in positions seqs seq_begin n_cells n_ubatch n_pools is_window_full \
    rollback_bytes k_type v_type store logs as sequences pos_next rewind_min; do
    grep -qE "^    .*[ *]$field[;,]" include/cellar.h || echo "$field is no field of cellar.h"
    grep -qF "\`$field\`" $page || echo "$field is not on the page any more: take it from this list"
done)"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
