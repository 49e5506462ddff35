# Command lines that make no sense.
try() { cellar "$@"; echo "exit $?"; }
try session
try session lsit
try session show
try session show a b
try session fork a
try session fork --at 0 a b
try session fork --type q8_0 a b
try session convert a b
try session convert --type q9 a b
try session list --force
try run --title x
try run --replace -p x
try run --session s --replace
