/*
 * matmul_rounded_avx512.c: products of whole numbers with many tokens, with VNNI.
 *
 * rounded.h says how activations are rounded and in which order parts are added. 256 numbers of 32 rows are
 * unpacked to words of 16 bits and turned so that a register holds two numbers of each of sixteen rows:
 *
 *     lane r: row r's numbers 4 i and 4 i + 2 (even registers), 4 i + 1 and 4 i + 3 (odd ones)
 *
 * An instruction (vpdpwssd) multiplies these with the same two numbers of a token and adds both products to
 * sixteen rows' sums; for each part the sums are scaled once. Twelve tokens share the registers of weights: 24
 * sums, two registers of weights and one of the token are 27 of the 32. Few tokens are computed from rows as they lie
 * (rounded_few_avx512.h); the bits are the same.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#include "kernels.h"

#include <math.h>

#include "packed_avx512.h"
#include "rounded.h"
#include "rounded_few_avx512.h"

enum {
    LANE_ROWS = 16,
    GROUPS = 2, /* of sixteen rows */
    TOKENS = 12 /* that share weights in registers */
};

/* Up to 256 numbers of 32 rows. */
typedef struct tile {
    __m512i pair[GROUPS][STRETCH / 2];
    __m512 scale[GROUPS][PARTS], offset[GROUPS][PARTS];
} tile;

/* A product that is under way. */
typedef struct product {
    const unsigned char *w; /* the matrix */
    size_t row_bytes, n_in;
    const char *x; /* of the first token */
    size_t x_bytes;
    float *y; /* of row 0 */
    size_t y_stride;
    size_t first, last;         /* rows */
    size_t at, n;               /* the stretch */
    size_t row;                 /* the first of the tile */
    __mmask16 is_there[GROUPS]; /* which of its rows exist */
} product;

/* ---- activations ----------------------------------------------------------------------------- */

ALWAYS_INLINE void put_few(int8_t *high, int8_t *low, __m512i whole)
{
    const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(whole, _mm512_set1_epi32(128)), 8);
    const __m512i lower = _mm512_sub_epi32(whole, _mm512_slli_epi32(upper, 8));
    _mm_storeu_si128((__m128i *)(void *)high, _mm512_cvtepi32_epi8(upper));
    _mm_storeu_si128((__m128i *)(void *)low, _mm512_cvtepi32_epi8(lower));
}

ALWAYS_INLINE void put_words(int16_t *to, __m512i whole)
{
    const __m256i words = _mm512_cvtepi32_epi16(whole);
    const __m256i turned = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)to, turned);
}

static void round_avx512(void *row, const float *x, size_t n, uint32_t n_tokens)
{
    const rounded to = rounded_at(row, n);
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (size_t at = 0; at < n; at += QUANTS) {
        const __m512 number[2] = {_mm512_loadu_ps(x + at), _mm512_loadu_ps(x + at + 16)};
        const uint32_t most = _mm512_reduce_max_epu32(
            _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(number[0]), magnitude),
                             _mm512_and_si512(_mm512_castps_si512(number[1]), magnitude)));
        const int is_finite = most < INFINITE_BITS;
        const float largest = float_from_bits(most);
        const float held = largest > SMALLEST_LARGEST ? largest : SMALLEST_LARGEST;
        const float scale = is_finite ? held / LARGEST_ROUNDED : NAN;
        const __m512 inverse = _mm512_set1_ps(LARGEST_ROUNDED / held);
        int32_t sum[2];
        foreach(half, 2) {
            const __m512i whole = _mm512_maskz_cvtps_epi32(is_finite ? 0xffff : 0,
                                                           _mm512_mul_ps(number[half], inverse));
            sum[half] = _mm512_reduce_add_epi32(whole);
            if (n_tokens <= CL_FEW_TOKENS)
                put_few(to.high + at + 16 * half, to.low + at + 16 * half, whole);
            else
                put_words(to.words + at + 16 * half, whole);
            to.sum16[at / 16 + (size_t)half] = sum[half];
            to.weighted16[at / 16 + (size_t)half] = (float)sum[half] * scale;
        }
        to.scale[at / QUANTS] = scale;
        to.weighted32[at / QUANTS] = (float)(sum[0] + sum[1]) * scale;
    }
}

/* ---- a tile ---------------------------------------------------------------------------------- */

/* Lane c of register r becomes lane r of register c. */
ALWAYS_INLINE void transpose(__m512i *v)
{
    __m512i a[16], b[16];
    foreach(i, 8) {
        a[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    foreach(i, 4) {
        b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    foreach(c, 4) { /* b[4 i + c]: in quarter q lane 4 q + c of registers 4 i to 4 i + 3 */
        const __m512i low = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);
        const __m512i high = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
        const __m512i low_odd = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd);
        const __m512i high_odd = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd);
        v[c] = _mm512_shuffle_i32x4(low, high, 0x88);
        v[8 + c] = _mm512_shuffle_i32x4(low, high, 0xdd);
        v[4 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
        v[12 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd);
    }
}

/* Sixteen numbers of each row, turned. */
ALWAYS_INLINE void turn_floats(__m512 *to, const unpacked *u, int is_offset)
{
    __m512i v[16];
    foreach(r, LANE_ROWS)
        v[r] = _mm512_load_si512(is_offset ? u[r].offset : u[r].scale);
    transpose(v);
    foreach(part, PARTS)
        to[part] = _mm512_castsi512_ps(v[part]);
}

/* 64 numbers of each row, turned and widened. */
ALWAYS_INLINE void turn_quants(int type, __m512i *to, const unpacked *u, size_t at)
{
    __m512i v[16];
    foreach(r, LANE_ROWS)
        v[r] = _mm512_load_si512(u[r].quant + at);
    transpose(v);
    foreach(i, 16) {
        const __m512i four = type == CL_WEIGHT_MXFP4 ? look_up(whole_levels, 0, v[i]) : v[i];
        to[2 * i] = _mm512_srai_epi16(_mm512_slli_epi16(four, 8), 8);
        to[2 * i + 1] = _mm512_srai_epi16(four, 8);
    }
}

/* The stretch of sixteen rows from `row` on; missing ones are the last once more. */
ALWAYS_INLINE void unpack_group(int type, tile *to, int group, const product *p, size_t row)
{
    unpacked u[LANE_ROWS];
    for (size_t r = 0; r < LANE_ROWS; r++) {
        const size_t i = row + r < p->last ? row + r : p->last - 1;
        const unsigned char *const from = p->w + i * p->row_bytes + bytes_of(type, p->at);
        wide_unpack(type, &u[r], from, p->n);
        for (size_t line = 0; line < bytes_of(type, p->n); line += 64) /* the tile after the next */
            _mm_prefetch((const char *)((uintptr_t)from + bytes_of(type, STRETCH) + line),
                         _MM_HINT_T1);
    }
    for (size_t at = 0; at < p->n; at += 64)
        turn_quants(type, to->pair[group] + at / 2, u, at);
    turn_floats(to->scale[group], u, 0);
    if (has_offset(type)) turn_floats(to->offset[group], u, 1);
}

/* ---- products -------------------------------------------------------------------------------- */

ALWAYS_INLINE __m512i two_numbers(const int16_t *from)
{
    int32_t both;
    memcpy(&both, from, sizeof both);
    return _mm512_set1_epi32(both);
}

/* sum += the products of two numbers. Written so because gcc would copy each sum besides. */
ALWAYS_INLINE void add_products(__m512i *sum, __m512i weight, __m512i number)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(*sum) : "v"(weight), "v"(number));
}

/* Add a tile to y of some tokens, from token `token` on. Constants: all but the last three. */
ALWAYS_INLINE void multiply_block(int groups, int tokens, int size, int with_offset, const tile *w,
                                  const product *p, size_t token)
{
    const char *const row = p->x + token * p->x_bytes;
    const rounded first = rounded_in(row, p->n_in);
    const int16_t *const x = first.words + p->at;
    const size_t scales = p->x_bytes / sizeof(float), words = p->x_bytes / sizeof(int16_t);
    const float *const of_x = first.scale + p->at / QUANTS;
    const float *const sums = size == 16 ? first.weighted16 + p->at / 16
                                         : first.weighted32 + p->at / QUANTS;
    __m512 lane[4][TOKENS][GROUPS];
    foreach(l, 4)
        foreach(t, tokens)
            foreach(g, groups)
                lane[l][t][g] = _mm512_setzero_ps();
    for (size_t part = 0; part < p->n / (size_t)size; part++) {
        __m512i sum[TOKENS][GROUPS];
        foreach(t, tokens) /* of the tokens that come next */
            _mm_prefetch((const char *)((uintptr_t)(x + (size_t)t * words + part * (size_t)size) +
                                        (size_t)tokens * p->x_bytes),
                         _MM_HINT_T0);
        foreach(t, tokens)
            foreach(g, groups)
                sum[t][g] = _mm512_setzero_si512();
        for (size_t i = part * (size_t)size; i < (part + 1) * (size_t)size; i += 2) {
            __m512i weight[GROUPS];
            foreach(g, groups)
                weight[g] = w->pair[g][i / 2];
            foreach(t, tokens) {
                const __m512i number = two_numbers(x + (size_t)t * words + i);
                foreach(g, groups)
                    add_products(&sum[t][g], weight[g], number);
            }
        }
        __m512(*const to)[GROUPS] = lane[part % 4];
        foreach(t, tokens) {
            const __m512 scale =
                _mm512_set1_ps(of_x[(size_t)t * scales + part * (size_t)size / QUANTS]);
            foreach(g, groups)
                to[t][g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t][g]),
                                           _mm512_mul_ps(w->scale[g][part], scale), to[t][g]);
            if (with_offset)
                foreach(g, groups)
                    to[t][g] = _mm512_fmadd_ps(w->offset[g][part],
                                               _mm512_set1_ps(sums[(size_t)t * scales + part]),
                                               to[t][g]);
        }
    }
    foreach(t, tokens)
        foreach(g, groups) {
            float *const y = p->y + (token + (size_t)t) * p->y_stride + p->row + 16 * (size_t)g;
            __m512 some = _mm512_add_ps(_mm512_add_ps(lane[0][t][g], lane[1][t][g]),
                                        _mm512_add_ps(lane[2][t][g], lane[3][t][g]));
            if (p->at > 0) some = _mm512_add_ps(_mm512_maskz_loadu_ps(p->is_there[g], y), some);
            _mm512_mask_storeu_ps(y, p->is_there[g], some);
        }
}

ALWAYS_INLINE void multiply_tile(int groups, int size, int with_offset, const tile *w,
                                 const product *p, size_t n_tokens)
{
    size_t t = 0;
    for (; t + TOKENS <= n_tokens; t += TOKENS)
        multiply_block(groups, TOKENS, size, with_offset, w, p, t);
    for (; t + 4 <= n_tokens; t += 4)
        multiply_block(groups, 4, size, with_offset, w, p, t);
    for (; t < n_tokens; t++)
        multiply_block(groups, 1, size, with_offset, w, p, t);
}

/* A function for each kind of parts, which types share. */
#define DEFINE_TILE(name, size, with_offset)                                                       \
    static void multiply_tile_##name(int groups, const tile *w, const product *p, size_t n_tokens) \
    {                                                                                              \
        if (groups == 2)                                                                           \
            multiply_tile(2, size, with_offset, w, p, n_tokens);                                   \
        else                                                                                       \
            multiply_tile(1, size, with_offset, w, p, n_tokens);                                   \
    }
DEFINE_TILE(of_32, 32, 0)
DEFINE_TILE(of_32_with_offset, 32, 1)
DEFINE_TILE(of_16, 16, 0)
DEFINE_TILE(of_16_with_offset, 16, 1)

ALWAYS_INLINE void multiply_many(int type, product p, size_t n_tokens)
{
    tile w;
    for (p.row = p.first; p.row < p.last; p.row += GROUPS * LANE_ROWS) {
        const size_t n_rows = p.last - p.row;
        const int groups = n_rows > LANE_ROWS ? 2 : 1;
        foreach(g, GROUPS) {
            const size_t before = LANE_ROWS * (size_t)g;
            p.is_there[g] = n_rows >= before + LANE_ROWS ? 0xffff
                            : n_rows > before            ? wide_first(n_rows - before)
                                                         : 0;
        }
        for (p.at = 0; p.at < p.n_in; p.at += STRETCH) {
            p.n = p.n_in - p.at < STRETCH ? p.n_in - p.at : STRETCH;
            for (int g = 0; g < groups; g++)
                unpack_group(type, &w, g, &p, p.row + LANE_ROWS * (size_t)g);
            if (part_of(type) == 16 && has_offset(type))
                multiply_tile_of_16_with_offset(groups, &w, &p, n_tokens);
            else if (part_of(type) == 16)
                multiply_tile_of_16(groups, &w, &p, n_tokens);
            else if (has_offset(type))
                multiply_tile_of_32_with_offset(groups, &w, &p, n_tokens);
            else
                multiply_tile_of_32(groups, &w, &p, n_tokens);
        }
    }
}

#define DEFINE_TYPE(name, number, block, block_bytes)                                              \
    static void multiply_##name(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,    \
                                uint32_t last, const void *x, uint32_t n_tokens, float *y,         \
                                size_t y_stride)                                                   \
    {                                                                                              \
        if (first == last) return;                                                                 \
        if (n_tokens <= CL_FEW_TOKENS) {                                                           \
            multiply_few(number, w, row_bytes, n_in, first, last, x, n_tokens, y, y_stride);       \
            return;                                                                                \
        }                                                                                          \
        const product p = {.w = w,                                                                 \
                           .row_bytes = row_bytes,                                                 \
                           .n_in = n_in,                                                           \
                           .x = x,                                                                 \
                           .x_bytes = cl_rounded_bytes(n_in),                                      \
                           .y = y,                                                                 \
                           .y_stride = y_stride,                                                   \
                           .first = first,                                                         \
                           .last = last};                                                          \
        multiply_many(number, p, n_tokens);                                                        \
    }
WEIGHTS_OF_QUANTS(DEFINE_TYPE)

void cl_matmul_rounded_fill_avx512(cl_matmul_table *table)
{
    table->round = round_avx512;
    table->is_rounding_faster = 1;
#define FILL(name, number, block, block_bytes) table->multiply_rounded[number] = multiply_##name;
    WEIGHTS_OF_QUANTS(FILL)
}
