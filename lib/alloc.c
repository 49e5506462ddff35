/*
 * alloc.c: the caller's allocator (or malloc), with a count for each kind.
 *
 * Counting and allocating are one call, so the figures of cellar_stats cannot drift from what is held.
 * When there is no memory the answer is NULL or false and nothing has changed; no function here
 * reports an error of its own, because only the caller knows what the bytes were for.
 */
#define _DEFAULT_SOURCE 1 /* madvise */
#include "alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "checked.h"

#define HUGE_PAGE ((size_t)2 << 20) /* of x86-64 and ARMv8; elsewhere just a large block */

/*
 * Large blocks lie at huge pages and ask for them: rows are touched for the first time by a load or a
 * long prompt, and a page of 4 KiB at a time that took ten times as long as copying them. Where the
 * system has no huge pages, or keeps them for others, nothing changes.
 */
static void *allocate_large(size_t size)
{
    void *block;
    if (posix_memalign(&block, HUGE_PAGE, size) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    const int is_refused = madvise(block, size, MADV_HUGEPAGE);
    (void)is_refused;
#endif
    return block;
}

static void *default_allocate(void *context, size_t size, size_t align)
{
    (void)context;
    size_t rounded;
    if (size >= HUGE_PAGE) return allocate_large(size);
    if (!cl_checked_align(size, align, &rounded)) return NULL;
    return aligned_alloc(align, rounded);
}

static void default_release(void *context, void *block, size_t size)
{
    (void)context;
    (void)size;
    free(block);
}

void cl_alloc_init(cl_alloc *alloc, const cellar_allocator *user, uint64_t limit)
{
    memset(alloc, 0, sizeof *alloc);
    alloc->user = *user;
    alloc->limit = limit;
    if (!user->allocate) {
        alloc->user.allocate = default_allocate;
        alloc->user.release = default_release;
    }
}

bool cl_alloc_count(cl_alloc *alloc, cellar_bytes_kind kind, size_t size)
{
    alloc->was_limited = alloc->limit > 0 &&
                         (size > alloc->limit || alloc->total > alloc->limit - size);
    if (alloc->was_limited) return false;
    alloc->bytes[kind] += size;
    alloc->total += size;
    return true;
}

void cl_alloc_uncount(cl_alloc *alloc, cellar_bytes_kind kind, size_t size)
{
    alloc->bytes[kind] -= size;
    alloc->total -= size;
}

void *cl_alloc_get(cl_alloc *alloc, cellar_bytes_kind kind, size_t size)
{
    if (!cl_alloc_count(alloc, kind, size)) return NULL;
    void *block = alloc->user.allocate(alloc->user.context, size, CL_ALIGN);
    if (!block) cl_alloc_uncount(alloc, kind, size);
    return block;
}

void cl_alloc_put(cl_alloc *alloc, cellar_bytes_kind kind, void *block, size_t size)
{
    if (!block) return;
    alloc->user.release(alloc->user.context, block, size);
    cl_alloc_uncount(alloc, kind, size);
}

void *cl_alloc_grow(cl_alloc *alloc, cellar_bytes_kind kind, void *block, size_t old_size,
                    size_t new_size)
{
    if (!block) return cl_alloc_get(alloc, kind, new_size);
    if (alloc->user.resize && new_size >= old_size) {
        if (!cl_alloc_count(alloc, kind, new_size - old_size)) return NULL;
        void *moved = alloc->user.resize(alloc->user.context, block, old_size, new_size, CL_ALIGN);
        if (!moved) cl_alloc_uncount(alloc, kind, new_size - old_size);
        return moved;
    }
    void *moved = cl_alloc_get(alloc, kind, new_size);
    if (!moved) return NULL;
    memcpy(moved, block, old_size < new_size ? old_size : new_size);
    cl_alloc_put(alloc, kind, block, old_size);
    return moved;
}

bool cl_alloc_reserve(cl_alloc *alloc, cellar_bytes_kind kind, void **items, uint32_t *capacity,
                      uint64_t n, size_t size)
{
    if (n <= *capacity) return true;
    uint64_t wanted = *capacity ? *capacity : 4;
    while (wanted < n)
        wanted *= 2;
    size_t bytes;
    if (wanted > UINT32_MAX || !cl_checked_mul((size_t)wanted, size, &bytes)) return false;
    void *moved = cl_alloc_grow(alloc, kind, *items, *capacity * size, bytes);
    if (!moved) return false;
    *items = moved;
    *capacity = (uint32_t)wanted;
    return true;
}
