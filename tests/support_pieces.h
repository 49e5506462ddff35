/*
 * support_pieces.h: groups put together by hand, in pieces, for tests that move cells.
 *
 * A group with two pools, sequences that lie wherever the test likes, forks, shifts, shared positions,
 * checkpoints, and one kind of row that carries the number of its token, in a store that can fail. All
 * lists can be written out token by token, which must be the same before and after cells move.
 * Everything that should work is asserted (cmocka).
 */
#ifndef SUPPORT_PIECES_H
#define SUPPORT_PIECES_H

#include "memory.h"
#include "model/random.h"
#include "relocate.h"

#define PIECES_SEQUENCES 6
#define PIECES_PINS 3

typedef struct pieces {
    cellar_memory memory;
    cl_group group;
    cl_pool pools[2];
    cl_checkpoints checkpoints;
    cl_pin pins[PIECES_PINS];
    bool is_live[PIECES_PINS];
    cl_rows rows;
    cellar_row_store stores[2];
    cellar_token next_token;
    uint64_t random;
} pieces;

/* Pools of n0 and n1 cells; even sequences live in the first. */
void pieces_open(pieces *w, uint64_t seed, uint32_t n0, uint32_t n1);
/* Asserts that every byte was given back. */
void pieces_close(pieces *w);
cl_cells *pieces_cells(pieces *w);

/* One random operation. */
void pieces_change(pieces *w);

/* n tokens more, in cells chosen at random, mostly one behind the other. */
void pieces_append(pieces *w, cellar_seq seq, uint32_t n);

/* The next n tokens of a sequence of pool 0 lie in cells from `cell` on. */
void pieces_put(pieces *w, cellar_seq seq, uint32_t cell, uint32_t n);

/* `to` gets [0, p1) of `from`. */
void pieces_share(pieces *w, cellar_seq from, cellar_seq to, int64_t p1);

/* Checkpoint p holds an end of what the sequence holds. */
void pieces_pin(pieces *w, uint32_t p, cellar_seq seq);

/* Note what all lists hold, token by token; checks that each row belongs to its token. */
void pieces_note(pieces *w);

/* They hold what was noted, and all counts are what a recount gives. */
void pieces_assert_same(pieces *w);
void pieces_check_counts(pieces *w);

#endif /* SUPPORT_PIECES_H */
