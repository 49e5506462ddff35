/*
 * support_story.h: memories of every kind in which anything may have happened, for tests of sessions.
 *
 * A story is a small memory (full attention, windows, sinks, states, M-RoPE, pools, checkpoints, row types,
 * rows turned before they are stored: at random) and random operations on it, the same for the same seed.
 * Rows and states are random numbers, so nothing can be mixed up unseen. Refusals are as good as any;
 * what must not fail is asserted (cmocka).
 */
#ifndef SUPPORT_STORY_H
#define SUPPORT_STORY_H

#include "support_small_memory.h"

enum { STORY_SEQUENCES = 6, STORY_BATCH = 12 };

typedef struct story {
    small_memory small;
    uint64_t random, seed;
    bool has_states;
} story;

/* A memory as the seed has it; change `small` between the two calls for another. */
void story_plan(story *s, uint64_t seed);
void story_open(story *s);
void story_close(story *s);

/* One random operation; no step is open afterwards. */
void story_change(story *s);

/* Read n tokens of a sequence, with random rows. CELLAR_FULL and the like come back. */
cellar_status story_read(story *s, cellar_seq seq, uint32_t n);

#endif /* SUPPORT_STORY_H */
