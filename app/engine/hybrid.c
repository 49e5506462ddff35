/*
 * hybrid.c: one layer after another, each in up to three parts.
 *
 * Every part adds what it gives to x itself. The caller may stop between layers.
 */
#include "engine/hybrid.h"

#include "report.h"

static cellar_status run_recurrent(const hybrid_layer *layer, const block_context *c,
                                   cellar_error *error)
{
    switch (layer->kind) {
    case HYBRID_NO_STATE:
        break;
    case HYBRID_SHORT_CONVOLUTION:
        return block_short_convolution_run(&layer->recurrent.short_convolution, c, c->h, c->added,
                                           c->x, error);
    case HYBRID_SELECTIVE_SCAN:
        return block_selective_scan_run(&layer->recurrent.selective_scan, c, c->h, c->added, c->x,
                                        error);
    case HYBRID_STATE_SPACE:
        return block_state_space_run(&layer->recurrent.state_space, c, c->h, c->added, c->x, error);
    }
    return CELLAR_OK;
}

static cellar_status run_layer(const hybrid_layer *layer, const block_context *c,
                               cellar_error *error)
{
    block_norm_run(&layer->norm, c, c->x, c->h, c->n_tokens);
    cellar_status status = CELLAR_OK;
    if (layer->has_attention) {
        status = block_attention_run(&layer->attention, c, c->h, c->added, c->x, error);
    }
    if (status == CELLAR_OK) {
        status = run_recurrent(layer, c, error);
    }
    if (status == CELLAR_OK && layer->ffn_norm.width > 0) {
        block_norm_run(&layer->ffn_norm, c, c->x, c->h, c->n_tokens);
        if (layer->experts.n > 0) {
            block_experts_run(&layer->experts, c, c->h, c->added, c->x);
        } else {
            block_ffn_run(&layer->ffn, c, c->h, c->added, c->x);
        }
    }
    return status;
}

cellar_status hybrid_run_layer(const model *m, uint32_t layer, const block_context *c,
                               cellar_error *error)
{
    return run_layer((const hybrid_layer *)m->layers + layer, c, error);
}
