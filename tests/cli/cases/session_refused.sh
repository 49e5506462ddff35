# Files that are no sessions, damaged ones, those of another model: said clearly, exit 1, and left alone.
. "$(dirname "$CASES")/gguf.sh"
try() { "$@" >text; echo "exit $?"; cat text; }
cellar run -q -n 3 --seed 1 -p 'One day' --session good >text
size=$(wc -c <good)
echo 'this is a letter' >letter
: >empty
make_gguf >model.gguf
head -c $((size - 1)) good >cut
{ head -c 300 good; printf 'XXXX'; tail -c +305 good; } >damaged
{ head -c $((size / 2)) good; printf 'XXXX'; tail -c +$((size / 2 + 5)) good; } >rows
mkdir folder
ln -s good link
all="letter empty model.gguf cut damaged rows good"
sum=$(cat $all | cksum)
for file in letter empty model.gguf cut damaged rows folder link missing/s; do
    try cellar run -q -n 1 -p 'One day' --session "$file"
done
for file in letter cut damaged folder link missing; do
    try cellar session show "$file"
    try cellar session check --json "$file"
    try cellar session fork "$file" new
    try cellar session convert --type q8_0 "$file" new
done
try cellar session check rows
try cellar session fork rows new
try cellar run -m good
[ "$sum" = "$(cat $all | cksum)" ] && echo 'nothing changed'
ls
