/*
 * support_faulty.c: heap memory behind two counters. See support_faulty.h.
 *
 * A call that fails has no effect at all, which is the kindest way to fail; callers must not rely on
 * what lies in a target after it either way. Releasing never fails.
 */
#include "support_faulty.h"

#include <stdlib.h>

int faulty_allocations_left = -1, faulty_store_calls_left = -1;

static bool goes_well(int *left)
{
    if (*left == 0) return false;
    if (*left > 0) --*left;
    return true;
}

/* ---- the allocator --------------------------------------------------------------------------- */

static void *give(void *context, size_t size, size_t align)
{
    (void)context;
    if (!goes_well(&faulty_allocations_left)) return NULL;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void take_back(void *context, void *block, size_t size)
{
    (void)context;
    (void)size;
    free(block);
}

cellar_allocator faulty_allocator(void)
{
    return (cellar_allocator){give, NULL, take_back, NULL};
}

/* ---- the store ------------------------------------------------------------------------------- */

static void *store_allocate(void *context, size_t size)
{
    (void)context;
    return calloc(1, size);
}

static bool store_read(void *context, void *buffer, size_t offset, void *to, size_t size)
{
    (void)context;
    if (!goes_well(&faulty_store_calls_left)) return false;
    memcpy(to, (char *)buffer + offset, size);
    return true;
}

static bool store_write(void *context, void *buffer, size_t offset, const void *from, size_t size)
{
    (void)context;
    if (!goes_well(&faulty_store_calls_left)) return false;
    memcpy((char *)buffer + offset, from, size);
    return true;
}

static bool store_copy(void *context, void *to, size_t to_offset, void *from, size_t from_offset,
                       size_t size)
{
    (void)context;
    if (!goes_well(&faulty_store_calls_left)) return false;
    memmove((char *)to + to_offset, (char *)from + from_offset, size);
    return true;
}

static bool store_clear(void *context, void *buffer, size_t offset, size_t size)
{
    (void)context;
    if (!goes_well(&faulty_store_calls_left)) return false;
    memset((char *)buffer + offset, 0, size);
    return true;
}

cellar_row_store faulty_store(void)
{
    return (cellar_row_store){.allocate = store_allocate,
                              .release = take_back,
                              .read = store_read,
                              .write = store_write,
                              .copy = store_copy,
                              .clear = store_clear};
}
