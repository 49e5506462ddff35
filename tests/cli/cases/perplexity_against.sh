# Exact rows do not diverge from themselves; few bits do, and by less than half of a nat.
printf 'Once upon a time there was a little girl named Lily. She had a red ball.\n' >text
cellar perplexity -f text -c 64 --exact --ctk f32 --ctv f32 --against f32 | grep -e ratio -e divergence -e best
cellar perplexity -f text -c 64 --ctk q4_0 --ctv q4_0 --cache-rotate both --against f32 >few
grep '^memory' few
awk '$1 == "divergence" { sub(",", "", $5); print($3 > 0 && $3 < 0.5 ? "some" : "wrong: " $3) }' few
