/*
 * memory_map.h: the memory at one moment, in numbers, for whoever draws it.
 *
 * One look is one errand of the scheduler's thread. It changes nothing and fills a block of fixed size that the asker
 * brings: the cells of each group as tiles (of one cell each if there are few, of several if there are many), the
 * sequences of one owner, and the last prompts of that owner. What belongs to others appears as cells
 * in use and as nothing else: no position, no number, no age; and nobody's text appears at all.
 */
#ifndef APP_MEMORY_MAP_H
#define APP_MEMORY_MAP_H

#include "serve/scheduler.h"
#include "serve/timeline.h"

#define MEMORY_MAP_GROUPS 8u
#define MEMORY_MAP_TILES 8192u /* of all groups; of one, half as many at most */
#define MEMORY_MAP_SEQUENCES 256u
#define MEMORY_MAP_RUNS 4096u /* of all sequences */
#define MEMORY_MAP_CHECKPOINTS 16u
#define MEMORY_MAP_EVENTS 128u

#define MEMORY_MAP_FREE (-1)   /* nobody's */
#define MEMORY_MAP_OTHERS (-2) /* somebody else's, or of a sequence beyond the limit */
#define MEMORY_MAP_KEPT (-3)   /* held by checkpoints alone */

typedef struct memory_tile {
    int32_t
        sequence; /* an index into the sequences, the first of those that hold it; or one of the above */
    cellar_pos pos;     /* in that sequence, of its first cell here; -1: none */
    uint32_t n_used;    /* cells that are held */
    uint32_t n_shared;  /* of these, by more than one sequence */
    uint32_t n_kept;    /* of these, by checkpoints alone */
    uint32_t n_holders; /* most sequences that hold one of them */
} memory_tile;

typedef struct memory_map_group {
    cellar_group_info info;
    uint32_t n_shown;  /* cells, from the first on; those behind are free */
    uint32_t per_tile; /* cells; the last tile may have fewer */
    uint32_t n_tiles;
    size_t first; /* of its tiles */
} memory_map_group;

typedef struct memory_map_run {
    uint32_t group, cell, len;
    cellar_pos pos;
} memory_map_run;

typedef struct memory_map_sequence {
    cellar_entry entry; /* its tokens and domain are not to be looked at */
    reuse_note note;
    double for_seconds;        /* since it was last used; -1: not known */
    cellar_sequence_info info; /* all zero: it is not in the cells */
    size_t first_run, n_runs;  /* those that there was room for */
    cellar_pos checkpoints[MEMORY_MAP_CHECKPOINTS];
    uint32_t n_checkpoints; /* of these */
    uint64_t bytes;         /* of its cells */
} memory_map_sequence;

typedef struct memory_map {
    const char *owner; /* whose, NULL: everybody's; given */
    cellar_statistics memory;
    cellar_library_statistics library;
    memory_map_group groups[MEMORY_MAP_GROUPS];
    uint32_t n_groups;
    memory_tile tiles[MEMORY_MAP_TILES];
    memory_map_sequence sequences[MEMORY_MAP_SEQUENCES];
    uint32_t n_sequences, n_own; /* those listed, and all of the owner */
    memory_map_run runs[MEMORY_MAP_RUNS];
    size_t n_runs;
    timeline_event events[MEMORY_MAP_EVENTS];
    size_t n_events;
    int64_t time_ms; /* since 1970 */
} memory_map;

/* Fill it but for `owner`, which is given. On the scheduler's thread. CELLAR_NO_MEMORY: a byte for each cell. */
cellar_status memory_map_fill(memory_map *map, scheduler *s, cellar_error *error);

#endif /* APP_MEMORY_MAP_H */
