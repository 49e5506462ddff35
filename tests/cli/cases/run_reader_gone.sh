# A reader that leaves ends the text at once, without a message: a million tokens would take an hour.
{ cellar run -n 1000000 --ignore-eos; echo $? >code; } | head -c 4
cat code
