/*
 * job.h: one request for text, and the place where its two ends meet.
 *
 * A connection makes a job, gives it to the scheduler and takes out what comes: pieces (the text of a token,
 * valid UTF-8), and the end of each choice. The scheduler's thread puts them in. Both hold the job, by a
 * count; whoever lets go last frees it.
 *
 * A choice's pieces come in their order, its end behind all of them. Ends need no memory, so a job always
 * ends, whatever fails. job_next waits for the job and for the client's socket at once, so that a client
 * who went away is noticed while nothing is written.
 *
 * Everything that both ends use is behind the job's lock, or atomic; `request` is never changed after
 * job_create.
 */
#ifndef APP_JOB_H
#define APP_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/sampler.h"

#define JOB_MOST_CHOICES 128u
#define JOB_MOST_MARKS 4u
#define JOB_MOST_PIECES 1024u /* that wait to be taken before the job is not computed any more */

typedef struct job_bias {
    cellar_token token;
    float bias; /* added to its logit; -INFINITY: never */
} job_bias;

/* One of several prompts. */
typedef struct job_prompt {
    const cellar_token *tokens; /* [n] */
    size_t n;
    uint32_t index;     /* which one */
    bool is_text_start; /* drop the space that some models put before a text */
} job_prompt;

/* What is asked for. The job takes over what it points to: all of it malloc'ed. */
typedef struct job_request {
    char *owner;          /* whose memory it may use, a text; never NULL */
    char *salt;           /* what else keeps it apart; NULL: nothing */
    uint64_t client;      /* who asks, for a fair share */
    cellar_token *prompt; /* [n_prompt], n_prompt >= 1, all in the vocabulary */
    size_t n_prompt;
    job_prompt *prompts; /* [n_prompts] if there are several: each a part of `prompt`; NULL: one */
    uint32_t n_prompts;
    uint32_t
        n_choices; /* 1..JOB_MOST_CHOICES, as many for each prompt; its i-th draws with seed + i */
    sampler_options sampling;
    double presence_penalty,
        frequency_penalty; /* subtracted once, and for each time, it was written */
    job_bias *biases;
    size_t n_biases;
    char **stops; /* [n_stops] texts before which an answer ends, none empty */
    size_t n_stops;
    uint64_t n_limit; /* most tokens of a choice; UINT64_MAX: as many as fit */
    int32_t n_top;    /* likeliest tokens to tell with each one; -1: no probabilities at all */
    size_t marks
        [JOB_MOST_MARKS]; /* [n_marks] tokens of the prompt after which somebody may want to go on */
    uint32_t n_marks;     /* otherwise: the beginnings of messages; for the first prompt */
    int64_t slot;         /* the slot that it has to have; -1: any */
    bool ignore_end;      /* never choose a token that ends the text */
    bool is_text_start;   /* drop the space that some models put before a text */
    bool starts_cold;     /* take over nothing */
    bool tells_progress;
} job_request;

void job_request_free(job_request *request); /* what it points to */

/* The prompt of a choice, and which choice of that prompt it is. */
job_prompt job_prompt_of(const job_request *request, uint32_t choice);
uint32_t job_choice_of_prompt(const job_request *request, uint32_t choice);
/* The longest prompt's tokens. */
size_t job_longest_prompt(const job_request *request);

typedef struct job_probability {
    cellar_token token;
    float logprob;
} job_probability;

typedef struct job_piece {
    struct job_piece *next;
    uint32_t choice;
    bool is_progress;     /* instead of text: how far the prompt was read */
    size_t n_read;        /* then: tokens of it that are held */
    cellar_token token;   /* the text may be of earlier ones: what may be a stop is held back */
    float logprob;        /* with n_top >= 0 */
    job_probability *top; /* [n_top] likeliest first */
    uint32_t n_top;
    size_t n_text;
    char *text; /* [n_text] */
} job_piece;

typedef enum job_finish {
    JOB_GOES_ON,
    JOB_END_OF_TEXT, /* the model ended it */
    JOB_STOP_TEXT,   /* one of `stops` came */
    JOB_LIMIT,       /* n_limit tokens */
    JOB_FULL,        /* no room in the context or in the memory */
    JOB_CANCELLED,
    JOB_FAILED, /* job_report.error says why */
} job_finish;

/* Where the beginning of the prompt came from. */
typedef enum job_source {
    JOB_SOURCE_NONE,
    JOB_SOURCE_LIVE,
    JOB_SOURCE_RAM,
    JOB_SOURCE_DISK,
    JOB_SOURCE_SHARED
} job_source;

/* As clients read it: "none", "live", "ram", "disk", "shared". */
const char *job_source_name(job_source source);

/* What became of a choice. All of it is there when the choice has ended. */
typedef struct job_report {
    job_finish finish;
    size_t n_reusable;     /* tokens of the prompt after which a sequence can be gone on from */
    size_t n_reused;       /* of these, what could be taken over, < n_prompt */
    job_source source;     /* of them */
    const char *reason;    /* why no more; static */
    int64_t diverged_at;   /* the first token of the prompt that was another one there; -1: none */
    uint64_t conversation; /* as reuse_answer has it */
    size_t n_read;         /* prompt tokens that were computed */
    uint64_t n_written;    /* tokens */
    const char *stop;      /* the stop that came, of request.stops */
    uint32_t slot;
    uint32_t n_set_aside; /* times that it had to make room for others */
    double wait_seconds, read_seconds, write_seconds;
    cellar_error error; /* JOB_FAILED */
} job_report;

typedef struct job {
    job_request request;
    uint64_t id;
    double made; /* when, in seconds of the monotonic clock */
    atomic_bool is_cancelled;
    atomic_uint n_holders;

    pthread_mutex_t lock; /* of all below */
    job_piece *first, *last;
    uint32_t n_pieces;
    bool is_held_up;     /* there were too many pieces */
    job_report *choices; /* [n_choices] */
    bool *is_told;       /* [n_choices] its end was taken */
    int event;           /* a descriptor that can be read when there is something to take */

    void (*wake)(void *context); /* tell the scheduler that something changed; NULL: none */
    void *wake_context;
} job;

/* Takes over what the request points to, also on failure. CELLAR_NO_MEMORY, CELLAR_IO: no descriptor. */
cellar_status job_create(job_request *request, job **out, cellar_error *error);
void job_hold(job *j);
void job_release(job *j); /* NULL is allowed */

double job_now(void); /* seconds of the monotonic clock */

/* ---- the scheduler's end -------------------------------------------------------------------- */

/* A piece with room for n_top probabilities and n_text bytes, not yet filled in; NULL: no memory. */
job_piece *job_piece_create(uint32_t n_top, size_t n_text);

void job_put(job *j, job_piece *piece);
/* Say how a choice went; with a finish other than JOB_GOES_ON it has ended. */
void job_tell(job *j, uint32_t choice, const job_report *report);
/* Are there more pieces than somebody wants to take? */
bool job_is_held_up(job *j);

/* ---- the connection's end ------------------------------------------------------------------- */

typedef enum job_event {
    JOB_PIECE,       /* *piece is the caller's, to be freed */
    JOB_CHOICE_ENDS, /* *choice did */
    JOB_ALL_ENDED,   /* and everything was taken */
    JOB_CLIENT_GONE, /* the socket was closed by the other side */
} job_event;

/* Wait for what comes next. socket -1: there is none to watch. */
job_event job_next(job *j, int socket, job_piece **piece, uint32_t *choice);

/* How a choice stands. */
job_report job_look(job *j, uint32_t choice);

/* Nobody wants it any more. */
void job_cancel(job *j);

#endif /* APP_JOB_H */
