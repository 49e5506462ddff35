# A text longer than the memory: it shifts and goes on.
cellar run -c 32 -n 100 --ignore-eos --seed 1 --keep 4 -p 'Once upon a time' >text
