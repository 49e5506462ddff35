/*
 * cells.h: slots for tokens, written once and counted.
 *
 * A cell is free (its bit in the free map is set and nobody holds it) or held (its count says by
 * how many runs, and by an open step). While it is held its rows, its stored position and its token
 * never change; that is why sharing needs neither copies nor locks. Free cells have no contents:
 * nothing reads them. What a cell stands for is its group's business: the K and V rows of a token, the
 * states behind a token, a checkpoint.
 *
 * Cells are grouped in blocks of CL_BLOCK, the unit of storage layout (storage.h), of pools and of
 * claims. A pool is a set of blocks that only its own sequences use; the last block of a pool may
 * have cells at its end that do not count (they are never free). A sequence that grows token by
 * token claims the block it grows in, so that sequences which decode side by side do not interleave
 * cell by cell. A claim is soft: placement.c ignores it as soon as free cells elsewhere run out.
 *
 * Stamps tell whether cells still hold what they held at another time: the stamp of a stretch of cells (a
 * block; in groups whose cells are large, one cell) becomes another one whenever one of them becomes free
 * or is turned where it lies. No stamp comes twice. A journal compares them (session_journal.c).
 *
 *     one block of memory:  free map | stamps | refs[n] | stored_pos[n] | token[n] | points[n] if 2-D |
 *                           claims[blocks] | pool_of[blocks]
 */
#ifndef CL_CELLS_H
#define CL_CELLS_H

#include "alloc.h"

#define CL_BLOCK 32u /* cells in a block */
#define CL_NO_CELL UINT32_MAX
#define CL_NO_BLOCK UINT32_MAX

/* y and x of a token in an image, as distances from its position. */
typedef struct cl_point {
    int16_t y, x;
} cl_point;

typedef struct cl_pool {
    uint32_t n;                      /* cells that count */
    uint32_t n_free;                 /* of these, free */
    uint32_t n_blocks;               /* ceil(n / CL_BLOCK) */
    uint32_t first_block, end_block; /* its blocks lie in [first_block, end_block) */
    uint32_t first_free;             /* none of its cells below is free: where searches start */
    uint32_t first_untouched;        /* none of its blocks below is wholly free and unclaimed */
    uint32_t first_unclaimed;        /* none of its blocks below has a free cell and no claim */
    uint32_t
        longest_free; /* none of its stretches of free cells is longer; UINT32_MAX: not known */
} cl_pool;

typedef struct cl_cells {
    uint32_t n;          /* cells: n_blocks * CL_BLOCK */
    uint32_t n_blocks;   /* of all pools */
    uint32_t n_free;     /* bits set in the free map */
    uint32_t n_shared;   /* cells with refs >= 2 */
    uint64_t *free_map;  /* [n_words] bit i: cell i is free */
    uint32_t *refs;      /* [n] holders: runs of sequences and of checkpoints, and the open step */
    int32_t *stored_pos; /* [n] position its keys are rotated for; defined while held */
    int32_t *token;      /* [n] token id or -1; defined while held */
    cl_point *points;    /* [n] or NULL: no 2-D positions; defined while held */
    uint32_t *claims;    /* [n_blocks] owner (sequence slot + 1) or 0 */
    uint32_t *pool_of;   /* [n_blocks] */
    cl_pool *pools;      /* [n_pools], not part of the block of memory */
    uint64_t *stamps;    /* [n >> stamp_shift] of each stretch of cells */
    uint64_t last_stamp; /* the last one that was given */
    uint32_t n_words, n_pools;
    uint32_t stamp_shift; /* cells that share a stamp: 1 << stamp_shift */
    bool has_points;
    void *memory;
    size_t memory_size;
} cl_cells;

/* Blocks for a pool of n cells. */
static inline uint32_t cl_cells_blocks(uint32_t n)
{
    return n / CL_BLOCK + (n % CL_BLOCK != 0);
}

/* What cells are asked to keep beside the usual. */
typedef struct cl_cells_kind {
    bool has_points;
    bool has_single_stamps; /* one for each cell, not for each block: for cells that are large */
} cl_cells_kind;

/* Bytes for n_blocks blocks; false if that does not fit. Pools are counted by whoever keeps them. */
bool cl_cells_measure(uint32_t n_blocks, cl_cells_kind kind, size_t *bytes);

/*
 * All free. `pools` [n_pools] have their n filled in and are the cells' from now on (they must
 * outlive them). False: no memory.
 */
bool cl_cells_create(cl_cells *cells, cl_pool *pools, uint32_t n_pools, cl_cells_kind kind,
                     cl_alloc *alloc);
void cl_cells_destroy(cl_cells *cells, cl_alloc *alloc);

/* Forget everything: all free, no claims. */
void cl_cells_clear(cl_cells *cells);

/*
 * Give a pool n cells. New blocks go behind all others; blocks can only be taken away if all of the
 * pool's cells from cl_cells_first_beyond(cells, pool, n) on are free and lie behind everybody else's
 * (the pool's last blocks are the last of all), else the pool keeps the empty blocks as cells that
 * do not count. False: no memory, nothing changed.
 */
bool cl_cells_resize(cl_cells *cells, uint32_t pool, uint32_t n, cl_alloc *alloc);

/* Where the cells of a pool end that count when it has n of them: no cell of it from here on does. */
uint32_t cl_cells_first_beyond(const cl_cells *cells, uint32_t pool, uint32_t n);

/* Take n free cells of one pool from `cell` on: no longer free, count `refs` each. */
void cl_cells_take(cl_cells *cells, uint32_t cell, uint32_t n, uint32_t refs);

/* One more holder for each of n held cells. */
void cl_cells_hold(cl_cells *cells, uint32_t cell, uint32_t n);

/* One holder less for each of n held cells; those without any become free. */
void cl_cells_release(cl_cells *cells, uint32_t cell, uint32_t n);

/*
 * The holders of n held cells hold n free ones of the same pool instead, which take over what the cells
 * stand for; the two stretches do not overlap.
 */
void cl_cells_move(cl_cells *cells, uint32_t to, uint32_t from, uint32_t n);

/* What n held cells stand for has changed where they are. */
void cl_cells_restamp(cl_cells *cells, uint32_t cell, uint32_t n);

static inline uint64_t cl_cells_stamp(const cl_cells *cells, uint32_t cell)
{
    return cells->stamps[cell >> cells->stamp_shift];
}

static inline cl_cells_kind cl_cells_kind_of(const cl_cells *cells)
{
    return (cl_cells_kind){cells->has_points, cells->stamp_shift == 0};
}

/* A block may have become useful to others again: searches must not start behind it. */
static inline void cl_cells_offer(cl_cells *cells, uint32_t block)
{
    cl_pool *pool = &cells->pools[cells->pool_of[block]];
    if (block < pool->first_untouched) pool->first_untouched = block;
    if (block < pool->first_unclaimed) pool->first_unclaimed = block;
}

/* Set or (owner 0) clear the claim of a block. */
void cl_cells_claim(cl_cells *cells, uint32_t block, uint32_t owner);

/* How many cells of a block count. */
uint32_t cl_cells_usable(const cl_cells *cells, uint32_t block);

/* Length of the longest stretch of free cells. Scans the map. */
uint32_t cl_cells_longest_free(const cl_cells *cells);

#endif /* CL_CELLS_H */
