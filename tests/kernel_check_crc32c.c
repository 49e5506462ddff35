/*
 * kernel_check_crc32c.c: tests of CRC-32C.
 *
 * The truth is the polynomial itself, one bit after the other, and the examples of RFC 3720. Sizes
 * reach beyond the longest stretch that a version reads at once, so that what joins its streams is
 * used; and starting from many values over nothing but zeros, every bit of a CRC passes through
 * every table.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <string.h>

enum { LARGEST = 40000 /* three times what is read at once, and more */ };

static uint32_t bit_by_bit(uint32_t crc, const unsigned char *bytes, size_t n)
{
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

static void expect_crc(check *c, uint32_t got, uint32_t expected, const char *what, size_t n)
{
    if (got != expected)
        check_fail(c, "%s, %zu bytes: 0x%08x, must be 0x%08x", what, n, got, expected);
}

static unsigned char *take_bytes(check *c, size_t n)
{
    unsigned char *bytes = take(c, n, 1, INPUT);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)random_bits(c);
    return bytes;
}

/* Every size up to 70, then random ones, then a few that are larger. */
static size_t bytes_of_trial(check *c, size_t trial)
{
    const size_t small = size_of_trial(c, trial), n_large = c->is_quick ? 3 : 100;
    if (small > 0) return small;
    size_t first_large = 70;
    while (size_of_trial(c, first_large) > 0)
        first_large++;
    return trial < first_large + n_large ? 4096 + random_below(c, LARGEST - 4096) : 0;
}

static void published_values(check *c)
{
    static const unsigned char command[48] = {[0] = 0x01,  [1] = 0xc0,  [16] = 0x14, [22] = 0x04,
                                              [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02};
    unsigned char ascending[32], descending[32], ones[32], zeros[32] = {0};
    memset(ones, 0xff, sizeof ones);
    for (unsigned i = 0; i < 32; i++) {
        ascending[i] = (unsigned char)i;
        descending[i] = (unsigned char)(31 - i);
    }
    const struct {
        const void *bytes;
        size_t n;
        uint32_t crc;
        const char *what;
    } examples[] = {{zeros, 32, 0x8a9136aa, "zeros"},
                    {ones, 32, 0x62a8ab43, "ones"},
                    {ascending, 32, 0x46dd794e, "0 to 31"},
                    {descending, 32, 0x113fdb5c, "31 to 0"},
                    {command, 48, 0xd9963a56, "an iSCSI command"},
                    {"123456789", 9, 0xe3069283, "nine digits"},
                    {"a", 1, 0xc1d04330, "a letter"},
                    {"", 0, 0, "nothing"}};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        begin(c); /* guarded, because wrong kernels are tried on it too */
        unsigned char *bytes = take(c, examples[i].n, 1, INPUT);
        memcpy(bytes, examples[i].bytes, examples[i].n);
        seal(c);
        const uint32_t crc = c->kernels.crc32c(0, bytes, examples[i].n);
        verify(c);
        expect_crc(c, crc, examples[i].crc, examples[i].what, examples[i].n);
    }
}

static void bits_are_those_of_the_polynomial(check *c)
{
    size_t n;
    for (size_t trial = 0; (n = bytes_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        const unsigned char *bytes = take_bytes(c, n);
        const uint32_t start = trial % 2 ? (uint32_t)random_bits(c) : 0;
        seal(c);
        const uint32_t crc = c->kernels.crc32c(start, bytes, n);
        verify(c);
        expect_crc(c, crc, bit_by_bit(start, bytes, n), "random bytes", n);
    }
}

static void parts_may_be_handed_over_one_by_one(check *c)
{
    size_t n;
    for (size_t trial = 0; (n = bytes_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        const unsigned char *bytes = take_bytes(c, n);
        seal(c);
        uint32_t crc = 0;
        for (size_t at = 0; at < n;) {
            const size_t part = random_below(c, n - at + 1);
            crc = c->kernels.crc32c(crc, bytes + at, part);
            at += part;
        }
        verify(c);
        expect_crc(c, crc, c->kernels.crc32c(0, bytes, n), "in parts", n);
    }
}

/* A CRC of one bit is followed by zeros: what it becomes is an entry of a table, or their xor. */
static void every_bit_passes_the_zeros(check *c)
{
    static const size_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 256, 512, 768, 1536, 4096, 8192, 12288};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i], n_starts = 32 + (c->is_quick ? 2 : 200);
        begin(c);
        unsigned char *zeros = take(c, n, 1, INPUT);
        memset(zeros, 0, n);
        seal(c);
        for (size_t s = 0; s < n_starts; s++) {
            const uint32_t start = ~(s < 32 ? (uint32_t)1 << s : (uint32_t)random_bits(c));
            expect_crc(c, c->kernels.crc32c(start, zeros, n), bit_by_bit(start, zeros, n), "zeros",
                       n);
        }
        verify(c);
    }
}

#define CRC32C .kernel = "crc32c", .offset = offsetof(cl_kernels, crc32c), .type = -1

const test crc32c_tests[] = {
    {CRC32C, .aspect = "has the published values", .run = published_values},
    {CRC32C, .aspect = "has the bits of the polynomial", .run = bits_are_those_of_the_polynomial},
    {CRC32C, .aspect = "goes on where it ended", .run = parts_may_be_handed_over_one_by_one},
    {CRC32C, .aspect = "lets every bit pass the zeros", .run = every_bit_passes_the_zeros},
};
const size_t n_crc32c_tests = sizeof crc32c_tests / sizeof *crc32c_tests;
