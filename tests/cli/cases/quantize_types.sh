# Every type runs and foretells a story about as well; what became of the tensors is told.
model=$ROOT/models/storyteller.gguf
printf 'Once upon a time there was a little girl named Lily. She had a red ball.\n' >text
for type in F16 BF16 Q6_K Q5_K Q4_K Q3_K Q2_K Q5_1 Q5_0 Q4_1 Q4_0 IQ4_NL MXFP4; do
    cellar quantize -q "$model" $type.gguf $type || echo "$type failed"
    cellar perplexity -m $type.gguf -f text --json |
        sed -n '/"perplexity"/,$p' | awk -v type=$type '
            /"value"/ { sub(",", "", $2); if (!($2 > 13 && $2 < 20)) print type, "foretells", $2; exit }'
done
cellar quantize "$model" out.gguf Q4_K --keep 'blk.[0-4].*'
cellar quantize --json "$model" again.gguf q4_0 --output-type f16 >json
grep -c '"reason": "asked"' json
grep -A3 '"token_embd.weight"' json
