# The model that is built in is the one in the repository.
size=$(wc -c <"$ROOT/models/storyteller.gguf")
cellar inspect "$ROOT/models/storyteller.gguf" | grep -c "($size bytes)"
cellar version | grep -c "storyteller, $size bytes"
