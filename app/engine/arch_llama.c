/*
 * arch_llama.c: the "llama" architecture (Touvron et al., arXiv:2302.13971).
 *
 *     x = embedding of the token
 *     for each layer:   x += attention(norm(x));   x += down(silu(gate h) * up h) with h = norm(x)
 *     logits = output * norm(x)
 *
 * with RMS norms, grouped K/V heads, rotation of adjacent pairs, and optional biases. Head counts
 * and the feed-forward width may differ from layer to layer; K and V heads may have sizes of their
 * own. Mixtures of experts under this name are refused, not run wrongly.
 */
#include "engine/model_arch.h"

#include <inttypes.h>

#include "engine/transformer.h"
#include "report.h"

static cellar_status refuse_experts(const model *m, cellar_error *error)
{
    uint32_t n_experts;
    cellar_status status = model_read_u32_or(m, "expert_count", 0, UINT32_MAX, 0, &n_experts,
                                             error);
    if (status == CELLAR_OK && n_experts != 0) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "llama.expert_count: expected 0 (mixtures of experts are not supported), "
                      "found %" PRIu32,
                      n_experts);
    }
    return status;
}

/* What the metadata says before the tensors are looked at. */
typedef struct llama_shape {
    model_shape heads;
    double epsilon;
    cellar_rope rope;
} llama_shape;

static cellar_status read_shape(model *m, llama_shape *shape, cellar_error *error)
{
    shape->rope = cellar_layer_init().rope;
    shape->rope.kind = CELLAR_ROPE_NORMAL;
    cellar_status status;
    if ((status = refuse_experts(m, error)) ||
        (status = model_read_shape(m, 1, &shape->heads, error)) ||
        (status = model_read_positive(m, "attention.layer_norm_rms_epsilon", true, &shape->epsilon,
                                      error))) {
        return status;
    }
    return model_read_rope(m, shape->heads.k_size, &shape->rope, error);
}

static cellar_status load_layer(model *m, const llama_shape *shape, uint32_t i, cellar_error *error)
{
    transformer_layer *to = (transformer_layer *)m->layers + i;
    const model_heads heads = model_heads_of(&shape->heads, i);
    cellar_status status;
    if ((status = model_load_norm(m, i, "attn_norm", BLOCK_NORM_RMS, shape->epsilon,
                                  &to->attention_norm, error)) ||
        (status = model_load_attention(m, i, &heads, &to->attention, error)) ||
        (status = model_load_norm(m, i, "ffn_norm", BLOCK_NORM_RMS, shape->epsilon, &to->ffn_norm,
                                  error))) {
        return status;
    }
    m->memory_layers[to->attention.memory_layer].rope = shape->rope;
    return model_load_ffn(m, i, shape->heads.ff[i], true, BLOCK_SILU, &to->ffn, error);
}

static cellar_status load(model *m, cellar_error *error)
{
    llama_shape shape;
    cellar_status status = read_shape(m, &shape, error);
    if (status == CELLAR_OK) {
        status = model_make_layers(m, sizeof(transformer_layer), error);
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = load_layer(m, &shape, i, error);
    }
    return status == CELLAR_OK ? model_load_output(m, BLOCK_NORM_RMS, shape.epsilon, error)
                               : status;
}

const model_architecture model_architecture_llama = {
    .name = "llama", .load = load, .run_layers = transformer_run_layers};
