# Refused before anything is read: part of a prompt is not what was asked for. What is advised is room
# for the prompt and for the answer that was asked for.
long='One day there was a small fox in a large forest'
cellar run -p "$long" -c 4
cells=$(cellar run -p "$long" -c 40 -n 8 2>&1 >/dev/null | sed 's/.*memory .*, \([0-9]*\) of.*/\1/')
advised=$(cellar run -p "$long" -c 9 -n 8 2>&1 | sed 's/.*(-c \([0-9]*\)).*/\1/')
cellar run -q -p "$long" -c "$advised" -n 8 --on-full error >text || echo "cells $cells, advised $advised"
