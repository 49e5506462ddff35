# The machine's limits: each with one thread and with all, its median between its least and its most; the
# document says on what. One thread: one column of figures.
cellar bench machine -t 2 --size 4 -r 3 >text
sed -e 's/^\(machine\|system\|build\|balance\) .*/\1/' text | cut -c 1-28 | sed 's/ *$//'
awk '/thread/ { if (!($(NF - 1) >= $(NF - 3) && $(NF - 3) >= $(NF - 2) && $(NF - 2) > 0)) print "not in order: " $0 }' text
cellar bench machine -t 1 --size 1 -r 1 --cpu scalar | grep -c -e GB/s -e GFLOP/s
cellar bench machine -t 2 --size 1 -r 1 --cpu scalar --json >json
grep -e '"kernels"' -e '"what"' -e '"threads"' -e '"bytes"' json
grep -c -e '"processor"' -e '"processors"' -e '"memory_bytes"' -e '"system"' -e '"compiler"' -e '"cellar"' json
