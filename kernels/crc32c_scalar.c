/*
 * crc32c_scalar.c: CRC-32C, eight bytes at a time by tables.
 *
 * The register holds the CRC of what was read, reflected and inverted, as RFC 3720 has it. Eight
 * bytes are taken in one step: the first four are added to the register, and each of the eight is
 * looked up in the table that says what it has become when the last of them is through. Bytes are
 * put together one by one, so that neither their order in the machine nor their alignment matters.
 * Nothing here fails.
 */
#include "kernels.h"

#include "crc32c.h"

/* slice[k][b]: what the byte b contributes when k more bytes have followed it. */
static const uint32_t slice[8][256] = {
    {CRC32C_SPAN(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc,
                 0x82f63b78)},
    {CRC32C_SPAN(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604,
                 0xfbc3faf9)},
    {CRC32C_SPAN(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9,
                 0x8b277743)},
    {CRC32C_SPAN(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7,
                 0x52a0c93f)},
    {CRC32C_SPAN(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae,
                 0x6ea2d55c)},
    {CRC32C_SPAN(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb,
                 0x1c08b7d6)},
    {CRC32C_SPAN(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a,
                 0xf56e0ef4)},
    {CRC32C_SPAN(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32,
                 0x34019664)},
};

static uint32_t read_u32(const unsigned char *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

static uint32_t crc32c(uint32_t crc, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    crc = ~crc;
    for (; n >= 8; n -= 8, at += 8) {
        const uint32_t low = crc ^ read_u32(at), high = read_u32(at + 4);
        crc = slice[7][low & 0xff] ^ slice[6][low >> 8 & 0xff] ^ slice[5][low >> 16 & 0xff] ^
              slice[4][low >> 24] ^ slice[3][high & 0xff] ^ slice[2][high >> 8 & 0xff] ^
              slice[1][high >> 16 & 0xff] ^ slice[0][high >> 24];
    }
    for (; n > 0; n--, at++)
        crc = slice[0][(crc ^ *at) & 0xff] ^ crc >> 8;
    return ~crc;
}

void cl_crc32c_fill_scalar(cl_kernels *table)
{
    table->crc32c = crc32c;
}
