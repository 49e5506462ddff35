/*
 * scenarios_basic.c: S01, S02, S08, S10, and of S12 and S19 what applies to one pool of full
 * attention, step by step as they are written. Sequences A, B, C, ... are 0, 1, 2, ...
 *
 * A check that does not hold is noted with its place and the scenario goes on (scenarios.h).
 */
#include "scenarios.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, C, D, E };

/* ---- S01: holes are usable space ------------------------------------------------------------- */

/* Tokens 10 s .. 10 s + 3 of sequences A to D, one at a time, in turn: the pool of 16 is full. */
static void fill_in_turn(drive *d)
{
    for (int32_t i = 0; i < 4; i++)
        for (cellar_seq s = A; s <= D; s++)
            CHECK(drive_append(d, s, 10 * s + i, 1, NULL) == CELLAR_OK);
}

static void s01(void)
{
    drive d, alone;
    scenario_open_rotating(&d, CELLAR_F32, 16, 4);
    scenario_open_rotating(&alone, CELLAR_F32, 64, 4);
    fill_in_turn(&d);
    CHECK(scenario_used(&d) == 16);
    CHECK(cellar_remove(d.memory, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d.memory, D, 0, -1, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 8);

    float got[9 * 32], want[9 * 32];
    CHECK(drive_append(&d, E, 40, 8, got) == CELLAR_OK);
    CHECK(drive_append(&alone, E, 40, 8, want) == CELLAR_OK);
    CHECK(scenario_same_bits(got, want, 8 * d.out_size));
    CHECK(scenario_used(&d) == 16);
    CHECK(cellar_position_min(d.memory, A) == 0 && cellar_position_max(d.memory, A) == 3);
    CHECK(cellar_position_min(d.memory, C) == 0 && cellar_position_max(d.memory, C) == 3);
    CHECK(drive_append(&d, E, 48, 1, NULL) == CELLAR_FULL);
    CHECK(scenario_used(&d) == 16 && cellar_position_max(d.memory, E) == 7);

    /* The same result for A and C: asked after a cell of E was given back. */
    CHECK(cellar_remove(d.memory, E, 7, -1, NULL) == CELLAR_OK);
    fill_in_turn(&alone);
    for (cellar_seq s = A; s <= C; s += 2) {
        CHECK(drive_probe(&d, s, 99, got) == CELLAR_OK);
        CHECK(drive_probe(&alone, s, 99, want) == CELLAR_OK);
        CHECK(scenario_same_bits(got, want, d.out_size));
    }
    drive_close(&d);
    drive_close(&alone);
}

static void s01_sees(void)
{
    drive d;
    bool seen[SCENARIO_IDS];
    scenario_open_counting(&d, 16, 4);
    for (int32_t i = 0; i < 4; i++)
        for (cellar_seq s = A; s <= D; s++)
            CHECK(scenario_append(&d, s, 10 * s + i, 1, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d.memory, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d.memory, D, 0, -1, NULL) == CELLAR_OK);
    CHECK(scenario_append(&d, E, 40, 8, seen) == CELLAR_OK);
    CHECK(scenario_count(seen) == 8);
    for (int32_t i = 40; i < 48; i++)
        CHECK(seen[i]);
    drive_close(&d);
}

/* ---- S02: a batch that does not fit changes nothing ------------------------------------------ */

static void append_five(drive *d, void *argument)
{
    (void)argument;
    CHECK(drive_append(d, A, 30, 5, NULL) == CELLAR_FULL);
}

static void append_mixed(drive *d, void *argument)
{
    const cellar_seq seqs[] = {A, B, B, B, B};
    const cellar_token tokens[] = {30, 100, 101, 102, 103};
    const cellar_pos positions[] = {30, 0, 1, 2, 3};
    cellar_error error = {0};
    (void)argument;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 5;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.seqs = seqs;
    CHECK(drive_step(d, &batch, NULL, &error) == CELLAR_FULL);
    CHECK(error.status == CELLAR_FULL && error.at == 3);
}

static void s02(void)
{
    drive d;
    scenario_open_rotating(&d, CELLAR_F32, 32, 2);
    CHECK(drive_append(&d, A, 0, 30, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, append_five, NULL));
    CHECK(scenario_used(&d) == 30 && cellar_position_max(d.memory, A) == 29);
    CHECK(scenario_leaves_unchanged(&d, append_mixed, NULL));
    CHECK(cellar_position_max(d.memory, B) == -1 && scenario_used(&d) == 30);
    CHECK(drive_append(&d, A, 30, 2, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 32 && cellar_position_max(d.memory, A) == 31);
    drive_close(&d);
}

/* ---- S08: shared prefix: counting owners ----------------------------------------------------- */

static void s08(void)
{
    drive d;
    bool seen[SCENARIO_IDS];
    scenario_open_counting(&d, 32, 8);
    CHECK(scenario_append(&d, A, 0, 10, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 10);
    uint64_t rows = scenario_rows_written(&d);
    CHECK(cellar_copy(d.memory, A, B, 0, 8, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 10 && scenario_rows_written(&d) == rows);
    CHECK(scenario_append(&d, B, 28, 4, seen) == CELLAR_OK);
    CHECK(scenario_used(&d) == 14);
    CHECK(scenario_count(seen) == 12 && !seen[8] && !seen[9] && seen[7] && seen[28] && seen[31]);
    CHECK(cellar_remove(d.memory, A, 0, -1, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 12);
    CHECK(cellar_remove(d.memory, B, 0, 4, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 8);
    CHECK(cellar_position_min(d.memory, B) == 4 && cellar_position_max(d.memory, B) == 11);
    drive_close(&d);
}

/* ---- S10: context shift arithmetic and bad arguments ----------------------------------------- */

static void s10(void)
{
    drive d;
    cellar_pos discarded = -1;
    scenario_open_rotating(&d, CELLAR_F32, 16, 4);
    CHECK(drive_append(&d, A, 0, 16, NULL) == CELLAR_OK);
    CHECK(drive_append(&d, A, 16, 1, NULL) == CELLAR_FULL);
    CHECK(cellar_shift_context(d.memory, A, 4, 0, &discarded, NULL) == CELLAR_OK);
    CHECK(discarded == 6 && cellar_position_max(d.memory, A) == 9);
    CHECK(drive_append(&d, A, 16, 1, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 11 && cellar_position_max(d.memory, A) == 10);

    float k[16];
    double want[8];
    CHECK(cellar_read_rows(d.memory, A, 0, 4, 1, k, NULL, NULL) == CELLAR_OK);
    scenario_expected_key(&d, 10, 4, 4,
                          want); /* the raw key of the old position 10, rotated for 4 */
    for (uint32_t i = 0; i < 8; i++)
        CHECK(fabs(k[i] - want[i]) < 1e-5);

    CHECK(drive_append(&d, A, 17, 5, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 16);
    CHECK(drive_append(&d, A, 22, 1, NULL) == CELLAR_FULL);
    CHECK(cellar_shift_context(d.memory, A, 4, 0, &discarded, NULL) == CELLAR_OK && discarded == 6);
    CHECK(drive_append(&d, A, 22, 1, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 11);
    drive_close(&d);
}

static void shift_wrongly(drive *d, void *argument)
{
    const cellar_pos *call = argument;
    cellar_error error = {0};
    CHECK(cellar_shift_context(d->memory, A, call[0], call[1], NULL, &error) == CELLAR_INVALID);
    CHECK(error.status == CELLAR_INVALID && error.message[0]);
}

static void range_wrongly(drive *d, void *argument)
{
    (void)argument;
    CHECK(cellar_remove(d->memory, A, 5, 4, NULL) == CELLAR_INVALID);
    CHECK(cellar_shift(d->memory, A, 5, 4, 1, NULL) == CELLAR_INVALID);
    CHECK(cellar_copy(d->memory, A, B, 5, 4, NULL) == CELLAR_INVALID);
}

static void s10_arguments(void)
{
    cellar_pos wrong[][2] = {{4, -5}, {4, 13}, {4, INT32_MAX}, {17, 0}, {-1, 0}, {16, 0}, {15, 0}};
    drive d;
    cellar_pos discarded = -1;
    scenario_open_rotating(&d, CELLAR_F32, 16, 4);
    CHECK(drive_append(&d, A, 0, 16, NULL) == CELLAR_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(scenario_leaves_unchanged(&d, shift_wrongly, wrong[i]));
    CHECK(scenario_leaves_unchanged(&d, range_wrongly, NULL));
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, B, 4, 0, &discarded, NULL) == CELLAR_OK && discarded == 6);
    CHECK(cellar_copy(d.memory, A, C, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, C, 4, 12, &discarded, NULL) == CELLAR_OK &&
          discarded == 12);
    CHECK(cellar_position_min(d.memory, C) == 0 && cellar_position_max(d.memory, C) == 3);
    drive_close(&d);
}

/* ---- S12: a shift turns and does not stretch ------------------------------------------------- */

static void check_key(const drive *d, cellar_pos pos, const double *want)
{
    float k[4];
    CHECK(cellar_read_rows(d->memory, A, 0, pos, 1, k, NULL, NULL) == CELLAR_OK);
    for (uint32_t i = 0; i < 4; i++)
        CHECK(fabs(k[i] - want[i]) < 1e-4);
}

static void s12(void)
{
    static const double at_10[] = {-0.9614, 0.7182, 1.1996, 0.0300};
    static const double at_4[] = {0.6484, 1.0098, 1.1999, 0.0120};
    const float k[] = {1, 0, 1, 0}, v[] = {1};
    const cellar_pos position = 10;
    drive d;
    memset(&d, 0, sizeof d);
    d.n_layers = 1;
    d.layers[0] = drive_layer(1, 1, 4, 1);
    d.layers[0].rope.kind =
        CELLAR_ROPE_NORMAL; /* angles 1 and 0.01 a position: base 10000, 2 pairs */
    d.layers[0].rope.scale = 0.25;
    d.layers[0].rope.yarn_attn = 1.2;
    scenario_open(&d, 4, 1);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.positions = &position;
    CHECK(cellar_begin(d.memory, &batch, NULL) == CELLAR_OK);
    CHECK(cellar_store(d.memory, 0, 0, k, v, NULL) == CELLAR_OK);
    CHECK(cellar_commit(d.memory, NULL) == CELLAR_OK);
    check_key(&d, 10, at_10);
    CHECK(cellar_shift(d.memory, A, 0, -1, -6, NULL) == CELLAR_OK);
    check_key(&d, 4, at_4);

    float row[4];
    double norm = 0;
    CHECK(cellar_read_rows(d.memory, A, 0, 4, 1, row, NULL, NULL) == CELLAR_OK);
    for (uint32_t i = 0; i < 4; i++)
        norm += (double)row[i] * row[i];
    CHECK(fabs(sqrt(norm) - 1.6971) < 1e-4);
    drive_close(&d);
}

/* ---- S19: NaN in free cells never reaches an output ------------------------------------------ */

static const unsigned char not_a_number = 0xff;

static void s19_type(cellar_type type)
{
    drive d;
    memset(&d, 0, sizeof d);
    d.n_layers = 1;
    d.layers[0] = drive_layer(4, 2, 24, 20);
    d.layers[0].rope.kind = CELLAR_ROPE_NORMAL;
    d.layers[0].k_type = d.layers[0].v_type = type;
    cellar_config config = cellar_config_init();
    config.n_cells = 32;
    config.n_ubatch = 4;
    config.allocator = scenario_allocator(&not_a_number);
    CHECK(drive_open(&d, &config, NULL) == CELLAR_OK);
    float *out = drive_grab(12 * d.out_size, sizeof *out);
    for (int32_t i = 0; i < 4; i++) { /* in turn, so that cells of both lie between free ones */
        CHECK(drive_append(&d, A, i, 1, out) == CELLAR_OK && scenario_all_finite(out, d.out_size));
        CHECK(drive_append(&d, B, 50 + i, 1, out) == CELLAR_OK &&
              scenario_all_finite(out, d.out_size));
    }
    CHECK(cellar_remove(d.memory, A, 1, 3, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 3, -1, -2, NULL) == CELLAR_OK);
    CHECK(drive_append(&d, A, 7, 12, out) == CELLAR_OK);
    CHECK(scenario_all_finite(out, 12 * d.out_size));
    free(out);
    drive_close(&d);
}

static void s19_free(void)
{
    s19_type(CELLAR_F32);
    s19_type(CELLAR_F16);
}

/* Store a row of NaN at the end of a sequence. */
static cellar_status append_nan(drive *d, cellar_seq seq)
{
    float k[16], v[16];
    for (uint32_t i = 0; i < 16; i++)
        k[i] = v[i] = NAN;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.seqs = &seq;
    cellar_status status = cellar_begin(d->memory, &batch, NULL);
    if (status == CELLAR_OK) status = cellar_store(d->memory, 0, 0, k, v, NULL);
    return status == CELLAR_OK ? cellar_commit(d->memory, NULL) : status;
}

static void s19_neighbours(void)
{
    drive d, alone;
    float got[32], want[32];
    scenario_open_rotating(&d, CELLAR_F16, 24, 4);
    scenario_open_rotating(&alone, CELLAR_F16, 64, 4);
    for (int32_t i = 0; i < 10; i++) { /* B's rows are NaN, and lie between those of A */
        CHECK(append_nan(&d, B) == CELLAR_OK);
        CHECK(drive_append(&d, A, i, 1, got) == CELLAR_OK);
        CHECK(drive_append(&alone, A, i, 1, want) == CELLAR_OK);
        CHECK(scenario_same_bits(got, want, d.out_size));
    }
    CHECK(cellar_remove(d.memory, B, 0, -1, NULL) == CELLAR_OK); /* and now in free cells */
    CHECK(drive_append(&d, A, 10, 4, NULL) == CELLAR_OK);
    CHECK(drive_append(&alone, A, 10, 4, NULL) == CELLAR_OK);
    CHECK(drive_probe(&d, A, 99, got) == CELLAR_OK &&
          drive_probe(&alone, A, 99, want) == CELLAR_OK);
    CHECK(scenario_same_bits(got, want, d.out_size));
    drive_close(&d);
    drive_close(&alone);
}

const scenario scenarios_basic[] = {
    {"S01 holes are usable space, and nobody notices", s01},
    {"S01 a query sees exactly its own tokens", s01_sees},
    {"S02 a batch that does not fit changes nothing", s02},
    {"S08 a shared prefix is counted once and freed by its last owner", s08},
    {"S10 context shift: what is kept, dropped and moved", s10},
    {"S10 context shift: bad arguments change nothing", s10_arguments},
    {"S12 a shift turns a scaled key and does not stretch it", s12},
    {"S19 NaN in free cells never reaches an output", s19_free},
    {"S19 NaN of another sequence never reaches an output", s19_neighbours},
    {NULL, NULL},
};
