/*
 * session_map.h: which cells of a group are which cells of a file.
 *
 *     lists      A: cells 40..45, 7..9     B: cells 40..43, 90..91          (B is a fork of A)
 *     cut        40..43 | 44..45 | 7..9 | 90..91          at every place where some list begins or ends
 *     numbered   0..3     4..5     6..8   9..10           in the order in which the lists pass over them
 *
 * A cell that several lists hold gets one number, so it is stored once. The numbers follow from the lists
 * alone, not from where cells lie: the same content gives the same file. Cost: the runs, sorted; memory for
 * the runs, never for the cells. A journal knows the numbers of some cells already; those keep them
 * (and then the cells are looked at one by one).
 */
#ifndef CL_SESSION_MAP_H
#define CL_SESSION_MAP_H

#include "runs.h"

#define CL_NO_FILE_CELL UINT32_MAX

/* Cells cell.. of the memory are cells file.. of the file. */
typedef struct cl_span {
    uint32_t cell, len, file;
} cl_span;

typedef struct cl_session_map {
    cl_span *spans;   /* [n] in the order in which the lists pass over them */
    int64_t *by_cell; /* [n] span by its first cell: cell << 32 | index, rising */
    uint32_t n, capacity;
    uint32_t first_new, n_cells; /* numbers first_new.. are new; n_cells is how many of them */
    uint64_t n_known;            /* cells of the lists that had a number before */
} cl_session_map;

/* What the file has already: numbers by cell, CL_NO_FILE_CELL: none. */
typedef struct cl_known_cells {
    uint32_t (*file_cell)(const void *context, uint32_t cell);
    const void *context;
    uint32_t first_new; /* the first number that is free */
} cl_known_cells;

/*
 * Number the cells of lists[n_lists], in this order. known NULL: none has a number, new ones begin at 0.
 * CELLAR_NO_MEMORY; then nothing is held. Numbers must not run out: at most 2^31 (a memory of 2^30 cells
 * cannot make a whole file run out of them).
 */
cellar_status cl_session_map_make(cl_session_map *map, const cl_runs *const *lists, size_t n_lists,
                                  const cl_known_cells *known, cl_alloc *alloc,
                                  cellar_error *error);
void cl_session_map_free(cl_session_map *map, cl_alloc *alloc);

/* Takes a run over cells of the file. */
typedef void (*cl_file_run_visitor)(void *context, const cl_run *run);

/*
 * A list, told in cells of the file: as few runs as there can be, where tokens share positions joined
 * from the front, so that they are the same however the cells lay. Returns how many runs.
 */
uint32_t cl_session_map_visit(const cl_session_map *map, const cl_runs *list,
                              cl_file_run_visitor visitor, void *context);

/* A walk over the new cells, in the order of their numbers. */
typedef struct cl_span_walk {
    const cl_session_map *map;
    uint32_t span, used; /* the span, and how many of its cells are behind us */
} cl_span_walk;

cl_span_walk cl_session_map_walk(const cl_session_map *map);

/* The next stretch of cells, at most `most`; its length, 0 at the end. */
uint32_t cl_span_walk_next(cl_span_walk *walk, uint32_t most, uint32_t *cell);

#endif /* CL_SESSION_MAP_H */
