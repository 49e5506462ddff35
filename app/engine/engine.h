/*
 * engine.h: a model that reads: model + memory + threads + buffers.
 *
 * engine_decode reads the tokens of a batch: it opens a step of the memory, takes each micro-batch
 * through all layers, and commits. A failure or a stop anywhere aborts the step, and the memory is
 * as if nothing had been asked. Between steps the caller may do with the memory what cellar.h
 * offers.
 *
 * All buffers are made with the engine; reading allocates nothing (the memory's bookkeeping may
 * grow when a step opens). What is computed for a token depends on the tokens before it alone:
 * not on the number of threads, the split into batches and micro-batches, or where cells lie. So
 * reading on from what is remembered gives the same bits as reading everything again.
 *
 * A model with an encoder (T5) first has a text encoded for a sequence (engine_encode); what is decoded
 * in that sequence attends to it. Encodings are the engine's, not the memory's (encoder.h).
 *
 * One thread at a time uses an engine. Several engines may share a model.
 */
#ifndef APP_ENGINE_H
#define APP_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/model.h"

typedef struct engine_options {
    uint32_t n_cells; /* tokens the memory can hold, >= 1; default 4096 */
    /* most tokens computed at once, 1..65536; default 512; never more than n_cells are used */
    uint32_t n_ubatch;
    uint32_t n_pools;   /* sequence s lives in pool s % n_pools, with its share; default 1 */
    cellar_split split; /* of batches into micro-batches; default CELLAR_SPLIT_AUTO */
    uint32_t n_threads; /* 1..512; default 1 */
    cellar_type k_type, v_type; /* of stored rows; default CELLAR_F16 */
    /* As in cellar_layer, of every layer that can have it; default false. */
    bool rotate_k, rotate_v;

    /* As in cellar_config, with its defaults. */
    uint32_t n_sequences; /* 0: as many as pools */
    bool is_window_full;
    uint64_t rollback_bytes, checkpoint_bytes;
    uint32_t checkpoint_interval;
    uint64_t budget_bytes;

    uint32_t n_encoded; /* most tokens in all encodings; 0 (default): n_cells */

    uint32_t cpu_mask; /* CELLAR_CPU_*; default CELLAR_CPU_ALL */
    /* Never round what is multiplied with quantised weights, also where that is faster; default false. */
    bool is_exact;
    /* products to compute with, copied; NULL (default): the best that cpu_mask allows */
    const cl_matmul_table *table;
    /* functions of feed-forward blocks; NULL (default): block_activations, and kernels for those
     * that have one */
    const block_activation_function *activations;
} engine_options;

typedef struct engine engine;

engine_options engine_defaults(void);

/* Make an engine with an empty memory; `m` must outlive it. CELLAR_INVALID, CELLAR_NO_MEMORY. */
cellar_status engine_create(const model *m, const engine_options *options, engine **out,
                            cellar_error *error);
void engine_destroy(engine *e); /* NULL is allowed */

/*
 * Show what the memory of such an engine would take, item by item, without making one. CELLAR_INVALID,
 * CELLAR_NO_MEMORY.
 */
cellar_status engine_plan(const model *m, const engine_options *options,
                          cellar_bytes_visitor visitor, void *context, cellar_error *error);

const model *engine_model(const engine *e);
cellar_memory *engine_memory(engine *e);
uint32_t engine_cells(const engine *e);
uint32_t engine_ubatch(const engine *e);       /* most tokens computed at once */
uint64_t engine_buffer_bytes(const engine *e); /* activations and encodings, beside the memory */

/* From now on ask should_stop(context) before each layer; true ends the step. NULL: never. */
void engine_set_stop(engine *e, bool (*should_stop)(void *context), void *context);

/*
 * Read a batch; its tokens must be given. wanted [n_wanted] are the indices of the tokens whose
 * logits are wanted, strictly rising; logits [n_wanted][n_vocab] gets their rows (undefined after a
 * failure). The product with the output matrix is computed for these alone.
 *
 * CELLAR_FULL, CELLAR_INVALID, CELLAR_BUSY, CELLAR_NO_MEMORY as cellar_begin says; CELLAR_INVALID
 * also for a token that is not in the vocabulary (error->at: its index) and for bad `wanted`.
 * CELLAR_REFUSED: stopped. With an encoder, CELLAR_NOT_FOUND: a sequence has no encoding (error->at: the
 * token), and CELLAR_INVALID: a token stands in sequences with different ones. Whatever the failure, the
 * memory is as before.
 */
cellar_status engine_decode(engine *e, const cellar_batch *batch, const uint32_t *wanted,
                            uint32_t n_wanted, float *logits, cellar_error *error);

/*
 * The same, but rows [n_wanted][n_embd] get what comes out of the last layer for the wanted tokens, after the
 * last norm: what logits would be made of.
 */
cellar_status engine_embed(engine *e, const cellar_batch *batch, const uint32_t *wanted,
                           uint32_t n_wanted, float *rows, cellar_error *error);

/*
 * Take the texts of a batch through the encoder; each sequence of the batch then has the encoding of its
 * text, and no longer the one it had. All tokens of a text follow each other in the batch and stand in
 * the same sequences. The batch is one micro-batch at most. The memory is not touched, nor do its operations
 * touch encodings: a fork of a sequence needs engine_share_encoding, and what was saved and
 * loaded goes on only beside the same encoding, which a session does not hold.
 *
 * This allocates what it keeps. CELLAR_FULL: more than a micro-batch, or no room beside the encodings that
 * stay (error->at: tokens too many). CELLAR_UNSUPPORTED: the model has no encoder. CELLAR_REFUSED:
 * stopped. CELLAR_INVALID, CELLAR_NO_MEMORY. After a failure all encodings are as before.
 */
cellar_status engine_encode(engine *e, const cellar_batch *batch, cellar_error *error);

/*
 * `to` reads what `from` reads from now on; nothing is copied. CELLAR_NOT_FOUND: `from` has no encoding.
 * CELLAR_UNSUPPORTED, CELLAR_INVALID, CELLAR_NO_MEMORY.
 */
cellar_status engine_share_encoding(engine *e, cellar_seq from, cellar_seq to, cellar_error *error);

/* The sequence has no encoding any more. None, or no encoder: no effect. */
void engine_forget_encoding(engine *e, cellar_seq seq);

/* Tokens of the text that the sequence's encoding is of; 0: it has none. */
uint32_t engine_encoded_tokens(const engine *e, cellar_seq seq);

#endif /* APP_ENGINE_H */
