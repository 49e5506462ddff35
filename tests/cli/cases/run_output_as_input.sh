# A closed output must not become the model's file, nor anything else that is opened.
cp "$ROOT/models/storyteller.gguf" model.gguf
cellar run -q -m model.gguf -n 4 >&- 2>&-
echo $?
cmp model.gguf "$ROOT/models/storyteller.gguf"
