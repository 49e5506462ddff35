# A story begun, closed, gone on with in three programs: the text of one that was never closed.
run() { cellar run -q --ignore-eos --seed 5 "$@"; }
run -p 'Once upon a time' -n 45 >whole
run -p 'Once upon a time' -n 15 --session s | head -c -1 >parts
run -n 15 --session s | head -c -1 >>parts
run -n 15 --session s --cache-type-k f16 -t 1 >>parts
cmp whole parts && echo 'the same story'
cellar run --session s -n 1 2>&1 >text | sed 's/, [0-9.]* tokens\/s.*//'
ls
