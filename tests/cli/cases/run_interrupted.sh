# Ctrl-C ends the answer: what was written stays, the figures follow, the exit code says so.
# A shell's background jobs ignore SIGINT, so timeout sends it.
command -v timeout >/dev/null || { echo 'skip: there is no timeout'; exit 77; }
timeout --foreground --preserve-status -s INT 1 cellar run -n -1 --ignore-eos -p 'One day' >text 2>figures
echo "exit $?"
grep -c '^One day' text
grep -c '^prompt .* written .* seed' figures
