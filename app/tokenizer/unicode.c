/*
 * unicode.c: look up the class of a code point in the table of runs.
 *
 * The table has one entry for each run of code points of one class, sorted; a binary search takes
 * about eleven steps. ASCII, most of most texts, has a table of its own.
 */
#include "tokenizer/unicode.h"

/* Runs of letters that take turns between Lu and Ll, by which comes first. */
#define TURNS_LU 11u
#define TURNS_LL 12u

uint32_t unicode_class(uint32_t code)
{
    if (code < 0x80) {
        return unicode_ascii[code];
    }
    if (code > 0x10FFFF) {
        return UNICODE_OTHER;
    }
    uint32_t low = 0, high = unicode_n_runs; /* the run begins at or after low, before high */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (unicode_runs[middle] >> 4 <= code) {
            low = middle;
        } else {
            high = middle;
        }
    }
    uint32_t run = unicode_runs[low] & 15;
    if (run == TURNS_LU || run == TURNS_LL) {
        uint32_t is_second = (code - (unicode_runs[low] >> 4)) & 1;
        return (run == TURNS_LU) == (is_second == 0) ? UNICODE_LU : UNICODE_LL;
    }
    return 1u << run;
}
