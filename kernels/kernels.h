/*
 * kernels.h: the arithmetic, as tables of functions on plain arrays.
 *
 * No cells, files, allocation or globals here. A table is filled with the scalar versions first,
 * then each instruction set that both the processor and the mask allow puts its own on top, in
 * ascending order. docs/kernels.md states every contract in full: shapes, alignment, NaN policy,
 * error bound.
 *
 * Two promises hold for all of them and are what makes Cellar's results repeat exactly:
 *   1. The value computed for one (row, key) or one (row, token) pair depends on that pair's inputs
 *      alone, never on how many others were computed in the same call.
 *   2. Sums over keys run in the order of the keys.
 * Pointers need the alignment of their element only. Nothing is read or written outside the arrays.
 */
#ifndef CL_KERNELS_H
#define CL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __FAST_MATH__
#error "the results of these kernels are promised bit for bit; -ffast-math breaks that"
#endif

/* Bits of an instruction-set mask; the same values as CELLAR_CPU_*. */
#define CL_CPU_AVX2 1u   /* AVX2 + FMA + F16C + SSE4.2, usable under this operating system */
#define CL_CPU_AVX512 2u /* AVX-512 F, BW, DQ, VL and VNNI; never without AVX2 */
#define CL_CPU_NEON 4u   /* AArch64, which always has it */
/* Only found, never asked for: AVX-512 with products without carries, which its checksum needs. */
#define CL_CPU_VPCLMUL 8u

/* What this processor and operating system can run, as CL_CPU_* bits. */
uint32_t cl_cpu_detect(void);

/* Whether AArch64 has the CRC-32C instructions, which are optional before Armv8.1. Elsewhere 0. */
int cl_cpu_has_crc32c(void);

/* ---- attention, rotation, rows, checksums: used by libcellar --------------------------------- */

/* Types of stored rows, by their GGUF numbers; the same values as CELLAR_*. */
enum {
    CL_ROW_F32 = 0,
    CL_ROW_F16 = 1,
    CL_ROW_Q4_0 = 2,
    CL_ROW_Q4_1 = 3,
    CL_ROW_Q5_0 = 6,
    CL_ROW_Q5_1 = 7,
    CL_ROW_Q8_0 = 8,
    CL_ROW_IQ4_NL = 20,
    CL_ROW_BF16 = 30,
    CL_ROW_TYPES = 31 /* length of the table below */
};

/*
 * One row type: n numbers, a multiple of `block`, take n / block * block_bytes bytes, which may lie
 * at any address. Every version gives the same bits. docs/kernels.md has layouts and rounding.
 */
typedef struct cl_row_codec {
    uint32_t block, block_bytes; /* 0: the type is not known, and the functions are NULL */

    /*
     * Every number becomes the nearest level of its block. A NaN or an infinity makes its whole
     * block of a quantised type NaN. Finite numbers of a quantised type stay finite.
     */
    void (*encode)(void *to, const float *from, size_t n);
    /* Exact, but for the sum of scale and offset, which is rounded once. Any bytes are allowed. */
    void (*decode)(float *to, const void *from, size_t n);
} cl_row_codec;

typedef struct cl_kernels {
    const char *isa; /* the highest instruction set used: "scalar", "avx2", "avx512", "neon" */

    /* s[r][j] = scale * sum_i q[r][i] * k[j * size + i], for r < n_rows, j < n_keys. */
    void (*attend_scores)(const float *const *q, uint32_t n_rows, const float *k, uint32_t n_keys,
                          uint32_t size, float scale, float *const *s);

    /*
     * One step of the running softmax over s[0..n): with m' = max(*m, max s), replaces s[j] by
     * exp(s[j] - m'), sets *l = *l * c + sum s[j] and *m = m', and returns c = exp(*m - m') by
     * which the caller's accumulator has to be multiplied (1 when the maximum stayed). Start with
     * *m = -INFINITY, *l = 0. n >= 1. NaN scores give NaN weights.
     */
    float (*attend_softmax)(float *s, uint32_t n, float *m, float *l);

    /*
     * acc[r][i] += sum_j w[r][j] * v[j * size + i] in f32, one product after the other, j rising;
     * multiply and add are fused where the instruction set can (the scalar version rounds twice).
     */
    void (*attend_accumulate)(const float *const *w, uint32_t n_rows, const float *v,
                              uint32_t n_keys, uint32_t size, float *const *acc);

    /* x[i] *= factor. */
    void (*attend_scale)(float *x, uint32_t n, float factor);

    /*
     * Rotate pairs (x[2i], x[2i+1]) by the angle whose cosine and sine are c[i], s[i]; i < n_pairs.
     */
    void (*rope_normal)(float *x, uint32_t n_pairs, const float *c, const float *s);
    /* Rotate pairs (x[i], x[i + n_pairs]). */
    void (*rope_neox)(float *x, uint32_t n_pairs, const float *c, const float *s);

    /*
     * binary16 <-> binary32, to nearest even; NaN stays NaN (quiet), infinities and denormals
     * exact.
     */
    void (*rows_f16_from_f32)(uint16_t *to, const float *from, size_t n);
    void (*rows_f32_from_f16)(float *to, const uint16_t *from, size_t n);

    /*
     * to[i] = byte i % 4 of `pattern` (the lowest first) for i < n, written past the caches where the
     * instruction set can: for arrays that they cannot hold and that nothing reads at once. What was
     * written is in order with the caller's later stores.
     */
    void (*rows_fill_past)(void *to, uint32_t pattern, size_t n);

    /* The ways rows can be stored, by CL_ROW_*. */
    cl_row_codec codec[CL_ROW_TYPES];

    /*
     * The orthonormal Walsh-Hadamard transform in place; n a power of two from 1 to 65536. It is
     * its own inverse up to rounding. Every version gives the same bits.
     */
    void (*hadamard)(float *x, uint32_t n);

    /*
     * CRC-32C (Castagnoli) of n bytes. Start with 0; what was returned goes on with the bytes that
     * follow. Every version gives the same number.
     */
    uint32_t (*crc32c)(uint32_t crc, const void *bytes, size_t n);
} cl_kernels;

/* Fill a table with the best versions that `mask` and the processor allow. */
void cl_kernels_fill(cl_kernels *table, uint32_t mask);

/* ---- weight products: used by the program ---------------------------------------------------- */

/* Weight types, by their GGUF numbers. */
enum {
    CL_WEIGHT_F32 = 0,
    CL_WEIGHT_F16 = 1,
    CL_WEIGHT_Q4_0 = 2,
    CL_WEIGHT_Q4_1 = 3,
    CL_WEIGHT_Q5_0 = 6,
    CL_WEIGHT_Q5_1 = 7,
    CL_WEIGHT_Q8_0 = 8,
    CL_WEIGHT_Q2_K = 10,
    CL_WEIGHT_Q3_K = 11,
    CL_WEIGHT_Q4_K = 12,
    CL_WEIGHT_Q5_K = 13,
    CL_WEIGHT_Q6_K = 14,
    CL_WEIGHT_IQ4_NL = 20,
    CL_WEIGHT_IQ4_XS = 23,
    CL_WEIGHT_BF16 = 30,
    CL_WEIGHT_MXFP4 = 39,
    CL_WEIGHT_TYPES = 40 /* length of the tables below */
};

/*
 * One weight type. A row holds n_in numbers in blocks of `block` numbers and `block_bytes` bytes.
 * Q8_0: f16 scale d, then 32 int8; value = d * q. The other packed types: packed.h.
 */
typedef struct cl_weight {
    uint32_t block, block_bytes; /* 0: the type is not known */

    /* to[0..n) = the row's numbers as f32; n a multiple of block. */
    void (*decode)(float *to, const void *row, size_t n);

    /*
     * y[t * y_stride + i] = sum_j w[i][j] * x[t * x_stride + j]
     * for rows first <= i < last and tokens t < n_tokens. w is row 0 of the matrix, rows are
     * row_bytes apart; n_in is a multiple of block and not 0. Activations are not rounded.
     */
    void (*matmul)(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first, uint32_t last,
                   const float *x, size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride);
} cl_weight;

/*
 * The product of cl_weight with activations that the table's `round` made of x, of as many tokens:
 * rows of cl_rounded_bytes(n_in) bytes, one behind the other, the first at a multiple of 64. Every
 * version gives the same bits.
 */
typedef void cl_multiply_rounded(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,
                                 uint32_t last, const void *x, uint32_t n_tokens, float *y,
                                 size_t y_stride);

/* Products of up to so many tokens read rounded activations in another order than those of more. */
#define CL_FEW_TOKENS 8u

/* Bytes that `n` rounded activations take, n a multiple of 32: whole cache lines. */
static inline size_t cl_rounded_bytes(size_t n)
{
    return (2 * n + n / 32 * 24 + 63) / 64 * 64;
}

typedef struct cl_matmul_table {
    cl_weight weight[CL_WEIGHT_TYPES];

    /*
     * Activations as whole numbers of 16 bits, a scale for each 32 (rounded.h): n numbers of one token,
     * for products of n_tokens of them. n is a multiple of 32; `to` has cl_rounded_bytes(n) bytes,
     * aligned to 64.
     */
    void (*round)(void *to, const float *x, size_t n, uint32_t n_tokens);
    /* By CL_WEIGHT_*; NULL for F32, F16 and BF16, which are no whole numbers. */
    cl_multiply_rounded *multiply_rounded[CL_WEIGHT_TYPES];
    int is_rounding_faster; /* than matmul: the engine then rounds */

    /* z[i] = z[i] / (1 + exp(-z[i])). NaN stays NaN; -infinity gives NaN or 0. */
    void (*silu)(float *z, size_t n);

    /* y[i] += x[i]; y[i] *= x[i]. */
    void (*add)(float *y, const float *x, size_t n);
    void (*multiply)(float *y, const float *x, size_t n);

    /*
     * out[i] = x[i] * f * weight[i] with f = 1 / sqrt(mean of x^2 + epsilon) (Zhang and Sennrich,
     * arXiv:1910.07467), the mean in double; weight NULL: ones. n >= 1; out may be x.
     */
    void (*rms_norm)(float *out, const float *x, const float *weight, size_t n, float epsilon);
} cl_matmul_table;

/* Fill a table with the best versions that `mask` and the processor allow. */
void cl_matmul_fill(cl_matmul_table *table, uint32_t mask);

/* Called by the two functions above, one for each file of kernels; they override what they have. */
void cl_attend_fill_scalar(cl_kernels *table);
void cl_attend_fill_avx2(cl_kernels *table);
void cl_attend_fill_avx512(cl_kernels *table);
void cl_attend_fill_neon(cl_kernels *table);
void cl_rope_fill_scalar(cl_kernels *table);
void cl_rope_fill_avx2(cl_kernels *table);
void cl_rope_fill_neon(cl_kernels *table);
void cl_rows_fill_scalar(cl_kernels *table);
void cl_rows_fill_avx2(cl_kernels *table);
void cl_rows_fill_avx512(cl_kernels *table);
void cl_rows_fill_neon(cl_kernels *table);
void cl_quants_fill_scalar(cl_kernels *table);
void cl_quants_fill_avx2(cl_kernels *table);
void cl_quants_fill_neon(cl_kernels *table);
void cl_hadamard_fill_scalar(cl_kernels *table);
void cl_hadamard_fill_avx2(cl_kernels *table);
void cl_hadamard_fill_neon(cl_kernels *table);
void cl_crc32c_fill_scalar(cl_kernels *table);
void cl_crc32c_fill_avx2(cl_kernels *table);
void cl_crc32c_fill_avx512(cl_kernels *table); /* needs CL_CPU_VPCLMUL too */
void cl_crc32c_fill_neon(cl_kernels *table);
void cl_activate_fill_scalar(cl_matmul_table *table);
void cl_activate_fill_avx2(cl_matmul_table *table);
void cl_activate_fill_avx512(cl_matmul_table *table);
void cl_activate_fill_neon(cl_matmul_table *table);
void cl_vector_fill_scalar(cl_matmul_table *table);
void cl_vector_fill_avx2(cl_matmul_table *table);
void cl_vector_fill_avx512(cl_matmul_table *table);
void cl_matmul_fill_scalar(cl_matmul_table *table);
void cl_matmul_rounded_fill_scalar(cl_matmul_table *table);
void cl_matmul_rounded_fill_avx512(cl_matmul_table *table);
void cl_matmul_fill_avx2(cl_matmul_table *table);
void cl_matmul_tiles_fill_avx2(cl_matmul_table *table);
void cl_matmul_fill_avx512(cl_matmul_table *table);
void cl_matmul_packed_fill_avx512(cl_matmul_table *table);
void cl_matmul_fill_neon(cl_matmul_table *table);

#endif /* CL_KERNELS_H */
