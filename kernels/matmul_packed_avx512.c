/*
 * matmul_packed_avx512.c: products with the types of packed.h, with 512-bit registers.
 *
 * Up to four tokens take the weights from registers: 256 numbers of four rows are unpacked to bytes and
 * scales (packed_avx512.h), then become floats sixteen at a time, and each sixteen serve all tokens. More
 * tokens share tiles of floats (tiles_avx512.h). Either way a (row, token) pair is one chain of sixteen
 * lanes and their tree, and a matrix of any type gives, bit for bit, what the F32 matrix of its decoded
 * numbers would give.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#include "kernels.h"

#include "packed_avx512.h"
#include "tiles_avx512.h"

enum { FEW = 4 /* tokens for which weights are decoded in registers */ };

/* The next rows: the processor does not foresee this many short streams by itself. */
ALWAYS_INLINE void prefetch_stretch(const unsigned char *row, size_t bytes)
{
    const uintptr_t next = (uintptr_t)row;
    for (size_t at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)(next + at), _MM_HINT_T0);
}

/* n <= STRETCH numbers of each row, from x on. Constants: type, rows, tokens. */
ALWAYS_INLINE void multiply_stretch(int type, __m512 (*sum)[4], int rows, int tokens,
                                    const product *p, const unsigned char *from, const float *x,
                                    size_t n)
{
    unpacked u[4];
    foreach(r, rows) {
        const unsigned char *const at = from + (size_t)r * p->row_bytes;
        prefetch_stretch(at + (size_t)rows * p->row_bytes, bytes_of(type, n));
        wide_unpack(type, &u[r], at, n);
    }
    for (size_t at = 0; at < n; at += WIDE)
        foreach(r, rows) {
            const __m512 weight = wide_unpacked_at(type, &u[r], at);
            foreach(t, tokens)
                sum[t][r] = _mm512_fmadd_ps(
                    weight, _mm512_loadu_ps(x + (size_t)t * p->x_stride + at), sum[t][r]);
        }
}

/* y of `rows` rows from row i and `tokens` tokens from token t. Constants: type, rows, tokens. */
ALWAYS_INLINE void multiply_few(int type, int rows, int tokens, const product *p, size_t i,
                                size_t t)
{
    const size_t bytes = bytes_of(type, STRETCH);
    const unsigned char *from = p->w + i * p->row_bytes;
    const float *const x = p->x + t * p->x_stride;
    __m512 sum[4][4];
    foreach(u, tokens)
        foreach(r, rows)
            sum[u][r] = _mm512_setzero_ps();
    size_t at = 0;
    for (; at + STRETCH <= p->n_in; at += STRETCH, from += bytes)
        multiply_stretch(type, sum, rows, tokens, p, from, x + at, STRETCH);
    if (block_of(type) < STRETCH && at < p->n_in)
        multiply_stretch(type, sum, rows, tokens, p, from, x + at, p->n_in - at);
    foreach(u, tokens)
        wide_finish(p->y + (t + (size_t)u) * p->y_stride + i, sum[u], rows);
}

/* Rows are read from memory once: those read for the first tokens are in the cache for the others. */
ALWAYS_INLINE void multiply_by_few(int type, const product *p, size_t i, size_t last,
                                   size_t n_tokens)
{
    for (; i + 4 <= last; i += 4) {
        size_t t = 0;
        for (; t + 4 <= n_tokens; t += 4)
            multiply_few(type, 4, 4, p, i, t);
        for (; t + 2 <= n_tokens; t += 2)
            multiply_few(type, 4, 2, p, i, t);
        if (t < n_tokens) multiply_few(type, 4, 1, p, i, t);
    }
    for (; i < last; i++)
        for (size_t t = 0; t < n_tokens; t++)
            multiply_few(type, 1, 1, p, i, t);
}

/* One function for all types: for a tile of 768 numbers a call does not matter. */
static void multiply_by_tiles(product p, uint32_t first, uint32_t last, size_t n_tokens)
{
    multiply(p, first, last, n_tokens);
}

#define DEFINE_TYPE(name, number, block, block_bytes)                                              \
    static void decode_##name(float *to, const void *row, size_t n)                                \
    {                                                                                              \
        wide_unpack_to_floats(number, to, row, n);                                                 \
    }                                                                                              \
    static void matmul_##name(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,      \
                              uint32_t last, const float *x, size_t x_stride, uint32_t n_tokens,   \
                              float *y, size_t y_stride)                                           \
    {                                                                                              \
        const product p = {decode_##name, block, block_bytes, w, row_bytes, n_in, 0, x,            \
                           x_stride,      y,     y_stride};                                        \
        if (n_tokens <= FEW)                                                                       \
            multiply_by_few(number, &p, first, last, n_tokens);                                    \
        else                                                                                       \
            multiply_by_tiles(p, first, last, n_tokens);                                           \
    }
WEIGHTS_BY_TILE_ONLY(DEFINE_TYPE)

void cl_matmul_packed_fill_avx512(cl_matmul_table *table)
{
#define FILL(name, number, block, block_bytes)                                                     \
    table->weight[number] = (cl_weight){block, block_bytes, decode_##name, matmul_##name};
    WEIGHTS_BY_TILE_ONLY(FILL)
}
