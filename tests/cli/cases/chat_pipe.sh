# From a pipe each line is said in turn: no prompt, no escape sequence, and only what is new is read.
printf '%s\n' 'Once upon a time' 'Then a cat came.' '/list' '/fork two' '/rewind' '/list' '/hist' |
    cellar chat --temp 0 --seed 1 >text 2>notes
echo "exit $?"
cat text
sed -e 's/[0-9.]*\/s/N\/s/g' notes
grep -c "$(printf '\033')" text notes || true
