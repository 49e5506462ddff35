/*
 * crc32c_avx512.c: CRC-32C by products without carries (VPCLMULQDQ), 256 bytes a step.
 *
 * A message may be exchanged for any other that has the same remainder. So 64 bits that stand D bits
 * before others become their product with x^D, reduced, added to those others: two products and two
 * sums move sixteen bytes on, and four registers of 64 bytes are moved over the 256 bytes behind
 * them:
 *
 *     | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |  ...     register 0 goes to 4, 1 to 5, 2 to 6, 3 to 7
 *
 * At the end the four go to one, and what is left, 64 bytes and a tail, to the instruction of SSE4.2.
 *
 * Numbers are reflected, as the CRC is: bit i of a quadword is the coefficient of x^(63 - i), and a
 * product is x times too large (127 bits in 128). So the factor for a first quadword, which is 64
 * bits further away, is x^(D + 63), and for a second one x^(D - 1). Nothing here fails.
 */
#include "kernels.h"

#include <immintrin.h>
#include <string.h>

enum { WIDTH = 64, STEP = 4 * WIDTH };

/* Where D is the bits of a step, and of a register. */
#define OVER_A_STEP 0x1426a81500000000, (long long)0xe9a5d8be00000000
#define OVER_A_REGISTER 0x75bba45b00000000, 0x1c19243b00000000

static inline uint64_t read_u64(const unsigned char *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* `from`, moved on over `factors`, is added to `to`. */
static inline __m512i moved(__m512i from, __m512i factors, __m512i to)
{
    const __m512i first = _mm512_clmulepi64_epi128(from, factors, 0x00);
    const __m512i second = _mm512_clmulepi64_epi128(from, factors, 0x11);
    return _mm512_ternarylogic_epi64(first, second, to, 0x96); /* the sum of all three */
}

/* The remainder of at least a step, without the last bytes that fill no register. */
static uint32_t fold(uint32_t crc, const unsigned char *at, size_t n)
{
    const __m512i step = _mm512_broadcast_i32x4(_mm_set_epi64x(OVER_A_STEP));
    const __m512i width = _mm512_broadcast_i32x4(_mm_set_epi64x(OVER_A_REGISTER));
    __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + WIDTH);
    __m512i c = _mm512_loadu_si512(at + 2 * WIDTH), d = _mm512_loadu_si512(at + 3 * WIDTH);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (at += STEP, n -= STEP; n >= STEP; at += STEP, n -= STEP) {
        a = moved(a, step, _mm512_loadu_si512(at));
        b = moved(b, step, _mm512_loadu_si512(at + WIDTH));
        c = moved(c, step, _mm512_loadu_si512(at + 2 * WIDTH));
        d = moved(d, step, _mm512_loadu_si512(at + 3 * WIDTH));
    }
    a = moved(moved(moved(a, width, b), width, c), width, d);
    for (; n >= WIDTH; at += WIDTH, n -= WIDTH)
        a = moved(a, width, _mm512_loadu_si512(at));

    unsigned char rest[WIDTH];
    uint64_t sum = 0;
    _mm512_storeu_si512(rest, a);
    for (size_t i = 0; i < WIDTH; i += 8)
        sum = _mm_crc32_u64(sum, read_u64(rest + i));
    return (uint32_t)sum;
}

static uint32_t crc32c(uint32_t crc, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    crc = ~crc;
    if (n >= STEP) {
        crc = fold(crc, at, n);
        at += n - n % WIDTH;
        n %= WIDTH;
    }
    for (; n >= 8; n -= 8, at += 8)
        crc = (uint32_t)_mm_crc32_u64(crc, read_u64(at));
    for (; n > 0; n--, at++)
        crc = _mm_crc32_u8(crc, *at);
    return ~crc;
}

void cl_crc32c_fill_avx512(cl_kernels *table)
{
    table->crc32c = crc32c;
}
