/*
 * compaction.h: longer runs, lower cells.
 *
 * Nothing needs this: n free cells hold n tokens wherever they lie. It makes attention stream longer
 * stretches and lets an engine with tensors of its own look at fewer cells. The figure below says how
 * much there is to gain.
 */
#ifndef CL_COMPACTION_H
#define CL_COMPACTION_H

#include "memory.h"

/*
 * Places where a sequence goes on in cells that do not follow, for each 32 cells held; 0..1. A place that
 * several sequences pass counts once. Where sequences part, only one of them can go on right behind; the
 * others do not count. Cost: all runs of all sequences.
 */
float cl_compaction_fragmentation(const cellar_memory *memory);

#endif /* CL_COMPACTION_H */
