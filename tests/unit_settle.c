/*
 * unit_settle.c: keys that are rotated again must be what was asked for all along.
 *
 * Shifts are exact, so before and after settling the same rows must be read back and the same attention
 * computed, up to one rounding of each key. Results are compared with brute force (twin.h) within its
 * derived bound where rows are f32, and with themselves within a few steps of the row type where they
 * are not. What others share, and what a refused call leaves, is compared to the last bit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/twin.h"
#include "support_faulty.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static void assert_sound(const drive *d)
{
    cellar_error error = {0};
    if (cellar_check(d->memory, &error) != CELLAR_OK) fail_msg("%s", error.message);
}

static cellar_sequence_info info_of(const drive *d, cellar_seq seq)
{
    cellar_sequence_info info;
    assert_int_equal(cellar_get_sequence(d->memory, seq, &info, NULL), CELLAR_OK);
    return info;
}

static cellar_statistics stats_of(const drive *d)
{
    cellar_statistics stats;
    assert_int_equal(cellar_stats(d->memory, &stats, NULL), CELLAR_OK);
    return stats;
}

static void assert_twin(const twin *t)
{
    if (t->n_wrong > 0) fail_msg("%u wrong, first: %s", t->n_wrong, t->message);
    assert_sound(&t->d);
}

static cellar_layer rotated(uint32_t k_size, cellar_rope_kind kind, cellar_type type)
{
    cellar_layer layer = drive_layer(4, 2, k_size, 32);
    layer.rope.kind = kind;
    layer.k_type = layer.v_type = type;
    return layer;
}

/* Two layers that rotate differently, and one that does not. */
static void open_twin(twin *t, uint32_t n_cells)
{
    memset(t, 0, sizeof *t);
    t->d.seed = 11;
    t->d.n_layers = 3;
    t->d.layers[0] = rotated(32, CELLAR_ROPE_NORMAL, CELLAR_F32);
    t->d.layers[1] = rotated(64, CELLAR_ROPE_NEOX, CELLAR_F32);
    t->d.layers[1].rope.n_rot = 48;
    t->d.layers[1].rope.scale = 0.25;
    t->d.layers[1].rope.yarn_ext = 1;
    t->d.layers[1].rope.yarn_context = 512;
    t->d.layers[2] = rotated(32, CELLAR_ROPE_NONE, CELLAR_F32);
    cellar_config config = cellar_config_init();
    config.n_cells = n_cells;
    config.n_ubatch = 16;
    config.max_shifts = 0;
    twin_open(t, &config);
}

static void settle(const drive *d, cellar_seq seq)
{
    cellar_error error = {0};
    if (cellar_settle(d->memory, seq, &error) != CELLAR_OK) fail_msg("%s", error.message);
    assert_int_equal(info_of(d, seq).n_shifts, 0);
}

/* ---- in place -------------------------------------------------------------------------------- */

static void cells_held_once_are_turned_where_they_lie(void **state)
{
    (void)state;
    twin t;
    open_twin(&t, 128);
    twin_append(&t, 0, 1, 50);
    twin_remove(&t, 0, 10, 25);
    twin_shift(&t, 0, 25, -1, -15);
    twin_read(&t, 0);
    cellar_statistics before = stats_of(&t.d);
    assert_int_equal(info_of(&t.d, 0).n_shifts, 1);
    settle(&t.d, 0);
    cellar_statistics after = stats_of(&t.d);
    assert_int_equal(after.rows_moved, before.rows_moved);
    assert_int_equal(after.n_used, before.n_used);
    twin_read(&t, 0);
    twin_append(&t, 0, 100, 5);
    assert_twin(&t);
    assert_true(t.worst < 1 && t.n_compared > 0);
    twin_close(&t);
}

static void runs_that_only_a_shift_kept_apart_become_one(void **state)
{
    (void)state;
    twin t;
    open_twin(&t, 128);
    twin_append(&t, 0, 1, 40);
    for (cellar_pos p = 40; p-- > 20;)
        twin_shift(&t, 0, p, p + 1, 100);
    for (cellar_pos p = 20; p < 40; p++)
        twin_shift(&t, 0, p + 100, p + 101, -100);
    assert_int_equal(info_of(&t.d, 0).n_runs, 1);
    twin_shift(&t, 0, 20, -1, 7);
    assert_int_equal(info_of(&t.d, 0).n_runs, 2);
    twin_shift(&t, 0, 0, 20, 7);
    assert_int_equal(info_of(&t.d, 0).n_runs, 1);
    settle(&t.d, 0);
    assert_int_equal(info_of(&t.d, 0).n_runs, 1);
    assert_int_equal(info_of(&t.d, 0).pos_min, 7);
    twin_append(&t, 0, 200, 3);
    assert_twin(&t);
    twin_close(&t);
}

static void settling_what_is_not_shifted_changes_nothing(void **state)
{
    (void)state;
    twin t;
    drive_snapshot before = {0}, after = {0};
    char why[200] = "";
    open_twin(&t, 64);
    twin_append(&t, 0, 1, 20);
    twin_copy(&t, 0, 1, 0, 10);
    assert_true(drive_snapshot_take(&before, t.d.memory));
    settle(&t.d, 0);
    settle(&t.d, 1);
    settle(&t.d, 99);
    assert_true(drive_snapshot_take(&after, t.d.memory));
    assert_true(drive_snapshot_equal(&before, &after, why));
    drive_snapshot_free(&before);
    drive_snapshot_free(&after);
    twin_close(&t);
}

/* ---- shared ---------------------------------------------------------------------------------- */

static void shared_cells_are_copied_and_others_notice_nothing(void **state)
{
    (void)state;
    twin t;
    open_twin(&t, 128);
    twin_append(&t, 0, 1, 30);
    twin_copy(&t, 0, 1, 0, -1);
    twin_append(&t, 1, 100, 6); /* six of its own */
    twin_shift(&t, 1, 10, -1, 5);
    float *before = drive_grab(t.d.out_size, sizeof *before);
    float *after = drive_grab(t.d.out_size, sizeof *after);
    assert_int_equal(drive_probe(&t.d, 0, 999, before), CELLAR_OK);
    cellar_statistics was = stats_of(&t.d);
    settle(&t.d, 1);
    cellar_statistics is = stats_of(&t.d);
    assert_int_equal(is.rows_moved - was.rows_moved, 20);
    assert_int_equal(is.n_used - was.n_used, 20);
    assert_int_equal(is.n_shared, 10);
    assert_int_equal(drive_probe(&t.d, 0, 999, after), CELLAR_OK);
    assert_memory_equal(before, after, t.d.out_size * sizeof *before);
    twin_read(&t, 0);
    twin_read(&t, 1);
    twin_append(&t, 1, 200, 3);
    twin_append(&t, 0, 300, 3);
    assert_twin(&t);
    free(before);
    free(after);
    twin_close(&t);
}

static void without_room_nothing_changes(void **state)
{
    (void)state;
    twin t;
    drive_snapshot before = {0}, after = {0};
    cellar_error error = {0};
    char why[200] = "";
    open_twin(&t, 64);
    twin_append(&t, 0, 1, 50);
    twin_copy(&t, 0, 1, 0, -1);
    twin_append(&t, 1, 100, 5);
    twin_shift(&t, 1, 0, -1, 3);
    assert_true(drive_snapshot_take(&before, t.d.memory));
    assert_int_equal(cellar_settle(t.d.memory, 1, &error), CELLAR_FULL);
    assert_int_equal(error.at, 50 - 9);
    assert_true(drive_snapshot_take(&after, t.d.memory));
    assert_true(drive_snapshot_equal(&before, &after, why));
    assert_sound(&t.d);
    twin_remove(&t, 0, 0, -1); /* nobody shares any more */
    settle(&t.d, 1);
    twin_read(&t, 1);
    assert_twin(&t);
    drive_snapshot_free(&before);
    drive_snapshot_free(&after);
    twin_close(&t);
}

static void a_cell_that_one_sequence_holds_twice(void **state)
{
    (void)state;
    twin t;
    open_twin(&t, 96);
    twin_append(&t, 0, 1, 10);
    twin_copy(&t, 0, 1, 0, -1);
    twin_shift(&t, 1, 0, -1, 20);
    twin_copy(&t, 1, 0, 20, 30); /* 0 holds its ten cells at 0 and at 20 */
    twin_remove(&t, 1, 0, -1);
    settle(&t.d, 0);
    assert_int_equal(info_of(&t.d, 0).n_cells, 20);
    assert_int_equal(info_of(&t.d, 0).n_shared, 0);
    twin_read(&t, 0);
    twin_append(&t, 0, 50, 2);
    assert_twin(&t);
    twin_close(&t);
}

/* ---- at random ------------------------------------------------------------------------------- */

static void random_operation(twin *t, uint64_t *random, cellar_token *token)
{
    cellar_seq seq = (cellar_seq)random_below(random, 4),
               other = (cellar_seq)random_below(random, 4);
    cellar_pos p0 = (cellar_pos)random_below(random, 40);
    cellar_pos p1 = p0 + (cellar_pos)random_below(random, 30);
    uint32_t n = 1 + random_below(random, 9);
    switch (random_below(random, 6)) {
    case 0:
        twin_remove(t, seq, p0, p1);
        break;
    case 1:
        twin_copy(t, seq, other, p0, p1);
        break;
    case 2:
    case 3:
        twin_shift(t, seq, p0, random_one_in(random, 2) ? -1 : p1, random_between(random, -9, 9));
        break;
    default:
        twin_append(t, seq, *token, n);
        *token += (cellar_token)n;
    }
}

static void random_memories_settle_to_what_they_were(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        twin t;
        uint64_t random = seed;
        cellar_token token = 1;
        open_twin(&t, 160);
        for (int i = 0; i < 60; i++) {
            random_operation(&t, &random, &token);
            if (random_one_in(&random, 4)) {
                cellar_seq seq = (cellar_seq)random_below(&random, 4);
                cellar_status status = cellar_settle(t.d.memory, seq, NULL);
                assert_true(status == CELLAR_OK || status == CELLAR_FULL);
                if (status == CELLAR_OK) assert_int_equal(info_of(&t.d, seq).n_shifts, 0);
                twin_read(&t, seq);
            }
            assert_twin(&t);
        }
        worst = fmax(worst, t.worst);
        twin_close(&t);
    }
    print_message("worst difference to brute force: %.3f of the bound\n", worst);
    assert_true(worst < 1);
}

/* ---- row types ------------------------------------------------------------------------------- */

static double largest_difference(const float *a, const float *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        const double difference = fabs((double)a[i] - b[i]);
        if (difference > largest) largest = difference; /* not fmax(): gcc 12 for AArch64 fails */
    }
    return largest;
}

/* Rows of numbers up to 1.5, read back before and after settling; returns how far they moved. */
static double move_of_rows(cellar_type type, bool rotate_k)
{
    enum { N = 40, ROW = 2 * 64 };
    static float before[N * ROW], after[N * ROW];
    drive d = {.n_layers = 1, .seed = 3};
    d.layers[0] = rotated(64, CELLAR_ROPE_NEOX, type);
    d.layers[0].rotate_k = rotate_k;
    cellar_config config = cellar_config_init();
    config.n_cells = 128;
    assert_int_equal(drive_open(&d, &config, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 0, 1, N, NULL), CELLAR_OK);
    assert_int_equal(cellar_copy(d.memory, 0, 1, 0, 20, NULL), CELLAR_OK);
    assert_int_equal(cellar_shift(d.memory, 0, 0, -1, 1000, NULL), CELLAR_OK);
    assert_int_equal(cellar_read_rows(d.memory, 0, 0, 1000, N, before, NULL, NULL), CELLAR_OK);
    settle(&d, 0);
    assert_int_equal(cellar_read_rows(d.memory, 0, 0, 1000, N, after, NULL, NULL), CELLAR_OK);
    assert_sound(&d);
    drive_close(&d);
    return largest_difference(before, after, N * ROW);
}

static void every_row_type_is_rounded_once_more_and_no_further(void **state)
{
    (void)state;
    /* Half a step of the type for numbers below 2 (below 4 once turned by the transform, rarely). */
    const struct {
        cellar_type type;
        double step;
    } types[] = {{CELLAR_F32, 0x1p-22},    {CELLAR_F16, 0x1p-10},   {CELLAR_BF16, 0x1p-7},
                 {CELLAR_Q8_0, 4.0 / 127}, {CELLAR_Q5_1, 4.0 / 31}, {CELLAR_Q5_0, 4.0 / 15},
                 {CELLAR_Q4_1, 4.0 / 15},  {CELLAR_Q4_0, 4.0 / 7},  {CELLAR_IQ4_NL, 4.0 / 6}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assert_true(move_of_rows(types[i].type, false) <= types[i].step);
        /* Eight times as far in the worst case: an error in each of 64 elements adds up. */
        assert_true(move_of_rows(types[i].type, true) <= 8 * types[i].step);
    }
}

/* ---- at the beginning of a step -------------------------------------------------------------- */

static void open_sliding(drive *d, uint32_t max_shifts, uint32_t n_cells)
{
    *d = (drive){.n_layers = 1, .seed = 5};
    d->layers[0] = rotated(32, CELLAR_ROPE_NORMAL, CELLAR_F32);
    cellar_config config = cellar_config_init();
    config.n_cells = n_cells;
    config.max_shifts = max_shifts;
    assert_int_equal(drive_open(d, &config, NULL), CELLAR_OK);
    assert_int_equal(drive_append(d, 0, 1, 32, NULL), CELLAR_OK);
}

/* Make ten different shifts: gaps of one between the last tokens. */
static void slide(const drive *d, cellar_seq seq)
{
    for (cellar_pos p = 31; p > 21; p--)
        assert_int_equal(cellar_shift(d->memory, seq, p, -1, 1, NULL), CELLAR_OK);
    assert_int_equal(info_of(d, seq).n_shifts, 10);
}

static void a_step_settles_sequences_with_too_many_shifts(void **state)
{
    (void)state;
    drive d;
    open_sliding(&d, 8, 128);
    slide(&d, 0);
    uint32_t n_shifts = info_of(&d, 0).n_shifts;
    assert_true(n_shifts > 8);
    assert_int_equal(drive_append(&d, 1, 50, 1, NULL), CELLAR_OK);
    assert_int_equal(info_of(&d, 0).n_shifts, n_shifts); /* not its step */
    assert_int_equal(drive_append(&d, 0, 60, 1, NULL), CELLAR_OK);
    assert_int_equal(info_of(&d, 0).n_shifts, 0);
    assert_sound(&d);
    drive_close(&d);
}

static void a_step_does_not_settle_below_the_limit_or_when_told_not_to(void **state)
{
    (void)state;
    const uint32_t limits[] = {0, 100};
    for (size_t i = 0; i < 2; i++) {
        drive d;
        open_sliding(&d, limits[i], 128);
        slide(&d, 0);
        uint32_t n_shifts = info_of(&d, 0).n_shifts;
        assert_int_equal(drive_append(&d, 0, 60, 1, NULL), CELLAR_OK);
        assert_int_equal(info_of(&d, 0).n_shifts, n_shifts);
        drive_close(&d);
    }
}

static void a_step_takes_no_room_from_itself(void **state)
{
    (void)state;
    drive d;
    open_sliding(&d, 8, 64);
    assert_int_equal(cellar_copy(d.memory, 0, 1, 0, -1, NULL), CELLAR_OK);
    slide(&d, 0);
    assert_int_equal(drive_append(&d, 0, 60, 30, NULL), CELLAR_OK); /* 32 are free */
    assert_sound(&d);
    assert_int_equal(stats_of(&d).n_free + stats_of(&d).n_used, 64);
    drive_close(&d);
}

static void sequences_that_read_together_are_not_parted(void **state)
{
    (void)state;
    drive d;
    open_sliding(&d, 8, 128);
    slide(&d, 0);
    assert_int_equal(cellar_copy(d.memory, 0, 1, 0, -1, NULL), CELLAR_OK);
    for (cellar_token token = 100; token < 103; token++) {
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = 1;
        batch.tokens = &token;
        batch.seq_begin = (uint32_t[]){0, 2};
        batch.seqs = (cellar_seq[]){0, 1};
        assert_int_equal(drive_step(&d, &batch, NULL, NULL), CELLAR_OK);
    }
    assert_true(info_of(&d, 0).n_shifts > 8);
    drive_close(&d);
}

/* ---- what can go wrong ----------------------------------------------------------------------- */

static void a_store_that_fails_leaves_every_row_as_it_was(void **state)
{
    (void)state;
    const cellar_row_store store = faulty_store();
    drive d = {.n_layers = 2, .seed = 9};
    d.layers[0] = rotated(32, CELLAR_ROPE_NORMAL, CELLAR_F32);
    d.layers[1] = rotated(32, CELLAR_ROPE_NEOX, CELLAR_F16);
    d.layers[1].store = &store;
    cellar_config config = cellar_config_init();
    config.n_cells = 128;
    assert_int_equal(drive_open(&d, &config, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 0, 1, 20, NULL), CELLAR_OK);
    assert_int_equal(cellar_shift(d.memory, 0, 5, -1, 4, NULL), CELLAR_OK);
    float *before = drive_grab(d.out_size, sizeof *before);
    float *after = drive_grab(d.out_size, sizeof *after);
    assert_int_equal(drive_probe(&d, 0, 999, before), CELLAR_OK);
    uint32_t n_refused = 0;
    for (int n = 0;; n++) {
        cellar_error error = {0};
        faulty_store_calls_left = n;
        cellar_status status = cellar_settle(d.memory, 0, &error);
        faulty_store_calls_left = -1;
        assert_sound(&d);
        if (status == CELLAR_OK) break;
        assert_int_equal(status, CELLAR_IO);
        assert_int_equal(error.reason, CELLAR_REASON_STORE);
        assert_int_equal(drive_probe(&d, 0, 999, after), CELLAR_OK);
        assert_memory_equal(before, after, d.out_size * sizeof *before);
        n_refused++;
    }
    assert_true(n_refused > 20);
    assert_int_equal(info_of(&d, 0).n_shifts, 0);
    assert_int_equal(drive_probe(&d, 0, 999, after), CELLAR_OK);
    assert_true(largest_difference(before, after, d.out_size) < 1e-3);
    free(before);
    free(after);
    drive_close(&d);
}

static void without_memory_nothing_changes(void **state)
{
    (void)state;
    drive d = {.n_layers = 1, .seed = 9};
    d.layers[0] = rotated(32, CELLAR_ROPE_NORMAL, CELLAR_F32);
    cellar_config config = cellar_config_init();
    config.n_cells = 128;
    config.allocator = faulty_allocator();
    assert_int_equal(drive_open(&d, &config, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 0, 1, 40, NULL), CELLAR_OK);
    assert_int_equal(cellar_copy(d.memory, 0, 1, 0, 20, NULL), CELLAR_OK);
    assert_int_equal(cellar_shift(d.memory, 0, 5, -1, 4, NULL), CELLAR_OK);
    drive_snapshot before = {0}, after = {0};
    char why[200] = "";
    assert_true(drive_snapshot_take(&before, d.memory));
    int n = 0;
    for (;; n++) {
        faulty_allocations_left = n;
        cellar_status status = cellar_settle(d.memory, 0, NULL);
        faulty_allocations_left = -1;
        assert_sound(&d);
        if (status == CELLAR_OK) break;
        assert_int_equal(status, CELLAR_NO_MEMORY);
        assert_true(drive_snapshot_take(&after, d.memory));
        assert_true(drive_snapshot_equal(&before, &after, why));
    }
    assert_true(n >= 3);
    assert_int_equal(info_of(&d, 0).n_shifts, 0);
    drive_snapshot_free(&before);
    drive_snapshot_free(&after);
    drive_close(&d);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    drive d;
    open_sliding(&d, 0, 64);
    assert_int_equal(cellar_settle(NULL, 0, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_settle(d.memory, -1, NULL), CELLAR_INVALID);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_settle(d.memory, 0, NULL), CELLAR_BUSY);
    cellar_abort(d.memory);
    drive_close(&d);
}

/* ---- engines --------------------------------------------------------------------------------- */

typedef struct told {
    cellar_move moves[16];
    uint32_t n;
} told;

static bool take_move(void *context, const cellar_move *move)
{
    told *t = context;
    assert_true(t->n < 16);
    t->moves[t->n++] = *move;
    return true;
}

static void append_external(cellar_memory *memory, cellar_seq seq, uint32_t n)
{
    cellar_seq seqs[64];
    for (uint32_t i = 0; i < n; i++)
        seqs[i] = seq;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.seqs = seqs;
    assert_int_equal(cellar_begin(memory, &batch, NULL), CELLAR_OK);
    for (uint32_t u = 0; u < cellar_count_ubatches(memory); u++)
        assert_int_equal(cellar_confirm(memory, u, 0, NULL), CELLAR_OK);
    assert_int_equal(cellar_commit(memory, NULL), CELLAR_OK);
}

static void an_engine_is_told_what_to_copy_and_turn(void **state)
{
    (void)state;
    drive d = {.n_layers = 1, .seed = 9};
    d.layers[0] = rotated(32, CELLAR_ROPE_NORMAL, CELLAR_F32);
    d.layers[0].is_external = true;
    cellar_config config = cellar_config_init();
    config.n_cells = 64;
    config.max_shifts = 1;
    assert_int_equal(drive_open(&d, &config, NULL), CELLAR_OK);
    append_external(d.memory, 0, 20);
    assert_int_equal(cellar_copy(d.memory, 0, 1, 0, 10, NULL), CELLAR_OK);
    assert_int_equal(cellar_shift(d.memory, 0, 5, -1, 4, NULL), CELLAR_OK);
    settle(&d, 0);
    told t = {.n = 0};
    assert_int_equal(cellar_visit_moves(d.memory, take_move, &t, NULL), CELLAR_OK);
    assert_int_equal(t.n, 2);
    assert_int_equal(t.moves[0].n, 5); /* shared: copied and turned */
    assert_int_equal(t.moves[0].turn, 4);
    assert_int_not_equal(t.moves[0].from, t.moves[0].to);
    assert_int_equal(t.moves[1].n, 10); /* its own: turned */
    assert_int_equal(t.moves[1].turn, 4);
    assert_int_equal(t.moves[1].from, t.moves[1].to);
    assert_sound(&d);
    assert_int_equal(cellar_shift(d.memory, 0, 9, -1, 4, NULL), CELLAR_OK);
    assert_int_equal(cellar_settle(d.memory, 0, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_compact(d.memory, 5, NULL, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_confirm_moves(d.memory, NULL), CELLAR_OK);
    settle(&d, 0);
    drive_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_held_once_are_turned_where_they_lie),
        cmocka_unit_test(runs_that_only_a_shift_kept_apart_become_one),
        cmocka_unit_test(settling_what_is_not_shifted_changes_nothing),
        cmocka_unit_test(shared_cells_are_copied_and_others_notice_nothing),
        cmocka_unit_test(without_room_nothing_changes),
        cmocka_unit_test(a_cell_that_one_sequence_holds_twice),
        cmocka_unit_test(random_memories_settle_to_what_they_were),
        cmocka_unit_test(every_row_type_is_rounded_once_more_and_no_further),
        cmocka_unit_test(a_step_settles_sequences_with_too_many_shifts),
        cmocka_unit_test(a_step_does_not_settle_below_the_limit_or_when_told_not_to),
        cmocka_unit_test(a_step_takes_no_room_from_itself),
        cmocka_unit_test(sequences_that_read_together_are_not_parted),
        cmocka_unit_test(a_store_that_fails_leaves_every_row_as_it_was),
        cmocka_unit_test(without_memory_nothing_changes),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(an_engine_is_told_what_to_copy_and_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
