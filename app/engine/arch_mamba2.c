/*
 * arch_mamba2.c: the "mamba2" architecture (Dao and Gu, arXiv:2405.21060): layers of a state space with
 * heads and nothing else.
 *
 *     for each layer:   x += state_space(norm(x))
 *
 * with RMS norms. No layer attends, so the memory holds states alone.
 */
#include "engine/hybrid.h"

static cellar_status load(model *m, cellar_error *error)
{
    hybrid_sizes sizes;
    double epsilon;
    cellar_status status;
    if ((status = hybrid_read_mamba2(m, &sizes, error)) ||
        (status = model_read_positive(m, "attention.layer_norm_rms_epsilon", true, &epsilon,
                                      error)) ||
        (status = model_make_layers(m, sizeof(hybrid_layer), error))) {
        return status;
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        hybrid_layer *to = (hybrid_layer *)m->layers + i;
        status = model_load_norm(m, i, "attn_norm", BLOCK_NORM_RMS, epsilon, &to->norm, error);
        if (status == CELLAR_OK) {
            status = hybrid_load_state_space(m, i, &sizes, epsilon, to, error);
        }
    }
    return status == CELLAR_OK ? model_load_output(m, BLOCK_NORM_RMS, epsilon, error) : status;
}

const model_architecture model_architecture_mamba2 = {
    .name = "mamba2", .load = load, .run_layer = hybrid_run_layer};
