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
 * Nothing here allocates. The buffers of a block_context were sized by the engine for the largest
 * layer and micro-batch. Only block_attention can fail: it hands on what the memory says.
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

/* RMS norm: x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich, arXiv:1910.07467). */
typedef struct block_norm {
    const float *weight; /* [width] */
    uint32_t width;
    float epsilon; /* > 0 */
} block_norm;

/* Attention with K and V heads shared by groups of query heads; the memory rotates and attends. */
typedef struct block_attention {
    block_linear q;   /* [n_heads * k_size][n_embd] */
    block_linear k;   /* [n_kv_heads * k_size][n_embd] */
    block_linear v;   /* [n_kv_heads * v_size][n_embd] */
    block_linear out; /* [n_embd][n_heads * v_size] */
} block_attention;

/* Gated feed-forward: down(silu(gate x) * up x), "SwiGLU" (Shazeer, arXiv:2002.05202). */
typedef struct block_ffn {
    block_linear gate, up; /* [n_ff][n_embd] */
    block_linear down;     /* [n_embd][n_ff] */
} block_ffn;

/* Numbers for each token that the buffers below must have room for: maxima over all layers. */
typedef struct block_widths {
    uint32_t embd;           /* x, h */
    uint32_t q, k, v, heads; /* q, k, v, attended */
    uint32_t ff;             /* gate, up */
} block_widths;

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

/* What computing a micro-batch needs: tools, place, buffers. */
typedef struct block_context {
    const cl_matmul_table *table;
    block_workers *workers; /* also the memory's */
    cellar_memory *memory;

    bool (*should_stop)(void *context); /* asked before each layer; NULL: never stop */
    void *stop_context;

    uint32_t ubatch;   /* number of the micro-batch in the open step */
    uint32_t n_tokens; /* in it, >= 1 */
    uint32_t n_keys;   /* that one of its tokens sees at most, about */

    float *x;         /* [n_tokens][n_embd] the residual stream */
    float *h;         /* [n_tokens][n_embd] what a block reads, and then what it adds to x */
    float *q;         /* [n_tokens][n_heads * k_size] */
    float *k;         /* [n_tokens][n_kv_heads * k_size] */
    float *v;         /* [n_tokens][n_kv_heads * v_size] */
    float *attended;  /* [n_tokens][n_heads * v_size] */
    float *gate, *up; /* [n_tokens][n_ff] */
} block_context;

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

/* The job of block_multiply, and after it gate = silu(gate) * up. For block_ffn_run. */
void block_multiply_gated(const block_context *c, const block_product *gate_and_up,
                          uint32_t n_tokens);

/* out [n_tokens][width] = norm of x [n_tokens][width]. x == out is allowed. */
void block_norm_run(const block_norm *norm, const block_context *c, const float *x, float *out,
                    uint32_t n_tokens);

/*
 * out [n_tokens][n_embd] = attention of x [n_tokens][n_embd], stored and attended as `layer` of the
 * memory's open step; residual += out if it is not NULL. x may be the same as out. Statuses:
 * cellar_store's and cellar_attend's.
 */
cellar_status block_attention_run(const block_attention *attention, const block_context *c,
                                  uint32_t layer, const float *x, float *out, float *residual,
                                  cellar_error *error);

/* out [n_tokens][n_embd] = feed-forward of x; residual += out if it is not NULL. x may be out. */
void block_ffn_run(const block_ffn *ffn, const block_context *c, const float *x, float *out,
                   float *residual);

#endif /* APP_BLOCK_H */
