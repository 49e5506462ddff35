"""Writes and reads the GGUF file of the built-in model (GGUF version 3, little-endian).

    magic "GGUF", u32 version, u64 tensors, u64 metadata entries
    metadata: string key, u32 type, value
    tensors:  string name, u32 dimensions, u64 sizes (innermost first), u32 type, u64 offset
    string:   u64 length, bytes;  array: u32 type, u64 elements, the elements
    padding to 32, then the data, each tensor at a multiple of 32 from there

Matrices are Q8_0: blocks of 32 values as one f16 scale d = max|x| / 127 and 32 int8 round(x / d).
Vectors stay F32. `read` gives the weights back as an engine sees them, dequantised.
"""

import struct

import numpy as np
import torch

from model import Model, Shape
from tokenizer import FIRST_PIECE, Tokenizer

ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_F32, TENSOR_Q8_0 = 0, 8
FILE_TYPE_Q8_0 = 7
PACK = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}


def quantise(matrix):
    """Q8_0 bytes of a float32 matrix whose rows are multiples of 32 long."""
    blocks = np.ascontiguousarray(matrix, dtype=np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    packed = np.zeros(len(blocks), dtype=[("d", "<f2"), ("q", "i1", 32)])
    packed["d"] = scale[:, 0].astype(np.float16)
    packed["q"] = np.rint(blocks * inverse).astype(np.int8)
    return packed.tobytes()


def dequantise(data, shape):
    packed = np.frombuffer(data, dtype=[("d", "<f2"), ("q", "i1", 32)])
    values = packed["d"].astype(np.float32)[:, None] * packed["q"].astype(np.float32)
    return values.reshape(shape)


def string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    if kind == STRING:
        return string(content)
    return struct.pack(PACK[kind], content)


def entry(key, kind, content):
    return string(key) + struct.pack("<I", kind) + value(kind, content)


def array(key, kind, content):
    return (string(key) + struct.pack("<IIQ", ARRAY, kind, len(content))
            + b"".join(value(kind, c) for c in content))


def metadata(shape, tokenizer, name):
    return [
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, name),
        entry("general.license", STRING, "mit"),
        entry("general.description", STRING, "Writes little English stories. Built into Cellar."),
        entry("general.alignment", U32, ALIGNMENT),
        entry("general.file_type", U32, FILE_TYPE_Q8_0),
        entry("general.quantization_version", U32, 2),
        entry("llama.context_length", U32, shape.context),
        entry("llama.embedding_length", U32, shape.embd),
        entry("llama.feed_forward_length", U32, shape.ffn),
        entry("llama.block_count", U32, shape.layers),
        entry("llama.attention.head_count", U32, shape.heads),
        entry("llama.attention.head_count_kv", U32, shape.kv_heads),
        entry("llama.attention.layer_norm_rms_epsilon", F32, shape.eps),
        entry("llama.rope.dimension_count", U32, shape.head_dim),
        entry("llama.rope.freq_base", F32, shape.rope_base),
        entry("llama.vocab_size", U32, shape.vocab),
        entry("tokenizer.ggml.model", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, tokenizer.tokens),
        array("tokenizer.ggml.scores", F32, tokenizer.scores),
        array("tokenizer.ggml.token_type", I32, tokenizer.types),
        entry("tokenizer.ggml.unknown_token_id", U32, 0),
        entry("tokenizer.ggml.bos_token_id", U32, 1),
        entry("tokenizer.ggml.eos_token_id", U32, 2),
        entry("tokenizer.ggml.add_bos_token", BOOL, True),
        entry("tokenizer.ggml.add_eos_token", BOOL, False),
        entry("tokenizer.ggml.add_space_prefix", BOOL, True),
    ]


def padding(length):
    return b"\0" * (-length % ALIGNMENT)


def write(path, model, tokenizer, name):
    """Write the model; returns the size of the file in bytes."""
    entries = metadata(model.shape, tokenizer, name)
    infos, data, count = b"", b"", 0
    for key, weight in model.state_dict().items():
        weight = weight.float().numpy()
        matrix = weight.ndim == 2
        infos += string(key) + struct.pack("<I", weight.ndim)
        infos += b"".join(struct.pack("<Q", n) for n in reversed(weight.shape))
        infos += struct.pack("<IQ", TENSOR_Q8_0 if matrix else TENSOR_F32, len(data))
        data += quantise(weight) if matrix else weight.astype("<f4").tobytes()
        data += padding(len(data))
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(entries)) + b"".join(entries) + infos
    head += padding(len(head))
    with open(path, "wb") as file:
        file.write(head + data)
    return len(head) + len(data)


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
        return self.data[self.at - length:self.at].decode("utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, length = self.number("<I"), self.number("<Q")
            return [self.value(kind) for _ in range(length)]
        return self.number(PACK[kind])


def read(path):
    """(model in float32 with the dequantised weights, tokenizer, metadata) of a file of ours."""
    with open(path, "rb") as file:
        reader = Reader(file.read())
    if reader.data[:4] != b"GGUF":
        raise ValueError(f"{path}: not a GGUF file")
    reader.at = 4
    version, tensors, entries = reader.number("<I"), reader.number("<Q"), reader.number("<Q")
    if version != 3:
        raise ValueError(f"{path}: GGUF version {version}, wanted 3")
    meta = {}
    for _ in range(entries):
        key = reader.string()
        meta[key] = reader.value(reader.number("<I"))
    infos = []
    for _ in range(tensors):
        key = reader.string()
        sizes = [reader.number("<Q") for _ in range(reader.number("<I"))]
        infos.append((key, sizes[::-1], reader.number("<I"), reader.number("<Q")))
    start = reader.at + (-reader.at % ALIGNMENT)
    weights = {}
    for key, sizes, kind, offset in infos:
        elements = int(np.prod(sizes))
        length = elements * 4 if kind == TENSOR_F32 else elements // 32 * 34
        data = reader.data[start + offset:start + offset + length]
        values = np.frombuffer(data, "<f4") if kind == TENSOR_F32 else dequantise(data, sizes)
        weights[key] = torch.tensor(values.reshape(sizes).copy())
    shape = Shape(vocab=len(meta["tokenizer.ggml.tokens"]), embd=meta["llama.embedding_length"],
                  layers=meta["llama.block_count"], heads=meta["llama.attention.head_count"],
                  kv_heads=meta["llama.attention.head_count_kv"],
                  ffn=meta["llama.feed_forward_length"], context=meta["llama.context_length"],
                  rope_base=meta["llama.rope.freq_base"],
                  eps=meta["llama.attention.layer_norm_rms_epsilon"])
    model = Model(shape)
    model.load_state_dict(weights)
    tokenizer = Tokenizer(meta["tokenizer.ggml.tokens"][FIRST_PIECE:])
    if tokenizer.scores != meta["tokenizer.ggml.scores"]:
        raise ValueError(f"{path}: unexpected scores")
    return model, tokenizer, meta
