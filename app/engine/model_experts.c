/*
 * model_experts.c: the metadata and tensors of experts. See model_experts.h.
 *
 * A tensor with all experts of a layer has a third dimension, over which it is cut here into matrices that
 * blocks can take for ordinary ones. Fails as model_read.h says.
 */
#include "engine/model_experts.h"

#include <inttypes.h>
#include <stdio.h>

#include "report.h"

typedef enum gating {
    GATING_UNSAID = 0, /* the architecture's own */
    GATING_SOFTMAX = 1,
    GATING_SIGMOID = 2
} gating;

/* Groups of neighbours, of which a token's experts come from a few. */
static cellar_status read_groups(const model *m, model_experts *plan, cellar_error *error)
{
    static const char groups[] = "expert_group_count", used[] = "expert_group_used_count";
    cellar_status status = model_read_u32_or(m, groups, 0, plan->n, 0, &plan->n_groups, error);
    if (status != CELLAR_OK || plan->n_groups <= 1) {
        return status;
    }
    if (plan->n % plan->n_groups != 0) {
        return model_refuse_key(m, groups, "a divisor of expert_count", plan->n_groups, error);
    }
    status = model_read_u32(m, used, 1, plan->n_groups, &plan->n_groups_used, error);
    if (status == CELLAR_OK && plan->n_used > plan->n_groups_used * (plan->n / plan->n_groups)) {
        return model_refuse_key(m, used, "groups that hold expert_used_count experts",
                                plan->n_groups_used, error);
    }
    return status;
}

static cellar_status read_weights_norm(const model *m, bool *out, cellar_error *error)
{
    const gguf_value *value = model_find_value(m, "expert_weights_norm");
    if (value == NULL) {
        return CELLAR_OK;
    }
    if (value->type != GGUF_BOOL) {
        return report(error, CELLAR_CORRUPT, (int64_t)value->offset,
                      "%s.expert_weights_norm: expected a truth value, found %s",
                      m->architecture->name, gguf_type_name(value->type));
    }
    *out = gguf_integer_at(value, 0) != 0;
    return CELLAR_OK;
}

static cellar_status read_gating(const model *m, block_router *out, cellar_error *error)
{
    uint32_t found;
    cellar_status status = model_read_u32_or(m, "expert_gating_func", GATING_UNSAID, GATING_SIGMOID,
                                             GATING_UNSAID, &found, error);
    if (status == CELLAR_OK && found != GATING_UNSAID) {
        *out = found == GATING_SIGMOID ? BLOCK_ROUTER_SIGMOID : BLOCK_ROUTER_SOFTMAX;
    }
    return status;
}

/* The width of what all tokens read: its key, or as many experts of the usual width as the file says. */
static cellar_status read_shared(const model *m, model_experts *plan, cellar_error *error)
{
    uint32_t n_shared;
    cellar_status status = model_read_u32_or(m, "expert_shared_count", 0, MODEL_MAX_EXPERTS, 0,
                                             &n_shared, error);
    uint64_t width = (uint64_t)n_shared * plan->n_ff;
    if (status == CELLAR_OK && width > MODEL_MAX_FF) {
        return model_refuse_key(m, "expert_shared_count", "experts of a sensible width together",
                                n_shared, error);
    }
    return status == CELLAR_OK
               ? model_read_u32_or(m, "expert_shared_feed_forward_length", 0, MODEL_MAX_FF,
                                   (uint32_t)width, &plan->n_shared_ff, error)
               : status;
}

cellar_status model_read_experts(const model *m, model_experts *plan, cellar_error *error)
{
    plan->scale = 1;
    cellar_status status = model_read_u32_or(m, "expert_count", 0, MODEL_MAX_EXPERTS, 0, &plan->n,
                                             error);
    if (status != CELLAR_OK || plan->n == 0) {
        return status;
    }
    if ((status = model_read_u32(m, "expert_used_count", 1, plan->n, &plan->n_used, error)) ||
        (status = model_read_u32_or(m, "expert_feed_forward_length", 1, MODEL_MAX_FF, 0,
                                    &plan->n_ff, error)) ||
        (status = read_shared(m, plan, error)) ||
        (status = model_read_positive(m, "expert_weights_scale", false, &plan->scale, error)) ||
        (status = read_weights_norm(m, &plan->is_renormalised, error)) ||
        (status = read_gating(m, &plan->kind, error))) {
        return status;
    }
    return read_groups(m, plan, error);
}

/* ---- a layer ----------------------------------------------------------------------------------- */

bool model_layer_has_experts(const model *m, uint32_t layer)
{
    return model_has_part(m, layer, "ffn_gate_inp");
}

typedef struct part_name {
    char text[MODEL_KEY_SIZE];
} part_name;

static part_name name_of(uint32_t layer, const char *part, const char *end)
{
    part_name name;
    snprintf(name.text, sizeof name.text, "blk.%" PRIu32 ".%s%s.weight", layer, part, end);
    return name;
}

/* Where an expert keeps one of its matrices. */
static block_linear *matrix_of(block_ffn *expert, const char *part)
{
    return part[4] == 'g' ? &expert->gate : part[4] == 'u' ? &expert->up : &expert->down;
}

/* The matrices `part` of all experts, in one tensor or in one for each. */
static cellar_status load_matrices(model *m, uint32_t layer, const char *part, uint32_t n_in,
                                   uint32_t n_out, uint32_t n, block_ffn *experts,
                                   cellar_error *error)
{
    cellar_status status = CELLAR_OK;
    if (!model_has_tensor(m, name_of(layer, part, ".0").text)) {
        block_weight all;
        status = model_read_weights(m, name_of(layer, part, "_exps").text, n_in, n_out, n, &all,
                                    error);
        for (uint32_t i = 0; status == CELLAR_OK && i < n; i++) {
            block_linear *its = matrix_of(&experts[i], part);
            *its = (block_linear){.weight = all};
            its->weight.data = (const char *)all.data + (size_t)i * n_out * all.row_bytes;
        }
        return status;
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < n; i++) {
        char number[16];
        snprintf(number, sizeof number, ".%" PRIu32, i);
        block_linear *its = matrix_of(&experts[i], part);
        *its = (block_linear){.bias = NULL};
        status = model_read_weight(m, name_of(layer, part, number).text, n_in, n_out, &its->weight,
                                   error);
    }
    return status;
}

static cellar_status load_shared(model *m, uint32_t layer, const model_experts *plan,
                                 block_experts *out, cellar_error *error)
{
    uint32_t width = plan->n_shared_ff;
    out->shared.activation = plan->activation;
    cellar_status status;
    if ((status = model_load_linear(m, layer, "ffn_gate_shexp", m->n_embd, width, &out->shared.gate,
                                    error)) ||
        (status = model_load_linear(m, layer, "ffn_up_shexp", m->n_embd, width, &out->shared.up,
                                    error)) ||
        (status = model_load_linear(m, layer, "ffn_down_shexp", width, m->n_embd, &out->shared.down,
                                    error)) ||
        !plan->has_shared_gate) {
        return status;
    }
    return model_load_linear(m, layer, "ffn_gate_inp_shexp", m->n_embd, 1, &out->shared_gate,
                             error);
}

static cellar_status load_router(model *m, uint32_t layer, const model_experts *plan,
                                 block_experts *out, cellar_error *error)
{
    const char *bias = "exp_probs_b.bias";
    part_name name;
    snprintf(name.text, sizeof name.text, "blk.%" PRIu32 ".%s", layer, bias);
    cellar_status status = model_load_linear(m, layer, "ffn_gate_inp", m->n_embd, plan->n,
                                             &out->router, error);
    if (status != CELLAR_OK || !model_has_tensor(m, name.text)) {
        return status;
    }
    return model_load_vector(m, layer, bias, plan->n, &out->choice_bias, error);
}

cellar_status model_load_experts(model *m, uint32_t layer, const model_experts *plan, uint32_t n_ff,
                                 block_experts *out, cellar_error *error)
{
    uint32_t width = plan->n_ff == 0 ? n_ff : plan->n_ff;
    block_ffn *experts = model_allocate(m, plan->n, sizeof *experts, error);
    if (experts == NULL) {
        return CELLAR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        experts[i].activation = plan->activation;
    }
    *out = (block_experts){.n = plan->n,
                           .n_used = plan->n_used,
                           .n_groups = plan->n_groups,
                           .n_groups_used = plan->n_groups_used,
                           .kind = plan->kind,
                           .is_renormalised = plan->is_renormalised,
                           .scale = (float)plan->scale,
                           .experts = experts};
    cellar_status status;
    if ((status = load_router(m, layer, plan, out, error)) ||
        (status = load_matrices(m, layer, "ffn_gate", m->n_embd, width, plan->n, experts, error)) ||
        (status = load_matrices(m, layer, "ffn_up", m->n_embd, width, plan->n, experts, error)) ||
        (status = load_matrices(m, layer, "ffn_down", width, m->n_embd, plan->n, experts, error)) ||
        (plan->n_shared_ff > 0 && (status = load_shared(m, layer, plan, out, error)))) {
        return status;
    }
    return model_need_scratch(m, block_experts_scratch(out), error);
}
