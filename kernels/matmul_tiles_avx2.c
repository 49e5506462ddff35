/*
 * matmul_tiles_avx2.c: products with the types of packed.h, with AVX2 and FMA.
 *
 * Up to four tokens take the weights from registers: 256 numbers of some rows are unpacked to bytes and scales
 * (packed_avx2.h), then become floats eight at a time, and each eight serve all tokens. More tokens share a
 * tile of 256 numbers of up to three rows that is decoded into the first-level cache and used for up to 32
 * tokens before the next one is. Either way each (row, token) pair is one chain of eight lanes that is
 * continued from tile to tile, and the tree of lanes_avx2.h at its end: the bits that the F32 matrix of the
 * decoded numbers gives in matmul_avx2.c, whatever was computed beside it.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#include "kernels.h"

#include "packed_avx2.h"

enum {
    TILE = 256,          /* numbers decoded at a time: a multiple of every block */
    ROWS_AT_ONCE = 3,    /* with four tokens: twelve sums in registers */
    TOKENS_AT_ONCE = 32, /* that share a decoded tile */
    FEW = 4,             /* tokens for which weights are decoded in registers */
};

typedef void decode_function(float *to, const void *row, size_t n);

/* A product that is under way: some rows, some tokens. */
typedef struct product {
    decode_function *decode;
    uint32_t block, block_bytes;
    const unsigned char *w; /* the matrix */
    size_t row_bytes, n_in;
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
} product;

/* ---- several tokens: tiles ------------------------------------------------------------------- */

/* Rows of one tile, decoded, and the sums so far. */
typedef struct tiles {
    float tile[ROWS_AT_ONCE][TILE];
    __m256 sum[ROWS_AT_ONCE][TOKENS_AT_ONCE];
} tiles;

/* Continue the sums of some rows and tokens by n numbers from `at` on. Constants: rows, tokens. */
ALWAYS_INLINE void multiply_block(tiles *t, int rows, int tokens, const product *p, size_t at,
                                  size_t n, size_t token)
{
    const float *const x = p->x + token * p->x_stride + at;
    __m256 sum[3][4];
    foreach(r, rows)
        foreach(u, tokens)
            sum[r][u] = t->sum[r][token + (size_t)u];
    for (size_t i = 0; i < n; i += LANES) {
        __m256 weight[3];
        foreach(r, rows)
            weight[r] = _mm256_loadu_ps(t->tile[r] + i);
        foreach(u, tokens) {
            const __m256 one = _mm256_loadu_ps(x + (size_t)u * p->x_stride + i);
            foreach(r, rows)
                sum[r][u] = _mm256_fmadd_ps(weight[r], one, sum[r][u]);
        }
    }
    foreach(r, rows)
        foreach(u, tokens)
            t->sum[r][token + (size_t)u] = sum[r][u];
}

/* All of `rows` rows from row i on, for n_tokens <= TOKENS_AT_ONCE tokens. */
ALWAYS_INLINE void multiply_rows(tiles *t, int rows, const product *p, size_t i, size_t n_tokens)
{
    for (int r = 0; r < rows; r++)
        for (size_t u = 0; u < n_tokens; u++)
            t->sum[r][u] = _mm256_setzero_ps();
    for (size_t at = 0; at < p->n_in; at += TILE) {
        const size_t n = p->n_in - at < TILE ? p->n_in - at : TILE;
        for (int r = 0; r < rows; r++) {
            const unsigned char *const row = p->w + (i + (size_t)r) * p->row_bytes;
            p->decode(t->tile[r], row + at / p->block * p->block_bytes, n);
        }
        size_t u = 0;
        for (; u + 4 <= n_tokens; u += 4)
            multiply_block(t, rows, 4, p, at, n, u);
        for (; u < n_tokens; u++)
            multiply_block(t, rows, 1, p, at, n, u);
    }
    for (int r = 0; r < rows; r++)
        for (size_t u = 0; u < n_tokens; u++)
            p->y[u * p->y_stride + i + (size_t)r] = lanes_sum(t->sum[r][u]);
}

/* One function for all types: for a tile of 256 numbers a call does not matter. */
static void multiply_by_tiles(product p, uint32_t first, uint32_t last, size_t n_tokens)
{
    tiles t;
    for (size_t done = 0, n; done < n_tokens; done += n) {
        n = n_tokens - done < TOKENS_AT_ONCE ? n_tokens - done : TOKENS_AT_ONCE;
        size_t i = first;
        for (; i + ROWS_AT_ONCE <= last; i += ROWS_AT_ONCE)
            multiply_rows(&t, ROWS_AT_ONCE, &p, i, n);
        for (; i < last; i++)
            multiply_rows(&t, 1, &p, i, n);
        p.x += n * p.x_stride;
        p.y += n * p.y_stride;
    }
}

/* ---- few tokens: in registers ---------------------------------------------------------------- */

/* The next rows: the processor does not foresee this many short streams by itself. */
ALWAYS_INLINE void prefetch_stretch(const unsigned char *from, size_t ahead, size_t bytes)
{
    const uintptr_t next = (uintptr_t)from + ahead;
    for (size_t at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)(next + at), _MM_HINT_T0);
}

/* n <= STRETCH numbers of each row, from x on. Constants: type, rows, tokens. */
ALWAYS_INLINE void multiply_stretch(int type, __m256 (*sum)[4], int rows, int tokens,
                                    const product *p, const unsigned char *from, const float *x,
                                    size_t n)
{
    unpacked u[4];
    foreach(r, rows) {
        const unsigned char *const at = from + (size_t)r * p->row_bytes;
        prefetch_stretch(at, (size_t)rows * p->row_bytes, bytes_of(type, n));
        unpack(type, &u[r], at, n);
    }
    for (size_t at = 0; at < n; at += LANES)
        foreach(r, rows) {
            const __m256 weight = unpacked_at(type, &u[r], at);
            foreach(t, tokens)
                sum[t][r] = _mm256_fmadd_ps(
                    weight, _mm256_loadu_ps(x + (size_t)t * p->x_stride + at), sum[t][r]);
        }
}

/* y of `rows` rows from row i and `tokens` tokens from token t. Constants: type, rows, tokens. */
ALWAYS_INLINE void multiply_few(int type, int rows, int tokens, const product *p, size_t i,
                                size_t t)
{
    const unsigned char *from = p->w + i * p->row_bytes;
    const float *const x = p->x + t * p->x_stride;
    __m256 sum[4][4];
    foreach(u, tokens)
        foreach(r, rows)
            sum[u][r] = _mm256_setzero_ps();
    size_t at = 0;
    for (; at + STRETCH <= p->n_in; at += STRETCH, from += bytes_of(type, STRETCH))
        multiply_stretch(type, sum, rows, tokens, p, from, x + at, STRETCH);
    if (block_of(type) < STRETCH && at < p->n_in)
        multiply_stretch(type, sum, rows, tokens, p, from, x + at, p->n_in - at);
    foreach(u, tokens) {
        float *const y = p->y + (t + (size_t)u) * p->y_stride + i;
        foreach(r, rows)
            y[r] = lanes_sum(sum[u][r]);
    }
}

/* Rows are read from memory once: those read for the first tokens are in the cache for the others. */
ALWAYS_INLINE void multiply_by_few(int type, const product *p, size_t i, size_t last,
                                   size_t n_tokens)
{
    for (; i + 4 <= last; i += 4) {
        size_t t = 0;
        for (; t + 4 <= n_tokens; t += 4) {
            multiply_few(type, 2, 4, p, i, t);
            multiply_few(type, 2, 4, p, i + 2, t);
        }
        for (; t + 2 <= n_tokens; t += 2)
            multiply_few(type, 4, 2, p, i, t);
        if (t < n_tokens) multiply_few(type, 4, 1, p, i, t);
    }
    for (; i < last; i++)
        for (size_t t = 0; t < n_tokens; t++)
            multiply_few(type, 1, 1, p, i, t);
}

/* ---- one set of functions a type ------------------------------------------------------------- */

#define DEFINE_TYPE(name, number, block, block_bytes)                                              \
    static void decode_##name(float *to, const void *row, size_t n)                                \
    {                                                                                              \
        unpack_to_floats(number, to, row, n);                                                      \
    }                                                                                              \
    static void matmul_##name(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,      \
                              uint32_t last, const float *x, size_t x_stride, uint32_t n_tokens,   \
                              float *y, size_t y_stride)                                           \
    {                                                                                              \
        const product p = {decode_##name, block, block_bytes, w, row_bytes,                        \
                           n_in,          x,     x_stride,    y, y_stride};                        \
        if (n_tokens <= FEW)                                                                       \
            multiply_by_few(number, &p, first, last, n_tokens);                                    \
        else                                                                                       \
            multiply_by_tiles(p, first, last, n_tokens);                                           \
    }
WEIGHTS_BY_TILE(DEFINE_TYPE)

void cl_matmul_tiles_fill_avx2(cl_matmul_table *table)
{
#define FILL(name, number, block, block_bytes)                                                     \
    table->weight[number] = (cl_weight){block, block_bytes, decode_##name, matmul_##name};
    WEIGHTS_BY_TILE(FILL)
}
