/*
 * kernel_check_bench.c: how fast the kernels are, once they are known to be right.
 *
 * Each case repeats one call long enough to be timed, several times over, and prints the median and
 * the spread (best and worst) of the processor time; other work on the machine disturbs caches and
 * memory only. A multiply-add counts as two operations. Products with one token are bounded by the
 * memory that holds the weights, so their matrix is larger than most caches and bytes a second are
 * printed as well.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZE = 128, N_KEYS = 32, N_ROWS = 32, N_SAMPLES = 7 };

/* What the cases work on; allocated once, filled with small numbers. */
typedef struct workload {
    const cl_kernels *kernels;
    const cl_weight *weight;
    const cl_row_codec *codec;
    float *floats, *more, *results;
    uint16_t *halves;
    unsigned char *rows; /* 4,096 stored numbers */
    unsigned char *matrix;
    const float *rows_in[N_ROWS];
    float *rows_out[N_ROWS];
    uint32_t n_rows, n_in, n_out, n_tokens;
} workload;

typedef struct bench_case {
    const char *kernel, *shape;
    void (*call)(workload *w);
    double operations, bytes; /* of one call */
} bench_case;

enum { FLOATS = 1 << 21, MATRIX_BYTES = 48 << 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double seconds_of(const bench_case *b, workload *w, size_t n_calls)
{
    const double start = now();
    for (size_t i = 0; i < n_calls; i++)
        b->call(w);
    return (now() - start) / (double)n_calls;
}

static void print_case(const char *isa, const bench_case *b, const double *sorted, int is_json)
{
    const double median = sorted[N_SAMPLES / 2];
    const double giga = b->operations / median / 1e9, bytes = b->bytes / median / 1e9;
    if (is_json)
        printf("{\"bench\": \"%s\", \"isa\": \"%s\", \"shape\": \"%s\", \"microseconds\": %.4f, "
               "\"best\": %.4f, "
               "\"worst\": %.4f, \"gflops\": %.2f, \"gbytes\": %.2f}\n",
               b->kernel, isa, b->shape, median * 1e6, sorted[0] * 1e6, sorted[N_SAMPLES - 1] * 1e6,
               giga, bytes);
    else
        printf("%-18s %-7s %-24s %9.2f us (%.2f - %.2f) %8.2f GFLOP/s %7.2f GB/s\n", b->kernel, isa,
               b->shape, median * 1e6, sorted[0] * 1e6, sorted[N_SAMPLES - 1] * 1e6, giga, bytes);
}

static void measure(const char *isa, const bench_case *b, workload *w, int is_json)
{
    size_t n_calls = 1;
    while (n_calls < (size_t)1 << 24 && seconds_of(b, w, n_calls) * (double)n_calls < 0.01)
        n_calls *= 2;
    double samples[N_SAMPLES];
    for (size_t i = 0; i < N_SAMPLES; i++)
        samples[i] = seconds_of(b, w, n_calls);
    qsort(samples, N_SAMPLES, sizeof *samples, by_size);
    print_case(isa, b, samples, is_json);
}

/* ---- the calls ----------------------------------------------------------------------------- */

static void call_scores(workload *w)
{
    w->kernels->attend_scores(w->rows_in, w->n_rows, w->floats, N_KEYS, SIZE, 0.1f, w->rows_out);
}

static void call_accumulate(workload *w)
{
    w->kernels->attend_accumulate(w->rows_in, w->n_rows, w->floats, N_KEYS, SIZE, w->rows_out);
}

static void call_softmax(workload *w)
{
    float m = 0, l = 0;
    memcpy(w->results, w->more, N_KEYS * sizeof *w->results);
    w->kernels->attend_softmax(w->results, N_KEYS, &m, &l);
}

static void call_rope_normal(workload *w)
{
    w->kernels->rope_normal(w->results, SIZE / 2, w->more, w->more + SIZE);
}

static void call_rope_neox(workload *w)
{
    w->kernels->rope_neox(w->results, SIZE / 2, w->more, w->more + SIZE);
}

static void call_to_half(workload *w)
{
    w->kernels->rows_f16_from_f32(w->halves, w->floats, 4096);
}

static void call_from_half(workload *w)
{
    w->kernels->rows_f32_from_f16(w->results, w->halves, 4096);
}

static void call_encode(workload *w)
{
    w->codec->encode(w->rows, w->floats, 4096);
}

static void call_decode(workload *w)
{
    w->codec->decode(w->results, w->rows, 4096);
}

static void call_hadamard(workload *w)
{
    w->kernels->hadamard(w->results, w->n_in);
}

static void call_crc32c(workload *w)
{
    w->halves[0] ^= (uint16_t)w->kernels->crc32c(0, w->matrix, w->n_in);
}

static void call_memcpy(workload *w)
{
    memcpy(w->results, w->matrix, w->n_in);
}

static void call_matmul(workload *w)
{
    const size_t row_bytes = w->n_in / w->weight->block * w->weight->block_bytes;
    w->weight->matmul(w->matrix, row_bytes, w->n_in, 0, w->n_out, w->floats, w->n_in, w->n_tokens,
                      w->results, w->n_out);
}

/* ---- all cases ----------------------------------------------------------------------------- */

static void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) {
        perror("kernel_check: bench");
        exit(1);
    }
    return memory;
}

static void prepare(workload *w)
{
    w->floats = allocate(FLOATS * sizeof(float));
    w->more = allocate(FLOATS * sizeof(float));
    w->results = allocate(FLOATS * sizeof(float));
    w->halves = allocate(4096 * sizeof(uint16_t));
    w->rows = allocate(4096 * sizeof(float));
    w->matrix = allocate(MATRIX_BYTES);
    for (size_t i = 0; i < FLOATS; i++) {
        w->floats[i] = (float)(i % 251) / 1000 - 0.12f;
        w->more[i] = (float)(i % 127) / -200;
        w->results[i] = 0;
    }
    w->kernels->rows_f16_from_f32(w->halves, w->floats, 4096);
    for (size_t i = 0; i < MATRIX_BYTES; i++) /* no NaN and no denormals, whatever the type */
        w->matrix[i] = (unsigned char)(0x20 + i % 29);
    for (size_t r = 0; r < N_ROWS; r++) {
        w->rows_in[r] = w->more + r * 1024;
        w->rows_out[r] = w->results + r * 1024;
    }
}

static void bench_kernels(const char *isa, workload *w, const char *only, int is_json)
{
    static const uint32_t row_counts[] = {1, 4, 32};
    for (size_t i = 0; i < 3; i++) {
        w->n_rows = row_counts[i];
        char shape[64];
        snprintf(shape, sizeof shape, "%u rows, %d keys of %d", w->n_rows, N_KEYS, SIZE);
        const double operations = 2.0 * w->n_rows * N_KEYS * SIZE, bytes = 4.0 * N_KEYS * SIZE;
        const bench_case scores = {"attend_scores", shape, call_scores, operations, bytes};
        const bench_case accumulate = {"attend_accumulate", shape, call_accumulate, operations,
                                       bytes};
        if (strstr(scores.kernel, only)) measure(isa, &scores, w, is_json);
        if (strstr(accumulate.kernel, only)) measure(isa, &accumulate, w, is_json);
        memset(w->results, 0, FLOATS * sizeof(float));
    }
    const bench_case others[] = {
        {"attend_softmax", "32 scores", call_softmax, N_KEYS, 4.0 * N_KEYS},
        {"rope_normal", "64 pairs", call_rope_normal, 6.0 * SIZE / 2, 8.0 * SIZE},
        {"rope_neox", "64 pairs", call_rope_neox, 6.0 * SIZE / 2, 8.0 * SIZE},
        {"rows_f16_from_f32", "4096", call_to_half, 4096, 6.0 * 4096},
        {"rows_f32_from_f16", "4096", call_from_half, 4096, 6.0 * 4096},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(others[i].kernel, only)) measure(isa, &others[i], w, is_json);
}

static void bench_rows(const char *isa, workload *w, const char *only, int is_json)
{
    static const struct {
        const char *encode, *decode;
        int type;
    } types[] = {{"encode_row_f32", "decode_row_f32", CL_ROW_F32},
                 {"encode_row_f16", "decode_row_f16", CL_ROW_F16},
                 {"encode_row_bf16", "decode_row_bf16", CL_ROW_BF16},
                 {"encode_row_q8_0", "decode_row_q8_0", CL_ROW_Q8_0},
                 {"encode_row_q5_1", "decode_row_q5_1", CL_ROW_Q5_1},
                 {"encode_row_q5_0", "decode_row_q5_0", CL_ROW_Q5_0},
                 {"encode_row_q4_1", "decode_row_q4_1", CL_ROW_Q4_1},
                 {"encode_row_q4_0", "decode_row_q4_0", CL_ROW_Q4_0},
                 {"encode_row_iq4_nl", "decode_row_iq4_nl", CL_ROW_IQ4_NL}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        w->codec = &w->kernels->codec[types[i].type];
        const double bytes = 4096.0 * (4 + (double)w->codec->block_bytes / w->codec->block);
        const bench_case encode = {types[i].encode, "4096", call_encode, 4096, bytes};
        const bench_case decode = {types[i].decode, "4096", call_decode, 4096, bytes};
        w->codec->encode(w->rows, w->floats, 4096);
        if (strstr(encode.kernel, only)) measure(isa, &encode, w, is_json);
        if (strstr(decode.kernel, only)) measure(isa, &decode, w, is_json);
    }
}

static void bench_hadamard(const char *isa, workload *w, const char *only, int is_json)
{
    static const struct {
        uint32_t n, stages;
    } sizes[] = {{64, 6}, {128, 7}, {256, 8}, {4096, 12}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint32_t n = w->n_in = sizes[i].n;
        char shape[16];
        snprintf(shape, sizeof shape, "%u", n);
        memcpy(w->results, w->floats, n * sizeof *w->results);
        const bench_case b = {"hadamard", shape, call_hadamard, (double)n * (sizes[i].stages + 1),
                              8.0 * n};
        if (strstr(b.kernel, only)) measure(isa, &b, w, is_json);
    }
}

/* Against memcpy of the same bytes: from the second-level cache, and through memory. */
static void bench_crc32c(const char *isa, workload *w, const char *only, int is_json)
{
    static const struct {
        uint32_t bytes;
        const char *shape;
    } sizes[] = {{1 << 10, "1 KiB"}, {1 << 18, "256 KiB"}, {FLOATS * 4, "8 MiB"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && strstr("crc32c", only); i++) {
        w->n_in = sizes[i].bytes;
        const bench_case crc = {"crc32c", sizes[i].shape, call_crc32c, 0, w->n_in};
        const bench_case copy = {"(memcpy)", sizes[i].shape, call_memcpy, 0, w->n_in};
        measure(isa, &crc, w, is_json);
        measure(isa, &copy, w, is_json);
    }
}

static void bench_weights(const char *isa, workload *w, const cl_matmul_table *weights,
                          const char *only, int is_json)
{
    static const struct {
        const char *kernel;
        int type;
    } types[] = {{"matmul_f32", CL_WEIGHT_F32},       {"matmul_f16", CL_WEIGHT_F16},
                 {"matmul_bf16", CL_WEIGHT_BF16},     {"matmul_q8_0", CL_WEIGHT_Q8_0},
                 {"matmul_q4_0", CL_WEIGHT_Q4_0},     {"matmul_q4_1", CL_WEIGHT_Q4_1},
                 {"matmul_q5_0", CL_WEIGHT_Q5_0},     {"matmul_q5_1", CL_WEIGHT_Q5_1},
                 {"matmul_q2_k", CL_WEIGHT_Q2_K},     {"matmul_q3_k", CL_WEIGHT_Q3_K},
                 {"matmul_q4_k", CL_WEIGHT_Q4_K},     {"matmul_q5_k", CL_WEIGHT_Q5_K},
                 {"matmul_q6_k", CL_WEIGHT_Q6_K},     {"matmul_iq4_nl", CL_WEIGHT_IQ4_NL},
                 {"matmul_iq4_xs", CL_WEIGHT_IQ4_XS}, {"matmul_mxfp4", CL_WEIGHT_MXFP4}};
    static const uint32_t shapes[][3] = {{288, 288, 1},   {288, 768, 16},  {2048, 5632, 1},
                                         {2048, 2816, 2}, {2048, 2816, 4}, {2048, 512, 64},
                                         {4096, 192, 256}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!strstr(types[i].kernel, only)) continue;
        w->weight = &weights->weight[types[i].type];
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            w->n_in = shapes[j][0];
            w->n_out = shapes[j][1];
            w->n_tokens = shapes[j][2];
            if (w->n_in % w->weight->block != 0) continue;
            char text[64];
            snprintf(text, sizeof text, "%u x %u, %u tokens", w->n_in, w->n_out, w->n_tokens);
            const double numbers = (double)w->n_in * w->n_out;
            const bench_case b = {types[i].kernel, text, call_matmul, 2 * numbers * w->n_tokens,
                                  numbers / w->weight->block * w->weight->block_bytes};
            measure(isa, &b, w, is_json);
        }
    }
}

void run_bench(const char *isa, const cl_kernels *kernels, const cl_matmul_table *weights,
               const char *only, int is_json)
{
    static workload w;
    w.kernels = kernels;
    if (!w.floats) prepare(&w);
    bench_kernels(isa, &w, only, is_json);
    bench_rows(isa, &w, only, is_json);
    bench_hadamard(isa, &w, only, is_json);
    bench_crc32c(isa, &w, only, is_json);
    bench_weights(isa, &w, weights, only, is_json);
}
