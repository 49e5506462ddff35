/*
 * matmul_avx2.c: products of weight rows with activations, with AVX2, FMA and F16C.
 *
 * Weights are decoded eight at a time in registers, exactly (every product of a Q8_0 scale and a quant fits
 * a float), and each decoded vector is used for several tokens. A block of rows times tokens keeps its
 * accumulators in registers: 3 x 4 for many tokens, 6 x 2 for a few, 8 x 1 for one token, where the eight
 * rows are there to hide the latency of FMA and to keep several streams of memory going.
 *
 * The promise: a block's shape never changes a value. Each (row, token) pair is one chain of eight lanes
 * over the row and the tree of lanes_avx2.h, whatever was computed beside it; and a matrix of any type gives
 * exactly what the F32 matrix of its decoded numbers would give.
 *
 * Order of work: a stretch of tokens whose activations fit the second-level cache; in it a stretch of rows
 * that is read from memory once and then serves all those tokens.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#include "kernels.h"

#include <string.h>

#include "lanes_avx2.h"

enum {
    STEP = 32,             /* numbers a step: four vectors, one Q8_0 block */
    ROWS_AT_ONCE = 24,     /* rows a stretch: a multiple of 3, 6 and 8 */
    TOKEN_BYTES = 256 << 10 /* activations a stretch of tokens may have */
};

/* What a block of rows and tokens needs to know. */
typedef struct product {
    const unsigned char *w; /* the matrix */
    size_t row_bytes, n_in;
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
} product;

/* ---- decoding ---------------------------------------------------------------------------------- */

/* Byte offset of number i of a row; i is a multiple of the block. */
ALWAYS_INLINE size_t offset_of(int type, size_t i)
{
    switch (type) {
    case CL_WEIGHT_F32:
        return 4 * i;
    case CL_WEIGHT_Q8_0:
        return i / 32 * 34;
    default: /* F16, BF16 */
        return 2 * i;
    }
}

/* The scale of a Q8_0 block in all lanes; the other types have none. */
ALWAYS_INLINE __m256 scale_of(int type, const unsigned char *block)
{
    if (type != CL_WEIGHT_Q8_0)
        return _mm256_setzero_ps();
    uint16_t half;
    memcpy(&half, block, sizeof half);
    return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

ALWAYS_INLINE __m256 floats_from_bfloats(__m128i bfloats)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bfloats), 16));
}

/* Numbers 8c to 8c + 7 of a step of 32 that starts at `step`. */
ALWAYS_INLINE __m256 decode_lanes(int type, const unsigned char *step, size_t c, __m256 scale)
{
    switch (type) {
    case CL_WEIGHT_F32:
        return _mm256_loadu_ps((const float *)(const void *)(step + 32 * c));
    case CL_WEIGHT_F16:
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(step + 16 * c)));
    case CL_WEIGHT_BF16:
        return floats_from_bfloats(_mm_loadu_si128((const __m128i *)(const void *)(step + 16 * c)));
    default: { /* Q8_0: the scale, then 32 signed bytes */
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(step + 2 + 8 * c));
        return _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
    }
    }
}

/* The last count < 8 numbers of a row and zeros; Q8_0 rows have no such rest. */
ALWAYS_INLINE __m256 decode_rest(int type, const unsigned char *from, size_t count)
{
    if (type == CL_WEIGHT_F32)
        return _mm256_maskload_ps((const float *)(const void *)from, lanes_first(count));
    uint16_t copy[LANES] = {0};
    memcpy(copy, from, 2 * count);
    return decode_lanes(type, (const unsigned char *)copy, 0, _mm256_setzero_ps());
}

ALWAYS_INLINE void decode(int type, float *to, const unsigned char *row, size_t n)
{
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        const unsigned char *const step = row + offset_of(type, i);
        const __m256 scale = scale_of(type, step);
        UNROLL for (size_t c = 0; c < STEP / LANES; c++)
            _mm256_storeu_ps(to + i + LANES * c, decode_lanes(type, step, c, scale));
    }
    if (type == CL_WEIGHT_Q8_0)
        return;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(to + i, decode_lanes(type, row + offset_of(type, i), 0, _mm256_setzero_ps()));
    if (i < n)
        _mm256_maskstore_ps(to + i, lanes_first(n - i), decode_rest(type, row + offset_of(type, i), n - i));
}

/* ---- blocks of rows and tokens ----------------------------------------------------------------- */

/*
 * sum[r][t] += eight numbers of row r times eight of token t: those of chunk c of a step, or the last
 * `rest` numbers of the row if rest is not 0. The smaller side is held in registers: a vector of the larger
 * one is loaded, used and forgotten.
 */
ALWAYS_INLINE void multiply_chunk(int type, __m256 (*sum)[4], int rows, int tokens, const product *p,
                                  const unsigned char *step, size_t c, const __m256 *scale, const float *x,
                                  size_t rest)
{
    const int is_masked = rest != 0;
    const __m256i mask = is_masked ? lanes_first(rest) : _mm256_setzero_si256();
    __m256 weight[8], number[4];

    if (rows > tokens)
        UNROLL for (int t = 0; t < tokens; t++)
            number[t] = lanes_load(x + (size_t)t * p->x_stride, is_masked, mask);
    UNROLL for (int r = 0; r < rows; r++) {
        const unsigned char *const from = step + (size_t)r * p->row_bytes;
        weight[r] = is_masked ? decode_rest(type, from, rest) : decode_lanes(type, from, c, scale[r]);
        if (rows > tokens)
            UNROLL for (int t = 0; t < tokens; t++)
                sum[r][t] = _mm256_fmadd_ps(weight[r], number[t], sum[r][t]);
    }
    if (rows > tokens)
        return;
    UNROLL for (int t = 0; t < tokens; t++) {
        const __m256 once = lanes_load(x + (size_t)t * p->x_stride, is_masked, mask);
        UNROLL for (int r = 0; r < rows; r++)
            sum[r][t] = _mm256_fmadd_ps(weight[r], once, sum[r][t]);
    }
}

/* y of `rows` rows from row i on and `tokens` tokens from token t on. Constants: type, rows, tokens. */
ALWAYS_INLINE void multiply_block(int type, int rows, int tokens, const product *p, size_t i, size_t t)
{
    const unsigned char *const row = p->w + i * p->row_bytes;
    const float *const x = p->x + t * p->x_stride;
    __m256 sum[8][4], scale[8];
    UNROLL for (int r = 0; r < rows; r++) {
        scale[r] = _mm256_setzero_ps();
        UNROLL for (int u = 0; u < tokens; u++)
            sum[r][u] = _mm256_setzero_ps();
    }

    size_t at = 0;
    for (; at + STEP <= p->n_in; at += STEP) {
        const unsigned char *const step = row + offset_of(type, at);
        UNROLL for (int r = 0; r < rows; r++)
            scale[r] = scale_of(type, step + (size_t)r * p->row_bytes);
        UNROLL for (size_t c = 0; c < STEP / LANES; c++)
            multiply_chunk(type, sum, rows, tokens, p, step, c, scale, x + at + LANES * c, 0);
    }
    if (type != CL_WEIGHT_Q8_0) {
        for (; at + LANES <= p->n_in; at += LANES)
            multiply_chunk(type, sum, rows, tokens, p, row + offset_of(type, at), 0, scale, x + at, 0);
        if (at < p->n_in)
            multiply_chunk(type, sum, rows, tokens, p, row + offset_of(type, at), 0, scale, x + at,
                           p->n_in - at);
    }

    UNROLL for (int u = 0; u < tokens; u++) {
        float *const y = p->y + (t + (size_t)u) * p->y_stride + i;
        UNROLL for (int r = 0; r < rows; r++)
            y[r] = lanes_sum(sum[r][u]);
    }
}

typedef void block_function(const product *p, size_t i, size_t t);

/* The shapes one weight type has. */
typedef struct shapes {
    block_function *rows8_tokens1, *rows6_tokens2, *rows3_tokens4;
    block_function *rows1_tokens1, *rows1_tokens2, *rows1_tokens4;
} shapes;

/* Rows from i to end for some tokens from t on: by `rows` at once, then one by one. */
static void multiply_rows(block_function *block, size_t rows, block_function *single, const product *p,
                          size_t i, size_t end, size_t t)
{
    for (; i + rows <= end; i += rows)
        block(p, i, t);
    for (; i < end; i++)
        single(p, i, t);
}

static void multiply(const shapes *s, const product *p, size_t first, size_t last, size_t n_tokens)
{
    const size_t fitting = TOKEN_BYTES / sizeof(float) / (p->n_in + 1) / 4 * 4;
    const size_t tokens_at_once = fitting < 4 ? 4 : fitting;

    for (size_t token = 0; token < n_tokens; token += tokens_at_once) {
        const size_t stop = n_tokens - token < tokens_at_once ? n_tokens : token + tokens_at_once;
        for (size_t i = first; i < last; i += ROWS_AT_ONCE) {
            const size_t end = last - i < ROWS_AT_ONCE ? last : i + ROWS_AT_ONCE;
            size_t t = token;
            for (; t + 4 <= stop; t += 4)
                multiply_rows(s->rows3_tokens4, 3, s->rows1_tokens4, p, i, end, t);
            for (; t + 2 <= stop; t += 2)
                multiply_rows(s->rows6_tokens2, 6, s->rows1_tokens2, p, i, end, t);
            if (t < stop)
                multiply_rows(s->rows8_tokens1, 8, s->rows1_tokens1, p, i, end, t);
        }
    }
}

/* ---- one set of functions a type --------------------------------------------------------------- */

#define DEFINE_BLOCK(name, type, rows, tokens)                                                               \
    static void name##_rows##rows##_tokens##tokens(const product *p, size_t i, size_t t)                     \
    {                                                                                                        \
        multiply_block(type, rows, tokens, p, i, t);                                                         \
    }

#define DEFINE_TYPE(name, type)                                                                              \
    DEFINE_BLOCK(name, type, 8, 1)                                                                           \
    DEFINE_BLOCK(name, type, 6, 2)                                                                           \
    DEFINE_BLOCK(name, type, 3, 4)                                                                           \
    DEFINE_BLOCK(name, type, 1, 1)                                                                           \
    DEFINE_BLOCK(name, type, 1, 2)                                                                           \
    DEFINE_BLOCK(name, type, 1, 4)                                                                           \
    static void decode_##name(float *to, const void *row, size_t n)                                          \
    {                                                                                                        \
        decode(type, to, row, n);                                                                            \
    }                                                                                                        \
    static void matmul_##name(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first, uint32_t last, \
                              const float *x, size_t x_stride, uint32_t n_tokens, float *y,                  \
                              size_t y_stride)                                                               \
    {                                                                                                        \
        static const shapes blocks = {name##_rows8_tokens1, name##_rows6_tokens2, name##_rows3_tokens4,      \
                                      name##_rows1_tokens1, name##_rows1_tokens2, name##_rows1_tokens4};     \
        const product p = {w, row_bytes, n_in, x, x_stride, y, y_stride};                                    \
        multiply(&blocks, &p, first, last, n_tokens);                                                        \
    }

DEFINE_TYPE(f32, CL_WEIGHT_F32)
DEFINE_TYPE(f16, CL_WEIGHT_F16)
DEFINE_TYPE(bf16, CL_WEIGHT_BF16)
DEFINE_TYPE(q8_0, CL_WEIGHT_Q8_0)

void cl_matmul_fill_avx2(cl_matmul_table *table)
{
    table->weight[CL_WEIGHT_F32] = (cl_weight){1, 4, decode_f32, matmul_f32};
    table->weight[CL_WEIGHT_F16] = (cl_weight){1, 2, decode_f16, matmul_f16};
    table->weight[CL_WEIGHT_BF16] = (cl_weight){1, 2, decode_bf16, matmul_bf16};
    table->weight[CL_WEIGHT_Q8_0] = (cl_weight){32, 34, decode_q8_0, matmul_q8_0};
}
