# Lines that separate texts; empty texts count for nothing.
printf 'Once upon a time\n---\n---\nOne day\n---\n' >text
cellar perplexity -f text -c 64 --separator --- | grep '^text'
printf 'Once upon a time\r\n' | cellar perplexity -f - -c 64 --separator --- | grep '^text'
