/*
 * cells.c: counting holders, and the free map that follows from the counts.
 *
 * The counts are the truth; the free map, n_free, n_shared and first_free are kept in step with them by
 * the four functions that change a count (take, hold, release, move), and by nothing else. All of them
 * cost what they touch. check.c computes the same figures from the run lists.
 */
#include "cells.h"

#include <assert.h>
#include <string.h>

#include "bitmap.h"
#include "checked.h"

#define BLOCK_SHIFT 5u
_Static_assert(1u << BLOCK_SHIFT == CL_BLOCK, "a block has one stamp");

static uint32_t words_of(uint32_t n_blocks)
{
    return n_blocks / 2 + n_blocks % 2;
}

static uint32_t per_cell_bytes(bool has_points)
{
    return 3 * sizeof(uint32_t) + (has_points ? sizeof(cl_point) : 0);
}

bool cl_cells_measure(uint32_t n_blocks, cl_cells_kind kind, size_t *bytes)
{
    size_t map, cells, blocks, per_block = 2 * sizeof(uint32_t) + sizeof(uint64_t);
    if (kind.has_single_stamps) per_block += (CL_BLOCK - 1) * sizeof(uint64_t);
    return cl_checked_mul(words_of(n_blocks), sizeof(uint64_t), &map) &&
           cl_checked_mul(n_blocks, (size_t)CL_BLOCK * per_cell_bytes(kind.has_points), &cells) &&
           cl_checked_mul(n_blocks, per_block, &blocks) && cl_checked_add(map, cells, bytes) &&
           cl_checked_add(*bytes, blocks, bytes);
}

/* Cut a block of memory into the arrays for n_blocks blocks; nothing is initialised. */
static void carve(cl_cells *cells, void *memory, size_t bytes, uint32_t n_blocks)
{
    cells->memory = memory;
    cells->memory_size = bytes;
    cells->n_blocks = n_blocks;
    cells->n = n_blocks * CL_BLOCK;
    cells->n_words = words_of(n_blocks);
    cells->free_map = memory;
    cells->stamps = cells->free_map + cells->n_words;
    cells->refs = (uint32_t *)(cells->stamps + (cells->n >> cells->stamp_shift));
    cells->stored_pos = (int32_t *)(cells->refs + cells->n);
    cells->token = cells->stored_pos + cells->n;
    uint32_t *behind = (uint32_t *)(cells->token + cells->n);
    cells->points = NULL;
    if (cells->has_points) {
        cells->points = (cl_point *)behind;
        behind += cells->n;
    }
    cells->claims = behind;
    cells->pool_of = behind + n_blocks;
}

bool cl_cells_create(cl_cells *cells, cl_pool *pools, uint32_t n_pools, cl_cells_kind kind,
                     cl_alloc *alloc)
{
    memset(cells, 0, sizeof *cells);
    uint32_t n_blocks = 0;
    for (uint32_t p = 0; p < n_pools; p++) {
        pools[p].n_blocks = cl_cells_blocks(pools[p].n);
        pools[p].first_block = n_blocks;
        n_blocks += pools[p].n_blocks;
        pools[p].end_block = n_blocks;
    }
    size_t bytes;
    if (!cl_cells_measure(n_blocks, kind, &bytes)) return false;
    void *memory = cl_alloc_get(alloc, CELLAR_BYTES_CELLS, bytes);
    if (!memory) return false;
    cells->has_points = kind.has_points;
    cells->stamp_shift = kind.has_single_stamps ? 0 : BLOCK_SHIFT;
    cells->pools = pools;
    cells->n_pools = n_pools;
    carve(cells, memory, bytes, n_blocks);
    for (uint32_t p = 0; p < n_pools; p++)
        for (uint32_t b = pools[p].first_block; b < pools[p].end_block; b++)
            cells->pool_of[b] = p;
    cl_cells_clear(cells);
    return true;
}

void cl_cells_destroy(cl_cells *cells, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_CELLS, cells->memory, cells->memory_size);
    memset(cells, 0, sizeof *cells);
}

uint32_t cl_cells_usable(const cl_cells *cells, uint32_t block)
{
    const cl_pool *pool = &cells->pools[cells->pool_of[block]];
    uint32_t beyond = cl_cells_first_beyond(cells, cells->pool_of[block], pool->n);
    if (beyond <= block * CL_BLOCK) return 0;
    uint32_t usable = beyond - block * CL_BLOCK;
    return usable < CL_BLOCK ? usable : CL_BLOCK;
}

uint32_t cl_cells_first_beyond(const cl_cells *cells, uint32_t pool, uint32_t n)
{
    uint32_t block = cells->pools[pool].first_block;
    for (; block < cells->pools[pool].end_block; block++) {
        if (cells->pool_of[block] != pool) continue;
        if (n < CL_BLOCK) return block * CL_BLOCK + n;
        n -= CL_BLOCK;
    }
    return block * CL_BLOCK;
}

/* All cells from `first` on, the first of a block. */
static void give_stamps(cl_cells *cells, uint32_t first)
{
    for (uint32_t i = first >> cells->stamp_shift; i < cells->n >> cells->stamp_shift; i++)
        cells->stamps[i] = ++cells->last_stamp;
}

void cl_cells_restamp(cl_cells *cells, uint32_t cell, uint32_t n)
{
    for (uint32_t i = cell; i < cell + n; i++)
        cells->stamps[i >> cells->stamp_shift] = ++cells->last_stamp;
}

void cl_cells_clear(cl_cells *cells)
{
    /* Positions and tokens of free cells mean nothing: left alone, they cost no memory yet. */
    memset(cells->refs, 0, cells->n * sizeof *cells->refs);
    give_stamps(cells, 0);
    memset(cells->claims, 0, cells->n_blocks * sizeof *cells->claims);
    memset(cells->free_map, 0, cells->n_words * sizeof *cells->free_map);
    cells->n_free = 0;
    cells->n_shared = 0;
    for (uint32_t p = 0; p < cells->n_pools; p++) {
        cl_pool *pool = &cells->pools[p];
        uint32_t left = pool->n;
        for (uint32_t block = pool->first_block; block < pool->end_block && left > 0; block++) {
            if (cells->pool_of[block] != p) continue;
            uint32_t usable = left < CL_BLOCK ? left : CL_BLOCK;
            cl_bitmap_set(cells->free_map, block * CL_BLOCK, usable);
            left -= usable;
        }
        pool->n_free = pool->n;
        cells->n_free += pool->n;
        pool->first_free = pool->first_block * CL_BLOCK;
        pool->first_untouched = pool->first_unclaimed = pool->first_block;
        pool->longest_free = UINT32_MAX;
    }
}

void cl_cells_take(cl_cells *cells, uint32_t cell, uint32_t n, uint32_t refs)
{
    if (n == 0) return;
    for (uint32_t i = cell; i < cell + n; i++) {
        assert(cells->refs[i] == 0);
        cells->refs[i] = refs;
    }
    if (refs >= 2) cells->n_shared += n;
    cl_bitmap_clear(cells->free_map, cell, n);
    cl_pool *pool = &cells->pools[cells->pool_of[cell / CL_BLOCK]];
    cells->n_free -= n;
    pool->n_free -= n;
    if (cell == pool->first_free) pool->first_free = cell + n;
}

void cl_cells_hold(cl_cells *cells, uint32_t cell, uint32_t n)
{
    uint32_t newly_shared = 0;
    for (uint32_t i = cell; i < cell + n; i++) {
        assert(cells->refs[i] > 0);
        newly_shared += cells->refs[i]++ == 1;
    }
    cells->n_shared += newly_shared;
}

void cl_cells_release(cl_cells *cells, uint32_t cell, uint32_t n)
{
    if (n == 0) return;
    cl_pool *pool = &cells->pools[cells->pool_of[cell / CL_BLOCK]];
    uint32_t no_longer_shared = 0, freed = 0;
    for (uint32_t i = cell; i < cell + n; i++) {
        assert(cells->refs[i] > 0);
        uint32_t left = --cells->refs[i];
        no_longer_shared += left == 1;
        if (left == 0) {
            cells->free_map[i / 64] |= 1ull << (i % 64);
            cells->stamps[i >> cells->stamp_shift] = ++cells->last_stamp;
            if (freed++ == 0 && i < pool->first_free) pool->first_free = i;
            pool->longest_free = UINT32_MAX;
            cl_cells_offer(cells, i / CL_BLOCK);
        }
    }
    cells->n_shared -= no_longer_shared;
    cells->n_free += freed;
    pool->n_free += freed;
}

void cl_cells_move(cl_cells *cells, uint32_t to, uint32_t from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t refs = cells->refs[from + i];
        cl_cells_take(cells, to + i, 1, refs);
        cells->n_shared -= refs >= 2;
        cells->refs[from + i] = 1; /* the one that cl_cells_release takes away */
    }
    memcpy(cells->stored_pos + to, cells->stored_pos + from, n * sizeof *cells->stored_pos);
    memcpy(cells->token + to, cells->token + from, n * sizeof *cells->token);
    if (cells->points) memcpy(cells->points + to, cells->points + from, n * sizeof *cells->points);
    cl_cells_release(cells, from, n);
}

void cl_cells_claim(cl_cells *cells, uint32_t block, uint32_t owner)
{
    cells->claims[block] = owner;
    if (owner == 0) cl_cells_offer(cells, block);
}

uint32_t cl_cells_longest_free(const cl_cells *cells)
{
    cl_bitmap_runs runs = {0, 0};
    for (uint32_t w = 0; w < cells->n_words; w++)
        cl_bitmap_add_word(&runs, cells->free_map[w]);
    return runs.longest;
}

/* ---- more or fewer cells --------------------------------------------------------------------- */

/* The arrays, moved into new memory for n_blocks blocks (as many or more than kept). */
static bool move_arrays(cl_cells *cells, uint32_t n_blocks, cl_alloc *alloc)
{
    size_t bytes;
    if (!cl_cells_measure(n_blocks, cl_cells_kind_of(cells), &bytes)) return false;
    void *memory = cl_alloc_get(alloc, CELLAR_BYTES_CELLS, bytes);
    if (!memory) return false;
    cl_cells old = *cells;
    carve(cells, memory, bytes, n_blocks);
    uint32_t kept_blocks = n_blocks < old.n_blocks ? n_blocks : old.n_blocks;
    uint32_t kept = kept_blocks * CL_BLOCK, n_new = cells->n - kept;
    memset(cells->free_map, 0, cells->n_words * sizeof *cells->free_map);
    memcpy(cells->free_map, old.free_map, words_of(kept_blocks) * sizeof *cells->free_map);
    if (kept_blocks % 2) cells->free_map[kept_blocks / 2] &= 0xffffffffu;
    memcpy(cells->stamps, old.stamps, (kept >> cells->stamp_shift) * sizeof *cells->stamps);
    give_stamps(cells, kept);
    memcpy(cells->refs, old.refs, kept * sizeof *cells->refs);
    memset(cells->refs + kept, 0, n_new * sizeof *cells->refs);
    memcpy(cells->stored_pos, old.stored_pos, kept * sizeof *cells->stored_pos);
    memcpy(cells->token, old.token, kept * sizeof *cells->token);
    if (cells->points) memcpy(cells->points, old.points, kept * sizeof *cells->points);
    memcpy(cells->claims, old.claims, kept_blocks * sizeof *cells->claims);
    memset(cells->claims + kept_blocks, 0, (n_blocks - kept_blocks) * sizeof *cells->claims);
    memcpy(cells->pool_of, old.pool_of, kept_blocks * sizeof *cells->pool_of);
    cl_alloc_put(alloc, CELLAR_BYTES_CELLS, old.memory, old.memory_size);
    return true;
}

/* Make cells free that did not count before, or the other way round. */
static void set_usable(cl_cells *cells, uint32_t pool, uint32_t n)
{
    cl_pool *its = &cells->pools[pool];
    uint32_t seen = 0;
    for (uint32_t block = its->first_block; block < its->end_block; block++) {
        if (cells->pool_of[block] != pool) continue;
        for (uint32_t i = 0; i < CL_BLOCK; i++, seen++) {
            uint32_t cell = block * CL_BLOCK + i;
            if (seen >= n)
                cl_bitmap_clear(cells->free_map, cell, 1);
            else if (seen >= its->n)
                cl_bitmap_set(cells->free_map, cell, 1);
        }
    }
    cells->n_free += n - its->n;
    its->n_free += n - its->n;
    its->n = n;
    its->first_free = its->first_block * CL_BLOCK;
    its->first_untouched = its->first_unclaimed = its->first_block;
    its->longest_free = UINT32_MAX;
}

bool cl_cells_resize(cl_cells *cells, uint32_t pool, uint32_t n, cl_alloc *alloc)
{
    cl_pool *its = &cells->pools[pool];
    uint32_t wanted = cl_cells_blocks(n);
    if (wanted > its->n_blocks) {
        uint32_t old = cells->n_blocks, more = wanted - its->n_blocks;
        if (more > UINT32_MAX / CL_BLOCK - old || !move_arrays(cells, old + more, alloc))
            return false;
        for (uint32_t block = old; block < cells->n_blocks; block++)
            cells->pool_of[block] = pool;
        if (its->n_blocks == 0) its->first_block = old;
        its->n_blocks = wanted;
        its->end_block = cells->n_blocks;
    }
    set_usable(cells, pool, n);
    uint32_t fewer = its->n_blocks - wanted;
    if (fewer == 0 || its->end_block != cells->n_blocks) return true;
    for (uint32_t i = 1; i <= fewer; i++)
        if (cells->pool_of[cells->n_blocks - i] != pool) return true;
    /* The cells are gone already; that their memory stays when there is none to move to is no harm. */
    if (!move_arrays(cells, cells->n_blocks - fewer, alloc)) return true;
    its->n_blocks = wanted;
    its->end_block = cells->n_blocks;
    while (its->end_block > its->first_block && cells->pool_of[its->end_block - 1] != pool)
        its->end_block--;
    return true;
}
