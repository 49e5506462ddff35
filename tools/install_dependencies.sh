#!/bin/sh
# Make sure that what Cellar is built and tested with is there.
#
#   tools/install_dependencies.sh run     to build and run the program
#   tools/install_dependencies.sh test    also to run the tests
#   tools/install_dependencies.sh ci      also other compilers, analysers and formatters
#
# Looks by compiling and by looking for the command, so a library that was installed by hand counts. Only if
# something is missing: as root, or with sudo where that asks no question, installs it with apt-get; otherwise
# says exactly what to install and exits 1. Nothing missing: no output, no network, no rights needed.

set -u
need=${1:-run}
case $need in
run | test | ci) ;;
*)
    echo "usage: tools/install_dependencies.sh run|test|ci" >&2
    exit 2
    ;;
esac

missing=

# links PACKAGE 'FLAGS' HEADER...: can a program that includes these be compiled and linked?
links() {
    package=$1 flags=$2
    shift 2
    {
        for header in "$@"; do echo "#include <$header>"; done
        echo 'int main(void) { return 0; }'
    } >"$scratch/try.c"
    # shellcheck disable=SC2086 # flags are a list
    $compiler -o "$scratch/try" "$scratch/try.c" $flags >/dev/null 2>&1 || missing="$missing $package"
}

# has PACKAGE COMMAND
has() {
    command -v "$2" >/dev/null 2>&1 || missing="$missing $1"
}

look() {
    missing=
    compiler=${CC:-cc}
    # shellcheck disable=SC2086 # CC may hold options
    set -- $compiler
    if ! command -v "$1" >/dev/null 2>&1; then
        case $1 in
        *clang*) missing="$missing clang" ;;
        *) missing="$missing gcc" ;;
        esac
        # Without a compiler nothing can be tried: ask for all of it.
        missing="$missing libc6-dev libjansson-dev libedit-dev libmicrohttpd-dev libhiredis-dev libssl-dev"
        [ "$need" = run ] || missing="$missing libcmocka-dev"
    else
        links libc6-dev -lm stdio.h math.h pthread.h
        links libjansson-dev -ljansson jansson.h
        links libedit-dev -ledit histedit.h
        links libmicrohttpd-dev -lmicrohttpd microhttpd.h
        if [ "${SHARED:-yes}" = yes ]; then
            links libhiredis-dev -lhiredis hiredis/hiredis.h
            links libssl-dev '-lssl -lcrypto' openssl/ssl.h
        fi
        [ "$need" = run ] || links libcmocka-dev -lcmocka stdarg.h stddef.h stdint.h setjmp.h cmocka.h
    fi
    has make make
    if [ "$need" = ci ]; then
        has clang clang
        has g++ g++
        has pkg-config pkg-config
        has valgrind valgrind
        has clang-format clang-format
        has universal-ctags ctags
        has groff groff
        has curl curl
        if [ "${SHARED:-yes}" = yes ]; then
            has redis-server redis-server
            has haproxy haproxy
            has openssl openssl
            has iproute2 ip
        fi
        has mandoc mandoc
        has python3 python3
        # The page of `cellar serve` is tried in it; other systems call it otherwise.
        if ! command -v chromium-browser >/dev/null 2>&1 && ! command -v google-chrome >/dev/null 2>&1; then
            has chromium chromium
        fi
        has cmake cmake
        has xz-utils xz
        has zsh zsh
        has fish fish
        # Debian's numpy is for Debian's python.
        if ! python3 -c 'import numpy' >/dev/null 2>&1 && ! /usr/bin/python3 -c 'import numpy' >/dev/null 2>&1; then
            missing="$missing python3-numpy"
        fi
        if [ "$(uname -m)" != aarch64 ]; then
            has gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
            has qemu-user-static qemu-aarch64-static
            compiler=aarch64-linux-gnu-gcc
            links libc6-dev-arm64-cross -lm stdio.h math.h pthread.h
        fi
    fi
}

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

look
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then as_root='sudo -n'; else as_root=no; fi
fi

if ! command -v apt-get >/dev/null 2>&1; then
    echo "Cellar needs what Debian packages as:$missing" >&2
    echo "There is no apt-get here; install them in your system's way and try again." >&2
    exit 1
fi
if [ "$as_root" = no ]; then
    echo "Cellar needs some packages. Install them with" >&2
    echo "    sudo apt-get install$missing" >&2
    echo "and try again." >&2
    exit 1
fi

echo "installing:$missing" >&2
install() {
    # shellcheck disable=SC2086 # lists of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing </dev/null
}
log=$scratch/log
if ! {
    # shellcheck disable=SC2086
    $as_root apt-get update -q </dev/null
    install
} >"$log" 2>&1; then
    cat "$log" >&2
    echo "Installing failed. By hand: apt-get install$missing" >&2
    exit 1
fi

wanted=$missing
look
if [ -n "$missing" ]; then
    echo "After installing$wanted, this is still missing:$missing" >&2
    exit 1
fi
