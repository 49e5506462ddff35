/*
 * support_session_view.h: what a sequence is, as a caller sees it, whatever cells it has.
 *
 * Two sequences, in one memory or in two, are equal when their tokens stand at the same positions in every
 * group with the same shifts, and their rows and states have the same bits; when both can go on and
 * return to the same places; and when attention for one more token has the same bits. Differences end the
 * test (cmocka), with `what` in the message.
 */
#ifndef SUPPORT_SESSION_VIEW_H
#define SUPPORT_SESSION_VIEW_H

#include "support_small_memory.h"

typedef struct view {
    const small_memory *small;
    cellar_seq seq;
} view;

/* Tokens, rows, states, checkpoints. `a` has all; is_whole: so has b, else what its window sees will do. */
void view_compare(view a, view b, bool is_whole, const char *what);

/*
 * Attention of one more token, in a step that is aborted. False: one of the two had no room for it. A
 * crowded memory may have given up old cells for it: view_compare whole before, not after.
 */
bool view_probe(view a, view b, const char *what);

/* Names of the sequences that hold something, in order; returns how many (at most `most`). */
uint32_t view_names(const cellar_memory *memory, cellar_seq *names, uint32_t most);

#endif /* SUPPORT_SESSION_VIEW_H */
