# Ctrl-C ends the answer: what was written stays, the figures follow, the exit code says so.
# A shell's background jobs ignore SIGINT, so timeout sends it; a slow machine gets longer to begin.
command -v timeout >/dev/null || { echo 'skip: there is no timeout'; exit 77; }
for seconds in 1 4 16 60; do
    timeout --foreground --preserve-status -s INT $seconds \
        cellar run -n -1 --ignore-eos -p 'One day' >text 2>figures
    code=$?
    ! grep -q '^One day' text || break
done
echo "exit $code"
head -n 1 text | grep -c '^One day'
grep -c '^prompt .* written .* seed' figures
