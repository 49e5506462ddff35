/*
 * alloc.h: every byte comes through here and is counted by what it is for.
 *
 * One cl_alloc belongs to one memory. The counts are what cellar_stats shows and what a byte budget
 * will be held against, so that accounting and allocating cannot drift apart.
 */
#ifndef CL_ALLOC_H
#define CL_ALLOC_H

#include "cellar.h"

typedef struct cl_alloc {
    cellar_allocator user;              /* the caller's, or malloc and free */
    uint64_t bytes[CELLAR_BYTES_KINDS]; /* held now, by kind, those of callers' stores included */
    uint64_t total, limit;              /* their sum; what it may reach, 0: anything */
    bool was_limited;                   /* the last refusal was the limit's, not the allocator's */
} cl_alloc;

/* Big enough for any vector register, and a cache line. */
#define CL_ALIGN 64

/* Use `user`, or malloc and free when it is all NULL. */
void cl_alloc_init(cl_alloc *alloc, const cellar_allocator *user, uint64_t limit);

/* Count bytes that a store of the caller holds; false: the limit forbids them. */
bool cl_alloc_count(cl_alloc *alloc, cellar_bytes_kind kind, size_t size);
void cl_alloc_uncount(cl_alloc *alloc, cellar_bytes_kind kind, size_t size);

/* NULL when there is none. size > 0. */
void *cl_alloc_get(cl_alloc *alloc, cellar_bytes_kind kind, size_t size);

/* `block` came from cl_alloc_get or cl_alloc_grow with this kind and size; NULL is allowed. */
void cl_alloc_put(cl_alloc *alloc, cellar_bytes_kind kind, void *block, size_t size);

/*
 * Make a block larger, keeping its bytes (block NULL and old 0: a new one). NULL: the old one
 * stays.
 */
void *cl_alloc_grow(cl_alloc *alloc, cellar_bytes_kind kind, void *block, size_t old_size,
                    size_t new_size);

/*
 * An array that grows by doubling: make room for at least `n` elements of `size` bytes in *items,
 * of which *capacity fit now. Returns false, with everything as it was, when there is no memory.
 */
bool cl_alloc_reserve(cl_alloc *alloc, cellar_bytes_kind kind, void **items, uint32_t *capacity,
                      uint64_t n, size_t size);

#endif /* CL_ALLOC_H */
