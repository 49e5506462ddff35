/*
 * support_lab.h: any transformer, written once as a model file and computed once in double.
 *
 *     lab_shape shape = lab_default("command-r");
 *     shape.is_parallel = true;
 *     lab l = lab_create(&shape);          // the file, with random weights from a fixed generator
 *     lab_read(&l, token, position, logits);
 *     lab_destroy(&l);
 *
 * The shape says in plain words what a layer does; both the file and the computation follow it, and
 * nothing of the engine is used but gguf.h. The lab remembers keys as they are, without rotation, one
 * token after another; so positions can be removed and moved, and a query looks at whatever is there.
 * Slow and simple: for models of a few dozen numbers. Without memory the program ends.
 */
#ifndef TESTS_SUPPORT_LAB_H
#define TESTS_SUPPORT_LAB_H

#include <stdbool.h>
#include <stdint.h>

#include "support_model.h"

#define LAB_VOCABULARY 40u
#define LAB_MOST_LAYERS 64u

typedef enum lab_activation { LAB_SILU, LAB_GELU_TANH, LAB_GELU_ERF } lab_activation;
typedef enum lab_rope { LAB_NO_ROPE, LAB_ADJACENT, LAB_HALVES } lab_rope;
typedef enum lab_head_norm {
    LAB_NO_HEAD_NORM,
    LAB_ONE_FOR_ALL_HEADS, /* RMS, attn_q_norm [k_size] */
    LAB_ONE_EACH,          /* layer norm, attn_q_norm [n_heads][k_size] */
    LAB_WHOLE_ROW          /* layer norm, attn_q_norm [n_heads * k_size] */
} lab_head_norm;

typedef struct lab_shape {
    const char *architecture;
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, k_size, n_ff; /* values are as long as keys */

    bool is_layer_norm; /* else RMS; epsilon 1e-5 */
    bool has_norm_biases, has_biases, has_embedding_norm, has_norms_after;
    bool is_parallel, is_ungated, is_fused; /* fused: attn_qkv */
    bool has_no_v;                          /* values are the keys before norm and rotation */
    bool has_value_norm;                    /* RMS of each head, without weights */
    lab_activation activation;
    lab_head_norm head_norm;
    lab_rope rope;
    uint32_t n_rot; /* 0: the whole head */
    double base;
    bool has_long_rope;       /* the file has divisors for near and far */
    const char *divisors;     /* the tensor of them that is used; NULL: none */
    double rotated_magnitude; /* of what rotates; 0: 1 */
    double attention_scale;   /* 0: 1/sqrt(k_size) */
    double embedding_scale, residual_scale, logit_scale; /* 0: 1; logits are multiplied */
    double softcap, logit_softcap, clamp, alibi;         /* 0: none */

    uint32_t window;                 /* 0: none */
    bool is_window[LAB_MOST_LAYERS]; /* layers that have it */
    bool do_only_windows_rotate;

    uint32_t n_experts, n_used; /* n_experts 0: none */
    uint32_t n_expert_ff, n_shared_ff;
    bool is_renormalised, has_shared_gate, is_sigmoid, has_choice_bias;
    bool has_a_tensor_for_each_expert;
    double expert_scale; /* 0: 1 */

    /* Further keys, whole names; and tensors to leave out or to misshape (zeros). */
    const fixture_key *keys; /* [n_keys] */
    uint32_t n_keys;
    const fixture_tensor *tensors; /* [n_tensors] */
    uint32_t n_tensors;
} lab_shape;

/* One token of the past. */
typedef struct lab_cell {
    int32_t position;
    double *k[LAB_MOST_LAYERS]; /* [n_kv_heads * k_size], not rotated */
    double *v[LAB_MOST_LAYERS];
} lab_cell;

typedef struct lab {
    lab_shape shape;
    fixture made;
    lab_cell *cells; /* [n_cells] */
    uint32_t n_cells;
} lab;

/* 2 layers, width 32, 4 heads over 2 of 8 elements, 24 inside; gated SiLU, RMS, halves, base 10000. */
lab_shape lab_default(const char *architecture);

/* The file alone, with the keys that every architecture has and shape->keys. */
fixture lab_write(const lab_shape *shape);

lab lab_create(const lab_shape *shape);
void lab_destroy(lab *l);

/* Read a token at a position behind all others; logits [LAB_VOCABULARY]. */
void lab_read(lab *l, int32_t token, int32_t position, double *logits);

/* Forget positions [first, last), or move them by delta. */
void lab_remove(lab *l, int32_t first, int32_t last);
void lab_shift(lab *l, int32_t first, int32_t last, int32_t delta);

#endif /* TESTS_SUPPORT_LAB_H */
