cellar run -q -n 8 --no-echo -p 'Once upon a time' >text
[ -s text ] && ! grep -q 'Once upon a time' text
