# Any bytes go in and come out as they were, line ends and all, from files and from pipes.
printf 'a line\n\n  and \000\377 bytes\r\n\n' >text
cellar tokenize --ids -f text >ids
cellar detokenize -f ids | cmp - text && echo 'from a file'
cellar tokenize --ids <text | cellar detokenize -f - | cmp - text && echo 'through a pipe'
tr ' ' '\n' <ids | cellar detokenize | cmp - text && echo 'one id on a line'
cellar tokenize --ids --special -p 'a</s>b' | cellar detokenize --special
echo
cellar tokenize --ids --special -p 'a</s>b' | cellar detokenize
echo
cellar detokenize -p ''
