/*
 * checkpoints.h: places to which a sequence can return.
 *
 * A checkpoint at position n keeps, for every group that cannot be rewound at will, what going on at n
 * needs: the runs of a window, the state. It holds their cells (one count each), so nothing is copied
 * and neighbours share. A checkpoint is itself a counted thing: it has a slot, sequences hold slots at
 * positions (n - 1, the last token read), in run lists over cells like everywhere else. So forking,
 * removing and forgetting are the same operations as on tokens, and a checkpoint whose last holder lets
 * go gives up its cells.
 *
 * When a group lacks room, the checkpoint goes whose loss widens the gap between its neighbours least in
 * proportion to its distance from the end. A step that gives one up only suspends it, so that an abort
 * can bring it back.
 */
#ifndef CL_CHECKPOINTS_H
#define CL_CHECKPOINTS_H

#include "group.h"

#define CL_NO_CHECKPOINT UINT32_MAX

/* What a checkpoint holds in one group. */
typedef struct cl_pin {
    cl_runs runs;
} cl_pin;

typedef struct cl_checkpoints {
    cl_sequences sequences; /* who holds which; a "cell" is a checkpoint's slot */
    cl_pool pool;
    cl_group *groups;
    uint32_t n_groups;
    uint32_t n;           /* slots; 0: no group needs checkpoints */
    cl_pin *pins;         /* [n][n_groups] */
    bool *is_live;        /* [n] its pins are filled in */
    uint32_t *suspended;  /* [n] bit g: the open step took what it holds in group g */
    uint32_t interval;    /* make one every so many positions; 0: only when told */
    uint64_t n_dropped;   /* for want of room, ever */
    bool has_empty_lists; /* of sequences that have lost their last one */
    /* those that the open step will make if it is committed, from its end backwards */
    uint32_t *planned;      /* [n] tokens after which they stand */
    cl_runs *planned_lists; /* [n][n_groups] room for what they will hold */
    uint32_t n_planned;
} cl_checkpoints;

bool cl_checkpoints_measure(uint32_t n, uint32_t n_groups, size_t *bytes);

/* False: no memory; nothing is held. n may be 0. */
bool cl_checkpoints_create(cl_checkpoints *checkpoints, uint32_t n, uint32_t interval,
                           cl_group *groups, uint32_t n_groups, cl_alloc *alloc);
void cl_checkpoints_destroy(cl_checkpoints *checkpoints);

/* The slot of the last checkpoint of a sequence at or before position n (*at), or CL_NO_CHECKPOINT. */
uint32_t cl_checkpoints_find(const cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n,
                             cellar_pos *at);

/* Make one at the end of a sequence that holds something and can go on. CELLAR_FULL,
 * CELLAR_NO_MEMORY. */
cellar_status cl_checkpoints_make(cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n,
                                  cellar_error *error);

/*
 * Make a sequence in one group what the checkpoint holds there. The first reserves room in every group
 * that cannot go on at the checkpoint's position by itself, the second cannot fail.
 */
cellar_status cl_checkpoints_prepare_return(cl_checkpoints *checkpoints, cellar_seq seq,
                                            uint32_t checkpoint, cellar_error *error);
void cl_checkpoints_return(cl_checkpoints *checkpoints, uint32_t group, cellar_seq seq,
                           uint32_t checkpoint);

/* What operations on sequences do to their checkpoints. Prepare may fail; the rest cannot. */
cellar_status cl_checkpoints_prepare_copy(cl_checkpoints *checkpoints, cellar_seq from,
                                          cellar_seq to, cl_range range, cellar_error *error);
void cl_checkpoints_copy(cl_checkpoints *checkpoints, cellar_seq from, cellar_seq to,
                         cl_range range);
void cl_checkpoints_cancel_copy(cl_checkpoints *checkpoints, cellar_seq to);
/* Everything from p0 on has changed: forget the checkpoints behind it. */
void cl_checkpoints_forget(cl_checkpoints *checkpoints, cellar_seq seq, int64_t p0);
void cl_checkpoints_keep(cl_checkpoints *checkpoints, cellar_seq seq);
void cl_checkpoints_clear(cl_checkpoints *checkpoints);
/* Forget those that stand at positions in the range. */
void cl_checkpoints_drop(cl_checkpoints *checkpoints, cellar_seq seq, cl_range range);

/* ---- a step ---------------------------------------------------------------------------------- */

/* Choose the places of a step after which checkpoints will be made, if there is room. */
void cl_checkpoints_begin(cl_checkpoints *checkpoints, const cl_step *step);
/* All groups have begun: reserve what filling them in takes. CELLAR_NO_MEMORY. */
cellar_status cl_checkpoints_reserve(cl_checkpoints *checkpoints, const cl_step *step,
                                     cellar_error *error);
/* All groups have committed: make the planned ones, forget the suspended ones. */
void cl_checkpoints_commit(cl_checkpoints *checkpoints, const cl_step *step);
/* All groups have aborted: forget those from which a group took what it could not give back. */
void cl_checkpoints_abort(cl_checkpoints *checkpoints, const cl_step *step);

/* Is a checkpoint planned after this token? For groups that must keep a state there. */
bool cl_checkpoints_is_planned(const cl_checkpoints *checkpoints, uint32_t token);
/* The group found no room for it. */
void cl_checkpoints_cancel_planned(cl_checkpoints *checkpoints, uint32_t token);

/*
 * The next checkpoint that should go when `group` lacks cells of `pool`, among those that hold cells there
 * and are not suspended; CL_NO_CHECKPOINT: none.
 */
uint32_t cl_checkpoints_least(const cl_checkpoints *checkpoints, uint32_t group, uint32_t pool);

/* Forget all that something was taken from: outside of a step, what a copy took for good. */
void cl_checkpoints_drop_suspended(cl_checkpoints *checkpoints);

/* The open step takes what a checkpoint holds in a group (the caller releases it); or gives it back. */
static inline void cl_checkpoints_suspend(cl_checkpoints *checkpoints, uint32_t checkpoint,
                                          uint32_t group)
{
    checkpoints->suspended[checkpoint] |= 1u << group;
}

static inline void cl_checkpoints_resume(cl_checkpoints *checkpoints, uint32_t checkpoint,
                                         uint32_t group)
{
    checkpoints->suspended[checkpoint] &= ~(1u << group);
}

/* ---- shared by the files of checkpoints ------------------------------------------------------- */

static inline cl_pin *cl_checkpoints_pin_of(const cl_checkpoints *checkpoints, uint32_t checkpoint,
                                            uint32_t group)
{
    return &checkpoints->pins[(size_t)checkpoint * checkpoints->n_groups + group];
}

/* A group that can be cut off anywhere needs nothing. */
bool cl_checkpoints_needs_pin(const cl_group *group);

/* Is there one of the sequence at n already? */
bool cl_checkpoints_has_one_at(const cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n);

/* Room for n_more entries in a sequence's list, and for a cut at any of its entries later. */
cellar_status cl_checkpoints_reserve_list(cl_checkpoints *checkpoints, cellar_seq seq,
                                          uint32_t n_more, cellar_error *error);

/* A free slot; CL_NO_CHECKPOINT: there is none. */
uint32_t cl_checkpoints_free_slot(cl_checkpoints *checkpoints);
/* The same, or that of the cheapest checkpoint (*is_in_use), which has to be dropped before it is taken. */
uint32_t cl_checkpoints_choose_slot(cl_checkpoints *checkpoints, bool *is_in_use);

/* Count a new checkpoint's first holder; fill in what it holds of a sequence (the lists have room). */
void cl_checkpoints_take_slot(cl_checkpoints *checkpoints, uint32_t checkpoint, cellar_pos n);
void cl_checkpoints_fill(cl_checkpoints *checkpoints, uint32_t checkpoint, cellar_seq seq,
                         cellar_pos n);

/* Put a counted one into a sequence's list, in place of one there. False: the list has gone. */
bool cl_checkpoints_add(cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n,
                        uint32_t checkpoint);

/*
 * Take one out of every list, for want of room; give back what those without holders hold. Lists that become
 * empty stay until the second is called.
 */
void cl_checkpoints_drop_everywhere(cl_checkpoints *checkpoints, uint32_t checkpoint);
void cl_checkpoints_drop_empty_lists(cl_checkpoints *checkpoints);
void cl_checkpoints_collect(cl_checkpoints *checkpoints);

static inline const cl_pin *cl_checkpoints_pin(const cl_checkpoints *checkpoints,
                                               uint32_t checkpoint, uint32_t group)
{
    return &checkpoints->pins[(size_t)checkpoint * checkpoints->n_groups + group];
}

#endif /* CL_CHECKPOINTS_H */
