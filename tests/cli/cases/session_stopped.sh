# SIGTERM saves what was written; the story goes on where it was stopped.
command -v timeout >/dev/null || { echo 'skip: there is no timeout'; exit 77; }
for seconds in 1 4 16 60; do
    rm -f s
    timeout --foreground --preserve-status -s TERM $seconds \
        cellar run -q -n -1 --ignore-eos -c 100000 --seed 3 -p 'One day' --session s >text
    code=$?
    [ ! -e s ] || break
done
echo "exit $code"
cellar session check s | sed 's/[0-9]* bytes/some bytes/'
n=$(cellar session show --json s | sed -n '/"tokens"/,/\]/p' | grep -c '^ *[0-9]')
[ "$n" -gt 10 ] && echo 'more than ten tokens'
cellar run -q -n 5 --ignore-eos -c 100000 --seed 3 --session s >>text
n_prompt=$(cellar run -n 0 --session whole -p 'One day' 2>&1 >/dev/null | sed 's/prompt \([0-9]*\) .*/\1/')
cellar run -q -n $((n + 5 - n_prompt)) --ignore-eos -c 100000 --seed 3 -p 'One day' >whole
tr -d '\n' <text >a
tr -d '\n' <whole >b
cmp a b && echo 'the same story'
