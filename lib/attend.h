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
    uint32_t n_heads, n_kv_heads, k_size, v_size;
    float scale;
    bool is_causal;
    uint32_t group; /* index into the memory's groups */
    uint32_t rope;  /* index into the memory's rotations */
    cl_rows k, v;   /* where its rows lie in the group's storage */
} cl_layer;

/* Room for one worker; sizes in floats are multiples of 16 so that each part is aligned. */
typedef struct cl_scratch_layout {
    size_t query,
        turned; /* [CL_ROWS][largest k_size] rotated queries; the same, turned back by a shift */
    size_t accumulator;  /* [CL_ROWS][largest v_size] */
    size_t scores;       /* [CL_ROWS][CL_KEYS] */
    size_t keys, values; /* [CL_KEYS][largest size] rows converted to f32 */
    size_t floats;       /* of one worker */
} cl_scratch_layout;

/* False: does not fit. */
bool cl_scratch_measure(cl_scratch_layout *layout, uint32_t largest_k, uint32_t largest_v);

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
    const uint32_t *cells;       /* [tokens of the micro-batch] */
    uint32_t n_tokens;
    const cl_scratch_layout *layout;
    float *scratch; /* layout->floats for each worker */
    cellar_workers workers;
} cl_attention;

/*
 * k [n_tokens][n_kv_heads][k_size], v [n_tokens][n_kv_heads][v_size] into their cells, k rotated.
 */
void cl_attention_store(const cl_attention *attention, const float *k, const float *v);

/* q [n_tokens][n_heads][k_size] to out [n_tokens][n_heads][v_size]. */
void cl_attention_attend(const cl_attention *attention, const float *q, float *out);

#endif /* CL_ATTEND_H */
