/*
 * group.h: layers that remember alike, with the cells, sequences and rows they share.
 *
 * A memory is a list of groups; every operation is asked of all of them (prepare, which may fail and
 * leaves no trace) and then done by all of them (which cannot fail). There are two kinds:
 *
 *   attention   a cell is the K and V rows of a token. Full attention keeps all of them; with a
 *               window, those that no query can see any more are given up when room is needed
 *               (group_attention.c, group_window.c).
 *   recurrent   a cell is a state: what the layers know after the token at its position. A sequence
 *               holds the last few (group_recurrent.c).
 *
 * Both are run lists over counted cells (sequences.h); what differs is which operations a run list
 * can express. A new kind of remembering is a new file here, not a new memory.
 */
#ifndef CL_GROUP_H
#define CL_GROUP_H

#include "placement.h"
#include "sequences.h"
#include "step.h"
#include "storage.h"
#include "sweep.h"
#include "window.h"

/* A sequence of the open step, as this group holds it. */
typedef struct cl_participant {
    uint32_t slot;
    uint32_t old_claim; /* what it claimed before the step */
    uint32_t n_visible; /* pending cells up to the micro-batch being swept */
    bool is_new;        /* made for this step: dropped again by an abort */
    int32_t kept_from; /* window groups: pending tokens below this are given up again (sinks not) */
    cl_runs pending;   /* what a commit appends; lives in the arena */
} cl_participant;

/* Something that the open step took away from its holder to make room: it can be given back. */
typedef struct cl_victim {
    bool is_checkpoint;     /* a run that a checkpoint held; else one that a sequence held */
    bool is_tail;           /* of a run of the sequence whose beginning stays */
    bool is_head;           /* of one whose end stays */
    bool has_joined_before; /* that beginning is a cell that became part of the run before it */
    bool has_joined;        /* that end is a cell that became part of the run behind it */
    uint32_t slot;          /* of the sequence, or of the checkpoint */
    bool was_lost;          /* the run's first position: to other tokens that shared it */
    cl_run run;
} cl_victim;

/* What a cell said of its contents before the open step wrote its own there. */
typedef struct cl_label {
    uint32_t cell;
    int32_t stored_pos, token;
    cl_point point;
} cl_label;

/* The states of one segment of the open step (recurrent groups). */
typedef struct cl_segment_states {
    uint32_t source;       /* CELLAR_NO_STATE: zeros */
    uint32_t first_target; /* into the group's targets and after */
    uint32_t n_targets;
} cl_segment_states;

struct cl_checkpoints;

/* Row moves that wait for an engine with tensors of its own. */
typedef struct cl_moves {
    cellar_move *items;
    uint32_t n, capacity;
    uint64_t n_promised; /* a copy: room that the groups prepared so far may use */
} cl_moves;

/* What one group of a configuration comes to. */
typedef struct cl_group_plan {
    cellar_layer_kind kind;
    cellar_window window;
    bool is_external;
    uint32_t n_layers;
    uint32_t n_rows; /* kinds of rows, or tensors */
    cl_storage_layout layout;
    cl_storage_layout
        engine;             /* the same of what the engine keeps itself: counted, never allocated */
    uint32_t n_blocks;      /* of cells, over all pools */
    uint32_t n_cells;       /* that count, over all pools */
    uint32_t n_rollback;    /* recurrent */
    uint32_t n_pools;       /* the memory's, or 1 */
    uint64_t n_checkpoints; /* that it has room for on top */
    size_t cells_bytes, own_bytes, callers_bytes;
} cl_group_plan;

typedef struct cl_group {
    cellar_layer_kind kind;
    cellar_window window;
    bool is_external;    /* the engine keeps the rows */
    bool is_contiguous;  /* one stretch for each sequence and micro-batch */
    uint32_t index;      /* in the memory */
    cl_group_plan plan;  /* what it was made from */
    uint32_t n_rollback; /* recurrent: states that stay behind the last one */
    cl_sequences sequences;
    cl_storage storage;
    struct cl_checkpoints *checkpoints; /* what to give up last; NULL: there are none */
    cl_moves *moves;                    /* of the memory */
    uint64_t n_reclaimed;               /* cells given up behind windows, by each holder, ever */
    uint64_t n_moved;                   /* cells whose rows were copied to others, ever */
    uint32_t
        unfinished; /* compaction: the cell where a piece that it cut goes on; 0: there is none */
    cl_stretch *copy_stretches; /* where a prepared copy to another pool will go */
    uint32_t n_copy_stretches, copy_capacity;
    int64_t
        copy_kept_from;  /* of the copy, what stands below is left out (sinks not); 0: nothing is */
    uint32_t n_replaced; /* cells given up early, which the copy replaces */
    bool has_copied; /* rows were written, and more may fail: what was given up for it is gone */
    /* the open step */
    uint32_t *cells_of;           /* [n_tokens] the cell of each token (attention) */
    cl_participant *participants; /* [n_members] */
    uint32_t n_participants;      /* 0: no step */
    uint32_t *first_tokens;       /* [n_members + 1] into by_first */
    uint32_t *by_first;           /* [n_tokens] tokens by their first member, in order */
    cl_pool *old_pools;           /* [n_pools] as before the step: hints and counts */
    cl_victim *victims;
    uint32_t n_victims, victim_capacity;
    uint32_t spared_slot; /* nothing is taken from this sequence; CL_NO_SLOT */
    cl_label *labels; /* [n_labels] of cells that were taken from victims, in the order of taking */
    uint32_t n_labels;
    bool is_written;           /* rows of the step are stored: victims cannot be given back */
    bool may_reuse;            /* its own tokens, and checkpoints, may be given up for later ones */
    bool reuses_cells;         /* a later micro-batch uses cells of an earlier one */
    uint64_t n_step_reclaimed; /* cells given up behind windows by this step, if it is committed */
    cl_segment_states *states; /* [n_segments] (recurrent) */
    uint32_t *targets, *after; /* [n_targets] state, tokens of the segment after which it stands */
    uint32_t n_targets;
    uint32_t *transits; /* [n_transits] states that only lead from one micro-batch to the next */
    uint32_t n_transits;
    cl_arena arena, reclaim_arena;
    cl_sweep sweep;
} cl_group;

/* What its cells keep: a state is large, so each has a stamp of its own. */
static inline cl_cells_kind cl_group_cells_kind(cellar_layer_kind kind, bool is_2d)
{
    bool is_recurrent = kind == CELLAR_LAYER_RECURRENT;
    return (cl_cells_kind){is_2d && !is_recurrent, is_recurrent};
}

static inline bool cl_group_has_window(const cl_group *group)
{
    return group->window.kind != CELLAR_WINDOW_NONE;
}

/* What a group is made from. */
typedef struct cl_group_source {
    const cl_group_plan *plan;
    cl_pool *pools; /* [plan->n_pools], their n filled in; the group's from then on */
    cl_pool_rule rule;
    const cl_rows *rows; /* [plan->n_rows] */
    const cellar_row_store *stores;
    uint32_t n_stores;
    bool has_points;
} cl_group_source;

/* CELLAR_NO_MEMORY; then nothing is held. */
cellar_status cl_group_create(cl_group *group, uint32_t index, const cl_group_source *source,
                              cl_alloc *alloc, cellar_error *error);
void cl_group_destroy(cl_group *group);

/* ---- questions ------------------------------------------------------------------------------- */

/* The runs of a sequence; an empty list if it is not there. */
static inline const cl_runs *cl_group_runs(const cl_group *group, cellar_seq seq)
{
    return cl_sequence_table_runs(&group->sequences.table, seq);
}

/* Where a sequence's next token would go as far as this group knows; 0 if it is not there. */
cellar_pos cl_group_next(const cl_group *group, cellar_seq seq);

/*
 * States: the smallest position from which on it can be cut off and go on anywhere; 0: everywhere. (For
 * windows it takes a look at all groups: questions.c.)
 */
cellar_pos cl_group_rewind_min(const cl_group *group, cellar_seq seq);

/*
 * n if the group has what going on at n takes; else the largest smaller position of which that is so. It
 * may have given up n - 1 itself.
 */
cellar_pos cl_group_continue_at(const cl_group *group, cellar_seq seq, cellar_pos n);

/* The largest position up to n whose predecessor the group holds; 0: there is none. */
cellar_pos cl_group_held_place(const cl_group *group, cellar_seq seq, cellar_pos n);

/* Do two sequences hold the same? */
bool cl_group_same_past(const cl_group *group, cellar_seq a, cellar_seq b);

/* ---- operations on sequences: ask all groups, then do ----------------------------------------- */

cellar_status cl_group_prepare_remove(cl_group *group, cellar_seq seq, cl_range range,
                                      cellar_error *error);
void cl_group_remove(cl_group *group, cellar_seq seq, cl_range range);

/*
 * group_copy.c: prepare, then copy the rows (which goes between pools only), then do. A prepare that is not
 * followed by the copy must be cancelled.
 */
cellar_status cl_group_prepare_copy(cl_group *group, cellar_seq from, cellar_seq to, cl_range range,
                                    cellar_error *error);
bool cl_group_can_fail_to_copy(const cl_group *group); /* such groups come first */
cellar_status cl_group_copy_rows(cl_group *group, cellar_seq from, cl_range range,
                                 cellar_error *error);
void cl_group_copy(cl_group *group, cellar_seq from, cellar_seq to, cl_range range);
void cl_group_cancel_copy(cl_group *group, cellar_seq to);

cellar_status cl_group_prepare_shift(cl_group *group, cellar_seq seq, cl_range range, int64_t delta,
                                     cellar_error *error);
void cl_group_shift(cl_group *group, cellar_seq seq, cl_range range, int64_t delta);

cellar_status cl_group_prepare_divide(cl_group *group, cellar_seq seq, cl_range range,
                                      int64_t divisor, cellar_error *error);
void cl_group_divide(cl_group *group, cellar_seq seq, cl_range range, int64_t divisor);

/* ---- a step ---------------------------------------------------------------------------------- */

/*
 * Reserve what the step needs here: cells (or states), and the room for everything that commit and
 * attention will need. On failure all is as before. CELLAR_FULL, CELLAR_NO_MEMORY.
 */
cellar_status cl_group_begin(cl_group *group, const cl_step *step, const cl_rope *ropes,
                             uint32_t n_ropes, cellar_error *error);
void cl_group_commit(cl_group *group, const cl_step *step);
void cl_group_abort(cl_group *group, const cl_step *step);

/* Build the sweep for a micro-batch of the open step, unless it is built (attention). */
void cl_group_sweep(cl_group *group, const cl_step *step, uint32_t ubatch);

/* ---- kinds ------------------------------------------------------------------------------------ */

/* group_attention.c */
cellar_status cl_attention_begin(cl_group *group, const cl_step *step, const cl_rope *ropes,
                                 uint32_t n_ropes, cellar_error *error);
void cl_attention_commit(cl_group *group, const cl_step *step);
void cl_attention_abort(cl_group *group, const cl_step *step);

/*
 * group_window.c: make `missing` more cells of a pool free. Returns how many are still missing; what was
 * taken away is noted as victims. Room for them was reserved by cl_window_reserve.
 */
cellar_status cl_window_reserve(cl_group *group, const cl_step *step, cellar_error *error);
uint32_t cl_window_reclaim(cl_group *group, uint32_t pool, uint32_t missing);
/* Take what a checkpoint holds in this group; the same for its room alone. */
cellar_status cl_window_reserve_pins(cl_group *group, cellar_error *error);
void cl_window_suspend(cl_group *group, uint32_t checkpoint);
/* Before the step writes over what a taken cell says of itself: at most once a token. */
void cl_window_keep_label(cl_group *group, uint32_t cell);
/* Give all victims back, the last first. */
void cl_window_restore(cl_group *group);
/* Cells that sequences were deprived of by the open step. */
uint64_t cl_window_count_taken(const cl_group *group);
/* A sequence loses what it holds before `end`, sinks apart; room for two cuts is needed. How many cells. */
uint32_t cl_window_drop_before(cl_group *group, cl_sequence *sequence, int64_t end);
/*
 * At a commit: where a step has given up its own tokens, what a sequence held before them goes too. Room
 * for a cut is needed.
 */
void cl_window_drop_overrun(cl_group *group, const cl_participant *participant);
/*
 * The same outside of a step, for what is loaded or copied. First what the last step noted is forgotten and
 * room reserved for taking n cells (CELLAR_NO_MEMORY); then up to n cells of a pool are given up, of sequences
 * only, one of which can be spared (CL_NO_SLOT: none is); the rest is returned. In the end either they stay
 * given up, or they are taken back.
 */
void cl_window_forget_step(cl_group *group);
cellar_status cl_window_reserve_give_up(cl_group *group, uint32_t n, cellar_error *error);
uint32_t cl_window_give_up(cl_group *group, uint32_t pool, uint32_t n, uint32_t spared);
/* After that: what checkpoints hold of a pool. Returns how many cells are still missing. */
uint32_t cl_window_take_checkpoints(cl_group *group, uint32_t pool, uint32_t missing);
/* Up to n cells of a run of the spared sequence, unless it needs them. Returns how many. */
typedef struct cl_window_cut {
    uint32_t slot, victim;
    int64_t bound;
} cl_window_cut;
cl_window_cut cl_window_start_cut(const cl_group *group, uint32_t slot);
uint32_t cl_window_cut_oldest(cl_group *group, cl_window_cut *cut, cl_run run, uint32_t n);
/* The first position that a sequence sees which goes on behind `end`, sinks apart. */
int64_t cl_window_first_seen(const cl_group *group, int64_t end);
void cl_window_keep_given_up(cl_group *group);
void cl_window_take_back(cl_group *group);

/* group_recurrent.c */
cellar_status cl_recurrent_begin(cl_group *group, const cl_step *step, cellar_error *error);
void cl_recurrent_commit(cl_group *group, const cl_step *step);
void cl_recurrent_abort(cl_group *group, const cl_step *step);
/* After a commit, when checkpoints have taken what they keep: drop states that are too old. */
void cl_recurrent_trim(cl_group *group);
cellar_status cl_recurrent_prepare_remove(cl_group *group, cellar_seq seq, cl_range range,
                                          cellar_error *error);
cellar_status cl_recurrent_prepare_copy(cl_group *group, cellar_seq from, cellar_seq to,
                                        cl_range range, cellar_error *error);
void cl_recurrent_copy(cl_group *group, cellar_seq from, cellar_seq to, cl_range range);
cellar_status cl_recurrent_prepare_shift(cl_group *group, cellar_seq seq, cl_range range,
                                         int64_t delta, cellar_error *error);
void cl_recurrent_shift(cl_group *group, cellar_seq seq, cl_range range, int64_t delta);
cellar_status cl_recurrent_prepare_divide(cl_group *group, cellar_seq seq, cl_range range,
                                          cellar_error *error);

#endif /* CL_GROUP_H */
