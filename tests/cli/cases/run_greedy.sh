# What other engines write with this model.
model=$SHARED/models/stories260K.gguf
[ -r "$model" ] || { echo 'skip: stories260K.gguf is not here (CELLAR_SHARED names the folder)'; exit 77; }
for cpu in scalar all; do
    cellar run -q -m "$model" -p 'Once upon a time' -n 24 --temp 0 --cpu $cpu
done
