# A file without tensors, with the vocabulary of a byte-level model: five tokens and two merges.
. "$ROOT/tests/cli/gguf.sh"
space=$(printf '\304\240')
strings() { # a key and an array of strings, none longer in characters than in bytes but by one space
    text "$1"; shift; le 4 9; le 4 8; le 8 $#
    for string; do le 8 "$(printf %s "$string" | wc -c)"; printf %s "$string"; done
}
{
    printf GGUF
    le 4 3; le 8 0; le 8 4
    text tokenizer.ggml.model && le 4 8 && text gpt2
    text tokenizer.ggml.pre && le 4 8 && text "${1:-gpt-2}"
    strings tokenizer.ggml.tokens a b "$space" ab "${space}ab"
    strings tokenizer.ggml.merges 'a b' "$space ab"
} >small.gguf
cellar tokenize -m small.gguf -p 'ab ab b'
cellar tokenize -m small.gguf --ids -p 'ab ab b' | tee ids
cellar detokenize -m small.gguf -f ids
echo
# A way to cut words that is not known is refused by its name.
sed 's/gpt-2/gpt-9/' small.gguf >unknown.gguf
cellar tokenize -m unknown.gguf -p a; echo "exit $?"
