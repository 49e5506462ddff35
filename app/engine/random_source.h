/*
 * random_source.h: the small random generator that the sampler draws from.
 *
 * xoshiro256** 1.0 (Blackman and Vigna, "Scrambled linear pseudorandom number generators",
 * arXiv:1805.01407), its four words filled from one seed by splitmix64 (Steele, Lea and Flood,
 * "Fast splittable pseudorandom number generators", OOPSLA 2014; constants of Vigna's
 * public-domain description). Only 64-bit integer arithmetic: the numbers are the same on every
 * machine, and a text is repeated from its seed. Not for secrets.
 */
#ifndef APP_RANDOM_SOURCE_H
#define APP_RANDOM_SOURCE_H

#include <stdint.h>

typedef struct random_source {
    uint64_t word[4]; /* not all 0; splitmix64 never gives four zeros in a row */
} random_source;

/* Advance *state and return the next number of splitmix64. */
static inline uint64_t random_source_split(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline void random_source_seed(random_source *g, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        g->word[i] = random_source_split(&seed);
    }
}

static inline uint64_t random_source_rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

/* 64 random bits. */
static inline uint64_t random_source_next(random_source *g)
{
    uint64_t *w = g->word;
    uint64_t result = random_source_rotate(w[1] * 5, 7) * 9;
    uint64_t shifted = w[1] << 17;
    w[2] ^= w[0];
    w[3] ^= w[1];
    w[1] ^= w[2];
    w[0] ^= w[3];
    w[2] ^= shifted;
    w[3] = random_source_rotate(w[3], 45);
    return result;
}

/* A number in [0, 1) with 53 random bits. */
static inline double random_source_unit(random_source *g)
{
    return (double)(random_source_next(g) >> 11) * 0x1p-53;
}

#endif /* APP_RANDOM_SOURCE_H */
