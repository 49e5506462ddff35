# The same numbers as JSON, every item with all its members.
model=$ROOT/models/storyteller.gguf
all=$(cellar inspect --cells 512 -t 1 "$model" | awk '/^Together$/ { after = 1 } after && $1 == "all" { print $2 }')
cellar inspect --cells 512 -t 1 --json "$model" >json
grep -c "^    \"total\": $all$" json
grep '"what"' json | grep -vc '^      {"group": [0-9nul]*, "layer": [0-9nul]*, "kind": "[a-z]*", "what": "[A-Za-z ]*", "type": ["a-z0-9_]*, "callers": false, "bytes": [0-9]*},*$'
grep -o '"cells": 512' json
