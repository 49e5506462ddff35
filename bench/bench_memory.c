/*
 * bench_memory.c: what the operations on sequences cost, and how fast attention is.
 *
 *   bench_memory [--json] [--quick]
 *
 * The first table repeats the same operations in pools of 4,096, 32,768 and 131,072 cells that hold
 * 64 sequences: a figure that grows with the pool would show a scan of all cells. Sizes that do not
 * fit into a pool are left out. The second table is one layer of a small model (9 query heads on 3
 * K/V heads of 64, f16 rows), decoding one token and prefilling 128 at two depths, one thread.
 * Before anything is timed, cellar_check must find nothing, and a decoded token must get the same
 * bits as in a prefill; otherwise the program exits 1. Figures are medians; the spread is that of
 * the middle half.
 */
#define _POSIX_C_SOURCE 200809L
#include <cellar.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/random.h"

enum { N_POOLS = 3, N_SEQUENCES = 64, MOST_SAMPLES = 41, MOST_RESULTS = 64 };

static const uint32_t pools[N_POOLS] = {4096, 32768, 131072};

typedef struct result {
    const char *name;
    uint32_t cells;
    double median, low, high; /* ns per call */
} result;

static result results[MOST_RESULTS];
static uint32_t n_results, n_samples = MOST_SAMPLES;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void must(cellar_status status, const char *what, const cellar_error *error)
{
    if (status == CELLAR_OK) return;
    fprintf(stderr, "bench_memory: %s: %s: %s\n", what, cellar_status_text(status), error->message);
    exit(1);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static result summarise(const char *name, uint32_t cells, double *samples, uint32_t n)
{
    qsort(samples, n, sizeof *samples, compare_doubles);
    return (result){name, cells, samples[n / 2], samples[n / 4], samples[3 * n / 4]};
}

/* ---- a pool with 64 sequences ---------------------------------------------------------------- */

typedef struct bench {
    cellar_memory *memory;
    uint32_t n_cells;
    float *zeros;
} bench;

enum { LONG_SEQ = 0, SHORT_SEQ = 1, CRUMBLED = 2, TWIN = 1000, FORK = 1001 };

static void fill(bench *b, cellar_seq seq, uint32_t n)
{
    cellar_error error = {0};
    while (n > 0) {
        uint32_t part = n < 512 ? n : 512;
        cellar_seq seqs[512];
        for (uint32_t i = 0; i < part; i++)
            seqs[i] = seq;
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = part;
        batch.seqs = seqs;
        must(cellar_begin(b->memory, &batch, &error), "begin", &error);
        must(cellar_store(b->memory, 0, 0, b->zeros, b->zeros, &error), "store", &error);
        must(cellar_commit(b->memory, &error), "commit", &error);
        n -= part;
    }
}

/* The long sequence has half of the pool, at most 32k; one is in 512 runs; 62 small ones. */
static void open_bench(bench *b, uint32_t n_cells)
{
    cellar_layer layer = cellar_layer_init();
    cellar_config config = cellar_config_init();
    cellar_error error = {0};
    layer.n_heads = layer.n_kv_heads = layer.k_size = layer.v_size = 1;
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = n_cells;
    b->n_cells = n_cells;
    b->zeros = calloc(512, sizeof *b->zeros);
    must(cellar_create(&config, &b->memory, &error), "create", &error);
    if (!b->zeros) exit(1);
    fill(b, LONG_SEQ, n_cells / 2 < 32768 ? n_cells / 2 : 32768);
    must(cellar_copy(b->memory, LONG_SEQ, SHORT_SEQ, 0, 1024, &error), "copy", &error);
    must(cellar_copy(b->memory, LONG_SEQ, CRUMBLED, 0, 1024, &error), "copy", &error);
    for (cellar_pos p = 1; p < 1024; p += 2)
        must(cellar_remove(b->memory, CRUMBLED, p, p + 1, &error), "remove", &error);
    for (cellar_seq s = 3; s < N_SEQUENCES; s++)
        fill(b, s, n_cells / 4 / N_SEQUENCES);
    must(cellar_check(b->memory, &error), "check", &error);
}

static void close_bench(bench *b)
{
    cellar_error error = {0};
    must(cellar_check(b->memory, &error), "check", &error);
    cellar_destroy(b->memory);
    free(b->zeros);
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
    double start = now_ns();
    must(cellar_copy(b->memory, what->from, FORK, 0, what->n, &error), "copy", &error);
    double middle = now_ns();
    must(cellar_remove(b->memory, FORK, 0, -1, &error), "remove", &error);
    *forth += middle - start;
    *back += now_ns() - middle;
}

/* SHORT_SEQ loses 32 tokens in the middle and gets them back from the long sequence. */
static void remove_and_restore(bench *b, const void *argument, double *forth, double *back)
{
    cellar_error error = {0};
    (void)argument;
    double start = now_ns();
    must(cellar_remove(b->memory, SHORT_SEQ, 400, 432, &error), "remove", &error);
    double middle = now_ns();
    must(cellar_copy(b->memory, LONG_SEQ, SHORT_SEQ, 400, 432, &error), "copy", &error);
    *forth += middle - start;
    *back += now_ns() - middle;
}

static void shift_and_back(bench *b, const void *argument, double *forth, double *back)
{
    cellar_seq seq = *(const cellar_seq *)argument;
    cellar_error error = {0};
    double start = now_ns();
    must(cellar_shift(b->memory, seq, 512, -1, 5, &error), "shift", &error);
    double middle = now_ns();
    must(cellar_shift(b->memory, seq, 512, -1, -5, &error), "shift", &error);
    *forth += middle - start;
    *back += now_ns() - middle;
}

typedef struct begin_size {
    cellar_seq seq;
    uint32_t n;
} begin_size;

static void begin_and_abort(bench *b, const void *argument, double *forth, double *back)
{
    const begin_size *what = argument;
    cellar_error error = {0};
    cellar_seq seqs[512];
    cellar_batch batch = cellar_batch_init();
    for (uint32_t i = 0; i < what->n; i++)
        seqs[i] = what->seq;
    batch.n_tokens = what->n;
    batch.seqs = seqs;
    double start = now_ns();
    must(cellar_begin(b->memory, &batch, &error), "begin", &error);
    cellar_abort(b->memory);
    *forth += now_ns() - start;
    *back = 0;
}

static void ask(bench *b, const void *argument, double *forth, double *back)
{
    cellar_seq seq = *(const cellar_seq *)argument;
    int64_t sum = 0, last = cellar_position_max(b->memory, seq);
    double start = now_ns();
    for (int i = 0; i < 50; i++)
        sum += cellar_position_min(b->memory, seq) + cellar_position_max(b->memory, seq);
    *forth += (now_ns() - start) / 100;
    *back = 0;
    if (sum != 50 * last) {
        fprintf(stderr, "bench_memory: positions change while nobody does anything\n");
        exit(1);
    }
}

static void measure(bench *b, paired call, const void *argument, uint32_t n_calls, const char *name,
                    const char *back_name)
{
    double forth[MOST_SAMPLES], back[MOST_SAMPLES];
    for (uint32_t s = 0; s < n_samples; s++) {
        forth[s] = back[s] = 0;
        for (uint32_t i = 0; i < n_calls; i++)
            call(b, argument, &forth[s], &back[s]);
        forth[s] /= n_calls;
        back[s] /= n_calls;
    }
    results[n_results++] = summarise(name, b->n_cells, forth, n_samples);
    if (back_name) results[n_results++] = summarise(back_name, b->n_cells, back, n_samples);
}

static void measure_pool(uint32_t n_cells)
{
    static const fork_size forks[] = {
        {LONG_SEQ, 1024}, {LONG_SEQ, 16384}, {LONG_SEQ, 32768}, {CRUMBLED, 1024}};
    static const char *const names[][2] = {
        {"fork 1k tokens", "forget that fork"},
        {"fork 16k tokens", "forget that fork of 16k"},
        {"fork 32k tokens", "forget that fork of 32k"},
        {"fork 512 runs of one token", "forget these runs"},
    };
    static const cellar_seq short_seq = SHORT_SEQ, crumbled = CRUMBLED, long_seq = LONG_SEQ;
    /* After the last sequence filled there is room; after the long one other sequences follow. */
    static const begin_size one = {N_SEQUENCES - 1, 1}, many = {N_SEQUENCES - 1, 512};
    static const begin_size one_elsewhere = {LONG_SEQ, 1}, many_elsewhere = {LONG_SEQ, 512};
    bench b;
    open_bench(&b, n_cells);
    for (size_t i = 0; i < sizeof forks / sizeof *forks; i++)
        if (forks[i].n <= cellar_position_max(b.memory, forks[i].from) + 2)
            measure(&b, fork_and_forget, &forks[i], forks[i].n > 8192 ? 5 : 50, names[i][0],
                    names[i][1]);
    measure(&b, remove_and_restore, NULL, 200, "remove 32 tokens inside", "copy 32 tokens inside");
    measure(&b, shift_and_back, &short_seq, 200, "shift the second half up", "shift it down again");
    measure(&b, shift_and_back, &crumbled, 50, "shift 256 runs up", "shift 256 runs down");
    measure(&b, ask, &long_seq, 20, "position min or max", NULL);
    measure(&b, begin_and_abort, &one, 200, "begin and abort 1 token", NULL);
    measure(&b, begin_and_abort, &many, 50, "begin and abort 512 tokens", NULL);
    measure(&b, begin_and_abort, &one_elsewhere, 200, "... 1, no room behind it", NULL);
    measure(&b, begin_and_abort, &many_elsewhere, 50, "... 512, no room behind it", NULL);
    close_bench(&b);
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { HEADS = 9, KV_HEADS = 3, SIZE = 64, PREFILL = 128 };

typedef struct speed {
    uint32_t depth, n_tokens;
    double median, low, high; /* ns per call of cellar_attend */
    double gflops, gbytes;    /* of the median */
} speed;

static float *random_rows(uint32_t n_tokens, uint32_t heads, uint64_t seed)
{
    size_t n = (size_t)n_tokens * heads * SIZE;
    float *rows = malloc(n * sizeof *rows);
    if (!rows) exit(1);
    for (size_t i = 0; i < n; i++)
        rows[i] = random_float(&seed);
    return rows;
}

typedef struct layer_bench {
    cellar_memory *memory;
    float *q, *k, *v, *out;
} layer_bench;

static void open_layer(layer_bench *b, uint32_t depth)
{
    cellar_layer layer = cellar_layer_init();
    cellar_config config = cellar_config_init();
    cellar_error error = {0};
    layer.n_heads = HEADS;
    layer.n_kv_heads = KV_HEADS;
    layer.k_size = layer.v_size = SIZE;
    layer.rope.kind = CELLAR_ROPE_NORMAL;
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = depth + PREFILL;
    config.n_ubatch = PREFILL;
    must(cellar_create(&config, &b->memory, &error), "create", &error);
    b->q = random_rows(PREFILL, HEADS, 1);
    b->k = random_rows(PREFILL, KV_HEADS, 2);
    b->v = random_rows(PREFILL, KV_HEADS, 3);
    b->out = random_rows(PREFILL, HEADS, 4);
}

static void close_layer(layer_bench *b)
{
    cellar_destroy(b->memory);
    free(b->q);
    free(b->k);
    free(b->v);
    free(b->out);
}

/* Open a step of n tokens with the same rows each time. */
static void begin_step(layer_bench *b, uint32_t n)
{
    cellar_error error = {0};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    must(cellar_begin(b->memory, &batch, &error), "begin", &error);
    must(cellar_store(b->memory, 0, 0, b->k, b->v, &error), "store", &error);
}

static void fill_layer(layer_bench *b, uint32_t depth)
{
    cellar_error error = {0};
    for (uint32_t done = 0; done < depth; done += PREFILL) {
        begin_step(b, PREFILL);
        must(cellar_commit(b->memory, &error), "commit", &error);
    }
    must(cellar_check(b->memory, &error), "check", &error);
}

/* The first token of a prefill and the same token alone must get the same bits. */
static void prove_layer(layer_bench *b)
{
    float alone[HEADS * SIZE];
    cellar_error error = {0};
    begin_step(b, 1);
    must(cellar_attend(b->memory, 0, 0, b->q, alone, &error), "attend", &error);
    cellar_abort(b->memory);
    begin_step(b, PREFILL);
    must(cellar_attend(b->memory, 0, 0, b->q, b->out, &error), "attend", &error);
    cellar_abort(b->memory);
    if (memcmp(alone, b->out, sizeof alone) != 0) {
        fprintf(stderr, "bench_memory: decoding and prefilling differ\n");
        exit(1);
    }
}

static speed measure_attention(layer_bench *b, uint32_t depth, uint32_t n_tokens)
{
    double samples[MOST_SAMPLES];
    uint32_t n_calls = 1 + 200000 / (depth * n_tokens);
    cellar_error error = {0};
    begin_step(b, n_tokens);
    for (uint32_t s = 0; s < n_samples; s++) {
        double start = now_ns();
        for (uint32_t i = 0; i < n_calls; i++)
            must(cellar_attend(b->memory, 0, 0, b->q, b->out, &error), "attend", &error);
        samples[s] = (now_ns() - start) / n_calls;
    }
    cellar_abort(b->memory);
    result r = summarise("", 0, samples, n_samples);
    double pairs = (double)n_tokens * depth + n_tokens * (n_tokens + 1.0) / 2; /* (query, key) */
    double keys = depth + n_tokens;
    return (speed){depth,
                   n_tokens,
                   r.median,
                   r.low,
                   r.high,
                   pairs * HEADS * SIZE * 4 / r.median,
                   keys * KV_HEADS * SIZE * 2 * 2 / r.median};
}

/* ---- printing -------------------------------------------------------------------------------- */

static const result *find_result(const char *name, uint32_t cells)
{
    for (uint32_t i = 0; i < n_results; i++)
        if (results[i].cells == cells && !strcmp(results[i].name, name)) return &results[i];
    return NULL;
}

static void print_tables(const speed *speeds, uint32_t n, const char *cpu)
{
    printf("ns per call, %d sequences     %12u cells %12u cells %12u cells\n", N_SEQUENCES,
           pools[0], pools[1], pools[2]);
    for (uint32_t i = 0; i < n_results; i++) { /* every name once: at its largest pool */
        if (results[i].cells != pools[N_POOLS - 1]) continue;
        printf("  %-26s", results[i].name);
        for (uint32_t p = 0; p < N_POOLS; p++) {
            const result *r = find_result(results[i].name, pools[p]);
            if (r)
                printf(" %9.0f +-%4.0f%%", r->median, 50 * (r->high - r->low) / r->median);
            else
                printf(" %16s", "does not fit");
        }
        printf("\n");
    }
    printf("\nattention of one layer, 9 heads on 3 of 64, f16 rows, one thread, %s\n", cpu);
    printf("  depth  tokens     us per call           GFLOP/s     GB/s of rows\n");
    for (uint32_t i = 0; i < n; i++)
        printf("  %5u  %6u  %12.1f +-%3.0f%%  %10.2f  %10.2f\n", speeds[i].depth,
               speeds[i].n_tokens, speeds[i].median / 1000,
               50 * (speeds[i].high - speeds[i].low) / speeds[i].median, speeds[i].gflops,
               speeds[i].gbytes);
}

static void print_json(const speed *speeds, uint32_t n, const char *cpu)
{
    printf("{\"operations\": [");
    for (uint32_t i = 0; i < n_results; i++)
        printf("%s\n  {\"name\": \"%s\", \"cells\": %u, \"ns\": %.1f, \"ns_low\": %.1f, "
               "\"ns_high\": %.1f}",
               i ? "," : "", results[i].name, results[i].cells, results[i].median, results[i].low,
               results[i].high);
    printf("\n], \"cpu\": \"%s\", \"attention\": [", cpu);
    for (uint32_t i = 0; i < n; i++)
        printf("%s\n  {\"depth\": %u, \"tokens\": %u, \"ns\": %.1f, \"gflops\": %.3f, \"gbytes\": "
               "%.3f}",
               i ? "," : "", speeds[i].depth, speeds[i].n_tokens, speeds[i].median,
               speeds[i].gflops, speeds[i].gbytes);
    printf("\n]}\n");
}

int main(int argc, char **argv)
{
    static const uint32_t depths[] = {512, 4096};
    speed speeds[4];
    bool is_json = false;
    const char *cpu = "";
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            is_json = true;
        else if (!strcmp(argv[i], "--quick"))
            n_samples = 5;
        else
            return fprintf(stderr, "usage: bench_memory [--json] [--quick]\n"), 2;
    }
    for (uint32_t p = 0; p < N_POOLS; p++)
        measure_pool(pools[p]);
    for (uint32_t i = 0; i < 2; i++) {
        layer_bench b;
        open_layer(&b, depths[i]);
        fill_layer(&b, depths[i]);
        prove_layer(&b);
        speeds[2 * i] = measure_attention(&b, depths[i], 1);
        speeds[2 * i + 1] = measure_attention(&b, depths[i], PREFILL);
        cpu = cellar_cpu(b.memory);
        close_layer(&b);
    }
    (is_json ? print_json : print_tables)(speeds, 4, cpu);
    return 0;
}
