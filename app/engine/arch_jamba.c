/*
 * arch_jamba.c: the "jamba" architecture (Lieber et al., arXiv:2403.19887): Mamba's block in most layers,
 * attention in some, a feed-forward in all.
 *
 *     for each layer:   x += selective_scan(norm(x)) or attention(norm(x))
 *                       x += down(silu(gate h) * up h) with h = norm(x)
 *
 * with RMS norms. A layer with K/V heads attends, without rotations: order comes from the states.
 * Time step, B and C of the scans are normed. Layers with experts are refused by their tensors.
 */
#include "engine/hybrid.h"

static cellar_status load_layer(model *m, uint32_t i, const hybrid_sizes *sizes,
                                const model_shape *shape, double epsilon, cellar_error *error)
{
    hybrid_layer *to = (hybrid_layer *)m->layers + i;
    const cellar_rope none = cellar_layer_init().rope;
    cellar_status status = model_load_norm(m, i, "attn_norm", BLOCK_NORM_RMS, epsilon, &to->norm,
                                           error);
    if (status == CELLAR_OK) {
        status = shape->kv_heads[i] > 0
                     ? hybrid_load_attention(m, i, shape, &none, to, error)
                     : hybrid_load_selective_scan(m, i, sizes, false, epsilon, to, error);
    }
    if (status == CELLAR_OK) {
        status = model_load_norm(m, i, "ffn_norm", BLOCK_NORM_RMS, epsilon, &to->ffn_norm, error);
    }
    return status == CELLAR_OK
               ? model_load_ffn(m, i, shape->ff[i], true, BLOCK_SILU, &to->ffn, error)
               : status;
}

static cellar_status load(model *m, cellar_error *error)
{
    hybrid_sizes sizes;
    model_shape shape;
    double epsilon;
    cellar_status status;
    if ((status = hybrid_read_mamba(m, &sizes, error)) ||
        (status = model_read_shape(m, 0, &shape, error)) ||
        (status = model_read_positive(m, "attention.layer_norm_rms_epsilon", true, &epsilon,
                                      error)) ||
        (status = model_make_layers(m, sizeof(hybrid_layer), error))) {
        return status;
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = load_layer(m, i, &sizes, &shape, epsilon, error);
    }
    return status == CELLAR_OK ? model_load_output(m, BLOCK_NORM_RMS, epsilon, error) : status;
}

const model_architecture model_architecture_jamba = {
    .name = "jamba", .load = load, .run_layers = hybrid_run_layers};
