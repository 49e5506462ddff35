/*
 * matmul_avx2.c: products of weight rows with activations, with AVX2, FMA and F16C.
 *
 * Weights are decoded eight at a time in registers, exactly (every product of a Q8_0 scale and a
 * quant fits a float), and each decoded vector is used for several tokens. A block of rows times
 * tokens keeps its accumulators in registers: 3 x 4 for many tokens, 6 x 2 for a few, 8 x 1 for one
 * token, where the eight rows are there to hide the latency of FMA and to keep several streams of
 * memory going.
 *
 * The promise: a block's shape never changes a value. Each (row, token) pair is one chain of eight
 * lanes over the row and the tree of lanes_avx2.h, whatever was computed beside it; and a matrix of
 * any type gives exactly what the F32 matrix of its decoded numbers would give.
 *
 * Order of work: a stretch of tokens whose activations fit the second-level cache; in it a stretch
 * of rows that is read from memory once and then serves all those tokens.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#include "kernels.h"

#include <string.h>

#include "lanes_avx2.h"

enum {
    ROWS_AT_ONCE = 24,      /* rows a stretch: a multiple of 3, 6 and 8 */
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

/* ---- decoding ------------------------------------------------------------------------------ */

ALWAYS_INLINE __m256 floats_from_bfloats(__m128i bfloats)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bfloats), 16));
}

/* Eight numbers of F32, F16 or BF16. */
ALWAYS_INLINE __m256 load_weights(int type, const unsigned char *from)
{
    if (type == CL_WEIGHT_F32) return _mm256_loadu_ps((const float *)(const void *)from);
    const __m128i numbers = _mm_loadu_si128((const __m128i *)(const void *)from);
    return type == CL_WEIGHT_F16 ? _mm256_cvtph_ps(numbers) : floats_from_bfloats(numbers);
}

/* count < 8 of them, then zeros. */
ALWAYS_INLINE __m256 load_rest_of_weights(int type, const unsigned char *from, size_t count)
{
    if (type == CL_WEIGHT_F32) return rest_load((const float *)(const void *)from, count);
    uint64_t half[2] = {0, 0};
    for (size_t i = 0; i < count; i++) {
        uint16_t number;
        memcpy(&number, from + 2 * i, sizeof number);
        half[i / 4] |= (uint64_t)number << (16 * (i % 4));
    }
    const __m128i numbers = _mm_set_epi64x((long long)half[1], (long long)half[0]);
    return type == CL_WEIGHT_F16 ? _mm256_cvtph_ps(numbers) : floats_from_bfloats(numbers);
}

/* The scale of a Q8_0 block in all lanes. */
ALWAYS_INLINE __m256 load_scale(const unsigned char *block)
{
    uint16_t half;
    memcpy(&half, block, sizeof half);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}

/* Numbers 8c to 8c + 7 of a Q8_0 block: two bytes of scale, then 32 signed bytes. */
ALWAYS_INLINE __m256 load_quants(const unsigned char *block, size_t c, __m256 scale)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(block + 2 + 8 * c));
    return _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}

ALWAYS_INLINE void decode(int type, float *to, const unsigned char *row, size_t n)
{
    const size_t bytes = type == CL_WEIGHT_F32 ? 4 : 2;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(to + i, load_weights(type, row + bytes * i));
    if (i < n) rest_store(to + i, load_rest_of_weights(type, row + bytes * i, n - i), n - i);
}

static void decode_f32(float *to, const void *row, size_t n)
{
    memcpy(to, row, n * sizeof *to);
}

static void decode_f16(float *to, const void *row, size_t n)
{
    decode(CL_WEIGHT_F16, to, row, n);
}

static void decode_bf16(float *to, const void *row, size_t n)
{
    decode(CL_WEIGHT_BF16, to, row, n);
}

static void decode_q8_0(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += 32, block += 34) {
        const __m256 scale = load_scale(block);
        for (size_t c = 0; c < 4; c++)
            _mm256_storeu_ps(to + i + 8 * c, load_quants(block, c, scale));
    }
}

/* ---- blocks of rows and tokens ------------------------------------------------------------- */

/*
 * sum[r][t] += eight numbers of row r times eight of token t. The smaller side is held in
 * registers; of the larger one a vector at a time is loaded and forgotten. Constants: type, rows,
 * tokens.
 */
ALWAYS_INLINE void multiply_chunk(int type, __m256 (*sum)[4], int rows, int tokens,
                                  const unsigned char *w, size_t row_bytes, const float *x,
                                  size_t x_stride)
{
    __m256 weight[3], number[2];
    if (rows <= tokens) {
        foreach(r, rows)
            weight[r] = load_weights(type, w + (size_t)r * row_bytes);
        foreach(t, tokens) {
            const __m256 one = _mm256_loadu_ps(x + (size_t)t * x_stride);
            foreach(r, rows)
                sum[r][t] = _mm256_fmadd_ps(weight[r], one, sum[r][t]);
        }
    } else {
        foreach(t, tokens)
            number[t] = _mm256_loadu_ps(x + (size_t)t * x_stride);
        foreach(r, rows) {
            const __m256 one = load_weights(type, w + (size_t)r * row_bytes);
            foreach(t, tokens)
                sum[r][t] = _mm256_fmadd_ps(one, number[t], sum[r][t]);
        }
    }
}

/* The last count < 8 numbers: decoded and filled up with zeros they are a chunk of F32. */
ALWAYS_INLINE void multiply_rest(int type, __m256 (*sum)[4], int rows, int tokens,
                                 const unsigned char *w, size_t row_bytes, const float *x,
                                 size_t x_stride, size_t count)
{
    float weights[8][LANES], numbers[4][LANES];
    for (int r = 0; r < rows; r++)
        _mm256_storeu_ps(weights[r], load_rest_of_weights(type, w + (size_t)r * row_bytes, count));
    for (int t = 0; t < tokens; t++)
        _mm256_storeu_ps(numbers[t], rest_load(x + (size_t)t * x_stride, count));
    multiply_chunk(CL_WEIGHT_F32, sum, rows, tokens, (const unsigned char *)weights,
                   sizeof weights[0], numbers[0], LANES);
}

/* The same for a block of Q8_0: 32 numbers with a scale for each row. */
ALWAYS_INLINE void multiply_q8_0(__m256 (*sum)[4], int rows, int tokens, const product *p,
                                 const unsigned char *from, const float *x)
{
    if (rows > tokens) { /* row by row: one scale alive at a time */
        foreach(r, rows) {
            const unsigned char *const block = from + (size_t)r * p->row_bytes;
            const __m256 scale = load_scale(block);
            /* The next rows: the processor does not foresee this many short streams by itself. */
            const uintptr_t next = (uintptr_t)block + (size_t)rows * p->row_bytes;
            _mm_prefetch((const char *)next, _MM_HINT_T0);
            foreach(c, 4) {
                const __m256 one = load_quants(block, c, scale);
                foreach(t, tokens)
                    sum[r][t] = _mm256_fmadd_ps(
                        one, _mm256_loadu_ps(x + (size_t)t * p->x_stride + 8 * c), sum[r][t]);
            }
        }
        return;
    }
    __m256 scale[3], weight[3];
    foreach(r, rows)
        scale[r] = load_scale(from + (size_t)r * p->row_bytes);
    __asm__("" : "+m"(scale)); /* they stay in memory: gcc would rather spill the sums */
    foreach(c, 4) {
        foreach(r, rows)
            weight[r] = load_quants(from + (size_t)r * p->row_bytes, c, scale[r]);
        foreach(t, tokens) {
            const __m256 one = _mm256_loadu_ps(x + (size_t)t * p->x_stride + 8 * c);
            foreach(r, rows)
                sum[r][t] = _mm256_fmadd_ps(weight[r], one, sum[r][t]);
        }
    }
}

/* y of `rows` rows from row i and `tokens` tokens from token t. Constants: type, rows, tokens. */
ALWAYS_INLINE void multiply_block(int type, int rows, int tokens, const product *p, size_t i,
                                  size_t t)
{
    const unsigned char *const row = p->w + i * p->row_bytes;
    const float *const x = p->x + t * p->x_stride;
    __m256 sum[8][4];
    foreach(r, rows)
        foreach(u, tokens)
            sum[r][u] = _mm256_setzero_ps();

    size_t at = 0;
    if (type == CL_WEIGHT_Q8_0) {
        for (; at < p->n_in; at += 32)
            multiply_q8_0(sum, rows, tokens, p, row + at / 32 * 34, x + at);
    } else {
        const size_t bytes = type == CL_WEIGHT_F32 ? 4 : 2;
        for (; at + LANES <= p->n_in; at += LANES)
            multiply_chunk(type, sum, rows, tokens, row + bytes * at, p->row_bytes, x + at,
                           p->x_stride);
        if (at < p->n_in)
            multiply_rest(type, sum, rows, tokens, row + bytes * at, p->row_bytes, x + at,
                          p->x_stride, p->n_in - at);
    }

    foreach(u, tokens) {
        float *const y = p->y + (t + (size_t)u) * p->y_stride + i;
        foreach(r, rows)
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
static void multiply_rows(block_function *block, size_t rows, block_function *single,
                          const product *p, size_t i, size_t end, size_t t)
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
            if (t < stop) multiply_rows(s->rows8_tokens1, 8, s->rows1_tokens1, p, i, end, t);
        }
    }
}

/* ---- one set of functions a type ----------------------------------------------------------- */

#define DEFINE_BLOCK(name, type, rows, tokens)                                                     \
    static void name##_rows##rows##_tokens##tokens(const product *p, size_t i, size_t t)           \
    {                                                                                              \
        multiply_block(type, rows, tokens, p, i, t);                                               \
    }

#define DEFINE_TYPE(name, type)                                                                    \
    DEFINE_BLOCK(name, type, 8, 1)                                                                 \
    DEFINE_BLOCK(name, type, 6, 2)                                                                 \
    DEFINE_BLOCK(name, type, 3, 4)                                                                 \
    DEFINE_BLOCK(name, type, 1, 1)                                                                 \
    DEFINE_BLOCK(name, type, 1, 2)                                                                 \
    DEFINE_BLOCK(name, type, 1, 4)                                                                 \
    static void matmul_##name(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,      \
                              uint32_t last, const float *x, size_t x_stride, uint32_t n_tokens,   \
                              float *y, size_t y_stride)                                           \
    {                                                                                              \
        static const shapes blocks = {name##_rows8_tokens1, name##_rows6_tokens2,                  \
                                      name##_rows3_tokens4, name##_rows1_tokens1,                  \
                                      name##_rows1_tokens2, name##_rows1_tokens4};                 \
        const product p = {w, row_bytes, n_in, x, x_stride, y, y_stride};                          \
        multiply(&blocks, &p, first, last, n_tokens);                                              \
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
