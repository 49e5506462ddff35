/*
 * scheduler_parts.h: what the files scheduler*.c share.
 *
 * The struct has two halves. What other threads touch is behind the lock: the list of branches that came
 * in, errands, switches and the copy of the counters. Everything else is the thread's own: it takes what
 * came in over into its own lists at the beginning of each round.
 */
#ifndef APP_SCHEDULER_PARTS_H
#define APP_SCHEDULER_PARTS_H

#include <pthread.h>

#include "serve/branch.h"
#include "serve/reuse.h"
#include "serve/scheduler.h"
#include "serve/sharing.h"
#include "serve/timeline.h"

typedef struct errand {
    struct errand *next;
    void (*run)(void *context);
    void *context;
    bool is_done;
} errand;

typedef struct branch_list {
    branch *first, *last;
    uint32_t n;
} branch_list;

struct scheduler {
    scheduler_options options;
    branch_model model;
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* there is something to do */
    pthread_cond_t errand_done;
    branch_list incoming; /* in order */
    errand *errands;      /* the next one first */
    bool is_closed, is_stopping;
    bool was_woken, was_joined;
    bool is_tidy, has_begun_to_tidy; /* of what could be written to disk */
    atomic_uint n_live;              /* branches that have not ended */
    uint32_t n_queued;               /* branches that came in and were never admitted */
    scheduler_counters published;

    /* The thread's own. */
    reuse *reuse;
    sharing *sharing; /* NULL: there is no shared store */
    timeline *timeline;
    branch_list waiting; /* by age; those that were set aside are older than those that come in */
    branch **slots;      /* [n_slots] at work; NULL: idle */
    uint64_t *left;      /* [n_slots] the larger, the later a branch left it; 0: never used */
    uint64_t n_left;
    uint32_t n_at_work;
    uint64_t next_order;
    scheduler_counters counters;
    uint32_t n_first_admitted; /* since it was last told to n_queued */
    bool is_states_only;       /* no layer attends: room is states, not tokens */

    /* Of a micro-batch. */
    cellar_token *tokens; /* [n_batch] */
    cellar_seq *seqs;
    bool *checkpoints;
    uint32_t *wanted; /* [n_slots] */
    float *logits;    /* [n_slots][n_vocab] */
    uint32_t n_batch; /* the most */
};

void branch_list_add(branch_list *list, branch *b);
void branch_list_insert(branch_list *list, branch *b); /* by order */
void branch_list_remove(branch_list *list, branch *b);

/* scheduler_admit.c: let in what has a slot and room. */
void scheduler_admit(scheduler *s);

/*
 * Take it out of its slot; what it holds is retained. It then ends, or (set aside) waits again, as the
 * caller sees to.
 */
void scheduler_take_out(scheduler *s, branch *b);

/* It ends and is freed. It must be in no list and no slot. */
void scheduler_finish(scheduler *s, branch *b, job_finish finish);

/* What became of its prompt, by reason: once all that could be taken over was. */
void scheduler_count_reason(scheduler *s, const branch *b);

/* scheduler_step.c: compute one micro-batch; false: there was nothing to compute. */
bool scheduler_step(scheduler *s);

#endif /* APP_SCHEDULER_PARTS_H */
