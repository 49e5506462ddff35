/*
 * half.h: binary16 and bfloat16 <-> binary32 by bit manipulation.
 *
 * The truth for every other version: for each of the 2^16 halves and each of the 2^32 floats the
 * result has the bits that the F16C instructions give. Rounding is to nearest, ties to even. Values
 * beyond the largest half become infinity, values too small for a denormal become zero of the same
 * sign. A NaN stays a NaN of the same sign; it is made quiet and keeps the leading bits of its
 * payload.
 *
 * Bits are moved through integers only, so that no compiler or register width can quieten a NaN on
 * the way or flush a denormal.
 */
#ifndef CL_HALF_H
#define CL_HALF_H

#include <stdint.h>
#include <string.h>

static inline float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline uint32_t float_bits_from_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t fraction = half & 0x3ffu;

    if (exponent == 0x1f) /* infinity, or NaN with its quiet bit set */
        return sign | 0x7f800000u | (fraction << 13) | (fraction ? 0x00400000u : 0);
    if (exponent != 0) return sign | ((exponent + 127 - 15) << 23) | (fraction << 13);
    if (fraction == 0) return sign;
    /* Denormal: fraction * 2^-24 is a normal float; move its leading bit to the hidden place. */
    uint32_t shift = 0;
    while (!(fraction & 0x400u)) {
        fraction <<= 1;
        shift++;
    }
    return sign | ((127 - 14 - shift) << 23) | ((fraction & 0x3ffu) << 13);
}

static inline uint16_t half_from_float_bits(uint32_t bits)
{
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u) /* NaN */
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
    if (magnitude >= 0x47800000u) /* 2^16 and more, infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000000u) /* below 2^-25, half the smallest denormal */
        return (uint16_t)sign;

    /*
     * kept = what a half can hold, rest = what is cut off, in units where one step of kept is
     * `one`.
     */
    uint32_t kept, rest, one;
    if (magnitude >= 0x38800000u) { /* normal half: 2^-14 and more */
        kept = (magnitude - ((127u - 15u) << 23)) >> 13;
        rest = magnitude & 0x1fffu;
        one = 0x2000u;
    } else {
        const uint32_t exponent = magnitude >> 23; /* 102 .. 112 */
        const uint32_t shift = 126u - exponent;    /* 14 .. 24 */
        const uint32_t full = (magnitude & 0x7fffffu) | 0x800000u;
        kept = full >> shift;
        one = 1u << shift;
        rest = full & (one - 1);
    }
    if (rest > one / 2 || (rest == one / 2 && (kept & 1u)))
        kept++; /* a carry into the exponent is the right next number, up to infinity */
    return (uint16_t)(sign | kept);
}

static inline uint32_t float_bits_from_bfloat(uint16_t bfloat)
{
    return (uint32_t)bfloat << 16;
}

/* To nearest, ties to even; a NaN keeps its sign and leading payload and becomes quiet. */
static inline uint16_t bfloat_from_float_bits(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16); /* a carry may reach infinity */
}

#endif /* CL_HALF_H */
