/*
 * attention_matrix.h: what the parts of the attention matrix share.
 *
 *   attention_matrix_layer.c   features, shapes and types, and the layer that has them
 *   attention_matrix_lab.c     a memory beside the model: every action is done on both
 *   attention_matrix_story.c   the situations, as lists of actions
 *   attention_matrix_equal.c   equal bits, and NaN that must not spread
 *   attention_matrix_wrong.c   references that are wrong on purpose
 *   attention_matrix.c         which combinations are run; the program
 *
 * Everything follows from the seed of a case. What goes wrong is counted and described in the lab;
 * running out of memory ends the program.
 */
#ifndef ATTENTION_MATRIX_H
#define ATTENTION_MATRIX_H

#include "model/attention_model.h"
#include "model/drive.h"
#include "model/row_model.h"

/* ---- cases ----------------------------------------------------------------------------------- */

/* Each: name, text for messages. */
#define FEATURES(X)                                                                                \
    X(PLAIN, "plain")                                                                              \
    X(WINDOW, "standard window")                                                                   \
    X(CHUNKED, "chunked window")                                                                   \
    X(SYMMETRIC, "symmetric window")                                                               \
    X(KEPT, "window with sinks kept")                                                              \
    X(NOT_CAUSAL, "not causal")                                                                    \
    X(SYMMETRIC_NOT_CAUSAL, "symmetric window, not causal")                                        \
    X(ALIBI, "ALiBi")                                                                              \
    X(SOFTCAP, "soft cap")                                                                         \
    X(SINKS, "learned sinks")                                                                      \
    X(BUCKETS_ONE, "buckets, one direction")                                                       \
    X(BUCKETS_BOTH, "buckets, both directions")                                                    \
    X(MROPE_TEXT, "M-RoPE, text")                                                                  \
    X(MROPE_IMAGE, "M-RoPE, images")                                                               \
    X(ROPE_INSIDE, "rotation inside the head")                                                     \
    X(YARN, "YaRN and factors")                                                                    \
    X(V_IN_K, "V in K")                                                                            \
    X(READS_LAYER, "reads another layer")                                                          \
    X(HADAMARD_K, "Hadamard K")                                                                    \
    X(HADAMARD_V, "Hadamard V")                                                                    \
    X(HADAMARD_BOTH, "Hadamard K and V")

typedef enum feature {
#define FEATURE_ENUM(name, text) FEATURE_##name,
    FEATURES(FEATURE_ENUM)
#undef FEATURE_ENUM
        FEATURE_KINDS
} feature;

#define SITUATIONS(X)                                                                              \
    X(BATCH, "one batch")                                                                          \
    X(UBATCHES, "micro-batches")                                                                   \
    X(DECODE, "one by one")                                                                        \
    X(SHIFTED, "after shifts")                                                                     \
    X(DIVIDED, "after a division")                                                                 \
    X(FORKED, "forked and diverged")                                                               \
    X(SCATTERED, "interleaved and scattered")                                                      \
    X(WORKERS, "several workers")

typedef enum situation {
#define SITUATION_ENUM(name, text) SITUATION_##name,
    SITUATIONS(SITUATION_ENUM)
#undef SITUATION_ENUM
        SITUATION_KINDS
} situation;

extern const char *const feature_names[FEATURE_KINDS];
extern const char *const situation_names[SITUATION_KINDS];

enum { HEADS = 4, SIZES = 8 };
extern const uint32_t matrix_heads[HEADS][2]; /* query heads, K/V heads */
extern const uint32_t matrix_sizes[SIZES][2]; /* k_size, v_size */

typedef struct matrix_case {
    feature first, second; /* the same: only one */
    cellar_type k_type, v_type;
    uint32_t heads, sizes; /* indices */
    situation situation;
    uint64_t seed;
    bool is_scalar; /* kernels */
} matrix_case;

/* Can two features be in one layer? */
bool matrix_is_pair(feature a, feature b);

/* Do the types go with the head sizes? */
bool matrix_takes(uint32_t sizes, cellar_type k_type, cellar_type v_type);

/* The layers of a case, and the arrays that they point to. */
typedef struct matrix_layers {
    cellar_layer layer[DRIVE_LAYERS];
    uint32_t n;
    uint32_t target; /* the layer that the case is about */
    bool has_points; /* tokens come as images too */
    float *sinks, *bias, *factors;
} matrix_layers;

/* False: this shape cannot have the feature. Release it in any case. */
bool matrix_make_layers(const matrix_case *c, matrix_layers *out);
void matrix_free_layers(matrix_layers *layers);

/* ---- the lab --------------------------------------------------------------------------------- */

enum { LAB_TOKENS = 400, LAB_SEQUENCES = 8 };

/* How a history is run. What a query gets must not depend on any of it but n_ubatch, and on that
 * only in layers that are not causal. */
typedef struct lab_way {
    uint32_t n_cells, n_ubatch, n_workers, piece; /* piece: most tokens in a batch; 0: all */
    cellar_split split;
    bool is_window_full;
    bool is_cluttered; /* other sequences leave holes in the pool first */
    bool is_scalar;
    uint32_t n_compared; /* queries of a step that are compared with the model, about */
} lab_way;

typedef struct lab_token {
    cellar_pos stored_pos;
    cellar_point point;            /* distance from the position */
    bool is_poison;                /* its rows are NaN */
    uint32_t serial;               /* of the micro-batch in which it was computed, over all steps */
    attention_model_stored stored; /* of the target; k NULL: not made yet */
} lab_token;

typedef struct lab_entry {
    uint32_t token;
    cellar_pos pos;
} lab_entry;

typedef struct lab_sequence {
    lab_entry entries[LAB_TOKENS];
    uint32_t n;
} lab_sequence;

typedef struct lab {
    matrix_layers *layers;
    cellar_layer model; /* the target as the reference takes it; the same unless a test spoils it */
    lab_way way;
    uint64_t seed;   /* of rows */
    uint64_t chance; /* state: which queries are compared */
    cellar_memory *memory;
    lab_token *tokens;       /* [LAB_TOKENS] */
    lab_sequence *sequences; /* [LAB_SEQUENCES] */
    float *results;          /* [LAB_TOKENS][out_size]: what each token's query got */
    size_t out_size;
    double worst; /* difference / bound */
    uint32_t n_compared, n_wrong, n_ubatches;
    char message[300]; /* of the first thing wrong */
} lab;

/* layers must outlive it. */
void lab_open(lab *l, matrix_layers *layers, const lab_way *way, uint64_t seed);
void lab_close(lab *l);

/* Something is wrong. */
void lab_note(lab *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * n[i] tokens first[i], first[i] + 1, ... go to the end of seqs[i], taken in turns, in batches of
 * at most way.piece tokens. Positions and points follow from the token before and the token's id.
 */
void lab_append_many(lab *l, const cellar_seq *seqs, const uint32_t *first, const uint32_t *n,
                     uint32_t n_seqs);
void lab_append(lab *l, cellar_seq seq, uint32_t first, uint32_t n);

/* The same in batches of one token. */
void lab_append_singly(lab *l, cellar_seq seq, uint32_t first, uint32_t n);

void lab_remove(lab *l, cellar_seq seq, cellar_pos p0, cellar_pos p1);
void lab_copy(lab *l, cellar_seq from, cellar_seq to, cellar_pos p0, cellar_pos p1);
void lab_shift(lab *l, cellar_seq seq, cellar_pos p0, cellar_pos p1, cellar_pos delta);
void lab_divide(lab *l, cellar_seq seq, cellar_pos p0, cellar_pos p1, cellar_pos divisor);

/* The position after the last one that a sequence holds. */
cellar_pos lab_next(const lab *l, cellar_seq seq);

/* Did the query of token `at` see token `key` of the same sequence? Nothing was moved since. */
bool lab_sees(const lab *l, uint32_t at, uint32_t key);

/* ---- stories --------------------------------------------------------------------------------- */

/* How the situation of a case is run by default. */
lab_way story_way(const matrix_case *c);

/* Live through the situation. */
void story_run(lab *l, const matrix_case *c);

/* ---- tests ----------------------------------------------------------------------------------- */

typedef struct matrix_totals {
    uint32_t passed, failed, skipped;
    uint32_t n_compared;
    double worst;
} matrix_totals;

/* Print a case that failed, with the worst ratio and the first thing wrong. */
void matrix_report(const matrix_case *c, const char *what, const lab *l);

/* Equal bits however a history was run. */
void equal_run(uint64_t seed, uint32_t repeat, matrix_totals *totals);

/* NaN stays where it was. */
void poison_run(uint64_t seed, matrix_totals *totals);

/* A reference that is wrong in one thing is told from the library. */
void wrong_run(uint64_t seed, matrix_totals *totals);

#endif /* ATTENTION_MATRIX_H */
