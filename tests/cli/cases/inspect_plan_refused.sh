# A plan needs a size, and a model that runs.
. "$ROOT/tests/cli/gguf.sh"
cellar inspect --cache-type-k q8_0 "$ROOT/models/storyteller.gguf" || echo $?
cellar inspect -c 1 "$ROOT/models/storyteller.gguf" || echo $?
make_gguf >small.gguf
cellar inspect -c 512 small.gguf || echo $?
