/*
 * checked.h: sums and products of sizes that say when they do not fit.
 *
 * Every size that depends on a configuration, a batch or a file goes through these. Each returns
 * false, and leaves *out alone, when the true result does not fit.
 */
#ifndef CL_CHECKED_H
#define CL_CHECKED_H

#include <stdbool.h>
#include <stddef.h>

static inline bool cl_checked_add(size_t a, size_t b, size_t *out)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return false;
    *out = sum;
    return true;
}

static inline bool cl_checked_mul(size_t a, size_t b, size_t *out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product)) return false;
    *out = product;
    return true;
}

/* Round up to a multiple of `align`, a power of two. */
static inline bool cl_checked_align(size_t a, size_t align, size_t *out)
{
    size_t sum;
    if (!cl_checked_add(a, align - 1, &sum)) return false;
    *out = sum & ~(align - 1);
    return true;
}

#endif /* CL_CHECKED_H */
