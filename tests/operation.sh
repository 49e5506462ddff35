#!/bin/sh
# `cellar serve` as whoever operates it meets it: doors, limits, logs, its end, and the systemd unit.
#
#   OUT=build/<hash> tests/operation.sh
#
# Skipped, and said so, where there is no python3 or where programs run in a wrapper (EXEC). The last line counts.

set -u
: "${OUT:?the folder of the build}"

if [ -n "${EXEC-}" ] || ! command -v python3 >/dev/null 2>&1; then
    echo 'skip: the program is driven by python3, as it is and in no wrapper'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi
exec env PYTHONDONTWRITEBYTECODE=1 python3 tests/operation.py "$OUT/cellar"
