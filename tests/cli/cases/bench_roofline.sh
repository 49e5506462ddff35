# How near the machine's limits a model comes: bytes and operations are counted, not measured, so they repeat.
# A prompt reads the weights once, generation once a token; both do about the same operations for a token.
cellar bench model -t 1 -p 32 -n 4 -r 1 -d 0,16 --json | grep -e '"bytes"' -e '"operations"' >a
cellar bench model -t 1 -p 32 -n 4 -r 1 -d 0,16 --roofline --json >json
grep -e '"bytes"' -e '"operations"' json | cmp - a && wc -l <a
grep -c -e '"of_memory"' -e '"of_f32"' json
cellar bench model -t 1 -p 32 -n 4 -r 1 --roofline | sed -n -e 's/^\(roofline\) .*/\1/p' -e 's/\(of memory\).*\(of f32\)/\1 \2/p'
# A shared prefix is read once for all, and weights once a step: fewer bytes than each for itself.
bytes() { cellar bench parallel -t 1 -s 4 --prefix 64 -n 2 -r 1 --json "$@" | sed -n 's/.*"bytes": \([0-9]*\).*/\1/p'; }
[ "$(bytes)" -lt "$(bytes --no-share)" ] && echo 'fewer bytes'
