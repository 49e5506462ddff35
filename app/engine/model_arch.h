/*
 * model_arch.h: what architectures are written with: the table, and the usual parts of a layer,
 * loaded by their usual names.
 *
 * An arch_*.c file includes this one (and transformer.h, if it is a variant of that), fills
 * m->layers and the memory's layers, and ends in a constant model_architecture_<name>, which has a
 * line in the table below. Every loader here also notes what the engine must have room for
 * (m->scratch). Parts that a file may lack are looked for by the caller with model_has_part.
 */
#ifndef APP_MODEL_ARCH_H
#define APP_MODEL_ARCH_H

#include "engine/model_read.h"

/* The architectures that can be run: C name, name in files. */
#define MODEL_ARCHITECTURES(X)                                                                     \
    X(bloom, "bloom")                                                                              \
    X(cohere2, "cohere2")                                                                          \
    X(command_r, "command-r")                                                                      \
    X(deepseek2, "deepseek2")                                                                      \
    X(falcon_h1, "falcon-h1")                                                                      \
    X(gemma, "gemma")                                                                              \
    X(gemma2, "gemma2")                                                                            \
    X(gemma3, "gemma3")                                                                            \
    X(gemma4, "gemma4")                                                                            \
    X(granite, "granite")                                                                          \
    X(granite_swa, "granite_swa")                                                                  \
    X(granitemoe, "granitemoe")                                                                    \
    X(jamba, "jamba")                                                                              \
    X(lfm2, "lfm2")                                                                                \
    X(llama, "llama")                                                                              \
    X(mamba, "mamba")                                                                              \
    X(mamba2, "mamba2")                                                                            \
    X(mpt, "mpt")                                                                                  \
    X(phi3, "phi3")                                                                                \
    X(qwen2, "qwen2")                                                                              \
    X(qwen2moe, "qwen2moe")                                                                        \
    X(qwen2vl, "qwen2vl")                                                                          \
    X(qwen3, "qwen3")                                                                              \
    X(qwen3moe, "qwen3moe")                                                                        \
    X(rwkv6, "rwkv6")                                                                              \
    X(rwkv7, "rwkv7")                                                                              \
    X(starcoder2, "starcoder2")                                                                    \
    X(t5, "t5")

#define MODEL_ARCHITECTURE_DECLARE(id, name)                                                       \
    extern const model_architecture model_architecture_##id;
MODEL_ARCHITECTURES(MODEL_ARCHITECTURE_DECLARE)
#undef MODEL_ARCHITECTURE_DECLARE

/* ---- room -------------------------------------------------------------------------------------- */

/* [n_layers] zeroed layers of `size` bytes each, as m->layers. CELLAR_NO_MEMORY. */
cellar_status model_make_layers(model *m, size_t size, cellar_error *error);

/*
 * One more layer of the memory, with every default, as the last of m->memory_layers; its index goes
 * to *index. Layers are described in the order in which the model runs them. CELLAR_CORRUPT: more
 * than two for each layer of the model.
 */
cellar_status model_add_memory_layer(model *m, uint32_t *index, cellar_error *error);

/*
 * A block of the model needs `numbers` of scratch room for each token. CELLAR_CORRUPT: more than any
 * model should.
 */
cellar_status model_need_scratch(model *m, uint64_t numbers, cellar_error *error);

/* ---- parts of layer `layer`: tensors "blk.<layer>.<part>.weight" and .bias --------------------- */

bool model_has_part(const model *m, uint32_t layer, const char *part);

/* A norm of the residual stream; with a bias if the file has one. */
cellar_status model_load_norm(model *m, uint32_t layer, const char *part, block_norm_kind kind,
                              double epsilon, block_norm *out, cellar_error *error);

/* A norm of rows of another width, in n_groups of their own weights. */
cellar_status model_load_norm_of(model *m, uint32_t layer, const char *part, block_norm_kind kind,
                                 uint32_t width, uint32_t n_groups, double epsilon, block_norm *out,
                                 cellar_error *error);

/* A matrix and its bias, if the file has one. */
cellar_status model_load_linear(model *m, uint32_t layer, const char *part, uint32_t n_in,
                                uint32_t n_out, block_linear *out, cellar_error *error);

/*
 * A matrix that holds several, one after another: rows[i] rows for out[i]; n <= 8.
 */
cellar_status model_load_fused(model *m, uint32_t layer, const char *part, uint32_t n_in,
                               const uint32_t *rows, block_linear *const *out, uint32_t n,
                               cellar_error *error);

/* A vector of n numbers. */
cellar_status model_load_vector(model *m, uint32_t layer, const char *part, uint32_t n,
                                const float **out, cellar_error *error);

/* ---- blocks ------------------------------------------------------------------------------------ */

typedef struct model_heads {
    uint32_t n_heads, n_kv_heads; /* n_kv_heads divides n_heads */
    uint32_t k_size, v_size;      /* elements of a head */
    bool is_reader;               /* another layer's keys and values are read */
    bool may_lack_v;              /* values may be the keys before their norm */
} model_heads;

/*
 * attn_q, attn_k, attn_v (or attn_qkv, one after another), attn_output; adds the layer that the
 * memory needs, with these heads, for the caller to complete (rope, window, scale...).
 */
cellar_status model_load_attention(model *m, uint32_t layer, const model_heads *heads,
                                   block_attention *out, cellar_error *error);

/*
 * ffn_gate, ffn_up, ffn_down. is_gated: the file must have a gate, as ffn_gate or as the first half
 * of the rows of ffn_up.
 */
cellar_status model_load_ffn(model *m, uint32_t layer, uint32_t n_ff, bool is_gated,
                             block_activation activation, block_ffn *out, cellar_error *error);

/*
 * output_norm, and output or, where there is none, the embedding again.
 */
cellar_status model_load_output(model *m, block_norm_kind kind, double epsilon,
                                cellar_error *error);

/* ---- shapes that most architectures state ------------------------------------------------------ */

/* By layer, from attention.head_count, head_count_kv, feed_forward_length. [n_layers] each. */
typedef struct model_shape {
    uint32_t *heads, *kv_heads, *ff;
    uint32_t k_size, v_size; /* attention.key_length and value_length, or n_embd / heads */
} model_shape;

/*
 * Read them; kv_heads divides heads, sizes are at least 2. With min_kv_heads 0 a layer may have no
 * K/V heads (it is not an attention layer). The arrays go with the model.
 */
cellar_status model_read_shape(model *m, uint32_t min_kv_heads, model_shape *out,
                               cellar_error *error);

/* The heads of one layer. */
model_heads model_heads_of(const model_shape *shape, uint32_t layer);

/* Layers that look back through a window. */
typedef struct model_windows {
    cellar_window window;
    bool *is_window; /* [n_layers]; NULL: no layer has a window */
} model_windows;

#define MODEL_EVERY_LAYER UINT32_MAX     /* as a period: all layers have it */
#define MODEL_WINDOW_REQUIRED UINT32_MAX /* as `absent`: the file must name a window */

/*
 * attention.sliding_window (absent: `absent`; 0: no windows) and sliding_window_pattern (absent: of
 * every `period` layers all but the last). The array goes with the model.
 */
cellar_status model_read_windows(model *m, uint32_t absent, uint32_t period, model_windows *out,
                                 cellar_error *error);

#endif /* APP_MODEL_ARCH_H */
