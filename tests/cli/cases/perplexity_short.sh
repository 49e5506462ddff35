# A story of the built-in model's kind is foretold well; three figures that every processor finds.
printf 'Once upon a time there was a little girl named Lily. She had a red ball.\n' >text
cellar perplexity -f text -c 128 -t 1 | sed -e '/^speed/d' -e 's/\(perplexity  [0-9]*\.[0-9]\).*/\1/'
cellar perplexity -c 128 -t 2 --ubatch 3 --json -f - <text >json
grep -o '"perplexity"' json
