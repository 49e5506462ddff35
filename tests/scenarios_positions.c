/*
 * scenarios_positions.c: S12 to its end, and the faults D1, D29 and D34: positions that are divided,
 * shifted in two dimensions, and keys that are rotated again where they lie.
 *
 * What a division must give is computed by brute force in double precision: keys stored for one
 * position and standing at another (attention_model.h says how far an f32 result may be away).
 */
#include "scenarios.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, C };
#define MOST 128

static uint32_t count_shifts(const drive *d, cellar_seq seq)
{
    cellar_sequence_info info = {0};
    CHECK(cellar_get_sequence(d->memory, seq, &info, NULL) == CELLAR_OK);
    return info.n_shifts;
}

static void open_dividing(drive *d, uint32_t max_shifts)
{
    cellar_config config = scenario_config(256, 8);
    memset(d, 0, sizeof *d);
    d->seed = 71;
    d->n_layers = 1;
    d->layers[0] = scenario_layer(CELLAR_F32, 8);
    config.max_shifts = max_shifts;
    scenario_make(d, &config);
}

/* The worst difference of what token 900 gives at `pos` when n tokens stand at these positions. */
static double worst_at(drive *d, cellar_seq seq, cellar_pos pos, const scenario_key *keys,
                       uint32_t n)
{
    scenario_key all[MOST];
    float got[32];
    memcpy(all, keys, n * sizeof *all);
    all[n] = (scenario_key){900, pos, pos};
    cellar_sequence_info info = {0};
    if (cellar_get_sequence(d->memory, seq, &info, NULL) != CELLAR_OK || info.pos_next != pos ||
        play_probe(d, seq, 900, got) != CELLAR_OK)
        return INFINITY;
    return scenario_worst(d, 0, &d->layers[0], 900, pos, all, n + 1, got);
}

/* ---- D1: division turns keys to their new positions ------------------------------------------ */

/* Tokens 0.. n - 1, token i stored for position i and standing at i / divisor from p0 on. */
static uint32_t divided(scenario_key *keys, uint32_t n, cellar_pos p0, cellar_pos divisor)
{
    for (uint32_t i = 0; i < n; i++) {
        cellar_pos p = (cellar_pos)i;
        keys[i] = (scenario_key){p, p, p < p0 ? p : p / divisor};
    }
    return n;
}

static void d1(void)
{
    static const cellar_pos divisors[] = {2, 3, 4, 7, 40, 1000};
    for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++) {
        drive d;
        scenario_key keys[MOST], plain[MOST];
        cellar_pos divisor = divisors[i];
        open_dividing(&d, 0);
        CHECK(play_append(&d, A, 0, 40, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
        CHECK(cellar_divide(d.memory, A, 0, -1, divisor, NULL) == CELLAR_OK);
        CHECK(cellar_position_max(d.memory, A) == 39 / divisor);
        CHECK(worst_at(&d, A, 39 / divisor + 1, keys, divided(keys, 40, 0, divisor)) < 1);
        CHECK(worst_at(&d, B, 40, plain, divided(plain, 40, 0, 1)) < 1); /* the twin stays */
        CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
        drive_close(&d);
    }
}

/* Divided twice, shifted in between: each token stands where arithmetic says. */
static void d1_again(void)
{
    drive d;
    scenario_key keys[MOST];
    open_dividing(&d, 0);
    CHECK(play_append(&d, A, 0, 40, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_divide(d.memory, A, 0, -1, 2, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 0, -1, 5, NULL) == CELLAR_OK);
    CHECK(cellar_divide(d.memory, A, 0, -1, 3, NULL) == CELLAR_OK);
    for (cellar_pos i = 0; i < 40; i++)
        keys[i] = (scenario_key){i, i, (i / 2 + 5) / 3};
    CHECK(worst_at(&d, A, 9, keys, 40) < 1);
    CHECK(cellar_remove(d.memory, A, 4, -1, NULL) == CELLAR_OK); /* all that share a position */
    uint32_t n = 0;
    while (n < 40 && keys[n].pos < 4)
        n++;
    CHECK(worst_at(&d, A, 4, keys, n) < 1);
    CHECK(scenario_used(&d) == n);
    drive_close(&d);
}

/* Every second token removed first: the rest is what reading it at the new positions would be. */
static void d1_recomputed(void)
{
    drive d, again;
    float k[2][16], v[2][16];
    open_dividing(&d, 0);
    open_dividing(&again, 0);
    CHECK(play_append(&d, A, 0, 32, NULL, NULL) == CELLAR_OK);
    for (cellar_pos p = 1; p < 32; p += 2)
        CHECK(cellar_remove(d.memory, A, p, p + 1, NULL) == CELLAR_OK);
    CHECK(cellar_divide(d.memory, A, 0, -1, 2, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, A) == 15 && scenario_used(&d) == 16);
    for (cellar_pos p = 0; p < 16; p++) {
        CHECK(play_append(&again, A, 2 * p, 1, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_read_rows(d.memory, A, 0, p, 1, k[0], v[0], NULL) == CELLAR_OK);
        CHECK(cellar_read_rows(again.memory, A, 0, p, 1, k[1], v[1], NULL) == CELLAR_OK);
        CHECK(scenario_same_bits(v[0], v[1], 16));
        for (uint32_t i = 0; i < 16; i++)
            CHECK(fabsf(k[0][i] - k[1][i]) < 4e-6f);
    }
    drive_close(&d);
    drive_close(&again);
}

static void divide_wrongly(drive *d, void *argument)
{
    cellar_error error = {0};
    (void)argument;
    CHECK(cellar_divide(d->memory, A, 0, -1, 0, &error) == CELLAR_INVALID && error.message[0]);
    CHECK(cellar_divide(d->memory, A, 0, -1, -2, NULL) == CELLAR_INVALID);
    CHECK(cellar_divide(d->memory, A, 0, -1, INT32_MIN, NULL) == CELLAR_INVALID);
    CHECK(cellar_divide(d->memory, A, 9, 4, 2, NULL) == CELLAR_INVALID);
    CHECK(cellar_divide(d->memory, -1, 0, -1, 2, NULL) == CELLAR_INVALID);
    CHECK(cellar_divide(d->memory, A, 20, -1, 2, &error) == CELLAR_REFUSED); /* 10.. is held */
    CHECK(error.at == 10 && error.reason == CELLAR_REASON_POSITION_HELD);
    CHECK(cellar_divide(d->memory, A, 0, -1, 1, NULL) == CELLAR_OK);
    CHECK(cellar_divide(d->memory, A, 5, 5, 2, NULL) == CELLAR_OK);
    CHECK(cellar_divide(d->memory, 77, 0, -1, 2, NULL) == CELLAR_OK);
}

static void d1_arguments(void)
{
    drive d;
    open_dividing(&d, 0);
    CHECK(play_append(&d, A, 0, 40, NULL, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, divide_wrongly, NULL));
    drive_close(&d);
}

/* Many different shifts are rotated away when a step begins; who shares the cells sees nothing. */
static void d1_settled(void)
{
    drive d;
    scenario_key keys[MOST];
    float before[32], after[32];
    open_dividing(&d, 4);
    CHECK(play_append(&d, A, 0, 40, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(play_probe(&d, B, 950, before) == CELLAR_OK);
    CHECK(cellar_divide(d.memory, A, 0, -1, 2, NULL) == CELLAR_OK);
    CHECK(count_shifts(&d, A) > 4);
    CHECK(play_append(&d, A, 800, 1, NULL, NULL) == CELLAR_OK);
    CHECK(count_shifts(&d, A) <= 4);
    divided(keys, 40, 0, 2);
    for (uint32_t i = 0; i < 40; i++)
        keys[i].stored = keys[i].pos;
    keys[40] = (scenario_key){800, 20, 20};
    CHECK(worst_at(&d, A, 21, keys, 41) < 2); /* keys were rounded twice */
    CHECK(play_probe(&d, B, 950, after) == CELLAR_OK);
    CHECK(scenario_same_bits(before, after, 32));
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    drive_close(&d);
}

/* ---- S12: a shift turns and does not stretch, also where rows are rotated again -------------- */

static void check_key(const drive *d, cellar_seq seq, cellar_pos pos, const double *want)
{
    float k[4];
    double norm = 0;
    CHECK(cellar_read_rows(d->memory, seq, 0, pos, 1, k, NULL, NULL) == CELLAR_OK);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(fabs(k[i] - want[i]) < 1e-4);
        norm += (double)k[i] * k[i];
    }
    CHECK(fabs(sqrt(norm) - 1.6971) < 1e-4);
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
    d.layers[0].rope.kind = CELLAR_ROPE_NORMAL;
    d.layers[0].rope.scale = 0.25;
    d.layers[0].rope.yarn_attn = 1.2;
    scenario_open(&d, 8, 1);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.positions = &position;
    CHECK(cellar_begin(d.memory, &batch, NULL) == CELLAR_OK);
    CHECK(cellar_store(d.memory, 0, 0, k, v, NULL) == CELLAR_OK);
    CHECK(cellar_commit(d.memory, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 0, -1, -6, NULL) == CELLAR_OK);
    check_key(&d, A, 4, at_4);
    CHECK(cellar_settle(d.memory, A, NULL) == CELLAR_OK); /* shared: into a cell of its own */
    CHECK(count_shifts(&d, A) == 0 && scenario_used(&d) == 2);
    check_key(&d, A, 4, at_4);
    check_key(&d, B, 10, at_10);
    for (int i = 0; i < 20; i++) { /* there and back, rewritten where it lies each time */
        CHECK(cellar_shift(d.memory, A, 0, -1, i % 2 ? -6 : 6, NULL) == CELLAR_OK);
        CHECK(cellar_settle(d.memory, A, NULL) == CELLAR_OK);
        check_key(&d, A, i % 2 ? 4 : 10, i % 2 ? at_4 : at_10);
    }
    CHECK(scenario_used(&d) == 2);
    drive_close(&d);
}

static void settle_again(drive *d, void *argument)
{
    (void)argument;
    CHECK(cellar_settle(d->memory, A, NULL) == CELLAR_OK); /* nothing is left to do */
    CHECK(cellar_settle(d->memory, 55, NULL) == CELLAR_OK);
    CHECK(cellar_settle(d->memory, -1, NULL) == CELLAR_INVALID);
}

static void settle_without_room(drive *d, void *argument)
{
    (void)argument;
    CHECK(cellar_settle(d->memory, B, NULL) == CELLAR_FULL);
}

static void s12_settle(void)
{
    drive d;
    scenario_key keys[MOST];
    memset(&d, 0, sizeof d);
    d.seed = 72;
    d.n_layers = 1;
    d.layers[0] = scenario_layer(CELLAR_F32, 8);
    scenario_open(&d, 40, 8);
    CHECK(play_append(&d, A, 0, 30, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, A, 5, 10, NULL, NULL) == CELLAR_OK);
    for (cellar_pos i = 0; i < 20; i++) {
        cellar_pos stored = i < 5 ? i : i + 10;
        keys[i] = (scenario_key){stored, stored, i};
    }
    CHECK(worst_at(&d, A, 20, keys, 20) < 1);
    CHECK(cellar_settle(d.memory, A, NULL) == CELLAR_OK); /* alone: where they lie */
    CHECK(count_shifts(&d, A) == 0 && scenario_used(&d) == 20);
    for (cellar_pos i = 0; i < 20; i++)
        keys[i].stored = keys[i].pos;
    CHECK(worst_at(&d, A, 20, keys, 20) < 2);
    CHECK(scenario_leaves_unchanged(&d, settle_again, NULL));

    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(play_append(&d, A, 500, 5, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, B, 0, -1, 3, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, settle_without_room, NULL)); /* 15 free, 20 shared */
    drive_close(&d);
}

/* ---- D29, D34: two-dimensional positions ----------------------------------------------------- */

static void open_mrope(drive *d)
{
    memset(d, 0, sizeof *d);
    d->seed = 73;
    d->n_layers = 1;
    d->layers[0] = scenario_layer(CELLAR_F32, 8);
    d->layers[0].rope.kind = CELLAR_ROPE_MROPE;
    d->layers[0].rope.sections[0] = 2;
    d->layers[0].rope.sections[1] = 1;
    d->layers[0].rope.sections[2] = 1;
    scenario_open(d, 64, 8);
}

/* Text under M-RoPE is text: shifted, it answers as keys at their new positions do. */
static void d29_text(void)
{
    drive d;
    float got[32];
    scenario_key keys[MOST];
    open_mrope(&d);
    cellar_layer plain = d.layers[0];
    plain.rope.kind = CELLAR_ROPE_NEOX;
    CHECK(play_append(&d, A, 0, 30, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, A, 4, 6, NULL, NULL) == CELLAR_OK);
    for (cellar_pos i = 0; i < 24; i++) {
        cellar_pos stored = i < 4 ? i : i + 6;
        keys[i] = (scenario_key){stored, stored, i};
    }
    keys[24] = (scenario_key){900, 24, 24};
    CHECK(play_probe(&d, A, 900, got) == CELLAR_OK);
    CHECK(scenario_worst(&d, 0, &plain, 900, 24, keys, 25, got) < 1);
    CHECK(cellar_settle(d.memory, A, NULL) == CELLAR_OK);
    CHECK(play_probe(&d, A, 900, got) == CELLAR_OK);
    CHECK(scenario_worst(&d, 0, &plain, 900, 24, keys, 25, got) < 2);
    drive_close(&d);
}

enum { HEIGHT = 2, WIDTH = 3, IMAGE = HEIGHT * WIDTH };

/* n tokens of text at pos.., then an image at the position behind them, then one more of text. */
static cellar_status read_image(drive *d, cellar_pos pos, cellar_token first, uint32_t n)
{
    cellar_token tokens[MOST];
    cellar_pos positions[MOST];
    cellar_point points[MOST];
    uint32_t all = n + IMAGE + 1;
    cellar_pos at = pos + (cellar_pos)n;
    scenario_tokens(scenario_tokens(tokens, first, n), 200, IMAGE + 1);
    for (uint32_t i = 0; i < all; i++) {
        cellar_pos p = i < n ? pos + (cellar_pos)i : at;
        int32_t j = (int32_t)(i - n);
        positions[i] = i == all - 1 ? at + WIDTH : p;
        points[i] = (cellar_point){positions[i], positions[i]};
        if (i >= n && i < all - 1) points[i] = (cellar_point){at + j / WIDTH, at + j % WIDTH};
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = all;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.points = points;
    return play_step(d, &batch, NULL, NULL);
}

/* Text before an image is forgotten and the image moves: as if it had been read there. */
static void d29_image(void)
{
    drive d, there;
    float got[32], want[32];
    open_mrope(&d);
    open_mrope(&there);
    CHECK(read_image(&d, 0, 0, 6) == CELLAR_OK);
    CHECK(read_image(&there, 0, 4, 2) == CELLAR_OK); /* without tokens 0..3 */
    CHECK(cellar_position_max(d.memory, A) == 6 + WIDTH);
    CHECK(cellar_remove(d.memory, A, 0, 4, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 4, -1, -4, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, A) == 2 + WIDTH && scenario_used(&d) == 2 + IMAGE + 1);
    for (int is_settled = 0; is_settled < 2; is_settled++) {
        CHECK(play_probe(&d, A, 900, got) == CELLAR_OK);
        CHECK(play_probe(&there, A, 900, want) == CELLAR_OK);
        for (uint32_t i = 0; i < 32; i++)
            CHECK(fabsf(got[i] - want[i]) < 4e-6f);
        CHECK(cellar_settle(d.memory, A, NULL) == CELLAR_OK);
    }
    CHECK(cellar_remove(d.memory, A, 2, -1, NULL) == CELLAR_OK); /* the image goes as a whole */
    CHECK(scenario_used(&d) == 2);
    drive_close(&d);
    drive_close(&there);
}

typedef struct points_seen {
    uint32_t n_text, n_image, n_other;
} points_seen;

static bool look_at_point(void *context, const cellar_cell *cell)
{
    points_seen *seen = context;
    bool is_text = cell->point.y == cell->stored_pos && cell->point.x == cell->stored_pos;
    int32_t j = cell->token - 200;
    bool is_image = j >= 0 && j < IMAGE && cell->point.y == cell->stored_pos + j / WIDTH &&
                    cell->point.x == cell->stored_pos + j % WIDTH;
    seen->n_image += is_image;
    seen->n_text += is_text && !is_image;
    seen->n_other += !is_text && !is_image;
    return true;
}

/* Points go with their cells, and a cell that is used again has those of its new token. */
static void d34(void)
{
    drive d;
    points_seen seen = {0};
    open_mrope(&d);
    for (cellar_seq round = 0; round < 3; round++) {
        CHECK(read_image(&d, 0, 0, 6) == CELLAR_OK);
        memset(&seen, 0, sizeof seen);
        CHECK(cellar_visit_cells(d.memory, look_at_point, &seen, NULL) == CELLAR_OK);
        CHECK(seen.n_text == 7 && seen.n_image == IMAGE && seen.n_other == 0);
        /* All of it falls below zero, or is removed; text comes into the cells. */
        if (round == 1) CHECK(cellar_remove(d.memory, A, 0, -1, NULL) == CELLAR_OK);
        if (round != 1) CHECK(cellar_shift(d.memory, A, 0, -1, -20, NULL) == CELLAR_OK);
        CHECK(scenario_used(&d) == 0);
        CHECK(play_append(&d, A, 0, 60, NULL, NULL) == CELLAR_OK);
        memset(&seen, 0, sizeof seen);
        CHECK(cellar_visit_cells(d.memory, look_at_point, &seen, NULL) == CELLAR_OK);
        CHECK(seen.n_text == 60 && seen.n_image == 0 && seen.n_other == 0);
        CHECK(cellar_clear(d.memory, NULL) == CELLAR_OK);
    }
    drive_close(&d);
}

const scenario scenarios_positions[] = {
    {"D1 division turns every key to its new position", d1},
    {"D1 divisions and shifts add up", d1_again},
    {"D1 a divided sequence is as if read at its final positions", d1_recomputed},
    {"D1 bad divisions change nothing", d1_arguments},
    {"D1 many different shifts are rotated away, unseen by a twin", d1_settled},
    {"S12 rotating a key again where it lies does not stretch it", s12},
    {"S12 settling leaves no shift, and needs room only for shared cells", s12_settle},
    {"D29 text with M-RoPE can be shifted", d29_text},
    {"D29 an image moves with its text", d29_image},
    {"D34 points are those of the token in the cell", d34},
    {NULL, NULL},
};
