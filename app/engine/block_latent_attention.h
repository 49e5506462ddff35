/*
 * block_latent_attention.h: multi-head latent attention (DeepSeek-AI, arXiv:2405.04434, section 2.1).
 *
 * A token is kept as one latent vector c and one rotated key r that all heads share; head h has the key
 * [K_h c | r] and the value V_h c. There are two ways to compute the same:
 *
 *   absorbed   <q, K_h c> = <K_h^T q, c>: the query is taken to the latent space, where the memory keeps
 *              [c | r] for all heads together and its values are the c in that row. What comes back is
 *              taken through V_h. A row of a few hundred numbers, however many heads there are.
 *   plain      keys and values of every head are made and kept. More memory, for files that have the
 *              matrices K_h and V_h in one (attn_kv_b), untransposed.
 *
 * Used as the blocks of block.h are; fails only where the memory does.
 */
#ifndef APP_BLOCK_LATENT_ATTENTION_H
#define APP_BLOCK_LATENT_ATTENTION_H

#include "engine/block.h"

typedef struct block_latent_attention {
    uint32_t memory_layer; /* absorbed: one K head [latent | rope] with V in it; else n_heads */
    uint32_t n_heads;
    uint32_t nope_size,
        rope_size; /* elements of a query head that stay, and that rotate behind them */
    uint32_t latent_size;
    uint32_t v_size; /* elements of a head's value */

    block_linear q_down; /* [q_down.n_out][n_embd], or none: q reads the stream itself */
    block_norm q_norm;   /* between q_down and q */
    block_linear q;      /* [n_heads * (nope_size + rope_size)][...] */
    block_linear latent; /* [latent_size][n_embd] */
    block_linear rope;   /* [rope_size][n_embd] the key that all heads share */
    block_norm latent_norm;

    bool is_absorbed;
    block_weight k_up; /* absorbed: K_h^T: n_heads matrices [latent_size][nope_size] */
    block_weight v_up; /* absorbed: V_h: n_heads matrices [v_size][latent_size] */
    block_linear kv;   /* plain: for each head nope_size rows of K_h, then v_size of V_h */

    block_linear out; /* [n_embd][n_heads * v_size] */
} block_latent_attention;

/* Numbers of scratch room for each token. */
uint64_t block_latent_attention_scratch(const block_latent_attention *attention);

/* As block_attention_run. */
cellar_status block_latent_attention_run(const block_latent_attention *attention,
                                         const block_context *c, const float *x, float *out,
                                         float *residual, cellar_error *error);

#endif /* APP_BLOCK_LATENT_ATTENTION_H */
