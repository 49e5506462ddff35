# Two stories with one beginning; the new file is never written over another.
cellar run -q -n 20 --seed 1 --ignore-eos -p 'One day' --session s >text
before=$(cksum <s)
cellar session fork --at 6 --title 'The other' s t; echo "exit $?"
cellar session fork s t; echo "exit $?"
cellar session fork --at 1000 s u; echo "exit $?"
cellar run -n 5 --temp 0 --session t 2>&1 >text | sed 's/, [0-9.]* tokens\/s.*//'
cellar session fork --force s t; echo "exit $?"
cellar session convert --type q8_0 s q; echo "exit $?"
cellar session convert --type-v q4_0 s v; echo "exit $?"
for file in s q v; do
    cellar session show $file | grep -E '^  (rows|cells)'
    cellar session check $file | sed 's/[0-9]* bytes/some bytes/'
done
cellar run -q -n 5 --temp 0 --session q --ctk q8_0 --ctv q8_0 >text; echo "exit $?"
cellar run -q -n 5 --temp 0 --session v >text; echo "exit $?"
[ "$before" = "$(cksum <s)" ] && echo 'the first is as it was'
ls
