/*
 * crc32c_avx2.c: CRC-32C by the instruction that SSE4.2 has for it (every processor with AVX2 does).
 *
 * The instruction takes eight bytes but waits three cycles for its own result, so three streams run
 * side by side over the pieces of crc32c_pieces.h. Nothing here fails.
 */
#include "kernels.h"

#include "crc32c_pieces.h"

#include <nmmintrin.h>
#include <string.h>

static inline uint64_t read_u64(const unsigned char *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* Three pieces, one behind the other. */
static inline uint32_t three_pieces(uint32_t crc, const unsigned char *at, size_t piece,
                                    const uint32_t shift[4][256])
{
    uint64_t first = crc, second = 0, third = 0;
    for (const unsigned char *end = at + piece; at < end; at += 8) {
        first = _mm_crc32_u64(first, read_u64(at));
        second = _mm_crc32_u64(second, read_u64(at + piece));
        third = _mm_crc32_u64(third, read_u64(at + 2 * piece));
    }
    const uint32_t joined = crc32c_joined(shift, (uint32_t)first, (uint32_t)second);
    return crc32c_joined(shift, joined, (uint32_t)third);
}

static uint32_t crc32c(uint32_t crc, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    crc = ~crc;
    for (; n >= 3 * LONG_PIECE; n -= 3 * LONG_PIECE, at += 3 * LONG_PIECE)
        crc = three_pieces(crc, at, LONG_PIECE, crc32c_shift_long);
    for (; n >= 3 * SHORT_PIECE; n -= 3 * SHORT_PIECE, at += 3 * SHORT_PIECE)
        crc = three_pieces(crc, at, SHORT_PIECE, crc32c_shift_short);
    for (; n >= 8; n -= 8, at += 8)
        crc = (uint32_t)_mm_crc32_u64(crc, read_u64(at));
    for (; n > 0; n--, at++)
        crc = _mm_crc32_u8(crc, *at);
    return ~crc;
}

void cl_crc32c_fill_avx2(cl_kernels *table)
{
    table->crc32c = crc32c;
}
