# Of two runs that go on with one session, the first to end keeps its text; the other is told so.
cellar run -q -n 20 --ignore-eos -c 100000 --seed 3 -p 'One day' --session s >begun
cellar run -q -n -1 --ignore-eos -c 100000 --session s >first 2>first.err &
first=$!
for turn in 1 2 3 4 5 6 7 8 9; do
    for tenth in 1 2 3 4 5 6 7 8 9 10; do [ -s first ] || sleep 0.1; done
done
[ -s first ] && echo 'the first run is writing'
cellar run -q -n 5 --ignore-eos -c 100000 --seed 3 --session s >second && echo 'the second run saved'
cp s saved
kill -TERM $first
wait $first
echo "the first run: exit $?"
cat first.err
cmp s saved && echo 'the file is that of the second run'
cellar run -q -n 5 --ignore-eos -c 100000 --session s >third && echo 'and goes on'

# The same where there was no file before.
cellar run -q -n -1 --ignore-eos -c 100000 -p 'One day' --session new >first 2>first.err &
first=$!
for turn in 1 2 3 4 5 6 7 8 9; do
    for tenth in 1 2 3 4 5 6 7 8 9 10; do [ -s first ] || sleep 0.1; done
done
cellar run -q -n 5 --ignore-eos -c 100000 -p 'Two days' --session new >second
cp new saved
kill -TERM $first
wait $first
echo "the first run: exit $?"
cat first.err
cmp new saved && echo 'the file is that of the second run'

# Conversations, too.
mkfifo words
cellar chat --session talk -n 5 <words >first 2>first.err &
first=$!
exec 3>words
echo 'One day' >&3
for turn in 1 2 3 4 5 6 7 8 9; do
    for tenth in 1 2 3 4 5 6 7 8 9 10; do [ -s first ] || sleep 0.1; done
done
echo 'Two days' | cellar chat --session talk -n 5 >second 2>/dev/null && echo 'the second chat saved'
cp talk saved
echo '/save other' >&3
exec 3>&-
wait $first
echo "the first chat: exit $?"
grep talk first.err
cmp talk saved && cellar session check other | sed 's/[0-9]* bytes/some bytes/'
