/*
 * support_look.h: what can be seen of a memory, as numbers to compare before and after a call.
 *
 * A failed call must change none of them. Calls that may move cells, turn keys, or write over what nobody
 * needs keep only some of them; each number says which part it stands for. Looking fails a demand
 * (support_input.h) when a question is not answered.
 */
#ifndef SUPPORT_LOOK_H
#define SUPPORT_LOOK_H

#include "cellar.h"

enum { LOOK_SEQUENCES = 8 };

typedef struct look {
    uint64_t everything; /* runs, cells, checkpoints, positions, counts, moves */
    uint64_t held;       /* which tokens stand at which positions, with which shifts; checkpoints */
    uint64_t tokens;     /* which tokens stand at which positions; checkpoints */
    uint64_t whole;      /* runs of groups without a window and without states, and cells */
    uint32_t n_checkpoints;
    uint32_t most_shifts; /* of any sequence */
    cellar_sequence_info sequences[LOOK_SEQUENCES];
} look;

look look_at(const cellar_memory *memory);

#endif /* SUPPORT_LOOK_H */
