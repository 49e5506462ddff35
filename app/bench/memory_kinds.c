/*
 * memory_kinds.c: memories that are not plain: windows, states, checkpoints, pools, tensors of the engine.
 *
 * Bookkeeping again, with rows of next to nothing. Window and states hold as many sequences as the worlds do;
 * checkpoints are timed in one sequence. What is timed undoes itself, or goes on: a window moves, states are
 * replaced. Each memory is checked before the first sample and after the last.
 */
#include <stdlib.h>

#include "bench/memory_bench.h"
#include "report.h"

enum { WINDOW = 256, STATE_FLOATS = 1024, STEP = 64, FORK = 1 << 20 };

static const uint32_t state_sizes[1] = {STATE_FLOATS};
static const float zeros[2 * MEMORY_BENCH_BATCH];

/* A memory of one of these kinds, and the samples taken in it. */
typedef struct kind {
    memory_bench *bench;
    cellar_memory *memory;
    uint32_t n_sequences, column;
    cellar_seq *each; /* [n_sequences] */
    double began;
    double seconds[5][BENCH_MOST_RUNS]; /* of up to five operations */
    cellar_error *error;
} kind;

static cellar_layer tiny_layer(void)
{
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = layer.n_kv_heads = 1;
    layer.k_size = layer.v_size = 2;
    return layer;
}

static cellar_layer window_layer(void)
{
    cellar_layer layer = tiny_layer();
    layer.window.kind = CELLAR_WINDOW_STANDARD;
    layer.window.size = WINDOW;
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

static cellar_config config_of(const kind *k, const cellar_layer *layers, uint32_t n_layers)
{
    cellar_config config = cellar_config_init();
    config.n_layers = n_layers;
    config.layers = layers;
    config.n_cells = k->bench->n_cells;
    config.n_sequences = k->n_sequences + 1;
    config.cpu_mask = k->bench->cpu_mask;
    return config;
}

static cellar_status open_kind(kind *k, const cellar_config *config)
{
    k->each = calloc(k->n_sequences, sizeof *k->each);
    if (k->each == NULL) {
        return report(k->error, CELLAR_NO_MEMORY, -1, "no memory for a list of sequences");
    }
    for (uint32_t s = 0; s < k->n_sequences; s++) {
        k->each[s] = (cellar_seq)s;
    }
    return cellar_create(config, &k->memory, k->error);
}

static void close_kind(kind *k)
{
    cellar_destroy(k->memory);
    free(k->each);
    k->memory = NULL;
    k->each = NULL;
}

static void take(kind *k, uint32_t operation, uint32_t run, uint32_t n_calls)
{
    k->seconds[operation][run] = (bench_now() - k->began) / n_calls;
}

static cellar_status add(kind *k, uint32_t operation, const char *name, const char *call)
{
    const memory_figure figure = {
        .section = "other memories",
        .name = name,
        .call = call,
        .column = k->column,
        .seconds = bench_spread_of(k->seconds[operation], k->bench->n_runs)};
    return memory_bench_add(k->bench, figure, k->error);
}

/* n_runs samples, after one that does not count. */
static cellar_status run_samples(kind *k, const char *name,
                                 cellar_status (*sample)(kind *k, uint32_t run))
{
    cellar_status status = memory_bench_next(k->bench, "other memories", name, k->error);
    if (status == CELLAR_OK) {
        status = sample(k, 0);
    }
    if (status == CELLAR_OK) {
        status = cellar_check(k->memory, k->error);
    }
    for (uint32_t i = 0; i < k->bench->n_runs && status == CELLAR_OK; i++) {
        status = sample(k, i);
    }
    return status == CELLAR_OK ? cellar_check(k->memory, k->error) : status;
}

/* ---- windows -------------------------------------------------------------------------------- */

/* The window group is full and stays so: each token has to be made room for. */
static cellar_status append_to_windows(kind *k, uint32_t run)
{
    cellar_status status = CELLAR_OK;
    k->began = bench_now();
    for (uint32_t i = 0; i < 8 && status == CELLAR_OK; i++) {
        status = memory_bench_read(k->memory, k->each, k->n_sequences, zeros, k->error);
    }
    take(k, 0, run, 8);
    return status;
}

static cellar_status fill_windows(kind *k)
{
    cellar_statistics statistics = {.cells_reclaimed = 0};
    cellar_status status = CELLAR_OK;
    for (uint32_t s = 0; s < k->n_sequences && status == CELLAR_OK; s++) {
        status = memory_bench_fill(k->memory, k->each[s], WINDOW, zeros, k->error);
    }
    while (statistics.cells_reclaimed == 0 && status == CELLAR_OK) {
        status = memory_bench_read(k->memory, k->each, k->n_sequences, zeros, k->error);
        if (status == CELLAR_OK) {
            status = cellar_stats(k->memory, &statistics, k->error);
        }
    }
    return status;
}

static cellar_status measure_windows(kind *k)
{
    const cellar_layer layer = window_layer();
    const cellar_config config = config_of(k, &layer, 1);
    cellar_status status = open_kind(k, &config);
    if (status == CELLAR_OK) {
        status = fill_windows(k);
    }
    if (status == CELLAR_OK) {
        status = run_samples(k, "windows", append_to_windows);
    }
    if (status == CELLAR_OK) {
        status = add(k, 0, "windows: a step, 1 token each", "cellar_begin .. commit");
    }
    close_kind(k);
    return status;
}

/* ---- states --------------------------------------------------------------------------------- */

/* Where the engine finds the states of a segment, and one of them. */
static cellar_status find_states(kind *k, uint32_t run)
{
    static const cellar_seq first[1] = {0};
    cellar_states states;
    cellar_status status = memory_bench_begin(k->memory, first, 1, k->error);
    k->began = bench_now();
    for (uint32_t i = 0; i < 64 && status == CELLAR_OK; i++) {
        status = cellar_get_states(k->memory, 0, 0, &states, k->error);
        if (status == CELLAR_OK && cellar_state_data(k->memory, states.targets[0], 0, 0) == NULL) {
            status = report(k->error, CELLAR_CORRUPT, 0, "a state has no place");
        }
    }
    take(k, 4, run, 64);
    cellar_abort(k->memory);
    return status;
}

/* One token for each sequence; sequence 0 is forked and forgotten; four tokens more, two back. */
static cellar_status use_states(kind *k, uint32_t run)
{
    static const cellar_seq first[4] = {0};
    k->began = bench_now();
    cellar_status status = memory_bench_read(k->memory, k->each, k->n_sequences, NULL, k->error);
    take(k, 0, run, 1);
    k->began = bench_now();
    if (status == CELLAR_OK) {
        status = cellar_copy(k->memory, 0, FORK, 0, -1, k->error);
    }
    take(k, 1, run, 1);
    k->began = bench_now();
    if (status == CELLAR_OK) {
        status = cellar_remove(k->memory, FORK, 0, -1, k->error);
    }
    take(k, 2, run, 1);
    if (status == CELLAR_OK) {
        status = memory_bench_read(k->memory, first, 4, NULL, k->error);
    }
    const cellar_pos end = cellar_position_max(k->memory, 0) + 1;
    k->began = bench_now();
    if (status == CELLAR_OK) {
        status = cellar_remove(k->memory, 0, end - 2, -1, k->error);
    }
    take(k, 3, run, 1);
    return status == CELLAR_OK ? find_states(k, run) : status;
}

static cellar_status measure_states(kind *k)
{
    static const char *const names[5][2] = {
        {"states: a step, 1 token each", "cellar_begin .. commit"},
        {"states: fork", "cellar_copy"},
        {"states: forget the fork", "cellar_remove"},
        {"states: 2 of 4 tokens back", "cellar_remove"},
        {"states: where one lies", "cellar_get_states, state_data"},
    };
    const cellar_layer layer = state_layer();
    cellar_config config = config_of(k, &layer, 1);
    config.rollback_bytes = 4 * STATE_FLOATS * sizeof(float);
    cellar_status status = open_kind(k, &config);
    if (status == CELLAR_OK) {
        status = memory_bench_read(k->memory, k->each, k->n_sequences, NULL, k->error);
    }
    if (status == CELLAR_OK) {
        status = run_samples(k, "states", use_states);
    }
    for (uint32_t i = 0; i < 5 && status == CELLAR_OK; i++) {
        status = add(k, i, names[i][0], names[i][1]);
    }
    close_kind(k);
    return status;
}

/* ---- checkpoints ---------------------------------------------------------------------------- */

/* A window and a state: STEP tokens. */
static cellar_status read_step(kind *k)
{
    cellar_status status = memory_bench_begin(k->memory, NULL, STEP, k->error);
    if (status == CELLAR_OK) {
        status = cellar_store(k->memory, 0, 0, zeros, zeros, k->error);
    }
    if (status == CELLAR_OK) {
        status = cellar_confirm(k->memory, 0, 1, k->error);
    }
    return status == CELLAR_OK ? cellar_commit(k->memory, k->error) : status;
}

static bool take_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    *(uint64_t *)context += info->n_cells;
    return true;
}

/* Make a checkpoint, go on beyond it, return, look at it, and drop it. */
static cellar_status use_checkpoints(kind *k, uint32_t run)
{
    cellar_status status = CELLAR_OK;
    cellar_pos at = 0, from = -1;
    for (uint32_t i = 0; i < 8 && status == CELLAR_OK; i++) {
        status = read_step(k);
        if (i == 3 && status == CELLAR_OK) {
            at = cellar_position_max(k->memory, 0) + 1;
            k->began = bench_now();
            status = cellar_checkpoint(k->memory, 0, k->error);
            take(k, 0, run, 1);
        }
    }
    k->began = bench_now();
    if (status == CELLAR_OK) {
        status = cellar_rewind(k->memory, 0, at, &from, k->error);
    }
    take(k, 1, run, 1);
    if (status == CELLAR_OK && from != at) {
        return report(k->error, CELLAR_CORRUPT, at, "a checkpoint is not returned to");
    }
    uint64_t n_cells = 0;
    k->began = bench_now();
    if (status == CELLAR_OK) {
        status = cellar_visit_checkpoints(k->memory, 0, take_checkpoint, &n_cells, k->error);
    }
    take(k, 2, run, 1);
    k->began = bench_now();
    if (status == CELLAR_OK) {
        status = cellar_drop_checkpoints(k->memory, 0, 0, -1, k->error);
    }
    take(k, 3, run, 1);
    return status;
}

static cellar_status measure_checkpoints(kind *k)
{
    static const char *const names[4][2] = {{"make a checkpoint", "cellar_checkpoint"},
                                            {"rewind to it", "cellar_rewind"},
                                            {"visit checkpoints", "cellar_visit_checkpoints"},
                                            {"drop checkpoints", "cellar_drop_checkpoints"}};
    const cellar_layer layers[2] = {window_layer(), state_layer()};
    cellar_config config = config_of(k, layers, 2);
    config.is_window_full = true;
    config.checkpoint_bytes = 8 * STATE_FLOATS * sizeof(float);
    cellar_status status = open_kind(k, &config);
    if (status == CELLAR_OK) {
        status = run_samples(k, "checkpoints", use_checkpoints);
    }
    for (uint32_t i = 0; i < 4 && status == CELLAR_OK; i++) {
        status = add(k, i, names[i][0], names[i][1]);
    }
    close_kind(k);
    return status;
}

/* ---- pools and tensors of the engine -------------------------------------------------------- */

static bool take_move(void *context, const cellar_move *move)
{
    *(uint64_t *)context += move->n;
    return true;
}

/* A sequence is copied into the other pool; the engine is told of the rows and says that it is done. */
static cellar_status copy_to_pool(kind *k, uint32_t run)
{
    uint64_t n = 0;
    k->began = bench_now();
    cellar_status status = cellar_copy(k->memory, 0, 1, 0, -1, k->error);
    take(k, 0, run, 1);
    k->began = bench_now();
    if (status == CELLAR_OK) {
        status = cellar_visit_moves(k->memory, take_move, &n, k->error);
    }
    if (status == CELLAR_OK) {
        status = cellar_confirm_moves(k->memory, k->error);
    }
    take(k, 1, run, 1);
    return status == CELLAR_OK ? cellar_remove(k->memory, 1, 0, -1, k->error) : status;
}

static cellar_status measure_pools(kind *k)
{
    cellar_layer layer = tiny_layer();
    layer.is_external = true;
    cellar_config config = config_of(k, &layer, 1);
    config.n_pools = 2;
    cellar_status status = open_kind(k, &config);
    if (status == CELLAR_OK) {
        status = memory_bench_fill(k->memory, 0, 1024, NULL, k->error);
    }
    if (status == CELLAR_OK) {
        status = run_samples(k, "pools", copy_to_pool);
    }
    if (status == CELLAR_OK) {
        status = add(k, 0, "copy 1,024 to another pool", "cellar_copy");
    }
    if (status == CELLAR_OK) {
        status = add(k, 1, "apply the engine's moves", "cellar_visit, confirm_moves");
    }
    close_kind(k);
    return status;
}

/* ---- buckets of distances ------------------------------------------------------------------- */

/* The export of T5's kind of layers: a token behind a few thousand. */
static cellar_status export_buckets(kind *k, uint32_t run)
{
    cellar_extent extent;
    int32_t *buckets = NULL;
    cellar_status status = memory_bench_begin(k->memory, NULL, 1, k->error);
    if (status == CELLAR_OK) {
        status = cellar_export_extent(k->memory, 0, 0, 32, &extent, NULL, 0, k->error);
    }
    if (status == CELLAR_OK) {
        buckets = calloc(extent.n_kv, sizeof *buckets);
        if (buckets == NULL) {
            status = report(k->error, CELLAR_NO_MEMORY, -1, "no memory for buckets");
        }
    }
    k->began = bench_now();
    if (status == CELLAR_OK) {
        status = cellar_export_buckets(k->memory, 0, 0, extent.n_kv, buckets, k->error);
    }
    take(k, 0, run, 1);
    cellar_abort(k->memory);
    free(buckets);
    return status;
}

static cellar_status measure_buckets(kind *k)
{
    static const float bias[32];
    cellar_layer layer = tiny_layer();
    layer.buckets = (cellar_buckets){.n = 32, .max_distance = 128, .bias = bias};
    const cellar_config config = config_of(k, &layer, 1);
    cellar_status status = open_kind(k, &config);
    if (status == CELLAR_OK) {
        status = memory_bench_fill(k->memory, 0, 2048, zeros, k->error);
    }
    if (status == CELLAR_OK) {
        status = run_samples(k, "buckets", export_buckets);
    }
    if (status == CELLAR_OK) {
        status = add(k, 0, "buckets, 1 token on 2,048", "cellar_export_buckets");
    }
    close_kind(k);
    return status;
}

cellar_status memory_bench_kinds(memory_bench *b, cellar_error *error)
{
    static cellar_status (*const all[])(kind * k) = {
        measure_windows, measure_states, measure_checkpoints, measure_pools, measure_buckets};
    kind *k = calloc(1, sizeof *k);
    if (k == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for samples");
    }
    cellar_status status = CELLAR_OK;
    for (uint32_t column = 0; column < b->n_columns; column++) {
        if (b->columns[column].is_interleaved) {
            continue; /* what is timed here is read in turns anyway */
        }
        k->bench = b;
        k->column = column;
        k->error = error;
        for (size_t i = 0; i < sizeof all / sizeof *all && status == CELLAR_OK; i++) {
            k->n_sequences = i < 2 ? b->columns[column].n_sequences : 1;
            /* The others have one sequence whatever the world: they are timed once. */
            status = i < 2 || column == 0 ? all[i](k) : CELLAR_OK;
        }
    }
    free(k);
    return status;
}
