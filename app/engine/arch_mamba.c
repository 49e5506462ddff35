/*
 * arch_mamba.c: the "mamba" architecture (Gu and Dao, arXiv:2312.00752): layers of a selective scan
 * and nothing else.
 *
 *     for each layer:   x += selective_scan(norm(x))
 *
 * with RMS norms. Falcon Mamba's files carry the same name and a key ssm.dt_b_c_rms: its time step,
 * B and C are normed without weights. No layer attends, so the memory holds states alone.
 */
#include <stdio.h>

#include "engine/hybrid.h"

#define NORMS_KEY "ssm.dt_b_c_rms"

static cellar_status read_norms(const model *m, bool *is_normed, cellar_error *error)
{
    char key[MODEL_KEY_SIZE];
    *is_normed = false;
    snprintf(key, sizeof key, "%s." NORMS_KEY, m->architecture->name);
    cellar_status status = gguf_get_bool(m->file, key, is_normed, error);
    return status == CELLAR_NOT_FOUND ? CELLAR_OK : status;
}

static cellar_status load(model *m, cellar_error *error)
{
    hybrid_sizes sizes;
    double epsilon;
    bool is_normed;
    cellar_status status;
    if ((status = hybrid_read_mamba(m, &sizes, error)) ||
        (status = model_read_positive(m, "attention.layer_norm_rms_epsilon", true, &epsilon,
                                      error)) ||
        (status = read_norms(m, &is_normed, error)) ||
        (status = model_make_layers(m, sizeof(hybrid_layer), error))) {
        return status;
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        hybrid_layer *to = (hybrid_layer *)m->layers + i;
        status = model_load_norm(m, i, "attn_norm", BLOCK_NORM_RMS, epsilon, &to->norm, error);
        if (status == CELLAR_OK) {
            status = hybrid_load_selective_scan(m, i, &sizes, is_normed, epsilon, to, error);
        }
    }
    return status == CELLAR_OK ? model_load_output(m, BLOCK_NORM_RMS, epsilon, error) : status;
}

const model_architecture model_architecture_mamba = {
    .name = "mamba", .load = load, .run_layer = hybrid_run_layer};
