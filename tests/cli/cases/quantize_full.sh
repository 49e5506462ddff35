# A disk that takes no more: no file, no remains, and the old one stays.
echo old >out
(
    ulimit -f 64
    trap '' XFSZ
    cellar quantize "$ROOT/models/storyteller.gguf" out Q4_0 --replace
    echo $?
)
cat out
ls -A
