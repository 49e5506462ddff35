/*
 * block_rwkv.h: the two halves of a layer of RWKV: time mix and channel mix.
 *
 * Both see the token before, as a state: with x' the input one token earlier (zeros at the start),
 *
 *     mix(l) = x + (x' - x) * l         l: a number for each channel
 *
 * is what their products read. Time mix has a matrix for each head beside, which it reads and changes
 * token by token: in RWKV-6 (Peng et al., arXiv:2404.05892) what it keeps of itself depends on what
 * is read; in RWKV-7 (Peng et al., arXiv:2503.14456) it is also told what to replace.
 *
 * A layer has one layer of the memory: state 0 the input of time mix, 1 that of channel mix, 2 the
 * matrices. The architecture confirms it when both halves are done. Otherwise as block_recurrent.h.
 */
#ifndef APP_BLOCK_RWKV_H
#define APP_BLOCK_RWKV_H

#include "engine/block.h"

enum { BLOCK_RWKV_TIME = 0, BLOCK_RWKV_CHANNEL = 1, BLOCK_RWKV_HEADS = 2 }; /* tensors of a state */

/*
 * previous [n_tokens][width] = the token before each of x in its segment; the state becomes the last
 * of x. Segments were checked.
 */
void block_rwkv_shift(const block_context *c, uint32_t memory_layer, uint32_t tensor,
                      uint32_t width, const float *x, float *previous);

/* out = x + (previous - x) * l, for n_tokens rows of `width`; l [width]. */
void block_rwkv_mix(const block_context *c, uint32_t width, const float *x, const float *previous,
                    const float *l, float *out);

/* out = [sigmoid(receptance(mix(l_r))) *] value(relu(key(mix(l_k)))^2) */
typedef struct block_rwkv_channels {
    uint32_t memory_layer, n_embd;
    const float *l_k, *l_r;  /* [n_embd] */
    block_linear key, value; /* [n_ff][n_embd], [n_embd][n_ff] */
    block_linear receptance; /* [n_embd][n_embd], or none */
} block_rwkv_channels;

uint64_t block_rwkv_channels_scratch(const block_rwkv_channels *block);

/* residual += the block's of x; `out` is room. Cannot fail: segments were checked. */
void block_rwkv_channels_run(const block_rwkv_channels *block, const block_context *c,
                             const float *x, float *out, float *residual);

/*
 * Walk through the heads' states: for each token of each segment, read(job, head, at, size, S) with `at`
 * where its numbers begin in a buffer [n_tokens][n_embd], and S [size][size] to be changed. Heads are
 * split over threads.
 */
typedef struct block_rwkv_heads {
    const block_context *c;
    uint32_t memory_layer, n_embd, n_heads; /* n_heads divides n_embd */
    void (*read)(const void *job, uint32_t head, size_t at, uint32_t size, float *S);
    const void *job;
} block_rwkv_heads;

/* work: multiplications, about. */
void block_rwkv_read_heads(const block_rwkv_heads *heads, uint64_t work);

/*
 * RWKV-6. For each of w, k, v, r, g in this order: its l = l_i + up_i(tanh(down_i(mix(l_x)))).
 * decay = exp(-exp(decay_0 + decay_up(tanh(decay_down(mix_w)))));   for each head, with S [k][v]:
 * y = r (S + first * k v);   S = decay * S + k v;   out(norm(y) * silu(gate(mix_g)))
 */
typedef struct block_rwkv6_time {
    uint32_t memory_layer, n_embd, n_heads; /* n_heads divides n_embd */
    const float *l_x;                       /* [n_embd] */
    const float *l;                         /* [5][n_embd] */
    block_linear down[5], up[5];            /* [rank][n_embd], [n_embd][rank] */
    block_linear decay_down, decay_up;      /* [decay rank][n_embd], [n_embd][decay rank] */
    const float *first;                     /* [n_embd] */
    block_linear k, v, r, gate, out;        /* [n_embd][n_embd]; decay_0 is the bias of decay_up */
    block_norm norm;                        /* of heads */
} block_rwkv6_time;

uint64_t block_rwkv6_time_scratch(const block_rwkv6_time *block);
cellar_status block_rwkv6_time_run(const block_rwkv6_time *block, const block_context *c,
                                   const float *x, float *out, float *residual,
                                   cellar_error *error);

/*
 * RWKV-7. r, k, v of mix_r, mix_k, mix_v;   decay = exp(-exp(-1/2) sigmoid(w_up(tanh(w_down(mix_w)))))
 * a = sigmoid(a_up(a_down(mix_a)));   g = g_up(sigmoid(g_down(mix_g)))
 * v += (v of the first layer - v) * sigmoid(v_up(v_down(mix_v)))                 but in the first layer
 * z = k * k_k, each head divided by its length;   k = k * (1 + (a - 1) * k_a);   with S [k][v]:
 * S = decay * S + (a z) (-z S) + k v;   y = r S;   out((norm(y) + (r * k * r_k summed) v) * g)
 * The up matrices have biases. v of the first layer stays in c->kept, [n_tokens][n_embd].
 */
typedef struct block_rwkv7_time {
    uint32_t memory_layer, n_embd, n_heads; /* n_heads divides n_embd */
    bool is_first;                          /* layer; it has no v_down and v_up */
    const float *l;                         /* [6][n_embd] for r, w, k, v, a, g */
    block_linear r, k, v, out;              /* [n_embd][n_embd] */
    block_linear w_down, w_up, a_down, a_up, v_down, v_up, g_down, g_up;
    const float *k_k, *k_a, *r_k; /* [n_embd] */
    block_norm norm;              /* of heads */
} block_rwkv7_time;

uint64_t block_rwkv7_time_scratch(const block_rwkv7_time *block);
cellar_status block_rwkv7_time_run(const block_rwkv7_time *block, const block_context *c,
                                   const float *x, float *out, float *residual,
                                   cellar_error *error);

#endif /* APP_BLOCK_RWKV_H */
