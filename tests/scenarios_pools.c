/*
 * scenarios_pools.c: S07, and of the faults D2, D8, D9, D11, D13, D31, D32 and D38 what several pools
 * and the cutting of batches have to do with.
 *
 * With two pools, sequences 0, 2, 4 ... live in the first and 1, 3, 5 ... in the second. "As read
 * plainly": equal to the last bit to a memory that read just these tokens.
 */
#include "scenarios.h"

#include <stdlib.h>
#include <string.h>

enum { A, B, C, D };
#define MOST 256

static cellar_config open_pools(drive *d, uint32_t n_pools, uint32_t n_each, uint32_t n_ubatch)
{
    cellar_config config = scenario_config(n_pools * n_each, n_ubatch);
    memset(d, 0, sizeof *d);
    d->seed = 61;
    d->n_layers = 1;
    d->layers[0] = scenario_layer(CELLAR_F32, 8);
    config.n_pools = n_pools;
    scenario_make(d, &config);
    return config;
}

static cellar_statistics stats_of(const drive *d)
{
    cellar_statistics stats = {0};
    CHECK(cellar_stats(d->memory, &stats, NULL) == CELLAR_OK);
    return stats;
}

/* Positions [p0, p0 + n) of both sequences have the same rows, byte for byte. */
static bool same_rows(const drive *d, cellar_seq a, cellar_seq b, cellar_pos p0, uint32_t n)
{
    float k[2][MOST * 16], v[2][MOST * 16];
    for (int i = 0; i < 2; i++)
        if (cellar_read_rows(d->memory, i ? b : a, 0, p0, n, k[i], v[i], NULL) != CELLAR_OK)
            return false;
    return scenario_same_bits(k[0], k[1], n * 16) && scenario_same_bits(v[0], v[1], n * 16);
}

/* ---- S07: copying part of a sequence between streams ----------------------------------------- */

static void s07(void)
{
    const cellar_token tokens[] = {106, 10};
    const cellar_seq seqs[] = {B, A};
    drive d;
    cellar_token all[MOST];
    cellar_config config = open_pools(&d, 2, 16, 8);
    size_t row = play_row_size(&d);
    float *got = drive_grab(2 * row, sizeof *got), *later = drive_grab(2 * row, sizeof *later);
    CHECK(play_append(&d, A, 0, 10, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, 6, NULL) == CELLAR_OK);
    CHECK(cellar_position_min(d.memory, B) == 0 && cellar_position_max(d.memory, B) == 5);
    CHECK(play_count_cells(&d, 0, 0) == 10 && play_count_cells(&d, 0, 1) == 6);
    CHECK(same_rows(&d, A, B, 0, 6));

    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 2;
    batch.tokens = tokens;
    batch.seqs = seqs;
    CHECK(play_step(&d, &batch, got, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, B) == 6 && cellar_position_max(d.memory, A) == 10);
    scenario_tokens(scenario_tokens(all, 0, 6), 106, 1);
    CHECK(scenario_answers_plainly(&d, &config, all, 7, got, 1));
    scenario_tokens(all, 0, 11);
    CHECK(scenario_answers_plainly(&d, &config, all, 11, got + row, 1));

    CHECK(play_probe(&d, B, 107, got) == CELLAR_OK);
    uint64_t cells = play_count_cells(&d, 0, 1);
    CHECK(cellar_remove(d.memory, A, 0, -1, NULL) == CELLAR_OK);
    CHECK(play_count_cells(&d, 0, 0) == 0 && play_count_cells(&d, 0, 1) == cells);
    CHECK(play_append(&d, A, 200, 16, NULL, NULL) == CELLAR_OK); /* over what A had */
    CHECK(play_probe(&d, B, 107, later) == CELLAR_OK);
    CHECK(scenario_same_bits(got, later, row));
    free(got);
    free(later);
    drive_close(&d);
}

static void s07_sees(void)
{
    drive d;
    bool seen[SCENARIO_IDS];
    cellar_config config = scenario_config(32, 8);
    scenario_shape_counting(&d);
    config.n_pools = 2;
    scenario_make(&d, &config);
    CHECK(scenario_append(&d, A, 0, 10, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, 6, NULL) == CELLAR_OK);
    CHECK(scenario_append(&d, B, 50, 1, seen) == CELLAR_OK);
    CHECK(scenario_count(seen) == 7 && seen[5] && !seen[6] && seen[50]);
    CHECK(scenario_append(&d, A, 60, 1, seen) == CELLAR_OK);
    CHECK(scenario_count(seen) == 11 && seen[9] && !seen[50] && seen[60]);
    drive_close(&d);
}

/* ---- D2, D8, D9, D31: copies between pools --------------------------------------------------- */

static void copy_nothing(drive *d, void *argument)
{
    (void)argument;
    CHECK(cellar_copy(d->memory, A, B, 3, 3, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d->memory, A, B, 0, 0, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d->memory, A, B, 50, -1, NULL) == CELLAR_OK); /* nothing on both sides */
    CHECK(cellar_copy(d->memory, A, B, 9, 4, NULL) == CELLAR_INVALID);
}

static void copy_too_much(drive *d, void *argument)
{
    (void)argument;
    CHECK(cellar_copy(d->memory, A, D, 0, -1, NULL) == CELLAR_FULL);
}

static void d2(void)
{
    drive d;
    open_pools(&d, 2, 24, 8);
    CHECK(play_append(&d, A, 0, 20, NULL, NULL) == CELLAR_OK);
    CHECK(play_append(&d, B, 100, 12, NULL, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, copy_nothing, NULL));
    CHECK(scenario_leaves_unchanged(&d, copy_too_much, NULL)); /* 12 + 20 > 24 */
    CHECK(cellar_copy(d.memory, A, B, 4, 9, NULL) == CELLAR_OK);
    CHECK(play_count_cells(&d, 0, 1) == 12 && same_rows(&d, A, B, 4, 5));
    CHECK(!same_rows(&d, A, B, 3, 1) && !same_rows(&d, A, B, 9, 1));
    CHECK(cellar_copy(d.memory, A, B, 10, -1, NULL) == CELLAR_OK); /* B grows to 20 */
    CHECK(cellar_position_max(d.memory, B) == 19 && same_rows(&d, A, B, 10, 10));
    CHECK(play_count_cells(&d, 0, 0) == 20 && play_count_cells(&d, 0, 1) == 20);
    CHECK(cellar_remove(d.memory, A, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, B, A, 0, -1, NULL) == CELLAR_OK); /* and the way back */
    CHECK(same_rows(&d, A, B, 0, 20) && cellar_check(d.memory, NULL) == CELLAR_OK);
    drive_close(&d);
}

/* A sequence with a gap and a shift is copied as it stands. */
static void d2_shifted(void)
{
    drive d;
    open_pools(&d, 2, 32, 8);
    float *a = drive_grab(play_row_size(&d), sizeof *a),
          *b = drive_grab(play_row_size(&d), sizeof *b);
    CHECK(play_append(&d, A, 0, 20, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, A, 4, 6, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 10, -1, 30, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(same_rows(&d, A, B, 0, 10) && same_rows(&d, A, B, 40, 4));
    CHECK(play_probe(&d, A, 99, a) == CELLAR_OK && play_probe(&d, B, 99, b) == CELLAR_OK);
    CHECK(scenario_same_bits(a, b, play_row_size(&d)));
    CHECK(cellar_shift(d.memory, A, 0, -1, -2, NULL) == CELLAR_OK); /* B does not notice */
    CHECK(play_probe(&d, B, 99, b) == CELLAR_OK && scenario_same_bits(a, b, play_row_size(&d)));
    free(a);
    free(b);
    drive_close(&d);
}

/* What a window still has goes along, and both go on as if each had read it. */
static void d2_window(void)
{
    static const uint32_t state_size = 16;
    for (int is_recurrent = 0; is_recurrent < 2; is_recurrent++) {
        drive d;
        cellar_token tokens[MOST];
        cellar_config config = scenario_config(256, 4);
        memset(&d, 0, sizeof d);
        d.seed = 64;
        d.n_layers = 2;
        d.layers[0] = scenario_layer(CELLAR_F32, 8);
        d.layers[1] = scenario_window_layer(CELLAR_WINDOW_STANDARD, 8);
        if (is_recurrent) d.layers[1] = play_recurrent_layer(&state_size, 1);
        config.n_pools = config.n_sequences = 2;
        scenario_make(&d, &config);
        float *got = drive_grab(30 * play_row_size(&d), sizeof *got);
        CHECK(play_append(&d, A, 0, 30, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
        CHECK(cellar_position_max(d.memory, B) == 29);
        for (cellar_pos n = 0; n <= 30; n++) /* and what is lost is lost there, too */
            CHECK(cellar_can_continue(d.memory, A, n, NULL, NULL) ==
                  cellar_can_continue(d.memory, B, n, NULL, NULL));
        CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
        for (cellar_seq s = A; s <= B; s++) {
            for (int32_t i = 0; i < 30; i++)
                CHECK(play_append(&d, s, 100 * (s + 1) + i, 1, got + (size_t)i * play_row_size(&d),
                                  NULL) == CELLAR_OK);
            scenario_tokens(scenario_tokens(tokens, 0, 30), 100 * (s + 1), 30);
            CHECK(scenario_answers_plainly(&d, &config, tokens, 60, got, 30));
        }
        free(got);
        drive_close(&d);
    }
}

static void d8(void)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_config config = open_pools(&d, 3, 16, 8);
    float *got = drive_grab(play_row_size(&d), sizeof *got);
    for (cellar_seq s = 0; s < 7; s++)
        CHECK(play_append(&d, s, 10 * s, 4, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_keep(d.memory, 4, NULL) == CELLAR_OK);
    CHECK(stats_of(&d).n_sequences == 1);
    for (uint32_t pool = 0; pool < 3; pool++)
        CHECK(play_count_cells(&d, 0, pool) == (pool == 1 ? 4 : 0));
    CHECK(play_append(&d, 4, 90, 1, got, NULL) == CELLAR_OK);
    scenario_tokens(scenario_tokens(tokens, 40, 4), 90, 1);
    CHECK(scenario_answers_plainly(&d, &config, tokens, 5, got, 1));
    free(got);
    drive_close(&d);
}

static void d9(void)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_config config = open_pools(&d, 2, 16, 8);
    float *got = drive_grab(11 * play_row_size(&d), sizeof *got);
    CHECK(play_append(&d, A, 0, 10, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_clear(d.memory, NULL) == CELLAR_OK); /* nothing is left that could come later */
    CHECK(play_append(&d, B, 100, 10, got, NULL) == CELLAR_OK);
    CHECK(play_append(&d, B, 110, 1, got + 10 * play_row_size(&d), NULL) == CELLAR_OK);
    scenario_tokens(tokens, 100, 11);
    CHECK(scenario_answers_plainly(&d, &config, tokens, 11, got, 11));
    free(got);
    drive_close(&d);
}

static void d31(void)
{
    drive d;
    open_pools(&d, 2, 1024, 64);
    CHECK(play_append(&d, A, 0, 50, NULL, NULL) == CELLAR_OK);
    uint64_t moved = stats_of(&d).rows_moved;
    CHECK(cellar_copy(d.memory, A, B, 10, 17, NULL) == CELLAR_OK);
    CHECK(stats_of(&d).rows_moved == moved + 7); /* not the 1024 of a pool */
    CHECK(cellar_copy(d.memory, A, C, 0, -1, NULL) == CELLAR_OK);
    CHECK(stats_of(&d).rows_moved == moved + 7); /* within a pool: none */
    drive_close(&d);
}

/* ---- D11, D13: steps of several pools -------------------------------------------------------- */

/* A batch for all pools of which the last has no room. */
static void begin_too_much(drive *d, void *argument)
{
    cellar_token tokens[24];
    cellar_seq seqs[24];
    (void)argument;
    for (int32_t i = 0; i < 24; i++) {
        tokens[i] = 300 + i;
        seqs[i] = i < 4 ? B : i < 8 ? A : C;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 24;
    batch.tokens = tokens;
    batch.seqs = seqs;
    CHECK(play_step(d, &batch, NULL, NULL) == CELLAR_FULL);
}

static void d11(void)
{
    drive d[2];
    drive_snapshot pictures[2];
    char why[200] = "";
    memset(pictures, 0, sizeof pictures);
    for (int i = 0; i < 2; i++) { /* the second is refused a batch in between */
        open_pools(&d[i], 3, 16, 4);
        for (cellar_seq s = A; s <= C; s++)
            CHECK(play_append(&d[i], s, 20 * s, 9, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_remove(d[i].memory, B, 2, 5, NULL) == CELLAR_OK);
        if (i) CHECK(scenario_leaves_unchanged(&d[i], begin_too_much, NULL));
        for (cellar_seq s = A; s <= C; s++)
            CHECK(play_append(&d[i], s, 20 * s + 9, 3, NULL, NULL) == CELLAR_OK);
        CHECK(drive_snapshot_take(&pictures[i], d[i].memory));
    }
    CHECK(drive_snapshot_equal(&pictures[0], &pictures[1], why)); /* the same cells, too */
    for (int i = 0; i < 2; i++) {
        drive_snapshot_free(&pictures[i]);
        drive_close(&d[i]);
    }
}

static void share_over_pools(drive *d, void *argument)
{
    static const cellar_token token = 5;
    static const uint32_t seq_begin[] = {0, 2};
    static const cellar_seq seqs[] = {A, B};
    cellar_error error = {0};
    (void)argument;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.tokens = &token;
    batch.seq_begin = seq_begin;
    batch.seqs = seqs;
    CHECK(play_step(d, &batch, NULL, &error) != CELLAR_OK);
    CHECK(error.reason == CELLAR_REASON_POOLS && error.at == 0 && error.message[0]);
}

static void d13(void)
{
    static const cellar_token token = 5;
    static const uint32_t seq_begin[] = {0, 2};
    static const cellar_seq seqs[] = {A, C};
    drive d;
    open_pools(&d, 2, 16, 4);
    CHECK(play_append(&d, A, 0, 3, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, C, 0, -1, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, share_over_pools, NULL)); /* a cell lies in one pool */
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.tokens = &token;
    batch.seq_begin = seq_begin;
    batch.seqs = seqs;
    CHECK(play_step(&d, &batch, NULL, NULL) == CELLAR_OK);
    CHECK(play_count_cells(&d, 0, 0) == 4 && same_rows(&d, A, C, 0, 4));
    drive_close(&d);
}

/* ---- D32: position buckets in every pool ----------------------------------------------------- */

static void d32(void)
{
    enum { N = 30, BUCKETS = 8 };
    drive d;
    float bias[BUCKETS * 4];
    cellar_token tokens[3 * N], each[N];
    cellar_seq seqs[3 * N];
    cellar_config config = scenario_config(3 * 64, 16);
    drive_fill(bias, BUCKETS * 4, 32);
    memset(&d, 0, sizeof d);
    d.seed = 62;
    d.n_layers = 1;
    d.layers[0] = drive_layer(4, 2, 8, 8);
    d.layers[0].buckets = (cellar_buckets){BUCKETS, 20, false, bias};
    config.n_pools = 3;
    scenario_make(&d, &config);
    size_t row = play_row_size(&d);
    float *got = drive_grab(3 * N * row, sizeof *got), *one = drive_grab(N * row, sizeof *one);
    for (int32_t i = 0; i < 3 * N; i++) {
        seqs[i] = i % 3;
        tokens[i] = 100 * (i % 3) + i / 3;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 3 * N;
    batch.tokens = tokens;
    batch.seqs = seqs;
    CHECK(play_step(&d, &batch, got, NULL) == CELLAR_OK);
    for (cellar_seq s = A; s <= C; s++) {
        for (size_t i = 0; i < N; i++)
            memcpy(one + i * row, got + (3 * i + (size_t)s) * row, row * sizeof *got);
        scenario_tokens(each, 100 * s, N);
        CHECK(scenario_answers_plainly(&d, &config, each, N, one, N));
    }
    CHECK(scenario_all_finite(got, 3 * N * row));
    free(got);
    free(one);
    drive_close(&d);
}

/* ---- D38: how batches are cut ---------------------------------------------------------------- */

enum { BATCH = 40, SEQUENCES = 11 };

/* Each token once, each sequence in order; what is promised of segments holds. */
static void check_split(const drive *d, cellar_split split, uint32_t n_ubatch,
                        const cellar_seq *seqs)
{
    uint32_t n_seen = 0, last_of[SEQUENCES] = {0};
    bool is_seen[BATCH] = {0};
    for (uint32_t u = 0; u < cellar_count_ubatches(d->memory); u++) {
        cellar_ubatch ubatch;
        CHECK(cellar_get_ubatch(d->memory, u, &ubatch, NULL) == CELLAR_OK);
        CHECK(ubatch.n_tokens >= 1 && ubatch.n_tokens <= n_ubatch);
        uint32_t n_covered = 0;
        for (uint32_t s = 0; s < ubatch.n_segments; s++) {
            const cellar_segment *segment = &ubatch.segments[s];
            CHECK(segment->first == n_covered && segment->n_tokens >= 1);
            if (split == CELLAR_SPLIT_EQUAL)
                CHECK(segment->n_tokens == ubatch.segments[0].n_tokens);
            for (uint32_t i = 0; i < segment->n_tokens; i++)
                CHECK(seqs[ubatch.indices[n_covered + i]] == segment->seq);
            n_covered += segment->n_tokens;
        }
        CHECK(n_covered == ubatch.n_tokens);
        CHECK(split != CELLAR_SPLIT_BY_SEQUENCE || ubatch.n_segments == 1);
        for (uint32_t i = 0; i < ubatch.n_tokens; i++) {
            uint32_t token = ubatch.indices[i];
            CHECK(token < BATCH && !is_seen[token]);
            CHECK(last_of[seqs[token]] <= token);
            last_of[seqs[token]] = token;
            is_seen[token] = true;
            n_seen++;
        }
    }
    CHECK(n_seen == BATCH);
}

static void split_once(cellar_split split, uint32_t n_pools, uint32_t n_ubatch)
{
    drive d;
    cellar_token tokens[BATCH];
    cellar_seq seqs[BATCH];
    cellar_config config = scenario_config(n_pools * 64, n_ubatch);
    memset(&d, 0, sizeof d);
    d.seed = 63;
    d.n_layers = 1;
    d.layers[0] = scenario_layer(CELLAR_F32, 8);
    config.n_pools = n_pools;
    config.split = split;
    scenario_make(&d, &config);
    for (int32_t i = 0; i < BATCH; i++) { /* 0 0 0 ... has most, 10 has one */
        seqs[i] = i < SEQUENCES ? SEQUENCES - 1 - i : i * i % 7;
        tokens[i] = i;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = BATCH;
    batch.tokens = tokens;
    batch.seqs = seqs;
    float *got = drive_grab(BATCH * play_row_size(&d), sizeof *got);
    float *one = drive_grab(BATCH * play_row_size(&d), sizeof *one);
    CHECK(play_compute(&d, &batch, got, NULL) == CELLAR_OK);
    check_split(&d,
                split         ? split
                : n_pools > 1 ? CELLAR_SPLIT_EQUAL
                              : CELLAR_SPLIT_SIMPLE,
                n_ubatch, seqs);
    CHECK(cellar_commit(d.memory, NULL) == CELLAR_OK);
    for (cellar_seq s = 0; s < SEQUENCES; s++) {
        cellar_token each[BATCH];
        uint32_t n = 0;
        for (uint32_t i = 0; i < BATCH; i++) {
            if (seqs[i] != s) continue;
            memcpy(one + n * play_row_size(&d), got + i * play_row_size(&d),
                   play_row_size(&d) * sizeof *one);
            each[n++] = tokens[i];
        }
        CHECK(scenario_answers_plainly(&d, &config, each, n, one, n));
    }
    free(got);
    free(one);
    drive_close(&d);
}

static void d38(void)
{
    for (uint32_t n_ubatch = 1; n_ubatch <= 12; n_ubatch++) {
        split_once(CELLAR_SPLIT_EQUAL, 1, n_ubatch);
        split_once(CELLAR_SPLIT_EQUAL, 11, n_ubatch);
        split_once(CELLAR_SPLIT_BY_SEQUENCE, 1, n_ubatch);
        split_once(CELLAR_SPLIT_AUTO, 2, n_ubatch);
        split_once(CELLAR_SPLIT_SIMPLE, 2, n_ubatch);
        split_once(CELLAR_SPLIT_AUTO, 1, n_ubatch);
    }
}

const scenario scenarios_pools[] = {
    {"S07 a part is copied between streams and belongs to its sequence alone", s07},
    {"S07 a query of either stream sees its own keys", s07_sees},
    {"D2 any range goes from pool to pool, an empty one is nothing", d2},
    {"D2 a shifted sequence goes to another pool as it stands", d2_shifted},
    {"D2 windows and states go to another pool with their sequence", d2_window},
    {"D8 keep leaves one sequence in all pools", d8},
    {"D9 a copy between pools does not happen later", d9},
    {"D11 a refused batch does not change where the next ones go", d11},
    {"D13 a token lies in one pool, for all sequences of it", d13},
    {"D31 a copy between pools moves the rows of its range", d31},
    {"D32 position buckets work in every pool", d32},
    {"D38 batches are cut as promised, and nobody sees how", d38},
    {NULL, NULL},
};
