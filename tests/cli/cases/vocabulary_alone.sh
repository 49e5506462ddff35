# A file with a vocabulary and no tensors tokenizes, and is told from a model; a model of states has no rows.
[ -d "$SHARED/tokenizers" ] || { echo 'skip: no tokenizers/ (CELLAR_SHARED names the folder)'; exit 77; }
cp "$SHARED/tokenizers/gpt-2.gguf" words.gguf
cellar tokenize -m words.gguf --ids -p 'Hello world'
echo text >text
for command in 'run -p a' chat 'perplexity -f text' 'bench model'; do
    # shellcheck disable=SC2086 # words are wanted
    cellar $command -m words.gguf </dev/null
    echo "exit $?"
done
cellar quantize words.gguf out.gguf q8_0
echo "exit $?"
cellar perplexity -f text -m "$SHARED/models/random/mamba.gguf" | head -n 1
cellar perplexity -f "$ROOT/LICENSE" -m "$SHARED/models/random/llama.gguf" | sed -n 's/[0-9]/9/gp' | tail -n 2 | head -n 1
