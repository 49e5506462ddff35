/*
 * support_model.h: make tiny llama models for tests, right ones and wrong ones.
 *
 *     fixture_shape shape = fixture_default();
 *     shape.weight_type = CL_WEIGHT_Q8_0;
 *     fixture made = fixture_create(&shape);
 *     ... made.file ...
 *     fixture_destroy(&made);
 *
 * Weights are random, from a fixed generator, so the same shape is always the same model. A key or
 * tensor can be replaced by one that is wrong. For tests only: without memory the program ends with
 * a message.
 *
 * fixture_logits computes what the model must give, in double, as plainly as it can be written: a
 * loop over all tokens, no cache, no threads. It reads the same file, through gguf.h alone.
 */
#ifndef TESTS_SUPPORT_MODEL_H
#define TESTS_SUPPORT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/gguf.h"
#include "gguf_writer.h"

typedef enum fixture_kind {
    FIXTURE_NOTHING, /* leave the key out */
    FIXTURE_U32,
    FIXTURE_I32,
    FIXTURE_FLOAT,
    FIXTURE_TEXT,
    FIXTURE_U32_ARRAY,
    FIXTURE_FLOAT_ARRAY /* [count], all elements `number` but the last, `last` */
} fixture_kind;

/* A key that replaces the model's own, or is added. */
typedef struct fixture_key {
    const char *key;
    fixture_kind kind;
    double number, last;
    const char *text;
    uint32_t count;
} fixture_key;

/* A tensor that replaces the model's own, or is added: zeros of type F32 unless given. */
typedef struct fixture_tensor {
    const char *name;
    bool is_left_out;
    uint32_t type, n_dims;
    uint64_t dims[4];
} fixture_tensor;

typedef struct fixture_shape {
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, k_size, v_size, n_ff, n_context;
    uint32_t n_rot;       /* 0: the key is left out */
    uint32_t weight_type; /* CL_WEIGHT_* of matrices */
    bool has_output, has_biases, has_factors;
    uint64_t seed;
    const fixture_key *keys; /* [n_keys] */
    uint32_t n_keys;
    const fixture_tensor *tensors; /* [n_tensors] */
    uint32_t n_tensors;
} fixture_shape;

typedef struct fixture {
    unsigned char *bytes; /* [size] the file */
    size_t size;
    gguf_file *file;
} fixture;

#define FIXTURE_VOCABULARY 264u /* <unk> <s> </s>, 256 byte tokens, 5 pieces */

/* 2 layers, width 32, 4 heads over 2, head size 8, F32, tied. */
fixture_shape fixture_default(void);

fixture fixture_create(const fixture_shape *shape);
void fixture_destroy(fixture *made);

/* How far rotations go, for fixture_logits: what the keys say, given once more by the test. */
typedef struct fixture_rope {
    uint32_t n_rot;
    double base, scale;             /* scale: 1 / factor */
    double yarn_context, magnitude; /* 0: no YaRN; the magnitude of q and of k */
} fixture_rope;

fixture_rope fixture_default_rope(const fixture_shape *shape);

/* logits [n][FIXTURE_VOCABULARY] after each of tokens [n], all in one sequence from position 0. */
void fixture_logits(const fixture_shape *shape, const fixture_rope *rope, const gguf_file *file,
                    const int32_t *tokens, uint32_t n, double *logits);

#endif /* TESTS_SUPPORT_MODEL_H */
