/*
 * machine_limits.c: the probe: what memory and kernels can do when nothing else is to be done.
 *
 * Each thread has its own stretch of two large buffers, so that threads never meet in a cache line, and
 * its own small matrices. Reading touches one word of each 64 bytes, since memory hands over no less;
 * eight sums that do not wait for each other keep several lines on their way. Writing and copying are
 * the C library's. Multiply-adds are those of the product of an f32 matrix with many tokens, all of it in the
 * core's own caches: what prompts are made of.
 */
#define _DEFAULT_SOURCE 1 /* madvise */

#include "bench/machine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/threads.h"
#include "kernels.h"
#include "report.h"

enum {
    HUGE_PAGE = 2 << 20,
    N_IN = 768, /* of the small matrix, for a thread: 96 KiB */
    N_OUT = 32,
    N_TOKENS = 64, /* 192 KiB of them */
    N_PRODUCTS = 500,
    NUMBERS = N_IN * (N_OUT + N_TOKENS) + N_OUT * N_TOKENS, /* for a thread */
};

typedef struct probe {
    const machine_limits_options *options;
    unsigned char *from, *to; /* [bytes] */
    float *numbers;           /* [n_threads][NUMBERS] */
    uint64_t *sums; /* [n_threads] 64 bytes apart: a sum that nobody uses is not computed */
    cl_matmul_table table;
    int what; /* MACHINE_READ, ... */
} probe;

static uint64_t read_words(const uint64_t *words, size_t n)
{
    uint64_t s[8] = {0};
    for (size_t i = 0; i + 64 <= n; i += 64) {
        for (size_t lane = 0; lane < 8; lane++) {
            s[lane] += words[i + 8 * lane];
        }
    }
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static void multiply(const probe *p, float *numbers)
{
    float *x = numbers + N_IN * N_OUT, *y = x + N_IN * N_TOKENS;
    for (int i = 0; i < N_PRODUCTS; i++) {
        p->table.weight[CL_WEIGHT_F32].matmul(numbers, N_IN * sizeof(float), N_IN, 0, N_OUT, x,
                                              N_IN, N_TOKENS, y, N_OUT);
    }
}

/* One thread's part of what is measured. */
static void do_part(void *argument, uint32_t part, uint32_t n_parts)
{
    probe *p = argument;
    const uint64_t lines = p->options->bytes / 4096;
    const uint64_t first = lines * part / n_parts * 4096;
    const size_t n = (size_t)(lines * (part + 1) / n_parts * 4096 - first);
    switch (p->what) {
    case MACHINE_READ:
        p->sums[8 * part] += read_words((const uint64_t *)(const void *)(p->from + first), n / 8);
        break;
    case MACHINE_WRITE:
        memset(p->to + first, (int)part + 1, n);
        break;
    case MACHINE_COPY:
        memcpy(p->to + first, p->from + first, n);
        break;
    default:
        multiply(p, p->numbers + (size_t)part * NUMBERS);
    }
}

static double amount(const probe *p, uint32_t n_threads)
{
    return p->what == MACHINE_FMA ? 2.0 * N_IN * N_OUT * N_TOKENS * N_PRODUCTS * n_threads
                                  : (double)(p->options->bytes / 4096 * 4096);
}

/* All limits with so many threads. */
static cellar_status measure_with(probe *p, uint32_t n_threads, bench_spread *out,
                                  cellar_error *error)
{
    threads *pool = NULL;
    cellar_status status = threads_create(n_threads, &pool, error);
    for (p->what = 0; p->what < MACHINE_LIMITS && status == CELLAR_OK; p->what++) {
        double seconds[BENCH_MOST_RUNS];
        threads_run(pool, do_part, p); /* warm */
        for (uint32_t i = 0; i < p->options->n_runs; i++) {
            const double began = bench_now();
            threads_run(pool, do_part, p);
            seconds[i] = bench_now() - began;
        }
        out[p->what] = bench_rate_of(bench_spread_of(seconds, p->options->n_runs),
                                     amount(p, n_threads));
    }
    threads_destroy(pool);
    return status;
}

/* A buffer whose pages are there, huge ones where the system gives them. */
static unsigned char *make_buffer(uint64_t bytes)
{
    void *buffer = NULL;
    if (bytes > SIZE_MAX || posix_memalign(&buffer, HUGE_PAGE, (size_t)bytes) != 0) {
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    const int is_refused = madvise(buffer, (size_t)bytes, MADV_HUGEPAGE);
    (void)is_refused; /* small pages will do */
#endif
    memset(buffer, 1, (size_t)bytes);
    return buffer;
}

cellar_status machine_measure(const machine_limits_options *options, machine_limits *out,
                              cellar_error *error)
{
    const uint32_t n = options->n_threads;
    const size_t n_numbers = (size_t)n * NUMBERS;
    cellar_status status = machine_has_room(2 * options->bytes + n_numbers * sizeof(float),
                                            "the probe", error);
    if (status != CELLAR_OK) {
        return status;
    }
    probe p = {.options = options,
               .from = make_buffer(options->bytes),
               .to = make_buffer(options->bytes),
               .numbers = malloc(n_numbers * sizeof(float)),
               .sums = calloc((size_t)n * 8, sizeof(uint64_t))};
    *out = (machine_limits){.n_threads = n, .bytes = options->bytes};
    if (p.from == NULL || p.to == NULL || p.numbers == NULL || p.sums == NULL) {
        status = report(error, CELLAR_NO_MEMORY, -1, "no memory for the probe: ask for less");
    } else {
        for (size_t i = 0; i < n_numbers; i++) {
            p.numbers[i] = (float)(i % 17) - 8;
        }
        cl_matmul_fill(&p.table, options->cpu_mask);
        status = measure_with(&p, 1, out->one, error);
        if (status == CELLAR_OK && n > 1) {
            status = measure_with(&p, n, out->many, error);
        } else if (status == CELLAR_OK) {
            memcpy(out->many, out->one, sizeof out->many);
        }
    }
    free(p.from);
    free(p.to);
    free(p.numbers);
    free(p.sums);
    return status;
}
