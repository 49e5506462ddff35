[ -c /dev/full ] || { echo 'skip: there is no /dev/full'; exit 77; }
cellar inspect "$ROOT/models/storyteller.gguf" >/dev/full
