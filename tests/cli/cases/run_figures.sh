cellar run -p 'Once upon a time' -n 8 --seed 1 --ignore-eos >text
