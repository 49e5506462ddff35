# The longest text of each real vocabulary gives the ids that its model's own tokenizer gives, and comes back.
[ -d "$SHARED/tokenizers" ] || { echo 'skip: no tokenizers/ (CELLAR_SHARED names the folder)'; exit 77; }
for input in "$SHARED"/tokenizers/*.inp; do
    name=${input%.inp}
    # The text before the last separator; the line end before a separator belongs to it.
    awk '/^__ggml_vocab_test__$/ { last = text; text = ""; n = 0; next } { text = text (n++ ? "\n" : "") $0 }
        END { printf "%s", last }' "$input" >text
    [ "$(wc -c <text)" -gt 200 ] || echo "$name: only $(wc -c <text) bytes"
    cellar tokenize -m "$name.gguf" --ids --no-bos -f text >ids
    sed 's/^ *//' "$name.out" | tail -n 1 | cmp - ids || echo "$name: other ids"
    cellar detokenize -m "$name.gguf" -f ids | cmp - text || echo "$name: another text"
done
