/*
 * model_arch.c: the usual parts of a layer, loaded by their usual names.
 *
 * Each function also widens m->widths to what it found, from which the engine sizes its buffers.
 * Products of two numbers from the file are bounded before they are used. Fails as model_read.h
 * says.
 */
#include "engine/model_arch.h"

#include <inttypes.h>
#include <stdio.h>

#include "report.h"

#define MAX_WIDTH MODEL_MAX_FF /* of all heads of a layer together */

static void widen(uint32_t *width, uint32_t to)
{
    if (*width < to) {
        *width = to;
    }
}

static cellar_status load_linear(model *m, uint32_t layer, const char *part, uint32_t n_in,
                                 uint32_t n_out, block_linear *out, cellar_error *error)
{
    char prefix[MODEL_KEY_SIZE];
    snprintf(prefix, sizeof prefix, "blk.%" PRIu32 ".%s", layer, part);
    return model_read_linear(m, prefix, n_in, n_out, out, error);
}

cellar_status model_load_norm(model *m, uint32_t layer, const char *part, double epsilon,
                              block_norm *out, cellar_error *error)
{
    char prefix[MODEL_KEY_SIZE];
    snprintf(prefix, sizeof prefix, "blk.%" PRIu32 ".%s", layer, part);
    return model_read_norm(m, prefix, m->n_embd, epsilon, out, error);
}

cellar_status model_load_attention(model *m, const model_heads *heads, block_attention *out,
                                   cellar_error *error)
{
    uint64_t q = (uint64_t)heads->n_heads * heads->k_size;
    uint64_t all = (uint64_t)heads->n_heads * heads->v_size;
    if (q > MAX_WIDTH || all > MAX_WIDTH) {
        return report(error, CELLAR_CORRUPT, -1,
                      "layer %" PRIu32
                      ": expected heads of at most %u elements together, found %" PRIu64,
                      heads->layer, MAX_WIDTH, q > all ? q : all);
    }
    uint32_t k = heads->n_kv_heads * heads->k_size, v = heads->n_kv_heads * heads->v_size;
    cellar_status status;
    if ((status = load_linear(m, heads->layer, "attn_q", m->n_embd, (uint32_t)q, &out->q, error)) ||
        (status = load_linear(m, heads->layer, "attn_k", m->n_embd, k, &out->k, error)) ||
        (status = load_linear(m, heads->layer, "attn_v", m->n_embd, v, &out->v, error)) ||
        (status = load_linear(m, heads->layer, "attn_output", (uint32_t)all, m->n_embd, &out->out,
                              error))) {
        return status;
    }
    cellar_layer *memory = &m->memory_layers[heads->layer];
    memory->n_heads = heads->n_heads;
    memory->n_kv_heads = heads->n_kv_heads;
    memory->k_size = heads->k_size;
    memory->v_size = heads->v_size;
    widen(&m->widths.q, (uint32_t)q);
    widen(&m->widths.k, k);
    widen(&m->widths.v, v);
    widen(&m->widths.heads, (uint32_t)all);
    return CELLAR_OK;
}

cellar_status model_load_ffn(model *m, uint32_t layer, uint32_t n_ff, block_ffn *out,
                             cellar_error *error)
{
    cellar_status status;
    if ((status = load_linear(m, layer, "ffn_gate", m->n_embd, n_ff, &out->gate, error)) ||
        (status = load_linear(m, layer, "ffn_up", m->n_embd, n_ff, &out->up, error))) {
        return status;
    }
    widen(&m->widths.ff, n_ff);
    return load_linear(m, layer, "ffn_down", n_ff, m->n_embd, &out->down, error);
}

cellar_status model_load_output(model *m, double epsilon, cellar_error *error)
{
    cellar_status status = model_read_norm(m, "output_norm", m->n_embd, epsilon, &m->output_norm,
                                           error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (!model_has_tensor(m, "output.weight")) {
        m->output = (block_linear){.weight = m->embedding};
        return CELLAR_OK;
    }
    return model_read_linear(m, "output", m->n_embd, m->n_vocab, &m->output, error);
}
