/*
 * matmul_tiles_avx2.c: products with weights that are decoded a tile at a time, with AVX2 and FMA.
 *
 * A tile of 256 numbers of up to three rows is decoded into a buffer in the first-level cache (packed.h,
 * compiled for these instructions) and used for up to 32 tokens before the next one is decoded. Each
 * (row, token) pair is one chain of eight lanes that is continued from tile to tile, and the tree of
 * lanes_avx2.h at its end: the bits that the F32 matrix of the decoded numbers gives in matmul_avx2.c,
 * whatever was computed beside it.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#include "kernels.h"

#include "lanes_avx2.h"
#include "packed.h"

enum {
    TILE = 256,          /* numbers decoded at a time: a multiple of every block */
    ROWS_AT_ONCE = 3,    /* with four tokens: twelve sums in registers */
    TOKENS_AT_ONCE = 32, /* that share a decoded tile */
};

typedef void decode_function(float *to, const void *row, size_t n);

/* A product that is under way: some rows, some tokens. */
typedef struct product {
    decode_function *decode;
    uint32_t block, block_bytes;
    const float *x;
    size_t x_stride;
    float tile[ROWS_AT_ONCE][TILE];
    __m256 sum[ROWS_AT_ONCE][TOKENS_AT_ONCE];
} product;

/* Continue the sums of rows 0..rows-1 and tokens t..t+tokens-1 by n numbers. Constants: rows, tokens. */
ALWAYS_INLINE void multiply_block(product *p, int rows, int tokens, size_t at, size_t n, size_t t)
{
    const float *x = p->x + t * p->x_stride + at;
    __m256 sum[3][4];
    foreach(r, rows)
        foreach(u, tokens)
            sum[r][u] = p->sum[r][t + (size_t)u];
    for (size_t i = 0; i < n; i += LANES) {
        __m256 weight[3];
        foreach(r, rows)
            weight[r] = _mm256_loadu_ps(p->tile[r] + i);
        foreach(u, tokens) {
            const __m256 one = _mm256_loadu_ps(x + (size_t)u * p->x_stride + i);
            foreach(r, rows)
                sum[r][u] = _mm256_fmadd_ps(weight[r], one, sum[r][u]);
        }
    }
    foreach(r, rows)
        foreach(u, tokens)
            p->sum[r][t + (size_t)u] = sum[r][u];
}

ALWAYS_INLINE void multiply_tile(product *p, int rows, size_t at, size_t n, size_t n_tokens)
{
    size_t t = 0;
    for (; t + 4 <= n_tokens; t += 4)
        multiply_block(p, rows, 4, at, n, t);
    for (; t < n_tokens; t++)
        multiply_block(p, rows, 1, at, n, t);
}

/* All of `rows` rows from `row` on for n_tokens tokens; y of row r and token t at y[t * y_stride + r]. */
ALWAYS_INLINE void multiply_rows(product *p, int rows, const unsigned char *row, size_t row_bytes,
                                 size_t n_in, size_t n_tokens, float *y, size_t y_stride)
{
    for (int r = 0; r < rows; r++)
        for (size_t t = 0; t < n_tokens; t++)
            p->sum[r][t] = _mm256_setzero_ps();
    for (size_t at = 0; at < n_in; at += TILE) {
        const size_t n = n_in - at < TILE ? n_in - at : TILE;
        for (int r = 0; r < rows; r++)
            p->decode(p->tile[r], row + (size_t)r * row_bytes + at / p->block * p->block_bytes, n);
        multiply_tile(p, rows, at, n, n_tokens);
    }
    for (int r = 0; r < rows; r++)
        for (size_t t = 0; t < n_tokens; t++)
            y[t * y_stride + (size_t)r] = lanes_sum(p->sum[r][t]);
}

ALWAYS_INLINE void multiply(decode_function *decode, uint32_t block, uint32_t block_bytes,
                            const unsigned char *w, size_t row_bytes, uint32_t n_in, uint32_t first,
                            uint32_t last, const float *x, size_t x_stride, uint32_t n_tokens,
                            float *y, size_t y_stride)
{
    product p;
    p.decode = decode;
    p.block = block;
    p.block_bytes = block_bytes;
    p.x_stride = x_stride;
    for (size_t t = 0; t < n_tokens; t += TOKENS_AT_ONCE) {
        const size_t n = n_tokens - t < TOKENS_AT_ONCE ? n_tokens - t : TOKENS_AT_ONCE;
        float *const to = y + t * y_stride;
        p.x = x + t * x_stride;
        size_t i = first;
        for (; i + ROWS_AT_ONCE <= last; i += ROWS_AT_ONCE)
            multiply_rows(&p, ROWS_AT_ONCE, w + i * row_bytes, row_bytes, n_in, n, to + i,
                          y_stride);
        for (; i < last; i++)
            multiply_rows(&p, 1, w + i * row_bytes, row_bytes, n_in, n, to + i, y_stride);
    }
}

#define DEFINE_TYPE(name, decode, block, block_bytes)                                              \
    static void matmul_##name(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,      \
                              uint32_t last, const float *x, size_t x_stride, uint32_t n_tokens,   \
                              float *y, size_t y_stride)                                           \
    {                                                                                              \
        multiply(decode, block, block_bytes, w, row_bytes, n_in, first, last, x, x_stride,         \
                 n_tokens, y, y_stride);                                                           \
    }
#define DEFINE_BY_TILE(name, number, block, block_bytes)                                           \
    DEFINE_TYPE(name, packed_decode_##name, block, block_bytes)
WEIGHTS_BY_TILE(DEFINE_BY_TILE)

void cl_matmul_tiles_fill_avx2(cl_matmul_table *table)
{
#define FILL_BY_TILE(name, number, block, block_bytes)                                             \
    table->weight[number] = (cl_weight){block, block_bytes, packed_decode_##name, matmul_##name};
    WEIGHTS_BY_TILE(FILL_BY_TILE)
}
