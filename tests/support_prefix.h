/*
 * support_prefix.h: a memory whose contents say what was read, and a prefix library on it.
 *
 * The rows of a token are its id and its position; a state is a number that all tokens so far make, in their
 * order. So whatever a sequence was forked or loaded from, the test can see whether it holds what its tokens say:
 * world_read asserts it of the states it starts from, world_expect of all rows that a next token sees.
 *
 * Asserts with cmocka. One world at a time is enough for all tests.
 */
#ifndef SUPPORT_PREFIX_H
#define SUPPORT_PREFIX_H

#include "support_small_memory.h"

typedef enum world_kind {
    WORLD_FULL,        /* everything is attended to */
    WORLD_WINDOW,      /* a layer of each kind: full, window */
    WORLD_ONLY_WINDOW, /* nothing but windows */
    WORLD_STATE,       /* nothing but states */
    WORLD_HYBRID,      /* full, states */
    WORLD_EVERYTHING,  /* full, window, states */
    WORLD_KINDS
} world_kind;

enum { WORLD_WINDOW_SIZE = 8, WORLD_MOST = 600 };

typedef struct world {
    small_memory small;
    world_kind kind;
    cellar_library *library;
    cellar_library_config config;
} world;

/* A memory and a configuration of a library; change that before prefix_world_open. */
void world_init(world *w, world_kind kind, uint32_t n_cells);
void prefix_world_open(world *w);
void prefix_world_close(world *w); /* both, checked */

/* The library alone again, as after a restart of the program. */
void world_restart(world *w);

/* cellar_check and cellar_library_check. */
void world_check(const world *w);

/* Must succeed: attach; n - 1 tokens at most are reused. */
cellar_prefix world_attach(world *w, const cellar_prefix_key *key, cellar_seq seq,
                           const cellar_token *tokens, uint32_t n);

/*
 * Read tokens [first, n) of a text into a sequence that holds those before, in one step of
 * cellar_library_begin, and tell the library. `has_checkpoint`: one behind the last.
 */
void world_read(world *w, cellar_seq seq, const cellar_token *tokens, uint32_t first, uint32_t n,
                bool has_checkpoint);

/* Does it hold the first n tokens? */
void world_expect(const world *w, cellar_seq seq, const cellar_token *tokens, uint32_t n);

/* Attach, read what is missing, retain. The answer to the attach. */
cellar_prefix world_serve(world *w, const cellar_prefix_key *key, cellar_seq seq,
                          const cellar_token *tokens, uint32_t n);

uint64_t world_retain(world *w, cellar_seq seq);

cellar_library_statistics world_stats(const world *w);

/* An entry by its number; false: there is none. */
bool world_entry(const world *w, uint64_t number, cellar_entry *out);

/* n tokens that begin with `first` and go on by one. */
void world_text(cellar_token *to, uint32_t n, cellar_token first);

#endif /* SUPPORT_PREFIX_H */
