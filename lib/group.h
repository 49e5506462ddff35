/*
 * group.h: layers that remember alike, with the cells, sequences and rows they share.
 *
 * A memory is a list of groups; every operation is asked of all of them and then done by all of
 * them. What a group offers is here: room for a step (begin, commit, abort), the sequence
 * operations of sequences.h, and the sweep that attention reads. Full attention is the kind there
 * is (group_attention.c); a new kind of remembering is a new file beside it, not a new memory.
 */
#ifndef CL_GROUP_H
#define CL_GROUP_H

#include "sequences.h"
#include "step.h"
#include "storage.h"
#include "sweep.h"

/* A sequence of the open step, as this group holds it. */
typedef struct cl_participant {
    uint32_t slot;
    uint32_t old_claim; /* what it claimed before the step */
    uint32_t n_visible; /* pending cells up to the micro-batch being swept */
    bool is_new;        /* made for this step: dropped again by an abort */
    cl_runs pending;    /* what a commit appends; lives in the arena */
} cl_participant;

typedef struct cl_group {
    cl_sequences sequences;
    cl_storage storage;
    /* the open step */
    uint32_t *cells_of;           /* [n_tokens] the cell reserved for each token of the batch */
    cl_participant *participants; /* [n_members] */
    uint32_t n_participants;      /* 0: no step */
    uint32_t *first_tokens;       /* [n_members + 1] into by_first */
    uint32_t *by_first; /* [n_tokens] tokens of the batch by their first member, in order */
    uint32_t old_first_free, old_first_untouched, old_first_unclaimed; /* before the step */
    cl_arena arena;
    cl_sweep sweep;
} cl_group;

/* False: no memory; nothing is held. block_bytes: of storage, as laid out by cl_storage_add. */
bool cl_group_create(cl_group *group, uint32_t n_cells, size_t block_bytes, cl_alloc *alloc);
void cl_group_destroy(cl_group *group);

/* Are there cells for n_tokens? CELLAR_FULL: how many are missing. */
cellar_status cl_group_check_room(const cl_group *group, uint32_t n_tokens, cellar_error *error);

/*
 * Reserve a cell for every token of the step (there is room), and the room for everything that commit and attention
 * will need. On failure all is as before. CELLAR_NO_MEMORY.
 */
cellar_status cl_group_begin(cl_group *group, const cl_step *step, const cl_rope *ropes,
                             uint32_t n_ropes, cellar_error *error);
void cl_group_commit(cl_group *group);
void cl_group_abort(cl_group *group, const cl_step *step);

/* Build the sweep for a micro-batch of the open step, unless it is built. */
void cl_group_sweep(cl_group *group, const cl_step *step, uint32_t ubatch);

/*
 * The smallest n at which a sequence that holds these runs can go on, but for starting over at 0.
 */
cellar_pos cl_group_rewind_min(const cl_runs *runs);

/* n if a sequence that holds these runs can go on at n; else from where it has to be read again. */
cellar_pos cl_group_continue_at(const cl_runs *runs, cellar_pos n);

#endif /* CL_GROUP_H */
