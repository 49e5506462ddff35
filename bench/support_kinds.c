/*
 * support_kinds.c: memories that are not plain: windows, states, checkpoints, engines' own tensors.
 *
 * Bookkeeping again, with rows of next to nothing. What a memory takes for a cell and for a sequence is
 * counted exactly, by cellar_measure and cellar_stats.
 */
#include <stdlib.h>

#include "support_bench.h"

enum { WINDOW = 256, WARM = 512, STATE_FLOATS = 1024 };

static const uint32_t state_sizes[1] = {STATE_FLOATS};

static cellar_layer tiny_layer(void)
{
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = layer.n_kv_heads = layer.k_size = layer.v_size = 1;
    return layer;
}

static cellar_layer state_layer(void)
{
    cellar_layer layer = cellar_layer_init();
    layer.kind = CELLAR_LAYER_RECURRENT;
    layer.n_states = 1;
    layer.state_sizes = state_sizes;
    return layer;
}

static cellar_memory *create(const cellar_config *config)
{
    cellar_memory *memory;
    cellar_error error = {0};
    bench_must(cellar_create(config, &memory, &error), "create", &error);
    return memory;
}

static void destroy(cellar_memory *memory)
{
    cellar_error error = {0};
    bench_must(cellar_check(memory, &error), "check", &error);
    cellar_destroy(memory);
}

static cellar_seq *all_sequences(uint32_t n)
{
    cellar_seq *each = bench_allocate(n, sizeof *each);
    for (uint32_t s = 0; s < n; s++)
        each[s] = (cellar_seq)s;
    return each;
}

static cellar_statistics stats_of(const cellar_memory *memory)
{
    cellar_statistics statistics;
    cellar_error error = {0};
    bench_must(cellar_stats(memory, &statistics, &error), "stats", &error);
    return statistics;
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Sequences that have filled the group go on token by token: each has to be made room for. */
void bench_window(figures *all, uint32_t n_sequences)
{
    cellar_layer layer = tiny_layer();
    cellar_config config = cellar_config_init();
    layer.window.kind = CELLAR_WINDOW_STANDARD;
    layer.window.size = WINDOW;
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = 1 << 20;
    config.n_sequences = n_sequences;
    cellar_memory *memory = create(&config);
    cellar_seq *each = all_sequences(n_sequences);
    float *zeros = bench_allocate(512, sizeof *zeros);
    for (uint32_t s = 0; s < n_sequences; s++)
        bench_fill(memory, each[s], WINDOW, zeros);
    while (stats_of(memory).cells_reclaimed == 0)
        bench_read(memory, each, n_sequences, zeros);

    double samples[BENCH_MOST_SAMPLES];
    uint32_t n_calls = n_sequences > 100 ? 2 : 20;
    uint64_t before = stats_of(memory).cells_reclaimed;
    for (uint32_t s = 0; s < all->n_samples; s++) {
        double start = bench_now();
        for (uint32_t i = 0; i < n_calls; i++)
            bench_read(memory, each, n_sequences, zeros);
        samples[s] = (bench_now() - start) / n_calls / n_sequences;
    }
    bench_claim(stats_of(memory).cells_reclaimed > before, "the window gives up cells");
    figure what = {.section = "kinds",
                   .name = "window of 256: append, a token",
                   .unit = "ns",
                   .cells = stats_of(memory).n_cells,
                   .sequences = n_sequences};
    bench_add(all, what, samples);
    free(each);
    free(zeros);
    destroy(memory);
}

/* ---- states ---------------------------------------------------------------------------------- */

typedef struct state_samples {
    double append[BENCH_MOST_SAMPLES], rollback[BENCH_MOST_SAMPLES], fork[BENCH_MOST_SAMPLES],
        forget[BENCH_MOST_SAMPLES];
} state_samples;

/* One token for each sequence; sequence 0 is forked and forgotten; four tokens more, two back. */
static void sample_states(cellar_memory *memory, const cellar_seq *each, uint32_t n_sequences,
                          state_samples *samples, uint32_t s)
{
    static const cellar_seq zero[4] = {0};
    const cellar_seq fork = (cellar_seq)n_sequences;
    cellar_error error = {0};
    double start = bench_now();
    bench_read(memory, each, n_sequences, NULL);
    double appended = bench_now();
    bench_must(cellar_copy(memory, 0, fork, 0, -1, &error), "copy", &error);
    double forked = bench_now();
    bench_must(cellar_remove(memory, fork, 0, -1, &error), "remove", &error);
    double forgotten = bench_now();
    bench_read(memory, zero, 4, NULL);
    cellar_pos end = cellar_position_max(memory, 0) + 1;
    double before = bench_now();
    bench_must(cellar_remove(memory, 0, end - 2, -1, &error), "rollback", &error);
    samples->rollback[s] = bench_now() - before;
    samples->append[s] = (appended - start) / n_sequences;
    samples->fork[s] = forked - appended;
    samples->forget[s] = forgotten - forked;
    bench_claim(cellar_position_max(memory, 0) == end - 3, "a rollback of two takes two");
}

void bench_recurrent(figures *all, uint32_t n_sequences)
{
    cellar_layer layer = state_layer();
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = 1 << 20;
    config.n_sequences = n_sequences + 1;
    config.rollback_bytes = 4 * STATE_FLOATS * sizeof(float);
    cellar_memory *memory = create(&config);
    cellar_seq *each = all_sequences(n_sequences);
    state_samples *samples = bench_allocate(1, sizeof *samples);
    bench_read(memory, each, n_sequences, NULL);
    for (uint32_t s = 0; s < all->n_samples; s++)
        sample_states(memory, each, n_sequences, samples, s);
    figure what = {.section = "kinds",
                   .name = "states: append, a token",
                   .unit = "ns",
                   .cells = stats_of(memory).n_cells,
                   .sequences = n_sequences};
    bench_add(all, what, samples->append);
    what.name = "states: fork";
    bench_add(all, what, samples->fork);
    what.name = "states: forget the fork";
    bench_add(all, what, samples->forget);
    what.name = "states: roll back 2 of 4 tokens";
    bench_add(all, what, samples->rollback);
    free(samples);
    free(each);
    destroy(memory);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* A window and a state: make a checkpoint, go on beyond it, and return. */
void bench_checkpoints(figures *all)
{
    cellar_layer layers[2] = {tiny_layer(), state_layer()};
    cellar_config config = cellar_config_init();
    cellar_error error = {0};
    double make[BENCH_MOST_SAMPLES], rewind[BENCH_MOST_SAMPLES];
    layers[0].window.kind = CELLAR_WINDOW_STANDARD;
    layers[0].window.size = WINDOW;
    config.n_layers = 2;
    config.layers = layers;
    config.n_cells = 1 << 20;
    config.is_window_full = true;
    config.checkpoint_bytes = 8 * STATE_FLOATS * sizeof(float);
    cellar_memory *memory = create(&config);
    static const float zero[512];
    for (uint32_t s = 0; s < all->n_samples; s++) {
        for (uint32_t i = 0; i < 8; i++) {
            static const cellar_seq seqs[64];
            bench_begin(memory, seqs, 64);
            bench_must(cellar_store(memory, 0, 0, zero, zero, &error), "store", &error);
            bench_must(cellar_confirm(memory, 0, 1, &error), "confirm", &error);
            bench_must(cellar_commit(memory, &error), "commit", &error);
            if (i != 3) continue;
            double start = bench_now();
            bench_must(cellar_checkpoint(memory, 0, &error), "checkpoint", &error);
            make[s] = bench_now() - start;
        }
        cellar_pos n = cellar_position_max(memory, 0) + 1 - 4 * 64, from = -1;
        double start = bench_now();
        bench_must(cellar_rewind(memory, 0, n, &from, &error), "rewind", &error);
        rewind[s] = bench_now() - start;
        bench_claim(from == n, "a checkpoint is returned to");
    }
    figure what = {.section = "kinds",
                   .name = "checkpoint of window and state",
                   .unit = "ns",
                   .cells = stats_of(memory).n_cells,
                   .sequences = 1};
    bench_add(all, what, make);
    what.name = "rewind to it";
    bench_add(all, what, rewind);
    destroy(memory);
}

/* ---- exports --------------------------------------------------------------------------------- */

static double time_mask(const cellar_memory *memory, uint32_t n_kv, cellar_type type, void *mask)
{
    cellar_error error = {0};
    double start = bench_now();
    bench_must(cellar_export_mask(memory, 0, 0, n_kv, type, mask, &error), "mask", &error);
    return bench_now() - start;
}

/* The mask of 512 tokens behind a memory that is full but for them. */
void bench_masks(figures *all, uint32_t n_cells)
{
    static const cellar_seq seqs[512];
    cellar_layer layer = tiny_layer();
    cellar_config config = cellar_config_init();
    cellar_error error = {0};
    cellar_extent extent;
    double f32[BENCH_MOST_SAMPLES], f16[BENCH_MOST_SAMPLES];
    layer.is_external = true;
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = n_cells;
    cellar_memory *memory = create(&config);
    bench_fill(memory, 0, n_cells - 512, NULL);
    bench_begin(memory, seqs, 512);
    bench_must(cellar_export_extent(memory, 0, 0, 32, &extent, NULL, 0, &error), "extent", &error);
    float *mask = bench_allocate((size_t)512 * extent.n_kv, sizeof *mask);
    for (uint32_t s = 0; s < all->n_samples; s++) {
        f16[s] = time_mask(memory, extent.n_kv, CELLAR_F16, mask);
        f32[s] = time_mask(memory, extent.n_kv, CELLAR_F32, mask);
    }
    bench_claim(mask[0] == 0 && mask[extent.n_kv - 1] < 0,
                "the first token sees the first cell only");
    cellar_abort(memory);
    figure what = {.section = "kinds",
                   .name = "mask of 512 tokens, f32",
                   .unit = "ns",
                   .cells = n_cells,
                   .sequences = 1};
    bench_add(all, what, f32);
    what.name = "mask of 512 tokens, f16";
    bench_add(all, what, f16);
    free(mask);
    destroy(memory);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Bytes of bookkeeping for each cell; the limit is a promise. */
static void add_cell_bytes(figures *all, const char *name, const cellar_layer *layer, double limit)
{
    cellar_config config = cellar_config_init();
    cellar_sizes sizes;
    cellar_error error = {0};
    config.n_layers = 1;
    config.layers = layer;
    config.n_cells = 131072;
    bench_must(cellar_measure(&config, &sizes, &error), "measure", &error);
    double bytes = (double)sizes.bytes[CELLAR_BYTES_CELLS] / config.n_cells;
    bench_claim(bytes <= limit, "a cell takes no more bytes than was promised");
    bench_add_exact(all, (figure){.section = "bytes", .name = name, .unit = "bytes"}, bytes);
}

/* Bytes of runs for each of 1000 forks, once the tables are there; in n_runs runs each. */
static void add_sequence_bytes(figures *all, const char *name, uint32_t n_runs)
{
    cellar_layer layer = tiny_layer();
    cellar_config config = cellar_config_init();
    cellar_error error = {0};
    static const float zeros[512];
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = 4096;
    cellar_memory *memory = create(&config);
    bench_fill(memory, 0, 2 * n_runs, zeros);
    for (uint32_t i = 1; i < n_runs; i++)
        bench_must(cellar_remove(memory, 0, (cellar_pos)(2 * i - 1), (cellar_pos)(2 * i), &error),
                   "remove", &error);
    uint64_t before = stats_of(memory).sizes.bytes[CELLAR_BYTES_RUNS];
    for (cellar_seq s = 1; s <= 1000; s++)
        bench_must(cellar_copy(memory, 0, s, 0, -1, &error), "copy", &error);
    uint64_t after = stats_of(memory).sizes.bytes[CELLAR_BYTES_RUNS];
    bench_add_exact(all, (figure){.section = "bytes", .name = name, .unit = "bytes"},
                    (double)(after - before) / 1000);
    destroy(memory);
}

void bench_bytes(figures *all)
{
    cellar_layer plain = tiny_layer(), image = cellar_layer_init();
    image.n_heads = image.n_kv_heads = 1;
    image.k_size = image.v_size = 8;
    image.rope.kind = CELLAR_ROPE_MROPE;
    image.rope.sections[0] = image.rope.sections[1] = 2;
    add_cell_bytes(all, "a cell", &plain, 16);
    add_cell_bytes(all, "a cell with 2-D positions", &image, 20);
    add_sequence_bytes(all, "a sequence of one run", 1);
    add_sequence_bytes(all, "a sequence of 100 runs", 100);
}
