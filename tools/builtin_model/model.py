"""The built-in language model in torch: a llama-architecture decoder, as GGUF names its parts.

RMSNorm before each half of a block, grouped-query attention with RoPE over adjacent pairs
(0,1), (2,3), ..., a SwiGLU feed-forward, no biases, the output matrix tied to the embedding.

`forward` can run its matrix products in bfloat16 (training) while the weights, the norms, the
softmax and the loss stay in float32. Nothing else here knows about precision: measuring and the
golden file use plain float32 or float64 by `model.double()`.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

QUERY_BLOCK = 128  # queries attend in blocks, each to the keys up to its own end


@dataclass
class Shape:
    """Sizes of the network; every matrix row is a multiple of 32 long, as Q8_0 wants it."""

    vocab: int = 1536
    embd: int = 128
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 352
    context: int = 512
    rope_base: float = 10000.0
    eps: float = 1e-5

    @property
    def head_dim(self):
        return self.embd // self.heads


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps), times one learnt weight for each channel."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    """One layer. All weights are [outputs, inputs], named as GGUF names them."""

    def __init__(self, shape):
        super().__init__()
        kv_width = shape.kv_heads * shape.head_dim
        self.shape = shape
        self.attn_norm = RMSNorm(shape.embd, shape.eps)
        self.attn_q = nn.Linear(shape.embd, shape.embd, bias=False)
        self.attn_k = nn.Linear(shape.embd, kv_width, bias=False)
        self.attn_v = nn.Linear(shape.embd, kv_width, bias=False)
        self.attn_output = nn.Linear(shape.embd, shape.embd, bias=False)
        self.ffn_norm = RMSNorm(shape.embd, shape.eps)
        self.ffn_gate = nn.Linear(shape.embd, shape.ffn, bias=False)
        self.ffn_up = nn.Linear(shape.embd, shape.ffn, bias=False)
        self.ffn_down = nn.Linear(shape.ffn, shape.embd, bias=False)

    def attend(self, x, cos, sin, masks, work):
        shape = self.shape
        batch, length, _ = x.shape
        groups = shape.heads // shape.kv_heads
        x = x.to(work)
        q = product(x, self.attn_q, work).view(batch, length, shape.heads, shape.head_dim)
        k = product(x, self.attn_k, work).view(batch, length, shape.kv_heads, shape.head_dim)
        v = product(x, self.attn_v, work).view(batch, length, shape.kv_heads, shape.head_dim)
        q = rotate(q, cos, sin).to(work).transpose(1, 2)
        k = rotate(k, cos, sin).to(work).transpose(1, 2)
        v = v.transpose(1, 2)
        k = k.repeat_interleave(groups, dim=1).reshape(batch * shape.heads, length, -1)
        v = v.repeat_interleave(groups, dim=1).reshape(batch * shape.heads, length, -1)
        q = q.reshape(batch * shape.heads, length, -1) / math.sqrt(shape.head_dim)
        parts = []
        for start in range(0, length, QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, length)
            scores = torch.bmm(q[:, start:end], k[:, :end].transpose(1, 2))
            scores = scores + masks[(start, end)].to(scores.dtype)
            parts.append(torch.bmm(F.softmax(scores, dim=-1), v[:, :end]))
        out = torch.cat(parts, dim=1).view(batch, shape.heads, length, shape.head_dim)
        out = out.transpose(1, 2).reshape(batch, length, shape.embd)
        return product(out, self.attn_output, work)

    def forward(self, x, cos, sin, masks, work):
        x = x + self.attend(self.attn_norm(x), cos, sin, masks, work).to(x.dtype)
        h = self.ffn_norm(x).to(work)
        h = F.silu(product(h, self.ffn_gate, work)) * product(h, self.ffn_up, work)
        return x + product(h, self.ffn_down, work).to(x.dtype)


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocab, shape.embd)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = RMSNorm(shape.embd, shape.eps)
        self.masks = {}

    def initialise(self, generator):
        """Starting weights that know nothing of the text, but how to look back.

        With random weights alone, thousands of steps pass before attention finds out that what
        stood there before may come again. So some of that is built in, for training to refine:
        1. channel 0 of every embedding is the same constant, for heads that look by position only;
        2. in layer 0, heads 0 and 1 look one and two tokens back, and write what they see there
           into a part of the stream of their own;
        3. in layers 1 to 3, head 0 looks for a place whose previous token is the present one;
        4. from layer 1 on, every head writes what it reads as it was: attending to a token makes
           that token likelier.
        """
        shape = self.shape
        size = shape.head_dim

        def normal(rows, columns, deviation):
            return torch.randn(rows, columns, generator=generator) * deviation

        def directions(count):
            """[count, embd], orthonormal."""
            return torch.linalg.qr(normal(shape.embd, count, 1.0))[0].t().contiguous()

        with torch.no_grad():
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    p.copy_(normal(*p.shape, 0.04))
            self.token_embd.weight.copy_(normal(*self.token_embd.weight.shape, 0.1))
            constant = 0.3
            self.token_embd.weight[:, 0] = constant                                      # 1
            seen = constant / math.sqrt(constant ** 2 / shape.embd + 0.1 ** 2)
            first = self.blk[0]
            turns = shape.rope_base ** (-torch.arange(0, size, 2).float() / size)
            near = 4       # pairs that turn fast enough to tell neighbours apart
            strength = math.sqrt(8 * math.sqrt(size)) / seen
            first.attn_k.weight[:size] = 0
            first.attn_q.weight[:2 * size] = 0
            for pair in range(near):                                                     # 2
                first.attn_k.weight[2 * pair, 0] = strength
                for head in (0, 1):
                    angle = float(turns[pair]) * (head + 1)
                    first.attn_q.weight[head * size + 2 * pair, 0] = strength * math.cos(angle)
                    first.attn_q.weight[head * size + 2 * pair + 1, 0] = -strength * math.sin(angle)
            read = directions(size)
            write = directions(2 * size)
            first.attn_v.weight[:size] = read
            first.attn_output.weight[:, :2 * size] = 0.15 * write.t()
            slow = 2 * 7   # from this row on, RoPE turns slowly enough for long distances
            for block in self.blk[1:4]:                                                  # 3
                block.attn_q.weight[:size] *= 0.1
                block.attn_k.weight[:size] *= 0.1
                block.attn_q.weight[slow:size] = 2.5 * read[slow:]
                block.attn_k.weight[slow:size] = 2.5 * write[slow:size]
            for block in self.blk[1:]:                                                   # 4
                for group in range(shape.kv_heads):
                    copy = directions(size)
                    block.attn_v.weight[group * size:(group + 1) * size] = copy
                    each = shape.heads // shape.kv_heads
                    for head in range(group * each, (group + 1) * each):
                        block.attn_output.weight[:, head * size:(head + 1) * size] = 0.08 * copy.t()
            for block in self.blk:
                block.ffn_down.weight *= 0.5

    def mask_blocks(self, length):
        masks = {}
        for start in range(0, length, QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, length)
            late = torch.arange(end)[None, :] > torch.arange(start, end)[:, None]
            masks[(start, end)] = torch.zeros(end - start, end).masked_fill(late, -1e9)
        return masks

    def forward(self, tokens, work=None):
        """tokens [batch, length] -> logits [batch, length, vocab]."""
        work = work or self.token_embd.weight.dtype
        length = tokens.shape[1]
        if length not in self.masks:
            self.masks[length] = self.mask_blocks(length)
        cos, sin = rotations(self.shape, length, self.token_embd.weight.dtype)
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x, cos, sin, self.masks[length], work)
        x = self.output_norm(x).to(work)
        return F.linear(x, self.token_embd.weight.to(work))


def product(x, linear, work):
    return F.linear(x, linear.weight.to(work))


def rotations(shape, length, dtype):
    """cos and sin [length, 1, head_dim / 2] of position * base^(-2i / head_dim)."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float64)
    angles = torch.arange(length, dtype=torch.float64)[:, None]
    angles = angles * shape.rope_base ** (-half / shape.head_dim)
    return angles.cos().to(dtype)[:, None, :], angles.sin().to(dtype)[:, None, :]


def rotate(x, cos, sin):
    """Turn each adjacent pair of x [batch, length, heads, head_dim] by its position's angle."""
    pairs = x.to(cos.dtype).unflatten(-1, (-1, 2))
    a, b = pairs[..., 0], pairs[..., 1]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
