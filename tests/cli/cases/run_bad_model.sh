# Well-formed and not a model.
. "$ROOT/tests/cli/gguf.sh"
make_gguf >small.gguf
cellar run -m small.gguf
