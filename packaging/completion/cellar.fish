# Completion of cellar's command line for fish.
#
# It knows no option itself: `cellar COMMAND --help=options` prints the program's own table of options, a line for each,
# up to an empty line: kind, word, letter, values, with tabs between them; then the help, where what an option does is
# looked up. So it is always that of the program at hand.

function __cellar_complete
    set -l given (commandline -opc)
    set -l word (commandline -ct)
    set -l program (string replace -r '^~/' "$HOME/" -- $given[1])
    set -l previous $given[-1]
    # --name=value is one word here.
    set -l before ""
    if string match -qr '^--[^=]+=' -- $word
        set previous (string replace -r '=.*' '' -- $word)
        set before "$previous="
        set word (string replace -r '^[^=]*=' '' -- $word)
    end

    set -l path
    set -l table (command $program --help=options 2>/dev/null)
    set -l depth 2
    while string match -q "word*" -- $table[1]; and test $depth -le (count $given)
        set path $path $given[$depth]
        set table (command $program $path --help=options 2>/dev/null)
        set depth (math $depth + 1)
    end

    # Lines such as "  -c, --cells N   tokens it holds" say what an option does.
    set -l helps (string match -r '^ +-.*' -- $table)
    set -l offered
    for line in $table
        set -l part (string split \t -- $line)
        test (count $part) -eq 4; or break
        if test $part[1] = word
            set offered $offered (string replace -r '\t-$' '' -- $part[2]\t$part[4])
            continue
        end
        set -l about (string match -r -- "(?:^|[ ,])$part[2](?: [^ ]+)*  +([^ ].*)" $helps)
        set offered $offered $part[2]\t(string replace -r '[;,:(]$' '' -- "$about[2]")
        test $part[1] = flag; and continue
        test "$previous" = $part[2]; or test "$previous" = $part[3] -a $part[3] != -; or continue
        switch $part[1]
            case choice
                printf '%s\n' $before(string split ' ' -- $part[4])
            case text
                printf '%s\n' $before(__fish_complete_path $word)
        end
        return
    end

    if string match -q "word*" -- $table[1]; or string match -q -- '-*' $word
        printf '%s\n' $offered
    else if test (count $offered) -gt 0
        __fish_complete_path $word
    end
end

complete -c cellar -f -a '(__cellar_complete)'
