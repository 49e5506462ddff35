/*
 * model.h: a model file turned into blocks that can be computed.
 *
 * model_load reads the metadata, checks every number against its bounds and every tensor against
 * the shape that follows from them, and fills the structs of block.h. The architecture is a row in
 * a table (model_arch.h): a GGUF name, a function that loads, and one that runs the layers; a new
 * one is a file arch_<name>.c with those two functions and a line in the table. Most are variants
 * of the transformer (transformer.h) and only fill in its parts.
 *
 * A model is read-only after loading: any number of engines and threads may use one. Matrices stay
 * in the file's mapping, which gguf.h aligns; vectors are kept as f32.
 *
 * Refusals name the key or tensor, what was expected and what was found. error->at is the value's
 * offset in the file where there is one. CELLAR_CORRUPT: the file contradicts itself or leaves the
 * bounds. CELLAR_UNSUPPORTED: a good file that this program cannot run.
 */
#ifndef APP_MODEL_H
#define APP_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/block.h"
#include "engine/gguf.h"

#define MODEL_MAX_LAYERS 512u
#define MODEL_MAX_EMBD (1u << 20)  /* width of the residual stream */
#define MODEL_MAX_FF (1u << 24)    /* width inside a feed-forward block */
#define MODEL_MAX_HEADS 65536u     /* of one layer */
#define MODEL_MAX_HEAD_SIZE 65536u /* elements of a K or V head */

typedef struct model model;

/* How one architecture is loaded and run. */
typedef struct model_architecture {
    const char *name; /* value of general.architecture */
    cellar_status (*load)(model *m, cellar_error *error);
    /* What comes before the first layer of a micro-batch, with the embedded tokens in c->x; may be NULL. */
    void (*begin)(const model *m, const block_context *c);
    /* Take the residual stream c->x of a micro-batch through one layer. */
    cellar_status (*run_layer)(const model *m, uint32_t layer, const block_context *c,
                               cellar_error *error);
    /* Take c->x through one layer of the encoder; NULL: the architecture has none. */
    cellar_status (*run_encoder_layer)(const model *m, uint32_t layer, const block_context *c,
                                       cellar_error *error);
} model_architecture;

/*
 * The half of a model that reads a whole text before the other half (the decoder, model.layers) writes
 * one. Its layers are not causal and remember nothing: what they need of a memory they need while
 * they run.
 */
typedef struct model_encoder {
    uint32_t n_layers;                 /* >= 1 */
    const cellar_layer *memory_layers; /* [n_memory_layers]; several layers may use one */
    uint32_t n_memory_layers;
    block_norm norm;                              /* of what the last layer gives */
    const struct block_cross_attention **readers; /* [n_readers] the decoder's, which read that */
    uint32_t n_readers;
    uint64_t numbers;   /* that an encoding keeps for each token */
    cellar_token start; /* the token that a decoder begins with; -1: the file does not say */
} model_encoder;

struct model {
    const gguf_file *file; /* outlives the model */
    const model_architecture *architecture;
    uint32_t n_vocab;   /* >= 2 */
    uint32_t n_embd;    /* width of the residual stream */
    uint32_t n_layers;  /* 1..MODEL_MAX_LAYERS; the architecture's loader may change it */
    uint32_t n_context; /* tokens it was trained to read at once, >= 1 */

    /* x = embedding_norm(embedding_scale * row of the token) */
    block_weight embedding; /* [n_vocab][n_embd] */
    float embedding_scale;  /* 1 unless the architecture says otherwise */
    block_norm embedding_norm;

    void *layers; /* [n_layers] of the architecture's own type */
    void *parts;  /* whatever else the architecture keeps; NULL */

    model_encoder *encoder; /* NULL: none */

    /* What the memory must know; types are the engine's to choose. A layer may need none, or two. */
    cellar_layer *memory_layers; /* [n_memory_layers], room for 2 * MODEL_MAX_LAYERS */
    uint32_t n_memory_layers;

    /*
     * Divisors of rotations in the place of the layers' own, in memories of at most near_context tokens for
     * a sequence (LongRoPE: arXiv:2402.13753). NULL: none.
     */
    const float *near_divisors;
    uint32_t near_context;

    /* logits = softcap(logit_scale * output * output_norm(x)) */
    block_norm output_norm;
    block_linear output; /* [n_vocab][n_embd]; the embedding's matrix when tied */
    float logit_scale;   /* 1 unless the architecture says otherwise */
    float logit_softcap; /* > 0: softcap * tanh(logit / softcap); 0: none */

    uint64_t scratch; /* numbers for each token that the largest block needs */
    uint64_t kept;    /* and that one layer leaves to those behind it, beside x; 0: none */
    uint32_t longest; /* row of a matrix of quants: what is multiplied with it may be rounded */

    struct model_copy *copies; /* list of everything the model allocated */
    uint64_t copied_bytes;     /* in it */
    struct model_names *taken; /* tensors asked for so far; only while loading */
};

/*
 * Load the model in `file`, which must outlive it. *out is the caller's, for model_free. Also
 * CELLAR_NO_MEMORY.
 */
cellar_status model_load(const gguf_file *file, model **out, cellar_error *error);
void model_free(model *m); /* NULL is allowed */

/* The architectures that are known, as "llama, ...". Static. */
const char *model_architectures(void);

#endif /* APP_MODEL_H */
