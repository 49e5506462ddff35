# Every row type runs, under its long and its short name, and takes less memory the fewer bits it has.
before=999999999
for type in f32 f16 q8_0 q5_1 q5_0 q4_0; do
    cellar run -n 4 --temp 0 -q --cache-type-k $type --ctv $type >text || echo "$type failed"
    [ -s text ] || echo "$type wrote nothing"
    bytes=$(cellar inspect -c 1024 -t 1 --ctk $type --cache-type-v $type "$ROOT/models/storyteller.gguf" |
        awk '$1 == "rows" { print $2 }')
    [ "$bytes" -lt $before ] || echo "$type takes $bytes, the one before $before"
    before=$bytes
done
for type in bf16 q4_1 iq4_nl; do
    cellar run -n 4 --temp 0 -q --cache-type-k=$type --cache-type-v=$type >text || echo "$type failed"
done
