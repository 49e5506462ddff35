/*
 * reuse.h: which tokens lie in which sequence, and what of it a new prompt can take over.
 *
 * The only place that speaks to the prefix library (cellar_library in cellar.h): everything that the server knows
 * of retained sequences, in the cells, in RAM and on disk, goes through here. A sequence of the server has a
 * reuse_entry while somebody works in it; when that ends, the library keeps it under a number.
 *
 * Whose tokens those are is a reuse_key: entries of different owners never meet, unless the server was told to
 * share. Beside the library a few notes are kept of each retained sequence: its slot, when and how
 * often it was used.
 *
 * The scheduler's thread alone uses it.
 */
#ifndef APP_REUSE_H
#define APP_REUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/model.h"
#include "serve/job.h"

/* The store that several servers share (sharing.h has it). */
typedef struct sharing_options {
    const char *address; /* NULL: there is none */
    const char *password, *ca_file;
    const void *secret; /* [secret_bytes] of names */
    size_t secret_bytes;
    uint64_t most_bytes;     /* that wait to be read or written */
    uint32_t expire_seconds; /* 0: a day */
    double wait_seconds;     /* that a prompt waits; 0: as long as reading it would take */
    bool logs;
} sharing_options;

typedef struct reuse_options {
    const model *model;
    uint64_t ram_bytes;       /* of the store in RAM; 0: there is none */
    const char *folder;       /* for files; NULL: none */
    uint64_t disk_bytes;      /* of all of them */
    bool shares_between_keys; /* owners do not count, salts do */
    sharing_options shared;
} reuse_options;

/* A sequence that somebody works in. */
typedef struct reuse_entry {
    struct reuse_entry *next;
    cellar_seq seq;
    size_t n_told;         /* tokens that the library knows to be read */
    bool is_in_library;    /* else it is only a name */
    uint64_t conversation; /* 0: none */
    size_t n_prompt;       /* tokens that it was begun for */
    double begun;          /* job_now() */
} reuse_entry;

typedef struct reuse reuse;

/* What was, or can be, taken over. */
typedef struct reuse_answer {
    size_t n_reusable, n_reused;
    job_source source;
    const char *reason;  /* static */
    int64_t diverged_at; /* -1: none */
    size_t n_coming;     /* tokens that somebody is about to have read too; 0: none */
    cellar_seq coming;   /* who */
    bool is_in_cells;    /* the reusable ones are */
    uint64_t entry;      /* of which they are; 0: none */
    /*
     * Counted from 1: the same as that of the sequence it goes on from, if all was taken over that had been asked
     * there; else a new one.
     */
    uint64_t conversation;
} reuse_answer;

/* CELLAR_NO_MEMORY, and what cellar_library_create says of the folder. */
cellar_status reuse_create(cellar_memory *memory, const reuse_options *options, reuse **out,
                           cellar_error *error);
void reuse_destroy(reuse *r); /* NULL is allowed */

/* What reuse_begin would take over. */
reuse_answer reuse_look(const reuse *r, const char *owner, const char *salt,
                        const cellar_token *tokens, size_t n);

/*
 * Begin a sequence for tokens [n]; it holds the first answer->n_reused of them, at most `most`. What is said in
 * tokens is what is about to be read. salt may be NULL. CELLAR_NO_MEMORY, CELLAR_FULL.
 */
cellar_status reuse_begin(reuse *r, const char *owner, const char *salt, const cellar_token *tokens,
                          size_t n, size_t most, reuse_entry **out, reuse_answer *answer,
                          cellar_error *error);

/* A sequence that nobody shall find. CELLAR_NO_MEMORY. */
cellar_status reuse_name(reuse *r, reuse_entry **out, cellar_error *error);

/* The sequence holds tokens [n] now. What cannot be noted is not found by others, no more. */
void reuse_tell(reuse *r, reuse_entry *entry, const cellar_token *tokens, size_t n);

/*
 * Nobody works in it any more; what it has read is kept if that is possible. slot -1: none. The library's number of
 * it; 0: nothing was kept.
 */
uint64_t reuse_retain(reuse *r, reuse_entry *entry, int64_t slot);

/* Nobody works in it, and what it holds is forgotten. */
void reuse_drop(reuse *r, reuse_entry *entry);

/* Would the batch fit now? For that, what is retained may be moved out of the cells. */
bool reuse_makes_fit(reuse *r, const cellar_batch *batch);

/*
 * Make n cells free in groups that attend to everything, but not at the cost of what tokens [n_tokens] can take
 * over; false: not so many are to be had.
 */
bool reuse_makes_room(reuse *r, const char *owner, const char *salt, const cellar_token *tokens,
                      size_t n_tokens, size_t n);

/* Write a little of what is not on disk yet; false: there is nothing to write, or nowhere. */
bool reuse_persist(reuse *r, uint64_t most_bytes);

/* ---- parts, for the shared store -------------------------------------------------------------- */

/* As cellar_library_divides, _write_key (false: no memory), _export and _supply; *n: what the sequence holds then. */
bool reuse_divides(const reuse *r);
bool reuse_write_key(const reuse *r, const char *owner, const char *salt,
                     const cellar_writer *writer);
cellar_status reuse_export(reuse *r, uint64_t entry, size_t from, size_t to,
                           const cellar_writer *writer, cellar_error *error);
cellar_status reuse_supply(reuse *r, reuse_entry *entry, const void *bytes, size_t size, size_t *n);

/* An entry by its number, running or not; its tokens are valid until something changes. */
bool reuse_find(const reuse *r, uint64_t number, cellar_entry *out);

/* ---- looking ---------------------------------------------------------------------------------- */

typedef struct reuse_note {
    uint64_t entry; /* the library's number */
    int64_t slot;   /* -1: none */
    double since;   /* when it was last used, job_now() */
    uint64_t n_hits;
    uint64_t conversation; /* 0: not known, as of what a file held */
    size_t n_prompt;       /* tokens that were asked there */
} reuse_note;

/* Where an entry is kept: in the cells, else in RAM, else in a file. */
job_source reuse_tier(const cellar_entry *entry);

/* Show each entry, with its note (all zero, slot -1, if there is none; of a running one since it began). false: stop. */
void reuse_visit(const reuse *r,
                 bool (*visit)(void *context, const cellar_entry *entry, const reuse_note *note),
                 void *context);

/* The number of what was retained last in a slot, if it is still there; 0. */
uint64_t reuse_in_slot(const reuse *r, int64_t slot, cellar_entry *entry);

/* Is it this owner's? */
bool reuse_is_owners(const reuse *r, const cellar_entry *entry, const char *owner);

/* Forget a retained one. CELLAR_NOT_FOUND; CELLAR_REFUSED: somebody works there; CELLAR_IO. */
cellar_status reuse_forget(reuse *r, uint64_t entry, cellar_error *error);

cellar_library_statistics reuse_statistics(const reuse *r);
cellar_status reuse_check(const reuse *r, cellar_error *error);

#endif /* APP_REUSE_H */
