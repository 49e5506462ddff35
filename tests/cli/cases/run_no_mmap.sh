# A model that was read into memory writes what the mapped one does, and needs its file no more.
cp "$ROOT/models/storyteller.gguf" model.gguf
cellar run -q -m model.gguf --seed 3 -n 60 -p "Once" >mapped
cellar run -q -m model.gguf --no-mmap --seed 3 -n 60 -p "Once" >read
cmp mapped read

# The prompt comes when the model was read, and then its file is empty.
mkfifo prompt
cellar run -q -m model.gguf --no-mmap --seed 3 -n 60 -f prompt >after &
exec 3>prompt # waits until the program opens it, which it does after the model
: >model.gguf
printf 'Once' >&3
exec 3>&-
wait $!
echo $?
cmp mapped after
