/*
 * block_cross_attention.h: attention of a decoder to what an encoder made of a text (Vaswani et al.,
 * arXiv:1706.03762, section 3.2.3).
 *
 * Keys and values are products of the encoder's outputs alone. They are made once for a text and
 * kept as an encoding; each token of the decoder then attends to all of them, wherever it stands.
 * Nothing of this is in the memory: no position, rotation or window is involved, and an encoding never
 * grows. So it is a plain array, and attention to it two matrix products with a softmax between.
 *
 * As everywhere (block.h), a result depends on the token and the encoding alone.
 */
#ifndef APP_BLOCK_CROSS_ATTENTION_H
#define APP_BLOCK_CROSS_ATTENTION_H

#include "engine/block.h"

/*
 * What the encoder made of one text: for each cross attention of the model, n_tokens * its `first`
 * numbers from the start, K [n_heads][n_tokens][k_size] and V [n_heads][v_size][n_tokens].
 */
typedef struct block_encoding {
    uint32_t n_tokens; /* >= 1 */
    float *rows;
} block_encoding;

typedef struct block_cross_attention {
    uint32_t n_heads;
    uint32_t k_size, v_size; /* of a head */
    float scale;             /* of <q, k> before the softmax */
    uint64_t first;          /* where it lies in an encoding, in numbers of one token */
    block_linear q;          /* [n_heads * k_size][n_embd] */
    block_linear k, v;       /* [n_heads * k_size][n_embd], [n_heads * v_size][n_embd] */
    block_linear out;        /* [n_embd][n_heads * v_size] */
} block_cross_attention;

/* Numbers that an encoding keeps for each of its tokens. */
uint64_t block_cross_attention_numbers(const block_cross_attention *attention);

/* Numbers of scratch room for each token, for either call. */
uint64_t block_cross_attention_scratch(const block_cross_attention *attention);

/* A text among the tokens that an encoder has read. */
typedef struct block_text {
    uint32_t first; /* of its tokens; encoding.n_tokens follow each other */
    block_encoding encoding;
} block_text;

/*
 * Write this attention's part of the encodings of n texts, from the encoder's outputs
 * x [c->n_tokens][n_embd].
 */
void block_cross_attention_encode(const block_cross_attention *attention, const block_context *c,
                                  const float *x, const block_text *texts, uint32_t n);

/*
 * out [n_tokens][n_embd] = attention of x to c->encodings, by segments of the micro-batch;
 * residual += out if it is not NULL.
 */
void block_cross_attention_run(const block_cross_attention *attention, const block_context *c,
                               const float *x, float *out, float *residual);

#endif /* APP_BLOCK_CROSS_ATTENTION_H */
