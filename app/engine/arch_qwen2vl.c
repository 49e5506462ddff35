/*
 * arch_qwen2vl.c: the "qwen2vl" architecture, its language model (Wang et al., arXiv:2409.12191).
 *
 *     for each layer:   x += attention(norm(x));   x += down(silu(gate h) * up h) with h = norm(x)
 *
 * as in llama, with biases for queries, keys and values, and with rotation by three coordinates
 * (section 2.1): rope.dimension_sections says how many pairs turn by the position, by the row and by the
 * column in a picture, and its fourth number how many do not turn. The two coordinates are the
 * batch's points; a text has none, and its pairs all turn by the position. The encoder of
 * pictures is another model, and not part of such a file.
 */
#include "engine/model_arch.h"

#include <inttypes.h>

#include "engine/transformer.h"
#include "report.h"

typedef struct qwen2vl_shape {
    model_shape heads;
    double epsilon;
    cellar_rope rope;
} qwen2vl_shape;

/* Element type of rope.dimension_sections: either of the two that files use. */
static gguf_type section_type(const model *m, const char *key)
{
    const gguf_value *value = gguf_find_value(m->file, key);
    return value != NULL && value->element_type == GGUF_UINT32 ? GGUF_UINT32 : GGUF_INT32;
}

static cellar_status read_sections(const model *m, cellar_rope *out, cellar_error *error)
{
    static const char key[] = "qwen2vl.rope.dimension_sections";
    const gguf_value *value = NULL;
    cellar_status status = gguf_get_array(m->file, key, section_type(m, key), 4, &value, error);
    if (status == CELLAR_NOT_FOUND) {
        return report(error, CELLAR_CORRUPT, -1, "%s: expected this key, found none", key);
    }
    int64_t sum = 0;
    for (uint32_t i = 0; status == CELLAR_OK && i < 4; i++) {
        int64_t found = gguf_integer_at(value, i);
        if (found < 0 || found > out->n_rot / 2) {
            return report(error, CELLAR_CORRUPT, (int64_t)value->offset,
                          "%s: expected numbers in 0 to %" PRIu32 ", found %" PRId64, key,
                          out->n_rot / 2, found);
        }
        out->sections[i] = (uint32_t)found;
        sum += found;
    }
    if (status == CELLAR_OK && sum != out->n_rot / 2) {
        return report(error, CELLAR_CORRUPT, (int64_t)value->offset,
                      "%s: expected a sum of %" PRIu32 ", the pairs that rotate, found %" PRId64,
                      key, out->n_rot / 2, sum);
    }
    return status;
}

static cellar_status read_shape(model *m, qwen2vl_shape *shape, cellar_error *error)
{
    shape->rope = cellar_layer_init().rope;
    shape->rope.kind = CELLAR_ROPE_MROPE;
    cellar_status status;
    if ((status = model_read_shape(m, 1, &shape->heads, error)) ||
        (status = model_read_positive(m, "attention.layer_norm_rms_epsilon", true, &shape->epsilon,
                                      error)) ||
        (status = model_read_rope(m, shape->heads.k_size, &shape->rope, error))) {
        return status;
    }
    return read_sections(m, &shape->rope, error);
}

static cellar_status load_layer(model *m, const qwen2vl_shape *shape, uint32_t i,
                                cellar_error *error)
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
    qwen2vl_shape shape;
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

const model_architecture model_architecture_qwen2vl = {
    .name = "qwen2vl", .load = load, .run_layer = transformer_run_layer};
