# The same seed gives the same text, whatever the number of threads and the size of micro-batches; another seed another.
cellar run -q -p 'Once upon a time' -n 40 --seed 7 >a
cellar run -q -p 'Once upon a time' -n 40 --seed 7 >b
cellar run -q -p 'Once upon a time' -n 40 --seed 7 -t 1 >c
cellar run -q -p 'Once upon a time' -n 40 --seed 7 -t 3 --ubatch 1 >d
cellar run -q -p 'Once upon a time' -n 40 --seed 8 >e
cmp a b && cmp a c && cmp a d
cmp -s a e && echo 'two seeds gave one text'
head -c 16 a
