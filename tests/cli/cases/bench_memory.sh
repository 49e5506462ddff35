# Every operation has its row, every world its column, and no figure is missing or nothing.
cellar bench memory -c 4096 -s 1,3 -r 1 >text
sed -e 's/^\(machine\|system\|build\) .*/\1/' text | cut -c 1-31 | sed -e '/^attention/,$s/  *[0-9.]* [mu]s//' -e 's/ *$//'
sed -n '/^sequences/,/^attention/p' text | awk '/^  [a-z(]/ && !/written/ && / 0 / { print "nothing: " $0 }'
awk 'length > 80 { print "too wide: " $0 }' text
# Six columns are two blocks; in turns there are only those of more than one.
cellar bench memory -c 4096 -s 1,2,4,8 -r 1 | grep -e '^sequences that' -e '^read'
cellar bench memory -c 4096 -s 2 -r 1 --json >json
grep -c '"what"' json
grep '"section"' json | sort | uniq -c | sed 's/^ *//'
grep -e '"cells"' -e '"runs"' json
# The median lies between least and most.
cellar bench memory -c 4096 -s 2 -r 3 --json | tr -d ' ,' | awk -F: '
    /"median"/ { m = $2 } /"least"/ { l = $2 } /"most"/ { if (!($2 >= m && m >= l && l >= 0)) print "not in order: " l, m, $2 }'
# Each function of the header that can be timed without a model or a file is called by one of these (the prefix
# library, which keeps texts in files, is not part of this page).
grep -ho 'cellar_[a-z_]*(' "$ROOT"/app/bench/memory_*.c | tr -d '(' | sort -u >called
sed -n 's/^.*\(cellar_[a-z_]*\)(.*/\1/p' "$ROOT/include/cellar.h" | grep -v -e session -e journal -e _library_ -e version -e _text -e type_ -e _init -e '^cellar_cpu$' | sort -u >public
comm -13 called public
