# Every help text fits a terminal of 80 columns and ends with a line end.
for command in "" run bench session inspect tokenize detokenize help version; do
    cellar help $command >text || echo "cellar help $command failed"
    awk -v of="$command" 'length > 80 { print of ": too wide: " $0 }' text
    [ -s text ] && [ -z "$(tail -c 1 text)" ] || echo "$command: no text, or no line end"
done
