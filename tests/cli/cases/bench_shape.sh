# The shape of what is measured, on any machine: every figure asked for is there, in order, and its most is not
# less than its least; sharing a prefix takes fewer cells than every sequence keeping its own.
cellar bench model -t 1 -p 16 -n 4 -d 0,32 -r 2 >text
sed -e 's/^\(machine\|system\|build\) .*/\1/' -e 's/[0-9.]* MiB/# MiB/' text | cut -c 1-28 | sed 's/ *$//'
awk '/^(pp|tg) / { if (!($6 >= $4 && $4 >= $5 && $5 > 0)) print "not in order: " $0 }' text
cellar bench model -t 2 -p 0 -n 3 -r 1 --json | grep -e '"what"' -e '"tokens"' -e '"cells"' -e '"threads"' -e '"runs"'
cellar bench parallel -t 2 -s 3 --prefix 40 -n 4 -r 1 --ctk f32 --ctv f32 |
    sed -n -e 's/, [0-9.]* MiB/, # MiB/p' -e '/^sequences/p' -e 's/^\(parallel  *[0-9]*  *[0-9]*\).*/\1/p'
cellar bench parallel -t 1 -s 3 --prefix 40 -n 4 -r 1 --no-share --json | grep -e '"cells"' -e '"shared"' -e '"sequences"'
cellar bench parallel -t 1 -s 2 --prefix 0 -n 2 -r 1 | grep -c '^parallel'
