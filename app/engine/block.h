/*
 * block.h: the parts that transformer layers are made of, as small structs and functions.
 *
 * An architecture (arch_*.c) fills these structs from a model file and calls the functions in its
 * order; nothing here knows a model format or an architecture's name. All numbers are f32; a
 * matrix of activations is [n_tokens][width], tokens far apart by their width.
 *
 * How work is divided: a product is split over threads by rows of the weight matrix, everything
 * else by tokens. Each output value is computed by one thread, in an order that depends on its own
 * inputs alone. So results do not depend on the number of threads, nor on which tokens share a
 * micro-batch: what was read once and kept equals what is read again, bit for bit.
 *
 * Nothing here allocates: the buffers of a block_context were sized by the engine for the largest
 * block and micro-batch. Only blocks that use the memory can fail: they hand on what it says.
 */
#ifndef APP_BLOCK_H
#define APP_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/threads.h"
#include "kernels.h"

/* A weight matrix [n_out][n_in] as the file stores it. */
typedef struct block_weight {
    const void
        *data;     /* first row; aligned to the numbers in it; NULL: the model has no such matrix */
    uint32_t type; /* CL_WEIGHT_* */
    uint32_t n_in; /* numbers in a row, a multiple of the type's block */
    uint32_t n_out;   /* rows */
    size_t row_bytes; /* from one row to the next */
} block_weight;

/* A matrix with an optional bias [n_out]. */
typedef struct block_linear {
    block_weight weight;
    const float *bias; /* NULL: none */
} block_linear;

/* Is there such a matrix? */
static inline bool block_has(const block_linear *linear)
{
    return linear->weight.data != NULL;
}

typedef enum block_norm_kind {
    BLOCK_NORM_RMS = 0,   /* x / sqrt(mean(x^2) + epsilon) (Zhang and Sennrich, arXiv:1910.07467) */
    BLOCK_NORM_LAYER = 1, /* (x - mean) / sqrt(variance + epsilon) (Ba et al., arXiv:1607.06450) */
} block_norm_kind;

/*
 * A norm of rows of `width` numbers, each by itself, then * weight + bias. A row of a token may be
 * cut into n_groups such rows with weights of their own (heads, groups of channels): row r of all
 * that are given uses weights [r % n_groups].
 */
typedef struct block_norm {
    block_norm_kind kind;
    uint32_t width;      /* 0: the model has no such norm */
    uint32_t n_groups;   /* >= 1 */
    const float *weight; /* [n_groups][width]; NULL: ones */
    const float *bias;   /* [n_groups][width]; NULL: zeros */
    float epsilon;       /* > 0 */
} block_norm;

/*
 * Attention with K and V heads shared by groups of query heads; the memory rotates and attends. In
 * this order: products and biases, clamp, norms.
 */
typedef struct block_attention {
    uint32_t memory_layer; /* which layer of the memory */
    uint32_t n_heads, n_kv_heads;
    uint32_t k_size, v_size; /* of a head */
    block_linear q;          /* [n_heads * k_size][n_embd] */
    block_linear k;   /* [n_kv_heads * k_size][n_embd]; none: another layer's rows are read */
    block_linear v;   /* [n_kv_heads * v_size][n_embd]; none beside a k: V is K before its norm */
    block_linear out; /* [n_embd][n_heads * v_size] */
    block_norm q_norm, k_norm, v_norm; /* of each head, or of all heads of a token as one row */
    float clamp;                       /* > 0: q, k and v are limited to -clamp..clamp (MPT) */
} block_attention;

typedef enum block_activation {
    BLOCK_SILU = 0,         /* z / (1 + exp(-z)) */
    BLOCK_GELU = 1,         /* Hendrycks and Gimpel, arXiv:1606.08415, with their tanh */
    BLOCK_GELU_ERF = 2,     /* the same with the error function */
    BLOCK_RELU = 3,         /* max(z, 0) */
    BLOCK_RELU_SQUARED = 4, /* max(z, 0)^2 (So et al., arXiv:2109.08668) */
    BLOCK_ACTIVATIONS = 5
} block_activation;

/* Changes n numbers in place. A value depends on itself alone. */
typedef void (*block_activation_function)(float *z, size_t n);

/* The functions, exact to f32's rounding, by block_activation. */
extern const block_activation_function block_activations[BLOCK_ACTIVATIONS];

/*
 * Feed-forward: down(activation(gate x) * up x) (Shazeer, arXiv:2002.05202), or without a gate
 * down(activation(up x)).
 */
typedef struct block_ffn {
    block_linear gate; /* [n_ff][n_embd], or none */
    block_linear up;   /* [n_ff][n_embd] */
    block_linear down; /* [n_embd][n_ff] */
    block_activation activation;
} block_ffn;

/*
 * Threads that know how large the next job is. A job of less than BLOCK_SMALL_JOB multiplications
 * is done by the calling thread, part after part: waking the others would cost more than it saves.
 */
typedef struct block_workers {
    threads *threads;
    uint64_t work; /* multiplications in the next job, about */
} block_workers;

#define BLOCK_SMALL_JOB (1u << 17) /* some 20 microseconds of one thread */

/* Run a job; `workers` is a block_workers *, as void * to fit cellar_workers. */
void block_workers_run(void *workers, cellar_task task, void *argument);

/*
 * What computing a micro-batch needs: tools, place, buffers. `scratch` is room for whatever one block
 * needs while it runs: each block cuts its buffers off it (block_cut) and says beforehand how many
 * numbers a token takes (its block_*_scratch), of which the engine has room for the largest.
 */
typedef struct block_context {
    const cl_matmul_table *table;
    const block_activation_function *activations; /* [BLOCK_ACTIVATIONS] */
    block_workers *workers;                       /* also the memory's */
    cellar_memory *memory;

    bool (*should_stop)(void *context); /* asked before each layer; NULL: never stop */
    void *stop_context;

    uint32_t ubatch;            /* number of the micro-batch in the open step */
    cellar_ubatch place;        /* what the memory says of it: positions, segments */
    uint32_t n_tokens;          /* in it, >= 1 */
    uint32_t n_embd;            /* width of x, h, added */
    uint32_t n_keys;            /* that one of its tokens sees at most, about */
    const cellar_token *tokens; /* [n_tokens] */

    /* [place.n_segments] what cross attention reads (block_cross_attention.h); NULL: there is none */
    const struct block_encoding *const *encodings;

    float *x;       /* [n_tokens][n_embd] the residual stream */
    float *h;       /* [n_tokens][n_embd] what a block reads */
    float *added;   /* [n_tokens][n_embd] what a block gives */
    float *scratch; /* [n_tokens * what the largest block asked for] */
    float *kept;    /* [n_tokens * what the model asked for] stays from layer to layer */
    void *rounded;  /* [n_tokens] rows of what is multiplied, rounded; NULL: nothing is */
} block_context;

/* Numbers that block_cut takes for each token of a buffer of this width: whole cache lines. */
static inline uint64_t block_room(uint64_t width)
{
    return (width + 15) / 16 * 16;
}

/*
 * Cut a buffer [n_tokens][width] off the front of what is left of the scratch room; *left is
 * c->scratch to begin with. Buffers begin at cache lines.
 */
static inline float *block_cut(float **left, const block_context *c, uint64_t width)
{
    float *buffer = *left;
    *left += c->n_tokens * block_room(width);
    return buffer;
}

/* Does the caller want the step to end? Then the architecture returns CELLAR_REFUSED. */
static inline bool block_is_stopped(const block_context *c)
{
    return c->should_stop != NULL && c->should_stop(c->stop_context);
}

/* One matrix product of a job: y = x * weight^T + bias, and then residual += y if there is one. */
typedef struct block_product {
    const block_linear *linear;
    const float *x;  /* [n_tokens][n_in] */
    float *y;        /* [n_tokens][n_out], does not overlap x */
    float *residual; /* [n_tokens][n_out] or NULL */
} block_product;

/* Compute n products, which must not depend on each other, as one job over all threads. */
void block_multiply(const block_context *c, const block_product *products, uint32_t n,
                    uint32_t n_tokens);

/*
 * The job of block_multiply for one or two products that make a hidden layer: with two,
 * y[0] = activation(y[0]) * y[1], with one y[0] = activation(y[0]). For block_ffn_run.
 */
void block_multiply_activated(const block_context *c, const block_product *products, uint32_t n,
                              block_activation activation, uint32_t n_tokens);

/* out [n_rows][width] = norm of x [n_rows][width]. x == out is allowed. */
void block_norm_run(const block_norm *norm, const block_context *c, const float *x, float *out,
                    uint32_t n_rows);

/* Numbers of scratch room for each token. */
uint64_t block_attention_scratch(const block_attention *attention);
uint64_t block_ffn_scratch(const block_ffn *ffn);

/*
 * out [n_tokens][n_embd] = attention of x [n_tokens][n_embd], stored and attended as its layer of the
 * memory's open step; residual += out if it is not NULL. x may be the same as out. Statuses:
 * cellar_store's and cellar_attend's.
 */
cellar_status block_attention_run(const block_attention *attention, const block_context *c,
                                  const float *x, float *out, float *residual, cellar_error *error);

/* out [n_tokens][n_embd] = feed-forward of x; residual += out if it is not NULL. x may be out. */
void block_ffn_run(const block_ffn *ffn, const block_context *c, const float *x, float *out,
                   float *residual);

#endif /* APP_BLOCK_H */
