/*
 * sequences.h: what can be done to sequences: remove, copy, keep, shift.
 *
 * A sequence is a list of runs; each operation edits the lists of the sequences it names and counts
 * holders up or down for the cells it touches. Nothing else is looked at: not the pool, not other
 * sequences. In particular a shift happens here, in cl_sequences_shift, by adding to `pos` and
 * `shift` of runs; no row is touched.
 *
 * Each operation that can fail is two calls: `prepare` says whether it can be done and reserves the
 * room it needs (all that may remain of a failure is spare room in a list), then the operation
 * itself cannot fail. A memory of several groups prepares all of them before it does any.
 */
#ifndef CL_SEQUENCES_H
#define CL_SEQUENCES_H

#include "cells.h"
#include "sequence_table.h"

/* Which pool a sequence lives in. */
typedef struct cl_pool_rule {
    uint32_t n_pools;                                   /* 1: all in pool 0 */
    uint32_t (*pool_of)(void *context, cellar_seq seq); /* NULL: seq % n_pools */
    void *context;
} cl_pool_rule;

uint32_t cl_pool_rule_apply(const cl_pool_rule *rule, cellar_seq seq);

/* The sequences of one group and the cells they hold. */
typedef struct cl_sequences {
    cl_sequence_table table;
    cl_cells cells;
    cl_pool_rule rule;
    cl_alloc *alloc;
} cl_sequences;

/* Positions [p0, p1); p1 = INT64_MAX: to the end. */
typedef struct cl_range {
    int64_t p0, p1;
} cl_range;

cellar_status cl_sequences_prepare_remove(cl_sequences *sequences, cellar_seq id, cl_range range,
                                          cellar_error *error);
void cl_sequences_remove(cl_sequences *sequences, cellar_seq id, cl_range range);
/* The same, but a list that becomes empty stays, with the room that was reserved in it. */
void cl_sequences_empty(cl_sequences *sequences, uint32_t slot, cl_range range);

/*
 * Within a pool: the cells are shared. `to` may have been made by a prepare that is not followed by the
 * copy: then cancel.
 */
cellar_status cl_sequences_prepare_copy(cl_sequences *sequences, cellar_seq from, cellar_seq to,
                                        cl_range range, cellar_error *error);
void cl_sequences_copy(cl_sequences *sequences, cellar_seq from, cellar_seq to, cl_range range);
void cl_sequences_cancel_copy(cl_sequences *sequences, cellar_seq to);

void cl_sequences_keep(cl_sequences *sequences, cellar_seq id);
void cl_sequences_clear(cl_sequences *sequences);

/*
 * CELLAR_INVALID: a position would exceed INT32_MAX - 1. CELLAR_REFUSED: it would land on others. Positions
 * that were given up behind a window count like those that are held.
 */
cellar_status cl_sequences_prepare_shift(cl_sequences *sequences, cellar_seq id, cl_range range,
                                         int64_t delta, cellar_error *error);
void cl_sequences_shift(cl_sequences *sequences, cellar_seq id, cl_range range, int64_t delta);

/*
 * Positions in the range are divided, rounding down; several tokens may come to share one. CELLAR_REFUSED:
 * they would land on others or pass them. Cost: a run for each token.
 */
cellar_status cl_sequences_prepare_divide(cl_sequences *sequences, cellar_seq id, cl_range range,
                                          int64_t divisor, cellar_error *error);
void cl_sequences_divide(cl_sequences *sequences, cellar_seq id, cl_range range, int64_t divisor);

/*
 * What [p0, p1) of a sequence holds is replaced by other runs, whose cells are counted already: the
 * last step of a copy. Room for n + 2 runs was reserved.
 */
void cl_sequences_replace(cl_sequences *sequences, uint32_t slot, cl_range range,
                          const cl_run *runs, uint32_t n);

/* One holder more, or one less, for every cell of n runs. */
void cl_sequences_hold_runs(cl_sequences *sequences, const cl_run *runs, uint32_t n);
void cl_sequences_release_runs(cl_sequences *sequences, const cl_run *runs, uint32_t n);

/* Runs [*first, *last) of a list overlap the range. */
void cl_sequences_find_range(const cl_runs *runs, cl_range range, uint32_t *first, uint32_t *last);

/* The slot of a sequence, made in its pool if need be. CELLAR_NO_MEMORY. */
cellar_status cl_sequences_add(cl_sequences *sequences, cellar_seq id, uint32_t *slot,
                               cellar_error *error);

/*
 * Room in the list of a sequence's lost positions for one operation, and for `n` more runs. None is needed
 * where nothing is lost.
 */
cellar_status cl_sequences_reserve_lost(cl_sequences *sequences, uint32_t slot, uint64_t n,
                                        cellar_error *error);

/* Room for `n` more runs in a sequence's list. */
cellar_status cl_sequences_reserve(cl_sequences *sequences, uint32_t slot, uint64_t n,
                                   cellar_error *error);

/* Give up a sequence's claim and slot if it holds nothing and has lost nothing. */
void cl_sequences_drop_if_empty(cl_sequences *sequences, uint32_t slot);

/* Make `block` (or CL_NO_BLOCK) what the sequence claims, instead of what it claimed before. */
void cl_sequences_set_claim(cl_sequences *sequences, uint32_t slot, uint32_t block);

#endif /* CL_SEQUENCES_H */
