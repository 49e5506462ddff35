/*
 * scenarios_recurrent.c: S16, and of the faults D16, D18, D19, D20, D21, D28, D36 and D37 what
 * recurrent layers have to do with, alone and beside attention.
 *
 * The engine's part is the toy recurrence of play.h: any token that is read twice, forgotten or
 * taken from another sequence changes every number of the state. "As read plainly": equal to the
 * last bit to a memory that read just these tokens.
 */
#include "scenarios.h"

#include <stdlib.h>
#include <string.h>

enum { A, B, C, D, E, F };
#define MOST 512

static const uint32_t state_sizes[] = {16, 32};

static void shape(drive *d, bool is_hybrid)
{
    memset(d, 0, sizeof *d);
    d->seed = 41;
    d->n_layers = 2;
    d->layers[0] = play_recurrent_layer(state_sizes, 2);
    d->layers[1] = play_recurrent_layer(state_sizes, 1);
    if (is_hybrid) d->layers[0] = scenario_layer(CELLAR_F32, 8);
}

/* n_rollback: earlier states that stay. */
static cellar_config open_states(drive *d, bool is_hybrid, uint32_t n_rollback)
{
    cellar_config config = scenario_config(256, 4);
    shape(d, is_hybrid);
    config.n_sequences = 6;
    config.rollback_bytes = n_rollback * play_state_bytes(d);
    scenario_make(d, &config);
    return config;
}

static bool goes_on(const drive *d, cellar_seq seq, cellar_pos n)
{
    return cellar_can_continue(d->memory, seq, n, NULL, NULL) == CELLAR_OK;
}

/* Sequence seq holds tokens [n]: whatever it reads next is answered as read plainly. */
static bool holds(drive *d, const cellar_config *config, cellar_seq seq, const cellar_token *tokens,
                  uint32_t n)
{
    cellar_token all[MOST];
    float *got = drive_grab(play_row_size(d), sizeof *got);
    if (n > 0) memcpy(all, tokens, n * sizeof *all);
    all[n] = 9999;
    bool is_so = cellar_position_max(d->memory, seq) == (cellar_pos)n - 1 &&
                 play_probe(d, seq, 9999, got) == CELLAR_OK &&
                 scenario_answers_plainly(d, config, all, n + 1, got, 1);
    free(got);
    return is_so;
}

/* ---- S16: hybrid removal is all or nothing --------------------------------------------------- */

static void remove_end(drive *d, void *argument)
{
    cellar_error error = {0};
    (void)argument;
    CHECK(cellar_remove(d->memory, A, 8, -1, &error) == CELLAR_REFUSED);
    CHECK(error.status == CELLAR_REFUSED && error.reason == CELLAR_REASON_NO_STATE);
    CHECK(error.at == 0 && error.message[0]);
}

static void s16(void)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_config config = open_states(&d, true, 0);
    CHECK(play_append(&d, A, 0, 10, NULL, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, remove_end, NULL));
    CHECK(play_count_cells(&d, 0, UINT32_MAX) == 10);
    CHECK(play_group_extent(&d, 0, A).max == 9 && cellar_position_max(d.memory, A) == 9);
    scenario_tokens(tokens, 0, 11);
    CHECK(play_append(&d, A, 10, 1, NULL, NULL) == CELLAR_OK);
    CHECK(holds(&d, &config, A, tokens, 11));
    CHECK(cellar_remove(d.memory, A, 0, -1, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == 0 && play_count_cells(&d, 1, UINT32_MAX) == 0);
    CHECK(play_append(&d, A, 0, 1, NULL, NULL) == CELLAR_OK);
    CHECK(holds(&d, &config, A, tokens, 1));
    drive_close(&d);
}

static void s16_rewind(void)
{
    drive d;
    cellar_pos from = -1;
    cellar_config config = open_states(&d, true, 0);
    CHECK(play_append(&d, A, 0, 10, NULL, NULL) == CELLAR_OK);
    CHECK(goes_on(&d, A, 10) && goes_on(&d, A, 0) && !goes_on(&d, A, 9));
    CHECK(cellar_can_continue(d.memory, A, 8, &from, NULL) == CELLAR_REPLAY && from == 0);
    CHECK(cellar_rewind(d.memory, A, 10, &from, NULL) == CELLAR_OK && from == 10);
    CHECK(cellar_position_max(d.memory, A) == 9);
    CHECK(cellar_rewind(d.memory, A, 8, &from, NULL) == CELLAR_OK && from == 0);
    CHECK(cellar_position_max(d.memory, A) == -1 && scenario_used(&d) == 0);
    CHECK(holds(&d, &config, A, NULL, 0));
    drive_close(&d);
}

/* ---- D16: an aborted step restores the state ------------------------------------------------- */

/* Compute n micro-batches of seven tokens of A, then abort. */
static void abort_after(drive *d, uint32_t n_tokens)
{
    cellar_token tokens[MOST];
    cellar_batch batch = cellar_batch_init();
    scenario_tokens(tokens, 700, n_tokens);
    batch.n_tokens = n_tokens;
    batch.tokens = tokens;
    CHECK(play_compute(d, &batch, NULL, NULL) == CELLAR_OK);
    cellar_abort(d->memory);
}

static void abort_many(drive *d, void *argument)
{
    (void)argument;
    for (uint32_t n = 1; n < 14; n++)
        abort_after(d, n);
}

static void d16_kind(bool is_hybrid, uint32_t n_rollback)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_config config = open_states(&d, is_hybrid, n_rollback);
    scenario_tokens(tokens, 0, 10);
    CHECK(scenario_leaves_unchanged(&d, abort_many, NULL)); /* of nothing, too */
    CHECK(play_append(&d, A, 0, 10, NULL, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, abort_many, NULL));
    CHECK(holds(&d, &config, A, tokens, 10));
    for (uint32_t r = 1; r <= n_rollback; r++) {
        abort_after(&d, 3);
        CHECK(cellar_remove(d.memory, A, 10 - (cellar_pos)r, -1, NULL) == CELLAR_OK);
        CHECK(holds(&d, &config, A, tokens, 10 - r));
    }
    drive_close(&d);
}

static void d16(void)
{
    d16_kind(false, 0);
    d16_kind(true, 0);
    d16_kind(true, 4);
}

static void d16_confirm(void)
{
    drive d;
    cellar_token token = 5;
    cellar_batch batch = cellar_batch_init();
    cellar_states states;
    open_states(&d, false, 0);
    batch.n_tokens = 1;
    batch.tokens = &token;
    CHECK(cellar_get_states(d.memory, 0, 0, &states, NULL) == CELLAR_INVALID); /* no step */
    CHECK(cellar_confirm(d.memory, 0, 0, NULL) == CELLAR_INVALID);
    CHECK(cellar_begin(d.memory, &batch, NULL) == CELLAR_OK);
    CHECK(cellar_get_states(d.memory, 0, 0, &states, NULL) == CELLAR_OK);
    CHECK(states.source == CELLAR_NO_STATE && states.n_targets == 1 && states.after[0] == 1);
    CHECK(cellar_get_states(d.memory, 0, 1, &states, NULL) == CELLAR_INVALID);
    CHECK(cellar_get_states(d.memory, 1, 0, &states, NULL) == CELLAR_INVALID);
    CHECK(cellar_confirm(d.memory, 0, 0, NULL) == CELLAR_OK);
    CHECK(cellar_commit(d.memory, NULL) == CELLAR_INVALID); /* layer 1 is missing */
    CHECK(cellar_confirm(d.memory, 0, 1, NULL) == CELLAR_OK);
    CHECK(cellar_commit(d.memory, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, A) == 0);
    drive_close(&d);
}

/* ---- D18: rollback is exact ------------------------------------------------------------------ */

static void d18_kind(bool is_hybrid)
{
    drive d;
    cellar_token tokens[MOST], *end;
    cellar_config config = open_states(&d, is_hybrid, 4);
    end = scenario_tokens(tokens, 0, 10);
    CHECK(play_append(&d, A, 0, 10, NULL, NULL) == CELLAR_OK);
    for (cellar_pos n = 6; n <= 10; n++)
        CHECK(goes_on(&d, A, n));
    CHECK(cellar_remove(d.memory, A, 7, -1, NULL) == CELLAR_OK); /* 3 back */
    CHECK(holds(&d, &config, A, tokens, 7));
    CHECK(cellar_remove(d.memory, A, 6, -1, NULL) == CELLAR_OK); /* and 1 more */
    CHECK(holds(&d, &config, A, tokens, 6));

    /* Verify four drafted tokens, decode one, take one back. */
    end = scenario_tokens(tokens + 6, 600, 4);
    CHECK(play_append(&d, A, 600, 4, NULL, NULL) == CELLAR_OK);
    end = scenario_tokens(end, 700, 1);
    CHECK(play_append(&d, A, 700, 1, NULL, NULL) == CELLAR_OK);
    CHECK(holds(&d, &config, A, tokens, 11));
    CHECK(cellar_remove(d.memory, A, 10, -1, NULL) == CELLAR_OK);
    CHECK(holds(&d, &config, A, tokens, 10));
    CHECK(cellar_remove(d.memory, A, 8, -1, NULL) == CELLAR_OK);
    CHECK(holds(&d, &config, A, tokens, 8));
    scenario_tokens(tokens + 8, 800, 3);
    CHECK(play_append(&d, A, 800, 3, NULL, NULL) == CELLAR_OK);
    CHECK(holds(&d, &config, A, tokens, 11));
    drive_close(&d);
}

static void d18(void)
{
    d18_kind(false);
    d18_kind(true);
}

/* A text that grows and is taken back at random; every place that is offered is the right one. */
static void d18_random(void)
{
    drive d;
    cellar_token tokens[MOST];
    uint64_t state = 18;
    uint32_t n = 0, n_back = 0, n_refused = 0;
    cellar_config config = open_states(&d, true, 3);
    for (uint32_t round = 0; round < 60; round++) {
        if (random_one_in(&state, 2) || n == 0) {
            uint32_t more = 1 + random_below(&state, 6);
            scenario_tokens(tokens + n, 1000 + (cellar_token)round * 10, more);
            CHECK(play_append(&d, A, 1000 + (cellar_token)round * 10, more, NULL, NULL) ==
                  CELLAR_OK);
            n += more;
        } else {
            cellar_pos to = (cellar_pos)n - 1 - (cellar_pos)random_below(&state, n < 6 ? n : 6);
            bool is_kept = goes_on(&d, A, to);
            cellar_status status = cellar_remove(d.memory, A, to, -1, NULL);
            CHECK(status == (is_kept ? CELLAR_OK : CELLAR_REFUSED));
            n = is_kept ? (uint32_t)to : n;
            n_back += is_kept;
            n_refused += !is_kept;
        }
        CHECK(holds(&d, &config, A, tokens, n));
        CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    }
    CHECK(n_back >= 10 && n_refused >= 2);
    drive_close(&d);
}

/* ---- D19: nothing stays behind --------------------------------------------------------------- */

static void d19(void)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_config config = open_states(&d, false, 2);
    for (int way = 0; way < 4; way++) {
        for (cellar_seq s = A; s <= D; s++)
            CHECK(play_append(&d, s, 100 * s, 7, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_copy(d.memory, A, E, 0, -1, NULL) == CELLAR_OK);
        if (way == 0) CHECK(cellar_clear(d.memory, NULL) == CELLAR_OK);
        if (way == 1) CHECK(cellar_keep(d.memory, F, NULL) == CELLAR_OK);
        for (cellar_seq s = A; s <= E && way >= 2; s++)
            CHECK(cellar_remove(d.memory, s, way == 2 ? 0 : -1, -1, NULL) == CELLAR_OK);
        CHECK(scenario_used(&d) == 0 && cellar_check(d.memory, NULL) == CELLAR_OK);
        for (cellar_seq s = A; s <= E; s++) {
            CHECK(cellar_position_max(d.memory, s) == -1);
            scenario_tokens(tokens, 50 + s, 3);
            CHECK(play_append(&d, s, 50 + s, 3, NULL, NULL) == CELLAR_OK);
            CHECK(holds(&d, &config, s, tokens, 3));
        }
        CHECK(cellar_clear(d.memory, NULL) == CELLAR_OK);
    }
    drive_close(&d);
}

/* ---- D20, D28, D37: a state is whole --------------------------------------------------------- */

static void ask_for_parts(drive *d, void *argument)
{
    cellar_error error = {0};
    (void)argument;
    CHECK(cellar_remove(d->memory, A, 0, 4, &error) == CELLAR_REFUSED); /* a beginning */
    CHECK(error.reason == CELLAR_REASON_STATE_IS_WHOLE && error.message[0]);
    CHECK(cellar_remove(d->memory, A, 3, 6, &error) == CELLAR_REFUSED); /* a middle */
    CHECK(error.reason == CELLAR_REASON_STATE_IS_WHOLE);
    CHECK(cellar_shift_context(d->memory, A, 1, 1, NULL, &error) == CELLAR_REFUSED);
    CHECK(error.reason == CELLAR_REASON_STATE_IS_WHOLE);
    CHECK(cellar_shift(d->memory, A, 5, -1, 3, &error) == CELLAR_REFUSED);
    CHECK(error.reason == CELLAR_REASON_STATE_IS_WHOLE);
    CHECK(cellar_divide(d->memory, A, 5, -1, 2, &error) == CELLAR_REFUSED);
    CHECK(cellar_remove(d->memory, A, 4, 4, NULL) == CELLAR_OK); /* nothing is always possible */
    CHECK(cellar_remove(d->memory, A, 50, -1, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d->memory, A, 0, -1, INT32_MAX, NULL) == CELLAR_INVALID);
    CHECK(cellar_shift(d->memory, A, 0, -1, -5, &error) == CELLAR_REFUSED); /* the first five */
    CHECK(error.reason == CELLAR_REASON_STATE_IS_WHOLE);
}

static void d20(void)
{
    for (int is_hybrid = 0; is_hybrid < 2; is_hybrid++) {
        drive d;
        cellar_token tokens[MOST];
        cellar_config config = open_states(&d, is_hybrid, 2);
        scenario_tokens(tokens, 0, 10);
        CHECK(play_append(&d, A, 0, 10, NULL, NULL) == CELLAR_OK);
        CHECK(scenario_leaves_unchanged(&d, ask_for_parts, NULL));
        CHECK(holds(&d, &config, A, tokens, 10));
        drive_close(&d);
    }
}

static void d37(void)
{
    drive d;
    float before[MOST], after[MOST];
    open_states(&d, false, 2);
    CHECK(play_append(&d, A, 0, 10, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(play_probe(&d, A, 99, before) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 0, -1, 5, NULL) == CELLAR_OK); /* all of it: it may move */
    CHECK(cellar_position_max(d.memory, A) == 14 && cellar_position_max(d.memory, B) == 9);
    CHECK(play_probe(&d, A, 99, after) == CELLAR_OK);
    CHECK(scenario_same_bits(before, after, play_row_size(&d)));
    CHECK(cellar_shift(d.memory, A, 0, -1, INT32_MAX - 15, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, A) == INT32_MAX - 1);
    CHECK(play_append(&d, A, 99, 1, NULL, NULL) == CELLAR_INVALID);
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    drive_close(&d);
}

/* A sequence that begins at position 5: read there, or moved there. */
static void begin_late(drive *d, cellar_seq seq, bool is_moved)
{
    static const cellar_pos positions[] = {5, 6, 7, 8, 9, 10, 11, 12};
    static const cellar_seq seqs[8] = {0};
    cellar_token tokens[8];
    cellar_batch batch = cellar_batch_init();
    if (is_moved) {
        CHECK(play_append(d, seq, 0, 8, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_shift(d->memory, seq, 0, -1, 5, NULL) == CELLAR_OK);
        return;
    }
    scenario_tokens(tokens, 0, 8);
    batch.n_tokens = 8;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.seqs = seqs;
    CHECK(seq == A && play_step(d, &batch, NULL, NULL) == CELLAR_OK);
}

static void ask_for_parts_of_late(drive *d, void *argument)
{
    (void)argument;
    CHECK(cellar_shift(d->memory, A, 0, -1, -6, NULL) == CELLAR_REFUSED); /* one below 0 */
    CHECK(cellar_shift(d->memory, A, 0, -1, -12, NULL) == CELLAR_REFUSED);
    CHECK(cellar_shift(d->memory, A, 6, -1, 1, NULL) == CELLAR_REFUSED);
    CHECK(cellar_remove(d->memory, A, 2, 6, NULL) == CELLAR_REFUSED);
    CHECK(cellar_copy(d->memory, A, B, 6, -1, NULL) == CELLAR_REFUSED);
    CHECK(cellar_remove(d->memory, A, 0, 5, NULL) == CELLAR_OK); /* nothing is there */
    CHECK(cellar_shift(d->memory, A, 0, 5, 100, NULL) == CELLAR_OK);
    CHECK(cellar_divide(d->memory, A, 1, 5, 2, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d->memory, A, B, 0, 5, NULL) == CELLAR_OK);
}

/* Whole is what the sequence holds, wherever it begins. */
static void d37_late(void)
{
    for (int kind = 0; kind < 4; kind++) {
        drive d;
        cellar_token tokens[MOST];
        cellar_config config = open_states(&d, kind & 1, 2);
        scenario_tokens(tokens, 0, 8);
        begin_late(&d, A, kind & 2);
        CHECK(scenario_leaves_unchanged(&d, ask_for_parts_of_late, NULL));
        CHECK(cellar_copy(d.memory, A, B, 5, -1, NULL) == CELLAR_OK);
        CHECK(cellar_copy(d.memory, A, C, 3, 12, NULL) == CELLAR_OK); /* to a state that is kept */
        CHECK(cellar_shift(d.memory, A, 5, -1, -5, NULL) == CELLAR_OK);
        CHECK(cellar_shift(d.memory, C, 2, 12, -3, NULL) == CELLAR_OK);
        CHECK(cellar_position_max(d.memory, C) == 8);
        CHECK(cellar_shift(d.memory, C, 0, -1, -2, NULL) == CELLAR_OK);
        if (kind != 1) /* keys that were rotated elsewhere are met with other roundings */
            CHECK(holds(&d, &config, A, tokens, 8) && holds(&d, &config, C, tokens, 7));
        CHECK(goes_on(&d, A, 8) && goes_on(&d, A, 6) && cellar_position_max(d.memory, B) == 12);
        CHECK(cellar_remove(d.memory, A, 0, -1, NULL) == CELLAR_OK);
        CHECK(cellar_remove(d.memory, B, 5, -1, NULL) == CELLAR_OK);
        CHECK(cellar_shift(d.memory, C, 0, -1, -7, NULL) == CELLAR_OK); /* all of it below 0 */
        CHECK(play_count_cells(&d, 1, UINT32_MAX) == 0);
        CHECK(play_append(&d, A, 0, 8, NULL, NULL) == CELLAR_OK &&
              holds(&d, &config, A, tokens, 8));
        CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
        drive_close(&d);
    }
}

/* ---- D21: copies ----------------------------------------------------------------------------- */

static void copy_parts(drive *d, void *argument)
{
    cellar_error error = {0};
    (void)argument;
    CHECK(cellar_copy(d->memory, A, E, 0, 3, &error) == CELLAR_REFUSED); /* no state there */
    CHECK(error.at == 0 && error.message[0]);
    CHECK(cellar_copy(d->memory, A, E, 2, -1, NULL) == CELLAR_REFUSED); /* not a beginning */
    CHECK(cellar_copy(d->memory, A, F, 0, 10, NULL) == CELLAR_REFUSED); /* F goes on behind it */
    CHECK(cellar_copy(d->memory, A, E, 4, 4, NULL) == CELLAR_OK);       /* nothing */
}

static void d21_kind(bool is_hybrid)
{
    drive d;
    cellar_token a[MOST], b[MOST];
    cellar_config config = open_states(&d, is_hybrid, 4);
    scenario_tokens(a, 0, 10);
    CHECK(play_append(&d, A, 0, 10, NULL, NULL) == CELLAR_OK);
    CHECK(play_append(&d, F, 300, 15, NULL, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, copy_parts, NULL));
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, C, 0, 8, NULL) == CELLAR_OK); /* to a state that is kept */
    CHECK(cellar_copy(d.memory, A, F, 0, -1, NULL) == CELLAR_OK);
    CHECK(holds(&d, &config, B, a, 10) && holds(&d, &config, C, a, 8));
    CHECK(holds(&d, &config, F, a, 10));

    memcpy(b, a, sizeof b);
    CHECK(cellar_remove(d.memory, B, 8, -1, NULL) == CELLAR_OK); /* A stays where it is */
    CHECK(holds(&d, &config, A, a, 10) && holds(&d, &config, B, b, 8));
    CHECK(play_append(&d, A, 400, 3, NULL, NULL) == CELLAR_OK);
    CHECK(play_append(&d, B, 500, 3, NULL, NULL) == CELLAR_OK);
    scenario_tokens(a + 10, 400, 3);
    scenario_tokens(b + 8, 500, 3);
    CHECK(holds(&d, &config, A, a, 13) && holds(&d, &config, B, b, 11));
    CHECK(holds(&d, &config, F, a, 10) && holds(&d, &config, C, a, 8));
    CHECK(cellar_remove(d.memory, A, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d.memory, F, 9, -1, NULL) == CELLAR_OK);
    CHECK(holds(&d, &config, F, a, 9) && cellar_check(d.memory, NULL) == CELLAR_OK);
    drive_close(&d);
}

/* A copy up to a kept state has the states before it too; a copy of nothing forgets. */
static void d21_states(void)
{
    for (int is_hybrid = 0; is_hybrid < 2; is_hybrid++) {
        drive d;
        cellar_token a[MOST], b[MOST];
        cellar_config config = open_states(&d, is_hybrid, 4);
        scenario_tokens(a, 0, 10);
        scenario_tokens(b, 300, 12);
        CHECK(play_append(&d, A, 0, 10, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_copy(d.memory, A, B, 0, 9, NULL) == CELLAR_OK);
        CHECK(holds(&d, &config, B, a, 9));
        for (cellar_pos p = 8; p >= 6; p--) {
            CHECK(goes_on(&d, B, p) && cellar_remove(d.memory, B, p, -1, NULL) == CELLAR_OK);
            CHECK(holds(&d, &config, B, a, (uint32_t)p));
        }
        CHECK(!goes_on(&d, B, 5) && goes_on(&d, A, 6));
        CHECK(play_append(&d, C, 300, 12, NULL, NULL) == CELLAR_OK);
        CHECK(cellar_copy(d.memory, A, C, 5, 10, NULL) == CELLAR_REFUSED);
        CHECK(cellar_copy(d.memory, A, C, 11, -1, NULL) == CELLAR_OK);
        CHECK(holds(&d, &config, C, b, 11));
        drive_close(&d);
    }
}

static void d21(void)
{
    d21_kind(false);
    d21_kind(true);
}

/* ---- batches of several sequences ------------------------------------------------------------ */

/* Four sequences with unequal parts in one batch; a token that two of them share comes first. */
static void d13(void)
{
    enum { N = 19 };
    static const uint32_t seq_begin[N + 1] = {0,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                              11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
    static const cellar_seq seqs[N + 1] = {A, B, A, B, C, D, A, B, C, D,
                                           A, B, C, A, B, A, A, A, A, C};
    drive d;
    cellar_token tokens[N], each[4][N];
    uint32_t n[4] = {0};
    cellar_config config = open_states(&d, true, 2);
    cellar_batch batch = cellar_batch_init();
    scenario_tokens(tokens, 40, N);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = seq_begin[i]; j < seq_begin[i + 1]; j++)
            each[seqs[j]][n[seqs[j]]++] = tokens[i];
    batch.n_tokens = N;
    batch.tokens = tokens;
    batch.seq_begin = seq_begin;
    batch.seqs = seqs;
    CHECK(play_step(&d, &batch, NULL, NULL) == CELLAR_OK);
    for (cellar_seq s = A; s <= D; s++) {
        CHECK(holds(&d, &config, s, each[s], n[s]));
        if (n[s] < 3) continue;
        CHECK(cellar_remove(d.memory, s, (cellar_pos)n[s] - 2, -1, NULL) == CELLAR_OK);
        CHECK(holds(&d, &config, s, each[s], n[s] - 2));
    }
    drive_close(&d);
}

/* Sequences come and go; no state is left behind, and a memory without room says so. */
static void d36(void)
{
    drive d;
    cellar_token tokens[MOST];
    cellar_error error = {0};
    cellar_config config = open_states(&d, false, 0);
    cellar_seq s = 1000;
    scenario_tokens(tokens, 7, 2);
    for (; s < 1100; s++)
        if (play_append(&d, s, 7, 2, NULL, &error) != CELLAR_OK) break;
    CHECK(s >= 1006 && s < 1100); /* at least the six that were promised */
    CHECK(error.status == CELLAR_FULL && error.reason == CELLAR_REASON_NO_STATES);
    CHECK(cellar_position_max(d.memory, s) == -1);
    CHECK(holds(&d, &config, 1000, tokens, 2) ||
          play_append(&d, 1000, 9, 1, NULL, NULL) == CELLAR_FULL);
    CHECK(cellar_remove(d.memory, 1003, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d.memory, 1004, 0, -1, NULL) == CELLAR_OK);
    CHECK(play_append(&d, s, 7, 2, NULL, NULL) == CELLAR_OK);
    CHECK(holds(&d, &config, s, tokens, 2));
    drive_close(&d);
}

const scenario scenarios_recurrent[] = {
    {"S16 hybrid removal is all or nothing", s16},
    {"S16 a hybrid memory goes back to where all its parts can", s16_rewind},
    {"D13 a token of two sequences advances the states of both", d13},
    {"D16 an aborted step restores the recurrent state", d16},
    {"D16 a step is complete when every state was confirmed", d16_confirm},
    {"D18 rollback is exact, and several add up", d18},
    {"D18 every state that is offered is the right one", d18_random},
    {"D19 removing everything leaves no state behind", d19},
    {"D20 D28 a state forgets no beginning and no middle: refused, not ignored", d20},
    {"D21 copies end at a kept state and know nothing of each other", d21},
    {"D21 a copy up to a kept state takes those before it along", d21_states},
    {"D36 sequences come and go; without states a batch is refused", d36},
    {"D37 a whole state moves with its sequence, within the range", d37},
    {"D37 a sequence that begins late is moved, copied and removed whole", d37_late},
    {NULL, NULL},
};
