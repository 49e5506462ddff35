/*
 * random.h: random numbers for tests and benchmarks that repeat from a seed.
 *
 * Promises: the same seed gives the same numbers on every machine and compiler. The generator is
 * SplitMix64 (Steele, Lea, Flood 2014): one 64-bit word of state, so a test can print it and go on
 * from there. Not for secrets. Cannot fail.
 */
#ifndef MODEL_RANDOM_H
#define MODEL_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0..n-1; n >= 1. */
static inline uint32_t random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(((random_next(state) >> 32) * n) >> 32);
}

/* low..high, both included. */
static inline int32_t random_between(uint64_t *state, int32_t low, int32_t high)
{
    return low + (int32_t)random_below(state, (uint32_t)(high - low) + 1);
}

/* True once in n calls. */
static inline bool random_one_in(uint64_t *state, uint32_t n)
{
    return random_below(state, n) == 0;
}

/* [-1, 1), a multiple of 2^-23: exact in f32. */
static inline float random_float(uint64_t *state)
{
    return (float)(int32_t)(random_next(state) >> 40) * 0x1p-23f - 1.0f;
}

/* A seed made of several numbers, each of which matters. */
static inline uint64_t random_mix(uint64_t a, uint64_t b)
{
    uint64_t state = a ^ (b * 0xd6e8feb86659fd93u);
    return random_next(&state);
}

#endif /* MODEL_RANDOM_H */
