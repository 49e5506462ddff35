/*
 * settle.h: rows that are rotated for where they stand.
 *
 * A shift costs nothing when it is made and a little in every step after it: attention turns its
 * queries once for each distinct shift. When a sequence has many (after a division of positions, or a
 * window that slid a thousand times), it is cheaper to turn the keys themselves, once. So a step begins
 * by settling the sequences that have more than cellar_config.max_shifts.
 */
#ifndef CL_SETTLE_H
#define CL_SETTLE_H

#include "memory.h"

/*
 * Settle those members of a step that have too many different shifts in some group, as far as there is
 * room beside what the step itself needs. To be called when the batch is understood and no group has begun
 * yet. Whatever goes wrong (no room, no memory, a failing store) leaves a sequence as it was: its results
 * are right either way, so a step never fails for it. External groups are left to their engine, and so are
 * steps with a token in several sequences, which must go on holding the same cells.
 */
void cl_settle_many(cellar_memory *memory, const cl_step *step);

#endif /* CL_SETTLE_H */
