# A model with recurrent states goes back by checkpoints: a turn reads what is new, another answer one token.
model=$SHARED/models/random/jamba.gguf
[ -f "$model" ] || { echo 'skip: no models/ (CELLAR_SHARED names the folder)'; exit 77; }
for name in mamba jamba rwkv7; do
    echo "$name"
    printf '%s\n' 'Hello there.' 'And now something else.' /regenerate '/rewind 1' 'Other words.' '/fork twin' \
        'More words.' '/switch main' 'More words.' |
        cellar chat -m "$SHARED/models/random/$name.gguf" --chat-template chatml --temp 0 --ignore-eos -n 4 2>&1 |
        sed -n 's/^.*\[\(.* reused, .* read\),.*| \(.* written\),.*$/  \1, \2/p'
done
