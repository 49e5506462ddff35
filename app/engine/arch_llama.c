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
#include <stdio.h>

#include "report.h"

/* What the metadata says before the tensors are looked at. Per layer: [n_layers]. */
typedef struct llama_shape {
    uint32_t *heads, *kv_heads, *ff;
    uint32_t k_size, v_size;
    double epsilon;
    cellar_rope rope;
} llama_shape;

static cellar_status read_heads(const model *m, const llama_shape *shape, cellar_error *error)
{
    const char *key = "attention.head_count_kv";
    cellar_status status = model_read_per_layer(m, "attention.head_count", 1, MODEL_MAX_HEADS, NULL,
                                                shape->heads, error);
    if (status == CELLAR_OK) {
        status = model_read_per_layer(m, key, 1, MODEL_MAX_HEADS, shape->heads, shape->kv_heads,
                                      error);
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        if (shape->heads[i] % shape->kv_heads[i] != 0) {
            char expected[64];
            snprintf(expected, sizeof expected,
                     "a divisor of the %" PRIu32 " heads of layer %" PRIu32, shape->heads[i], i);
            return model_refuse_key(m, key, expected, shape->kv_heads[i], error);
        }
    }
    return status;
}

/* Size of a K or V head: its key, or the width of the model divided by its heads. */
static cellar_status read_head_size(const model *m, const char *key, const llama_shape *shape,
                                    uint32_t *out, cellar_error *error)
{
    uint32_t share = m->n_embd / shape->heads[0];
    if (!model_has_key(m, key) && (share == 0 || m->n_embd % shape->heads[0] != 0)) {
        return model_refuse_key(m, "attention.head_count", "a divisor of the embedding length",
                                shape->heads[0], error);
    }
    cellar_status status = model_read_u32_or(m, key, 2, MODEL_MAX_HEAD_SIZE, share, out, error);
    if (status == CELLAR_OK && *out % 2 != 0) {
        return model_has_key(m, key)
                   ? model_refuse_key(m, key, "an even number", *out, error)
                   : model_refuse_key(m, "attention.head_count", "heads of an even size",
                                      shape->heads[0], error);
    }
    return status;
}

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

static cellar_status read_shape(model *m, llama_shape *shape, cellar_error *error)
{
    shape->heads = model_allocate(m, 3 * (size_t)m->n_layers, sizeof *shape->heads, error);
    if (shape->heads == NULL) {
        return CELLAR_NO_MEMORY;
    }
    shape->kv_heads = shape->heads + m->n_layers;
    shape->ff = shape->kv_heads + m->n_layers;
    shape->rope = cellar_layer_init().rope;
    shape->rope.kind = CELLAR_ROPE_NORMAL;

    cellar_status status;
    if ((status = refuse_experts(m, error)) != CELLAR_OK ||
        (status = read_heads(m, shape, error)) != CELLAR_OK ||
        (status = model_read_per_layer(m, "feed_forward_length", 1, MODEL_MAX_FF, NULL, shape->ff,
                                       error)) != CELLAR_OK ||
        (status = read_head_size(m, "attention.key_length", shape, &shape->k_size, error)) !=
            CELLAR_OK ||
        (status = read_head_size(m, "attention.value_length", shape, &shape->v_size, error)) !=
            CELLAR_OK ||
        (status = model_read_positive(m, "attention.layer_norm_rms_epsilon", true, &shape->epsilon,
                                      error)) != CELLAR_OK) {
        return status;
    }
    return model_read_rope(m, shape->k_size, &shape->rope, error);
}

static cellar_status load_attention(model *m, const llama_shape *shape, uint32_t layer,
                                    cellar_error *error)
{
    model_layer *to = &m->layers[layer];
    model_heads heads = {.layer = layer,
                         .n_heads = shape->heads[layer],
                         .n_kv_heads = shape->kv_heads[layer],
                         .k_size = shape->k_size,
                         .v_size = shape->v_size};
    cellar_status status = model_load_norm(m, layer, "attn_norm", shape->epsilon,
                                           &to->attention_norm, error);
    if (status != CELLAR_OK) {
        return status;
    }
    m->memory_layers[layer].rope = shape->rope;
    return model_load_attention(m, &heads, &to->attention, error);
}

static cellar_status load(model *m, cellar_error *error)
{
    llama_shape shape;
    cellar_status status = read_shape(m, &shape, error);
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        model_layer *to = &m->layers[i];
        if ((status = load_attention(m, &shape, i, error)) != CELLAR_OK ||
            (status = model_load_norm(m, i, "ffn_norm", shape.epsilon, &to->ffn_norm, error)) !=
                CELLAR_OK) {
            break;
        }
        status = model_load_ffn(m, i, shape.ff[i], &to->ffn, error);
    }
    return status == CELLAR_OK ? model_load_output(m, shape.epsilon, error) : status;
}

static cellar_status run_layers(const model *m, const block_context *c, cellar_error *error)
{
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const model_layer *layer = &m->layers[i];
        if (block_is_stopped(c)) {
            return report(error, CELLAR_REFUSED, i, "stopped by the caller");
        }
        block_norm_run(&layer->attention_norm, c, c->x, c->h, c->n_tokens);
        cellar_status status = block_attention_run(&layer->attention, c, i, c->h, c->h, c->x,
                                                   error);
        if (status != CELLAR_OK) {
            return status;
        }
        block_norm_run(&layer->ffn_norm, c, c->x, c->h, c->n_tokens);
        block_ffn_run(&layer->ffn, c, c->h, c->h, c->x);
    }
    return CELLAR_OK;
}

const model_architecture model_architecture_llama = {
    .name = "llama", .load = load, .run_layers = run_layers};
