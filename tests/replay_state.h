/*
 * replay_state.h: the states of a trace: saved to memory as sessions, and loaded back.
 *
 * A run has two of them: of the whole memory, and of one sequence. They are written through the
 * library's writer and opened as bytes, so a replayed run says that what was saved means what it
 * meant, pending shifts and streams included. What is written must be exactly as long as the
 * library said before.
 */
#ifndef TESTS_REPLAY_STATE_H
#define TESTS_REPLAY_STATE_H

#include "replay.h"

typedef struct replay_state {
    unsigned char *bytes; /* [size] NULL: nothing was saved */
    size_t size, capacity;
    cellar_seq seq; /* the sequence that it is of; -1: the whole memory */
} replay_state;

/* Save a sequence, or everything (-1). What goes wrong fails the run. */
void replay_state_save(replay_state *state, const cellar_memory *memory, cellar_seq seq,
                       replay_outcome *outcome);

/* Load it, a sequence as `as`; all of it (-1) in the place of everything that is there. */
void replay_state_load(const replay_state *state, cellar_memory *memory, cellar_seq as,
                       replay_outcome *outcome);

void replay_state_free(replay_state *state);

#endif /* TESTS_REPLAY_STATE_H */
