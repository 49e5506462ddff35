/*
 * differential.h: what the two halves of the differential test share: differential.c makes lists of
 * operations, runs them in child processes and shortens those that fail; differential_round.c and
 * differential_step.c carry one list out on the library and on the model, differential_compare.c
 * compares.
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
    OPERATION_KINDS
} operation_kind;

extern const char *const operation_names[OPERATION_KINDS];

typedef struct operation {
    operation_kind kind;
    uint64_t seed;
} operation;

/* What happened, added up over all rounds: shows that the interesting cases were met. */
typedef enum tally_kind {
    TALLY_OPERATIONS,
    TALLY_COMMITS,
    TALLY_ABORTS,
    TALLY_FULL,
    TALLY_REFUSED,
    TALLY_INVALID,
    TALLY_BUSY,
    TALLY_REPLAY,
    TALLY_NOT_FOUND,
    TALLY_FILLED,   /* a pool without a free cell */
    TALLY_SHARED,   /* states with a shared cell */
    TALLY_SHIFTED,  /* states with a shifted run */
    TALLY_TOGETHER, /* tokens committed into several sequences */
    TALLY_ATTENDED, /* attention results compared */
    TALLY_ROWS,     /* rows read back and compared */
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
    uint32_t n_cells;     /* 0: chosen by the seed */
    uint32_t n_sequences; /* 1..ROUND_SEQUENCES, 0: chosen by the seed */
    bool is_sabotaged;    /* the model forgets some removals: the test must notice */
    FILE *log;            /* every operation in words, or NULL */
} round_options;

typedef struct diff_round {
    round_options options;
    drive d;
    memory_model model;
    drive_snapshot before, after; /* before and after the present operation */
    uint32_t *model_of_real;      /* [n_cells] */
    cellar_seq names[ROUND_SEQUENCES];
    uint32_t n_names;
    uint64_t random; /* the present operation's */
    uint64_t rows_written;
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

/* Compare everything visible; remember it in r->after. */
bool round_compare(diff_round *r);

/* After a call that failed or a step that was aborted: is everything as in r->before? */
bool round_unchanged(diff_round *r, const char *call);

void round_log(diff_round *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

cellar_seq round_pick_sequence(diff_round *r);

/* Rows of the token that the model calls `id`; keys of layer 0 are zero, its values +-1. */
void round_fill_row(const diff_round *r, uint32_t layer, drive_row what, uint64_t id, float *to);

/* The operation OPERATION_STEP. */
void round_step(diff_round *r);

#endif /* DIFFERENTIAL_H */
