/*
 * block_recurrent.h: blocks that remember a state of fixed size instead of every token.
 *
 *     convolution       the last few inputs of each channel
 *     selective scan    Mamba (Gu and Dao, arXiv:2312.00752)
 *     state space       Mamba-2 (Dao and Gu, arXiv:2405.21060)
 *     short convolution LFM2 (Liquid AI)
 *
 * RWKV's are in block_rwkv.h, and promise the same.
 *
 * Work is split over threads by channels or heads, and each thread reads the tokens of a segment one
 * after another, in the same arithmetic whatever else is in the micro-batch: results do not depend on
 * threads, on the split into micro-batches, or on what is read beside. States are walked as block_state.h
 * says. A block that ends a layer of the memory confirms it; all can fail as cellar_get_states
 * and cellar_confirm do, and no other way.
 */
#ifndef APP_BLOCK_RECURRENT_H
#define APP_BLOCK_RECURRENT_H

#include "engine/block.h"

/* ---- convolution ------------------------------------------------------------------------------- */

/*
 * Causal, each channel by itself: y_t = bias + sum over i of weight[i] * x_(t - width + 1 + i).
 * State: [n_channels][width - 1], the inputs before, oldest first.
 */
typedef struct block_convolution {
    uint32_t memory_layer, tensor;
    uint32_t n_channels, width; /* width >= 2 */
    const float *weight;        /* [n_channels][width] */
    const float *bias;          /* [n_channels] or NULL */
    bool has_silu;              /* of the result */
} block_convolution;

static inline uint64_t block_convolution_state(uint32_t n_channels, uint32_t width)
{
    return (uint64_t)n_channels * (width - 1);
}

/*
 * x [n_tokens][n_channels] becomes its convolution; with `before` x is multiplied by it first, with
 * `after` the result is multiplied (both [n_tokens][n_channels] or NULL). Segments were checked.
 */
void block_convolution_run(const block_convolution *convolution, const block_context *c, float *x,
                           const float *before, const float *after);

/* out(c * convolution(b * x)) with b, c, x products of the input. State 0: the convolution's. */
typedef struct block_short_convolution {
    uint32_t memory_layer;
    block_linear b, c, x; /* [n_channels][n_embd] */
    block_convolution convolution;
    block_linear out; /* [n_embd][n_channels] */
} block_short_convolution;

uint64_t block_short_convolution_scratch(const block_short_convolution *block);

/* out [n_tokens][n_embd] of x; residual += out if it is not NULL. x may be out. So with all below. */
cellar_status block_short_convolution_run(const block_short_convolution *block,
                                          const block_context *c, const float *x, float *out,
                                          float *residual, cellar_error *error);

/* ---- Mamba ------------------------------------------------------------------------------------- */

/*
 * u, z = in(x);   u = silu(convolution(u));   r, B, C = x_proj(u), each with its norm
 * d = softplus(dt(r));   h = exp(d * a) * h + d * B * u;   y = C h + skip * u;   out(y * silu(z))
 * h has n_state numbers for each channel. States: 0 the convolution's, 1 h [n_inner][n_state].
 */
typedef struct block_selective_scan {
    uint32_t memory_layer;
    uint32_t n_inner, n_state;
    block_linear u, z; /* [n_inner][n_embd] */
    block_convolution convolution;
    block_linear r, b, c;              /* [rank or n_state][n_inner] */
    block_norm r_norm, b_norm, c_norm; /* of width 0: none */
    block_linear dt;                   /* [n_inner][rank], with its bias */
    const float *a;                    /* [n_inner][n_state], below 0 */
    const float *skip;                 /* [n_inner] */
    block_linear out;                  /* [n_embd][n_inner] */
} block_selective_scan;

uint64_t block_selective_scan_scratch(const block_selective_scan *block);
cellar_status block_selective_scan_run(const block_selective_scan *block, const block_context *c,
                                       const float *x, float *out, float *residual,
                                       cellar_error *error);

/* ---- Mamba-2 ----------------------------------------------------------------------------------- */

/*
 * z, (u, B, C), d = in(x);   u, B, C = silu(convolution(u, B, C));   d = softplus(d + dt_bias)
 * h = exp(d * a) * h + d * u B^T;   y = h C + skip * u;   out(norm(y * silu(z)))
 * with d, a and skip one number for each head, B and C the same for n_heads / n_groups heads that
 * follow each other. States: 0 the convolution's, 1 h [n_heads][n_inner / n_heads][n_state].
 */
typedef struct block_state_space {
    uint32_t memory_layer;
    uint32_t n_inner, n_state, n_heads, n_groups; /* n_groups divides n_heads divides n_inner */
    block_linear z;                               /* [n_inner][n_embd] */
    block_linear ubc;                             /* [n_inner + 2 * n_groups * n_state][n_embd] */
    block_linear dt;                              /* [n_heads][n_embd] */
    block_convolution convolution;
    const float *dt_bias, *a, *skip; /* [n_heads] */
    block_norm norm;                 /* of groups of channels; width 0: none */
    block_linear out;                /* [n_embd][n_inner] */
} block_state_space;

uint64_t block_state_space_scratch(const block_state_space *block);
cellar_status block_state_space_run(const block_state_space *block, const block_context *c,
                                    const float *x, float *out, float *residual,
                                    cellar_error *error);

#endif /* APP_BLOCK_RECURRENT_H */
