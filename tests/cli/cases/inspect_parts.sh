. "$ROOT/tests/cli/gguf.sh"
make_gguf >small.gguf
cellar inspect --tensors small.gguf
cellar inspect --metadata small.gguf | tail -n 6
