/*
 * reuse.h: which tokens lie in which sequence, and what of it a new prompt can take over.
 *
 * The only place that knows. Every sequence of the scheduler has an entry: live ones, which a branch is working
 * in, and retained ones, which nobody works in any more. reuse_take finds the entry from which most of a
 * prompt can really be used (a window or a state may not be able to go on everywhere, cellar_can_continue
 * says from where) and forks it; live entries serve as well as retained ones.
 *
 * Tokens are compared, never hashes alone. Entries of different owners never meet. A retained entry whose
 * tokens are the beginning of another's, of the same owner, is dropped, since the other one serves for both.
 * When room is needed the least recently used retained entry loses its end (or, where a memory cannot be cut
 * anywhere, all of it).
 *
 * The scheduler's thread alone uses it.
 */
#ifndef APP_REUSE_H
#define APP_REUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/job.h"

typedef struct reuse_entry {
    uint64_t id;
    char *owner;
    cellar_seq seq;
    cellar_token *tokens; /* [n]; of a live entry: the branch's, not ours */
    size_t n;
    bool is_live;
    int64_t slot;  /* the slot it was last in; -1: none */
    uint64_t used; /* the larger, the later */
    double since;  /* when it was last used, job_now() */
    uint64_t n_hits;
} reuse_entry;

typedef struct reuse reuse;

/* What was taken over. */
typedef struct reuse_answer {
    size_t n_reusable, n_reused;
    job_source source;
    const char *reason;  /* static */
    int64_t diverged_at; /* -1: none */
} reuse_answer;

cellar_status reuse_create(cellar_memory *memory, reuse **out, cellar_error *error);
void reuse_destroy(reuse *r); /* the memory keeps what it holds; NULL is allowed */

/*
 * A new, live entry for a sequence that holds nothing yet, with a name of its own. It has no tokens.
 * CELLAR_NO_MEMORY.
 */
cellar_status reuse_open(reuse *r, const char *owner, reuse_entry **out, cellar_error *error);

/* How many tokens of tokens [n] could be taken over now. Where they lie counts as used. */
size_t reuse_look(reuse *r, const char *owner, const cellar_token *tokens, size_t n);

/*
 * Let the sequence of `to`, which is empty, hold the longest beginning of tokens [n] that can be had, but not
 * all of it; *answer says how much. A fork that fails for want of memory is no failure: nothing is taken.
 */
void reuse_take(reuse *r, reuse_entry *to, const cellar_token *tokens, size_t n,
                reuse_answer *answer);

/* The sequence of a live entry holds these; they stay the branch's. */
void reuse_set(reuse_entry *entry, cellar_token *tokens, size_t n);

/*
 * Nobody works in it any more. Its tokens are copied; without memory for that, or without tokens, it
 * is dropped.
 */
void reuse_retain(reuse *r, reuse_entry *entry, int64_t slot);

/* Forget the entry and what its sequence holds. */
void reuse_drop(reuse *r, reuse_entry *entry);

/* Give up something retained, the least recently used first; false: there is nothing. */
bool reuse_evict(reuse *r);

/* Entries, in no promised order, and how often something was evicted. */
size_t reuse_count(const reuse *r);
reuse_entry *reuse_get(const reuse *r, size_t i);
uint64_t reuse_evictions(const reuse *r);

#endif /* APP_REUSE_H */
