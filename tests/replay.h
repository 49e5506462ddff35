/*
 * replay.h: the parts of the replayer: a trace as jansson read it, a run, and what came of it.
 *
 * replay.c reads the command line and the trace, replay_steps.c does the steps of a run,
 * replay_compare.c says how near the logits are and have to be, replay_rounding.c makes products
 * that round as the reference does, replay_table.c sums up what was seen.
 */
#ifndef TESTS_REPLAY_H
#define TESTS_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "engine/engine.h"

/* How a run's memory is made, from `configs` of the trace. */
typedef struct replay_config {
    const char *id;
    uint32_t n_cells, n_ubatch, n_sequences;
    uint32_t n_pools; /* a stream for each sequence: as many as sequences */
    cellar_type k_type, v_type;
    bool is_window_full; /* window layers sized as full ones */
} replay_config;

typedef struct replay_settings {
    uint32_t n_threads, cpu_mask;
    bool is_exact;   /* do not round activations as the reference does */
    bool is_verbose; /* a line for each step */
} replay_settings;

typedef struct replay_outcome {
    enum { REPLAY_PASSED, REPLAY_FAILED, REPLAY_SKIPPED } what;
    double worst;         /* difference, in standard deviations of the reference's row */
    uint32_t n_positions; /* rows of logits compared */
    uint32_t n_wrong;     /* not compared, because the reference is known to be wrong */
    uint32_t n_steps;     /* done and checked */
    char reason[320];     /* why it failed or was skipped */
} replay_outcome;

/*
 * Read the configuration of a run from the trace. False: the run cannot be replayed, `outcome` says
 * why (skipped, or failed if the trace makes no sense).
 */
bool replay_read_config(const json_t *trace, const json_t *run, replay_config *out,
                        replay_outcome *outcome);

/* How far logits may be from the reference, in standard deviations (replay_compare.c). */
double replay_bar(const model *m, const replay_config *config, bool is_exact);

/*
 * Products that first round the activations as the reference does: to binary16 for F16 weights, to
 * blocks of Q8_0 for Q8_0 weights. The product itself is the real kernel's (replay_rounding.c).
 */
void replay_rounding_fill(cl_matmul_table *table, uint32_t cpu_mask);

/* Functions of feed-forward blocks that round as the reference does: engine_options.activations. */
const block_activation_function *replay_rounding_activations(uint32_t cpu_mask);

/* Do all steps of a run on a fresh memory. */
void replay_run(const model *m, const replay_config *config, const json_t *run,
                const replay_settings *settings, replay_outcome *outcome);

/*
 * Compare a row of logits with the reference (numbers, or null for what is not finite). Returns the
 * largest difference in standard deviations of the reference; INFINITY when one is finite and the
 * other is not, or the lengths differ.
 */
double replay_compare(const float *logits, uint32_t n, const json_t *reference);

/* The worst differences seen, by kind of run and by row types. All zero: empty. */
#define REPLAY_TABLE_SIZE 32
#define REPLAY_TABLE_NAME 24

typedef struct replay_table {
    uint32_t n_runs, n_rows;
    char runs[REPLAY_TABLE_SIZE][REPLAY_TABLE_NAME];
    char rows[REPLAY_TABLE_SIZE][REPLAY_TABLE_NAME]; /* K/V */
    double worst[REPLAY_TABLE_SIZE][REPLAY_TABLE_SIZE];
    bool is_there[REPLAY_TABLE_SIZE][REPLAY_TABLE_SIZE];
    bool is_cut; /* something had no room */
} replay_table;

void replay_table_add(replay_table *table, const char *run, const replay_config *config,
                      double worst);
void replay_table_print(const replay_table *table); /* nothing if it is empty */

/* Note a failure, if it is the first. */
void replay_fail(replay_outcome *outcome, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif /* TESTS_REPLAY_H */
