/*
 * crc32c_pieces.h: how CRC-32C is computed in three streams; what the versions with an instruction share.
 *
 * Such an instruction takes eight bytes but waits for its own result. So three streams run side by side over
 * three pieces of equal length:
 *
 *     | first: goes on from the CRC so far | second: from 0 | third: from 0 |
 *
 * and are joined: a CRC to which n bytes of zeros are added is a linear map of its 32 bits, a table look-up
 * for each of its four bytes. Long pieces do nearly all of the work and the join costs nothing; short ones
 * keep small sections from being left to a single stream.
 */
#ifndef CL_CRC32C_PIECES_H
#define CL_CRC32C_PIECES_H

#include <stdint.h>

#include "crc32c.h"

enum { LONG_PIECE = 4096, SHORT_PIECE = 256 };

/* [k][b]: what byte k of a CRC, being b, becomes when a piece of zeros has followed. */
static const uint32_t crc32c_shift_long[4][256] = {
    {CRC32C_SPAN(0xc2a5b65e, 0x80a71a4d, 0x04a2426b, 0x094484d6, 0x128909ac, 0x25121358, 0x4a2426b0,
                 0x94484d60)},
    {CRC32C_SPAN(0x2d7cec31, 0x5af9d862, 0xb5f3b0c4, 0x6e0b1779, 0xdc162ef2, 0xbdc02b15, 0x7e6c20db,
                 0xfcd841b6)},
    {CRC32C_SPAN(0xfc5cf59d, 0xfd559dcb, 0xff474d67, 0xfb62ec3f, 0xf329ae8f, 0xe3bf2bef, 0xc292212f,
                 0x80c834af)},
    {CRC32C_SPAN(0x047c1faf, 0x08f83f5e, 0x11f07ebc, 0x23e0fd78, 0x47c1faf0, 0x8f83f5e0, 0x1aeb9d31,
                 0x35d73a62)},
};

static const uint32_t crc32c_shift_short[4][256] = {
    {CRC32C_SPAN(0xdcb17aa4, 0xbc8e83b9, 0x7cf17183, 0xf9e2e306, 0xf629b0fd, 0xe9bf170b, 0xd69258e7,
                 0xa8c8c73f)},
    {CRC32C_SPAN(0x547df88f, 0xa8fbf11e, 0x541b94cd, 0xa837299a, 0x558225c5, 0xab044b8a, 0x53e4e1e5,
                 0xa7c9c3ca)},
    {CRC32C_SPAN(0x4a7ff165, 0x94ffe2ca, 0x2c13b365, 0x582766ca, 0xb04ecd94, 0x6571edd9, 0xcae3dbb2,
                 0x902bc195)},
    {CRC32C_SPAN(0x25bbf5db, 0x4b77ebb6, 0x96efd76c, 0x2833d829, 0x5067b052, 0xa0cf60a4, 0x4472b7b9,
                 0x88e56f72)},
};

/* The CRC of a piece that starts from `first` and would, from 0, have the CRC `second`. */
static inline uint32_t crc32c_joined(const uint32_t shift[4][256], uint32_t first, uint32_t second)
{
    return shift[0][first & 0xff] ^ shift[1][first >> 8 & 0xff] ^ shift[2][first >> 16 & 0xff] ^
           shift[3][first >> 24] ^ second;
}

#endif /* CL_CRC32C_PIECES_H */
