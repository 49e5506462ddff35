/*
 * scenarios_equality.c: what must not be seen in a result, down to the last bit: where cells lie,
 * who shares them, how the batch was cut, how many workers there are, what happened to a twin.
 *
 * Each scenario reaches one logical content (these tokens at these positions, stored at these
 * positions) on two ways and compares what attention gives, bit by bit.
 */
#define _POSIX_C_SOURCE 200809L
#include "scenarios.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, C };

/* Two layers that differ in everything: f16 with partial rotation and grouped heads; plain f32. */
static void shape(drive *d)
{
    memset(d, 0, sizeof *d);
    d->seed = 23;
    d->n_layers = 2;
    d->layers[0] = drive_layer(6, 2, 16, 12);
    d->layers[0].rope.kind = CELLAR_ROPE_NEOX;
    d->layers[0].rope.n_rot = 8;
    d->layers[0].k_type = d->layers[0].v_type = CELLAR_F16;
    d->layers[1] = drive_layer(2, 2, 7, 33);
}

static void open_shape(drive *d, uint32_t n_cells, uint32_t n_ubatch)
{
    shape(d);
    scenario_open(d, n_cells, n_ubatch);
}

/* Outputs of n tokens that a plain run gives: one sequence, one token a step, nothing else. */
static float *read_plainly(cellar_token first, uint32_t n)
{
    drive d;
    open_shape(&d, n, 1);
    float *out = drive_grab(n * d.out_size, sizeof *out);
    CHECK(drive_append_singly(&d, A, first, n, out) == CELLAR_OK);
    drive_close(&d);
    return out;
}

/* ---- batches --------------------------------------------------------------------------------- */

static void batch_split(void)
{
    enum { N = 150 };
    static const uint32_t sizes[] = {1, 2, 3, 7, 16, 64, 150, 512};
    float *want = read_plainly(0, N);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        drive d;
        open_shape(&d, 512, sizes[i]);
        float *got = drive_grab(N * d.out_size, sizeof *got);
        CHECK(drive_append(&d, A, 0, 61, got) == CELLAR_OK);
        CHECK(drive_append(&d, A, 61, N - 61, got + 61 * d.out_size) == CELLAR_OK);
        CHECK(scenario_same_bits(got, want, N * d.out_size));
        free(got);
        drive_close(&d);
    }
    free(want);
}

static void mixed_batch(void)
{
    enum { N = 30 };
    drive d;
    cellar_token tokens[3 * N];
    cellar_seq seqs[3 * N];
    float *want[3] = {read_plainly(0, N), read_plainly(1000, N), read_plainly(2000, N)};
    open_shape(&d, 128, 16);
    float *got = drive_grab(3 * N * d.out_size, sizeof *got);
    for (int32_t i = 0; i < 3 * N; i++) { /* A B C A B C ... */
        seqs[i] = i % 3;
        tokens[i] = 1000 * (i % 3) + i / 3;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 3 * N;
    batch.tokens = tokens;
    batch.seqs = seqs;
    CHECK(drive_step(&d, &batch, got, NULL) == CELLAR_OK);
    for (uint32_t i = 0; i < 3 * N; i++)
        CHECK(
            scenario_same_bits(got + i * d.out_size, want[i % 3] + i / 3 * d.out_size, d.out_size));
    free(got);
    for (uint32_t s = 0; s < 3; s++)
        free(want[s]);
    drive_close(&d);
}

/* ---- workers --------------------------------------------------------------------------------- */

typedef struct crew {
    uint32_t n;
    bool is_threaded;
} crew;

typedef struct job {
    cellar_task task;
    void *argument;
    uint32_t part, n;
} job;

static void *run_job(void *argument)
{
    job *j = argument;
    j->task(j->argument, j->part, j->n);
    return NULL;
}

/* Parts in the odd order: the last one first, or all at once. */
static void run_parts(void *context, cellar_task task, void *argument)
{
    const crew *c = context;
    pthread_t threads[16];
    job jobs[16];
    for (uint32_t part = c->n; part-- > 0;) {
        jobs[part] = (job){task, argument, part, c->n};
        if (!c->is_threaded || pthread_create(&threads[part], NULL, run_job, &jobs[part]) != 0) {
            run_job(&jobs[part]);
            threads[part] = pthread_self();
        }
    }
    for (uint32_t part = 0; part < c->n; part++)
        if (!pthread_equal(threads[part], pthread_self())) pthread_join(threads[part], NULL);
}

/* Two forks of 100 tokens, one of them shifted, then 16 tokens for each in one batch. */
static float *run_with(crew *c)
{
    drive d;
    cellar_config config = cellar_config_init();
    cellar_token tokens[32];
    cellar_seq seqs[32];
    shape(&d);
    config.n_cells = 256;
    config.workers = (cellar_workers){c->n, run_parts, c};
    CHECK(drive_open(&d, &config, NULL) == CELLAR_OK);
    float *out = drive_grab(132 * d.out_size, sizeof *out);
    CHECK(drive_append(&d, A, 0, 100, out) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, B, 10, 20, NULL, NULL) == CELLAR_OK);
    for (int32_t i = 0; i < 32; i++) {
        seqs[i] = i % 2;
        tokens[i] = 500 + i;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 32;
    batch.tokens = tokens;
    batch.seqs = seqs;
    CHECK(drive_step(&d, &batch, out + 100 * d.out_size, NULL) == CELLAR_OK);
    drive_close(&d);
    return out;
}

static void workers(void)
{
    drive d;
    crew one = {1, false};
    float *want = run_with(&one);
    shape(&d);
    size_t n = 132 * ((size_t)6 * 12 + (size_t)2 * 33);
    for (uint32_t parts = 2; parts <= 16; parts += parts < 4 ? 1 : 6)
        for (int is_threaded = 0; is_threaded < 2; is_threaded++) {
            crew many = {parts, is_threaded};
            float *got = run_with(&many);
            CHECK(scenario_same_bits(got, want, n));
            free(got);
        }
    CHECK(scenario_all_finite(want, n));
    free(want);
}

/* ---- placement and sharing ------------------------------------------------------------------- */

/* Leave free cells one by one, in pairs, and so on: sequence s holds every token that s divides. */
static void crumble(drive *d, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        CHECK(drive_append(d, 100 + (cellar_seq)(i % 7), 5000 + (cellar_token)i, 1, NULL) ==
              CELLAR_OK);
    for (cellar_seq s = 100; s < 107; s += 2)
        CHECK(cellar_remove(d->memory, s, 0, -1, NULL) == CELLAR_OK);
    for (cellar_seq s = 101; s < 107; s += 2)
        CHECK(cellar_remove(d->memory, s, 3, 9, NULL) == CELLAR_OK);
}

static void placement(void)
{
    enum { N = 90 };
    drive d;
    float *want = read_plainly(0, N);
    open_shape(&d, 140, 8);
    float *got = drive_grab(N * d.out_size, sizeof *got);
    crumble(&d, 140);
    CHECK(drive_append(&d, A, 0, 40, got) == CELLAR_OK);
    CHECK(drive_append_singly(&d, A, 40, 30, got + 40 * d.out_size) == CELLAR_OK);
    CHECK(drive_append(&d, A, 70, N - 70, got + 70 * d.out_size) == CELLAR_OK);
    CHECK(scenario_same_bits(got, want, N * d.out_size));
    free(got);
    free(want);
    drive_close(&d);
}

static void fork_and_part(void)
{
    enum { N = 60, PREFIX = 37 };
    drive d;
    float *want = read_plainly(0, N);
    open_shape(&d, 256, 8);
    float *got = drive_grab(N * d.out_size, sizeof *got);
    CHECK(drive_append(&d, A, 0, PREFIX, NULL) == CELLAR_OK);
    CHECK(drive_append(&d, A, 700, 9, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, PREFIX, NULL) == CELLAR_OK);
    CHECK(drive_append(&d, A, 800, 5, NULL) == CELLAR_OK);
    CHECK(drive_append(&d, B, PREFIX, N - PREFIX, got) == CELLAR_OK);
    CHECK(scenario_same_bits(got, want + PREFIX * d.out_size, (N - PREFIX) * d.out_size));
    CHECK(cellar_remove(d.memory, A, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d.memory, B, 50, -1, NULL) == CELLAR_OK);
    CHECK(drive_append(&d, B, 50, 10, got) == CELLAR_OK);
    CHECK(scenario_same_bits(got, want + 50 * d.out_size, 10 * d.out_size));
    free(got);
    free(want);
    drive_close(&d);
}

static void sixteen_on_one_prefix(void)
{
    enum { N = 16, PREFIX = 130, OWN = 5 };
    drive d;
    cellar_token tokens[N];
    cellar_seq seqs[N];
    open_shape(&d, 512, 32);
    float *together = drive_grab(N * d.out_size, sizeof *together);
    float *alone = drive_grab(d.out_size, sizeof *alone);
    CHECK(drive_append(&d, 0, 0, PREFIX, NULL) == CELLAR_OK);
    for (int32_t s = 0; s < N; s++) {
        if (s > 0) CHECK(cellar_copy(d.memory, 0, s, 0, PREFIX, NULL) == CELLAR_OK);
        CHECK(drive_append(&d, s, 1000 + 10 * s, (uint32_t)s % OWN + 1, NULL) == CELLAR_OK);
        seqs[s] = s;
        tokens[s] = 3000 + s;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = N;
    batch.tokens = tokens;
    batch.seqs = seqs;
    CHECK(drive_step(&d, &batch, together, NULL) == CELLAR_OK);
    for (int32_t s = 0; s < N; s++) { /* each alone, in a memory of its own */
        drive other;
        open_shape(&other, 160, 7);
        CHECK(drive_append(&other, 9, 0, PREFIX, NULL) == CELLAR_OK);
        CHECK(drive_append(&other, 9, 1000 + 10 * s, (uint32_t)s % OWN + 1, NULL) == CELLAR_OK);
        CHECK(drive_append(&other, 9, 3000 + s, 1, alone) == CELLAR_OK);
        CHECK(scenario_same_bits(together + (size_t)s * d.out_size, alone, d.out_size));
        drive_close(&other);
    }
    free(together);
    free(alone);
    drive_close(&d);
}

static void several_sequences_at_once(void)
{
    enum { N = 20 };
    drive d;
    cellar_token tokens[N];
    uint32_t seq_begin[N + 1];
    cellar_seq seqs[3 * N];
    float *want = read_plainly(0, N + 3);
    open_shape(&d, 64, 8);
    float *got = drive_grab(N * d.out_size, sizeof *got);
    for (uint32_t i = 0; i <= N; i++)
        seq_begin[i] = 3 * i;
    for (int32_t i = 0; i < 3 * N; i++)
        seqs[i] = i % 3;
    for (int32_t i = 0; i < N; i++)
        tokens[i] = i;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = N;
    batch.tokens = tokens;
    batch.seq_begin = seq_begin;
    batch.seqs = seqs;
    CHECK(drive_step(&d, &batch, got, NULL) == CELLAR_OK);
    CHECK(scenario_same_bits(got, want, N * d.out_size));
    CHECK(scenario_used(&d) == N);
    for (cellar_seq s = A; s <= C; s++) {
        CHECK(drive_append(&d, s, N, 3, got) == CELLAR_OK);
        CHECK(scenario_same_bits(got, want + N * d.out_size, 3 * d.out_size));
    }
    free(got);
    free(want);
    drive_close(&d);
}

/* Side by side, a token at a time: each has its own blocks and its runs stay long. */
static void side_by_side(void)
{
    enum { N = 8, LENGTH = 96 };
    drive d;
    open_shape(&d, 2 * N * LENGTH, N);
    for (int32_t i = 0; i < LENGTH; i++) {
        cellar_seq seqs[N];
        cellar_token tokens[N];
        for (int32_t s = 0; s < N; s++) {
            seqs[s] = s;
            tokens[s] = 1000 * s + i;
        }
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = N;
        batch.tokens = tokens;
        batch.seqs = seqs;
        CHECK(drive_step(&d, &batch, NULL, NULL) == CELLAR_OK);
    }
    for (cellar_seq s = 0; s < N; s++) {
        cellar_sequence_info info = {0};
        CHECK(cellar_get_sequence(d.memory, s, &info, NULL) == CELLAR_OK);
        CHECK(info.n_cells == LENGTH && info.n_runs <= LENGTH / 32 + 1);
    }
    drive_close(&d);
}

/* ---- shifts ---------------------------------------------------------------------------------- */

static void twin_type(cellar_type type)
{
    drive d;
    float before[32], after[32], other[32];
    float k[2][16], v[2][16];
    scenario_open_rotating(&d, type, 128, 8);
    CHECK(drive_append(&d, A, 0, 50, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(drive_probe(&d, A, 900, before) == CELLAR_OK);
    CHECK(cellar_read_rows(d.memory, A, 0, 30, 1, k[0], v[0], NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, B, 5, 17, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, B, 0, -1, 3, NULL) == CELLAR_OK);
    CHECK(drive_append(&d, B, 600, 10, NULL) == CELLAR_OK);
    CHECK(drive_probe(&d, A, 900, after) == CELLAR_OK);
    CHECK(drive_probe(&d, B, 900, other) == CELLAR_OK);
    CHECK(scenario_same_bits(before, after, d.out_size));
    CHECK(!scenario_same_bits(before, other, d.out_size));
    CHECK(cellar_read_rows(d.memory, A, 0, 30, 1, k[1], v[1], NULL) == CELLAR_OK);
    CHECK(scenario_same_bits(k[0], k[1], 16) && scenario_same_bits(v[0], v[1], 16));
    drive_close(&d);
}

static void twin(void)
{
    twin_type(CELLAR_F32);
    twin_type(CELLAR_F16);
}

static void small_shifts_type(cellar_type type)
{
    drive one, many;
    float a[32], b[32];
    float *k = drive_grab(2 * 64 * 16, sizeof *k), *v = drive_grab(2 * 64 * 16, sizeof *v);
    drive *both[] = {&one, &many};
    for (int i = 0; i < 2; i++) {
        scenario_open_rotating(both[i], type, 130, 16);
        CHECK(drive_append(both[i], A, 0, 128, NULL) == CELLAR_OK);
        CHECK(cellar_remove(both[i]->memory, A, 0, 64, NULL) == CELLAR_OK);
    }
    for (int i = 0; i < 64; i++)
        CHECK(cellar_shift(many.memory, A, 0, -1, -1, NULL) == CELLAR_OK);
    CHECK(cellar_shift(one.memory, A, 0, -1, -64, NULL) == CELLAR_OK);
    CHECK(cellar_position_min(many.memory, A) == 0 && cellar_position_max(many.memory, A) == 63);
    CHECK(drive_append(&one, A, 700, 1, a) == CELLAR_OK &&
          drive_append(&many, A, 700, 1, b) == CELLAR_OK);
    CHECK(scenario_same_bits(a, b, one.out_size));
    CHECK(cellar_read_rows(one.memory, A, 0, 0, 64, k, v, NULL) == CELLAR_OK);
    CHECK(cellar_read_rows(many.memory, A, 0, 0, 64, k + 64 * 16, v + 64 * 16, NULL) == CELLAR_OK);
    CHECK(scenario_same_bits(k, k + 64 * 16, 64 * 16) &&
          scenario_same_bits(v, v + 64 * 16, 64 * 16));
    free(k);
    free(v);
    drive_close(&one);
    drive_close(&many);
}

static void small_shifts(void)
{
    small_shifts_type(CELLAR_F32);
    small_shifts_type(CELLAR_F16);
}

static void there_and_back(void)
{
    drive d;
    float before[32], after[32];
    scenario_open_rotating(&d, CELLAR_F16, 128, 8);
    CHECK(drive_append(&d, A, 0, 50, NULL) == CELLAR_OK);
    CHECK(drive_probe(&d, A, 900, before) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 20, -1, 1000, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 0, 20, 7, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 0, 30, -7, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 1000, -1, -1000, NULL) == CELLAR_OK);
    CHECK(drive_probe(&d, A, 900, after) == CELLAR_OK);
    CHECK(scenario_same_bits(before, after, d.out_size));
    drive_close(&d);
}

/* Forks that stand whole blocks of positions away, in one batch: same cells, other positions. */
static void shifted_by_blocks(void)
{
    enum { N = 5, LENGTH = 160 };
    static const cellar_pos deltas[N] = {0, 64, 128, 256, 1024};
    drive d, alone;
    cellar_seq seqs[N];
    cellar_token tokens[N];
    scenario_open_rotating(&d, CELLAR_F32, 256, 16);
    float *together = drive_grab(N * d.out_size, sizeof *together);
    float *want = drive_grab(d.out_size, sizeof *want);
    CHECK(drive_append(&d, 0, 0, LENGTH, NULL) == CELLAR_OK);
    for (int32_t s = 0; s < N; s++) {
        seqs[s] = s;
        tokens[s] = 900 + s;
        CHECK(cellar_copy(d.memory, 0, s, 0, -1, NULL) == CELLAR_OK);
        CHECK(cellar_shift(d.memory, s, 0, -1, deltas[s], NULL) == CELLAR_OK);
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = N;
    batch.tokens = tokens;
    batch.seqs = seqs;
    CHECK(drive_step(&d, &batch, together, NULL) == CELLAR_OK);
    for (int32_t s = 0; s < N; s++) {
        scenario_open_rotating(&alone, CELLAR_F32, 256, 16);
        CHECK(drive_append(&alone, 0, 0, LENGTH, NULL) == CELLAR_OK);
        CHECK(cellar_shift(alone.memory, 0, 0, -1, deltas[s], NULL) == CELLAR_OK);
        CHECK(drive_append(&alone, 0, 900 + s, 1, want) == CELLAR_OK);
        CHECK(scenario_same_bits(together + (size_t)s * d.out_size, want, d.out_size));
        drive_close(&alone);
    }
    free(together);
    free(want);
    drive_close(&d);
}

/* A shifted part is still itself when cells are scattered and the batch is cut otherwise. */
static void shifted_elsewhere(void)
{
    drive d[2];
    float *out[2];
    for (int i = 0; i < 2; i++) {
        open_shape(&d[i], 220, i ? 3 : 64);
        out[i] = drive_grab(20 * d[i].out_size, sizeof *out[i]);
        if (i) crumble(&d[i], 120);
        CHECK(drive_append(&d[i], A, 0, 80, NULL) == CELLAR_OK);
        CHECK(cellar_remove(d[i].memory, A, 10, 30, NULL) == CELLAR_OK);
        CHECK(cellar_shift(d[i].memory, A, 30, 50, -20, NULL) == CELLAR_OK);
        CHECK(cellar_shift(d[i].memory, A, 50, -1, 5, NULL) == CELLAR_OK);
        CHECK(drive_append(&d[i], A, 600, 20, out[i]) == CELLAR_OK);
    }
    CHECK(scenario_same_bits(out[0], out[1], 20 * d[0].out_size));
    for (int i = 0; i < 2; i++) {
        free(out[i]);
        drive_close(&d[i]);
    }
}

const scenario scenarios_equality[] = {
    {"results do not depend on how the batch was split", batch_split},
    {"results do not depend on what else is in the batch", mixed_batch},
    {"results do not depend on the number of workers", workers},
    {"results do not depend on where the cells lie", placement},
    {"results do not depend on who shares the cells", fork_and_part},
    {"sixteen sequences on one prefix answer as each of them alone", sixteen_on_one_prefix},
    {"a token read for three sequences is read for each of them", several_sequences_at_once},
    {"sequences that decode side by side keep long runs", side_by_side},
    {"shifting after a fork leaves the twin's output bit-equal", twin},
    {"S11 64 small shifts equal one large one bit for bit", small_shifts},
    {"a shift there and back leaves nothing behind", there_and_back},
    {"forks shifted by whole blocks keep apart in one batch", shifted_by_blocks},
    {"a shifted sequence answers alike wherever its cells lie", shifted_elsewhere},
    {NULL, NULL},
};
