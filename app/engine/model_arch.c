/*
 * model_arch.c: the usual parts of a layer, loaded by their usual names.
 *
 * Products of two numbers from the file are bounded before they are used. Fails as model_read.h
 * says.
 */
#include "engine/model_arch.h"

#include <inttypes.h>
#include <stdio.h>

#include "report.h"

#define MAX_WIDTH MODEL_MAX_FF             /* of all heads of a layer together */
#define MAX_SCRATCH (16ull * MODEL_MAX_FF) /* numbers for one token */
#define MAX_FUSED 8u

typedef struct part_name {
    char text[MODEL_KEY_SIZE];
} part_name;

static part_name name_of(uint32_t layer, const char *part, const char *end)
{
    part_name name;
    snprintf(name.text, sizeof name.text, "blk.%" PRIu32 ".%s%s", layer, part, end);
    return name;
}

/* ---- room -------------------------------------------------------------------------------------- */

cellar_status model_make_layers(model *m, size_t size, cellar_error *error)
{
    m->layers = model_allocate(m, m->n_layers, size, error);
    return m->layers == NULL ? CELLAR_NO_MEMORY : CELLAR_OK;
}

cellar_status model_add_memory_layer(model *m, uint32_t *index, cellar_error *error)
{
    if (m->memory_layers == NULL) {
        m->memory_layers = model_allocate(m, 2 * MODEL_MAX_LAYERS, sizeof *m->memory_layers, error);
        if (m->memory_layers == NULL) {
            return CELLAR_NO_MEMORY;
        }
    }
    if (m->n_memory_layers == 2 * MODEL_MAX_LAYERS) {
        return report(error, CELLAR_CORRUPT, -1,
                      "expected at most %u layers that remember something, found more",
                      2 * MODEL_MAX_LAYERS);
    }
    m->memory_layers[m->n_memory_layers] = cellar_layer_init();
    *index = m->n_memory_layers++;
    return CELLAR_OK;
}

cellar_status model_need_scratch(model *m, uint64_t numbers, cellar_error *error)
{
    if (numbers > MAX_SCRATCH) {
        return report(error, CELLAR_CORRUPT, -1,
                      "expected layers that need at most %llu numbers for a token, found %" PRIu64,
                      MAX_SCRATCH, numbers);
    }
    m->scratch = m->scratch < numbers ? numbers : m->scratch;
    return CELLAR_OK;
}

/* ---- parts ------------------------------------------------------------------------------------- */

bool model_has_part(const model *m, uint32_t layer, const char *part)
{
    return model_has_tensor(m, name_of(layer, part, ".weight").text);
}

cellar_status model_load_norm_of(model *m, uint32_t layer, const char *part, block_norm_kind kind,
                                 uint32_t width, uint32_t n_groups, double epsilon, block_norm *out,
                                 cellar_error *error)
{
    return model_read_norm(m, name_of(layer, part, "").text, kind, width, n_groups, epsilon, out,
                           error);
}

cellar_status model_load_norm(model *m, uint32_t layer, const char *part, block_norm_kind kind,
                              double epsilon, block_norm *out, cellar_error *error)
{
    return model_load_norm_of(m, layer, part, kind, m->n_embd, 1, epsilon, out, error);
}

cellar_status model_load_linear(model *m, uint32_t layer, const char *part, uint32_t n_in,
                                uint32_t n_out, block_linear *out, cellar_error *error)
{
    return model_read_linear(m, name_of(layer, part, "").text, n_in, n_out, out, error);
}

cellar_status model_load_fused(model *m, uint32_t layer, const char *part, uint32_t n_in,
                               const uint32_t *rows, block_linear *const *out, uint32_t n,
                               cellar_error *error)
{
    uint64_t n_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_rows += rows[i];
    }
    if (n > MAX_FUSED || n_rows > UINT32_MAX) {
        return report(error, CELLAR_CORRUPT, -1,
                      "tensor %s: expected at most %" PRIu32 " rows, would need %" PRIu64,
                      name_of(layer, part, ".weight").text, UINT32_MAX, n_rows);
    }
    block_linear all;
    cellar_status status = model_load_linear(m, layer, part, n_in, (uint32_t)n_rows, &all, error);
    size_t first = 0;
    for (uint32_t i = 0; status == CELLAR_OK && i < n; i++) {
        *out[i] = all;
        out[i]->weight.data = (const char *)all.weight.data + first * all.weight.row_bytes;
        out[i]->weight.n_out = rows[i];
        out[i]->bias = all.bias == NULL ? NULL : all.bias + first;
        first += rows[i];
    }
    return status;
}

cellar_status model_load_vector(model *m, uint32_t layer, const char *part, uint32_t n,
                                const float **out, cellar_error *error)
{
    return model_read_vector(m, name_of(layer, part, "").text, n, out, error);
}

/* ---- blocks ------------------------------------------------------------------------------------ */

static cellar_status check_heads(uint32_t layer, const model_heads *heads, cellar_error *error)
{
    uint64_t k = (uint64_t)heads->n_heads * heads->k_size;
    uint64_t v = (uint64_t)heads->n_heads * heads->v_size;
    if (k > MAX_WIDTH || v > MAX_WIDTH) {
        return report(error, CELLAR_CORRUPT, -1,
                      "layer %" PRIu32
                      ": expected heads of at most %u elements together, found %" PRIu64,
                      layer, MAX_WIDTH, k > v ? k : v);
    }
    return CELLAR_OK;
}

/* q, k and v; a file may have them in one matrix. */
static cellar_status load_qkv(model *m, uint32_t layer, const model_heads *heads,
                              block_attention *out, cellar_error *error)
{
    const uint32_t rows[3] = {heads->n_heads * heads->k_size, heads->n_kv_heads * heads->k_size,
                              heads->n_kv_heads * heads->v_size};
    if (model_has_part(m, layer, "attn_qkv")) {
        block_linear *const parts[3] = {&out->q, &out->k, &out->v};
        return model_load_fused(m, layer, "attn_qkv", m->n_embd, rows, parts, 3, error);
    }
    cellar_status status = model_load_linear(m, layer, "attn_q", m->n_embd, rows[0], &out->q,
                                             error);
    if (status != CELLAR_OK || heads->is_reader) {
        return status;
    }
    status = model_load_linear(m, layer, "attn_k", m->n_embd, rows[1], &out->k, error);
    if (status != CELLAR_OK || (heads->may_lack_v && !model_has_part(m, layer, "attn_v"))) {
        return status;
    }
    return model_load_linear(m, layer, "attn_v", m->n_embd, rows[2], &out->v, error);
}

cellar_status model_load_attention(model *m, uint32_t layer, const model_heads *heads,
                                   block_attention *out, cellar_error *error)
{
    *out = (block_attention){.n_heads = heads->n_heads,
                             .n_kv_heads = heads->n_kv_heads,
                             .k_size = heads->k_size,
                             .v_size = heads->v_size};
    cellar_status status;
    if ((status = check_heads(layer, heads, error)) ||
        (status = load_qkv(m, layer, heads, out, error)) ||
        (status = model_load_linear(m, layer, "attn_output", heads->n_heads * heads->v_size,
                                    m->n_embd, &out->out, error)) ||
        (status = model_add_memory_layer(m, &out->memory_layer, error))) {
        return status;
    }
    cellar_layer *memory = &m->memory_layers[out->memory_layer];
    memory->n_heads = heads->n_heads;
    memory->n_kv_heads = heads->n_kv_heads;
    memory->k_size = heads->k_size;
    memory->v_size = heads->v_size;
    return model_need_scratch(m, block_attention_scratch(out), error);
}

static cellar_status load_gate_and_up(model *m, uint32_t layer, uint32_t n_ff, block_ffn *out,
                                      cellar_error *error)
{
    if (model_has_part(m, layer, "ffn_gate")) {
        cellar_status status = model_load_linear(m, layer, "ffn_gate", m->n_embd, n_ff, &out->gate,
                                                 error);
        if (status != CELLAR_OK) {
            return status;
        }
        return model_load_linear(m, layer, "ffn_up", m->n_embd, n_ff, &out->up, error);
    }
    const uint32_t rows[2] = {n_ff, n_ff};
    block_linear *const parts[2] = {&out->gate, &out->up};
    return model_load_fused(m, layer, "ffn_up", m->n_embd, rows, parts, 2, error);
}

cellar_status model_load_ffn(model *m, uint32_t layer, uint32_t n_ff, bool is_gated,
                             block_activation activation, block_ffn *out, cellar_error *error)
{
    *out = (block_ffn){.activation = activation};
    cellar_status status = is_gated ? load_gate_and_up(m, layer, n_ff, out, error)
                                    : model_load_linear(m, layer, "ffn_up", m->n_embd, n_ff,
                                                        &out->up, error);
    if (status != CELLAR_OK) {
        return status;
    }
    status = model_load_linear(m, layer, "ffn_down", n_ff, m->n_embd, &out->down, error);
    return status == CELLAR_OK ? model_need_scratch(m, block_ffn_scratch(out), error) : status;
}

cellar_status model_load_output(model *m, block_norm_kind kind, double epsilon, cellar_error *error)
{
    cellar_status status = model_read_norm(m, "output_norm", kind, m->n_embd, 1, epsilon,
                                           &m->output_norm, error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (!model_has_tensor(m, "output.weight")) {
        m->output = (block_linear){.weight = m->embedding};
        return CELLAR_OK;
    }
    return model_read_linear(m, "output", m->n_embd, m->n_vocab, &m->output, error);
}
