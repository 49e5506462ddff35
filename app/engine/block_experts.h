/*
 * block_experts.h: a feed-forward of which each token uses a few of many (Shazeer et al.,
 * arXiv:1701.06538; as in Mixtral, arXiv:2401.04088, and DeepSeekMoE, arXiv:2401.06066).
 *
 *     p = softmax or sigmoid of router x, a number for each expert
 *     the n_used experts with the largest p (+ choice_bias) are chosen; of equal ones the first;
 *     with groups, of the n_groups_used groups of neighbours that rank highest: by their best expert
 *     (softmax: arXiv:2405.04434, section 2.1.3) or by their best two (sigmoid: arXiv:2412.19437)
 *     out = scale * sum of p_e [/ sum of the chosen p] * expert_e(x)  +  shared(x) [* sigmoid(gate x)]
 *
 * The sum goes over the chosen experts in the order of their numbers, so a token's result depends on
 * the token alone, whatever else is computed with it. Cannot fail.
 */
#ifndef APP_BLOCK_EXPERTS_H
#define APP_BLOCK_EXPERTS_H

#include "engine/block.h"

typedef enum block_router {
    BLOCK_ROUTER_SOFTMAX = 0, /* exp(z) / sum of exp(z) */
    BLOCK_ROUTER_SIGMOID = 1, /* 1 / (1 + exp(-z)) */
} block_router;

typedef struct block_experts {
    uint32_t n;      /* 0: there are none */
    uint32_t n_used; /* by each token, 1..n */
    block_router kind;
    uint32_t n_groups, n_groups_used; /* n_groups 0 or 1: none; else a divisor of n */
    block_linear router;              /* [n][n_embd] */
    const float *choice_bias;         /* [n] added for the choice alone; NULL: none */
    bool is_renormalised;             /* the weights of the chosen are divided by their sum */
    float scale;                      /* of all weights; > 0 */
    const block_ffn *experts;         /* [n] of one shape */
    block_ffn shared;                 /* read by all tokens; without up.weight.data: none */
    block_linear shared_gate;         /* [1][n_embd]; none: the shared part is taken whole */
} block_experts;

/* Numbers of scratch room for each token. */
uint64_t block_experts_scratch(const block_experts *e);

/*
 * out [n_tokens][n_embd] = what the experts give of x, which must not overlap it; then
 * residual += out if it is not NULL (x may be the residual).
 */
void block_experts_run(const block_experts *e, const block_context *c, const float *x, float *out,
                       float *residual);

#endif /* APP_BLOCK_EXPERTS_H */
