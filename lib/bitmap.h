/*
 * bitmap.h: ranges of bits in arrays of 64-bit words.
 *
 * Bit i is bit i % 64 of word i / 64. Ranges are [first, first + n); callers keep them inside the
 * array.
 */
#ifndef CL_BITMAP_H
#define CL_BITMAP_H

#include <stdbool.h>
#include <stdint.h>

/* The bits of word `w` that lie in [first, first + n). */
static inline uint64_t cl_bitmap_mask(uint32_t w, uint64_t first, uint64_t n)
{
    uint64_t begin = (uint64_t)w * 64;
    if (first + n <= begin || first >= begin + 64) return 0;
    uint64_t low = first > begin ? first - begin : 0;
    uint64_t high = first + n < begin + 64 ? first + n - begin : 64;
    if (low == high) return 0;
    uint64_t ones = high - low == 64 ? ~0ull : (1ull << (high - low)) - 1;
    return ones << low;
}

static inline bool cl_bitmap_get(const uint64_t *words, uint32_t i)
{
    return words[i / 64] >> (i % 64) & 1;
}

static inline void cl_bitmap_set(uint64_t *words, uint32_t first, uint32_t n)
{
    if (n == 0) return;
    for (uint32_t w = first / 64; w <= (first + n - 1) / 64; w++)
        words[w] |= cl_bitmap_mask(w, first, n);
}

static inline void cl_bitmap_clear(uint64_t *words, uint32_t first, uint32_t n)
{
    if (n == 0) return;
    for (uint32_t w = first / 64; w <= (first + n - 1) / 64; w++)
        words[w] &= ~cl_bitmap_mask(w, first, n);
}

/* Runs of ones in words that are added one by one, as one long word. */
typedef struct cl_bitmap_runs {
    uint32_t longest; /* so far */
    uint32_t open;    /* ones at the end of what was added */
} cl_bitmap_runs;

static inline void cl_bitmap_add_word(cl_bitmap_runs *runs, uint64_t word)
{
    if (word == ~0ull) {
        runs->open += 64;
    } else {
        runs->open += (uint32_t)__builtin_ctzll(~word); /* the run that came from before ends */
        if (runs->open > runs->longest) runs->longest = runs->open;
        uint32_t inside = 0;
        for (uint64_t left = word; left != 0; left &= left << 1) /* each run loses one */
            inside++;
        if (inside > runs->longest) runs->longest = inside;
        runs->open = (uint32_t)__builtin_clzll(~word);
    }
    if (runs->open > runs->longest) runs->longest = runs->open;
}

#endif /* CL_BITMAP_H */
