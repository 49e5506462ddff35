/*
 * hybrid_load.c: load recurrent blocks by their usual names, and tell the memory of them.
 *
 * Sizes come from ssm.* keys; every product of two is bounded before it is used. A matrix that the file
 * keeps in one piece (ssm_in, ssm_x, shortconv.in_proj) is cut into the parts that a block
 * knows. Fails as model_read.h says.
 */
#include <inttypes.h>
#include <stdio.h>

#include "engine/hybrid.h"
#include "report.h"

#define MAX_KERNEL 64u
#define MAX_STATE 65536u      /* numbers of a state for one channel */
#define MAX_HEADS 32768u      /* of Mamba-2 */
#define MAX_TENSOR (1u << 28) /* numbers in a tensor of a state: cellar_layer.state_sizes */

typedef struct tensor_name {
    char text[MODEL_KEY_SIZE];
} tensor_name;

static tensor_name name_of(uint32_t layer, const char *part)
{
    tensor_name name;
    snprintf(name.text, sizeof name.text, "blk.%" PRIu32 ".%s", layer, part);
    return name;
}

/* ---- keys -------------------------------------------------------------------------------------- */

static cellar_status read_sizes(const model *m, hybrid_sizes *out, cellar_error *error)
{
    cellar_status status;
    if ((status = model_read_u32(m, "ssm.conv_kernel", 2, MAX_KERNEL, &out->kernel, error)) ||
        (status = model_read_u32(m, "ssm.inner_size", 1, MODEL_MAX_FF, &out->n_inner, error)) ||
        (status = model_read_u32(m, "ssm.state_size", 1, MAX_STATE, &out->n_state, error))) {
        return status;
    }
    return CELLAR_OK;
}

cellar_status hybrid_read_mamba(const model *m, hybrid_sizes *out, cellar_error *error)
{
    *out = (hybrid_sizes){.n_heads = 0};
    cellar_status status = read_sizes(m, out, error);
    return status == CELLAR_OK
               ? model_read_u32(m, "ssm.time_step_rank", 1, MODEL_MAX_FF, &out->rank, error)
               : status;
}

cellar_status hybrid_read_mamba2(const model *m, hybrid_sizes *out, cellar_error *error)
{
    *out = (hybrid_sizes){.rank = 0};
    cellar_status status;
    if ((status = read_sizes(m, out, error)) ||
        (status = model_read_u32(m, "ssm.time_step_rank", 1, MAX_HEADS, &out->n_heads, error)) ||
        (status = model_read_u32_or(m, "ssm.group_count", 1, MAX_HEADS, 1, &out->n_groups,
                                    error))) {
        return status;
    }
    if (out->n_inner % out->n_heads != 0) {
        return model_refuse_key(m, "ssm.time_step_rank", "a divisor of the inner size",
                                out->n_heads, error);
    }
    if (out->n_heads % out->n_groups != 0) {
        return model_refuse_key(m, "ssm.group_count", "a divisor of the heads (time_step_rank)",
                                out->n_groups, error);
    }
    return CELLAR_OK;
}

/* ---- parts ------------------------------------------------------------------------------------- */

cellar_status hybrid_load_rows(model *m, uint32_t layer, const char *part, uint32_t d0,
                               uint32_t n_rows, const float **out, cellar_error *error)
{
    const uint64_t n = (uint64_t)d0 * n_rows;
    const tensor_name name = name_of(layer, part);
    const gguf_tensor *tensor = gguf_find_tensor(m->file, name.text);
    if (n > MAX_TENSOR) {
        return report(error, CELLAR_CORRUPT, -1,
                      "tensor %s: expected at most %u numbers, would need %" PRIu64, name.text,
                      MAX_TENSOR, n);
    }
    if (tensor != NULL && tensor->dims[0] != d0) {
        return report(error, CELLAR_CORRUPT, (int64_t)tensor->offset,
                      "tensor %s: expected rows of %" PRIu32 " numbers, found %" PRIu64, name.text,
                      d0, tensor->dims[0]);
    }
    return model_load_vector(m, layer, part, (uint32_t)n, out, error);
}

cellar_status hybrid_add_memory_layer(model *m, uint32_t layer, const uint64_t *sizes, uint32_t n,
                                      uint32_t *index, cellar_error *error)
{
    uint32_t *kept = model_allocate(m, n, sizeof *kept, error);
    if (kept == NULL) {
        return CELLAR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (sizes[i] > MAX_TENSOR) {
            return report(error, CELLAR_CORRUPT, layer,
                          "layer %" PRIu32 ": expected a state of at most %u numbers, found "
                          "%" PRIu64,
                          layer, MAX_TENSOR, sizes[i]);
        }
        kept[i] = (uint32_t)sizes[i];
    }
    cellar_status status = model_add_memory_layer(m, index, error);
    if (status == CELLAR_OK) {
        m->memory_layers[*index].kind = CELLAR_LAYER_RECURRENT;
        m->memory_layers[*index].n_states = n;
        m->memory_layers[*index].state_sizes = kept;
    }
    return status;
}

static cellar_status load_convolution(model *m, uint32_t layer, const char *part,
                                      uint32_t n_channels, uint32_t kernel, block_convolution *out,
                                      cellar_error *error)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", part);
    snprintf(bias, sizeof bias, "%s.bias", part);
    *out = (block_convolution){.n_channels = n_channels, .width = kernel};
    cellar_status status = hybrid_load_rows(m, layer, weight, kernel, n_channels, &out->weight,
                                            error);
    if (status != CELLAR_OK || !model_has_tensor(m, name_of(layer, bias).text)) {
        return status;
    }
    return model_load_vector(m, layer, bias, n_channels, &out->bias, error);
}

/* ---- Mamba ------------------------------------------------------------------------------------- */

static cellar_status load_parameter_norm(model *m, uint32_t layer, const char *part, uint32_t width,
                                         bool is_normed, double epsilon, block_norm *out,
                                         cellar_error *error)
{
    if (model_has_part(m, layer, part)) {
        return model_load_norm_of(m, layer, part, BLOCK_NORM_RMS, width, 1, epsilon, out, error);
    }
    if (is_normed) {
        *out = (block_norm){
            .kind = BLOCK_NORM_RMS, .width = width, .n_groups = 1, .epsilon = (float)epsilon};
    }
    return CELLAR_OK;
}

/* What is made of u: time step, B, C. */
static cellar_status load_parameters(model *m, uint32_t layer, const hybrid_sizes *sizes,
                                     bool is_normed, double epsilon, block_selective_scan *to,
                                     cellar_error *error)
{
    const uint32_t n = sizes->n_state, rows[3] = {sizes->rank, n, n};
    block_linear *const parts[3] = {&to->r, &to->b, &to->c};
    cellar_status status;
    if ((status = model_load_fused(m, layer, "ssm_x", sizes->n_inner, rows, parts, 3, error)) ||
        (status = model_load_linear(m, layer, "ssm_dt", sizes->rank, sizes->n_inner, &to->dt,
                                    error)) ||
        (status = load_parameter_norm(m, layer, "ssm_dt_norm", sizes->rank, is_normed, epsilon,
                                      &to->r_norm, error)) ||
        (status = load_parameter_norm(m, layer, "ssm_b_norm", n, is_normed, epsilon, &to->b_norm,
                                      error)) ||
        (status = load_parameter_norm(m, layer, "ssm_c_norm", n, is_normed, epsilon, &to->c_norm,
                                      error)) ||
        (status = hybrid_load_rows(m, layer, "ssm_a", n, sizes->n_inner, &to->a, error))) {
        return status;
    }
    return model_load_vector(m, layer, "ssm_d", sizes->n_inner, &to->skip, error);
}

cellar_status hybrid_load_selective_scan(model *m, uint32_t layer, const hybrid_sizes *sizes,
                                         bool is_normed, double epsilon, hybrid_layer *out,
                                         cellar_error *error)
{
    block_selective_scan *to = &out->recurrent.selective_scan;
    *to = (block_selective_scan){.n_inner = sizes->n_inner, .n_state = sizes->n_state};
    const uint32_t rows[2] = {sizes->n_inner, sizes->n_inner};
    block_linear *const parts[2] = {&to->u, &to->z};
    const uint64_t states[2] = {block_convolution_state(sizes->n_inner, sizes->kernel),
                                (uint64_t)sizes->n_inner * sizes->n_state};
    out->kind = HYBRID_SELECTIVE_SCAN;
    cellar_status status;
    if ((status = model_load_fused(m, layer, "ssm_in", m->n_embd, rows, parts, 2, error)) ||
        (status = load_convolution(m, layer, "ssm_conv1d", sizes->n_inner, sizes->kernel,
                                   &to->convolution, error)) ||
        (status = load_parameters(m, layer, sizes, is_normed, epsilon, to, error)) ||
        (status = model_load_linear(m, layer, "ssm_out", sizes->n_inner, m->n_embd, &to->out,
                                    error)) ||
        (status = hybrid_add_memory_layer(m, layer, states, 2, &to->memory_layer, error))) {
        return status;
    }
    to->convolution.memory_layer = to->memory_layer;
    to->convolution.has_silu = true;
    return model_need_scratch(m, block_selective_scan_scratch(to), error);
}

/* ---- Mamba-2 ----------------------------------------------------------------------------------- */

static cellar_status load_heads(model *m, uint32_t layer, const hybrid_sizes *sizes, double epsilon,
                                block_state_space *to, cellar_error *error)
{
    const uint32_t n = sizes->n_heads;
    cellar_status status;
    if ((status = model_load_vector(m, layer, "ssm_dt.bias", n, &to->dt_bias, error)) ||
        (status = model_load_vector(m, layer, "ssm_a", n, &to->a, error)) ||
        (status = model_load_vector(m, layer, "ssm_d", n, &to->skip, error)) ||
        !model_has_part(m, layer, "ssm_norm")) {
        return status;
    }
    return model_load_norm_of(m, layer, "ssm_norm", BLOCK_NORM_RMS,
                              sizes->n_inner / sizes->n_groups, sizes->n_groups, epsilon, &to->norm,
                              error);
}

cellar_status hybrid_load_state_space(model *m, uint32_t layer, const hybrid_sizes *sizes,
                                      double epsilon, hybrid_layer *out, cellar_error *error)
{
    block_state_space *to = &out->recurrent.state_space;
    *to = (block_state_space){.n_inner = sizes->n_inner,
                              .n_state = sizes->n_state,
                              .n_heads = sizes->n_heads,
                              .n_groups = sizes->n_groups};
    const uint64_t n_channels = sizes->n_inner + 2ull * sizes->n_groups * sizes->n_state;
    if (n_channels > MODEL_MAX_FF) {
        return report(error, CELLAR_CORRUPT, layer,
                      "layer %" PRIu32 ": expected at most %u channels, found %" PRIu64, layer,
                      MODEL_MAX_FF, n_channels);
    }
    const uint32_t rows[3] = {sizes->n_inner, (uint32_t)n_channels, sizes->n_heads};
    block_linear *const parts[3] = {&to->z, &to->ubc, &to->dt};
    const uint64_t states[2] = {block_convolution_state(rows[1], sizes->kernel),
                                (uint64_t)sizes->n_inner * sizes->n_state};
    out->kind = HYBRID_STATE_SPACE;
    cellar_status status;
    if ((status = model_load_fused(m, layer, "ssm_in", m->n_embd, rows, parts, 3, error)) ||
        (status = load_convolution(m, layer, "ssm_conv1d", rows[1], sizes->kernel, &to->convolution,
                                   error)) ||
        (status = load_heads(m, layer, sizes, epsilon, to, error)) ||
        (status = model_load_linear(m, layer, "ssm_out", sizes->n_inner, m->n_embd, &to->out,
                                    error)) ||
        (status = hybrid_add_memory_layer(m, layer, states, 2, &to->memory_layer, error))) {
        return status;
    }
    to->convolution.memory_layer = to->memory_layer;
    to->convolution.has_silu = true;
    return model_need_scratch(m, block_state_space_scratch(to), error);
}

/* ---- LFM2, attention --------------------------------------------------------------------------- */

cellar_status hybrid_load_short_convolution(model *m, uint32_t layer, uint32_t kernel,
                                            hybrid_layer *out, cellar_error *error)
{
    block_short_convolution *to = &out->recurrent.short_convolution;
    *to = (block_short_convolution){.memory_layer = 0};
    const uint32_t n = m->n_embd, rows[3] = {n, n, n};
    block_linear *const parts[3] = {&to->b, &to->c, &to->x};
    const uint64_t state = block_convolution_state(n, kernel);
    out->kind = HYBRID_SHORT_CONVOLUTION;
    cellar_status status;
    if ((status = model_load_fused(m, layer, "shortconv.in_proj", n, rows, parts, 3, error)) ||
        (status = load_convolution(m, layer, "shortconv.conv", n, kernel, &to->convolution,
                                   error)) ||
        (status = model_load_linear(m, layer, "shortconv.out_proj", n, n, &to->out, error)) ||
        (status = hybrid_add_memory_layer(m, layer, &state, 1, &to->memory_layer, error))) {
        return status;
    }
    to->convolution.memory_layer = to->memory_layer;
    return model_need_scratch(m, block_short_convolution_scratch(to), error);
}

cellar_status hybrid_load_attention(model *m, uint32_t layer, const model_shape *shape,
                                    const cellar_rope *rope, hybrid_layer *out, cellar_error *error)
{
    const model_heads heads = model_heads_of(shape, layer);
    cellar_status status = model_load_attention(m, layer, &heads, &out->attention, error);
    if (status == CELLAR_OK) {
        out->has_attention = true;
        m->memory_layers[out->attention.memory_layer].rope = *rope;
    }
    return status;
}
