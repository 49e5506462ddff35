# What cannot be measured is refused with the reason.
cellar perplexity
echo $?
cellar perplexity -f nowhere
echo $?
: >empty
cellar perplexity -f empty
echo $?
echo text >text
cellar perplexity -f text -c 16 --stride 16
echo $?
cellar perplexity -f text --against f16 2>&1
echo $?
cellar perplexity -f text -c 1
echo $?
cellar perplexity -f text --source text
echo $?
cellar perplexity -f - --source -
echo $?
cellar perplexity -f text -m text
echo $?
cellar perplexity -f .
echo $?
