/*
 * hybrid.h: a layer that mixes tokens by attention, by a recurrent block, or by both side by side.
 *
 *     h = norm(x);   x += attention(h);   x += recurrent(h);   x += feed_forward(ffn_norm(x))
 *
 * Each of the three parts may be absent, and layers may differ: Mamba's have a recurrent block alone,
 * Jamba's and LFM2's one or the other before a feed-forward, Falcon-H1's all three. An architecture
 * reads its keys and loads the parts of each layer; running is the same for all.
 *
 * Loaders here refuse as model_read.h says, and tell the memory what they need of it.
 */
#ifndef APP_HYBRID_H
#define APP_HYBRID_H

#include "engine/block_recurrent.h"
#include "engine/model.h"
#include "engine/model_arch.h"
#include "engine/model_experts.h"

typedef enum hybrid_kind {
    HYBRID_NO_STATE = 0,
    HYBRID_SHORT_CONVOLUTION = 1,
    HYBRID_SELECTIVE_SCAN = 2,
    HYBRID_STATE_SPACE = 3,
} hybrid_kind;

typedef struct hybrid_layer {
    block_norm norm;
    bool has_attention;
    block_attention attention;
    hybrid_kind kind; /* which one of these there is */
    union {
        block_short_convolution short_convolution;
        block_selective_scan selective_scan;
        block_state_space state_space;
    } recurrent;
    block_norm ffn_norm; /* width 0: no feed-forward either */
    block_ffn ffn;
    block_experts experts; /* in the place of ffn, if there are any */
} hybrid_layer;

/* model_architecture.run_layer for models whose m->layers are hybrid_layers. */
cellar_status hybrid_run_layer(const model *m, uint32_t layer, const block_context *c,
                               cellar_error *error);

/* ---- loading ----------------------------------------------------------------------------------- */

/* Keys ssm.* of Mamba (n_heads and n_groups 0) and Mamba-2. */
typedef struct hybrid_sizes {
    uint32_t kernel, n_inner, n_state, rank; /* rank: of the time step; Mamba-2 has heads instead */
    uint32_t n_heads, n_groups;
} hybrid_sizes;

cellar_status hybrid_read_mamba(const model *m, hybrid_sizes *out, cellar_error *error);
cellar_status hybrid_read_mamba2(const model *m, hybrid_sizes *out, cellar_error *error);

/*
 * The recurrent block of a layer: ssm_* or shortconv.* tensors. Norms of the time step, B and C (all
 * or none; with epsilon) are taken where the file has them; is_normed: they are there without weights.
 */
cellar_status hybrid_load_selective_scan(model *m, uint32_t layer, const hybrid_sizes *sizes,
                                         bool is_normed, double epsilon, hybrid_layer *out,
                                         cellar_error *error);
/* The norm before the last matrix may be absent. */
cellar_status hybrid_load_state_space(model *m, uint32_t layer, const hybrid_sizes *sizes,
                                      double epsilon, hybrid_layer *out, cellar_error *error);
cellar_status hybrid_load_short_convolution(model *m, uint32_t layer, uint32_t kernel,
                                            hybrid_layer *out, cellar_error *error);

/* attn_*; the memory's layer gets this rope. */
cellar_status hybrid_load_attention(model *m, uint32_t layer, const model_shape *shape,
                                    const cellar_rope *rope, hybrid_layer *out,
                                    cellar_error *error);

/* A layer of the memory for a recurrent block, with state tensors of these sizes. */
cellar_status hybrid_add_memory_layer(model *m, uint32_t layer, const uint64_t *sizes, uint32_t n,
                                      uint32_t *index, cellar_error *error);

/* A vector "blk.<layer>.<part>" in rows of d0 numbers: in the file [d0][n_rows], perhaps grouped. */
cellar_status hybrid_load_rows(model *m, uint32_t layer, const char *part, uint32_t d0,
                               uint32_t n_rows, const float **out, cellar_error *error);

#endif /* APP_HYBRID_H */
