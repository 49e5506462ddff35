/*
 * arena.h: one block of memory that is carved into arrays anew for each step.
 *
 * First the sizes are added up, then the block is made large enough (the only moment that can
 * fail), then the arrays are cut off one after the other. The block is kept for the next step.
 */
#ifndef CL_ARENA_H
#define CL_ARENA_H

#include "alloc.h"
#include "checked.h"

typedef struct cl_arena {
    unsigned char *memory;
    size_t size, used;
} cl_arena;

/* Add the room for n elements of `size` bytes to *total; false if it does not fit. */
static inline bool cl_arena_add(size_t *total, size_t n, size_t size)
{
    size_t bytes;
    return cl_checked_mul(n, size, &bytes) && cl_checked_align(bytes, CL_ALIGN, &bytes) &&
           cl_checked_add(*total, bytes, total);
}

/*
 * Make the block at least `total` bytes and empty it. False: no memory; the old block stays, empty.
 */
static inline bool cl_arena_reset(cl_arena *arena, cl_alloc *alloc, size_t total)
{
    arena->used = 0;
    if (total <= arena->size) return true;
    size_t size = total > 2 * arena->size ? total : 2 * arena->size;
    unsigned char *memory = cl_alloc_get(alloc, CELLAR_BYTES_STEP, size);
    if (!memory) return false;
    cl_alloc_put(alloc, CELLAR_BYTES_STEP, arena->memory, arena->size);
    arena->memory = memory;
    arena->size = size;
    return true;
}

/* Cut off n elements of `size` bytes, as they were added. */
static inline void *cl_arena_take(cl_arena *arena, size_t n, size_t size)
{
    void *taken = arena->memory + arena->used;
    arena->used += (n * size + CL_ALIGN - 1) & ~(size_t)(CL_ALIGN - 1);
    return taken;
}

static inline void cl_arena_free(cl_arena *arena, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_STEP, arena->memory, arena->size);
    *arena = (cl_arena){NULL, 0, 0};
}

#endif /* CL_ARENA_H */
