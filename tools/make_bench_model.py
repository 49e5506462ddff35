#!/usr/bin/env python3
"""make_bench_model.py: a model of a real shape with random weights, to measure speed with.

    tools/make_bench_model.py smol135|qwen05|k1024 OUT.gguf [SEED]

Weights are F16 (vectors F32); `cellar quantize` makes the other types. The same seed gives the same file.
A weight has a random sign and a magnitude in [s, 2s), where s is a power of two chosen so that a layer
keeps the size of what goes through it: text is nonsense, but no number is denormal or infinite. The
vocabulary is bytes and made-up words. Layout: GGUF version 3, as its published specification says.
"""
import math
import random
import struct
import sys

SHAPES = {
    "smol135": dict(arch="llama", embd=576, layers=30, heads=9, kv=3, ff=1536, vocab=49152),
    "qwen05": dict(arch="qwen2", embd=896, layers=24, heads=14, kv=2, ff=4864, vocab=151936),
    "k1024": dict(arch="llama", embd=1024, layers=16, heads=16, kv=4, ff=2816, vocab=32000),
}
HEAD, CONTEXT, ALIGNMENT, F32, F16 = 64, 131072, 32, 0, 1
U32, FLOAT, STRING, ARRAY, INT = 4, 6, 8, 9, 5


def text(value):
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    head = text(name) + struct.pack("<I", kind)
    if kind == STRING:
        return head + text(value)
    if kind == ARRAY:
        of, items = value
        body = b"".join(text(i) if of == STRING else struct.pack("<i", i) for i in items)
        return head + struct.pack("<IQ", of, len(items)) + body
    return head + struct.pack({U32: "<I", FLOAT: "<f"}[kind], value)


def byte_characters():
    """The 256 characters that byte-level vocabularies write bytes with."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]


def keys(name, s):
    a = s["arch"]
    words = byte_characters()
    words += ["he"] + ["w%d" % i for i in range(s["vocab"] - len(words) - 2)] + ["<end>"]
    return [
        key("general.architecture", STRING, a),
        key("general.name", STRING, "random weights, shape " + name),
        key("general.file_type", U32, 1),
        key(a + ".context_length", U32, CONTEXT),
        key(a + ".embedding_length", U32, s["embd"]),
        key(a + ".block_count", U32, s["layers"]),
        key(a + ".feed_forward_length", U32, s["ff"]),
        key(a + ".attention.head_count", U32, s["heads"]),
        key(a + ".attention.head_count_kv", U32, s["kv"]),
        key(a + ".attention.layer_norm_rms_epsilon", FLOAT, 1e-5),
        key(a + ".rope.dimension_count", U32, HEAD),
        key(a + ".rope.freq_base", FLOAT, 100000.0),
        key(a + ".vocab_size", U32, s["vocab"]),
        key("tokenizer.ggml.model", STRING, "gpt2"),
        key("tokenizer.ggml.pre", STRING, "gpt-2"),
        key("tokenizer.ggml.tokens", ARRAY, (STRING, words)),
        key("tokenizer.ggml.token_type", ARRAY, (INT, [1] * (len(words) - 1) + [3])),
        key("tokenizer.ggml.merges", ARRAY, (STRING, ["h e"])),
        key("tokenizer.ggml.bos_token_id", U32, len(words) - 1),
        key("tokenizer.ggml.eos_token_id", U32, len(words) - 1),
    ]


def tensors(s):
    e, q, kv, ff = s["embd"], s["heads"] * HEAD, s["kv"] * HEAD, s["ff"]
    yield "token_embd.weight", (e, s["vocab"])
    for i in range(s["layers"]):
        b = "blk.%d." % i
        yield b + "attn_norm.weight", (e,)
        for part, n in ("q", q), ("k", kv), ("v", kv):
            yield b + "attn_" + part + ".weight", (e, n)
            if s["arch"] == "qwen2":
                yield b + "attn_" + part + ".bias", (n,)
        yield b + "attn_output.weight", (q, e)
        yield b + "ffn_norm.weight", (e,)
        yield b + "ffn_gate.weight", (e, ff)
        yield b + "ffn_up.weight", (e, ff)
        yield b + "ffn_down.weight", (ff, e)
    yield "output_norm.weight", (e,)


def half_weights(source, n_in, n):
    """n binary16 numbers of random sign and fraction and one exponent."""
    exponent = 15 - math.ceil(math.log2(2 * math.sqrt(n_in)))
    pattern = struct.pack("<H", exponent << 10) * n
    mask = struct.pack("<H", 0x83FF) * n
    bits = int.from_bytes(source.randbytes(2 * n), "little")
    bits = bits & int.from_bytes(mask, "little") | int.from_bytes(pattern, "little")
    return bits.to_bytes(2 * n, "little")


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    s = SHAPES[sys.argv[1]]
    source = random.Random(int(sys.argv[3]) if len(sys.argv) == 4 else 1)
    table, at, listed = b"", 0, list(tensors(s))
    for name, dims in listed:
        kind = F16 if len(dims) == 2 else F32
        table += text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, at)
        size = math.prod(dims) * (2 if kind == F16 else 4)
        at += -(-size // ALIGNMENT) * ALIGNMENT
    metadata = keys(sys.argv[1], s)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(metadata)) + b"".join(metadata) + table
    with open(sys.argv[2], "wb") as out:
        out.write(head + bytes(-len(head) % ALIGNMENT))
        for name, dims in listed:
            if len(dims) == 2:
                for _ in range(dims[1]):
                    out.write(half_weights(source, dims[0], dims[0]))
            else:
                value = 0.01 if name.endswith("bias") else 1.0
                out.write(struct.pack("<f", value) * dims[0])
            out.write(bytes(-out.tell() % ALIGNMENT))


if __name__ == "__main__":
    main()
