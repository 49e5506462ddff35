# Stopped by a signal in the middle: nothing stays. What it has done by then does not matter.
cellar quantize -q "$ROOT/models/storyteller.gguf" big.gguf F32
sh -c 'echo $$ >pid; exec cellar quantize -t 1 big.gguf out MXFP4 >/dev/null' 2>err &
until [ -s pid ]; do :; done
kill -TERM "$(cat pid)" 2>/dev/null
{ wait $!; } 2>/dev/null
code=$?
# Before the handler is there the signal ends the program; when it was too late the file is whole.
case $code in
143) [ -e out ] && echo 'a file in spite of it' ;;
0) cellar inspect out >/dev/null || echo 'half a file' ;;
*) echo "exit code $code" && cat err ;;
esac
ls -A | grep cellar-
:
