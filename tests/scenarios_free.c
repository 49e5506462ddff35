/*
 * scenarios_free.c: S19, the part about memory: whatever lies in free cells, NaN above all, never
 * reaches an output, for every kind of group and every row type.
 *
 * One story of appending, forking, removing, shifting and aborting is told twice, in memory that is
 * filled with NaN before use and in memory that is filled with zeros. All outputs must be finite,
 * and equal to the last bit. What a neighbour wrote, NaN too, must not be seen either.
 */
#include "scenarios.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, C, D };
#define ROUNDS 40

static const cellar_type every_type[] = {CELLAR_F32,  CELLAR_F16,  CELLAR_BF16,
                                         CELLAR_Q8_0, CELLAR_Q5_1, CELLAR_Q5_0,
                                         CELLAR_Q4_1, CELLAR_Q4_0, CELLAR_IQ4_NL};
enum { TYPES = sizeof every_type / sizeof *every_type };

static const uint32_t state_sizes[] = {16, 32};

/* One round of the story. Refusals are part of it: what matters is that both tellings agree. */
static cellar_status play_round(drive *d, uint64_t *state, cellar_token first, float *out,
                                uint32_t *n_out)
{
    cellar_seq seq = (cellar_seq)random_below(state, 4), other = (cellar_seq)random_below(state, 4);
    cellar_pos end = cellar_position_max(d->memory, seq) + 1;
    cellar_pos p0 = (cellar_pos)random_below(state, (uint32_t)end + 1);
    cellar_pos from;
    switch (random_below(state, 10)) {
    case 0:
        return cellar_copy(d->memory, seq, other, 0, -1, NULL);
    case 1:
        return cellar_remove(d->memory, seq, 0, -1, NULL);
    case 2:
        return cellar_remove(d->memory, seq, p0, p0 + 3, NULL);
    case 3:
        return cellar_shift(d->memory, seq, p0, -1, 3, NULL);
    case 4:
        return cellar_rewind(d->memory, seq, p0, &from, NULL);
    case 5:
        *n_out = 1;
        return play_probe(d, seq, first, out);
    default:
        *n_out = 1 + random_below(state, 9);
        return play_append(d, seq, first, *n_out, out, NULL);
    }
}

typedef struct telling {
    float *out; /* all outputs, one after another */
    size_t n;
    cellar_status statuses[ROUNDS];
} telling;

static void tell(drive *d, const cellar_config *config, unsigned char fill, telling *t)
{
    uint64_t state = 19;
    cellar_config filled = *config;
    filled.allocator = scenario_allocator(&fill);
    scenario_make(d, &filled);
    size_t row = play_row_size(d);
    float *out = drive_grab(9 * row, sizeof *out);
    t->out = drive_grab(ROUNDS * 9 * row, sizeof *t->out);
    t->n = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t n = 0;
        t->statuses[round] = play_round(d, &state, 100 * (cellar_token)round, out, &n);
        if (t->statuses[round] != CELLAR_OK) continue;
        memcpy(t->out + t->n, out, n * row * sizeof *out);
        t->n += n * row;
    }
    CHECK(cellar_check(d->memory, NULL) == CELLAR_OK);
    free(out);
    drive_close(d);
}

/* Tell the story of these layers in both memories. */
static void check_story(drive *d, const cellar_config *config)
{
    telling nan, zero;
    tell(d, config, 0xff, &nan);
    tell(d, config, 0x00, &zero);
    CHECK(memcmp(nan.statuses, zero.statuses, sizeof nan.statuses) == 0);
    CHECK(nan.n == zero.n && nan.n >= 20 * play_row_size(d));
    CHECK(scenario_all_finite(nan.out, nan.n));
    CHECK(scenario_same_bits(nan.out, zero.out, nan.n < zero.n ? nan.n : zero.n));
    free(nan.out);
    free(zero.out);
}

static void start(drive *d, cellar_config *config)
{
    memset(d, 0, sizeof *d);
    d->seed = 91;
    d->n_layers = 1;
    *config = scenario_config(96, 4);
    config->n_sequences = 4;
}

static void every_row_type(void)
{
    for (uint32_t i = 0; i < TYPES; i++) {
        drive d;
        cellar_config config;
        start(&d, &config);
        d.n_layers = 2; /* a full layer, and a window with the types the other way round */
        d.layers[0] = scenario_layer(every_type[i], 32);
        d.layers[0].v_type = every_type[(i + 3) % TYPES];
        d.layers[1] = scenario_layer(every_type[i], 64);
        d.layers[1].window = (cellar_window){CELLAR_WINDOW_STANDARD, 6, 0};
        check_story(&d, &config);
    }
}

static void every_window(void)
{
    static const cellar_window windows[] = {{CELLAR_WINDOW_NONE, 0, 0},
                                            {CELLAR_WINDOW_STANDARD, 5, 0},
                                            {CELLAR_WINDOW_STANDARD, 5, 2},
                                            {CELLAR_WINDOW_CHUNKED, 6, 0},
                                            {CELLAR_WINDOW_SYMMETRIC, 7, 0}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (int is_causal = 0; is_causal < 2; is_causal++)
            for (uint32_t n_pools = 1; n_pools <= 2; n_pools++) {
                drive d;
                cellar_config config;
                start(&d, &config);
                d.layers[0] = scenario_layer(CELLAR_F32, 8);
                d.layers[0].window = windows[i];
                d.layers[0].is_causal = is_causal;
                config.n_pools = n_pools;
                check_story(&d, &config);
            }
}

static void every_feature(void)
{
    static const float sinks[] = {0.5f, -1, 2, 0};
    float bias[8 * 4];
    drive_fill(bias, 32, 7);
    for (int i = 0; i < 8; i++) {
        drive d;
        cellar_config config;
        start(&d, &config);
        cellar_layer *layer = &d.layers[0];
        *layer = scenario_layer(CELLAR_F16, 32);
        if (i == 0) layer->softcap = 2;
        if (i == 1) layer->sinks = sinks;
        if (i == 2) layer->alibi_max_bias = 8;
        if (i == 3) layer->buckets = (cellar_buckets){8, 20, false, bias};
        if (i == 4) layer->rotate_k = layer->rotate_v = true;
        if (i == 5) {
            *layer = drive_layer(4, 1, 96, 64);
            layer->v_in_k = true;
            layer->rope = scenario_layer(CELLAR_F32, 8).rope;
            layer->rope.first = 64;
            layer->rope.n_rot = 32;
        }
        if (i == 6) {
            layer->rope.kind = CELLAR_ROPE_MROPE;
            layer->rope.sections[0] = 8;
            layer->rope.sections[1] = layer->rope.sections[2] = 4;
        }
        if (i == 7) {
            d.n_layers = 2;
            d.layers[1] = *layer;
            d.layers[1].reads_layer = 0;
        }
        check_story(&d, &config);
    }
}

static void recurrent(void)
{
    for (uint32_t n_rollback = 0; n_rollback < 4; n_rollback += 3) {
        drive d;
        cellar_config config;
        start(&d, &config);
        d.n_layers = 3;
        d.layers[0] = play_recurrent_layer(state_sizes, 2);
        d.layers[1] = scenario_layer(CELLAR_Q8_0, 32);
        d.layers[2] = play_recurrent_layer(state_sizes, 1);
        config.rollback_bytes = n_rollback * play_state_bytes(&d);
        config.checkpoint_bytes = 4 * play_state_bytes(&d);
        config.checkpoint_interval = 8;
        check_story(&d, &config);
    }
}

/* ---- what a neighbour wrote ------------------------------------------------------------------ */

/* Store a row of NaN in every layer at the end of a sequence. */
static cellar_status append_nan(drive *d, cellar_seq seq)
{
    float k[64], v[64];
    for (uint32_t i = 0; i < 64; i++)
        k[i] = v[i] = NAN;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.seqs = &seq;
    cellar_status status = cellar_begin(d->memory, &batch, NULL);
    for (uint32_t l = 0; l < d->n_layers && status == CELLAR_OK; l++)
        status = cellar_store(d->memory, 0, l, k, v, NULL);
    return status == CELLAR_OK ? cellar_commit(d->memory, NULL) : status;
}

static void neighbours(void)
{
    for (uint32_t i = 0; i < TYPES; i++) {
        drive d, alone;
        cellar_config config;
        float *got, *want;
        start(&d, &config);
        d.n_layers = 2;
        d.layers[0] = scenario_layer(every_type[i], 32);
        d.layers[1] = scenario_layer(every_type[i], 32);
        d.layers[1].window = (cellar_window){CELLAR_WINDOW_STANDARD, 6, 0};
        alone = d;
        scenario_make(&d, &config);
        scenario_make(&alone, &config);
        got = drive_grab(play_row_size(&d), sizeof *got);
        want = drive_grab(play_row_size(&d), sizeof *want);
        for (int32_t j = 0; j < 24; j++) { /* B's rows lie between those of A */
            CHECK(append_nan(&d, B) == CELLAR_OK);
            CHECK(play_append(&d, A, j, 1, got, NULL) == CELLAR_OK);
            CHECK(play_append(&alone, A, j, 1, want, NULL) == CELLAR_OK);
            CHECK(scenario_same_bits(got, want, play_row_size(&d)));
            CHECK(scenario_all_finite(got, play_row_size(&d)));
        }
        CHECK(cellar_remove(d.memory, B, 0, -1, NULL) == CELLAR_OK); /* now in free cells */
        CHECK(play_append(&d, A, 50, 7, NULL, NULL) == CELLAR_OK);
        CHECK(play_append(&alone, A, 50, 7, NULL, NULL) == CELLAR_OK);
        CHECK(play_probe(&d, A, 99, got) == CELLAR_OK);
        CHECK(play_probe(&alone, A, 99, want) == CELLAR_OK);
        CHECK(scenario_same_bits(got, want, play_row_size(&d)));
        free(got);
        free(want);
        drive_close(&d);
        drive_close(&alone);
    }
}

const scenario scenarios_free[] = {
    {"S19 NaN in free cells: every row type, with and without a window", every_row_type},
    {"S19 NaN in free cells: every window, causal and not, one pool and two", every_window},
    {"S19 NaN in free cells: every feature of attention", every_feature},
    {"S19 NaN in free states: recurrent layers, rollback and checkpoints", recurrent},
    {"S19 NaN that a neighbour stored: every row type", neighbours},
    {NULL, NULL},
};
