# The transcript of README.md: its commands, one after the other, say what it says they do. Speeds and the bytes of
# the memory differ from machine to machine and are not compared.
mkdir build
ln -s "$(command -v cellar)" build/cellar
steady() { sed -e 's/[0-9.]* tokens\/s/N tokens\/s/g' -e 's/memory [0-9.]* MiB/memory N MiB/'; }
# Lines between the marks, without the fence: commands begin with "$ ", what follows is their output.
sed -n '/^<!-- transcript -->/,/^<!-- end -->/p' "$ROOT/README.md" | grep -v -e '^<!--' -e '^```' -e '^$' >wanted
while IFS= read -r line; do
    case $line in '$ '*)
        printf '%s\n' "$line"
        eval "${line#\$ }" 2>&1 </dev/null
        ;;
    esac
done <wanted >found
[ -s wanted ] || echo 'README.md has no transcript'
steady <wanted >a
steady <found >b
diff a b
