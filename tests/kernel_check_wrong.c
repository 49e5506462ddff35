/*
 * kernel_check_wrong.c: kernels with deliberate faults, to see that kernel_check finds them.
 *
 * Each entry puts one wrong function into an otherwise right table and runs the tests of that
 * kernel; at least one of them must fail. The faults are those that happen: a last element left
 * out, a byte read or a number written behind the end, a rounding mode, a fused operation in the
 * tail only, an order of keys, a result that depends on how many rows or tokens came along.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <math.h>
#include <string.h>

static cl_kernels right;
static cl_matmul_table right_weights;
static cl_weight right_f16, right_q8_0;

/* ---- attention ----------------------------------------------------------------------------- */

static void scores_without_last(const float *const *q, uint32_t n_rows, const float *k,
                                uint32_t n_keys, uint32_t size, float scale, float *const *s)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t j = 0; j < n_keys; j++) {
            float sum = 0;
            for (uint32_t i = 0; i + 1 < size; i++)
                sum += q[r][i] * k[(size_t)j * size + i];
            s[r][j] = scale * sum;
        }
    }
}

static void scores_read_behind(const float *const *q, uint32_t n_rows, const float *k,
                               uint32_t n_keys, uint32_t size, float scale, float *const *s)
{
    const volatile unsigned char *behind = (const unsigned char *)(k + (size_t)n_keys * size);
    (void)*behind;
    right.attend_scores(q, n_rows, k, n_keys, size, scale, s);
}

static void scores_read_a_float_behind(const float *const *q, uint32_t n_rows, const float *k,
                                       uint32_t n_keys, uint32_t size, float scale, float *const *s)
{
    right.attend_scores(q, n_rows, k, n_keys, size, scale, s);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t j = 0; j < n_keys; j++)
            s[r][j] += 0 * q[r][size];
}

static void scores_by_company(const float *const *q, uint32_t n_rows, const float *k,
                              uint32_t n_keys, uint32_t size, float scale, float *const *s)
{
    right.attend_scores(q, n_rows, k, n_keys, size, scale, s);
    for (uint32_t r = 0; n_rows > 1 && r < n_rows; r++) {
        for (uint32_t j = 0; j < n_keys; j++) {
            float sum = 0; /* a right sum, but in another order than for a single row */
            for (uint32_t i = size; i-- > 0;)
                sum += q[r][i] * k[(size_t)j * size + i];
            s[r][j] = scale * sum;
        }
    }
}

static float softmax_of_nothing(float *s, uint32_t n, float *m, float *l)
{
    float maximum = *m, sum = 0;
    for (uint32_t j = 0; j < n; j++)
        maximum = s[j] > maximum ? s[j] : maximum;
    for (uint32_t j = 0; j < n; j++)
        sum += s[j] = expf(s[j] - maximum); /* -inf minus -inf */
    const float factor = expf(*m - maximum);
    *l = *l * factor + sum;
    *m = maximum;
    return factor;
}

static float softmax_with_coarse_exponential(float *s, uint32_t n, float *m, float *l)
{
    const float factor = right.attend_softmax(s, n, m, l);
    for (uint32_t j = 0; j < n; j++)
        s[j] *= 1 + 0x1p-20f;
    return factor;
}

static float softmax_forgets_sum(float *s, uint32_t n, float *m, float *l)
{
    const float before = *l, factor = right.attend_softmax(s, n, m, l);
    *l += before * (1 - factor); /* the old sum was not scaled */
    return factor;
}

static void accumulate_sum_first(const float *const *w, uint32_t n_rows, const float *v,
                                 uint32_t n_keys, uint32_t size, float *const *acc)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t i = 0; i < size; i++) {
            float sum = 0;
            for (uint32_t j = 0; j < n_keys; j++)
                sum += w[r][j] * v[(size_t)j * size + i];
            acc[r][i] += sum;
        }
    }
}

static void accumulate_writes_behind(const float *const *w, uint32_t n_rows, const float *v,
                                     uint32_t n_keys, uint32_t size, float *const *acc)
{
    right.attend_accumulate(w, n_rows, v, n_keys, size, acc);
    acc[n_rows - 1][size] = 0;
}

static void scale_without_last(float *x, uint32_t n, float factor)
{
    right.attend_scale(x, n - (n > 0), factor);
}

/* ---- rotations and rows -------------------------------------------------------------------- */

static void rope_with_another_tail(float *x, uint32_t n_pairs, const float *c, const float *s)
{
    const uint32_t body = n_pairs / 4 * 4;
    right.rope_normal(x, body, c, s);
    for (uint32_t i = body; i < n_pairs; i++) {
        const double a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = (float)(a * c[i] - b * s[i]); /* better than the body, and so not the same */
        x[2 * i + 1] = (float)(a * s[i] + b * c[i]);
    }
}

static void rope_the_other_way(float *x, uint32_t n_pairs, const float *c, const float *s)
{
    right.rope_neox(x, n_pairs, s, c);
}

static void halves_truncated(uint16_t *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        bits &= (bits & 0x7fffffff) > 0x7f800000 ? 0xffffffff : 0xffffe000;
        float cut;
        memcpy(&cut, &bits, sizeof cut);
        right.rows_f16_from_f32(to + i, &cut, 1);
    }
}

static void floats_write_behind(float *to, const uint16_t *from, size_t n)
{
    right.rows_f32_from_f16(to, from, n);
    to[n] = 0;
}

static void floats_without_denormals(float *to, const uint16_t *from, size_t n)
{
    right.rows_f32_from_f16(to, from, n);
    for (size_t i = 0; i < n; i++)
        if ((from[i] & 0x7c00) == 0) to[i] = from[i] & 0x8000 ? -0.0f : 0.0f;
}

static void fill_without_turning(void *to, uint32_t pattern, size_t n)
{
    const size_t head = n < 8 ? n : 8 - (size_t)((uintptr_t)to & 7);
    right.rows_fill_past(to, pattern, head);
    right.rows_fill_past((unsigned char *)to + head, pattern, n - head);
}

/* ---- codecs and the Hadamard transform ------------------------------------------------------- */

/* Quants for a scale that is not yet rounded to f16. */
static void q8_0_by_unrounded_scale(void *to, const float *from, size_t n)
{
    unsigned char *block = to;
    right.codec[CL_ROW_Q8_0].encode(to, from, n);
    for (size_t i = 0; i < n; i += 32, block += 34) {
        float largest = 0;
        for (size_t l = 0; l < 32; l++)
            largest = fmaxf(largest, fabsf(from[i + l]));
        for (size_t l = 0; l < 32 && isnormal(largest) && largest < 65504; l++)
            block[2 + l] = (unsigned char)(int)rintf(from[i + l] * (127 / largest));
    }
}

/* Neighbours share a byte, instead of the two halves of the block. */
static void q4_0_interleaved(float *to, const void *from, size_t n)
{
    float block[32];
    right.codec[CL_ROW_Q4_0].decode(to, from, n);
    for (size_t i = 0; i < n; i += 32) {
        memcpy(block, to + i, sizeof block);
        for (size_t l = 0; l < 32; l++)
            to[i + l] = block[l / 2 + l % 2 * 16];
    }
}

static void q5_0_without_fifth_bits(float *to, const void *from, size_t n)
{
    unsigned char block[22];
    for (size_t i = 0; i < n; i += 32) {
        memcpy(block, (const unsigned char *)from + i / 32 * 22, sizeof block);
        memset(block + 2, 0, 4);
        right.codec[CL_ROW_Q5_0].decode(to + i, block, 32);
    }
}

static void q5_1_writes_behind(void *to, const float *from, size_t n)
{
    right.codec[CL_ROW_Q5_1].encode(to, from, n);
    ((unsigned char *)to)[n / 32 * 24] = 0;
}

/* A whole row has the scale of its first block. */
static void q4_1_by_company(void *to, const float *from, size_t n)
{
    right.codec[CL_ROW_Q4_1].encode(to, from, n);
    for (size_t i = 32; i < n; i += 32)
        memcpy((unsigned char *)to + i / 32 * 20, to, 2);
}

static void iq4_nl_hides_nan(void *to, const float *from, size_t n)
{
    float block[32];
    for (size_t i = 0; i < n; i += 32) {
        for (size_t l = 0; l < 32; l++)
            block[l] = isfinite(from[i + l]) ? from[i + l] : 0;
        right.codec[CL_ROW_IQ4_NL].encode((unsigned char *)to + i / 32 * 18, block, 32);
    }
}

static void bf16_truncated(void *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy((unsigned char *)to + 2 * i, (const unsigned char *)(from + i) + 2, 2);
}

static void hadamard_by_sizes(float *x, uint32_t n)
{
    right.hadamard(x, n);
    for (uint32_t i = 0; n >= 16 && i < n; i++)
        x[i] *= sqrtf((float)n) / 4; /* normalised as if n were 16 */
}

static void hadamard_ordered_by_sign_changes(float *x, uint32_t n)
{
    right.hadamard(x, n);
    if (n < 4) return;
    const float second = x[1]; /* another order of the rows is a Hadamard matrix as well */
    x[1] = x[n - 1];
    x[n - 1] = second;
}

/* ---- checksums ------------------------------------------------------------------------------- */

static uint32_t crc32c_without_last(uint32_t crc, const void *bytes, size_t n)
{
    return right.crc32c(crc, bytes, n - (n > 4000));
}

static uint32_t crc32c_forgets_start(uint32_t crc, const void *bytes, size_t n)
{
    return right.crc32c(n >= 8 ? 0 : crc, bytes, n);
}

static uint32_t crc32c_reads_behind(uint32_t crc, const void *bytes, size_t n)
{
    const volatile unsigned char *behind = (const unsigned char *)bytes + n;
    (void)*behind;
    return right.crc32c(crc, bytes, n);
}

/* Long calls are wrong for one in 16 of the values that they join. */
static uint32_t crc32c_with_a_wrong_entry(uint32_t crc, const void *bytes, size_t n)
{
    const uint32_t result = right.crc32c(crc, bytes, n);
    return n >= 768 && (result & 0xf) == 0xa ? result ^ 0x100 : result;
}

/* ---- weights ------------------------------------------------------------------------------- */

static void matmul_by_tokens(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,
                             uint32_t last, const float *x, size_t x_stride, uint32_t n_tokens,
                             float *y, size_t y_stride)
{
    right_f16.matmul(w, row_bytes, n_in, first, last, x, x_stride, n_tokens, y, y_stride);
    for (uint32_t t = 0; n_tokens >= 4 && t < n_tokens; t++) {
        for (size_t i = first; i < last; i++) {
            float sum = 0;
            for (uint32_t j = n_in; j-- > 0;) {
                float number;
                right_f16.decode(&number, (const unsigned char *)w + i * row_bytes + 2 * (size_t)j,
                                 1);
                sum += number * x[t * x_stride + j];
            }
            y[t * y_stride + i] = sum;
        }
    }
}

static void matmul_one_row_more(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,
                                uint32_t last, const float *x, size_t x_stride, uint32_t n_tokens,
                                float *y, size_t y_stride)
{
    right_q8_0.matmul(w, row_bytes, n_in, first, last, x, x_stride, n_tokens, y, y_stride);
    for (uint32_t t = 0; t < n_tokens; t++)
        y[t * y_stride + last] = 0;
}

static void matmul_rounded_activations(const void *w, size_t row_bytes, uint32_t n_in,
                                       uint32_t first, uint32_t last, const float *x,
                                       size_t x_stride, uint32_t n_tokens, float *y,
                                       size_t y_stride)
{
    (void)x_stride;
    float rounded[4096];
    uint16_t half[4096];
    for (uint32_t t = 0; t < n_tokens; t++) {
        right.rows_f16_from_f32(half, x + t * x_stride, n_in);
        right.rows_f32_from_f16(rounded, half, n_in);
        right_q8_0.matmul(w, row_bytes, n_in, first, last, rounded, n_in, 1, y + t * y_stride,
                          y_stride);
    }
}

/* All numbers but those of whole steps are a step lower. */
static void round_down(void *to, const float *x, size_t n, uint32_t n_tokens)
{
    float lower[4096];
    for (size_t i = 0; i < n; i++)
        lower[i] = x[i] - fabsf(x[i]) * 0x1p-14f;
    right_weights.round(to, lower, n, n_tokens);
}

/* One number's share is missing in the sum of its sixteen. */
static void round_sums_behind(void *to, const float *x, size_t n, uint32_t n_tokens)
{
    right_weights.round(to, x, n, n_tokens);
    int32_t sum;
    memcpy(&sum, (char *)to + 2 * n + n / 8, sizeof sum);
    sum += 1;
    memcpy((char *)to + 2 * n + n / 8, &sum, sizeof sum);
}

/* Tokens that are many get the results of another order of adding. */
static void rounded_by_company(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,
                               uint32_t last, const void *x, uint32_t n_tokens, float *y,
                               size_t y_stride)
{
    right_weights.multiply_rounded[CL_WEIGHT_Q8_0](w, row_bytes, n_in, first, last, x, n_tokens, y,
                                                   y_stride);
    for (size_t t = 0; n_tokens > CL_FEW_TOKENS && t < n_tokens; t++)
        for (size_t i = first; i < last; i++)
            y[t * y_stride + i] *= 1 + 0x1p-23f;
}

static void rounded_without_last(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,
                                 uint32_t last, const void *x, uint32_t n_tokens, float *y,
                                 size_t y_stride)
{
    right_weights.multiply_rounded[CL_WEIGHT_Q4_K](w, row_bytes, n_in, first, last, x, n_tokens, y,
                                                   y_stride);
    if (first < last && n_tokens > 0) y[(n_tokens - 1) * y_stride + last - 1] = 0;
}

static void decode_unsigned(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += 32, block += 34) {
        uint16_t half;
        float d;
        memcpy(&half, block, sizeof half);
        right.rows_f32_from_f16(&d, &half, 1);
        for (size_t l = 0; l < 32; l++)
            to[i + l] = d * block[2 + l];
    }
}

static void silu_in_halves(float *z, size_t n)
{
    right_weights.silu(z, n);
    for (size_t i = 0; i < n; i++)
        z[i] *= 1 + 0x1p-20f;
}

static void silu_by_company(float *z, size_t n)
{
    right_weights.silu(z, n);
    if (n > 8) z[n - 1] = 0;
}

static void add_without_last(float *y, const float *x, size_t n)
{
    right_weights.add(y, x, n - (n > 8));
}

static void norm_in_floats(float *out, const float *x, const float *weight, size_t n, float epsilon)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    const float factor = 1 / sqrtf(sum / (float)n + epsilon);
    for (size_t i = 0; i < n; i++)
        out[i] = weight ? x[i] * factor * weight[i] : x[i] * factor;
}

/* ---- the list ------------------------------------------------------------------------------ */

/* Runs the tests of one kernel and says what the first failing one found, or NULL. */
static const char *first_failure(check *c, const char *kernel)
{
    static char text[sizeof c->message];
    const struct {
        const test *tests;
        size_t n;
    } all[] = {{attend_tests, n_attend_tests},   {rows_tests, n_rows_tests},
               {codec_tests, n_codec_tests},     {hadamard_tests, n_hadamard_tests},
               {crc32c_tests, n_crc32c_tests},   {matmul_tests, n_matmul_tests},
               {rounded_tests, n_rounded_tests}, {activate_tests, n_activate_tests},
               {vector_tests, n_vector_tests}};
    for (size_t a = 0; a < sizeof all / sizeof *all; a++) {
        for (const test *t = all[a].tests; t < all[a].tests + all[a].n; t++) {
            c->random = 1;
            if (strcmp(t->kernel, kernel) == 0 && run_test(c, t)) {
                memcpy(text, c->message, sizeof text);
                return text;
            }
        }
    }
    return NULL;
}

static void fill_right(check *c)
{
    c->kernels = right = c->scalar_kernels;
    c->weights = right_weights = c->scalar_weights;
    right_f16 = c->scalar_weights.weight[CL_WEIGHT_F16];
    right_q8_0 = c->scalar_weights.weight[CL_WEIGHT_Q8_0];
}

#define WRONG(place, function, kernel)                                                             \
    do {                                                                                           \
        fill_right(c);                                                                             \
        c->place = function;                                                                       \
        report(#function, first_failure(c, kernel));                                               \
    } while (0)

void run_self_test(check *c, void (*report)(const char *name, const char *failure))
{
    const int was_exhaustive = c->is_exhaustive;
    c->is_exhaustive = 0;
    c->is_quick = 1;
    WRONG(kernels.attend_scores, scores_without_last, "attend_scores");
    WRONG(kernels.attend_scores, scores_read_behind, "attend_scores");
    WRONG(kernels.attend_scores, scores_read_a_float_behind, "attend_scores");
    WRONG(kernels.attend_scores, scores_by_company, "attend_scores");
    WRONG(kernels.attend_softmax, softmax_of_nothing, "attend_softmax");
    WRONG(kernels.attend_softmax, softmax_with_coarse_exponential, "attend_softmax");
    WRONG(kernels.attend_softmax, softmax_forgets_sum, "attend_softmax");
    WRONG(kernels.attend_accumulate, accumulate_sum_first, "attend_accumulate");
    WRONG(kernels.attend_accumulate, accumulate_writes_behind, "attend_accumulate");
    WRONG(kernels.attend_scale, scale_without_last, "attend_scale");
    WRONG(kernels.rope_normal, rope_with_another_tail, "rope_normal");
    WRONG(kernels.rope_neox, rope_the_other_way, "rope_neox");
    WRONG(kernels.rows_f16_from_f32, halves_truncated, "rows_f16_from_f32");
    WRONG(kernels.rows_f32_from_f16, floats_write_behind, "rows_f32_from_f16");
    WRONG(kernels.rows_f32_from_f16, floats_without_denormals, "rows_f32_from_f16");
    WRONG(kernels.rows_fill_past, fill_without_turning, "rows_fill_past");
    WRONG(kernels.codec[CL_ROW_Q8_0].encode, q8_0_by_unrounded_scale, "encode_row_q8_0");
    WRONG(kernels.codec[CL_ROW_Q4_0].decode, q4_0_interleaved, "decode_row_q4_0");
    WRONG(kernels.codec[CL_ROW_Q5_0].decode, q5_0_without_fifth_bits, "decode_row_q5_0");
    WRONG(kernels.codec[CL_ROW_Q5_1].encode, q5_1_writes_behind, "encode_row_q5_1");
    WRONG(kernels.codec[CL_ROW_Q4_1].encode, q4_1_by_company, "encode_row_q4_1");
    WRONG(kernels.codec[CL_ROW_IQ4_NL].encode, iq4_nl_hides_nan, "encode_row_iq4_nl");
    WRONG(kernels.codec[CL_ROW_BF16].encode, bf16_truncated, "encode_row_bf16");
    WRONG(kernels.hadamard, hadamard_by_sizes, "hadamard");
    WRONG(kernels.hadamard, hadamard_ordered_by_sign_changes, "hadamard");
    WRONG(kernels.crc32c, crc32c_without_last, "crc32c");
    WRONG(kernels.crc32c, crc32c_forgets_start, "crc32c");
    WRONG(kernels.crc32c, crc32c_reads_behind, "crc32c");
    WRONG(kernels.crc32c, crc32c_with_a_wrong_entry, "crc32c");
    WRONG(weights.weight[CL_WEIGHT_F16].matmul, matmul_by_tokens, "matmul_f16");
    WRONG(weights.weight[CL_WEIGHT_Q8_0].matmul, matmul_one_row_more, "matmul_q8_0");
    WRONG(weights.weight[CL_WEIGHT_Q8_0].matmul, matmul_rounded_activations, "matmul_q8_0");
    WRONG(weights.weight[CL_WEIGHT_Q8_0].decode, decode_unsigned, "decode_q8_0");
    WRONG(weights.round, round_down, "round");
    WRONG(weights.round, round_sums_behind, "round");
    WRONG(weights.multiply_rounded[CL_WEIGHT_Q8_0], rounded_by_company, "multiply_rounded_q8_0");
    WRONG(weights.multiply_rounded[CL_WEIGHT_Q4_K], rounded_without_last, "multiply_rounded_q4_k");
    WRONG(weights.silu, silu_in_halves, "silu");
    WRONG(weights.silu, silu_by_company, "silu");
    WRONG(weights.add, add_without_last, "add");
    WRONG(weights.rms_norm, norm_in_floats, "rms_norm");
    c->is_exhaustive = was_exhaustive;
}
