/*
 * differential.h: what the parts of the differential test share. differential.c makes lists of
 * operations, runs them in child processes and shortens those that fail. differential_config.c
 * chooses a memory for a round, differential_round.c and differential_step.c carry one list out on
 * the library and on the model, differential_learn.c and differential_compare.c compare.
 *
 * An operation is a kind and a seed: its arguments are drawn when it is carried out, from the seed
 * and from what the model holds at that moment. So a list stays meaningful when operations are
 * taken out of it, which is what shortening needs. Comparing stops at the first difference
 * (round.failed).
 */
#ifndef DIFFERENTIAL_H
#define DIFFERENTIAL_H

#include <stdio.h>

#include "model/attention_model.h"
#include "model/drive.h"
#include "model/memory_model.h"

typedef enum operation_kind {
    OPERATION_STEP,
    OPERATION_REMOVE,
    OPERATION_COPY,
    OPERATION_KEEP,
    OPERATION_SHIFT,
    OPERATION_SHIFT_CONTEXT,
    OPERATION_CLEAR,
    OPERATION_CONTINUE,
    OPERATION_READ,
    OPERATION_DIVIDE,
    OPERATION_REWIND,
    OPERATION_CHECKPOINT,
    OPERATION_DROP_CHECKPOINTS,
    OPERATION_KINDS
} operation_kind;

extern const char *const operation_names[OPERATION_KINDS];

typedef struct operation {
    operation_kind kind;
    uint64_t seed;
} operation;

/* Which groups and pools the memory of a round has. */
typedef enum round_shape {
    SHAPE_PLAIN,      /* full attention, one pool */
    SHAPE_POOLS,      /* full attention, several pools */
    SHAPE_WINDOW,     /* full attention and windows */
    SHAPE_WINDOWS,    /* windows alone */
    SHAPE_RECURRENT,  /* states alone */
    SHAPE_HYBRID,     /* full attention and states */
    SHAPE_POINTS,     /* M-RoPE, full attention and perhaps a window */
    SHAPE_EVERYTHING, /* full attention, windows, states, one or two pools */
    SHAPE_KINDS,
    SHAPE_ANY = SHAPE_KINDS /* chosen by the seed */
} round_shape;

extern const char *const shape_names[SHAPE_KINDS];

/* What happened, added up over all rounds: shows that the interesting cases were met. */
#define TALLIES(X)                                                                                 \
    X(OPERATIONS, "operations")                                                                    \
    X(COMMITS, "commits")                                                                          \
    X(ABORTS, "aborts")                                                                            \
    X(FULL, "full")                                                                                \
    X(REFUSED, "refused")                                                                          \
    X(INVALID, "invalid")                                                                          \
    X(BUSY, "busy")                                                                                \
    X(REPLAY, "replay")                                                                            \
    X(NOT_FOUND, "not found")                                                                      \
    X(FILLED, "filled pools")                                                                      \
    X(SHARED, "shared")                                                                            \
    X(SHIFTED, "shifted")                                                                          \
    X(TOGETHER, "tokens in several sequences")                                                     \
    X(ATTENDED, "attention results")                                                               \
    X(WINDOWED, "attention results in windows")                                                    \
    X(ROWS, "rows read")                                                                           \
    X(STATES, "states compared")                                                                   \
    X(RECOMPUTED, "states recomputed")                                                             \
    X(RECLAIMED, "positions given up")                                                             \
    X(REUSED, "given up in their own step")                                                        \
    X(BEHIND_WINDOW, "steps refused behind a window")                                              \
    X(EXACT_BOUNDS, "rewind bounds after a gap")                                                   \
    X(ROLLBACKS, "ends removed to a kept state")                                                   \
    X(STATE_REFUSALS, "refused for a state")                                                       \
    X(STATES_FULL, "no room in a window or for a state")                                           \
    X(CHECKPOINTS_MADE, "checkpoints made")                                                        \
    X(CHECKPOINTS_MARKED, "checkpoints made by a batch")                                           \
    X(CHECKPOINTS_DROPPED, "checkpoints thinned out")                                              \
    X(CHECKPOINTS_SHARED, "checkpoints shared")                                                    \
    X(RETURNS, "returns to a checkpoint")                                                          \
    X(REWINDS, "rewinds")                                                                          \
    X(REPLAYS, "rewinds that have to read again")                                                  \
    X(POOL_COPIES, "copies between pools")                                                         \
    X(POINTS, "tokens with points")                                                                \
    X(SAME_PLACE, "tokens sharing a position")                                                     \
    X(DIVISIONS, "divisions")                                                                      \
    X(EQUAL, "equal splits of several sequences")                                                  \
    X(BY_SEQUENCE, "splits by sequence")                                                           \
    X(CUT_BETWEEN, "batches cut out of order")

typedef enum tally_kind {
#define TALLY_ENUM(name, text) TALLY_##name,
    TALLIES(TALLY_ENUM)
#undef TALLY_ENUM
        TALLY_KINDS
} tally_kind;

extern const char *const tally_names[TALLY_KINDS];

typedef struct outcome {
    bool failed;
    uint32_t at; /* index of the operation that failed */
    char message[400];
    uint64_t tally[TALLY_KINDS];
} outcome;

#define ROUND_SEQUENCES 8

/* How a list is carried out. */
typedef struct round_options {
    uint64_t seed;        /* chooses the configuration */
    round_shape shape;    /* or SHAPE_ANY */
    uint32_t n_cells;     /* 0: chosen by the seed */
    uint32_t n_sequences; /* 1..ROUND_SEQUENCES, 0: chosen by the seed */
    bool is_sabotaged;    /* the model forgets some removals: the test must notice */
    FILE *log;            /* every operation in words, or NULL */
} round_options;

/* What the present operation is free to do, beside what it was asked for. */
typedef struct round_permit {
    bool is_step;                                /* a step, ended one way or the other */
    bool is_commit;                              /* it was committed */
    uint32_t wanted[MODEL_GROUPS][MODEL_POOLS];  /* cells it asked for */
    uint32_t used[MODEL_GROUPS][MODEL_POOLS];    /* cells in use before */
    bool gave_up_together;                       /* tokens that share a position */
    bool is_short_of_states;                     /* older ones of the step may not be kept */
    cellar_seq returned;                         /* a sequence that was cut at its end; -1 */
    cellar_seq copied_to;                        /* from another pool; -1 */
    bool must_continue;                          /* and it must be able to go on from there */
    cellar_pos next_before[ROUND_SEQUENCES + 1]; /* by name */
    uint32_t n_before[ROUND_SEQUENCES + 1];      /* entries; a step puts its own behind them */
} round_permit;

typedef struct diff_round {
    round_options options;
    round_shape shape;
    drive d;
    uint32_t state_sizes[2];
    cellar_split split;
    uint64_t checkpoint_bytes;
    uint32_t mask_layer; /* its keys are zero and its values +-1: a result is a mean, masks show */
    memory_model model;
    drive_snapshot before, after;         /* before and after the present operation */
    uint32_t *slot_of_real[MODEL_GROUPS]; /* [n_real] which of the model's slots a cell is */
    uint32_t n_real[MODEL_GROUPS];
    uint32_t model_group[DRIVE_GROUPS]; /* of a group of the library */
    round_permit permit;
    cellar_seq names[ROUND_SEQUENCES];
    uint32_t n_names;
    uint64_t random; /* the present operation's */
    uint64_t rows_written, reclaimed_before;
    outcome *out;
} diff_round;

/* Carry out n operations. */
void round_run(const round_options *options, const operation *list, uint32_t n, outcome *out);

/* ---- shared by differential_round.c and differential_step.c ---------------------------------- */

/* Note a difference; the first one counts. Always false. */
bool round_fail(diff_round *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Check what a call returned and wrote in its error (NULL: none was passed) against the model. */
bool round_judge(diff_round *r, const char *call, cellar_status got, cellar_status expected,
                 const cellar_error *error, int64_t at);

/* The same where the model allows more than one status. */
bool round_judge_verdict(diff_round *r, const char *call, cellar_status got, model_verdict verdict,
                         const cellar_error *error);

/* Choose and make the memory of the round. */
bool round_open(diff_round *r);

/* Take a picture and learn from it what the library was free to choose. */
bool round_learn(diff_round *r);

/* Are the checkpoints where they may and must be, and do they hold the right states? */
bool round_match_checkpoints(diff_round *r);

/* Are the states that a sequence holds what reading its tokens gives? */
bool round_match_state(diff_round *r, const model_sequence *sequence, uint32_t entry,
                       uint32_t state);

/* Compare everything visible; remember it in r->after. */
bool round_compare(diff_round *r);

/* After a call that failed or a step that was aborted: is everything as in r->before? */
bool round_unchanged(diff_round *r, const char *call);

void round_log(diff_round *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

cellar_seq round_pick_sequence(diff_round *r);

/* Rows of the token that the model calls `id`; see mask_layer. */
void round_fill_row(const diff_round *r, uint32_t layer, drive_row what, uint64_t id, float *to);

/* The operation OPERATION_STEP. */
void round_step(diff_round *r);

/* ---- a step: differential_step.c, differential_batch.c, differential_attend.c ---------------- */

/* A batch with room for its arrays, and what the model says about it. */
typedef struct trial {
    cellar_batch batch;
    cellar_token *tokens;
    cellar_pos *given;     /* positions as handed over */
    cellar_pos *positions; /* where they stand */
    cellar_point *points;
    bool *checkpoints;
    uint32_t *seq_begin;
    cellar_seq *seqs;
    uint32_t *ubatch_of;                 /* [n_tokens] filled when the step is open */
    float (*states)[MODEL_STATE_FLOATS]; /* [n_tokens] after each token */
    uint32_t *stored;                    /* [n_layers] micro-batches stored so far */
    uint64_t first_id;                   /* token i's rows are named first_id + i */
    bool is_tight;                       /* a window group may have to reuse cells on the way */
    model_verdict verdict;
} trial;

void trial_draw(diff_round *r, trial *t);
void trial_free(trial *t);

/* Does token i stand in the sequence? */
bool trial_stands_in(const trial *t, uint32_t i, cellar_seq seq);

/* Attend with all queries of a micro-batch and compare with brute force. */
bool trial_attend(diff_round *r, const trial *t, uint32_t u, uint32_t layer);

/* Rows of a micro-batch behind each other, `row` numbers each. */
float *trial_rows(const diff_round *r, const trial *t, const cellar_ubatch *ubatch, uint32_t layer,
                  drive_row what, size_t row);

/* Compute a recurrent layer's states of a micro-batch as an engine would. */
bool trial_compute_states(diff_round *r, const trial *t, uint32_t u, uint32_t layer);

#endif /* DIFFERENTIAL_H */
