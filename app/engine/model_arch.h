/*
 * model_arch.h: what architectures are written with: the usual parts of a layer, loaded by their
 * usual names.
 *
 * An arch_*.c file includes this one, fills m->layers and m->memory_layers, and ends in a constant
 * model_architecture_<name>, which model.c lists.
 */
#ifndef APP_MODEL_ARCH_H
#define APP_MODEL_ARCH_H

#include "engine/model_read.h"

extern const model_architecture model_architecture_llama;

typedef struct model_heads {
    uint32_t layer;
    uint32_t n_heads, n_kv_heads; /* n_kv_heads divides n_heads */
    uint32_t k_size, v_size;      /* elements of a head */
} model_heads;

/* "blk.<layer>.<part>.weight": an RMS norm of the residual stream. */
cellar_status model_load_norm(model *m, uint32_t layer, const char *part, double epsilon,
                              block_norm *out, cellar_error *error);

/* blk.<layer>.attn_q, attn_k, attn_v, attn_output; also describes the layer to the memory. */
cellar_status model_load_attention(model *m, const model_heads *heads, block_attention *out,
                                   cellar_error *error);

/* blk.<layer>.ffn_gate, ffn_up, ffn_down. */
cellar_status model_load_ffn(model *m, uint32_t layer, uint32_t n_ff, block_ffn *out,
                             cellar_error *error);

/* output_norm, and output or, where there is none, the embedding again. */
cellar_status model_load_output(model *m, double epsilon, cellar_error *error);

#endif /* APP_MODEL_ARCH_H */
