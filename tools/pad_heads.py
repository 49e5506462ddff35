#!/usr/bin/env python3
"""Pads the heads of a llama model with zeros, so that its memory can be stored in blocks of 32.

    pad_heads.py IN.gguf OUT.gguf [SIZE]      SIZE: numbers of a head afterwards, default 32

Quantised rows are made of blocks of 32 numbers, and a head has to be whole blocks. A head padded with
zeros computes the same: rows of zeros are added to the query, key and value matrices behind each
head's own, and columns of zeros to the output matrix. Scores are divided by the square root of the
head's size, so queries are multiplied by that of SIZE / size before; for 8 -> 32 that is 2, which is
exact. Rotation stays on the first numbers (rope.dimension_count). Matrices must be F32 and heads of
keys and values of one size.
"""

import math
import struct
import sys

UINT32, STRING, ARRAY = 4, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        result = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return result

    def string(self):
        length = self.number("<Q")
        self.at += length
        return self.data[self.at - length:self.at]

    def skip_value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            kind, count = self.number("<I"), self.number("<Q")
            for _ in range(count):
                self.skip_value(kind)
        else:
            self.at += SIZES[kind]


def string(text):
    return struct.pack("<Q", len(text)) + text


def read(path):
    """(records of keys by name, [(name, dims, floats)])"""
    with open(path, "rb") as file:
        reader = Reader(file.read())
    if reader.data[:8] != b"GGUF\x03\0\0\0":
        sys.exit(f"{path}: not a GGUF file of version 3")
    reader.at = 8
    n_tensors, n_keys = reader.number("<Q"), reader.number("<Q")
    keys = {}
    for _ in range(n_keys):
        begin = reader.at
        name = reader.string().decode()
        reader.skip_value(reader.number("<I"))
        keys[name] = reader.data[begin:reader.at]
    table = []
    for _ in range(n_tensors):
        name = reader.string().decode()
        dims = [reader.number("<Q") for _ in range(reader.number("<I"))]
        kind, offset = reader.number("<I"), reader.number("<Q")
        if kind != 0:
            sys.exit(f"{path}: {name} is not F32; 'cellar quantize IN OUT F32' makes it so")
        table.append((name, dims, offset))
    start = reader.at + -reader.at % ALIGNMENT
    tensors = []
    for name, dims, offset in table:
        count = math.prod(dims)
        tensors.append((name, dims, struct.unpack_from(f"<{count}f", reader.data, start + offset)))
    return keys, tensors


def pad_rows(dims, values, size, new, factor):
    """Matrix of heads of `size` rows: of `new` rows, the new ones zero, the old ones times factor."""
    width, rows = dims
    out = []
    for head in range(0, rows, size):
        out += [x * factor for x in values[head * width:(head + size) * width]]
        out += [0.0] * ((new - size) * width)
    return [width, rows // size * new], out


def pad_columns(dims, values, size, new):
    width, rows = dims
    out = []
    for at in range(0, width * rows, size):
        out += list(values[at:at + size]) + [0.0] * (new - size)
    return [width // size * new, rows], out


def write(path, keys, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys.values())
    data = b""
    for name, dims, values in tensors:
        head += string(name.encode()) + struct.pack("<I", len(dims))
        head += struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values)
        data += b"\0" * (-len(data) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % ALIGNMENT) + data)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    keys, tensors = read(sys.argv[1])
    new = int(sys.argv[3]) if len(sys.argv) == 4 else 32
    size = struct.unpack("<I", keys["llama.rope.dimension_count"][-4:])[0]
    if "llama.attention.key_length" in keys or new <= size:
        sys.exit(f"{sys.argv[1]}: heads of {size} numbers cannot be padded to {new} here")
    for name in ("llama.attention.key_length", "llama.attention.value_length"):
        keys[name] = string(name.encode()) + struct.pack("<II", UINT32, new)
    padded = []
    for name, dims, values in tensors:
        if name.endswith(("attn_q.weight", "attn_k.weight", "attn_v.weight")):
            factor = math.sqrt(new / size) if "attn_q" in name else 1.0
            dims, values = pad_rows(dims, values, size, new, factor)
        elif name.endswith("attn_output.weight"):
            dims, values = pad_columns(dims, values, size, new)
        padded.append((name, dims, values))
    write(sys.argv[2], keys, padded)


if __name__ == "__main__":
    main()
