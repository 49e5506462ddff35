/*
 * attend.h: storing a micro-batch's rows, and attending over what it sees.
 *
 * One algorithm for prefill, decode, many sequences and shared prefixes: for each K/V head and each
 * handful of tokens, walk the key blocks that those tokens see (sweep.h), in order; score all query
 * rows that look at a block against its keys, which are read once; update each row's running
 * maximum, sum and accumulator (online softmax: Milakov and Gimelshein, arXiv:1805.02867); divide
 * at the end.
 *
 * A row's value depends on its keys in the order of their positions and on nothing else, so
 * splitting the work over more workers, or over other micro-batches, changes no bit of it.
 */
#ifndef CL_ATTEND_H
#define CL_ATTEND_H

#include "group.h"
#include "rope.h"

#define CL_ROWS 64u /* query rows that are computed together */

/* A layer as the memory keeps it. */
typedef struct cl_layer {
    cellar_layer_kind kind;
    uint32_t n_heads, n_kv_heads, k_size, v_size;
    float scale;
    bool is_causal;
    int32_t group;   /* index into the memory's groups; -1: none */
    uint32_t rope;   /* index into the memory's rotations */
    uint32_t source; /* the layer whose rows it reads: itself, or another that stores them */
    bool is_external;
    bool v_in_k;
    const cl_rows *k,
        *v; /* of the source layer, in the group's storage; v NULL: v_in_k; both NULL: external */
    uint32_t hadamard_k, hadamard_v; /* elements turned together, a power of two; 0: not turned */
    float softcap;                   /* 0: none */
    float alibi_max_bias;            /* 0: none */
    const float *slopes;             /* [n_heads] of ALiBi; NULL: none */
    const float *sinks;              /* [n_heads]; NULL: none */
    uint32_t n_buckets, max_distance;
    bool is_bidirectional;
    const float *bucket_bias; /* [n_buckets][n_heads]; NULL: none */
    const cl_rows *states;    /* [n_states] tensors of a recurrent layer */
    uint32_t n_states;
} cl_layer;

/* Room for one worker; sizes in floats are multiples of 16 so that each part is aligned. */
typedef struct cl_scratch_layout {
    size_t query,
        turned; /* [CL_ROWS][largest k_size] rotated queries; the same, turned back by a shift */
    size_t accumulator;  /* [CL_ROWS][largest v_size] */
    size_t scores;       /* [CL_ROWS][CL_KEYS] */
    size_t keys, values; /* [CL_KEYS][largest size] rows converted to f32 */
    size_t raw;          /* [CL_KEYS][largest row_bytes] rows from a store without addresses */
    size_t floats;       /* of one worker */
} cl_scratch_layout;

/* False: does not fit. largest_row: bytes. */
bool cl_scratch_measure(cl_scratch_layout *layout, uint32_t largest_k, uint32_t largest_v,
                        size_t largest_row);

/* What a call works with. */
typedef struct cl_attention {
    const cl_layer *layer;
    const cl_group *group;
    const cl_rope *rope;
    const cl_kernels *kernels;
    const float
        *angles; /* [tokens of the micro-batch][2 * pairs] cosines and sines of their positions */
    size_t turn_offset;          /* of this rotation's angles inside one shift's (cl_sweep.turns) */
    const cellar_pos *positions; /* [tokens of the micro-batch] */
    const cl_point *points;      /* [tokens of the micro-batch]; NULL: all text */
    const uint32_t *cells;       /* [tokens of the micro-batch] */
    uint32_t n_tokens;
    const cl_scratch_layout *layout;
    float *scratch; /* layout->floats for each worker */
    cellar_workers workers;
} cl_attention;

/*
 * k [n_tokens][n_kv_heads][k_size], v [n_tokens][n_kv_heads][v_size] into their cells, k rotated.
 * False: a store of the caller failed.
 */
bool cl_attend_store(const cl_attention *attention, const float *k, const float *v);

/*
 * q [n_tokens][n_heads][k_size] to out [n_tokens][n_heads][v_size]. False: a store of the caller
 * failed; out is undefined.
 */
bool cl_attend_attend(const cl_attention *attention, const float *q, float *out);

/* The slopes of ALiBi, [n_heads] (Press et al., arXiv:2108.12409, for any number of heads). */
void cl_attend_slopes(float *slopes, uint32_t n_heads, float max_bias);

/* The bucket of a key at distance k - q (cellar_buckets). */
uint32_t cl_attend_bucket(const cl_layer *layer, int64_t distance);

/* Is a key hidden because it stands behind the query at the same position (2-D)? Points are absolute
 * distances from that position. */
static inline bool cl_attend_is_behind(cl_point key, cl_point query)
{
    return key.y > query.y || (key.y == query.y && key.x > query.x);
}

#endif /* CL_ATTEND_H */
