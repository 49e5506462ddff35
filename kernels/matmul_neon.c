/*
 * matmul_neon.c: products of weight rows with activations, with NEON.
 *
 * Each (row, token) pair is one chain of eight lanes and their tree (lanes_neon.h), so a value never depends
 * on what was computed beside it, and a matrix of any type gives what the F32 matrix of its decoded numbers
 * would give. Activations are not rounded, which rules out instructions that take products of bytes.
 *
 * Two ways lead through that chain:
 *   several tokens   a tile of three rows is decoded into the first-level cache and then serves up to 32
 *                    tokens, four at a time: 3 x 4 sums of eight lanes, three weights and an activation are
 *                    28 of the 32 registers. Sums are kept from tile to tile.
 *   few tokens       what counts is to read the rows fast: types with a simple layout are decoded in
 *                    registers, eight rows at once for a token, four for two; the others a tile at a time.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#include "kernels.h"

#include "packed.h"
#include "packed_neon.h"
#include "quants_neon.h"

enum {
    TILE = 512,          /* numbers decoded at a time: a multiple of every block */
    ROWS_AT_ONCE = 3,    /* with four tokens: 24 registers of sums */
    TOKENS_AT_ONCE = 32, /* that share a decoded tile: a multiple of four */
    FEW = 4,             /* tokens for which weights are decoded in registers */
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

/* ---- several tokens: tiles ------------------------------------------------------------------- */

/* Rows of one tile, decoded and filled up with zeros to a whole chunk; and the sums so far. */
typedef struct tiles {
    float tile[ROWS_AT_ONCE][TILE];
    float32x4_t sum[TOKENS_AT_ONCE][ROWS_AT_ONCE][HALVES];
} tiles;

/* Eight numbers of each row times eight of each token. Constants: rows, tokens. */
ALWAYS_INLINE void multiply_chunk(float32x4_t (*sum)[ROWS_AT_ONCE][HALVES], int rows, int tokens,
                                  const float (*tile)[TILE], size_t i, const float *x,
                                  size_t x_stride)
{
    foreach(h, HALVES) {
        float32x4_t weight[ROWS_AT_ONCE];
        foreach(r, rows)
            weight[r] = vld1q_f32(tile[r] + i + FOUR * h);
        foreach(u, tokens) {
            const float32x4_t one = vld1q_f32(x + (size_t)u * x_stride + FOUR * h);
            foreach(r, rows)
                sum[u][r][h] = vfmaq_f32(sum[u][r][h], weight[r], one);
        }
        loads_stay();
    }
}

/* Continue the sums of some rows and tokens by n numbers from `at` on. Constants: rows, tokens. */
ALWAYS_INLINE void multiply_block(tiles *t, int rows, int tokens, const product *p, size_t at,
                                  size_t n, size_t token)
{
    const float(*const tile)[TILE] = (const float(*)[TILE])t->tile;
    const float *const x = p->x + token * p->x_stride + at;
    float32x4_t sum[4][ROWS_AT_ONCE][HALVES];
    foreach(u, tokens)
        foreach(r, rows)
            foreach(h, HALVES)
                sum[u][r][h] = t->sum[token + (size_t)u][r][h];
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        multiply_chunk(sum, rows, tokens, tile, i, x + i, p->x_stride);
    if (i < n) {
        float last[4][LANES];
        for (int u = 0; u < tokens; u++)
            rest_copy(last[u], x + (size_t)u * p->x_stride + i, n - i);
        multiply_chunk(sum, rows, tokens, tile, i, last[0], LANES);
    }
    foreach(u, tokens)
        foreach(r, rows)
            foreach(h, HALVES)
                t->sum[token + (size_t)u][r][h] = sum[u][r][h];
}

/* All of `rows` rows from row i on, for n_tokens <= TOKENS_AT_ONCE tokens. */
ALWAYS_INLINE void multiply_rows(tiles *t, int rows, const product *p, size_t i, size_t n_tokens)
{
    for (size_t u = 0; u < n_tokens; u++)
        foreach(r, rows)
            foreach(h, HALVES)
                t->sum[u][r][h] = vdupq_n_f32(0);
    for (size_t at = 0; at < p->n_in; at += TILE) {
        const size_t n = p->n_in - at < TILE ? p->n_in - at : TILE;
        for (int r = 0; r < rows; r++) {
            const unsigned char *const row = p->w + (i + (size_t)r) * p->row_bytes;
            p->decode(t->tile[r], row + at / p->block * p->block_bytes, n);
            for (size_t end = n; end % LANES != 0; end++)
                t->tile[r][end] = 0;
        }
        size_t u = 0;
        for (; u + 4 <= n_tokens; u += 4)
            multiply_block(t, rows, 4, p, at, n, u);
        for (; u < n_tokens; u++)
            multiply_block(t, rows, 1, p, at, n, u);
    }
    for (size_t u = 0; u < n_tokens; u++)
        foreach(r, rows)
            p->y[u * p->y_stride + i + (size_t)r] = lanes_sum(t->sum[u][r]);
}

/* Inlined for each type, so that the decoder is known. */
ALWAYS_INLINE void multiply(product p, uint32_t first, uint32_t last, size_t n_tokens)
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

/* Four numbers of F32, F16 or BF16. */
ALWAYS_INLINE float32x4_t load_four(int type, const unsigned char *from)
{
    if (type == CL_WEIGHT_F32) return vreinterpretq_f32_u8(vld1q_u8(from));
    const uint8x8_t numbers = vld1_u8(from);
    if (type == CL_WEIGHT_F16) return vcvt_f32_f16(vreinterpret_f16_u8(numbers));
    const uint32x4_t wide = vmovl_u16(vreinterpret_u16_u8(numbers));
    return vreinterpretq_f32_u32(vshlq_n_u32(wide, 16));
}

/* Eight numbers of each row, from `from` on, times eight of each token. Constants: type, rows, tokens. */
ALWAYS_INLINE void multiply_plain(int type, float32x4_t (*sum)[8][HALVES], int rows, int tokens,
                                  const unsigned char *from, size_t row_bytes, const float *x,
                                  size_t x_stride)
{
    const size_t four = type == CL_WEIGHT_F32 ? 16 : 8; /* bytes of four numbers */
    foreach(h, HALVES) {
        float32x4_t number[2];
        foreach(u, tokens)
            number[u] = vld1q_f32(x + (size_t)u * x_stride + FOUR * h);
        foreach(r, rows) {
            const unsigned char *const at = from + (size_t)r * row_bytes + four * (size_t)h;
            const float32x4_t weight = load_four(type, at);
            foreach(u, tokens)
                sum[u][r][h] = vfmaq_f32(sum[u][r][h], weight, number[u]);
        }
    }
}

/* The last count < 8 numbers: copied and filled up with zeros they are a chunk like any other. */
ALWAYS_INLINE void multiply_rest(int type, float32x4_t (*sum)[8][HALVES], int rows, int tokens,
                                 const unsigned char *from, size_t row_bytes, const float *x,
                                 size_t x_stride, size_t count)
{
    const size_t bytes = type == CL_WEIGHT_F32 ? 4 : 2;
    unsigned char weights[8][LANES * sizeof(float)];
    float numbers[2][LANES];
    memset(weights, 0, sizeof weights);
    for (int r = 0; r < rows; r++)
        memcpy(weights[r], from + (size_t)r * row_bytes, count * bytes);
    for (int u = 0; u < tokens; u++)
        rest_copy(numbers[u], x + (size_t)u * x_stride, count);
    multiply_plain(type, sum, rows, tokens, weights[0], sizeof weights[0], numbers[0], LANES);
}

/* A block of 32 numbers of each row, Q8_0 or Q4_0; by sixteen, as long as registers reach. */
ALWAYS_INLINE void multiply_32(int type, float32x4_t (*sum)[8][HALVES], int rows, int tokens,
                               const unsigned char *from, size_t row_bytes, const float *x,
                               size_t x_stride)
{
    foreach(half, 2) {
        float32x4_t number[2][4];
        foreach(u, tokens)
            foreach(v, 4)
                number[u][v] = vld1q_f32(x + (size_t)u * x_stride + 16 * half + FOUR * v);
        foreach(r, rows) {
            const unsigned char *const block = from + (size_t)r * row_bytes;
            const float32x4_t scale = load_scale(block);
            foreach(c, 2) {
                float32x4_t weight[HALVES];
                if (type == CL_WEIGHT_Q8_0)
                    eight_of_q8_0(weight, block, 2 * half + c, scale);
                else
                    eight_of_q4_0(weight, block, 2 * half + c, scale);
                foreach(u, tokens)
                    foreach(h, HALVES)
                        sum[u][r][h] = vfmaq_f32(sum[u][r][h], weight[h], number[u][2 * c + h]);
            }
            loads_stay();
        }
    }
}

/* y of `rows` rows from row i and `tokens` tokens from token t. Constants: type, rows, tokens. */
ALWAYS_INLINE void multiply_few(int type, int rows, int tokens, const product *p, size_t i,
                                size_t t)
{
    const unsigned char *const row = p->w + i * p->row_bytes;
    const float *const x = p->x + t * p->x_stride;
    float32x4_t sum[2][8][HALVES];
    foreach(u, tokens)
        foreach(r, rows)
            foreach(h, HALVES)
                sum[u][r][h] = vdupq_n_f32(0);
    size_t at = 0;
    if (type == CL_WEIGHT_Q8_0 || type == CL_WEIGHT_Q4_0) {
        const size_t bytes = type == CL_WEIGHT_Q8_0 ? 34 : 18;
        for (; at < p->n_in; at += QUANTS)
            multiply_32(type, sum, rows, tokens, row + at / QUANTS * bytes, p->row_bytes, x + at,
                        p->x_stride);
    } else {
        const size_t bytes = type == CL_WEIGHT_F32 ? 4 : 2;
        for (; at + LANES <= p->n_in; at += LANES)
            multiply_plain(type, sum, rows, tokens, row + at * bytes, p->row_bytes, x + at,
                           p->x_stride);
        if (at < p->n_in)
            multiply_rest(type, sum, rows, tokens, row + at * bytes, p->row_bytes, x + at,
                          p->x_stride, p->n_in - at);
    }
    foreach(u, tokens)
        foreach(r, rows)
            p->y[(t + (size_t)u) * p->y_stride + i + (size_t)r] = lanes_sum(sum[u][r]);
}

/* Rows are read from memory once: those read for the first tokens are in the cache for the others. */
ALWAYS_INLINE void multiply_by_few(int type, const product *p, size_t i, size_t last,
                                   size_t n_tokens)
{
    for (; i + 8 <= last; i += 8) {
        size_t t = 0;
        for (; t + 2 <= n_tokens; t += 2) {
            multiply_few(type, 4, 2, p, i, t);
            multiply_few(type, 4, 2, p, i + 4, t);
        }
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
    size_t i = 0;
    for (; i + FOUR <= n; i += FOUR)
        vst1q_f32(to + i, load_four(type, row + 2 * i));
    if (i < n) {
        unsigned char numbers[8] = {0};
        float last[FOUR];
        memcpy(numbers, row + 2 * i, 2 * (n - i));
        vst1q_f32(last, load_four(type, numbers));
        memcpy(to + i, last, (n - i) * sizeof *to);
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

/* `few` is what up to FEW tokens get: in registers, or by tiles like any number of them. */
#define DEFINE_MATMUL(name, decoder, block, block_bytes, few)                                      \
    static void matmul_##name(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,      \
                              uint32_t last, const float *x, size_t x_stride, uint32_t n_tokens,   \
                              float *y, size_t y_stride)                                           \
    {                                                                                              \
        const product p = {decoder, block, block_bytes, w, row_bytes,                              \
                           n_in,    x,     x_stride,    y, y_stride};                              \
        if (n_tokens <= FEW)                                                                       \
            few;                                                                                   \
        else                                                                                       \
            multiply(p, first, last, n_tokens);                                                    \
    }

DEFINE_MATMUL(f32, decode_f32, 1, 4, multiply_by_few(CL_WEIGHT_F32, &p, first, last, n_tokens))
DEFINE_MATMUL(f16, decode_f16, 1, 2, multiply_by_few(CL_WEIGHT_F16, &p, first, last, n_tokens))
DEFINE_MATMUL(bf16, decode_bf16, 1, 2, multiply_by_few(CL_WEIGHT_BF16, &p, first, last, n_tokens))
DEFINE_MATMUL(q8_0, decode_q8_0, 32, 34, multiply_by_few(CL_WEIGHT_Q8_0, &p, first, last, n_tokens))
DEFINE_MATMUL(q4_0, decode_q4_0, 32, 18, multiply_by_few(CL_WEIGHT_Q4_0, &p, first, last, n_tokens))

#define DEFINE_BY_TILE(name, decoder, block, block_bytes)                                          \
    DEFINE_MATMUL(name, decoder, block, block_bytes, multiply(p, first, last, n_tokens))
#define DEFINE_AS_PACKED(name, number, block, block_bytes)                                         \
    DEFINE_BY_TILE(name, packed_decode_##name, block, block_bytes)

DEFINE_BY_TILE(q4_k, unpack_q4_k, 256, 144)
DEFINE_BY_TILE(q6_k, unpack_q6_k, 256, 210)
WEIGHTS_AS_PACKED(DEFINE_AS_PACKED)

void cl_matmul_fill_neon(cl_matmul_table *table)
{
    table->weight[CL_WEIGHT_F32] = (cl_weight){1, 4, decode_f32, matmul_f32};
    table->weight[CL_WEIGHT_F16] = (cl_weight){1, 2, decode_f16, matmul_f16};
    table->weight[CL_WEIGHT_BF16] = (cl_weight){1, 2, decode_bf16, matmul_bf16};
    table->weight[CL_WEIGHT_Q8_0] = (cl_weight){32, 34, decode_q8_0, matmul_q8_0};
    table->weight[CL_WEIGHT_Q4_0] = (cl_weight){32, 18, decode_q4_0, matmul_q4_0};
    table->weight[CL_WEIGHT_Q4_K] = (cl_weight){256, 144, unpack_q4_k, matmul_q4_k};
    table->weight[CL_WEIGHT_Q6_K] = (cl_weight){256, 210, unpack_q6_k, matmul_q6_k};
#define FILL(name, number, block, block_bytes)                                                     \
    table->weight[number] = (cl_weight){block, block_bytes, packed_decode_##name, matmul_##name};
    WEIGHTS_AS_PACKED(FILL)
}
