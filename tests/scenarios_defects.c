/*
 * scenarios_defects.c: faults of the design that this one replaces, by their numbers, each held
 * down by a test: D2 D3 D4 D7 D8 D9 D13 D16 D30 D35 D36 D37 D38 D43 for one pool of full attention.
 * Those about windows, recurrent layers, quantised rows, pools and positions stand with those parts.
 */
#include "scenarios.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, C, D };

static uint32_t count_cells(const drive *d, cellar_seq seq)
{
    cellar_sequence_info info = {0};
    CHECK(cellar_get_sequence(d->memory, seq, &info, NULL) == CELLAR_OK);
    return info.n_cells;
}

static void d2(void)
{
    drive d;
    bool seen[SCENARIO_IDS];
    scenario_open_counting(&d, 64, 8);
    CHECK(scenario_append(&d, A, 0, 10, NULL) == CELLAR_OK);
    CHECK(scenario_append(&d, B, 20, 10, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 3, 3, NULL) == CELLAR_OK); /* empty: nothing */
    CHECK(cellar_copy(d.memory, A, B, 50, -1, NULL) == CELLAR_OK);
    CHECK(count_cells(&d, B) == 10 && scenario_used(&d) == 20);
    CHECK(cellar_copy(d.memory, A, B, 3, 6, NULL) == CELLAR_OK); /* replaced in the range only */
    CHECK(count_cells(&d, B) == 10 && scenario_used(&d) == 17);
    CHECK(scenario_append(&d, B, 40, 1, seen) == CELLAR_OK);
    CHECK(scenario_count(seen) == 11);
    CHECK(seen[22] && !seen[23] && !seen[25] && seen[3] && seen[5] && !seen[6] && seen[26]);
    drive_close(&d);
}

static void copy_again(drive *d, void *argument)
{
    (void)argument;
    for (int i = 0; i < 3; i++)
        CHECK(cellar_copy(d->memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d->memory, A, B, 4, 7, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d->memory, A, A, 0, -1, NULL) == CELLAR_OK);
}

static void d3(void)
{
    drive d;
    scenario_open_rotating(&d, CELLAR_F32, 32, 8);
    CHECK(drive_append(&d, A, 0, 10, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, copy_again, NULL));
    CHECK(cellar_remove(d.memory, B, 5, -1, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, B) == 4); /* no phantom position */
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    drive_close(&d);
}

static void d4(void)
{
    drive d;
    float k[2][16];
    scenario_open_rotating(&d, CELLAR_F32, 32, 8);
    CHECK(drive_append(&d, A, 0, 10, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_read_rows(d.memory, B, 0, 6, 1, k[0], NULL, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 5, -1, 100, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, A) == 109 && cellar_position_max(d.memory, B) == 9);
    CHECK(cellar_read_rows(d.memory, B, 0, 6, 1, k[1], NULL, NULL) == CELLAR_OK);
    CHECK(scenario_same_bits(k[0], k[1], 16));
    CHECK(cellar_shift(d.memory, A, 0, -1, -107, NULL) == CELLAR_OK); /* drops tokens of A only */
    CHECK(count_cells(&d, A) == 3 && count_cells(&d, B) == 10);
    drive_close(&d);
}

static double length_of(const drive *d, cellar_pos pos)
{
    float k[16];
    double sum = 0;
    CHECK(cellar_read_rows(d->memory, A, 0, pos, 1, k, NULL, NULL) == CELLAR_OK);
    for (uint32_t i = 0; i < 8; i++)
        sum += (double)k[i] * k[i];
    return sqrt(sum);
}

static void d7(void)
{
    drive d;
    float raw[16];
    double plain = 0;
    memset(&d, 0, sizeof d);
    d.n_layers = 1;
    d.layers[0] = drive_layer(4, 2, 8, 8);
    d.layers[0].rope.kind = CELLAR_ROPE_NORMAL;
    d.layers[0].rope.scale = 0.25;
    d.layers[0].rope.yarn_ext = 1;
    d.layers[0].rope.yarn_context = 64;
    scenario_open(&d, 64, 8);
    CHECK(drive_append(&d, A, 0, 20, NULL) == CELLAR_OK);
    drive_token_row(&d, 0, DRIVE_K, 19, raw);
    for (uint32_t i = 0; i < 8; i++)
        plain += (double)raw[i] * raw[i];
    double want = sqrt(plain) * (1 + 0.1 * log(4));
    CHECK(fabs(length_of(&d, 19) - want) < 1e-5);
    for (int i = 0; i < 50; i++) {
        CHECK(cellar_shift(d.memory, A, 0, -1, 3, NULL) == CELLAR_OK);
        CHECK(drive_append(&d, B, 0, 1, NULL) == CELLAR_OK); /* decoding in between, too */
        CHECK(cellar_remove(d.memory, B, 0, -1, NULL) == CELLAR_OK);
    }
    CHECK(fabs(length_of(&d, 19 + 150) - want) < 1e-5);
    drive_close(&d);
}

static void d8(void)
{
    drive d;
    scenario_open_rotating(&d, CELLAR_F32, 64, 8);
    for (cellar_seq s = A; s <= D; s++)
        CHECK(drive_append(&d, s * 1000, 10 * s, 5, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, 1000, 7, 0, 3, NULL) == CELLAR_OK);
    CHECK(cellar_keep(d.memory, 1000, NULL) == CELLAR_OK);
    cellar_statistics stats = {0};
    CHECK(cellar_stats(d.memory, &stats, NULL) == CELLAR_OK);
    CHECK(stats.n_used == 5 && stats.n_sequences == 1 && stats.n_shared == 0);
    CHECK(cellar_position_max(d.memory, 1000) == 4 && cellar_position_max(d.memory, 0) == -1);
    CHECK(cellar_position_max(d.memory, 7) == -1);
    drive_close(&d);
}

static void d9(void)
{
    drive d, fresh;
    float a[32], b[32];
    scenario_open_rotating(&d, CELLAR_F32, 32, 8);
    scenario_open_rotating(&fresh, CELLAR_F32, 32, 8);
    CHECK(drive_append(&d, A, 0, 10, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 0, -1, 50, NULL) == CELLAR_OK);
    CHECK(cellar_clear(d.memory, NULL) == CELLAR_OK); /* nothing is left that could come later */
    CHECK(scenario_used(&d) == 0);
    CHECK(drive_append(&d, A, 100, 10, NULL) == CELLAR_OK);
    CHECK(drive_append(&fresh, A, 100, 10, NULL) == CELLAR_OK);
    CHECK(drive_probe(&d, A, 5, a) == CELLAR_OK && drive_probe(&fresh, A, 5, b) == CELLAR_OK);
    CHECK(scenario_same_bits(a, b, d.out_size));
    drive_close(&d);
    drive_close(&fresh);
}

/* ---- D13, D16: tokens in several sequences, aborted steps ------------------------------------ */

/* Begin, store and perhaps attend one token in A, B and C; leave the step open. */
static void open_together(drive *d, float *out)
{
    static const cellar_token token = 77;
    static const uint32_t seq_begin[] = {0, 3};
    static const cellar_seq seqs[] = {A, B, C};
    float q[32], k[16], v[16];
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.tokens = &token;
    batch.seq_begin = seq_begin;
    batch.seqs = seqs;
    drive_token_row(d, 0, DRIVE_Q, token, q);
    drive_token_row(d, 0, DRIVE_K, token, k);
    drive_token_row(d, 0, DRIVE_V, token, v);
    CHECK(cellar_begin(d->memory, &batch, NULL) == CELLAR_OK);
    CHECK(cellar_store(d->memory, 0, 0, k, v, NULL) == CELLAR_OK);
    CHECK(cellar_attend(d->memory, 0, 0, q, out, NULL) == CELLAR_OK);
}

static void abort_together(drive *d, void *argument)
{
    open_together(d, argument);
    cellar_abort(d->memory);
}

static void d13(void)
{
    drive d;
    float out[32], again[32];
    scenario_open_rotating(&d, CELLAR_F32, 32, 8);
    CHECK(drive_append(&d, A, 0, 5, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, C, 0, -1, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, abort_together, out)); /* taken back from all three */
    for (cellar_seq s = A; s <= C; s++)
        CHECK(cellar_position_max(d.memory, s) == 4);
    open_together(&d, again);
    CHECK(scenario_same_bits(out, again, d.out_size));
    CHECK(cellar_commit(d.memory, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 6);
    for (cellar_seq s = A; s <= C; s++)
        CHECK(cellar_position_max(d.memory, s) == 5);
    CHECK(cellar_remove(d.memory, A, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, B) == 5 && scenario_used(&d) == 6);
    drive_close(&d);
}

static void abort_half(drive *d, void *argument)
{
    uint32_t n_stores = *(const uint32_t *)argument;
    cellar_batch batch = cellar_batch_init();
    float k[2 * 16] = {0}, v[2 * 16] = {0};
    batch.n_tokens = 7;
    CHECK(cellar_begin(d->memory, &batch, NULL) == CELLAR_OK);
    CHECK(cellar_count_ubatches(d->memory) == 4);
    for (uint32_t u = 0; u < n_stores; u++)
        CHECK(cellar_store(d->memory, u, 0, k, v, NULL) == CELLAR_OK);
    cellar_abort(d->memory);
    CHECK(cellar_count_ubatches(d->memory) == 0);
    cellar_abort(d->memory); /* no step: no effect */
}

static void d16(void)
{
    drive d;
    float before[32], after[32];
    scenario_open_rotating(&d, CELLAR_F32, 32, 2);
    CHECK(drive_append(&d, A, 0, 9, NULL) == CELLAR_OK);
    CHECK(drive_probe(&d, A, 50, before) == CELLAR_OK);
    for (uint32_t n = 0; n <= 4; n++)
        CHECK(scenario_leaves_unchanged(&d, abort_half, &n));
    CHECK(drive_probe(&d, A, 50, after) == CELLAR_OK);
    CHECK(scenario_same_bits(before, after, d.out_size));
    drive_close(&d);
}

static void d30(void)
{
    drive d;
    scenario_open_rotating(&d, CELLAR_F16, 128, 16);
    CHECK(drive_append(&d, A, 0, 100, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    uint64_t rows = scenario_rows_written(&d);
    CHECK(rows == 100);
    for (int i = 0; i < 20; i++)
        CHECK(cellar_shift(d.memory, A, 10, -1, i % 2 ? -5 : 5, NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, B, 10, 0, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d.memory, A, 20, 40, NULL) == CELLAR_OK);
    CHECK(scenario_rows_written(&d) == rows);
    CHECK(drive_append(&d, A, 500, 3, NULL) == CELLAR_OK);
    CHECK(scenario_rows_written(&d) == rows + 3); /* and attending shifted keys rewrites none */
    drive_close(&d);
}

/* ---- D35, D36, D37: what may be asked -------------------------------------------------------- */

static void d35(void)
{
    drive d;
    float k[2][4];
    memset(&d, 0, sizeof d);
    d.n_layers = 1;
    d.layers[0] = drive_layer(1, 1, 4, 4); /* no rotation: a shift moves positions only */
    scenario_open(&d, 16, 4);
    CHECK(drive_append(&d, A, 0, 6, NULL) == CELLAR_OK);
    CHECK(cellar_read_rows(d.memory, A, 0, 5, 1, k[0], NULL, NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, A, 1, 2, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_read_rows(d.memory, A, 0, 3, 1, k[1], NULL, NULL) == CELLAR_OK);
    CHECK(scenario_same_bits(k[0], k[1], 4));
    CHECK(drive_append(&d, A, 6, 2, NULL) == CELLAR_OK);
    drive_close(&d);

    cellar_config config = cellar_config_init();
    cellar_memory *memory = NULL;
    config.n_cells = 16;
    CHECK(cellar_create(&config, &memory, NULL) == CELLAR_INVALID && memory == NULL);
}

static void ask_for_nobody(drive *d, void *argument)
{
    static const cellar_seq wrong[] = {-1, -2, INT32_MIN};
    (void)argument;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cellar_sequence_info info;
        CHECK(cellar_remove(d->memory, wrong[i], 0, -1, NULL) == CELLAR_INVALID);
        CHECK(cellar_copy(d->memory, wrong[i], A, 0, -1, NULL) == CELLAR_INVALID);
        CHECK(cellar_copy(d->memory, A, wrong[i], 0, -1, NULL) == CELLAR_INVALID);
        CHECK(cellar_keep(d->memory, wrong[i], NULL) == CELLAR_INVALID);
        CHECK(cellar_shift(d->memory, wrong[i], 0, -1, 1, NULL) == CELLAR_INVALID);
        CHECK(cellar_get_sequence(d->memory, wrong[i], &info, NULL) == CELLAR_INVALID);
        CHECK(cellar_position_min(d->memory, wrong[i]) == -1);
        CHECK(drive_append(d, wrong[i], 0, 1, NULL) == CELLAR_INVALID);
    }
    CHECK(cellar_remove(d->memory, 12345, 0, -1, NULL) == CELLAR_OK); /* never heard of: empty */
    CHECK(cellar_shift(d->memory, 12345, 0, -1, 1, NULL) == CELLAR_OK);
}

static void d36(void)
{
    drive d;
    scenario_open_rotating(&d, CELLAR_F32, 16, 4);
    CHECK(drive_append(&d, A, 0, 5, NULL) == CELLAR_OK);
    CHECK(drive_append(&d, INT32_MAX, 10, 5, NULL) == CELLAR_OK); /* any number >= 0 is a name */
    CHECK(drive_append(&d, 100000, 20, 5, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, INT32_MAX) == 4);
    CHECK(scenario_leaves_unchanged(&d, ask_for_nobody, NULL));
    drive_close(&d);
}

static void shift_out(drive *d, void *argument)
{
    cellar_error error = {0};
    (void)argument;
    CHECK(cellar_shift(d->memory, A, 0, -1, INT32_MAX, NULL) == CELLAR_INVALID);
    CHECK(cellar_shift(d->memory, A, 9, 10, INT32_MAX - 9, NULL) == CELLAR_INVALID);
    CHECK(cellar_shift(d->memory, A, 0, 5, 3, &error) == CELLAR_REFUSED && error.at == 5);
}

static void d37(void)
{
    drive d;
    scenario_open_rotating(&d, CELLAR_F32, 16, 4);
    CHECK(drive_append(&d, A, 0, 10, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, shift_out, NULL));
    CHECK(cellar_shift(d.memory, A, 9, 10, INT32_MAX - 10, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, A) == INT32_MAX - 1);
    CHECK(drive_append(&d, A, 50, 1, NULL) == CELLAR_INVALID); /* no position is left */
    CHECK(cellar_shift(d.memory, A, 0, -1, INT32_MIN, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, A) == -1 && scenario_used(&d) == 10);
    CHECK(cellar_shift(d.memory, B, 0, -1, -4, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 6 && cellar_position_max(d.memory, B) == 5);
    drive_close(&d);
}

static void d38(void)
{
    for (uint32_t n_ubatch = 1; n_ubatch < 9; n_ubatch++) {
        drive d;
        cellar_seq seqs[40];
        scenario_open_rotating(&d, CELLAR_F32, 64, n_ubatch);
        for (int32_t i = 0; i < 40; i++)
            seqs[i] = i % 11;
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = 40;
        batch.seqs = seqs;
        CHECK(cellar_begin(d.memory, &batch, NULL) == CELLAR_OK);
        uint32_t n = cellar_count_ubatches(d.memory);
        CHECK(n == (40 + n_ubatch - 1) / n_ubatch);
        for (uint32_t u = 0; u < n; u++) {
            cellar_ubatch ubatch = {0};
            CHECK(cellar_get_ubatch(d.memory, u, &ubatch, NULL) == CELLAR_OK);
            CHECK(ubatch.n_tokens >= 1 && ubatch.n_tokens <= n_ubatch);
        }
        drive_close(&d);
    }
}

static void d43(void)
{
    enum { N = 4096 };
    drive d;
    float *k = drive_grab(N, sizeof *k), *v = drive_grab(N, sizeof *v), q = 1, out = 0;
    memset(&d, 0, sizeof d);
    d.n_layers = 1;
    d.layers[0] = drive_layer(1, 1, 1, 1);
    d.layers[0].k_type = d.layers[0].v_type = CELLAR_F16;
    scenario_open(&d, N, N);
    for (uint32_t i = 0; i < N; i++)
        v[i] = i % 2 ? 1.0f : 1.0f - 0x1p-10f; /* a running sum in f16 stands still at 2048 */
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = N;
    CHECK(cellar_begin(d.memory, &batch, NULL) == CELLAR_OK);
    CHECK(cellar_store(d.memory, 0, 0, k, v, NULL) == CELLAR_OK);
    CHECK(cellar_commit(d.memory, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d.memory, A, N - 1, -1, NULL) == CELLAR_OK);
    batch.n_tokens = 1;
    CHECK(cellar_begin(d.memory, &batch, NULL) == CELLAR_OK);
    CHECK(cellar_store(d.memory, 0, 0, k, v + N - 1, NULL) == CELLAR_OK);
    CHECK(cellar_attend(d.memory, 0, 0, &q, &out, NULL) == CELLAR_OK);
    CHECK(cellar_commit(d.memory, NULL) == CELLAR_OK);
    CHECK(fabs(out - (1 - 0x1p-11)) < 2e-6);
    free(k);
    free(v);
    drive_close(&d);
}

const scenario scenarios_defects[] = {
    {"D2 any range can be copied, and an empty one is nothing", d2},
    {"D3 repeating a copy changes nothing", d3},
    {"D4 shifting shared cells moves nobody else", d4},
    {"D7 a shift does not apply the YaRN magnitude again", d7},
    {"D8 keep leaves exactly one sequence", d8},
    {"D9 nothing is queued that could happen after a clear", d9},
    {"D13 a token in several sequences is theirs alike", d13},
    {"D16 an aborted step has never been", d16},
    {"D30 shifting, sharing and removing write no row", d30},
    {"D35 every memory can shift; one without layers cannot be made", d35},
    {"D36 a bad sequence is an error and changes nothing", d36},
    {"D37 positions never leave 0 .. 2^31 - 2", d37},
    {"D38 no micro-batch is longer than allowed", d38},
    {"D43 values are summed in f32", d43},
    {NULL, NULL},
};
