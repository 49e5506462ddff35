/*
 * support_latent.h: tiny models of the deepseek2 architecture, in every form that files have.
 *
 * Sizes are all different, so that no two can be exchanged unnoticed. The absorbed and the plain form are
 * made of the same weights: attn_k_b is K transposed head by head, attn_kv_b has K and V one after
 * another.
 */
#ifndef TESTS_SUPPORT_LATENT_H
#define TESTS_SUPPORT_LATENT_H

#include <stdbool.h>
#include <stdint.h>

#include "support_recipe.h"

enum {
    N_LAYERS = 2,
    N_EMBD = 24,
    N_HEADS = 3,
    NOPE = 6,
    ROPE = 4,
    K_SIZE = NOPE + ROPE,
    LATENT = 14,
    V_SIZE = 5,
    Q_RANK = 9,
    N_FF = 20,
    N_EXPERTS = 12,
    N_USED = 3,
    N_GROUPS = 4,
    N_GROUPS_USED = 2,
    N_EXPERT_FF = 7,
    N_SHARED = 2, /* experts that all tokens read */
    N_VOCAB = 32,
    YARN_CONTEXT = 16
};

#define EPSILON 1e-5
#define YARN_FACTOR 4.0
#define LOG_MULTIPLIER 0.0707

/* What a model is made with. */
typedef struct latent_variant {
    bool is_plain, is_lite, has_yarn, has_multiplier;
    /* Feed-forward of the second layer: none, V2-Lite's, V2's, V3's. */
    enum { DENSE, EXPERTS, BEST_GROUPS, BEST_PAIRS } experts;
} latent_variant;

#define EXPERT_SCALE 2.5

typedef struct latent_name {
    char text[64];
} latent_name;

/* "blk.<layer>.<part>.weight" */
latent_name latent_part(uint32_t layer, const char *part);

/* The model, for the caller to destroy. */
recipe *latent_make(latent_variant v);

#endif /* TESTS_SUPPORT_LATENT_H */
