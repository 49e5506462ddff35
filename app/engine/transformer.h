/*
 * transformer.h: the layer that most architectures are a variant of: attention, then feed-forward,
 * each added to the residual stream.
 *
 *     x += scale * norm2(attention(norm1(x)))
 *     x += scale * norm4(feed_forward(norm3(x)))
 *
 * Every norm may be absent; the feed-forward may be a mixture of experts; or both halves read
 * norm1(x) (is_parallel, as in Cohere's models). An architecture fills in the parts and gives
 * transformer_run_layer, or calls transformer_run from its own where more happens to x.
 *
 * Loading is the same for most, too: an architecture writes down in a transformer_plan what its
 * layers have in common, reads the keys that are its own, and has transformer_load do the rest.
 */
#ifndef APP_TRANSFORMER_H
#define APP_TRANSFORMER_H

#include "engine/model.h"
#include "engine/model_arch.h"
#include "engine/model_experts.h"

typedef struct transformer_layer {
    block_norm attention_norm; /* 1; of width 0: none, as for all norms here */
    block_attention attention;
    block_norm attention_after; /* 2 */
    block_norm ffn_norm;        /* 3 */
    block_ffn ffn;
    block_experts experts; /* in the place of ffn, if there are any */
    block_norm ffn_after;  /* 4 */
    bool is_parallel;      /* the feed-forward reads what attention reads; norm 3 is not used */
    float residual_scale;  /* of what is added; 1 or 0: as it is */
} transformer_layer;

/* Take c->x through one layer. Statuses: block_attention_run's. */
cellar_status transformer_run(const transformer_layer *layer, const block_context *c,
                              cellar_error *error);

/* model_architecture.run_layer for models whose m->layers are transformer_layers. */
cellar_status transformer_run_layer(const model *m, uint32_t layer, const block_context *c,
                                    cellar_error *error);

/* ---- loading ----------------------------------------------------------------------------------- */

/* What all layers of an architecture have in common. Zeroed fields mean: not so. */
typedef struct transformer_plan {
    /* Of the architecture. */
    block_norm_kind norm;       /* of the residual stream */
    cellar_rope_kind rope_kind; /* NONE: no rope.* key is read */
    block_activation activation;
    bool is_gated;        /* the feed-forward has a gate */
    bool is_parallel;     /* as in transformer_layer; the file has no ffn_norm */
    bool has_head_norms;  /* attn_q_norm and attn_k_norm: RMS, of each head by itself */
    bool has_norms_after; /* post_attention_norm and post_ffw_norm */
    bool has_sinks;       /* attn_sinks, in those layers that have it in the file */

    /* Of the file: transformer_read. */
    model_shape shape;
    double epsilon;
    cellar_rope rope;

    /* Whatever the architecture reads between transformer_read and transformer_load. */
    model_windows windows;
    bool has_window_rope; /* layers with a window rotate by window_rope */
    cellar_rope window_rope;
    bool is_reader, may_lack_v;   /* as in model_heads */
    double attention_scale;       /* of <q, k>; 0: 1/sqrt(k_size) */
    double softcap, clamp, alibi; /* cellar_layer.softcap, block_attention.clamp, alibi_max_bias */
    double residual_scale;
    model_experts experts; /* of layers that have a router */
} transformer_plan;

/* Read what the plan has of the file: heads, widths, epsilon of the norms, rotations. */
cellar_status transformer_read(model *m, transformer_plan *plan, cellar_error *error);

/*
 * Load one layer's parts as the plan says; its layer of the memory is described too. m->layers are
 * transformer_layers.
 */
cellar_status transformer_load_layer(model *m, const transformer_plan *plan, uint32_t i,
                                     cellar_error *error);

/* Make and load all layers, then the output. */
cellar_status transformer_load(model *m, const transformer_plan *plan, cellar_error *error);

#endif /* APP_TRANSFORMER_H */
