/*
 * transformer.c: a layer in two halves.
 *
 * What a half gives is added to x where it is made (block_multiply) when nothing else has to happen
 * to it, and by a pass of its own otherwise.
 */
#include "engine/transformer.h"

static const float *normed(const block_norm *norm, const block_context *c)
{
    if (norm->width == 0) {
        return c->x;
    }
    block_norm_run(norm, c, c->x, c->h, c->n_tokens);
    return c->h;
}

static bool is_plain(const block_norm *after, float scale)
{
    return after->width == 0 && (scale == 1 || scale == 0);
}

/* x += scale * norm(added) */
static void add(const block_norm *after, float scale, const block_context *c)
{
    if (after->width > 0) {
        block_norm_run(after, c, c->added, c->added, c->n_tokens);
    }
    size_t n = (size_t)c->n_tokens * c->n_embd;
    float by = scale == 0 ? 1 : scale;
    for (size_t i = 0; i < n; i++) {
        c->x[i] += by * c->added[i];
    }
}

static void run_ffn(const transformer_layer *layer, const block_context *c, const float *from)
{
    bool plain = is_plain(&layer->ffn_after, layer->residual_scale);
    if (layer->experts.n > 0) {
        block_experts_run(&layer->experts, c, from, c->added, plain ? c->x : NULL);
    } else {
        block_ffn_run(&layer->ffn, c, from, c->added, plain ? c->x : NULL);
    }
    if (!plain) {
        add(&layer->ffn_after, layer->residual_scale, c);
    }
}

cellar_status transformer_run(const transformer_layer *layer, const block_context *c,
                              cellar_error *error)
{
    bool plain = is_plain(&layer->attention_after, layer->residual_scale);
    const float *from = normed(&layer->attention_norm, c);
    cellar_status status = block_attention_run(&layer->attention, c, from, c->added,
                                               plain ? c->x : NULL, error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (!plain) {
        add(&layer->attention_after, layer->residual_scale, c);
    }
    run_ffn(layer, c, layer->is_parallel ? from : normed(&layer->ffn_norm, c));
    return CELLAR_OK;
}

cellar_status transformer_run_layer(const model *m, uint32_t layer, const block_context *c,
                                    cellar_error *error)
{
    return transformer_run((const transformer_layer *)m->layers + layer, c, error);
}
