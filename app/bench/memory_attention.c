/*
 * memory_attention.c: how fast attention reads rows of each type, in one stretch and in pieces.
 *
 * One layer of a small model, 9 query heads on 3 K/V heads of 64 elements, on one thread: decoding one
 * token and reading 128 behind a sequence of 4,096. The sequence is built twice: its cells in one stretch,
 * and in pieces of 32 in random order. Keys are visited in order of position either way (that is why results
 * repeat), so the difference is what this order costs when memory is scattered. Before anything is timed,
 * both must give the same bits, and a token alone the same as among others.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/memory_bench.h"
#include "report.h"

enum { HEADS = 9, KV_HEADS = 3, SIZE = 64, READ = 128, DEPTH = 4096, PIECE = 32, FILLER = 1 };

typedef struct layer_bench {
    cellar_memory *memory;
    float *q, *k, *v, *out;
    cellar_error *error;
} layer_bench;

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u; /* Knuth's constants for 2^32 */
    return *seed >> 8;
}

static float *random_rows(uint32_t heads, uint32_t seed)
{
    const size_t n = (size_t)READ * heads * SIZE;
    float *rows = malloc(n * sizeof *rows);
    for (size_t i = 0; rows != NULL && i < n; i++) {
        rows[i] = (float)next_random(&seed) / (float)(1 << 23) - 1;
    }
    return rows;
}

static cellar_status open_layer(layer_bench *b, const memory_bench *bench, cellar_type type,
                                cellar_error *error)
{
    cellar_layer layer = cellar_layer_init();
    cellar_config config = cellar_config_init();
    layer.n_heads = HEADS;
    layer.n_kv_heads = KV_HEADS;
    layer.k_size = layer.v_size = SIZE;
    layer.k_type = layer.v_type = type;
    layer.rope.kind = CELLAR_ROPE_NORMAL;
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = DEPTH + READ;
    config.n_ubatch = READ;
    config.cpu_mask = bench->cpu_mask;
    *b = (layer_bench){.q = random_rows(HEADS, 1),
                       .k = random_rows(KV_HEADS, 2),
                       .v = random_rows(KV_HEADS, 3),
                       .out = random_rows(HEADS, 4),
                       .error = error};
    if (b->q == NULL || b->k == NULL || b->v == NULL || b->out == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for rows");
    }
    return cellar_create(&config, &b->memory, error);
}

static void close_layer(layer_bench *b)
{
    cellar_destroy(b->memory);
    free(b->q);
    free(b->k);
    free(b->v);
    free(b->out);
}

/* Open a step of n tokens; their rows are those of n tokens from `first` on. */
static cellar_status begin_step(layer_bench *b, cellar_seq seq, uint32_t first, uint32_t n)
{
    cellar_seq seqs[READ];
    const size_t at = (size_t)first * KV_HEADS * SIZE;
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = seq;
    }
    const cellar_status status = memory_bench_begin(b->memory, seqs, n, b->error);
    return status == CELLAR_OK ? cellar_store(b->memory, 0, 0, b->k + at, b->v + at, b->error)
                               : status;
}

static cellar_status read_step(layer_bench *b, cellar_seq seq, uint32_t first, uint32_t n)
{
    const cellar_status status = begin_step(b, seq, first, n);
    return status == CELLAR_OK ? cellar_commit(b->memory, b->error) : status;
}

static cellar_status fill_in_one_stretch(layer_bench *b)
{
    cellar_status status = CELLAR_OK;
    for (uint32_t done = 0; done < DEPTH && status == CELLAR_OK; done += READ) {
        status = read_step(b, 0, 0, READ);
    }
    return status;
}

/* A filler holds everything; it lets go of one piece after the other, and each is filled at once. */
static cellar_status fill_in_pieces(layer_bench *b)
{
    uint32_t order[DEPTH / PIECE], seed = 5;
    cellar_status status = CELLAR_OK;
    for (uint32_t done = 0; done < DEPTH + READ && status == CELLAR_OK; done += READ) {
        status = read_step(b, FILLER, 0, READ);
    }
    for (uint32_t i = 0; i < DEPTH / PIECE; i++) {
        const uint32_t at = next_random(&seed) % (i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (uint32_t i = 0; i < DEPTH / PIECE && status == CELLAR_OK; i++) {
        const cellar_pos p = (cellar_pos)(order[i] * PIECE);
        status = cellar_remove(b->memory, FILLER, p, p + PIECE, b->error);
        if (status == CELLAR_OK) {
            status = read_step(b, 0, i * PIECE % READ, PIECE);
        }
    }
    return status == CELLAR_OK ? cellar_remove(b->memory, FILLER, 0, -1, b->error) : status;
}

/* What n tokens see, into b->out. */
static cellar_status attend(layer_bench *b, uint32_t n)
{
    cellar_status status = begin_step(b, 0, 0, n);
    if (status == CELLAR_OK) {
        status = cellar_attend(b->memory, 0, 0, b->q, b->out, b->error);
    }
    cellar_abort(b->memory);
    return status;
}

static cellar_status prove(layer_bench *stretch, layer_bench *pieces)
{
    float alone[HEADS * SIZE];
    cellar_status status = attend(stretch, 1);
    memcpy(alone, stretch->out, sizeof alone);
    if (status == CELLAR_OK) {
        status = attend(stretch, READ);
    }
    if (status == CELLAR_OK) {
        status = attend(pieces, READ);
    }
    if (status == CELLAR_OK && (memcmp(alone, stretch->out, sizeof alone) != 0 ||
                                memcmp(stretch->out, pieces->out, READ * sizeof alone) != 0)) {
        return report(stretch->error, CELLAR_CORRUPT, -1,
                      "attention depends on where cells lie or on how many tokens are read");
    }
    return status;
}

static cellar_status time_attend(layer_bench *b, uint32_t n_calls, double *seconds)
{
    cellar_status status = CELLAR_OK;
    const double began = bench_now();
    for (uint32_t i = 0; i < n_calls && status == CELLAR_OK; i++) {
        status = cellar_attend(b->memory, 0, 0, b->q, b->out, b->error);
    }
    *seconds = (bench_now() - began) / n_calls;
    return status;
}

static cellar_status add_speed(memory_bench *b, const char *name, cellar_type type,
                               uint32_t n_tokens, double *seconds, cellar_error *error)
{
    const double pairs = (double)n_tokens * DEPTH + n_tokens * (n_tokens + 1.0) / 2;
    const double row = 2.0 * KV_HEADS * (double)cellar_type_bytes(type, SIZE);
    return memory_bench_add(b,
                            (memory_figure){.section = "attention",
                                            .name = name,
                                            .call = "cellar_attend",
                                            .seconds = bench_spread_of(seconds, b->n_runs),
                                            .bytes = (DEPTH + n_tokens) * row,
                                            .operations = pairs * HEADS * SIZE * 4},
                            error);
}

/* The two in turns, so that whatever else the machine does meets both. */
static cellar_status measure(memory_bench *bench, layer_bench *stretch, layer_bench *pieces,
                             cellar_type type, uint32_t n_tokens, const char *const *names)
{
    double a[BENCH_MOST_RUNS], b[BENCH_MOST_RUNS];
    const uint32_t n_calls = n_tokens == 1 ? 16 : 1;
    cellar_status status = begin_step(stretch, 0, 0, n_tokens);
    if (status == CELLAR_OK) {
        status = begin_step(pieces, 0, 0, n_tokens);
    }
    for (uint32_t i = 0; i < bench->n_runs && status == CELLAR_OK; i++) {
        status = time_attend(stretch, n_calls, &a[i]);
        if (status == CELLAR_OK) {
            status = time_attend(pieces, n_calls, &b[i]);
        }
    }
    cellar_abort(stretch->memory);
    cellar_abort(pieces->memory);
    if (status == CELLAR_OK) {
        status = add_speed(bench, names[0], type, n_tokens, a, stretch->error);
    }
    return status == CELLAR_OK ? add_speed(bench, names[1], type, n_tokens, b, stretch->error)
                               : status;
}

static cellar_status measure_type(memory_bench *bench, cellar_type type, const char *const *names,
                                  cellar_error *error)
{
    layer_bench stretch = {.memory = NULL}, pieces = {.memory = NULL};
    cellar_status status = memory_bench_next(bench, "attention", names[0], error);
    if (status == CELLAR_OK) {
        status = open_layer(&stretch, bench, type, error);
    }
    if (status == CELLAR_OK) {
        status = open_layer(&pieces, bench, type, error);
    }
    if (status == CELLAR_OK) {
        status = fill_in_one_stretch(&stretch);
    }
    if (status == CELLAR_OK) {
        status = fill_in_pieces(&pieces);
    }
    if (status == CELLAR_OK) {
        status = prove(&stretch, &pieces);
    }
    if (status == CELLAR_OK) {
        status = measure(bench, &stretch, &pieces, type, 1, names);
    }
    if (status == CELLAR_OK) {
        status = measure(bench, &stretch, &pieces, type, READ, names + 2);
    }
    close_layer(&stretch);
    close_layer(&pieces);
    return status;
}

cellar_status memory_bench_attention(memory_bench *b, cellar_error *error)
{
    static const struct {
        cellar_type type;
        const char *names[4];
    } types[] = {
        {CELLAR_F16,
         {"1 token, f16, one stretch", "1 token, f16, pieces of 32", "128 tokens, f16, one stretch",
          "128 tokens, f16, pieces of 32"}},
        {CELLAR_Q8_0,
         {"1 token, q8_0, one stretch", "1 token, q8_0, pieces of 32",
          "128 tokens, q8_0, one stretch", "128 tokens, q8_0, pieces of 32"}},
        {CELLAR_Q4_0,
         {"1 token, q4_0, one stretch", "1 token, q4_0, pieces of 32",
          "128 tokens, q4_0, one stretch", "128 tokens, q4_0, pieces of 32"}},
    };
    cellar_status status = CELLAR_OK;
    for (size_t i = 0; i < sizeof types / sizeof *types && status == CELLAR_OK; i++) {
        status = measure_type(b, types[i].type, types[i].names, error);
    }
    return status;
}
