/*
 * scenarios_windows.c: S04 and S06, and of the faults D10, D12, D14, D15, D16 and D29 what sliding
 * windows have to do with. Going back to a checkpoint is in scenarios_checkpoints.c.
 *
 * What a window has given up cannot be had back, so each way to go on is tried in a fresh memory.
 * "As read plainly": equal to the last bit to a memory that read just these tokens.
 */
#include "scenarios.h"

#include <stdlib.h>
#include <string.h>

enum { A, B, C, D };
#define MOST 512

static void shape(drive *d, cellar_window_kind kind, uint32_t size)
{
    memset(d, 0, sizeof *d);
    d->seed = 31;
    d->n_layers = 1;
    d->layers[0] = scenario_window_layer(kind, size);
}

/* A layer that sees everything, and one with a standard window. */
static void shape_both(drive *d, uint32_t size)
{
    shape(d, CELLAR_WINDOW_NONE, 0);
    d->n_layers = 2;
    d->layers[1] = scenario_window_layer(CELLAR_WINDOW_STANDARD, size);
}

static cellar_sequence_info info_of(const drive *d, cellar_seq seq)
{
    cellar_sequence_info info = {0};
    CHECK(cellar_get_sequence(d->memory, seq, &info, NULL) == CELLAR_OK);
    return info;
}

static bool can_go_on(const drive *d, cellar_seq seq, cellar_pos n)
{
    return cellar_can_continue(d->memory, seq, n, NULL, NULL) == CELLAR_OK;
}

/*
 * Append in steps of one micro-batch: the least room, W + micro-batch, holds what the next token sees
 * if the step is aborted and one micro-batch, but not two.
 */
static cellar_status append(drive *d, cellar_seq seq, cellar_token first, uint32_t n, float *out)
{
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < n && status == CELLAR_OK; i += d->n_ubatch) {
        uint32_t some = n - i < d->n_ubatch ? n - i : d->n_ubatch;
        status = play_append(d, seq, first + (cellar_token)i, some,
                             out ? out + i * play_row_size(d) : NULL, NULL);
    }
    return status;
}

/* It cannot go on at n, and has to be read again from `from`. */
static bool goes_back_to(const drive *d, cellar_seq seq, cellar_pos n, cellar_pos from)
{
    cellar_pos replay = -7;
    return cellar_can_continue(d->memory, seq, n, &replay, NULL) == CELLAR_REPLAY && replay == from;
}

/* ---- S04: how far a window can be rewound ---------------------------------------------------- */

/* All layers have a window of 8 and 12 cells; A holds 20 tokens, of which the last 12 are there. */
static cellar_config open_s04(drive *d)
{
    cellar_config config = scenario_config(64, 4);
    shape(d, CELLAR_WINDOW_STANDARD, 8);
    scenario_make(d, &config);
    CHECK(play_append(d, A, 0, 20, NULL, NULL) == CELLAR_OK);
    return config;
}

static void s04_bound(void)
{
    drive d;
    open_s04(&d);
    CHECK(cellar_position_min(d.memory, A) == 8 && cellar_position_max(d.memory, A) == 19);
    CHECK(scenario_used(&d) == 12);
    CHECK(info_of(&d, A).rewind_min == 15);
    for (cellar_pos n = 15; n <= 20; n++)
        CHECK(can_go_on(&d, A, n));
    for (cellar_pos n = 1; n <= 14; n++)
        CHECK(goes_back_to(&d, A, n, 0));
    CHECK(can_go_on(&d, A, 0));
    CHECK(play_append(&d, B, 100, 3, NULL, NULL) == CELLAR_OK); /* nothing of B is gone */
    CHECK(cellar_position_min(d.memory, B) == 0 && info_of(&d, B).rewind_min == 0);
    drive_close(&d);
}

static void s04_continue(void)
{
    static const cellar_pos places[] = {18, 15, 20, 16};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int is_rewind = 0; is_rewind < 2; is_rewind++) {
            drive d;
            cellar_token tokens[MOST];
            cellar_config config = open_s04(&d);
            cellar_pos n = places[i], from = -1;
            float *got = drive_grab(9 * play_row_size(&d), sizeof *got);
            if (is_rewind) {
                CHECK(cellar_rewind(d.memory, A, n, &from, NULL) == CELLAR_OK && from == n);
            } else
                CHECK(cellar_remove(d.memory, A, n, -1, NULL) == CELLAR_OK);
            CHECK(info_of(&d, A).pos_next == n);
            CHECK(append(&d, A, 500, 9, got) == CELLAR_OK);
            scenario_tokens(scenario_tokens(tokens, 0, (uint32_t)n), 500, 9);
            CHECK(scenario_answers_plainly(&d, &config, tokens, (uint32_t)n + 9, got, 9));
            free(got);
            drive_close(&d);
        }
}

static void append_too_far_back(drive *d, void *argument)
{
    cellar_error error = {0};
    (void)argument;
    CHECK(play_append(d, A, 500, 1, NULL, &error) == CELLAR_REPLAY);
    CHECK(error.status == CELLAR_REPLAY && error.at == 0);
    CHECK(error.reason == CELLAR_REASON_WINDOW_PASSED && error.message[0]);
}

static void s04_too_far(void)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_pos from = -1;
    cellar_config config = open_s04(&d);
    float *got = drive_grab(20 * play_row_size(&d), sizeof *got);
    CHECK(cellar_remove(d.memory, A, 14, -1, NULL) == CELLAR_OK);
    CHECK(info_of(&d, A).pos_next == 14);
    CHECK(scenario_leaves_unchanged(&d, append_too_far_back, NULL));
    CHECK(cellar_rewind(d.memory, A, 14, &from, NULL) == CELLAR_OK && from == 0);
    CHECK(cellar_position_max(d.memory, A) == -1 && scenario_used(&d) == 0);
    CHECK(append(&d, A, 0, 14, got) == CELLAR_OK);
    CHECK(append(&d, A, 500, 6, got + 14 * play_row_size(&d)) == CELLAR_OK);
    scenario_tokens(scenario_tokens(tokens, 0, 14), 500, 6);
    CHECK(scenario_answers_plainly(&d, &config, tokens, 20, got, 20));
    free(got);
    drive_close(&d);
}

/* ---- S06: one logical end for full and window layers ----------------------------------------- */

static cellar_config open_s06(drive *d)
{
    cellar_config config = scenario_config(32, 2);
    shape_both(d, 4);
    scenario_make(d, &config);
    CHECK(play_append(d, A, 0, 10, NULL, NULL) == CELLAR_OK);
    play_extent full = play_group_extent(d, 0, A), window = play_group_extent(d, 1, A);
    CHECK(full.n == 10 && full.min == 0 && full.max == 9);
    CHECK(window.n == 6 && window.min == 4 && window.max == 9);
    return config;
}

static void s06_gone(void)
{
    drive d;
    open_s06(&d);
    CHECK(goes_back_to(&d, A, 3, 0));
    CHECK(cellar_remove(d.memory, A, 3, -1, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, A) == 2 && cellar_position_min(d.memory, A) == 0);
    CHECK(info_of(&d, A).pos_next == 3);
    CHECK(goes_back_to(&d, A, 3, 0));
    CHECK(scenario_leaves_unchanged(&d, append_too_far_back, NULL));
    CHECK(play_count_cells(&d, 0, UINT32_MAX) == 3 && play_count_cells(&d, 1, UINT32_MAX) == 0);
    drive_close(&d);
}

static void s06_edge(void)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_config config = open_s06(&d);
    float *got = drive_grab(5 * play_row_size(&d), sizeof *got);
    CHECK(cellar_remove(d.memory, A, 7, -1, NULL) == CELLAR_OK);
    CHECK(can_go_on(&d, A, 7) && info_of(&d, A).pos_next == 7);
    CHECK(append(&d, A, 500, 5, got) == CELLAR_OK);
    scenario_tokens(scenario_tokens(tokens, 0, 7), 500, 5);
    CHECK(scenario_answers_plainly(&d, &config, tokens, 12, got, 5));
    free(got);
    drive_close(&d);

    open_s06(&d);
    CHECK(cellar_remove(d.memory, A, 6, -1, NULL) == CELLAR_OK);
    CHECK(goes_back_to(&d, A, 6, 0) && info_of(&d, A).pos_next == 6);
    CHECK(scenario_leaves_unchanged(&d, append_too_far_back, NULL));
    drive_close(&d);
}

/* ---- D10, D12, D14: giving up cells ---------------------------------------------------------- */

static void append_too_much(drive *d, void *argument)
{
    const cellar_token tokens[] = {70, 71, 72, 80, 81, 82, 83};
    const cellar_seq seqs[] = {A, A, A, B, B, B, B};
    (void)argument;
    CHECK(play_append(d, A, 60, 5, NULL, NULL) == CELLAR_FULL);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 7;
    batch.tokens = tokens;
    batch.seqs = seqs;
    CHECK(play_step(d, &batch, NULL, NULL) == CELLAR_FULL);
}

static void d10_full(void)
{
    drive d;
    cellar_config config = scenario_config(24, 4);
    shape_both(&d, 4);
    scenario_make(&d, &config);
    CHECK(play_append(&d, A, 0, 20, NULL, NULL) == CELLAR_OK);
    CHECK(play_group_extent(&d, 1, A).min == 12);
    CHECK(scenario_leaves_unchanged(&d, append_too_much, NULL));
    CHECK(play_append(&d, A, 60, 4, NULL, NULL) == CELLAR_OK);
    drive_close(&d);
}

static void append_b(drive *d, void *argument)
{
    (void)argument;
    CHECK(play_append(d, B, 100, 12, NULL, NULL) == CELLAR_FULL);
}

static void d10_window(void)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_config config = open_s04(&d);
    float *got = drive_grab(play_row_size(&d), sizeof *got);
    /* The first micro-batch of B would find room behind A's window, the others not. */
    CHECK(scenario_leaves_unchanged(&d, append_b, NULL));
    CHECK(cellar_position_min(d.memory, A) == 8 && cellar_position_max(d.memory, B) == -1);
    CHECK(cellar_remove(d.memory, A, 15, -1, NULL) == CELLAR_OK); /* as far back as before */
    CHECK(play_append(&d, A, 500, 1, got, NULL) == CELLAR_OK);
    scenario_tokens(scenario_tokens(tokens, 0, 15), 500, 1);
    CHECK(scenario_answers_plainly(&d, &config, tokens, 16, got, 1));
    free(got);
    drive_close(&d);
}

static void d12(void)
{
    drive d;
    cellar_config config = scenario_config(64, 4);
    shape(&d, CELLAR_WINDOW_STANDARD, 8);
    scenario_make(&d, &config);
    for (int32_t i = 0; i < 60; i++) { /* all 12 cells stay in use; one goes, the oldest */
        CHECK(play_append(&d, A, i, 1, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_position_min(d.memory, A) == (i < 12 ? 0 : i - 11));
        CHECK(scenario_used(&d) == (i < 12 ? (uint32_t)i + 1 : 12));
    }
    CHECK(cellar_remove(d.memory, A, 56, -1, NULL) == CELLAR_OK); /* free cells come first */
    CHECK(play_append(&d, A, 100, 4, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_position_min(d.memory, A) == 48 && scenario_used(&d) == 12);
    drive_close(&d);
}

static void d14(void)
{
    enum { N = 40, PREFIX = 30 };
    drive d;
    cellar_config config = scenario_config(256, 4);
    config.n_sequences = 4;
    shape(&d, CELLAR_WINDOW_STANDARD, 8);
    scenario_make(&d, &config); /* 4 * 8 + 4 cells */
    size_t row = play_row_size(&d);
    float *got = drive_grab(4 * N * row, sizeof *got);
    CHECK(play_append(&d, A, 0, PREFIX, NULL, NULL) == CELLAR_OK);
    for (cellar_seq s = B; s <= D; s++)
        CHECK(cellar_copy(d.memory, A, s, 0, -1, NULL) == CELLAR_OK);
    for (int32_t i = 0; i < N; i++)
        for (cellar_seq s = A; s <= D; s++)
            CHECK(play_append(&d, s, 100 * (s + 1) + i, 1, got + ((size_t)s * N + (size_t)i) * row,
                              NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) <= 36 && cellar_check(d.memory, NULL) == CELLAR_OK);
    for (cellar_seq s = A; s <= D; s++) {
        cellar_token tokens[MOST];
        scenario_tokens(scenario_tokens(tokens, 0, PREFIX), 100 * (s + 1), N);
        CHECK(cellar_position_min(d.memory, s) > PREFIX); /* the shared cells are given up */
        CHECK(scenario_answers_plainly(&d, &config, tokens, PREFIX + N, got + (size_t)s * N * row,
                                       N));
    }
    free(got);
    drive_close(&d);
}

/* ---- D15: never a wrong answer --------------------------------------------------------------- */

/* Every place is asked; where it can go on it answers as read plainly, else it refuses. */
static void d15_kind(cellar_window_kind kind, uint32_t size, uint32_t n_tokens)
{
    uint32_t n_possible = 0;
    for (cellar_pos n = 1; n <= (cellar_pos)n_tokens; n++) {
        drive d;
        cellar_token tokens[MOST];
        cellar_pos from = -1;
        cellar_config config = scenario_config(256, 4);
        shape(&d, kind, size);
        scenario_make(&d, &config);
        float *got = drive_grab(6 * play_row_size(&d), sizeof *got);
        CHECK(play_append(&d, A, 0, n_tokens, NULL, NULL) == CELLAR_OK);
        cellar_pos bound = info_of(&d, A).rewind_min;
        bool is_possible = cellar_can_continue(d.memory, A, n, &from, NULL) == CELLAR_OK;
        CHECK(is_possible || n < bound || bound == 0);
        CHECK(is_possible || from == 0);
        CHECK(cellar_remove(d.memory, A, n, -1, NULL) == CELLAR_OK);
        if (is_possible) {
            n_possible++;
            CHECK(append(&d, A, 500, 6, got) == CELLAR_OK);
            scenario_tokens(scenario_tokens(tokens, 0, (uint32_t)n), 500, 6);
            CHECK(scenario_answers_plainly(&d, &config, tokens, (uint32_t)n + 6, got, 6));
        } else if (cellar_position_max(d.memory, A) >= 0)
            CHECK(scenario_leaves_unchanged(&d, append_too_far_back, NULL));
        free(got);
        drive_close(&d);
    }
    CHECK(n_possible >= 4 && n_possible < n_tokens);
}

static void d15(void)
{
    d15_kind(CELLAR_WINDOW_STANDARD, 8, 23);
    d15_kind(CELLAR_WINDOW_STANDARD, 1, 20);
    d15_kind(CELLAR_WINDOW_CHUNKED, 8, 23);
    d15_kind(CELLAR_WINDOW_CHUNKED, 8, 27);
    d15_kind(CELLAR_WINDOW_SYMMETRIC, 8, 23);
}

static void remove_what_is_lost(drive *d, void *argument)
{
    (void)argument;
    CHECK(cellar_remove(d->memory, A, 2, 5, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d->memory, A, 0, 7, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d->memory, A, 1, 6, 1, NULL) == CELLAR_OK);
}

/* Positions that were given up are not there to be removed; that makes nothing whole again. */
static void d15_lost(void)
{
    drive d;
    open_s04(&d);
    CHECK(scenario_leaves_unchanged(&d, remove_what_is_lost, NULL));
    CHECK(info_of(&d, A).rewind_min == 15 && goes_back_to(&d, A, 14, 0));
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK); /* a fork has lost as much */
    CHECK(cellar_copy(d.memory, A, C, 5, -1, NULL) == CELLAR_OK);
    for (cellar_seq s = B; s <= C; s++)
        CHECK(info_of(&d, s).rewind_min == 15 && goes_back_to(&d, s, 14, 0) &&
              can_go_on(&d, s, 15));
    drive_close(&d);
}

static void d15_sinks(void)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_config config = scenario_config(256, 4);
    shape(&d, CELLAR_WINDOW_STANDARD, 8);
    d.layers[0].window.n_sinks = 3;
    scenario_make(&d, &config);
    float *got = drive_grab(60 * play_row_size(&d), sizeof *got);
    CHECK(play_append(&d, A, 0, 60, got, NULL) == CELLAR_OK);
    scenario_tokens(tokens, 0, 60);
    CHECK(scenario_answers_plainly(&d, &config, tokens, 60, got, 60));
    CHECK(cellar_position_min(d.memory, A) == 0 && play_group_extent(&d, 0, A).n == 15);
    CHECK(info_of(&d, A).rewind_min == 48 + 7); /* 0 1 2 and 48..59 are there */
    CHECK(cellar_remove(d.memory, A, 55, -1, NULL) == CELLAR_OK);
    CHECK(append(&d, A, 500, 5, got) == CELLAR_OK);
    scenario_tokens(tokens + 55, 500, 5);
    CHECK(scenario_answers_plainly(&d, &config, tokens, 60, got, 5));
    free(got);
    drive_close(&d);
}

/* ---- D16: an aborted step leaves what the next token sees ------------------------------------ */

/* A step of n tokens, computed to its end; then it is aborted, or was refused as a whole. */
static void compute_and_abort(drive *d, void *argument)
{
    cellar_token tokens[MOST];
    uint32_t n = *(const uint32_t *)argument;
    cellar_batch batch = cellar_batch_init();
    scenario_tokens(tokens, 700, n);
    batch.n_tokens = n;
    batch.tokens = tokens;
    cellar_status status = play_compute(d, &batch, NULL, NULL);
    CHECK(status == CELLAR_OK || (status == CELLAR_FULL && n > d->n_ubatch));
    if (status == CELLAR_OK) cellar_abort(d->memory);
}

static void d16(void)
{
    for (uint32_t n = 1; n <= 20; n++) {
        drive d;
        cellar_token tokens[MOST];
        cellar_config config = open_s04(&d);
        float *got = drive_grab(7 * play_row_size(&d), sizeof *got);
        scenario_tokens(tokens, 0, 20);
        compute_and_abort(&d, &n);
        CHECK(cellar_position_max(d.memory, A) == 19 && can_go_on(&d, A, 20));
        cellar_pos bound = info_of(&d, A).rewind_min;
        CHECK(bound >= 15 && bound <= 20);
        for (cellar_pos p = 1; p < bound; p++)
            CHECK(!can_go_on(&d, A, p));
        CHECK(cellar_remove(d.memory, A, bound, -1, NULL) == CELLAR_OK);
        CHECK(append(&d, A, 500, 7, got) == CELLAR_OK);
        scenario_tokens(tokens + bound, 500, 7);
        CHECK(scenario_answers_plainly(&d, &config, tokens, (uint32_t)bound + 7, got, 7));
        CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
        free(got);
        drive_close(&d);
    }
}

static void begin_and_abort(drive *d, void *argument)
{
    cellar_token tokens[4];
    cellar_batch batch = cellar_batch_init();
    (void)argument;
    scenario_tokens(tokens, 700, 4);
    batch.n_tokens = 4;
    batch.tokens = tokens;
    CHECK(cellar_begin(d->memory, &batch, NULL) == CELLAR_OK);
    cellar_abort(d->memory);
}

static void d16_nothing_written(void)
{
    drive d;
    open_s04(&d);
    CHECK(scenario_leaves_unchanged(&d, begin_and_abort, NULL));
    CHECK(info_of(&d, A).rewind_min == 15);
    drive_close(&d);
}

/* ---- D29, D35: windows can be shifted -------------------------------------------------------- */

/* Token i stands at i - delta; the last `n` of those below `end` are seen. */
static double worst_of_window(const drive *d, uint32_t layer, cellar_pos end, uint32_t n,
                              cellar_pos delta, const float *got)
{
    scenario_key keys[MOST];
    for (uint32_t i = 0; i < n; i++) {
        cellar_token token = end - (cellar_pos)n + (cellar_pos)i;
        keys[i] = (scenario_key){token, token, token - delta};
    }
    keys[n] = (scenario_key){900, end - delta, end - delta};
    return scenario_worst(d, layer, &d->layers[layer], 900, end - delta, keys, n + 1, got);
}

static void d29(void)
{
    drive d;
    cellar_pos discarded = 0;
    cellar_config config = scenario_config(64, 2);
    shape_both(&d, 4);
    scenario_make(&d, &config);
    float *got = drive_grab(play_row_size(&d), sizeof *got);
    CHECK(play_append(&d, A, 0, 20, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, A, 0, 6, &discarded, NULL) == CELLAR_OK);
    CHECK(discarded == 6 && cellar_position_max(d.memory, A) == 13);
    CHECK(can_go_on(&d, A, 14));
    CHECK(play_probe(&d, A, 900, got) == CELLAR_OK);
    CHECK(worst_of_window(&d, 0, 20, 14, 6, got) < 1);
    CHECK(worst_of_window(&d, 1, 20, 3, 6, got + 32) < 1);
    CHECK(cellar_shift(d.memory, A, 0, -1, 1000, NULL) == CELLAR_OK);
    CHECK(play_probe(&d, A, 900, got) == CELLAR_OK);
    CHECK(worst_of_window(&d, 1, 20, 3, 6 - 1000, got + 32) < 1);
    CHECK(play_probe(&d, B, 900, got) == CELLAR_OK); /* the twin has not moved */
    CHECK(worst_of_window(&d, 0, 20, 20, 0, got) < 1);
    CHECK(worst_of_window(&d, 1, 20, 3, 0, got + 32) < 1);
    free(got);
    drive_close(&d);
}

/* The original ends the process when a cache pair has a half without layers. */
static void d35(void)
{
    drive d;
    open_s04(&d);
    float *got = drive_grab(play_row_size(&d), sizeof *got);
    CHECK(cellar_shift(d.memory, A, 0, -1, -5, NULL) == CELLAR_OK);
    CHECK(cellar_position_min(d.memory, A) == 3 && cellar_position_max(d.memory, A) == 14);
    CHECK(play_probe(&d, A, 900, got) == CELLAR_OK);
    CHECK(worst_of_window(&d, 0, 20, 7, 5, got) < 1);
    free(got);
    drive_close(&d);
}

const scenario scenarios_windows[] = {
    {"S04 a window can be rewound to begin + W - 1 and not further", s04_bound},
    {"S04 going on within the bound answers as read plainly", s04_continue},
    {"S04 going back too far is refused until it is read again", s04_too_far},
    {"S06 full and window layers have one end", s06_gone},
    {"S06 the last place where both can go on", s06_edge},
    {"D10 a batch refused by full layers gives up no window cell", d10_full},
    {"D10 a batch refused by a window gives up no window cell", d10_window},
    {"D12 the oldest cell goes, and only when room is needed", d12},
    {"D14 cells shared by four sequences are given up behind all windows", d14},
    {"D15 at every position a window answers rightly or refuses", d15},
    {"D15 what a window has lost stays lost, for forks too", d15_lost},
    {"D15 the first tokens that a window always sees are always there", d15_sinks},
    {"D16 an aborted step leaves all that the next token sees", d16},
    {"D16 an aborted step without a row changes no window", d16_nothing_written},
    {"D29 windows can be shifted, and a twin is not", d29},
    {"D35 a memory of windows alone can be shifted", d35},
    {NULL, NULL},
};
