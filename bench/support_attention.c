/*
 * support_attention.c: how fast attention reads rows of each type, in one stretch and in pieces.
 *
 * One layer of a small model, 9 query heads on 3 K/V heads of 64 elements, on one thread: decoding one
 * token and prefilling 128 behind a sequence of some depth. The sequence is built twice: its cells in
 * one stretch, and in pieces of 32 in random order. Keys are visited in order of position either way
 * (that is why results repeat), so the difference is what this order costs when memory is scattered.
 * Before anything is timed, both must give the same bits, and a decoded token the same as in a prefill.
 */
#include <stdlib.h>
#include <string.h>

#include "model/random.h"
#include "support_bench.h"

enum { HEADS = 9, KV_HEADS = 3, SIZE = 64, PREFILL = 128, PIECE = 32, FILLER = 1 };

typedef struct layer_bench {
    cellar_memory *memory;
    float *q, *k, *v, *out;
} layer_bench;

static float *random_rows(uint32_t n_tokens, uint32_t heads, uint64_t seed)
{
    size_t n = (size_t)n_tokens * heads * SIZE;
    float *rows = bench_allocate(n, sizeof *rows);
    for (size_t i = 0; i < n; i++)
        rows[i] = random_float(&seed);
    return rows;
}

static void open_layer(layer_bench *b, cellar_type type, uint32_t depth)
{
    cellar_layer layer = cellar_layer_init();
    cellar_config config = cellar_config_init();
    cellar_error error = {0};
    layer.n_heads = HEADS;
    layer.n_kv_heads = KV_HEADS;
    layer.k_size = layer.v_size = SIZE;
    layer.k_type = layer.v_type = type;
    layer.rope.kind = CELLAR_ROPE_NORMAL;
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = depth + PREFILL;
    config.n_ubatch = PREFILL;
    bench_must(cellar_create(&config, &b->memory, &error), "create", &error);
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

/* Open a step of n tokens; their rows are those of n tokens from `first` on. */
static void begin_step(layer_bench *b, cellar_seq seq, uint32_t first, uint32_t n)
{
    cellar_seq seqs[PREFILL];
    cellar_error error = {0};
    size_t at = (size_t)first * KV_HEADS * SIZE;
    for (uint32_t i = 0; i < n; i++)
        seqs[i] = seq;
    bench_begin(b->memory, seqs, n);
    bench_must(cellar_store(b->memory, 0, 0, b->k + at, b->v + at, &error), "store", &error);
}

static void read_step(layer_bench *b, cellar_seq seq, uint32_t first, uint32_t n)
{
    cellar_error error = {0};
    begin_step(b, seq, first, n);
    bench_must(cellar_commit(b->memory, &error), "commit", &error);
}

static void fill_in_one_stretch(layer_bench *b, uint32_t depth)
{
    for (uint32_t done = 0; done < depth; done += PREFILL)
        read_step(b, 0, 0, PREFILL);
}

/* A filler holds everything; it lets go of one piece after the other, and each is filled at once. */
static void fill_in_pieces(layer_bench *b, uint32_t depth)
{
    uint32_t n_pieces = depth / PIECE;
    uint64_t seed = 5;
    cellar_error error = {0};
    uint32_t *order = bench_allocate(n_pieces, sizeof *order);
    for (uint32_t done = 0; done < depth + PREFILL; done += PREFILL)
        read_step(b, FILLER, 0, PREFILL);
    for (uint32_t i = 0; i < n_pieces; i++) {
        uint32_t at = random_below(&seed, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (uint32_t i = 0; i < n_pieces; i++) {
        cellar_pos p = (cellar_pos)(order[i] * PIECE);
        bench_must(cellar_remove(b->memory, FILLER, p, p + PIECE, &error), "remove", &error);
        read_step(b, 0, i * PIECE % PREFILL, PIECE);
    }
    bench_must(cellar_remove(b->memory, FILLER, 0, -1, &error), "remove", &error);
    free(order);
}

static uint32_t count_runs(const layer_bench *b)
{
    cellar_sequence_info info;
    cellar_error error = {0};
    bench_must(cellar_check(b->memory, &error), "check", &error);
    bench_must(cellar_get_sequence(b->memory, 0, &info, &error), "get", &error);
    return info.n_runs;
}

/* What n tokens see, into b->out. */
static void attend(layer_bench *b, uint32_t n)
{
    cellar_error error = {0};
    begin_step(b, 0, 0, n);
    bench_must(cellar_attend(b->memory, 0, 0, b->q, b->out, &error), "attend", &error);
    cellar_abort(b->memory);
}

static void prove(layer_bench *stretch, layer_bench *pieces)
{
    float alone[HEADS * SIZE];
    attend(stretch, 1);
    memcpy(alone, stretch->out, sizeof alone);
    attend(stretch, PREFILL);
    attend(pieces, PREFILL);
    bench_claim(memcmp(alone, stretch->out, sizeof alone) == 0,
                "a token gets the same bits alone and in a prefill");
    bench_claim(memcmp(stretch->out, pieces->out, PREFILL * sizeof alone) == 0,
                "a sequence gets the same bits wherever its cells lie");
}

static double time_attend(layer_bench *b, uint32_t n_calls)
{
    cellar_error error = {0};
    double start = bench_now();
    for (uint32_t i = 0; i < n_calls; i++)
        bench_must(cellar_attend(b->memory, 0, 0, b->q, b->out, &error), "attend", &error);
    return (bench_now() - start) / n_calls;
}

static void add_speed(figures *all, const char *name, cellar_type type, uint32_t depth,
                      uint32_t n_tokens, double *samples)
{
    figure what = {
        .section = "attention", .name = name, .unit = "ns", .cells = depth, .sequences = n_tokens};
    figure *added = bench_add(all, what, samples);
    double pairs = (double)n_tokens * depth + n_tokens * (n_tokens + 1.0) / 2; /* (query, key) */
    double row_bytes = 2.0 * KV_HEADS * (double)cellar_type_bytes(type, SIZE);
    added->gflops = pairs * HEADS * SIZE * 4 / added->median;
    added->gbytes = (depth + n_tokens) * row_bytes / added->median;
}

/* The two in turns, so that whatever else the machine does meets both. */
static void measure(figures *all, layer_bench *stretch, layer_bench *pieces, cellar_type type,
                    uint32_t depth, uint32_t n_tokens, const char *const *names)
{
    double a[BENCH_MOST_SAMPLES], b[BENCH_MOST_SAMPLES];
    uint32_t n_calls = 1 + 200000 / (depth * n_tokens);
    begin_step(stretch, 0, 0, n_tokens);
    begin_step(pieces, 0, 0, n_tokens);
    for (uint32_t s = 0; s < all->n_samples; s++) {
        a[s] = time_attend(stretch, n_calls);
        b[s] = time_attend(pieces, n_calls);
    }
    cellar_abort(stretch->memory);
    cellar_abort(pieces->memory);
    add_speed(all, names[0], type, depth, n_tokens, a);
    add_speed(all, names[1], type, depth, n_tokens, b);
}

void bench_attention(figures *all, cellar_type type, uint32_t depth)
{
    static const char *const names[][2] = {{"f16, one stretch", "f16, pieces of 32"},
                                           {"q8_0, one stretch", "q8_0, pieces of 32"},
                                           {"q4_0, one stretch", "q4_0, pieces of 32"}};
    const uint32_t name = type == CELLAR_F16 ? 0 : type == CELLAR_Q8_0 ? 1 : 2;
    layer_bench stretch, pieces;
    open_layer(&stretch, type, depth);
    open_layer(&pieces, type, depth);
    fill_in_one_stretch(&stretch, depth);
    fill_in_pieces(&pieces, depth);
    bench_claim(count_runs(&stretch) == 1, "one sequence lies in one stretch");
    bench_claim(count_runs(&pieces) > depth / PIECE / 2, "the other lies in pieces");
    prove(&stretch, &pieces);
    all->cpu = cellar_cpu(stretch.memory);
    measure(all, &stretch, &pieces, type, depth, 1, names[name]);
    measure(all, &stretch, &pieces, type, depth, PREFILL, names[name]);
    close_layer(&stretch);
    close_layer(&pieces);
}
