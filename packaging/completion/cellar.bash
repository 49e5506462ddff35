# Completion of cellar's command line for bash.
#
# It knows no option itself: `cellar COMMAND --help=options` prints the program's own table of options, a line for each,
# up to an empty line: kind, word, letter, values, with tabs between them. So it is always that of the program at hand.

_cellar() {
    local program=${COMP_WORDS[0]/#\~\//$HOME/} word=${COMP_WORDS[COMP_CWORD]} previous=
    local -a path=() words=() names=()
    local kind name letter values depth=1

    # --name=value reaches us in three words.
    [ "$COMP_CWORD" -lt 1 ] || previous=${COMP_WORDS[COMP_CWORD - 1]}
    if [ "$word" = = ]; then
        word=
    elif [ "$previous" = = ] && [ "$COMP_CWORD" -gt 2 ]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi

    COMPREPLY=()
    while :; do
        words=() names=()
        while IFS=$'\t' read -r kind name letter values; do
            [ -n "$kind" ] || break
            if [ "$kind" = word ]; then
                words+=("$name")
                continue
            fi
            names+=("$name")
            [ "$kind" != flag ] || continue
            [ "$previous" = "$name" ] || { [ "$previous" = "$letter" ] && [ "$letter" != - ]; } || continue
            case $kind in
            choice) mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word") ;;
            text)
                compopt -o filenames 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
                ;;
            esac
            return
        done < <("$program" "${path[@]}" --help=options 2>/dev/null)
        # A word that is there already leads on to a table of its own.
        [ ${#words[@]} -gt 0 ] && [ "$depth" -lt "$COMP_CWORD" ] || break
        path+=("${COMP_WORDS[depth]}")
        depth=$((depth + 1))
    done

    if [ ${#words[@]} -gt 0 ]; then
        mapfile -t COMPREPLY < <(compgen -W "${words[*]}" -- "$word")
    elif [ "${word:0:1}" = - ]; then
        mapfile -t COMPREPLY < <(compgen -W "${names[*]}" -- "$word")
    elif [ ${#names[@]} -gt 0 ]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}

complete -F _cellar cellar
