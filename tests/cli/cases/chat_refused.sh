# What cannot be done is said, the rest goes on, and the exit code tells it.
cp "$ROOT/models/storyteller.gguf" precious
printf '%s\n' '/swich main' '/nonsense' '/fork' '/fork main' '/switch nobody' '/drop main' '/rewind 3' \
    '/rewind x' '/regenerate' '/save file' '/save precious' '/load missing' '/re' '//slash' '/memo' |
    cellar chat -q -n 1 --temp 0 -c 64 2>&1
echo "exit $?"
cmp precious "$ROOT/models/storyteller.gguf"
cellar chat --chat-template nonsense -q </dev/null
echo "exit $?"
cellar chat --session precious -q </dev/null
echo "exit $?"
cellar chat --on-full error </dev/null
echo "exit $?"
