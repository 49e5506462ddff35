# What a session is, for people and for scripts; `inspect` knows it too.
cellar run -q -n 5 --temp 0 --seed 1 -p 'Once upon a time' --session s --title "a \"tale\"$(printf '\033')[31m" >text
cellar session show s
cellar session show --json s
cellar session show s >a
cellar inspect s >b
cmp a b
cellar inspect --json s >a
cellar session show --json s >b
cmp a b
cellar inspect --tensors s; echo "exit $?"
