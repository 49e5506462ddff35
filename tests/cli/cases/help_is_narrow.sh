# Every help text fits a terminal of 80 columns and ends with a line end.
for command in "" run bench session inspect tokenize detokenize help version; do
    cellar help $command >text || echo "cellar help $command failed"
    awk -v of="$command" 'length > 80 { print of ": too wide: " $0 }' text
    [ -s text ] && [ -z "$(tail -c 1 text)" ] || echo "$command: no text, or no line end"
done
for part in model parallel memory session machine; do
    cellar bench $part --help >text || echo "cellar bench $part --help failed"
    awk -v of="$part" 'length > 80 { print of ": too wide: " $0 }' text
    grep -q "^cellar bench $part " text || echo "$part: does not say how it is called"
done
