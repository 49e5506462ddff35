/*
 * crc32c_neon.c: CRC-32C by the instructions that AArch64 has for it.
 *
 * They are optional before Armv8.1, so this file has compiler flags of its own and is entered only where
 * cl_cpu_has_crc32c() says so. Three streams run side by side over the pieces of crc32c_pieces.h, because
 * the instruction waits for its own result. Nothing here fails.
 */
#include "kernels.h"

#include "crc32c_pieces.h"

#include <arm_acle.h>
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
    uint32_t first = crc, second = 0, third = 0;
    for (const unsigned char *end = at + piece; at < end; at += 8) {
        first = __crc32cd(first, read_u64(at));
        second = __crc32cd(second, read_u64(at + piece));
        third = __crc32cd(third, read_u64(at + 2 * piece));
    }
    return crc32c_joined(shift, crc32c_joined(shift, first, second), third);
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
        crc = __crc32cd(crc, read_u64(at));
    for (; n > 0; n--, at++)
        crc = __crc32cb(crc, *at);
    return ~crc;
}

void cl_crc32c_fill_neon(cl_kernels *table)
{
    table->crc32c = crc32c;
}
