# Cut anywhere, a file is refused with a reason and a byte: never accepted, never a crash.
. "$ROOT/tests/cli/gguf.sh"
make_gguf >small.gguf
size=$(wc -c <small.gguf)
at=0
while [ "$at" -lt "$size" ]; do
    head -c "$at" small.gguf >cut.gguf
    cellar inspect cut.gguf >out 2>err
    code=$?
    [ "$code" -eq 1 ] && [ ! -s out ] && grep -q '(byte [0-9]*)$' err || {
        echo "cut at $at: exit $code"
        cat out err
    }
    at=$((at + 7))
done
