# A model with an encoder: its perplexity is that of the answer behind a source, and it does not chat.
model=$SHARED/models/random/t5.gguf
[ -f "$model" ] || { echo 'skip: no models/ (CELLAR_SHARED names the folder)'; exit 77; }
printf 'some words to foretell\n--\nand others\n' >texts
printf 'what the encoder reads\n--\nsomething else\n' >sources
echo 'what the encoder reads' >source
echo 'some words to foretell' >text
loss() { cellar perplexity -m "$model" -c 64 --ubatch 64 --json "$@" | grep -A 1 '"loss"'; }
loss -f text --source source >alone
loss -f text --source source --separator -- | cmp alone -
loss -f texts --source sources --separator -- >paired
loss -f texts --source source --separator -- >shared
cmp -s paired shared && echo 'the second source does not matter'
cellar perplexity -m "$model" -f texts --source sources --separator -- -c 64 --ubatch 64 --against f32 |
    grep -c divergence
cellar perplexity -m "$model" -f text -c 64
echo "exit $?"
cellar perplexity -m "$model" -f text -c 16 --source source
echo "exit $?"
cellar perplexity -m "$model" -f text -c 64 --ubatch 64 --source sources --separator --
echo "exit $?"
cellar chat -m "$model" </dev/null
echo "exit $?"
