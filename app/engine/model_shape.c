/*
 * model_shape.c: heads and widths, layer by layer, from the metadata.
 *
 * Keys: attention.head_count, attention.head_count_kv (absent: as many), feed_forward_length, each
 * one number or one for each layer; attention.key_length and value_length (absent: the width of the
 * model divided by its heads). Fails as model_read.h says.
 */
#include "engine/model_arch.h"

#include <inttypes.h>
#include <stdio.h>

static cellar_status read_heads(const model *m, uint32_t min_kv_heads, model_shape *shape,
                                cellar_error *error)
{
    const char *key = "attention.head_count_kv";
    cellar_status status = model_read_per_layer(m, "attention.head_count", 1, MODEL_MAX_HEADS, NULL,
                                                shape->heads, error);
    if (status == CELLAR_OK) {
        status = model_read_per_layer(m, key, min_kv_heads, MODEL_MAX_HEADS, shape->heads,
                                      shape->kv_heads, error);
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        if (shape->kv_heads[i] != 0 && shape->heads[i] % shape->kv_heads[i] != 0) {
            char expected[64];
            snprintf(expected, sizeof expected,
                     "a divisor of the %" PRIu32 " heads of layer %" PRIu32, shape->heads[i], i);
            return model_refuse_key(m, key, expected, shape->kv_heads[i], error);
        }
    }
    return status;
}

/* Size of a K or V head: its key, or the width of the model divided by its heads. */
static cellar_status read_head_size(const model *m, const char *key, const model_shape *shape,
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

cellar_status model_read_shape(model *m, uint32_t min_kv_heads, model_shape *out,
                               cellar_error *error)
{
    out->heads = model_allocate(m, 3 * (size_t)m->n_layers, sizeof *out->heads, error);
    if (out->heads == NULL) {
        return CELLAR_NO_MEMORY;
    }
    out->kv_heads = out->heads + m->n_layers;
    out->ff = out->kv_heads + m->n_layers;
    cellar_status status;
    if ((status = read_heads(m, min_kv_heads, out, error)) ||
        (status = model_read_per_layer(m, "feed_forward_length", 1, MODEL_MAX_FF, NULL, out->ff,
                                       error)) ||
        (status = read_head_size(m, "attention.key_length", out, &out->k_size, error))) {
        return status;
    }
    return read_head_size(m, "attention.value_length", out, &out->v_size, error);
}

model_heads model_heads_of(const model_shape *shape, uint32_t layer)
{
    return (model_heads){.n_heads = shape->heads[layer],
                         .n_kv_heads = shape->kv_heads[layer],
                         .k_size = shape->k_size,
                         .v_size = shape->v_size};
}
