# Saving and loading: every figure is there with what it is held against, and the folder is left as it was.
mkdir folder
cellar bench session --size 2 -r 1 -t 1 --folder folder >text
sed -e 's/^\(machine\|system\|build\) .*/\1/' -e '/ MB/!s/\([0-9.]*\) *[0-9.]* [mu]s *[0-9.]*/\1/' -e 's/ [0-9.]* of / of /' text
TMPDIR=folder cellar bench session --size 1 -r 2 -t 2 --json >json
grep -c '"bytes_per_second"' json
grep -c '"ratio"' json
grep -e '"tokens"' -e '"threads"' -e '"runs"' json
ls -A folder
# Stopped: nothing stays either. What it has done by then does not matter.
cellar bench session --size 64 -r 100 -t 1 --folder folder >text 2>err &
until [ "$(ls -A folder)" ] || ! kill -0 $! 2>/dev/null; do :; done
kill -TERM $!
wait $!
echo "exit $?"
cat err text
ls -A folder
# A folder that fills up, or is none, is said to be so.
cellar bench session --size 1 -r 1 --folder folder/none
echo "exit $?"
