/*
 * replay_positions.h: which positions each sequence was given, as plainly as it can be kept.
 *
 * A table of truth values [sequence][position], changed by the steps of a run as the traces' README
 * describes them and by nothing else: no memory, no windows. It knows what a sequence would hold if
 * nothing were ever given up, so it can say what a memory with windows must hold (replay_positions.c),
 * where the reference's own smallest position depends on which cells it happened to use again.
 */
#ifndef TESTS_REPLAY_POSITIONS_H
#define TESTS_REPLAY_POSITIONS_H

#include "replay.h"

#define REPLAY_POSITIONS 4096 /* positions from here on fail the run */

typedef struct replay_positions {
    uint32_t n_sequences;
    cellar_pos ahead;     /* of where a step's tokens stand in the trace; 0 but for refusals */
    bool *held;           /* [n_sequences][REPLAY_POSITIONS] */
    bool *saved;          /* the same, at the last state_save */
    bool *saved_sequence; /* [REPLAY_POSITIONS], at the last state_seq_save */
} replay_positions;

/* False: no memory. */
bool replay_positions_create(replay_positions *p, uint32_t n_sequences);
void replay_positions_free(replay_positions *p);

/* Change it by a step that succeeded. A step that makes no sense fails the run. */
void replay_positions_apply(replay_positions *p, const json_t *step, replay_outcome *outcome);

/* Does the model give up what lies behind a window? Then its positions are checked here. */
bool replay_positions_are_windowed(const model *m);

/* Does each sequence hold what it must, and can it be continued? `min` are the trace's pmin. */
void replay_positions_check(const replay_positions *p, const model *m, const cellar_memory *memory,
                            const json_t *min, replay_outcome *outcome);

#endif /* TESTS_REPLAY_POSITIONS_H */
