# Files that are no sessions, damaged ones, those of another model: said clearly, exit 1, and left alone.
. "$(dirname "$CASES")/gguf.sh"
try() { "$@" >text; echo "exit $?"; cat text; }
cellar run -q -n 3 --seed 1 -p 'One day' --session good >text
size=$(wc -c <good)
echo 'this is a letter' >letter
: >empty
head -c $((size - 1)) good >cut
{ head -c 300 good; printf 'XXXX'; tail -c +305 good; } >damaged
mkdir folder
ln -s good link
sum=$(cat letter empty cut damaged good | cksum)
for file in letter empty cut damaged folder link missing/s; do
    try cellar run -q -n 1 -p 'One day' --session "$file"
done
for file in letter cut damaged folder link missing; do
    try cellar session show "$file"
    try cellar session check --json "$file"
    try cellar session fork "$file" new
    try cellar session convert --type q8_0 "$file" new
done
[ "$sum" = "$(cat letter empty cut damaged good | cksum)" ] && echo 'nothing changed'
ls
