/*
 * sharing.h: what of this server's memory goes into the shared store, and what of a prompt comes out of it.
 *
 * Between the prefix library (reuse.h) and the store (shared/shared_store.h): which blocks a prompt lacks, how long it may wait for
 * them, when rows are copied out, and how much of that at a time. docs/shared-tier.md says why.
 *
 * The scheduler's thread alone uses it. Nothing here waits for the network.
 */
#ifndef APP_SHARING_H
#define APP_SHARING_H

#include "serve/reuse.h"
#include "shared/shared_store.h"

typedef struct sharing sharing;

/* Does not connect yet. As shared_store_create; CELLAR_IO: the file of the key. `wake` may be called on any thread. */
cellar_status sharing_create(reuse *r, const sharing_options *options, void (*wake)(void *context),
                             void *context, sharing **out, cellar_error *error);
void sharing_destroy(sharing *s); /* NULL is allowed, here and below: there is no store */

/* ---- prompts -------------------------------------------------------------------------------- */

/* A prompt, as the store may know it. */
typedef struct sharing_prompt sharing_prompt;

/* NULL: nothing of it can be in the store that is not here: of tokens [n], n_have are. */
sharing_prompt *sharing_prompt_create(sharing *s, const char *owner, const char *salt,
                                      const cellar_token *tokens, size_t n, size_t n_have);
void sharing_prompt_destroy(sharing *s, sharing_prompt *p); /* NULL is allowed */

/* Would both fetch the same? Then one is enough. */
bool sharing_is_same(const sharing_prompt *a, const sharing_prompt *b);

/* Look it up, if that was not done yet; reading a token takes so many seconds, 0: not known. */
void sharing_fetch(sharing *s, sharing_prompt *p, double token_seconds);

/* Is it being looked up, and its time not over? */
bool sharing_is_fetching(sharing *s, sharing_prompt *p);
double sharing_until(const sharing_prompt *p); /* when its time is over */

/*
 * Put what came into its sequence, for so many seconds, one value at least; *n_held: what the sequence holds
 * then. false: that was all.
 */
bool sharing_supply(sharing *s, sharing_prompt *p, reuse_entry *entry, double seconds,
                    size_t *n_held);

/* ---- writing -------------------------------------------------------------------------------- */

/* Something was taken over from an entry: the second time it is offered, as far as it was. */
void sharing_note_hit(sharing *s, const char *owner, const char *salt, uint64_t entry, size_t n);

/* The entry's tokens, at most n_most, shall be in the store. */
void sharing_offer(sharing *s, const char *owner, const char *salt, uint64_t entry, size_t n_most);

/* Hand a little of it to the store, one value if somebody waits; false: nothing to do, or not now. */
bool sharing_write(sharing *s, bool is_busy);

/* Is everything handed over? */
bool sharing_is_done(const sharing *s);

/* Shall there be a checkpoint after n tokens of a text, the first n_prompt of which are a prompt? */
bool sharing_wants_mark(const sharing *s, size_t n, size_t n_prompt);

/* So many seconds for what waits, at the end. */
void sharing_drain(sharing *s, double seconds);

/* From any thread. */
shared_counters sharing_count(sharing *s);

#endif /* APP_SHARING_H */
