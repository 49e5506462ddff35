# All conversations are kept in one file, what they share once; and nothing is read again.
steady() { sed -e 's/[0-9.]*\/s/N\/s/g'; }
printf '%s\n' 'Once upon a time' '/fork two' 'Then a cat came.' |
    cellar chat --temp 0 --seed 1 --session talk.cellar 2>&1 >/dev/null | steady
printf '%s\n' '/list' 'It was late.' '/switch main' '/save copy.cellar' |
    cellar chat --temp 0 --session talk.cellar 2>&1 >answer | steady
wc -l <answer
cellar session check talk.cellar | sed 's/[0-9]* bytes/N bytes/'
printf '%s\n' '/load copy.cellar' '/list' '/history' | cellar chat -q
cellar run --session talk.cellar -p 'no' -n 1
echo "exit $?"
