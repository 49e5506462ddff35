/*
 * matmul_avx512.c: products of weight rows with activations, with 512-bit registers.
 *
 * Each (row, token) pair is one chain of sixteen lanes and their tree (lanes_avx512.h), so a value never
 * depends on what was computed beside it, and a matrix of any type gives what the F32 matrix of its decoded
 * numbers would give. Activations are not rounded.
 *
 * Two ways lead through that chain:
 *   several tokens   a tile of eight rows is decoded into half of the first-level cache (packed.h, compiled
 *                    for these instructions) and then serves up to 192 tokens, three at a time: 8 x 3 sums,
 *                    a weight and three activations are 28 of the 32 registers. The activations of the next
 *                    three are fetched meanwhile. Sums of long rows are kept from tile to tile.
 *   few tokens       what counts is to read the rows fast: types with a simple layout are decoded in
 *                    registers, up to eight rows at once; the others a tile at a time.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#include "kernels.h"

#include <stdbool.h>
#include <string.h>

#include "lanes_avx512.h"
#include "packed.h"

/* One load for several products: gcc would give each of them its own. */
#define stay_in_register(value) __asm__("" : "+v"(value))

enum {
    TILE = 768,       /* numbers decoded at a time: a multiple of every block */
    ROWS_AT_ONCE = 8, /* with three tokens: 24 sums in registers */
    TOKENS_IN_REGISTERS = 3,
    TOKENS_AT_ONCE = 192,  /* that share a decoded tile */
    TOKEN_BYTES = 3 << 20, /* activations of those tokens at most: beyond, they leave the caches */
    FEW = 8,               /* tokens for which weights are decoded in registers */
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

/* ---- few tokens: in registers ---------------------------------------------------------------- */

/* Sixteen numbers of F32, F16 or BF16; `mask` says which are there, the others are zeros. */
ALWAYS_INLINE __m512 load_plain(int type, const unsigned char *from, __mmask16 mask)
{
    if (type == CL_WEIGHT_F32) return _mm512_maskz_loadu_ps(mask, from);
    const __m256i numbers = _mm256_maskz_loadu_epi16(mask, from);
    if (type == CL_WEIGHT_F16) return _mm512_cvtph_ps(numbers);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(numbers), 16));
}

/* scale * sixteen small integers; the product is exact (11 bits times 8). */
ALWAYS_INLINE __m512 scaled(__m128i quants, __m512 scale)
{
    return _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(quants)));
}

ALWAYS_INLINE __m512 load_scale(const unsigned char *block)
{
    uint16_t half;
    memcpy(&half, block, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)half));
}

ALWAYS_INLINE __m128i load_16(const unsigned char *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* A block of 32 numbers of Q8_0 or Q4_0, as two chunks. */
ALWAYS_INLINE void load_32(int type, const unsigned char *block, __m512 chunk[2])
{
    const __m512 scale = load_scale(block);
    __m128i first = load_16(block + 2), second;
    if (type == CL_WEIGHT_Q8_0) {
        second = load_16(block + 18);
    } else {
        const __m128i four = _mm_set1_epi8(15), zero = _mm_set1_epi8(8);
        second = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(first, 4), four), zero);
        first = _mm_sub_epi8(_mm_and_si128(first, four), zero);
    }
    chunk[0] = scaled(first, scale);
    chunk[1] = scaled(second, scale);
}

/* 32 numbers of each row, from x on: of types with blocks. */
ALWAYS_INLINE void multiply_blocks(int type, __m512 (*sum)[8], int rows, int tokens,
                                   const product *p, const unsigned char *from, const float *x)
{
    __m512 low[4], high[4];
    foreach(u, tokens) {
        low[u] = _mm512_loadu_ps(x + (size_t)u * p->x_stride);
        high[u] = _mm512_loadu_ps(x + (size_t)u * p->x_stride + WIDE);
    }
    foreach(r, rows) {
        const unsigned char *const block = from + (size_t)r * p->row_bytes;
        __m512 chunk[2];
        prefetch(block,
                 (size_t)rows * p->row_bytes); /* the processor does not foresee short streams */
        load_32(type, block, chunk);
        foreach(u, tokens) {
            sum[u][r] = _mm512_fmadd_ps(chunk[0], low[u], sum[u][r]);
            sum[u][r] = _mm512_fmadd_ps(chunk[1], high[u], sum[u][r]);
        }
    }
}

/* Sixteen numbers of each row, or as many as `mask` says: of types without. */
ALWAYS_INLINE void multiply_chunks(int type, __m512 (*sum)[8], int rows, int tokens,
                                   const product *p, const unsigned char *from, const float *x,
                                   __mmask16 mask)
{
    __m512 number[4];
    foreach(u, tokens)
        number[u] = _mm512_maskz_loadu_ps(mask, x + (size_t)u * p->x_stride);
    foreach(r, rows) {
        const unsigned char *const at = from + (size_t)r * p->row_bytes;
        prefetch(at, (size_t)rows * p->row_bytes);
        const __m512 weight = load_plain(type, at, mask);
        foreach(u, tokens)
            sum[u][r] = _mm512_fmadd_ps(weight, number[u], sum[u][r]);
    }
}

/* y of `rows` rows from row i and `tokens` tokens from token t. Constants: type, rows, tokens. */
ALWAYS_INLINE void multiply_few(int type, int rows, int tokens, const product *p, size_t i,
                                size_t t)
{
    const unsigned char *const row = p->w + i * p->row_bytes;
    const float *const x = p->x + t * p->x_stride;
    __m512 sum[4][8];
    foreach(u, tokens)
        foreach(r, rows)
            sum[u][r] = _mm512_setzero_ps();
    if (type == CL_WEIGHT_Q8_0 || type == CL_WEIGHT_Q4_0) {
        const size_t bytes = type == CL_WEIGHT_Q8_0 ? 34 : 18;
        for (size_t at = 0; at < p->n_in; at += 32)
            multiply_blocks(type, sum, rows, tokens, p, row + at / 32 * bytes, x + at);
    } else {
        const size_t bytes = type == CL_WEIGHT_F32 ? 4 : 2;
        size_t at = 0;
        for (; at + WIDE <= p->n_in; at += WIDE)
            multiply_chunks(type, sum, rows, tokens, p, row + at * bytes, x + at, 0xffff);
        if (at < p->n_in)
            multiply_chunks(type, sum, rows, tokens, p, row + at * bytes, x + at,
                            wide_first(p->n_in - at));
    }
    foreach(u, tokens) {
        float *const y = p->y + (t + (size_t)u) * p->y_stride + i;
        if (rows == 1) wide_finish(y, sum[u], 1);
        foreach(half, rows / 4)
            wide_finish(y + 4 * half, sum[u] + 4 * half, 4);
    }
}

/* Rows are read from memory once: those read for the first tokens are in the cache for the others. */
ALWAYS_INLINE void multiply_by_few(int type, const product *p, size_t i, size_t last,
                                   size_t n_tokens)
{
    for (; i + 8 <= last; i += 8) {
        size_t t = 0;
        for (; t + 4 <= n_tokens; t += 4) {
            multiply_few(type, 4, 4, p, i, t);
            multiply_few(type, 4, 4, p, i + 4, t);
        }
        for (; t + 2 <= n_tokens; t += 2)
            multiply_few(type, 8, 2, p, i, t);
        if (t < n_tokens) multiply_few(type, 8, 1, p, i, t);
    }
    for (; i < last; i++)
        for (size_t t = 0; t < n_tokens; t++)
            multiply_few(type, 1, 1, p, i, t);
}

/* ---- one set of functions a type ------------------------------------------------------------- */

static void decode_f32(float *to, const void *row, size_t n)
{
    memcpy(to, row, n * sizeof *to);
}

ALWAYS_INLINE void decode_plain(int type, float *to, const unsigned char *row, size_t n)
{
    for (size_t i = 0; i < n; i += WIDE) {
        const __mmask16 mask = n - i < WIDE ? wide_first(n - i) : 0xffff;
        _mm512_mask_storeu_ps(to + i, mask, load_plain(type, row + 2 * i, mask));
    }
}

static void decode_f16(float *to, const void *row, size_t n)
{
    decode_plain(CL_WEIGHT_F16, to, row, n);
}

static void decode_bf16(float *to, const void *row, size_t n)
{
    decode_plain(CL_WEIGHT_BF16, to, row, n);
}

static void decode_q8_0(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += 32, block += 34) {
        const __m512 scale = load_scale(block);
        _mm512_storeu_ps(to + i, scaled(load_16(block + 2), scale));
        _mm512_storeu_ps(to + i + 16, scaled(load_16(block + 18), scale));
    }
}

/* `few` is what up to FEW tokens get: in registers, or by tiles like any number of them. */
#define DEFINE_MATMUL(name, decoder, block, block_bytes, few)                                      \
    static void matmul_##name(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,      \
                              uint32_t last, const float *x, size_t x_stride, uint32_t n_tokens,   \
                              float *y, size_t y_stride)                                           \
    {                                                                                              \
        const product p = {decoder, block, block_bytes, w, row_bytes, n_in,                        \
                           0,       x,     x_stride,    y, y_stride};                              \
        if (n_tokens <= FEW)                                                                       \
            few;                                                                                   \
        else                                                                                       \
            multiply(p, first, last, n_tokens);                                                    \
    }

DEFINE_MATMUL(f32, decode_f32, 1, 4, multiply_by_few(CL_WEIGHT_F32, &p, first, last, n_tokens))
DEFINE_MATMUL(f16, decode_f16, 1, 2, multiply_by_few(CL_WEIGHT_F16, &p, first, last, n_tokens))
DEFINE_MATMUL(bf16, decode_bf16, 1, 2, multiply_by_few(CL_WEIGHT_BF16, &p, first, last, n_tokens))
DEFINE_MATMUL(q8_0, decode_q8_0, 32, 34, multiply_by_few(CL_WEIGHT_Q8_0, &p, first, last, n_tokens))
DEFINE_MATMUL(q4_0, packed_decode_q4_0, 32, 18,
              multiply_by_few(CL_WEIGHT_Q4_0, &p, first, last, n_tokens))

#define DEFINE_BY_TILE(name, number, block, block_bytes)                                           \
    DEFINE_MATMUL(name, packed_decode_##name, block, block_bytes,                                  \
                  multiply(p, first, last, n_tokens))
WEIGHTS_BY_TILE_ONLY(DEFINE_BY_TILE)

void cl_matmul_fill_avx512(cl_matmul_table *table)
{
    table->weight[CL_WEIGHT_F32] = (cl_weight){1, 4, decode_f32, matmul_f32};
    table->weight[CL_WEIGHT_F16] = (cl_weight){1, 2, decode_f16, matmul_f16};
    table->weight[CL_WEIGHT_BF16] = (cl_weight){1, 2, decode_bf16, matmul_bf16};
    table->weight[CL_WEIGHT_Q8_0] = (cl_weight){32, 34, decode_q8_0, matmul_q8_0};
#define FILL(name, number, block, block_bytes)                                                     \
    table->weight[number] = (cl_weight){block, block_bytes, packed_decode_##name, matmul_##name};
    WEIGHTS_BY_TILE(FILL)
}
