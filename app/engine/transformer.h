/*
 * transformer.h: the layer that most architectures are a variant of: attention, then feed-forward,
 * each added to the residual stream.
 *
 *     x += scale * norm2(attention(norm1(x)))
 *     x += scale * norm4(feed_forward(norm3(x)))
 *     x *= output_scale
 *
 * Every norm may be absent; the feed-forward may be a mixture of experts; or both halves read
 * norm1(x) (is_parallel, as in Cohere's models). An architecture fills in the parts and gives
 * transformer_run_layers, or calls transformer_run_layer itself where more happens between layers.
 */
#ifndef APP_TRANSFORMER_H
#define APP_TRANSFORMER_H

#include "engine/model.h"

typedef struct transformer_layer {
    block_norm attention_norm; /* 1; of width 0: none, as for all norms here */
    block_attention attention;
    block_norm attention_after; /* 2 */
    block_norm ffn_norm;        /* 3 */
    block_ffn ffn;
    block_norm ffn_after; /* 4 */
    bool is_parallel;     /* the feed-forward reads what attention reads; norm 3 is not used */
    float residual_scale; /* of what is added; 1 or 0: as it is */
    float output_scale;   /* of the whole; 1 or 0: as it is */
} transformer_layer;

/* Take c->x through one layer. Statuses: block_attention_run's. */
cellar_status transformer_run_layer(const transformer_layer *layer, const block_context *c,
                                    cellar_error *error);

/* model_architecture.run_layers for models whose m->layers are transformer_layers. */
cellar_status transformer_run_layers(const model *m, const block_context *c, cellar_error *error);

#endif /* APP_TRANSFORMER_H */
