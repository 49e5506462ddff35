# What is planned is what is made: the items add up, and a run with the same options takes these bytes
# and what its runs and steps add.
model=$ROOT/models/storyteller.gguf
cellar inspect -c 512 -t 1 --cache-type-k q8_0 --cache-type-v q4_0 "$model" >plan
awk '/^Memory of 512 cells$/ { in_items = 1 } /^Together$/ { in_items = 0; after = 1 }
     in_items && $NF ~ /^[0-9]+$/ { sum += $NF }
     after && $1 == "all" { all = $2 } after && $1 ~ /^(object|cells|rows|scratch)$/ { kinds += $2 }
     END { if (sum != all || kinds != all || all == 0) print "items", sum, "kinds", kinds, "all", all }' plan
grep -c ' rows      K                q8_0 ' plan
grep -c ' rows      V                q4_0 ' plan
grep -c '^Metadata' plan
cellar inspect -c 512 -t 1 --metadata "$model" | grep -c -e '^Metadata' -e '^Memory'
