# A server says where it listens, and ends in peace when it is told to.
cellar serve --port 0 -q >address 2>errors &
pid=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -s address ] && break
    sleep 0.5
done
sed 's/:[0-9]*$/:PORT/' address
kill -TERM $pid
wait $pid
echo "code $?"
cat errors
