"""from_python.py: the same from Python; arrays are numpy's where it is installed, and need not be."""

from array import array

import cellar

layer = cellar.Layer(n_heads=1, n_kv_heads=1, k_size=8, v_size=8)
with cellar.Memory([layer], n_cells=4) as memory:
    rows = array("f", [0.5] * 24)
    with memory.begin([11, 12, 13]) as step:  # commits at its end, aborts on an exception
        for ubatch in step:
            ubatch.store(0, rows, rows)
            out = ubatch.attend(0, rows)  # its shape is (3, 1, 8)
    fork = memory[0].fork(7)
    print(f"7 holds {fork.info.n_cells} cells, {fork.info.n_shared} of them shared")
    print(memory.snapshot())
    try:
        memory.begin([14, 15])
    except cellar.Full as refusal:
        print(f"{refusal.at} cell is missing: {refusal}")
