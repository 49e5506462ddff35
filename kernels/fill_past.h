/*
 * fill_past.h: an array filled with non-temporal stores; what AVX2 and AVX-512 share.
 *
 * The bytes before the first and after the last whole line of 64 are written through the caches. Whole lines are written
 * by the function that is given, which is inlined: a line at a time, or the processor would read it first. The fence puts
 * these stores, which are weakly ordered, in order with those that follow.
 */
#ifndef CL_FILL_PAST_H
#define CL_FILL_PAST_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "unroll.h"

enum { FILL_LINE = 64 };

ALWAYS_INLINE void fill_past(void *to, uint32_t pattern, size_t n,
                             void (*write_line)(void *line, uint32_t word))
{
    unsigned char block[FILL_LINE + 4], *bytes = to;
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (unsigned char)(pattern >> 8 * (i % 4));
    size_t done = (size_t)(-(uintptr_t)bytes & (FILL_LINE - 1));
    if (done > n) done = n;
    if (done > 0) memcpy(bytes, block, done);
    const unsigned char *rest = block + done % 4; /* the pattern as it goes on */
    uint32_t word;
    memcpy(&word, rest, sizeof word);
    for (; n - done >= FILL_LINE; done += FILL_LINE)
        write_line(bytes + done, word);
    _mm_sfence();
    if (done < n) memcpy(bytes + done, rest, n - done);
}

#endif /* CL_FILL_PAST_H */
