/*
 * crc32c.h: how the tables of CRC-32C are made; what its versions share.
 *
 * A CRC is linear over single bits: what a byte contributes is the xor of what its bits do. So a
 * table of 256 entries follows from 8 of them, and CRC32C_SPAN makes it of those while compiling:
 * entry i is the xor of the numbers whose bit is set in i. Only these eight stand in the sources.
 *
 * They are images of single bits under "and then n bytes of zeros", n being 1 to 8 for the slices
 * of the scalar version and the length of a stream for the other. kernel_check holds every version
 * to the polynomial itself, bit by bit.
 */
#ifndef CL_CRC32C_H
#define CL_CRC32C_H

#define CRC32C_1(x, b0) (x), (x) ^ (b0)
#define CRC32C_2(x, b0, b1) CRC32C_1(x, b0), CRC32C_1((x) ^ (b1), b0)
#define CRC32C_3(x, b0, b1, b2) CRC32C_2(x, b0, b1), CRC32C_2((x) ^ (b2), b0, b1)
#define CRC32C_4(x, b0, b1, b2, b3) CRC32C_3(x, b0, b1, b2), CRC32C_3((x) ^ (b3), b0, b1, b2)
#define CRC32C_5(x, b0, b1, b2, b3, b4)                                                            \
    CRC32C_4(x, b0, b1, b2, b3), CRC32C_4((x) ^ (b4), b0, b1, b2, b3)
#define CRC32C_6(x, b0, b1, b2, b3, b4, b5)                                                        \
    CRC32C_5(x, b0, b1, b2, b3, b4), CRC32C_5((x) ^ (b5), b0, b1, b2, b3, b4)
#define CRC32C_7(x, b0, b1, b2, b3, b4, b5, b6)                                                    \
    CRC32C_6(x, b0, b1, b2, b3, b4, b5), CRC32C_6((x) ^ (b6), b0, b1, b2, b3, b4, b5)

/* The 256 entries that follow from those at 1, 2, 4, ..., 128. */
#define CRC32C_SPAN(b0, b1, b2, b3, b4, b5, b6, b7)                                                \
    CRC32C_7(0, b0, b1, b2, b3, b4, b5, b6), CRC32C_7(b7, b0, b1, b2, b3, b4, b5, b6)

#endif /* CL_CRC32C_H */
