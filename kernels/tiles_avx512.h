/*
 * tiles_avx512.h: products of weight rows with many tokens, whatever the type of the weights.
 *
 * A tile of four rows is decoded into the first-level cache by the function of the type and then serves up
 * to 96 tokens, six at a time: 4 x 6 sums, four weights and an activation are 29 of the 32 registers. Sums
 * are kept from tile to tile. Each (row, token) pair is one chain of sixteen lanes and their tree
 * (lanes_avx512.h), so a value never depends on what was computed beside it.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#ifndef CL_TILES_AVX512_H
#define CL_TILES_AVX512_H

#include "lanes_avx512.h"

enum {
    TILE = 768,          /* numbers decoded at a time: a multiple of every block */
    ROWS_AT_ONCE = 4,    /* with six tokens: 24 sums in registers */
    TOKENS_AT_ONCE = 96, /* that share a decoded tile: a multiple of six */
    TOKEN_BYTES =
        768 << 10, /* activations a stretch of tokens may have: they stay in the second level */
};

typedef void decode_function(float *to, const void *row, size_t n);

/* A product that is under way. */
typedef struct product {
    decode_function *decode;
    uint32_t block, block_bytes;
    const unsigned char *w; /* the matrix */
    size_t row_bytes, n_in;
    const float *x; /* of the first of these tokens */
    size_t x_stride;
    float *y;
    size_t y_stride;
} product;

/* Four rows' sums to four numbers that follow each other, or one row's to one. */
ALWAYS_INLINE void wide_finish(float *y, const __m512 *sum, int rows)
{
    if (rows == 4)
        _mm_storeu_ps(y, wide_sum4(sum));
    else
        *y = wide_sum(sum[0]);
}

/* ---- several tokens: tiles ------------------------------------------------------------------- */

/* Rows of one tile, decoded and filled up with zeros to a whole chunk; and the sums so far. */
typedef struct tiles {
    float tile[ROWS_AT_ONCE][TILE];
    __m512 sum[TOKENS_AT_ONCE][ROWS_AT_ONCE];
} tiles;

/* Continue the sums of some rows and tokens by n numbers from `at` on. Constants: rows, tokens. */
ALWAYS_INLINE void multiply_block(tiles *t, int rows, int tokens, const product *p, size_t at,
                                  size_t n, size_t token)
{
    const float *const x = p->x + token * p->x_stride + at;
    __m512 sum[6][4];
    foreach(u, tokens)
        foreach(r, rows)
            sum[u][r] = t->sum[token + (size_t)u][r];
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE) {
        __m512 weight[4];
        foreach(r, rows)
            weight[r] = _mm512_loadu_ps(t->tile[r] + i);
        foreach(u, tokens) {
            const __m512 one = _mm512_loadu_ps(x + (size_t)u * p->x_stride + i);
            foreach(r, rows)
                sum[u][r] = _mm512_fmadd_ps(weight[r], one, sum[u][r]);
        }
    }
    if (i < n)
        foreach(u, tokens) {
            const __m512 one = wide_rest(x + (size_t)u * p->x_stride + i, n - i);
            foreach(r, rows)
                sum[u][r] = _mm512_fmadd_ps(_mm512_loadu_ps(t->tile[r] + i), one, sum[u][r]);
        }
    foreach(u, tokens)
        foreach(r, rows)
            t->sum[token + (size_t)u][r] = sum[u][r];
}

/* All of `rows` rows from row i on, for n_tokens <= TOKENS_AT_ONCE tokens. */
ALWAYS_INLINE void multiply_rows(tiles *t, int rows, const product *p, size_t i, size_t n_tokens)
{
    for (size_t u = 0; u < n_tokens; u++)
        foreach(r, rows)
            t->sum[u][r] = _mm512_setzero_ps();
    for (size_t at = 0; at < p->n_in; at += TILE) {
        const size_t n = p->n_in - at < TILE ? p->n_in - at : TILE;
        for (int r = 0; r < rows; r++) {
            const unsigned char *const row = p->w + (i + (size_t)r) * p->row_bytes;
            p->decode(t->tile[r], row + at / p->block * p->block_bytes, n);
            for (size_t end = n; end % WIDE != 0; end++)
                t->tile[r][end] = 0;
        }
        size_t u = 0;
        for (; u + 6 <= n_tokens; u += 6)
            multiply_block(t, rows, 6, p, at, n, u);
        for (; u + 2 <= n_tokens; u += 2)
            multiply_block(t, rows, 2, p, at, n, u);
        if (u < n_tokens) multiply_block(t, rows, 1, p, at, n, u);
    }
    for (size_t u = 0; u < n_tokens; u++)
        wide_finish(p->y + u * p->y_stride + i, t->sum[u], rows);
}

/* Inlined for each type, so that the decoder is known. */
ALWAYS_INLINE void multiply(product p, uint32_t first, uint32_t last, size_t n_tokens)
{
    const size_t fitting = TOKEN_BYTES / sizeof(float) / (p.n_in + 1) / 6 * 6;
    const size_t most = fitting < 24 ? 24 : fitting < TOKENS_AT_ONCE ? fitting : TOKENS_AT_ONCE;
    tiles t;
    for (size_t done = 0, n; done < n_tokens; done += n) {
        n = n_tokens - done < most ? n_tokens - done : most;
        size_t i = first;
        for (; i + ROWS_AT_ONCE <= last; i += ROWS_AT_ONCE)
            multiply_rows(&t, ROWS_AT_ONCE, &p, i, n);
        for (; i < last; i++)
            multiply_rows(&t, 1, &p, i, n);
        p.x += n * p.x_stride;
        p.y += n * p.y_stride;
    }
}

#endif /* CL_TILES_AVX512_H */
