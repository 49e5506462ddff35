/*
 * support_lab_write.c: the model file of a lab.
 *
 * Matrices are uniform in +-sqrt(3 / n_in), so that every activation has a variance near 1; weights of
 * norms are near 1, biases near 0. Everything is F32. Keys that only some architectures have are the
 * test's to give (lab_shape.keys).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/random_source.h"
#include "kernels.h"
#include "support_lab.h"

typedef struct writer {
    gguf_writer *to;
    const lab_shape *shape;
    random_source random;
} writer;

lab_shape lab_default(const char *architecture)
{
    return (lab_shape){.architecture = architecture,
                       .n_layers = 2,
                       .n_embd = 32,
                       .n_heads = 4,
                       .n_kv_heads = 2,
                       .k_size = 8,
                       .n_ff = 24,
                       .rope = LAB_HALVES,
                       .base = 10000};
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void add_key(writer *w, const char *name, double number, bool is_real)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", w->shape->architecture, name);
    for (uint32_t i = 0; i < w->shape->n_keys; i++) {
        if (strcmp(w->shape->keys[i].key, key) == 0) {
            return;
        }
    }
    if (is_real) {
        gguf_writer_add_float(w->to, key, (float)number);
    } else {
        gguf_writer_add_u32(w->to, key, (uint32_t)number);
    }
}

static void write_given(gguf_writer *to, const fixture_key *key)
{
    uint32_t *numbers;
    switch (key->kind) {
    case FIXTURE_U32:
        gguf_writer_add_u32(to, key->key, (uint32_t)key->number);
        break;
    case FIXTURE_FLOAT:
        gguf_writer_add_float(to, key->key, (float)key->number);
        break;
    case FIXTURE_TEXT:
        gguf_writer_add_string(to, key->key, key->text);
        break;
    case FIXTURE_U32_ARRAY:
        numbers = calloc(key->count + 1, sizeof *numbers);
        for (uint32_t i = 0; i < key->count; i++) {
            numbers[i] = (uint32_t)(i + 1 == key->count ? key->last : key->number);
        }
        gguf_writer_add_array(to, key->key, GGUF_UINT32, key->count, numbers,
                              key->count * sizeof *numbers);
        free(numbers);
        break;
    default: /* left out */
        break;
    }
}

static void write_keys(writer *w)
{
    const lab_shape *s = w->shape;
    gguf_writer_add_string(w->to, "general.architecture", s->architecture);
    add_key(w, "block_count", s->n_layers, false);
    add_key(w, "embedding_length", s->n_embd, false);
    add_key(w, "context_length", 128, false);
    add_key(w, "feed_forward_length", s->n_ff, false);
    add_key(w, "attention.head_count", s->n_heads, false);
    add_key(w, "attention.head_count_kv", s->n_kv_heads, false);
    add_key(w, "attention.key_length", s->k_size, false);
    add_key(w, "attention.value_length", s->k_size, false);
    add_key(w,
            s->is_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
            1e-5, true);
    if (s->n_rot > 0) {
        add_key(w, "rope.dimension_count", s->n_rot, false);
    }
    if (s->window > 0) {
        add_key(w, "attention.sliding_window", s->window, false);
    }
    if (s->n_experts > 0) {
        add_key(w, "expert_count", s->n_experts, false);
        add_key(w, "expert_used_count", s->n_used, false);
        add_key(w, "expert_feed_forward_length", s->n_expert_ff, false);
    }
    for (uint32_t i = 0; i < s->n_keys; i++) {
        write_given(w->to, &s->keys[i]);
    }
}

/* ---- tensors -------------------------------------------------------------------------------- */

static const fixture_tensor *replacement(const lab_shape *shape, const char *name)
{
    for (uint32_t i = 0; i < shape->n_tensors; i++) {
        if (strcmp(shape->tensors[i].name, name) == 0) {
            return &shape->tensors[i];
        }
    }
    return NULL;
}

/* A tensor of random numbers around `middle`, +-spread; dimensions of 0 are left out. */
static void add(writer *w, const char *name, uint32_t n_in, uint32_t n_out, uint32_t n_matrices,
                double middle, double spread)
{
    const fixture_tensor *other = replacement(w->shape, name);
    const uint64_t dims[3] = {n_in, n_out, n_matrices};
    size_t n = (size_t)n_in * (n_out ? n_out : 1) * (n_matrices ? n_matrices : 1);
    float *numbers = malloc(n * sizeof *numbers);
    if (numbers == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        numbers[i] = (float)(middle + spread * (2 * random_source_unit(&w->random) - 1));
    }
    if (other == NULL) {
        gguf_writer_add_tensor(w->to, name, CL_WEIGHT_F32,
                               n_matrices ? 3
                               : n_out    ? 2
                                          : 1,
                               dims, numbers, n * sizeof *numbers);
    } else if (!other->is_left_out) {
        uint64_t bytes = sizeof(float);
        for (uint32_t i = 0; i < other->n_dims; i++) {
            bytes *= other->dims[i];
        }
        gguf_writer_add_tensor(w->to, name, CL_WEIGHT_F32, other->n_dims, other->dims, NULL, bytes);
    }
    free(numbers);
}

static void add_matrix(writer *w, const char *prefix, uint32_t n_in, uint32_t n_out, bool has_bias)
{
    char name[80];
    snprintf(name, sizeof name, "%s.weight", prefix);
    add(w, name, n_in, n_out, 0, 0, sqrt(3.0 / n_in));
    if (has_bias) {
        snprintf(name, sizeof name, "%s.bias", prefix);
        add(w, name, n_out, 0, 0, 0, 0.2);
    }
}

static void add_norm(writer *w, const char *prefix, uint32_t width, uint32_t n_groups,
                     bool has_bias)
{
    char name[80];
    snprintf(name, sizeof name, "%s.weight", prefix);
    add(w, name, width, n_groups > 1 ? n_groups : 0, 0, 1, 0.3);
    if (has_bias) {
        snprintf(name, sizeof name, "%s.bias", prefix);
        add(w, name, width, n_groups > 1 ? n_groups : 0, 0, 0, 0.2);
    }
}

/* "blk.<layer>.<part>" */
static const char *part_of(char *to, size_t size, uint32_t layer, const char *part)
{
    snprintf(to, size, "blk.%u.%s", (unsigned)layer, part);
    return to;
}

static void write_attention(writer *w, uint32_t layer)
{
    const lab_shape *s = w->shape;
    uint32_t n_q = s->n_heads * s->k_size, n_kv = s->n_kv_heads * s->k_size;
    char name[64];
#define PART(p) part_of(name, sizeof name, layer, p)
    if (s->is_fused) {
        add_matrix(w, PART("attn_qkv"), s->n_embd, n_q + 2 * n_kv, s->has_biases);
    } else {
        add_matrix(w, PART("attn_q"), s->n_embd, n_q, s->has_biases);
        add_matrix(w, PART("attn_k"), s->n_embd, n_kv, s->has_biases);
    }
    if (!s->is_fused && !s->has_no_v) {
        add_matrix(w, PART("attn_v"), s->n_embd, n_kv, s->has_biases);
    }
    add_matrix(w, PART("attn_output"), n_q, s->n_embd, s->has_biases);
    if (s->head_norm == LAB_ONE_FOR_ALL_HEADS) {
        add_norm(w, PART("attn_q_norm"), s->k_size, 1, false);
        add_norm(w, PART("attn_k_norm"), s->k_size, 1, false);
    } else if (s->head_norm == LAB_ONE_EACH) {
        add_norm(w, PART("attn_q_norm"), s->k_size, s->n_heads, false);
        add_norm(w, PART("attn_k_norm"), s->k_size, s->n_kv_heads, false);
    } else if (s->head_norm == LAB_WHOLE_ROW) {
        add_norm(w, PART("attn_q_norm"), n_q, 1, s->has_norm_biases);
        add_norm(w, PART("attn_k_norm"), n_kv, 1, s->has_norm_biases);
    }
}

static void write_experts(writer *w, uint32_t layer)
{
    const lab_shape *s = w->shape;
    static const char *const parts[] = {"ffn_gate", "ffn_up", "ffn_down"};
    char name[64], part[40];
    add_matrix(w, PART("ffn_gate_inp"), s->n_embd, s->n_experts, false);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t n_in = i < 2 ? s->n_embd : s->n_expert_ff,
                 n_out = i < 2 ? s->n_expert_ff : s->n_embd;
        if (!s->has_a_tensor_for_each_expert) {
            snprintf(part, sizeof part, "%s_exps.weight", parts[i]);
            add(w, PART(part), n_in, n_out, s->n_experts, 0, sqrt(3.0 / n_in));
        }
        for (uint32_t e = 0; s->has_a_tensor_for_each_expert && e < s->n_experts; e++) {
            snprintf(part, sizeof part, "%s.%u", parts[i], (unsigned)e);
            add_matrix(w, PART(part), n_in, n_out, false);
        }
    }
    if (s->has_choice_bias) {
        add(w, PART("exp_probs_b.bias"), s->n_experts, 0, 0, 0, 0.5);
    }
    if (s->n_shared_ff > 0) {
        add_matrix(w, PART("ffn_gate_shexp"), s->n_embd, s->n_shared_ff, false);
        add_matrix(w, PART("ffn_up_shexp"), s->n_embd, s->n_shared_ff, false);
        add_matrix(w, PART("ffn_down_shexp"), s->n_shared_ff, s->n_embd, false);
    }
    if (s->has_shared_gate) {
        add(w, PART("ffn_gate_inp_shexp.weight"), s->n_embd, 0, 0, 0, 1);
    }
}

static void write_layer(writer *w, uint32_t layer)
{
    const lab_shape *s = w->shape;
    char name[64];
    add_norm(w, PART("attn_norm"), s->n_embd, 1, s->has_norm_biases);
    write_attention(w, layer);
    if (!s->is_parallel) {
        add_norm(w, PART("ffn_norm"), s->n_embd, 1, s->has_norm_biases);
    }
    if (s->has_norms_after) {
        add_norm(w, PART("post_attention_norm"), s->n_embd, 1, false);
        add_norm(w, PART("post_ffw_norm"), s->n_embd, 1, false);
    }
    if (s->n_experts > 0) {
        write_experts(w, layer);
        return;
    }
    if (!s->is_ungated) {
        add_matrix(w, PART("ffn_gate"), s->n_embd, s->n_ff, s->has_biases);
    }
    add_matrix(w, PART("ffn_up"), s->n_embd, s->n_ff, s->has_biases);
    add_matrix(w, PART("ffn_down"), s->n_ff, s->n_embd, s->has_biases);
#undef PART
}

fixture lab_write(const lab_shape *shape)
{
    writer w = {.to = gguf_writer_create(3), .shape = shape};
    random_source_seed(&w.random, 7);
    write_keys(&w);
    add(&w, "token_embd.weight", shape->n_embd, LAB_VOCABULARY, 0, 0, 1);
    if (shape->has_embedding_norm) {
        add_norm(&w, "token_embd_norm", shape->n_embd, 1, true);
    }
    uint32_t n_rot = shape->n_rot > 0 ? shape->n_rot : shape->k_size;
    if (shape->has_long_rope) {
        add(&w, "rope_factors_long.weight", n_rot / 2, 0, 0, 6, 3);
        add(&w, "rope_factors_short.weight", n_rot / 2, 0, 0, 1.5, 0.4);
    }
    for (uint32_t i = 0; i < shape->n_layers; i++) {
        write_layer(&w, i);
    }
    add_norm(&w, "output_norm", shape->n_embd, 1, shape->has_norm_biases);
    fixture made = {0};
    cellar_error error;
    made.bytes = gguf_writer_finish(w.to, &made.size);
    gguf_writer_destroy(w.to);
    if (gguf_open_memory(made.bytes, made.size, &made.file, &error) != CELLAR_OK) {
        fprintf(stderr, "support_lab: %s\n", error.message);
        exit(1);
    }
    return made;
}
