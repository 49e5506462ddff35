/*
 * support_bench.c: see the header.
 *
 * Time is the monotonic clock's. Steps of more than a micro-batch are stored one by one, as an engine
 * would.
 */
#define _POSIX_C_SOURCE 200809L

#include "support_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

void bench_must(cellar_status status, const char *what, const cellar_error *error)
{
    if (status == CELLAR_OK) return;
    fprintf(stderr, "bench: %s: %s: %s\n", what, cellar_status_text(status), error->message);
    exit(1);
}

void bench_claim(bool is_so, const char *claim)
{
    if (is_so) return;
    fprintf(stderr, "bench: not so: %s\n", claim);
    exit(1);
}

void *bench_allocate(size_t n, size_t size)
{
    void *memory = calloc(n, size);
    bench_claim(memory != NULL, "there is memory");
    return memory;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

figure *bench_add(figures *all, figure what, double *samples)
{
    bench_claim(all->n < BENCH_MOST_FIGURES, "there is room for the figures");
    figure *added = &all->item[all->n++];
    uint32_t n = all->n_samples;
    qsort(samples, n, sizeof *samples, compare_doubles);
    *added = what;
    added->median = samples[n / 2];
    added->low = samples[n / 4];
    added->high = samples[3 * n / 4];
    return added;
}

void bench_add_exact(figures *all, figure what, double value)
{
    double samples[BENCH_MOST_SAMPLES];
    for (uint32_t i = 0; i < all->n_samples; i++)
        samples[i] = value;
    bench_add(all, what, samples);
}

void bench_begin(cellar_memory *memory, const cellar_seq *seqs, uint32_t n)
{
    cellar_error error = {0};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.seqs = seqs;
    bench_must(cellar_begin(memory, &batch, &error), "begin", &error);
}

void bench_read(cellar_memory *memory, const cellar_seq *seqs, uint32_t n, const float *zeros)
{
    cellar_error error = {0};
    bench_begin(memory, seqs, n);
    uint32_t n_ubatches = cellar_count_ubatches(memory);
    for (uint32_t u = 0; u < n_ubatches; u++)
        bench_must(zeros ? cellar_store(memory, u, 0, zeros, zeros, &error)
                         : cellar_confirm(memory, u, 0, &error),
                   "store", &error);
    bench_must(cellar_commit(memory, &error), "commit", &error);
}

void bench_fill(cellar_memory *memory, cellar_seq seq, uint32_t n, const float *zeros)
{
    cellar_seq seqs[512];
    for (uint32_t i = 0; i < 512; i++)
        seqs[i] = seq;
    for (uint32_t part; n > 0; n -= part) {
        part = n < 512 ? n : 512;
        bench_read(memory, seqs, part, zeros);
    }
}
