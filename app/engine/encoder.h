/*
 * encoder.h: the encoder of a model that has one, and what it made of texts.
 *
 * encoder_read takes texts through the encoder's layers and keeps an encoding of each: the keys and
 * values that the decoder's cross attention reads (block_cross_attention.h), as f32, whatever the
 * types of the memory's rows. An encoding belongs to the sequences that its tokens were given for; several
 * may hold one, and it goes when the last of them is given another or forgotten. It has
 * nothing to do with what the decoder's memory holds of a sequence of that name: forking, removing or
 * clearing there changes nothing here.
 *
 * The encoder's own attention goes through a memory of its own, which has room for one micro-batch. Each
 * layer is a step that is opened, stored and attended, and given up: in a layer that is not causal
 * every token sees its whole micro-batch, and nothing has to be remembered. So kernels, buckets and threads are
 * the memory's, and layers with the same biases use the same rows one after another. The price: a
 * text must fit in one micro-batch.
 *
 * What is kept is bounded by encoder_options.n_kept tokens, over all texts. While a text replaces
 * another, both are held. A call that fails changed nothing.
 */
#ifndef APP_ENCODER_H
#define APP_ENCODER_H

#include "cellar.h"
#include "engine/block_cross_attention.h"
#include "engine/model.h"

typedef struct encoder encoder;

typedef struct encoder_options {
    uint32_t n_ubatch; /* most tokens read at once, >= 1 */
    uint32_t n_kept;   /* most tokens in all encodings, >= 1 */
    uint32_t cpu_mask;
    uint32_t n_threads;
    block_workers *workers; /* outlive the encoder */
} encoder_options;

/* Of a model that has an encoder, which outlives it. CELLAR_INVALID, CELLAR_NO_MEMORY. */
cellar_status encoder_create(const model *m, const encoder_options *options, encoder **out,
                             cellar_error *error);
void encoder_destroy(encoder *e); /* NULL is allowed */

/* Of its memory and of the encodings it keeps, now. */
uint64_t encoder_bytes(const encoder *e);

/*
 * Read the texts of a batch: their tokens, embedded, are in c->x, in the order of the batch; c's other
 * buffers are used, its place and memory are set here. Tokens of one text follow each other in the batch, and
 * stand in the same sequences, each of which has one text in it. CELLAR_FULL: no room, error->at
 * tokens too many; CELLAR_INVALID, CELLAR_NO_MEMORY; CELLAR_REFUSED: stopped.
 */
cellar_status encoder_read(encoder *e, block_context *c, const cellar_batch *batch,
                           cellar_error *error);

/* The encoding of a sequence; NULL: it has none. Valid until it is replaced or forgotten. */
const block_encoding *encoder_find(const encoder *e, cellar_seq seq);

/*
 * From now on `to` holds the encoding that `from` holds, and not its own. CELLAR_NOT_FOUND: `from` has
 * none; CELLAR_NO_MEMORY.
 */
cellar_status encoder_share(encoder *e, cellar_seq from, cellar_seq to, cellar_error *error);

/* A sequence without an encoding is no error. */
void encoder_forget(encoder *e, cellar_seq seq);

#endif /* APP_ENCODER_H */
