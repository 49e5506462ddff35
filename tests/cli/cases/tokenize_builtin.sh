# Tokens for people, for scripts and as JSON; what drives a terminal is shown as \x1b.
text=$(printf 'Once upon \351\033[31m a time')
cellar tokenize -p "$text"
cellar tokenize --ids -p "$text"
cellar tokenize --ids --no-bos -p "$text"
cellar tokenize --json -p "$text"
cellar tokenize --ids --no-bos -p ''
cellar tokenize --json --no-bos -p ''
