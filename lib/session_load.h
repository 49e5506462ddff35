/*
 * session_load.h: what the files of loading share.
 *
 * A load goes through three things: the sequences that are wanted, under their new names; landings, one
 * for each group and each pool that one of them lives in (session_place.h); and what will be put in place
 * at the end: run lists for sequences and for checkpoints.
 *
 *     session_load.c       options, the order of work
 *     session_room.c       what is wanted of the lists, and room for it
 *     session_place.c      cells of the file, given cells of a pool
 *     session_fetch.c      rows, checked and copied
 *     session_commit.c     the new lists, prepared and then put in place
 */
#ifndef CL_SESSION_LOAD_H
#define CL_SESSION_LOAD_H

#include "session_place.h"

/* A sequence of the session that is to be loaded. */
typedef struct cl_arrival {
    const cl_saved_sequence *from;
    cellar_seq as;
    uint32_t part;   /* which of the load's pools its name lives in */
    cl_runs *lists;  /* [n_groups + 1] prepared; the last one is that of its checkpoints */
    cl_runs *lost;   /* [n_groups] prepared: what it lost behind windows */
    uint32_t *slots; /* [n_groups + 1] in the tables */
} cl_arrival;

/* A checkpoint of the session, for the sequences of one pool. */
typedef struct cl_arriving_checkpoint {
    uint32_t slot;    /* CL_NO_CHECKPOINT: not wanted, or no room */
    bool is_left_out; /* and counted */
    cl_runs *lists;   /* [n_groups] prepared */
} cl_arriving_checkpoint;

typedef struct cl_load {
    cellar_memory *memory;
    const cellar_session *session;
    cl_alloc *alloc; /* the memory's */
    uint32_t n_arrivals, n_parts, n_groups;
    cl_arrival *arrivals;
    uint32_t *pools;                     /* [n_parts] of the memory */
    cl_arriving_checkpoint *checkpoints; /* [n_parts][session's checkpoints] */
    cl_landing *landings; /* [n_groups][n_parts]; those of a group with one pool: part 0 */
    bool *is_short;       /* [n_groups][n_parts] lists are trimmed */
    cl_runs *lists;       /* [n_lists] all that arrivals and checkpoints point to */
    uint32_t *slots;
    uint64_t n_lists;
    bool has_reclaimed;  /* cells behind windows were given up */
    bool is_copying;     /* rows may lie over them: they cannot be given back any more */
    uint32_t n_left_out; /* checkpoints */
} cl_load;

static inline uint32_t cl_load_landing(const cl_load *load, uint32_t group, uint32_t part)
{
    bool is_one = load->memory->groups[group].sequences.rule.n_pools == 1;
    return group * load->n_parts + (is_one ? 0 : part);
}

static inline cl_arriving_checkpoint *cl_load_checkpoint(const cl_load *load, uint32_t part,
                                                         uint32_t checkpoint)
{
    return &load->checkpoints[(size_t)part * load->session->n_checkpoints + checkpoint];
}

/* What is wanted of a sequence's list; of a checkpoint's everything is. */
cl_wanted_part cl_load_wanted(const cl_load *load, const cl_arrival *arrival, uint32_t group);

/*
 * Find room for everything (session_room.c): checkpoints get slots, landings their cells. CELLAR_FULL,
 * CELLAR_NO_MEMORY; what was done until then is undone by cl_load_give_back.
 */
cellar_status cl_load_make_room(cl_load *load, cellar_error *error);
void cl_load_give_back(cl_load *load);

/* Check and copy all rows that are wanted (session_fetch.c). CELLAR_CORRUPT, CELLAR_IO, CELLAR_NO_MEMORY. */
cellar_status cl_load_copy_rows(cl_load *load, cellar_error *error);

/* Reserve and prepare (session_commit.c); put in place, which cannot fail. */
cellar_status cl_load_prepare(cl_load *load, cellar_error *error);
void cl_load_abandon(cl_load *load); /* what was prepared is given up */
void cl_load_commit(cl_load *load);

/*
 * cellar_load_session for a journal: when everything is in place it is told where the cells of the file went,
 * some spans at a time (some of their cells may be held by nobody). listener NULL: nobody asks.
 */
typedef void cl_load_listener(void *context, uint32_t group, const cl_span *spans, uint32_t n);
cellar_status cl_load_session(cellar_memory *memory, const cellar_session *session,
                              const cellar_load_options *options, cl_load_listener *listener,
                              void *context, cellar_error *error);

#endif /* CL_SESSION_LOAD_H */
