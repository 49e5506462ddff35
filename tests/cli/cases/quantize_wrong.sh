# What cannot be done is refused with the reason, and leaves no file and no other one changed.
model=$ROOT/models/storyteller.gguf
try() {
    cellar quantize "$@"
    echo $?
}
cp "$model" in.gguf
echo old >there
try in.gguf out
try in.gguf out IQ2_XS
try in.gguf out Q4_K_M
try in.gguf out Q4_0 more
try in.gguf out Q4_0 --output-type Q9
try in.gguf out Q4_0 --keep blk.99
try in.gguf in.gguf Q4_0 --replace
ln -s in.gguf link
try in.gguf link Q4_0 --replace
try in.gguf there Q4_0
try in.gguf . Q4_0 --replace
try in.gguf nowhere/out Q4_0
try nothing out Q4_0
try there out Q4_0
cat there
try -q in.gguf there Q4_0 --replace
cmp "$model" in.gguf
rm link there
ls -A
