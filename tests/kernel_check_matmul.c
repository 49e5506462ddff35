/*
 * kernel_check_matmul.c: tests of the weight types.
 *
 * decode has to give exact numbers: bits equal to a truth computed in double. matmul has to be near
 * the exact sums within a bound derived from its roundings, has to give the same bits for a (row,
 * token) pair whatever is computed beside it, and the same bits as the F32 matrix of the decoded
 * numbers would.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <math.h>
#include <string.h>

/*
 * One product: a matrix with gaps between its rows, activations and results with strides of their
 * own.
 */
typedef struct product {
    unsigned char *w;
    float *x, *y;
    size_t n_in, n_rows, n_tokens, row_bytes, x_stride, y_stride;
    uint32_t first, last;
} product;

int weight_type(const check *c)
{
    return c->test->type >= OF_ROUNDED ? c->test->type - OF_ROUNDED : c->test->type;
}

static const cl_weight *type_of(const check *c)
{
    return &c->weights.weight[weight_type(c)];
}

/* ---- values -------------------------------------------------------------------------------- */

static uint16_t random_half(check *c, int pattern)
{
    float value;
    uint16_t half;
    fill_floats(c, pattern, &value, 1);
    c->scalar_kernels.rows_f16_from_f32(&half, &value, 1);
    return half;
}

static void put_u16(unsigned char *to, uint16_t value)
{
    memcpy(to, &value, sizeof value);
}

static void fill_block(check *c, int pattern, unsigned char *to)
{
    put_u16(to, random_half(c, pattern));
    const int is_extreme = pattern == EXTREMES;
    for (size_t i = 0; i < 32; i++)
        to[2 + i] = is_extreme ? (i % 2 ? 0x80 : 0x7f) : (unsigned char)random_bits(c);
}

/* Any bytes, with finite scales; an MXFP4 scale that keeps sums finite. */
static void fill_packed_block(check *c, int pattern, unsigned char *to)
{
    const int type = weight_type(c);
    for (size_t i = 0; i < type_of(c)->block_bytes; i++)
        to[i] = pattern == EXTREMES ? 0xff : (unsigned char)random_bits(c);
    if (type == CL_WEIGHT_MXFP4) {
        to[0] = (unsigned char)(96 + random_below(c, 64));
        return;
    }
    put_u16(to + scale_of_packed_block(type), random_half(c, pattern));
    if (offset_of_packed_block(type) != SIZE_MAX)
        put_u16(to + offset_of_packed_block(type), random_half(c, pattern));
}

void fill_weight_row(check *c, int pattern, unsigned char *to, size_t n)
{
    switch (weight_type(c)) {
    case CL_WEIGHT_F32:
        fill_floats(c, pattern, (float *)(void *)to, n);
        break;
    case CL_WEIGHT_F16:
        for (size_t i = 0; i < n; i++)
            put_u16(to + 2 * i, random_half(c, pattern));
        break;
    case CL_WEIGHT_BF16:
        for (size_t i = 0; i < n; i++) {
            float value;
            fill_floats(c, pattern, &value, 1);
            unsigned char bytes[4];
            memcpy(bytes, &value, sizeof bytes);
            memcpy(to + 2 * i, bytes + 2, 2); /* the upper half; both machines are little-endian */
        }
        break;
    case CL_WEIGHT_Q8_0:
        for (size_t i = 0; i < n / 32; i++)
            fill_block(c, pattern, to + 34 * i);
        break;
    default:
        for (size_t i = 0; i < n / type_of(c)->block; i++)
            fill_packed_block(c, pattern, to + type_of(c)->block_bytes * i);
    }
}

double true_weight(int type, const unsigned char *row, size_t i)
{
    uint16_t half;
    uint32_t bits;
    float value;
    switch (type) {
    case CL_WEIGHT_F32:
        memcpy(&value, row + 4 * i, sizeof value);
        return value;
    case CL_WEIGHT_F16:
        memcpy(&half, row + 2 * i, sizeof half);
        return true_half_value(half);
    case CL_WEIGHT_BF16:
        memcpy(&half, row + 2 * i, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
        return value;
    case CL_WEIGHT_Q8_0:
        memcpy(&half, row + i / 32 * 34, sizeof half);
        return true_half_value(half) * (signed char)row[i / 32 * 34 + 2 + i % 32];
    default:
        return true_packed_weight(type, row, i);
    }
}

size_t weight_bytes(const check *c, size_t n)
{
    return n / type_of(c)->block * type_of(c)->block_bytes;
}

/* The size of a trial as a multiple of the block. */
size_t weight_length(check *c, size_t trial)
{
    const size_t n = size_of_trial(c, trial), block = type_of(c)->block;
    const size_t most = c->is_quick && block > 32 ? 4 : 10; /* blocks */
    return n == 0 || block == 1 ? n
           : trial < 70         ? (trial % most + 1) * block
                                : (n + block - 1) / block * block;
}

static size_t alignment_of(const check *c)
{
    return weight_type(c) == CL_WEIGHT_F32 ? 4 : type_of(c)->block > 1 ? 1 : 2;
}

/* Where a block keeps the half that matters most. */
static size_t scale_of(const check *c)
{
    return weight_type(c) == CL_WEIGHT_F32 ? 2 : scale_of_packed_block(weight_type(c));
}

/* ---- decode -------------------------------------------------------------------------------- */

static void check_decode(check *c, const unsigned char *row, size_t n)
{
    float *to = take_floats(c, n, OUTPUT), *scalar = take_floats(c, n, OUTPUT);
    seal(c);
    type_of(c)->decode(to, row, n);
    verify(c);
    c->scalar_weights.weight[weight_type(c)].decode(scalar, row, n);
    for (size_t i = 0; i < n; i++) {
        expect_same(c, to[i], (float)true_weight(weight_type(c), row, i), "decoded", n, i);
        if (!is_same_float(to[i], scalar[i]))
            check_fail(c, "decoded [%zu][%zu]: %a has other bits than the scalar version's %a", n,
                       i, (double)to[i], (double)scalar[i]);
    }
}

static void decoding_is_exact(check *c)
{
    for (size_t trial = 0, n; (n = weight_length(c, trial)) > 0; trial++) {
        begin(c);
        unsigned char *row = take(c, weight_bytes(c, n), alignment_of(c), INPUT);
        fill_weight_row(c, random_pattern(c), row, n);
        check_decode(c, row, n);
    }
}

/* Each of the 2^16 halves or scales, infinities and NaN among them; in a quick run every eighth 64. */
static void decoding_takes_every_pattern(check *c)
{
    const size_t block = type_of(c)->block;
    for (uint32_t first = 0; first < 65536; first += c->is_quick ? 512 : 64) {
        begin(c);
        unsigned char *row = take(c, weight_bytes(c, 64 * block), alignment_of(c), INPUT);
        for (size_t i = 0; i < weight_bytes(c, 64 * block); i++)
            row[i] = (unsigned char)random_bits(c);
        for (uint32_t i = 0; i < 64; i++)
            put_u16(row + i * type_of(c)->block_bytes + scale_of(c), (uint16_t)(first + i));
        check_decode(c, row, 64 * block);
    }
}

/* ---- matmul -------------------------------------------------------------------------------- */

static product take_product(check *c, size_t n_in)
{
    const size_t row_bytes = weight_bytes(c, n_in), budget = SLOT_BYTES / 4 / (n_in + 16);
    product p = {.n_in = n_in, .n_rows = 1 + random_below(c, 30), .n_tokens = random_below(c, 14)};
    p.n_rows = p.n_rows > budget ? budget : p.n_rows;
    p.row_bytes = row_bytes + random_below(c, 9) * alignment_of(c);
    p.x_stride = n_in + random_below(c, 9);
    p.y_stride = p.n_rows + random_below(c, 9);
    p.first = (uint32_t)random_below(c, p.n_rows);
    p.last = p.first + (uint32_t)random_below(c, p.n_rows - p.first + 1);
    if (random_below(c, 3) == 0) {
        p.first = 0;
        p.last = (uint32_t)p.n_rows;
    }
    const size_t x_length = p.n_tokens ? (p.n_tokens - 1) * p.x_stride + n_in : 0;
    const size_t y_length = p.n_tokens ? (p.n_tokens - 1) * p.y_stride + p.n_rows : 0;
    p.w = take(c, (p.n_rows - 1) * p.row_bytes + row_bytes, alignment_of(c), INPUT);
    p.x = take_floats(c, x_length, INPUT);
    p.y = take_floats(c, y_length, OUTPUT);
    const int of_weights = random_pattern(c), of_activations = random_pattern(c);
    for (size_t i = 0; i < p.n_rows; i++)
        fill_weight_row(c, of_weights, p.w + i * p.row_bytes, n_in);
    for (size_t t = 0; t < p.n_tokens; t++)
        fill_floats(c, of_activations, p.x + t * p.x_stride, n_in);
    seal(c);
    return p;
}

static void multiply(const check *c, const product *p)
{
    type_of(c)->matmul(p->w, p->row_bytes, (uint32_t)p->n_in, p->first, p->last, p->x, p->x_stride,
                       (uint32_t)p->n_tokens, p->y, p->y_stride);
}

/* Only rows first to last of each token may have been written. */
static void expect_others_untouched(check *c, const product *p)
{
    for (size_t t = 0; t < p->n_tokens; t++) {
        const float *y = p->y + t * p->y_stride;
        const size_t end = t + 1 < p->n_tokens ? p->y_stride : p->n_rows;
        expect_untouched(c, y, p->first, "results before the first row");
        expect_untouched(c, y + p->last, end - p->last, "results behind the last row");
    }
}

static void products_are_near(check *c)
{
    for (size_t trial = 0, n_in; (n_in = weight_length(c, trial)) > 0; trial++) {
        begin(c);
        const product p = take_product(c, n_in);
        multiply(c, &p);
        verify(c);
        expect_others_untouched(c, &p);
        const double roundings = ceil((double)n_in / 8) + 4;
        for (size_t i = p.first; i < p.last; i++) {
            for (size_t t = 0; t < p.n_tokens; t++) {
                const float *x = p.x + t * p.x_stride;
                double sum = 0, magnitude = 0;
                for (size_t j = 0; j < n_in; j++) {
                    const double number = true_weight(weight_type(c), p.w + i * p.row_bytes, j) *
                                          x[j];
                    sum += number;
                    magnitude += fabs(number);
                }
                const double bound = gamma_of(roundings) * magnitude +
                                     2 * (double)(n_in + 8) * SMALLEST_STEP;
                expect_near(c, p.y[t * p.y_stride + i], sum, bound, "product", i, t);
            }
        }
    }
}

static void products_do_not_depend_on_company(check *c)
{
    for (size_t trial = 0, n_in; (n_in = weight_length(c, trial)) > 0; trial++) {
        begin(c);
        const product p = take_product(c, n_in);
        multiply(c, &p);
        for (size_t i = p.first; i < p.last; i++) {
            for (size_t t = 0; t < p.n_tokens; t++) {
                float alone[32];
                type_of(c)->matmul(p.w, p.row_bytes, (uint32_t)n_in, (uint32_t)i, (uint32_t)i + 1,
                                   p.x + t * p.x_stride, p.x_stride, 1, alone, 1);
                expect_same(c, p.y[t * p.y_stride + i], alone[i], "product in company", i, t);
            }
        }
    }
}

/* More tokens and rows than any stretch the versions cut the work into. */
static void products_of_large_batches(check *c)
{
    const size_t block = type_of(c)->block, n_in = 3 * block + (block == 1 ? 70 : 0);
    const size_t most = c->is_quick ? 300 : 3000;
    for (size_t n_tokens = 31; n_tokens < most && n_tokens * n_in < SLOT_BYTES / 8;
         n_tokens = n_tokens * 3 + 1) {
        enum { N_ROWS = 53 };
        begin(c);
        unsigned char *w = take(c, N_ROWS * weight_bytes(c, n_in), alignment_of(c), INPUT);
        float *x = take_floats(c, n_tokens * n_in, INPUT),
              *y = take_floats(c, n_tokens * N_ROWS, OUTPUT);
        for (size_t i = 0; i < N_ROWS; i++)
            fill_weight_row(c, NORMAL, w + i * weight_bytes(c, n_in), n_in);
        fill_floats(c, NORMAL, x, n_tokens * n_in);
        seal(c);
        type_of(c)->matmul(w, weight_bytes(c, n_in), (uint32_t)n_in, 0, N_ROWS, x, n_in,
                           (uint32_t)n_tokens, y, N_ROWS);
        verify(c);
        for (size_t t = 0; t < n_tokens; t++) {
            float alone[N_ROWS];
            type_of(c)->matmul(w, weight_bytes(c, n_in), (uint32_t)n_in, 0, N_ROWS, x + t * n_in,
                               n_in, 1, alone, N_ROWS);
            for (size_t i = 0; i < N_ROWS; i++)
                expect_same(c, y[t * N_ROWS + i], alone[i], "product in a large batch", i, t);
        }
    }
}

static void products_equal_those_of_decoded_weights(check *c)
{
    for (size_t trial = 0, n_in; (n_in = weight_length(c, trial)) > 0; trial++) {
        begin(c);
        const product p = take_product(c, n_in);
        multiply(c, &p);
        float *decoded = take_floats(c, n_in, OUTPUT), *y = take_floats(c, p.n_tokens + 1, OUTPUT);
        for (size_t i = p.first; i < p.last; i++) {
            type_of(c)->decode(decoded, p.w + i * p.row_bytes, n_in);
            c->weights.weight[CL_WEIGHT_F32].matmul(decoded, n_in * sizeof(float), (uint32_t)n_in,
                                                    0, 1, p.x, p.x_stride, (uint32_t)p.n_tokens, y,
                                                    1);
            for (size_t t = 0; t < p.n_tokens; t++)
                expect_same(c, p.y[t * p.y_stride + i], y[t], "product of decoded weights", i, t);
        }
    }
}

static void products_keep_nan_apart(check *c)
{
    for (size_t trial = 0; trial < 70; trial++) {
        const size_t n_in = weight_length(c, trial);
        begin(c);
        const product p = take_product(c, n_in);
        if (p.n_tokens == 0 || p.first == p.last) continue;
        multiply(c, &p);
        float *clean = take_floats(c, p.n_tokens * p.n_rows, OUTPUT);
        for (size_t t = 0; t < p.n_tokens; t++)
            memcpy(clean + t * p.n_rows, p.y + t * p.y_stride, p.n_rows * sizeof *clean);
        const size_t bad_token = random_below(c, p.n_tokens);
        p.x[bad_token * p.x_stride + random_below(c, n_in)] = NAN;
        multiply(c, &p);
        for (size_t t = 0; t < p.n_tokens; t++)
            for (size_t i = p.first; i < p.last; i++)
                expect_same(c, p.y[t * p.y_stride + i],
                            t == bad_token ? NAN : clean[t * p.n_rows + i], "product beside a NaN",
                            i, t);
    }
}

#define DECODE(text, weight)                                                                       \
    .kernel = "decode_" text, .offset = offsetof(cl_weight, decode), .type = weight
#define MATMUL(text, weight)                                                                       \
    .kernel = "matmul_" text, .offset = offsetof(cl_weight, matmul), .type = weight
#define TESTS(text, weight)                                                                        \
    {DECODE(text, weight), .aspect = "is exact", .run = decoding_is_exact},                        \
        {DECODE(text, weight), .aspect = "takes every pattern",                                    \
         .run = decoding_takes_every_pattern},                                                     \
        {MATMUL(text, weight), .aspect = "is near the exact sums", .run = products_are_near},      \
        {MATMUL(text, weight), .aspect = "does not depend on company",                             \
         .run = products_do_not_depend_on_company},                                                \
        {MATMUL(text, weight), .aspect = "does not depend on large batches",                       \
         .run = products_of_large_batches},                                                        \
        {MATMUL(text, weight), .aspect = "equals the product of decoded weights",                  \
         .run = products_equal_those_of_decoded_weights},                                          \
    {                                                                                              \
        MATMUL(text, weight), .aspect = "keeps NaN apart", .run = products_keep_nan_apart          \
    }

const test matmul_tests[] = {
    TESTS("f32", CL_WEIGHT_F32),       TESTS("f16", CL_WEIGHT_F16),
    TESTS("bf16", CL_WEIGHT_BF16),     TESTS("q8_0", CL_WEIGHT_Q8_0),
    TESTS("q4_0", CL_WEIGHT_Q4_0),     TESTS("q4_1", CL_WEIGHT_Q4_1),
    TESTS("q5_0", CL_WEIGHT_Q5_0),     TESTS("q5_1", CL_WEIGHT_Q5_1),
    TESTS("q2_k", CL_WEIGHT_Q2_K),     TESTS("q3_k", CL_WEIGHT_Q3_K),
    TESTS("q4_k", CL_WEIGHT_Q4_K),     TESTS("q5_k", CL_WEIGHT_Q5_K),
    TESTS("q6_k", CL_WEIGHT_Q6_K),     TESTS("iq4_nl", CL_WEIGHT_IQ4_NL),
    TESTS("iq4_xs", CL_WEIGHT_IQ4_XS), TESTS("mxfp4", CL_WEIGHT_MXFP4),
};
const size_t n_matmul_tests = sizeof matmul_tests / sizeof *matmul_tests;
