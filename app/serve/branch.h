/*
 * branch.h: one choice of a job in the making: a list of tokens, and how many of them the memory holds.
 *
 * The list is the prompt and what was written behind it. What is not held yet has to be read; when only the
 * last token is left and was read too, its logits choose the next. A branch that loses its sequence is the
 * same list with fewer tokens held, and comes out the same in the end.
 *
 * The scheduler's thread alone uses branches, once they are queued.
 */
#ifndef APP_BRANCH_H
#define APP_BRANCH_H

#include "serve/answer_text.h"
#include "serve/job.h"
#include "serve/reuse.h"
#include "serve/sharing.h"

#define BRANCH_MARKS 8u

typedef struct branch {
    struct branch *next; /* in the list it is in */
    job *job;
    uint32_t choice;
    uint64_t order;       /* the smaller, the earlier it came */
    cellar_token *tokens; /* [n_tokens] */
    size_t n_tokens, capacity, n_held;
    size_t n_prompt; /* of these, the first so many were asked for */
    uint32_t prompt; /* which of the job's prompts that is */
    uint64_t n_most; /* tokens it may write: those that were asked for, or that fit */
    bool is_cut;     /* fewer than were asked for */
    sampler *sampler;
    bool has_seen_prompt; /* the sampler */
    answer_text text;
    uint32_t *counts;   /* [n_vocab] times each token was written; NULL: no penalties */
    reuse_entry *entry; /* its sequence; NULL: it waits */
    uint32_t slot;      /* while it does not wait */
    uint64_t event;     /* of the timeline; 0: none */
    bool is_reading;    /* nothing was chosen yet since it was admitted */
    bool was_admitted;  /* at least once */
    job_report report;
    double admitted, first_written; /* when */
    size_t n_in_batch;              /* tokens in the batch that is being put together */
    uint32_t row;                   /* of its logits */
    bool wants_row;
    size_t marks[BRANCH_MARKS]; /* [n_marks] places where somebody wants to part from it */
    uint32_t n_marks;
    sharing_prompt *shared; /* what of it is in the shared store; NULL: nothing, or not asked yet */
    bool was_looked_up;     /* in the shared store, or had not to be */
} branch;

/* What choosing needs to know of the model. */
typedef struct branch_model {
    const tokenizer *tok;
    uint32_t n_vocab;
    const cellar_token *ends; /* [n_ends] that end a text */
    uint32_t n_ends;
} branch_model;

/* Make choice `choice` of a job. n_context: most tokens of prompt and answer. CELLAR_NO_MEMORY. */
cellar_status branch_create(job *j, uint32_t choice, const branch_model *m, uint32_t n_context,
                            branch **out, cellar_error *error);
void branch_destroy(branch *b); /* its sequence must be gone; NULL is allowed */

/*
 * Choose the next token from logits [n_vocab], which are changed, and hand out what it says. b->report.finish tells
 * whether it was the last. CELLAR_NO_MEMORY.
 */
cellar_status branch_write(branch *b, const branch_model *m, float *logits, cellar_error *error);

/* It ends: hand out the text that was held back, and say so. */
void branch_end(branch *b, job_finish finish);

#endif /* APP_BRANCH_H */
