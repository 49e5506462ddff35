/*
 * matmul_scalar.c: products of weight rows with activations, written to be read.
 *
 * One idea: a weight type is only a way to decode numbers. A row is decoded a tile at a time into a
 * small buffer, and the tile is used for several tokens before the next one is decoded. Each (row,
 * token) pair has eight partial sums of its own (lanes.h) that live through all tiles, so its value
 * depends neither on the size of the tile nor on the other rows and tokens of the call; and a
 * matrix of any type gives exactly what the F32 matrix of its decoded numbers would give.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#include "kernels.h"

#include <string.h>

#include "half.h"
#include "lanes.h"
#include "packed.h"

enum {
    TILE = 256,         /* numbers decoded at a time; a multiple of every block and of LANES */
    TOKENS_AT_ONCE = 32 /* tokens that share a decoded tile: 1 KiB of partial sums */
};

/* How the numbers of one weight type are stored; the first three fields of cl_weight. */
typedef struct codec {
    uint32_t block, block_bytes;
    void (*decode)(float *to, const void *row, size_t n);
} codec;

static void decode_f32(float *to, const void *row, size_t n)
{
    memcpy(to, row, n * sizeof *to);
}

/* Weights come from a mapped file: they are read as bytes, whatever their alignment. */
static uint16_t read_u16(const unsigned char *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void decode_f16(float *to, const void *row, size_t n)
{
    const unsigned char *from = row;
    for (size_t i = 0; i < n; i++)
        to[i] = float_from_bits(float_bits_from_half(read_u16(from + 2 * i)));
}

static void decode_bf16(float *to, const void *row, size_t n)
{
    const unsigned char *from = row;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = float_bits_from_bfloat(read_u16(from + 2 * i));
        memcpy(&to[i], &bits, sizeof bits);
    }
}

/* One row against up to TOKENS_AT_ONCE tokens; y of token t at y[t * y_stride]. */
static void multiply_row(const codec *type, const unsigned char *row, size_t n_in, const float *x,
                         size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride)
{
    float tile[TILE];
    float lane[TOKENS_AT_ONCE][LANES] = {{0}};

    for (size_t at = 0; at < n_in; at += TILE) {
        const size_t n = n_in - at < TILE ? n_in - at : TILE;
        type->decode(tile, row + at / type->block * type->block_bytes, n);
        for (uint32_t t = 0; t < n_tokens; t++)
            lanes_add_products(lane[t], tile, x + t * x_stride + at, n);
    }
    for (uint32_t t = 0; t < n_tokens; t++)
        y[t * y_stride] = lanes_sum(lane[t]);
}

static void multiply(const codec *type, const void *w, size_t row_bytes, uint32_t n_in,
                     uint32_t first, uint32_t last, const float *x, size_t x_stride,
                     uint32_t n_tokens, float *y, size_t y_stride)
{
    for (uint32_t t = 0; t < n_tokens; t += TOKENS_AT_ONCE) {
        const uint32_t n = n_tokens - t < TOKENS_AT_ONCE ? n_tokens - t : TOKENS_AT_ONCE;
        for (size_t i = first; i < last; i++)
            multiply_row(type, (const unsigned char *)w + i * row_bytes, n_in, x + t * x_stride,
                         x_stride, n, y + t * y_stride + i, y_stride);
    }
}

/* The table's functions have no argument for the type, so each type gets one of its own. */
#define DEFINE_TYPE(name, decode, block, block_bytes)                                              \
    static const codec name = {block, block_bytes, decode};                                        \
    static void matmul_##name(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,      \
                              uint32_t last, const float *x, size_t x_stride, uint32_t n_tokens,   \
                              float *y, size_t y_stride)                                           \
    {                                                                                              \
        multiply(&name, w, row_bytes, n_in, first, last, x, x_stride, n_tokens, y, y_stride);      \
    }
#define DEFINE_BY_TILE(name, number, block, block_bytes)                                           \
    DEFINE_TYPE(name, packed_decode_##name, block, block_bytes)

DEFINE_TYPE(f32, decode_f32, 1, 4)
DEFINE_TYPE(f16, decode_f16, 1, 2)
DEFINE_TYPE(bf16, decode_bf16, 1, 2)
DEFINE_TYPE(q8_0, packed_decode_q8_0, 32, 34)
WEIGHTS_BY_TILE(DEFINE_BY_TILE)

void cl_matmul_fill_scalar(cl_matmul_table *table)
{
#define FILL(name, number)                                                                         \
    table->weight[number] = (cl_weight){name.block, name.block_bytes, name.decode, matmul_##name};
#define FILL_BY_TILE(name, number, block, block_bytes) FILL(name, number)
    FILL(f32, CL_WEIGHT_F32)
    FILL(f16, CL_WEIGHT_F16)
    FILL(bf16, CL_WEIGHT_BF16)
    FILL(q8_0, CL_WEIGHT_Q8_0)
    WEIGHTS_BY_TILE(FILL_BY_TILE)
}
