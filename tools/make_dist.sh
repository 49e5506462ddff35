#!/bin/sh
# Pack the sources of a release, the same bytes each time.
#
#   BUILD=build VERSION=0.1.0 tools/make_dist.sh          (make dist)
#
# In a git checkout: the files that git knows, as they are in the folder (a note says so where they differ from the last
# commit). In an unpacked tarball: all files but those of a build. Names are sorted bytewise, owner and rights are fixed
# ones, and every file is as old as SOURCE_DATE_EPOCH, by default the last commit; in an unpacked tarball that is the age
# of its files, so that a tarball made there is the one that it came from. Prints the name and the checksum.

set -eu
: "${BUILD:?the folder for what is made}" "${VERSION:?major.minor.patch}"
export LC_ALL=C
name=cellar-$VERSION
for tool in tar xz sort; do
    command -v "$tool" >/dev/null 2>&1 || {
        echo "make dist needs $tool; Debian: apt-get install tar xz-utils coreutils" >&2
        exit 1
    }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

if [ -e .git ]; then
    # A file that was removed and not yet committed is none.
    git ls-files -z | xargs -0 sh -c 'for f; do if [ -e "$f" ]; then echo "$f"; fi; done' sh | sort >"$scratch/files"
    epoch=${SOURCE_DATE_EPOCH-$(git log -1 --format=%ct)}
    if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
        echo "note: the files are not those of the last commit" >&2
    fi
else
    find . \( -path "./$BUILD" -o -name __pycache__ \) -prune -o ! -type d -print | sed 's|^\./||' | sort >"$scratch/files"
    epoch=${SOURCE_DATE_EPOCH-$(stat -c %Y CHANGELOG.md)}
fi

mkdir -p "$BUILD"
tar --create --file="$scratch/$name.tar" --format=gnu --mtime="@$epoch" --owner=0 --group=0 --numeric-owner \
    --mode='u+rwX,go+rX,go-w' --no-recursion --transform="flags=rSH;s|^|$name/|" --files-from="$scratch/files"
# One thread, and nothing of the moment, in the compressed file.
xz -3 -T1 --check=crc64 "$scratch/$name.tar"
mv "$scratch/$name.tar.xz" "$BUILD/$name.tar.xz"
(cd "$BUILD" && sha256sum "$name.tar.xz")
