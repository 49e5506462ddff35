/*
 * arch_lfm2.c: the "lfm2" architecture (Liquid AI's LFM2): gated short convolutions in most layers,
 * attention in some, a feed-forward in all.
 *
 *     for each layer:   x += short_convolution(norm(x)) or attention(norm(x))
 *                       x += down(silu(gate h) * up h) with h = norm(x)
 *
 * with RMS norms, also of each head's queries and keys, and rotation of pairs half a head apart. A layer with
 * K/V heads attends. The norm before the output is called token_embd_norm in files.
 */
#include "engine/hybrid.h"

static cellar_status load_attention(model *m, uint32_t i, const model_shape *shape,
                                    const cellar_rope *rope, double epsilon, hybrid_layer *to,
                                    cellar_error *error)
{
    block_attention *its = &to->attention;
    cellar_status status;
    if ((status = hybrid_load_attention(m, i, shape, rope, to, error)) ||
        (status = model_load_norm_of(m, i, "attn_q_norm", BLOCK_NORM_RMS, shape->k_size, 1, epsilon,
                                     &its->q_norm, error))) {
        return status;
    }
    return model_load_norm_of(m, i, "attn_k_norm", BLOCK_NORM_RMS, shape->k_size, 1, epsilon,
                              &its->k_norm, error);
}

/* What the layers have in common. */
typedef struct lfm2_plan {
    model_shape shape;
    cellar_rope rope;
    double epsilon;
    uint32_t kernel;
} lfm2_plan;

static cellar_status load_layer(model *m, uint32_t i, const lfm2_plan *plan, cellar_error *error)
{
    hybrid_layer *to = (hybrid_layer *)m->layers + i;
    cellar_status status = model_load_norm(m, i, "attn_norm", BLOCK_NORM_RMS, plan->epsilon,
                                           &to->norm, error);
    if (status == CELLAR_OK) {
        status = plan->shape.kv_heads[i] > 0
                     ? load_attention(m, i, &plan->shape, &plan->rope, plan->epsilon, to, error)
                     : hybrid_load_short_convolution(m, i, plan->kernel, to, error);
    }
    if (status == CELLAR_OK) {
        status = model_load_norm(m, i, "ffn_norm", BLOCK_NORM_RMS, plan->epsilon, &to->ffn_norm,
                                 error);
    }
    return status == CELLAR_OK
               ? model_load_ffn(m, i, plan->shape.ff[i], true, BLOCK_SILU, &to->ffn, error)
               : status;
}

/* As model_load_output, but for the norm's name. */
static cellar_status load_output(model *m, double epsilon, cellar_error *error)
{
    cellar_status status = model_read_norm(m, "token_embd_norm", BLOCK_NORM_RMS, m->n_embd, 1,
                                           epsilon, &m->output_norm, error);
    m->output = (block_linear){.weight = m->embedding};
    if (status != CELLAR_OK || !model_has_tensor(m, "output.weight")) {
        return status;
    }
    return model_read_linear(m, "output", m->n_embd, m->n_vocab, &m->output, error);
}

static cellar_status load(model *m, cellar_error *error)
{
    lfm2_plan plan = {.rope = cellar_layer_init().rope};
    plan.rope.kind = CELLAR_ROPE_NEOX;
    cellar_status status;
    if ((status = model_read_shape(m, 0, &plan.shape, error)) ||
        (status = model_read_rope(m, plan.shape.k_size, &plan.rope, error)) ||
        (status = model_read_positive(m, "attention.layer_norm_rms_epsilon", true, &plan.epsilon,
                                      error)) ||
        (status = model_read_u32(m, "shortconv.l_cache", 2, 64, &plan.kernel, error)) ||
        (status = model_make_layers(m, sizeof(hybrid_layer), error))) {
        return status;
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = load_layer(m, i, &plan, error);
    }
    return status == CELLAR_OK ? load_output(m, plan.epsilon, error) : status;
}

const model_architecture model_architecture_lfm2 = {
    .name = "lfm2", .load = load, .run_layer = hybrid_run_layer};
