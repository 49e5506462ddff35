/*
 * arch_alibi.c: "bloom" (arXiv:2211.05100) and "mpt" (MosaicML's MPT model cards), which know positions
 * by ALiBi (Press et al., arXiv:2108.12409) and rotate nothing.
 *
 *     x += attention(norm(x));   x += down(gelu(up norm(x)))
 *
 * with layer norms and no gate; queries, keys and values come from one matrix. BLOOM has biases
 * everywhere and norms the embedding; its GELU is the one with tanh. MPT may limit what comes out of
 * that matrix to -clamp_kqv..clamp_kqv, may norm whole rows of queries and keys, and uses the error
 * function.
 */
#include "engine/transformer.h"

static cellar_status load_bloom(model *m, cellar_error *error)
{
    transformer_plan plan = {.norm = BLOCK_NORM_LAYER, .activation = BLOCK_GELU, .alibi = 8};
    cellar_status status;
    if ((status = transformer_read(m, &plan, error)) ||
        (status = model_read_norm(m, "token_embd_norm", BLOCK_NORM_LAYER, m->n_embd, 1,
                                  plan.epsilon, &m->embedding_norm, error))) {
        return status;
    }
    return transformer_load(m, &plan, error);
}

/* A norm of all query heads as one row, and of all key heads, where the file has them. */
static cellar_status load_row_norms(model *m, uint32_t i, double epsilon, cellar_error *error)
{
    block_attention *to = &((transformer_layer *)m->layers + i)->attention;
    if (!model_has_part(m, i, "attn_q_norm")) {
        return CELLAR_OK;
    }
    cellar_status status = model_load_norm_of(m, i, "attn_q_norm", BLOCK_NORM_LAYER,
                                              to->n_heads * to->k_size, 1, epsilon, &to->q_norm,
                                              error);
    if (status != CELLAR_OK) {
        return status;
    }
    return model_load_norm_of(m, i, "attn_k_norm", BLOCK_NORM_LAYER, to->n_kv_heads * to->k_size, 1,
                              epsilon, &to->k_norm, error);
}

static cellar_status load_mpt(model *m, cellar_error *error)
{
    transformer_plan plan = {.norm = BLOCK_NORM_LAYER, .activation = BLOCK_GELU_ERF};
    cellar_status status;
    if ((status = transformer_read(m, &plan, error)) ||
        (status = model_read_number_or(m, "attention.clamp_kqv", 0, 1e9, &plan.clamp, error)) ||
        (status = model_read_number_or(m, "attention.max_alibi_bias", 0, 1e3, &plan.alibi,
                                       error))) {
        return status;
    }
    status = transformer_load(m, &plan, error);
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = load_row_norms(m, i, plan.epsilon, error);
    }
    return status;
}

const model_architecture model_architecture_bloom = {
    .name = "bloom", .load = load_bloom, .run_layer = transformer_run_layer};
const model_architecture model_architecture_mpt = {
    .name = "mpt", .load = load_mpt, .run_layer = transformer_run_layer};
