/*
 * scenarios_checkpoints.c: S17, the part of S04 that is about checkpoints, D10, D16 and D27: going back to
 * places that windows and recurrent states alone could not return to.
 *
 * "As read plainly": equal to the last bit to a memory that read just these tokens.
 */
#include "scenarios.h"

#include <stdlib.h>
#include <string.h>

enum { A, B, C };
#define MOST 640

static const uint32_t state_sizes[] = {16, 48};

/* Attention and two recurrent layers; room for eight checkpoints. */
static cellar_config open_hybrid(drive *d)
{
    cellar_config config = scenario_config(512, 32);
    memset(d, 0, sizeof *d);
    d->seed = 51;
    d->n_layers = 3;
    d->layers[0] = scenario_layer(CELLAR_F32, 8);
    d->layers[1] = play_recurrent_layer(state_sizes, 2);
    d->layers[2] = play_recurrent_layer(state_sizes, 1);
    config.n_sequences = 2;
    config.checkpoint_bytes = 8 * play_state_bytes(d);
    scenario_make(d, &config);
    return config;
}

/* The checkpoints of a sequence are exactly at these positions (n of them). */
static bool has_checkpoints(const drive *d, cellar_seq seq, uint32_t n, const cellar_pos *want)
{
    cellar_pos positions[64];
    uint32_t found = play_checkpoints(d, seq, positions, 64);
    if (found != n) return false;
    return n == 0 || memcmp(positions, want, n * sizeof *want) == 0;
}

/* ---- S17: choosing and dropping checkpoints -------------------------------------------------- */

/* 300 tokens with checkpoints after 100, 164 and 228, asked for in the batch or between batches. */
static cellar_config open_s17(drive *d, bool is_in_batch)
{
    static const cellar_pos places[] = {100, 164, 228, 300};
    cellar_config config = open_hybrid(d);
    cellar_token tokens[300];
    bool checkpoints[300] = {0};
    scenario_tokens(tokens, 0, 300);
    for (uint32_t i = 0; i < 3; i++)
        checkpoints[places[i] - 1] = true;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 300;
    batch.tokens = tokens;
    batch.checkpoints = checkpoints;
    if (is_in_batch) CHECK(play_step(d, &batch, NULL, NULL) == CELLAR_OK);
    for (cellar_pos i = 0, n = 0; i < 4 && !is_in_batch; n = places[i++]) {
        CHECK(play_append(d, A, n, (uint32_t)(places[i] - n), NULL, NULL) == CELLAR_OK);
        if (i < 3) CHECK(cellar_checkpoint(d->memory, A, NULL) == CELLAR_OK);
    }
    CHECK(has_checkpoints(d, A, 3, places) && cellar_position_max(d->memory, A) == 299);
    return config;
}

/* The new prompt shares `shared` tokens: go back, read the rest, and answer as read plainly. */
static void s17_share(bool is_in_batch, cellar_pos shared, cellar_pos want, uint32_t n_left)
{
    static const cellar_pos places[] = {100, 164, 228};
    enum { PROMPT = 320 };
    drive d;
    cellar_token tokens[PROMPT];
    cellar_pos from = -1;
    cellar_config config = open_s17(&d, is_in_batch);
    scenario_tokens(scenario_tokens(tokens, 0, (uint32_t)shared), 1000, PROMPT - (uint32_t)shared);
    CHECK(cellar_can_continue(d.memory, A, shared, &from, NULL) == CELLAR_REPLAY && from == want);
    from = -1;
    CHECK(cellar_rewind(d.memory, A, shared, &from, NULL) == CELLAR_OK && from == want);
    CHECK(cellar_position_max(d.memory, A) == want - 1);
    CHECK(has_checkpoints(&d, A, n_left, places));
    uint32_t n = PROMPT - (uint32_t)want; /* to be read: from there on, not from `shared` on */
    float *got = drive_grab(n * play_row_size(&d), sizeof *got);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens + want;
    CHECK(play_step(&d, &batch, got, NULL) == CELLAR_OK);
    CHECK(scenario_answers_plainly(&d, &config, tokens, PROMPT, got, n));
    CHECK(play_count_cells(&d, 0, UINT32_MAX) == PROMPT);
    CHECK(has_checkpoints(&d, A, n_left, places));
    free(got);
    drive_close(&d);
}

static void s17(void)
{
    for (int is_in_batch = 0; is_in_batch < 2; is_in_batch++) {
        s17_share(is_in_batch, 200, 164, 2); /* 156 tokens are read, 228 is dropped */
        s17_share(is_in_batch, 99, 0, 0);
        s17_share(is_in_batch, 163, 100, 1);
        s17_share(is_in_batch, 101, 100, 1);
    }
}

/* The place of a checkpoint itself: nothing has to be read again, and it stays. */
static void s17_exact(void)
{
    static const cellar_pos places[] = {100, 164, 228};
    for (int is_in_batch = 0; is_in_batch < 2; is_in_batch++) {
        drive d;
        cellar_token tokens[MOST];
        cellar_pos from = -1;
        cellar_config config = open_s17(&d, is_in_batch);
        float *got = drive_grab(10 * play_row_size(&d), sizeof *got);
        for (uint32_t i = 3; i-- > 0;) {
            uint32_t n = (uint32_t)places[i];
            CHECK(cellar_rewind(d.memory, A, places[i], &from, NULL) == CELLAR_OK);
            CHECK(from == places[i] && has_checkpoints(&d, A, i + 1, places));
            scenario_tokens(scenario_tokens(tokens, 0, n), 2000, 10);
            CHECK(play_append(&d, A, 2000, 10, got, NULL) == CELLAR_OK);
            CHECK(scenario_answers_plainly(&d, &config, tokens, n + 10, got, 10));
        }
        free(got);
        drive_close(&d);
    }
}

/* Short prompts get a checkpoint too. */
static void s17_short(void)
{
    static const cellar_pos place = 20;
    drive d;
    cellar_token tokens[MOST];
    bool checkpoints[20] = {0};
    cellar_pos from = -1;
    cellar_config config = open_hybrid(&d);
    float *got = drive_grab(15 * play_row_size(&d), sizeof *got);
    scenario_tokens(tokens, 0, 20);
    checkpoints[19] = true;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 20;
    batch.tokens = tokens;
    batch.checkpoints = checkpoints;
    CHECK(play_step(&d, &batch, NULL, NULL) == CELLAR_OK);
    for (int32_t i = 0; i < 9; i++) /* the reply */
        CHECK(play_append(&d, A, 100 + i, 1, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_rewind(d.memory, A, 20, &from, NULL) == CELLAR_OK && from == 20);
    CHECK(has_checkpoints(&d, A, 1, &place));
    CHECK(play_append(&d, A, 200, 15, got, NULL) == CELLAR_OK);
    scenario_tokens(tokens + 20, 200, 15);
    CHECK(scenario_answers_plainly(&d, &config, tokens, 35, got, 15));
    free(got);
    drive_close(&d);
}

/* An aborted step makes no checkpoint; dropping some leaves the others. */
static void s17_drop(void)
{
    static const cellar_pos left[] = {100, 228};
    drive d;
    cellar_pos from = -1;
    cellar_token token = 7;
    bool checkpoint = true;
    open_s17(&d, true);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.tokens = &token;
    batch.checkpoints = &checkpoint;
    uint64_t picture = scenario_picture(d.memory);
    CHECK(play_compute(&d, &batch, NULL, NULL) == CELLAR_OK);
    cellar_abort(d.memory);
    CHECK(scenario_picture(d.memory) == picture);
    CHECK(cellar_drop_checkpoints(d.memory, A, 101, 228, NULL) == CELLAR_OK);
    CHECK(has_checkpoints(&d, A, 2, left));
    CHECK(cellar_can_continue(d.memory, A, 200, &from, NULL) == CELLAR_REPLAY && from == 100);
    CHECK(cellar_drop_checkpoints(d.memory, A, 0, -1, NULL) == CELLAR_OK);
    CHECK(has_checkpoints(&d, A, 0, NULL));
    CHECK(cellar_can_continue(d.memory, A, 200, &from, NULL) == CELLAR_REPLAY && from == 0);
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    drive_close(&d);
}

/* ---- S04: a window goes back to a checkpoint ------------------------------------------------- */

static cellar_config open_window(drive *d, bool has_full)
{
    cellar_config config = scenario_config(256, 4);
    memset(d, 0, sizeof *d);
    d->seed = 52;
    d->n_layers = has_full ? 2 : 1;
    d->layers[0] = scenario_window_layer(CELLAR_WINDOW_STANDARD, 8);
    d->layers[1] = scenario_layer(CELLAR_F32, 8);
    config.checkpoint_bytes = 64 * 2 * 2 * 8 * sizeof(float); /* 64 cells of the window */
    scenario_make(d, &config);
    return config;
}

static void s04_checkpoint(void)
{
    static const cellar_pos place = 12;
    for (int has_full = 0; has_full < 2; has_full++)
        for (cellar_pos n = 11; n <= 14; n++) {
            drive d;
            cellar_token tokens[MOST];
            cellar_pos from = -1, want = n < 12 ? 0 : 12;
            cellar_sequence_info info = {0};
            cellar_config config = open_window(&d, has_full);
            float *got = drive_grab(40 * play_row_size(&d), sizeof *got);
            CHECK(play_append(&d, A, 0, 12, NULL, NULL) == CELLAR_OK);
            CHECK(cellar_checkpoint(d.memory, A, NULL) == CELLAR_OK);
            CHECK(play_append(&d, A, 12, 140, NULL, NULL) == CELLAR_OK);
            CHECK(cellar_get_sequence(d.memory, A, &info, NULL) == CELLAR_OK);
            CHECK(info.rewind_min > 14 && info.n_checkpoints == 1);
            CHECK(has_checkpoints(&d, A, 1, &place));
            CHECK(cellar_can_continue(d.memory, A, n, &from, NULL) == CELLAR_REPLAY);
            CHECK(from == want);
            CHECK(cellar_rewind(d.memory, A, n, &from, NULL) == CELLAR_OK && from == want);
            CHECK(cellar_position_max(d.memory, A) == want - 1);
            scenario_tokens(tokens, 0, (uint32_t)want);
            scenario_tokens(tokens + want, 600, 30);
            CHECK(play_append(&d, A, 600, 30, got, NULL) == CELLAR_OK);
            CHECK(scenario_answers_plainly(&d, &config, tokens, (uint32_t)want + 30, got, 30));
            CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
            free(got);
            drive_close(&d);
        }
}

/* At the edge of a chunk the next token sees nothing: such a checkpoint holds no cell. */
static void s04_chunk(void)
{
    static const cellar_pos place = 10;
    drive d;
    cellar_token tokens[MOST];
    cellar_pos from = -1;
    cellar_config config = open_window(&d, true);
    drive_close(&d);
    d.layers[0] = scenario_window_layer(CELLAR_WINDOW_CHUNKED, 10);
    scenario_make(&d, &config);
    float *got = drive_grab(5 * play_row_size(&d), sizeof *got);
    for (cellar_pos n = 0; n < 10; n += 5)
        CHECK(play_append(&d, A, n, 5, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_checkpoint(d.memory, A, NULL) == CELLAR_OK);
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK && has_checkpoints(&d, A, 1, &place));
    for (cellar_pos n = 10; n < 130; n += 4)
        CHECK(play_append(&d, A, n, 4, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_rewind(d.memory, A, 19, &from, NULL) == CELLAR_OK && from == 10);
    CHECK(play_append(&d, A, 700, 5, got, NULL) == CELLAR_OK);
    scenario_tokens(scenario_tokens(tokens, 0, 10), 700, 5);
    CHECK(scenario_answers_plainly(&d, &config, tokens, 15, got, 5));
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    free(got);
    drive_close(&d);
}

/* ---- D27: going back destroys nothing of others, and more checkpoints than room thin out ------ */

static void d27_forks(void)
{
    static const cellar_pos places[] = {100, 164, 228};
    drive d;
    cellar_token tokens[MOST];
    cellar_pos from = -1;
    cellar_config config = open_s17(&d, true);
    float *got = drive_grab(5 * play_row_size(&d), sizeof *got);
    uint32_t n_states = play_count_cells(&d, 1, UINT32_MAX);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(has_checkpoints(&d, B, 3, places));
    CHECK(play_count_cells(&d, 1, UINT32_MAX) == n_states); /* shared, not copied */
    CHECK(cellar_rewind(d.memory, A, 50, &from, NULL) == CELLAR_OK && from == 0);
    CHECK(has_checkpoints(&d, A, 0, NULL) && has_checkpoints(&d, B, 3, places));
    CHECK(play_append(&d, A, 3000, 40, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_rewind(d.memory, B, 170, &from, NULL) == CELLAR_OK && from == 164);
    CHECK(play_append(&d, B, 4000, 5, got, NULL) == CELLAR_OK);
    scenario_tokens(scenario_tokens(tokens, 0, 164), 4000, 5);
    CHECK(scenario_answers_plainly(&d, &config, tokens, 169, got, 5));
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    free(got);
    drive_close(&d);
}

/* The largest checkpoint of a list at or before a position; 0: none. */
static cellar_pos largest_up_to(const cellar_pos *positions, uint32_t n, cellar_pos limit)
{
    cellar_pos best = 0;
    for (uint32_t i = 0; i < n; i++)
        if (positions[i] <= limit) best = positions[i];
    return best;
}

/* Far more checkpoints than fit: those that stay are dense near the end, and all are right. */
static void d27_thinning(void)
{
    enum { N = 400 };
    drive d;
    cellar_token tokens[MOST];
    cellar_pos positions[64], from = -1;
    uint32_t n_returns = 0;
    cellar_config config = open_hybrid(&d);
    float *got = drive_grab(3 * play_row_size(&d), sizeof *got);
    for (int32_t i = 0; i < N; i += 10) {
        CHECK(play_append(&d, A, i, 10, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_checkpoint(d.memory, A, NULL) == CELLAR_OK);
        CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    }
    uint32_t n = play_checkpoints(&d, A, positions, 64);
    CHECK(n >= 8 && n < 40 && positions[n - 1] == N);
    CHECK(positions[0] <= N / 2); /* the old ones thin out, they do not all go first */
    CHECK(positions[n - 1] - positions[n - 2] <= positions[1] - positions[0]);
    for (cellar_pos target = N; target > 0; target = from - 1) {
        n = play_checkpoints(&d, A, positions, 64); /* reading on may have taken another's room */
        cellar_pos want = largest_up_to(positions, n, target);
        CHECK(cellar_rewind(d.memory, A, target, &from, NULL) == CELLAR_OK && from == want);
        scenario_tokens(scenario_tokens(tokens, 0, (uint32_t)from), 5000, 3);
        CHECK(play_append(&d, A, 5000, 3, got, NULL) == CELLAR_OK);
        CHECK(scenario_answers_plainly(&d, &config, tokens, (uint32_t)from + 3, got, 3));
        n_returns += from > 0;
        if (from > target) break;
    }
    CHECK(n_returns >= 6);
    free(got);
    drive_close(&d);
}

/* ---- D10, D16: steps that come to nothing take nothing from checkpoints ----------------------- */

static void append_too_much(drive *d, void *argument)
{
    (void)argument;
    CHECK(play_append(d, A, 5000, 20, NULL, NULL) == CELLAR_FULL);
}

/* All states are held by checkpoints; the recurrent group has made room when attention refuses. */
static void d10_states(void)
{
    drive d;
    cellar_pos positions[64], from = -1;
    cellar_config config = scenario_config(64, 32);
    memset(&d, 0, sizeof d);
    d.seed = 53;
    d.n_layers = 2;
    d.layers[0] = play_recurrent_layer(state_sizes, 2);
    d.layers[1] = scenario_layer(CELLAR_F32, 8);
    config.checkpoint_bytes = 4 * play_state_bytes(&d);
    scenario_make(&d, &config);
    for (int32_t i = 0; i < 60; i += 5) {
        CHECK(play_append(&d, A, i, 5, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_checkpoint(d.memory, A, NULL) == CELLAR_OK);
    }
    uint32_t n = play_checkpoints(&d, A, positions, 64);
    CHECK(n >= 4 && play_count_cells(&d, 0, UINT32_MAX) >= n);
    CHECK(scenario_leaves_unchanged(&d, append_too_much, NULL));
    CHECK(cellar_rewind(d.memory, A, 59, &from, NULL) == CELLAR_OK);
    CHECK(from == largest_up_to(positions, n, 59));
    drive_close(&d);
}

static void begin_and_abort(drive *d, void *argument)
{
    cellar_token tokens[4];
    cellar_batch batch = cellar_batch_init();
    (void)argument;
    scenario_tokens(tokens, 5000, 4);
    batch.n_tokens = 4;
    batch.tokens = tokens;
    CHECK(cellar_begin(d->memory, &batch, NULL) == CELLAR_OK);
    cellar_abort(d->memory);
}

/* A window whose cells are all in use, most of them by checkpoints only. */
static cellar_config open_crowded(drive *d)
{
    cellar_config config = open_window(d, true);
    for (int32_t i = 0; i < 240; i += 4) {
        CHECK(play_append(d, A, i, 4, NULL, NULL) == CELLAR_OK);
        if (i % 12 == 0) CHECK(cellar_checkpoint(d->memory, A, NULL) == CELLAR_OK);
    }
    return config;
}

static void d16_nothing_written(void)
{
    drive d;
    cellar_pos positions[64];
    open_crowded(&d);
    CHECK(play_checkpoints(&d, A, positions, 64) >= 4);
    for (int i = 0; i < 3; i++)
        CHECK(scenario_leaves_unchanged(&d, begin_and_abort, NULL));
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    drive_close(&d);
}

/* Computed to the end and aborted again and again: what is still offered is right. */
static void d16_written(void)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_pos positions[64], from = -1;
    cellar_config config = open_crowded(&d);
    float *got = drive_grab(4 * play_row_size(&d), sizeof *got);
    scenario_tokens(tokens, 5000, 4);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 4;
    batch.tokens = tokens;
    for (int i = 0; i < 5; i++) {
        CHECK(play_compute(&d, &batch, NULL, NULL) == CELLAR_OK);
        cellar_abort(d.memory);
        CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
        CHECK(cellar_position_max(d.memory, A) == 239);
        CHECK(cellar_can_continue(d.memory, A, 240, NULL, NULL) == CELLAR_OK);
    }
    for (cellar_pos target = 239; target > 0; target = from - 1) {
        cellar_pos promised = target;
        uint32_t n = play_checkpoints(&d, A, positions, 64);
        bool is_by_itself = cellar_can_continue(d.memory, A, target, &promised, NULL) == CELLAR_OK;
        if (is_by_itself) promised = target;
        CHECK(promised >= largest_up_to(positions, n, target));
        CHECK(cellar_rewind(d.memory, A, target, &from, NULL) == CELLAR_OK && from == promised);
        scenario_tokens(scenario_tokens(tokens, 0, (uint32_t)from), 6000, 4);
        CHECK(play_append(&d, A, 6000, 4, got, NULL) == CELLAR_OK);
        CHECK(scenario_answers_plainly(&d, &config, tokens, (uint32_t)from + 4, got, 4));
        CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
        if (from > target) break;
    }
    free(got);
    drive_close(&d);
}

/* A checkpoint after every token, of two sequences at once, and forks that keep some of them. */
static void d27_crowd(void)
{
    drive d;
    cellar_config config = open_hybrid(&d);
    cellar_token tokens[MOST], text[MOST];
    bool checkpoints[30];
    cellar_pos positions[64], from = -1;
    float *got = drive_grab(play_row_size(&d), sizeof *got);
    cellar_batch batch = cellar_batch_init();
    scenario_tokens(tokens, 0, 300);
    memset(checkpoints, true, sizeof checkpoints);
    batch.n_tokens = 30;
    batch.checkpoints = checkpoints;
    for (uint32_t round = 0; round < 10; round++) {
        batch.tokens = tokens + 30 * round;
        CHECK(play_step(&d, &batch, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_copy(d.memory, A, B + (cellar_seq)(round % 2), 0, -1, NULL) == CELLAR_OK);
        CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    }
    for (cellar_seq s = A; s <= C; s++) {
        cellar_pos target = s == B ? 270 : 300;
        CHECK(cellar_position_max(d.memory, s) == target - 1);
        for (; target > 0; target = from - 1) {
            uint32_t n = play_checkpoints(&d, s, positions, 64);
            cellar_pos want = largest_up_to(positions, n, target);
            CHECK(cellar_rewind(d.memory, s, target, &from, NULL) == CELLAR_OK);
            CHECK(from == want);
            CHECK(play_probe(&d, s, 900, got) == CELLAR_OK);
            scenario_tokens(scenario_tokens(text, 0, (uint32_t)from), 900, 1);
            CHECK(scenario_answers_plainly(&d, &config, text, (uint32_t)from + 1, got, 1));
            CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
            if (from > target) break;
        }
    }
    free(got);
    drive_close(&d);
}

static void d27_interval(void)
{
    drive d;
    cellar_pos positions[64];
    cellar_config config = scenario_config(512, 32);
    open_hybrid(&d); /* for the layers */
    drive_close(&d);
    config.checkpoint_bytes = 16 * play_state_bytes(&d);
    config.checkpoint_interval = 50;
    scenario_make(&d, &config);
    CHECK(play_append(&d, A, 0, 120, NULL, NULL) == CELLAR_OK);
    for (int32_t i = 120; i < 260; i++)
        CHECK(play_append(&d, A, i, 1, NULL, NULL) == CELLAR_OK);
    uint32_t n = play_checkpoints(&d, A, positions, 64);
    CHECK(n >= 4 && n <= 6);
    for (uint32_t i = 1; i < n; i++)
        CHECK(positions[i] - positions[i - 1] >= 50 && positions[i] - positions[i - 1] <= 100);
    drive_close(&d);
}

const scenario scenarios_checkpoints[] = {
    {"S17 the largest checkpoint at or before the common prefix; later ones go", s17},
    {"S17 going back to a checkpoint itself reads nothing again", s17_exact},
    {"S17 short prompts get a checkpoint too", s17_short},
    {"S17 checkpoints can be dropped; an aborted step makes none", s17_drop},
    {"S04 a window goes back to a checkpoint it has left behind", s04_checkpoint},
    {"S04 a checkpoint at the edge of a chunk", s04_chunk},
    {"D27 forks share their checkpoints and keep them apart", d27_forks},
    {"D27 checkpoints thin out and all stay right", d27_thinning},
    {"D10 a refused batch takes no state from a checkpoint", d10_states},
    {"D16 an aborted step without a row takes nothing from checkpoints", d16_nothing_written},
    {"D16 after aborted steps every place that is offered is right", d16_written},
    {"D27 a checkpoint after every token", d27_crowd},
    {"D27 checkpoints are made at intervals", d27_interval},
    {NULL, NULL},
};
