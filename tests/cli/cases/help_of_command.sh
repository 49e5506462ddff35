# Three ways to ask the same.
for command in run chat inspect version help; do
    cellar help $command >a
    cellar $command --help >b
    cellar $command -h >c
    cmp a b && cmp a c
    head -n 1 a | cut -d ' ' -f 1-2
done
