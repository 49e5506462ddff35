/*
 * scheduler.h: many answers at once on one engine. There is no HTTP in here.
 *
 * The scheduler has a thread of its own, which alone uses the engine and its memory from scheduler_create
 * to scheduler_destroy. Jobs are queued from any thread; each of their choices becomes a branch that
 * is admitted, read in chunks beside the others, written token by token, and retained when it ends.
 * docs/server.md says in which order and why.
 *
 * What else has to be done with the memory is an errand: a function that the thread runs between two
 * micro-batches while the caller waits.
 */
#ifndef APP_SCHEDULER_H
#define APP_SCHEDULER_H

#include "engine/engine.h"
#include "serve/job.h"
#include "serve/reuse.h"
#include "serve/timeline.h"
#include "shared/shared_store.h"
#include "tokenizer/tokenizer.h"

typedef struct scheduler_options {
    engine *engine; /* and tok outlive it */
    const tokenizer *tok;
    uint32_t n_slots;    /* branches at work at once, >= 1 */
    uint32_t n_context;  /* most tokens of a prompt and its answer, 1..cells */
    uint32_t n_chunk;    /* prompt tokens in a micro-batch in which somebody writes, >= 1 */
    uint32_t n_queue;    /* branches that may wait */
    reuse_options reuse; /* `model` is filled in by scheduler_create */
} scheduler_options;

typedef struct scheduler scheduler;

#define SCHEDULER_REASONS 16u

/* What became of prompts for which one reason was given (job_report.reason). */
typedef struct scheduler_reason {
    const char *name;         /* static; NULL: this and the following are not used */
    uint64_t n;               /* choices */
    uint64_t n_reused, n_not; /* tokens of their prompts, taken over and not */
} scheduler_reason;

/* Counted since the beginning; _seconds are of computing. */
typedef struct scheduler_counters {
    uint64_t n_prompt;      /* prompt tokens computed */
    uint64_t n_reused;      /* and taken over instead */
    uint64_t n_written;     /* tokens chosen */
    uint64_t n_steps;       /* micro-batches */
    uint64_t n_busy;        /* branches, summed over them */
    uint64_t n_most_tokens; /* most tokens that a branch ever had */
    uint64_t n_jobs, n_branches_ended, n_cancelled, n_failed, n_set_aside;
    double prompt_seconds, write_seconds;
    scheduler_reason reasons[SCHEDULER_REASONS];
    uint32_t n_at_work, n_waiting;     /* branches, now */
    uint32_t n_cells, n_used;          /* of the largest group, now */
    cellar_library_statistics library; /* sequences that are retained, and where */
    uint64_t bytes, budget_bytes;      /* of the memory, now */
    bool has_shared;                   /* there is a shared store */
    uint64_t n_shared;                 /* tokens taken over from it, of n_reused */
    shared_counters shared;
} scheduler_counters;

/* Start it. CELLAR_NO_MEMORY, CELLAR_IO: no thread; and what cellar_library_create says of the folder. */
cellar_status scheduler_create(const scheduler_options *options, scheduler **out,
                               cellar_error *error);

/*
 * Cancel everything that is not done, end the thread. Afterwards jobs may still be taken from and released, and
 * everything that is asked of the scheduler is refused.
 */
void scheduler_stop(scheduler *s);

/* Stop it if need be, and free it. No job of it may be in use any more, but by those who only release it. */
void scheduler_destroy(scheduler *s); /* NULL is allowed */

/*
 * Queue a job; the caller goes on holding it. CELLAR_FULL: the queue is; CELLAR_BUSY: it is being stopped;
 * CELLAR_NO_MEMORY. CELLAR_INVALID: the prompt is longer than n_context.
 */
cellar_status scheduler_submit(scheduler *s, job *j, cellar_error *error);

/* Take no more jobs. What is queued goes on. */
void scheduler_close(scheduler *s);

/* Branches that wait or are at work. */
uint32_t scheduler_load(scheduler *s);

scheduler_counters scheduler_count(scheduler *s);

/* Run it on the scheduler's thread, and wait for that. false: it is being stopped. */
bool scheduler_run(scheduler *s, void (*errand)(void *context), void *context);

/* ---- for errands: on the scheduler's thread alone ------------------------------------------- */

typedef struct scheduler_slot {
    uint32_t id;
    bool is_busy;
    uint64_t job;
    size_t n_prompt, n_held; /* tokens */
    uint64_t n_written, n_left;
    double for_seconds; /* since it was admitted */
} scheduler_slot;

void scheduler_look_at_slot(const scheduler *s, uint32_t slot, scheduler_slot *out);
reuse *scheduler_reuse(scheduler *s);
const timeline *scheduler_timeline(const scheduler *s);
engine *scheduler_engine(scheduler *s);

#endif /* APP_SCHEDULER_H */
