/*
 * support_parsed_compare.h: does a session file say what a memory holds?
 *
 * What the second reader (support_parsed_session.h) found is held against what the public calls show of the
 * memory, and rows, and what checkpoints hold, against its inside. Differences are asserted (cmocka).
 */
#ifndef SUPPORT_PARSED_COMPARE_H
#define SUPPORT_PARSED_COMPARE_H

#include <cellar.h>

#include "support_parsed_session.h"

/*
 * All sequences of the file. is_whole: it was written whole, so its cells are numbered in the order of its
 * lists, and there are no others.
 */
void parsed_compare(const cellar_memory *memory, const parsed_session *parsed, bool is_whole);

#endif /* SUPPORT_PARSED_COMPARE_H */
