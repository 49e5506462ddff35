#!/bin/sh
# The page of `cellar serve` in Chromium: a person's hands and eyes, as far as a program has them.
#
#   OUT=build/<hash> tests/live_page.sh [--screenshots FOLDER]
#
# Skipped, and said so, where there is no Chromium or no python3, where programs run in a wrapper (EXEC), and with
# sanitizers: what they would find in the server, unit_api and unit_memory_map let them see. The last line counts.

set -u
: "${OUT:?the folder of the build}"

skip() {
    echo "skip: $1"
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
}

[ -z "${EXEC-}${SANITIZE-}" ] || skip 'the page is looked at in a plain build alone'
python=$(command -v python3) || skip 'there is no python3 here'
browser=
for candidate in chromium chromium-browser google-chrome; do
    if command -v "$candidate" >/dev/null 2>&1; then
        browser=$candidate
        break
    fi
done
[ -n "$browser" ] || skip 'there is no Chromium here (Debian: chromium)'

exec env PYTHONDONTWRITEBYTECODE=1 "$python" tests/live_page.py "$browser" "$OUT/cellar" "$@"
