/*
 * support_operations.c: what operations on sequences cost in a memory of full attention.
 *
 * The same operations in pools of several sizes that hold several numbers of sequences: a figure that
 * grows with either shows a scan. Each operation is timed together with what undoes it, so that every
 * call meets the same memory. Sizes that do not fit into a pool are left out. A layer has one head of
 * one element: rows cost next to nothing, bookkeeping is all there is.
 */
#include <stdlib.h>

#include "support_bench.h"

typedef struct bench {
    cellar_memory *memory;
    uint32_t n_cells, n_sequences;
    float *zeros;
    cellar_seq *each; /* [n_sequences] all of them */
    cellar_pos *ends; /* [n_sequences] where each goes on */
} bench;

/* Sequences 0..n-1 are those that are counted; the others are parts of the first. */
enum { LONG_SEQ = 0, SHORT_SEQ = 100000, CRUMBLED, FORK, MOST_LONG = 32768 };

static void crumble(bench *b)
{
    cellar_error error = {0};
    bench_must(cellar_copy(b->memory, LONG_SEQ, SHORT_SEQ, 0, 1024, &error), "copy", &error);
    bench_must(cellar_copy(b->memory, LONG_SEQ, CRUMBLED, 0, 1024, &error), "copy", &error);
    for (cellar_pos p = 1; p < 1024; p += 2)
        bench_must(cellar_remove(b->memory, CRUMBLED, p, p + 1, &error), "remove", &error);
}

/*
 * The long sequence has half of the pool, at most 32k; one is its first 1k, one is in 512 runs; the other
 * sequences share a quarter of the pool.
 */
static void open_bench(bench *b, uint32_t n_cells, uint32_t n_sequences)
{
    cellar_layer layer = cellar_layer_init();
    cellar_config config = cellar_config_init();
    cellar_error error = {0};
    layer.n_heads = layer.n_kv_heads = layer.k_size = layer.v_size = 1;
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = n_cells;
    *b = (bench){.n_cells = n_cells, .n_sequences = n_sequences};
    b->zeros = bench_allocate(512, sizeof *b->zeros);
    b->each = bench_allocate(n_sequences, sizeof *b->each);
    b->ends = bench_allocate(n_sequences, sizeof *b->ends);
    bench_must(cellar_create(&config, &b->memory, &error), "create", &error);
    bench_fill(b->memory, LONG_SEQ, n_cells / 2 < MOST_LONG ? n_cells / 2 : MOST_LONG, b->zeros);
    crumble(b);
    for (uint32_t s = 0; s < n_sequences; s++) {
        b->each[s] = (cellar_seq)s;
        if (s > 0) bench_fill(b->memory, (cellar_seq)s, n_cells / 4 / n_sequences, b->zeros);
        b->ends[s] = cellar_position_max(b->memory, (cellar_seq)s) + 1;
    }
    bench_must(cellar_check(b->memory, &error), "check", &error);
}

static void close_bench(bench *b)
{
    cellar_error error = {0};
    bench_must(cellar_check(b->memory, &error), "check", &error);
    cellar_destroy(b->memory);
    free(b->zeros);
    free(b->each);
    free(b->ends);
}

/* ---- operations, each with its undoing ------------------------------------------------------- */

/* Times of one pair of calls are added to *forth and *back. */
typedef void (*paired)(bench *b, const void *argument, double *forth, double *back);

typedef struct fork_size {
    cellar_seq from;
    cellar_pos n;
} fork_size;

static void fork_and_forget(bench *b, const void *argument, double *forth, double *back)
{
    const fork_size *what = argument;
    cellar_error error = {0};
    double start = bench_now();
    bench_must(cellar_copy(b->memory, what->from, FORK, 0, what->n, &error), "copy", &error);
    double middle = bench_now();
    bench_must(cellar_remove(b->memory, FORK, 0, -1, &error), "remove", &error);
    *forth += middle - start;
    *back += bench_now() - middle;
}

/* SHORT_SEQ loses 32 tokens in the middle and gets them back from the long sequence. */
static void remove_and_restore(bench *b, const void *argument, double *forth, double *back)
{
    cellar_error error = {0};
    (void)argument;
    double start = bench_now();
    bench_must(cellar_remove(b->memory, SHORT_SEQ, 400, 432, &error), "remove", &error);
    double middle = bench_now();
    bench_must(cellar_copy(b->memory, LONG_SEQ, SHORT_SEQ, 400, 432, &error), "copy", &error);
    *forth += middle - start;
    *back += bench_now() - middle;
}

static void shift_and_back(bench *b, const void *argument, double *forth, double *back)
{
    cellar_seq seq = *(const cellar_seq *)argument;
    cellar_error error = {0};
    double start = bench_now();
    bench_must(cellar_shift(b->memory, seq, 512, -1, 5, &error), "shift", &error);
    double middle = bench_now();
    bench_must(cellar_shift(b->memory, seq, 512, -1, -5, &error), "shift", &error);
    *forth += middle - start;
    *back += bench_now() - middle;
}

typedef struct begin_size {
    cellar_seq seq;
    uint32_t n;
} begin_size;

static void begin_and_abort(bench *b, const void *argument, double *forth, double *back)
{
    const begin_size *what = argument;
    cellar_seq seqs[512];
    for (uint32_t i = 0; i < what->n; i++)
        seqs[i] = what->seq;
    double start = bench_now();
    bench_begin(b->memory, seqs, what->n);
    cellar_abort(b->memory);
    *forth += bench_now() - start;
    *back = 0;
}

static void ask(bench *b, const void *argument, double *forth, double *back)
{
    cellar_seq seq = *(const cellar_seq *)argument;
    int64_t sum = 0, last = cellar_position_max(b->memory, seq);
    double start = bench_now();
    for (int i = 0; i < 50; i++)
        sum += cellar_position_min(b->memory, seq) + cellar_position_max(b->memory, seq);
    *forth += (bench_now() - start) / 100;
    *back = 0;
    bench_claim(sum == 50 * last, "positions stay while nobody does anything");
}

/* A token for each sequence, in one step; then they lose it again. Times are for one sequence. */
static void append_and_drop(bench *b, const void *argument, double *forth, double *back)
{
    cellar_error error = {0};
    (void)argument;
    double start = bench_now();
    bench_read(b->memory, b->each, b->n_sequences, b->zeros);
    double middle = bench_now();
    for (uint32_t s = 0; s < b->n_sequences; s++)
        bench_must(cellar_remove(b->memory, b->each[s], b->ends[s], -1, &error), "remove", &error);
    *forth += (middle - start) / b->n_sequences;
    *back += (bench_now() - middle) / b->n_sequences;
}

static void measure(figures *all, bench *b, paired call, const void *argument, uint32_t n_calls,
                    const char *name, const char *back_name)
{
    double forth[BENCH_MOST_SAMPLES], back[BENCH_MOST_SAMPLES];
    for (uint32_t s = 0; s < all->n_samples; s++) {
        forth[s] = back[s] = 0;
        for (uint32_t i = 0; i < n_calls; i++)
            call(b, argument, &forth[s], &back[s]);
        forth[s] /= n_calls;
        back[s] /= n_calls;
    }
    figure what = {.section = "operations",
                   .name = name,
                   .unit = "ns",
                   .cells = b->n_cells,
                   .sequences = b->n_sequences};
    bench_add(all, what, forth);
    what.name = back_name;
    if (back_name) bench_add(all, what, back);
}

static void measure_forks(figures *all, bench *b)
{
    fork_size whole = {LONG_SEQ, -1}, part = {LONG_SEQ, 1024}, runs = {CRUMBLED, -1};
    measure(all, b, fork_and_forget, &part, 50, "fork 1k tokens", "forget that fork");
    measure(all, b, fork_and_forget, &whole, 5, "fork the longest", "forget that fork of it");
    measure(all, b, fork_and_forget, &runs, 20, "fork 512 runs of one token", "forget these runs");
}

void bench_operations(figures *all, uint32_t n_cells, uint32_t n_sequences)
{
    static const cellar_seq short_seq = SHORT_SEQ, crumbled = CRUMBLED, long_seq = LONG_SEQ;
    /* Behind the last sequence there is room; behind the long one others follow, if there are any. */
    const begin_size one = {(cellar_seq)n_sequences - 1, 1}, elsewhere = {LONG_SEQ, 1};
    const begin_size many = {(cellar_seq)n_sequences - 1, 512};
    bench b;
    open_bench(&b, n_cells, n_sequences);
    measure_forks(all, &b);
    measure(all, &b, remove_and_restore, NULL, 200, "remove 32 tokens inside",
            "copy 32 tokens inside");
    measure(all, &b, shift_and_back, &short_seq, 200, "shift the second half up",
            "shift it down again");
    measure(all, &b, shift_and_back, &crumbled, 50, "shift 256 runs up", "shift 256 runs down");
    measure(all, &b, ask, &long_seq, 20, "position min or max", NULL);
    measure(all, &b, begin_and_abort, &one, 200, "begin and abort 1 token", NULL);
    if (n_sequences > 1)
        measure(all, &b, begin_and_abort, &elsewhere, 200, "... 1, no room behind it", NULL);
    measure(all, &b, begin_and_abort, &many, 50, "begin and abort 512 tokens", NULL);
    measure(all, &b, append_and_drop, NULL, n_sequences > 100 ? 2 : 20, "append 1 to each, a token",
            "remove it again");
    close_bench(&b);
}
