# Text and JSON of a file that is known to the last byte; what drives a terminal is shown as \x1b.
. "$ROOT/tests/cli/gguf.sh"
make_gguf >small.gguf
cellar inspect small.gguf
cellar inspect --json small.gguf
