/*
 * cells.c: counting holders, and the free map that follows from the counts.
 *
 * The counts are the truth; the free map, n_free, n_shared and first_free are kept in step with them by
 * the three functions that change a count (take, hold, release), and by nothing else. All of them
 * cost what they touch. check.c computes the same figures from the run lists.
 */
#include "cells.h"

#include <assert.h>
#include <string.h>

#include "bitmap.h"
#include "checked.h"

static uint32_t blocks_of(uint32_t n)
{
    return n / CL_BLOCK + (n % CL_BLOCK != 0);
}

static uint32_t words_of(uint32_t n)
{
    return n / 64 + (n % 64 != 0);
}

bool cl_cells_measure(uint32_t n, size_t *bytes)
{
    /* The map first in this sum, last in memory: each part is a multiple of its own alignment. */
    size_t map, per_cell, claims;
    return cl_checked_mul(words_of(n), sizeof(uint64_t), &map) &&
           cl_checked_mul(n, 3 * sizeof(uint32_t), &per_cell) &&
           cl_checked_mul(blocks_of(n), sizeof(uint32_t), &claims) &&
           cl_checked_add(per_cell, claims, &per_cell) &&
           cl_checked_align(per_cell, sizeof(uint64_t), &per_cell) &&
           cl_checked_add(per_cell, map, bytes);
}

bool cl_cells_create(cl_cells *cells, uint32_t n, cl_alloc *alloc)
{
    memset(cells, 0, sizeof *cells);
    size_t bytes;
    if (!cl_cells_measure(n, &bytes)) return false;
    cells->memory = cl_alloc_get(alloc, CELLAR_BYTES_CELLS, bytes);
    if (!cells->memory) return false;
    cells->memory_size = bytes;
    cells->n = n;
    cells->n_blocks = blocks_of(n);
    cells->n_words = words_of(n);
    cells->refs = cells->memory;
    cells->stored_pos = (int32_t *)(cells->refs + n);
    cells->token = cells->stored_pos + n;
    cells->claims = (uint32_t *)(cells->token + n);
    size_t map_bytes = cells->n_words * sizeof(uint64_t);
    cells->free_map = (uint64_t *)((char *)cells->memory + (bytes - map_bytes));
    cl_cells_clear(cells);
    return true;
}

void cl_cells_destroy(cl_cells *cells, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_CELLS, cells->memory, cells->memory_size);
    memset(cells, 0, sizeof *cells);
}

void cl_cells_clear(cl_cells *cells)
{
    /* Positions and tokens of free cells mean nothing: left alone, they cost no memory yet. */
    memset(cells->refs, 0, cells->n * sizeof *cells->refs);
    memset(cells->claims, 0, cells->n_blocks * sizeof *cells->claims);
    memset(cells->free_map, 0, cells->n_words * sizeof *cells->free_map);
    cl_bitmap_set(cells->free_map, 0, cells->n);
    cells->n_free = cells->n;
    cells->n_shared = 0;
    cells->first_free = cells->first_untouched = cells->first_unclaimed = 0;
}

void cl_cells_take(cl_cells *cells, uint32_t cell, uint32_t n, uint32_t refs)
{
    for (uint32_t i = cell; i < cell + n; i++) {
        assert(cells->refs[i] == 0);
        cells->refs[i] = refs;
    }
    if (refs >= 2) cells->n_shared += n;
    cl_bitmap_clear(cells->free_map, cell, n);
    cells->n_free -= n;
    if (cell == cells->first_free) cells->first_free = cell + n;
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
    uint32_t no_longer_shared = 0, freed = 0;
    for (uint32_t i = cell; i < cell + n; i++) {
        assert(cells->refs[i] > 0);
        uint32_t left = --cells->refs[i];
        no_longer_shared += left == 1;
        if (left == 0) {
            cells->free_map[i / 64] |= 1ull << (i % 64);
            if (freed++ == 0 && i < cells->first_free) cells->first_free = i;
            cl_cells_offer(cells, i / CL_BLOCK);
        }
    }
    cells->n_shared -= no_longer_shared;
    cells->n_free += freed;
}

void cl_cells_claim(cl_cells *cells, uint32_t block, uint32_t owner)
{
    cells->claims[block] = owner;
    if (owner == 0) cl_cells_offer(cells, block);
}

uint32_t cl_cells_longest_free(const cl_cells *cells)
{
    uint32_t longest = 0, current = 0;
    for (uint32_t w = 0; w < cells->n_words; w++) {
        uint64_t word = cells->free_map[w];
        if (word == ~0ull) {
            current += 64;
        } else {
            for (uint32_t i = 0; i < 64; i++) {
                if (word >> i & 1) {
                    current++;
                    continue;
                }
                if (current > longest) longest = current;
                current = 0;
            }
        }
    }
    return current > longest ? current : longest;
}
