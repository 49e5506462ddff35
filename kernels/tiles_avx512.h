/*
 * tiles_avx512.h: products of weight rows with many tokens, whatever the type of the weights.
 *
 * A tile of eight rows is decoded into half of the first-level cache by the function of the type and then
 * serves up to 192 tokens, three at a time: 8 x 3 sums, a weight and three activations are 28 of the 32
 * registers. The activations of the next three are fetched meanwhile. Sums of long rows are kept from tile
 * to tile. Each (row, token) pair is one chain of sixteen lanes and their tree (lanes_avx512.h), so a value
 * never depends on what was computed beside it.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#ifndef CL_TILES_AVX512_H
#define CL_TILES_AVX512_H

#include <stdbool.h>

#include "lanes_avx512.h"

/* One load for several products: gcc would give each of them its own. */
#define stay_in_register(value) __asm__("" : "+v"(value))

enum {
    TILE = 768,       /* numbers decoded at a time: a multiple of every block */
    ROWS_AT_ONCE = 8, /* with three tokens: 24 sums in registers */
    TOKENS_IN_REGISTERS = 3,
    TOKENS_AT_ONCE = 192,  /* that share a decoded tile */
    TOKEN_BYTES = 3 << 20, /* activations of those tokens at most: beyond, they leave the caches */
};

typedef void decode_function(float *to, const void *row, size_t n);

/* A product that is under way. */
typedef struct product {
    decode_function *decode;
    uint32_t block, block_bytes;
    const unsigned char *w; /* the matrix */
    size_t row_bytes, n_in, tile;
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

/* What will be needed `bytes` further on. It may lie behind the end: nothing is accessed. */
ALWAYS_INLINE void prefetch(const void *from, size_t bytes)
{
    _mm_prefetch((const char *)((uintptr_t)from + bytes), _MM_HINT_T0);
}

/* ---- several tokens: tiles ------------------------------------------------------------------- */

/* Rows of one tile, decoded and filled up with zeros to a whole chunk; and the sums so far. */
typedef struct tiles {
    float tile[ROWS_AT_ONCE][TILE];
    __m512 sum[TOKENS_AT_ONCE][ROWS_AT_ONCE];
    size_t at, n; /* where in the rows the tile is, and how long */
    bool is_first, is_last;
} tiles;

/* Continue the sums of some rows and tokens by a tile. Constants: rows, tokens. */
ALWAYS_INLINE void multiply_block(tiles *t, int rows, int tokens, const product *p, size_t row,
                                  size_t token)
{
    const float *const x = p->x + token * p->x_stride + t->at;
    __m512 sum[TOKENS_IN_REGISTERS][ROWS_AT_ONCE];
    foreach(u, tokens)
        foreach(r, rows)
            sum[u][r] = t->is_first ? _mm512_setzero_ps() : t->sum[token + (size_t)u][r];
    size_t i = 0;
    for (; i + WIDE <= t->n; i += WIDE) {
        __m512 one[TOKENS_IN_REGISTERS];
        foreach(u, tokens) {
            one[u] = _mm512_loadu_ps(x + (size_t)u * p->x_stride + i);
            prefetch(x + (size_t)u * p->x_stride + i, (size_t)tokens * p->x_stride * sizeof *x);
        }
        foreach(r, rows) {
            __m512 weight = _mm512_load_ps(t->tile[r] + i);
            stay_in_register(weight);
            foreach(u, tokens)
                sum[u][r] = _mm512_fmadd_ps(weight, one[u], sum[u][r]);
        }
    }
    if (i < t->n) {
        foreach(u, tokens) {
            const __m512 one = wide_rest(x + (size_t)u * p->x_stride + i, t->n - i);
            foreach(r, rows)
                sum[u][r] = _mm512_fmadd_ps(_mm512_load_ps(t->tile[r] + i), one, sum[u][r]);
        }
    }
    foreach(u, tokens) {
        float *const y = p->y + (token + (size_t)u) * p->y_stride + row;
        if (!t->is_last)
            foreach(r, rows)
                t->sum[token + (size_t)u][r] = sum[u][r];
        else if (rows == 8)
            _mm256_storeu_ps(y, wide_sum8(sum[u]));
        else
            *y = wide_sum(sum[u][0]);
    }
}

/* The rows that are decoded next come from memory while these are multiplied. */
ALWAYS_INLINE void fetch_next_rows(const tiles *t, int rows, const product *p, size_t i)
{
    const size_t first = t->at / p->block * p->block_bytes;
    const size_t bytes = (t->n + p->block - 1) / p->block * p->block_bytes;
    for (int r = 0; r < rows; r++) {
        const unsigned char *const row = p->w + (i + (size_t)r) * p->row_bytes + first;
        for (size_t at = 0; at < bytes; at += 64)
            _mm_prefetch((const char *)((uintptr_t)row + (size_t)rows * p->row_bytes + at),
                         _MM_HINT_T1);
    }
}

/* All of `rows` rows from row i on, for n_tokens <= TOKENS_AT_ONCE tokens. */
ALWAYS_INLINE void multiply_rows(tiles *t, int rows, const product *p, size_t i, size_t n_tokens)
{
    for (t->at = 0; t->at < p->n_in; t->at += p->tile) {
        t->n = p->n_in - t->at < p->tile ? p->n_in - t->at : p->tile;
        t->is_first = t->at == 0;
        t->is_last = t->at + t->n == p->n_in;
        for (int r = 0; r < rows; r++) {
            const unsigned char *const row = p->w + (i + (size_t)r) * p->row_bytes;
            p->decode(t->tile[r], row + t->at / p->block * p->block_bytes, t->n);
            for (size_t end = t->n; end % WIDE != 0; end++)
                t->tile[r][end] = 0;
        }
        fetch_next_rows(t, rows, p, i);
        size_t u = 0;
        for (; u + TOKENS_IN_REGISTERS <= n_tokens; u += TOKENS_IN_REGISTERS)
            multiply_block(t, rows, TOKENS_IN_REGISTERS, p, i, u);
        for (; u < n_tokens; u++)
            multiply_block(t, rows, 1, p, i, u);
    }
}

/* Inlined for each type, so that the decoder is known. */
ALWAYS_INLINE void multiply(product p, uint32_t first, uint32_t last, size_t n_tokens)
{
    const size_t n_tiles = (p.n_in + TILE - 1) / TILE; /* of one length, so that none is short */
    p.tile = ((p.n_in + n_tiles - 1) / n_tiles + 255) / 256 * 256;
    const size_t fitting = TOKEN_BYTES / sizeof(float) / (p.n_in + 1) / 3 * 3;
    const size_t most = fitting < 24 ? 24 : fitting < TOKENS_AT_ONCE ? fitting : TOKENS_AT_ONCE;
    tiles t __attribute__((aligned(64)));
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
