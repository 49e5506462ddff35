/*
 * model_experts.h: mixtures of experts as model files have them.
 *
 * model_read_experts reads what the metadata says, once; model_load_experts loads a layer's. The
 * architecture says what files leave open, by filling the plan before.
 */
#ifndef APP_MODEL_EXPERTS_H
#define APP_MODEL_EXPERTS_H

#include "engine/block_experts.h"
#include "engine/model_arch.h"

#define MODEL_MAX_EXPERTS 4096u

typedef struct model_experts {
    /* Of the architecture; what the file says comes before the first two. */
    block_router kind;
    bool is_renormalised;
    bool has_shared_gate;        /* where there is a shared part: ffn_gate_inp_shexp */
    block_activation activation; /* of all of them; they have gates */

    /* Of the file. */
    uint32_t n, n_used;
    uint32_t n_groups, n_groups_used; /* n_groups 0: none */
    uint32_t n_ff;                    /* width of an expert; 0: that of the layer */
    uint32_t n_shared_ff;             /* width of the shared part; 0: there is none */
    double scale;
} model_experts;

/*
 * Read expert_count (absent or 0: none, and nothing else is read), expert_used_count,
 * expert_feed_forward_length, expert_shared_count, expert_shared_feed_forward_length,
 * expert_weights_scale, expert_weights_norm, expert_gating_func, expert_group_count and
 * expert_group_used_count.
 */
cellar_status model_read_experts(const model *m, model_experts *plan, cellar_error *error);

/* Has the layer a router? Others have an ordinary feed-forward. */
bool model_layer_has_experts(const model *m, uint32_t layer);

/*
 * Load a layer's: ffn_gate_inp and either ffn_gate_exps, ffn_up_exps, ffn_down_exps, each with all
 * experts one after another, or, in older files, ffn_gate.<expert> and so on; exp_probs_b if the file
 * has it; and the shared part, ffn_gate_shexp, ffn_up_shexp, ffn_down_shexp.
 */
cellar_status model_load_experts(model *m, uint32_t layer, const model_experts *plan, uint32_t n_ff,
                                 block_experts *out, cellar_error *error);

#endif /* APP_MODEL_EXPERTS_H */
