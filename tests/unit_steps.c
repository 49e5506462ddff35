/*
 * unit_steps.c: begin, store, attend, commit and abort: what a batch may look like, which calls are
 * legal when, and what the outside sees while a step is open.
 *
 * Written from the header's words alone. Refusals are also held to change nothing, by comparing
 * pictures of the memory (model/drive.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "model/drive.h"

enum { A, B, C, K_ROW = 16, V_ROW = 16, Q_ROW = 32, OUT_ROW = 32 };

static drive open_drive(uint32_t n_cells, uint32_t n_ubatch)
{
    drive d;
    cellar_config config = cellar_config_init();
    memset(&d, 0, sizeof d);
    d.seed = 3;
    d.n_layers = 2;
    d.layers[0] = drive_layer(4, 2, 8, 8);
    d.layers[0].rope.kind = CELLAR_ROPE_NEOX;
    d.layers[1] = d.layers[0];
    d.layers[1].k_type = CELLAR_F16;
    config.n_cells = n_cells;
    config.n_ubatch = n_ubatch;
    assert_int_equal(drive_open(&d, &config, NULL), CELLAR_OK);
    return d;
}

static void close_drive(drive *d)
{
    cellar_error error = {0};
    if (cellar_check(d->memory, &error) != CELLAR_OK) fail_msg("cellar_check: %s", error.message);
    drive_close(d);
}

/* Begin must fail with this status, at this place, and change nothing. */
static void refuse(drive *d, const cellar_batch *batch, cellar_status status, int64_t at)
{
    drive_snapshot before = {0}, after = {0};
    char why[200] = "";
    cellar_error error = {0};
    assert_true(drive_snapshot_take(&before, d->memory));
    assert_int_equal(cellar_begin(d->memory, batch, &error), status);
    assert_int_equal(error.status, status);
    assert_int_equal(error.at, at);
    assert_int_not_equal(error.message[0], 0);
    assert_int_equal(cellar_begin(d->memory, batch, NULL), status);
    assert_int_equal(cellar_count_ubatches(d->memory), 0);
    assert_true(drive_snapshot_take(&after, d->memory));
    if (!drive_snapshot_equal(&before, &after, why)) fail_msg("%s", why);
    drive_snapshot_free(&before);
    drive_snapshot_free(&after);
}

static cellar_batch batch_of(uint32_t n, const cellar_pos *positions, const cellar_seq *seqs)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.positions = positions;
    batch.seqs = seqs;
    return batch;
}

static const float zeros[64 * 64];

static cellar_status store(drive *d, uint32_t ubatch, uint32_t layer)
{
    return cellar_store(d->memory, ubatch, layer, zeros, zeros, NULL);
}

static void store_all(drive *d)
{
    for (uint32_t u = 0; u < cellar_count_ubatches(d->memory); u++)
        for (uint32_t l = 0; l < d->n_layers; l++)
            assert_int_equal(store(d, u, l), CELLAR_OK);
}

/* ---- what a batch may say -------------------------------------------------------------------- */

static void a_batch_of_nothing_but_a_count_goes_to_sequence_0(void **state)
{
    (void)state;
    drive d = open_drive(16, 4);
    cellar_batch batch = batch_of(6, NULL, NULL);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_count_ubatches(d.memory), 2);
    cellar_ubatch ubatch;
    assert_int_equal(cellar_get_ubatch(d.memory, 1, &ubatch, NULL), CELLAR_OK);
    assert_int_equal(ubatch.n_tokens, 2);
    assert_int_equal(ubatch.indices[0], 4);
    assert_int_equal(ubatch.indices[1], 5);
    assert_int_equal(ubatch.positions[1], 5);
    store_all(&d);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_OK);
    assert_int_equal(cellar_position_max(d.memory, 0), 5);
    close_drive(&d);
}

static void positions_follow_the_sequence_by_themselves(void **state)
{
    static const cellar_seq seqs[] = {B, A, B, C, A};
    static const cellar_pos expected[] = {3, 2, 4, 0, 3};
    (void)state;
    drive d = open_drive(16, 8);
    assert_int_equal(drive_append(&d, A, 0, 2, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, B, 10, 3, NULL), CELLAR_OK);
    cellar_batch batch = batch_of(5, NULL, seqs);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    cellar_ubatch ubatch;
    assert_int_equal(cellar_get_ubatch(d.memory, 0, &ubatch, NULL), CELLAR_OK);
    assert_memory_equal(ubatch.positions, expected, sizeof expected);
    cellar_abort(d.memory);
    batch.positions = expected; /* the same, said aloud */
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    close_drive(&d);
}

static void a_position_must_be_the_next_one(void **state)
{
    static const cellar_pos wrong[][3] = {{4, 5, 6}, {6, 7, 8},  {0, 1, 2},
                                          {5, 7, 8}, {5, 5, 6},  {5, 6, 8},
                                          {5, 6, 5}, {-1, 0, 1}, {5, 6, INT32_MAX}};
    static const int at[] = {0, 0, 0, 1, 1, 2, 2, 0, 2};
    static const cellar_pos right[] = {5, 6, 7};
    (void)state;
    drive d = open_drive(16, 4);
    assert_int_equal(drive_append(&d, A, 0, 5, NULL), CELLAR_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cellar_batch batch = batch_of(3, wrong[i], NULL);
        refuse(&d, &batch, CELLAR_INVALID, at[i]);
    }
    cellar_batch batch = batch_of(3, right, NULL);
    assert_int_equal(drive_step(&d,
                                &(cellar_batch){.struct_size = sizeof batch,
                                                .n_tokens = 3,
                                                .tokens = right,
                                                .positions = right},
                                NULL, NULL),
                     CELLAR_OK);
    close_drive(&d);
}

static void an_empty_sequence_may_start_anywhere(void **state)
{
    static const cellar_pos positions[] = {1000, 1001, INT32_MAX - 1};
    static const cellar_pos beyond[] = {INT32_MAX - 1, INT32_MAX};
    static const cellar_pos negative[] = {-1};
    static const cellar_seq seqs[] = {A, A, B};
    (void)state;
    drive d = open_drive(16, 4);
    cellar_batch batch = batch_of(3, positions, seqs);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    store_all(&d);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_OK);
    assert_int_equal(cellar_position_min(d.memory, A), 1000);
    assert_int_equal(cellar_position_max(d.memory, A), 1001);
    assert_int_equal(cellar_position_min(d.memory, B), INT32_MAX - 1);
    cellar_batch next = batch_of(1, NULL, &seqs[2]); /* B has no next position */
    refuse(&d, &next, CELLAR_INVALID, 0);
    assert_int_equal(cellar_clear(d.memory, NULL), CELLAR_OK);
    batch = batch_of(2, beyond, NULL);
    refuse(&d, &batch, CELLAR_INVALID, 1);
    batch = batch_of(1, negative, NULL);
    refuse(&d, &batch, CELLAR_INVALID, 0);
    close_drive(&d);
}

static void after_a_removal_reading_goes_on_there(void **state)
{
    (void)state;
    drive d = open_drive(16, 4);
    assert_int_equal(drive_append(&d, A, 0, 9, NULL), CELLAR_OK);
    assert_int_equal(cellar_remove(d.memory, A, 4, -1, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, A, 50, 3, NULL), CELLAR_OK);
    assert_int_equal(cellar_position_max(d.memory, A), 6);
    close_drive(&d);
}

static void sequences_of_a_token_are_checked(void **state)
{
    static const cellar_seq negative[] = {A, -1, B};
    static const cellar_seq twice[] = {A, B, B, C};
    static const uint32_t pairs[] = {0, 1, 3, 4};
    static const uint32_t with_none[] = {0, 1, 1, 2};
    static const uint32_t falling[] = {0, 2, 1, 3};
    (void)state;
    drive d = open_drive(16, 4);
    cellar_batch batch = batch_of(3, NULL, negative);
    refuse(&d, &batch, CELLAR_INVALID, 1);
    batch = batch_of(3, NULL, twice);
    batch.seq_begin = pairs;
    refuse(&d, &batch, CELLAR_INVALID, 1);
    batch.seq_begin = with_none;
    refuse(&d, &batch, CELLAR_INVALID, 1);
    batch.seq_begin = falling;
    refuse(&d, &batch, CELLAR_INVALID, 1);
    close_drive(&d);
}

static void a_list_of_sequences_cannot_be_missing(void **state)
{
    static const uint32_t seq_begin[] = {0, 1};
    cellar_error error = {0};
    (void)state;
    drive d = open_drive(16, 4);
    cellar_batch batch = batch_of(1, NULL, NULL);
    batch.seq_begin = seq_begin;
    assert_int_equal(cellar_begin(d.memory, &batch, &error), CELLAR_INVALID);
    batch = batch_of(0, NULL, NULL);
    assert_int_equal(cellar_begin(d.memory, &batch, &error), CELLAR_INVALID);
    assert_int_equal(cellar_begin(d.memory, NULL, &error), CELLAR_INVALID);
    batch = batch_of(1, NULL, NULL);
    batch.struct_size = 0;
    assert_int_equal(cellar_begin(d.memory, &batch, &error), CELLAR_INVALID);
    close_drive(&d);
}

static void a_token_in_several_sequences_needs_one_past(void **state)
{
    static const uint32_t seq_begin[] = {0, 2};
    static const cellar_seq both[] = {A, B};
    (void)state;
    drive d = open_drive(32, 4);
    cellar_batch batch = batch_of(1, NULL, both);
    batch.seq_begin = seq_begin;
    assert_int_equal(drive_append(&d, A, 0, 5, NULL), CELLAR_OK);
    refuse(&d, &batch, CELLAR_INVALID, 0); /* B is empty */
    assert_int_equal(drive_append(&d, B, 0, 5, NULL), CELLAR_OK);
    refuse(&d, &batch, CELLAR_INVALID, 0); /* same tokens and positions, but other cells */
    assert_int_equal(cellar_copy(d.memory, A, B, 0, 4, NULL), CELLAR_OK);
    refuse(&d, &batch, CELLAR_INVALID, 0); /* all but one */
    assert_int_equal(cellar_copy(d.memory, A, B, 4, 5, NULL), CELLAR_OK);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    cellar_abort(d.memory);
    assert_int_equal(cellar_shift(d.memory, B, 0, -1, 1, NULL), CELLAR_OK);
    refuse(&d, &batch, CELLAR_INVALID, 0); /* same cells, but elsewhere */
    assert_int_equal(cellar_shift(d.memory, A, 0, -1, 1, NULL), CELLAR_OK);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK); /* both moved alike */
    close_drive(&d);
}

static void sequences_may_part_in_a_batch_but_not_meet_again(void **state)
{
    static const uint32_t seq_begin[] = {0, 2, 4, 5, 7};
    static const cellar_seq seqs[] = {A, B, B, A, A, A, B};
    (void)state;
    drive d = open_drive(32, 4);
    cellar_batch batch = batch_of(4, NULL, seqs);
    batch.seq_begin = seq_begin;
    refuse(&d, &batch, CELLAR_INVALID, 3);
    batch.n_tokens = 3;
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    store_all(&d);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_OK);
    cellar_statistics stats;
    assert_int_equal(cellar_stats(d.memory, &stats, NULL), CELLAR_OK);
    assert_int_equal(stats.n_used, 3);
    assert_int_equal(stats.n_shared, 2);
    assert_int_equal(cellar_position_max(d.memory, A), 2);
    assert_int_equal(cellar_position_max(d.memory, B), 1);
    close_drive(&d);
}

static void a_full_memory_says_how_many_cells_are_missing(void **state)
{
    (void)state;
    drive d = open_drive(8, 4);
    cellar_batch batch = batch_of(9, NULL, NULL);
    refuse(&d, &batch, CELLAR_FULL, 1);
    batch.n_tokens = 1000000;
    refuse(&d, &batch, CELLAR_FULL, 1000000 - 8);
    assert_int_equal(drive_append(&d, A, 0, 5, NULL), CELLAR_OK);
    batch.n_tokens = 4;
    refuse(&d, &batch, CELLAR_FULL, 1);
    assert_int_equal(drive_append(&d, A, 5, 3, NULL), CELLAR_OK);
    batch.n_tokens = 1;
    refuse(&d, &batch, CELLAR_FULL, 1);
    close_drive(&d);
}

static void the_arrays_of_a_batch_may_go_when_begin_returns(void **state)
{
    (void)state;
    drive d = open_drive(16, 2);
    cellar_token *tokens = drive_grab(5, sizeof *tokens);
    cellar_pos *positions = drive_grab(5, sizeof *positions);
    uint32_t *seq_begin = drive_grab(6, sizeof *seq_begin);
    cellar_seq *seqs = drive_grab(5, sizeof *seqs);
    for (int32_t i = 0; i < 5; i++) {
        tokens[i] = 40 + i;
        positions[i] = 7 + i;
        seq_begin[i + 1] = (uint32_t)i + 1;
        seqs[i] = 3;
    }
    cellar_batch batch = batch_of(5, positions, seqs);
    batch.tokens = tokens;
    batch.seq_begin = seq_begin;
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    free(tokens);
    free(positions);
    free(seq_begin);
    free(seqs);
    memset(&batch, 0xff, sizeof batch);
    store_all(&d);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_OK);
    drive_snapshot picture = {0};
    assert_true(drive_snapshot_take(&picture, d.memory));
    assert_int_equal(picture.n_cells, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(picture.cells[i].token, 33 + picture.cells[i].stored_pos);
        assert_int_equal(picture.cells[i].refs, 1);
    }
    drive_snapshot_free(&picture);
    close_drive(&d);
}

static void tokens_that_are_not_given_are_unknown(void **state)
{
    (void)state;
    drive d = open_drive(16, 4);
    cellar_batch batch = batch_of(2, NULL, NULL);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    store_all(&d);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_OK);
    drive_snapshot picture = {0};
    assert_true(drive_snapshot_take(&picture, d.memory));
    assert_int_equal(picture.cells[0].token, -1);
    assert_int_equal(picture.cells[1].token, -1);
    drive_snapshot_free(&picture);
    close_drive(&d);
}

/* ---- an open step ---------------------------------------------------------------------------- */

static void an_open_step_is_not_seen_and_makes_others_wait(void **state)
{
    cellar_sequence_info info;
    cellar_statistics stats;
    cellar_pos discarded;
    (void)state;
    drive d = open_drive(16, 4);
    assert_int_equal(drive_append(&d, A, 0, 5, NULL), CELLAR_OK);
    cellar_batch batch = batch_of(6, NULL, NULL);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    store_all(&d);
    assert_int_equal(cellar_position_max(d.memory, A), 4);
    assert_int_equal(cellar_get_sequence(d.memory, A, &info, NULL), CELLAR_OK);
    assert_int_equal(info.n_cells, 5);
    assert_int_equal(info.pos_next, 5);
    assert_int_equal(cellar_can_continue(d.memory, A, 6, NULL, NULL), CELLAR_REPLAY);
    assert_int_equal(cellar_stats(d.memory, &stats, NULL), CELLAR_OK);
    assert_int_equal(stats.n_used, 11); /* reserved cells count as used */
    assert_int_equal(stats.n_free, 5);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_remove(d.memory, A, 0, -1, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_copy(d.memory, A, B, 0, -1, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_keep(d.memory, A, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_shift(d.memory, A, 0, -1, 1, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_shift_context(d.memory, A, 0, 1, &discarded, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_clear(d.memory, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_OK);
    assert_int_equal(cellar_position_max(d.memory, A), 10);
    close_drive(&d);
}

static void layers_may_come_in_any_order_and_micro_batches_in_theirs(void **state)
{
    (void)state;
    drive d = open_drive(16, 2);
    cellar_batch batch = batch_of(5, NULL, NULL);
    assert_int_equal(store(&d, 0, 0), CELLAR_INVALID); /* no step */
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(store(&d, 1, 0), CELLAR_INVALID); /* not its turn */
    assert_int_equal(store(&d, 0, 1), CELLAR_OK);
    assert_int_equal(store(&d, 0, 1), CELLAR_INVALID); /* twice */
    assert_int_equal(store(&d, 1, 1), CELLAR_OK);
    assert_int_equal(store(&d, 2, 1), CELLAR_OK);
    assert_int_equal(store(&d, 3, 1), CELLAR_INVALID); /* no such micro-batch */
    assert_int_equal(store(&d, 0, 2), CELLAR_INVALID); /* no such layer */
    assert_int_equal(store(&d, 0, 0), CELLAR_OK);
    assert_int_equal(store(&d, 0, 1), CELLAR_INVALID);
    assert_int_equal(cellar_store(d.memory, 1, 0, NULL, zeros, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_store(d.memory, 1, 0, zeros, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_INVALID); /* not complete; stays open */
    assert_int_equal(cellar_count_ubatches(d.memory), 3);
    assert_int_equal(store(&d, 1, 0), CELLAR_OK);
    assert_int_equal(store(&d, 2, 0), CELLAR_OK);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_OK);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_INVALID); /* no step */
    assert_int_equal(cellar_position_max(d.memory, A), 4);
    close_drive(&d);
}

static void attention_needs_the_rows_of_its_micro_batch(void **state)
{
    float out[2 * OUT_ROW];
    (void)state;
    drive d = open_drive(16, 2);
    cellar_batch batch = batch_of(4, NULL, NULL);
    assert_int_equal(cellar_attend(d.memory, 0, 0, zeros, out, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_attend(d.memory, 0, 0, zeros, out, NULL), CELLAR_INVALID);
    assert_int_equal(store(&d, 0, 1), CELLAR_OK);
    assert_int_equal(cellar_attend(d.memory, 0, 0, zeros, out, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_attend(d.memory, 0, 1, zeros, out, NULL), CELLAR_OK);
    assert_int_equal(cellar_attend(d.memory, 1, 1, zeros, out, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_attend(d.memory, 2, 1, zeros, out, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_attend(d.memory, 0, 2, zeros, out, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_attend(d.memory, 0, 1, NULL, out, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_attend(d.memory, 0, 1, zeros, NULL, NULL), CELLAR_INVALID);
    close_drive(&d); /* an open step is given back with the memory */
}

static void attending_again_later_gives_the_same(void **state)
{
    float k[4 * K_ROW], v[4 * V_ROW], q[2 * Q_ROW], first[2 * OUT_ROW], again[2 * OUT_ROW];
    (void)state;
    drive d = open_drive(16, 2);
    assert_int_equal(drive_append(&d, A, 0, 5, NULL), CELLAR_OK);
    drive_fill(k, sizeof k / sizeof *k, 1);
    drive_fill(v, sizeof v / sizeof *v, 2);
    drive_fill(q, sizeof q / sizeof *q, 3);
    cellar_batch batch = batch_of(4, NULL, NULL);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_store(d.memory, 0, 0, k, v, NULL), CELLAR_OK);
    assert_int_equal(cellar_attend(d.memory, 0, 0, q, first, NULL), CELLAR_OK);
    assert_int_equal(cellar_store(d.memory, 1, 0, k + 2 * K_ROW, v + 2 * V_ROW, NULL), CELLAR_OK);
    assert_int_equal(cellar_attend(d.memory, 0, 0, q, again, NULL), CELLAR_OK);
    assert_memory_equal(first, again, sizeof first); /* what came later is not seen */
    close_drive(&d);
}

static void micro_batches_stay_readable_until_the_step_ends(void **state)
{
    cellar_ubatch ubatch[3], none;
    (void)state;
    drive d = open_drive(16, 2);
    assert_int_equal(cellar_get_ubatch(d.memory, 0, &none, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_count_ubatches(d.memory), 0);
    cellar_batch batch = batch_of(5, NULL, NULL);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    for (uint32_t u = 0; u < 3; u++)
        assert_int_equal(cellar_get_ubatch(d.memory, u, &ubatch[u], NULL), CELLAR_OK);
    assert_int_equal(cellar_get_ubatch(d.memory, 3, &none, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_get_ubatch(d.memory, 0, NULL, NULL), CELLAR_INVALID);
    store_all(&d);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(ubatch[i / 2].indices[i % 2], i);
        assert_int_equal(ubatch[i / 2].positions[i % 2], (int)i);
    }
    assert_int_equal(ubatch[2].n_tokens, 1);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_OK);
    assert_int_equal(cellar_count_ubatches(d.memory), 0);
    close_drive(&d);
}

static void an_aborted_step_leaves_nothing(void **state)
{
    drive_snapshot before = {0}, after = {0};
    char why[200] = "";
    (void)state;
    drive d = open_drive(16, 2);
    cellar_abort(d.memory); /* nothing to abort */
    assert_int_equal(drive_append(&d, A, 0, 5, NULL), CELLAR_OK);
    assert_true(drive_snapshot_take(&before, d.memory));
    for (int n_stores = 0; n_stores < 3; n_stores++) {
        cellar_batch batch = batch_of(11, NULL, NULL);
        assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
        for (int i = 0; i < n_stores; i++)
            assert_int_equal(store(&d, (uint32_t)i, 1), CELLAR_OK);
        cellar_abort(d.memory);
        assert_true(drive_snapshot_take(&after, d.memory));
        if (!drive_snapshot_equal(&before, &after, why)) fail_msg("%s", why);
    }
    drive_snapshot_free(&before);
    drive_snapshot_free(&after);
    close_drive(&d);
}

static void a_new_sequence_does_not_exist_before_the_commit(void **state)
{
    static const cellar_seq seqs[] = {77, 77};
    cellar_statistics stats;
    (void)state;
    drive d = open_drive(16, 2);
    cellar_batch batch = batch_of(2, NULL, seqs);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_stats(d.memory, &stats, NULL), CELLAR_OK);
    assert_int_equal(stats.n_sequences, 0);
    cellar_abort(d.memory);
    assert_int_equal(cellar_stats(d.memory, &stats, NULL), CELLAR_OK);
    assert_int_equal(stats.n_sequences, 0);
    assert_int_equal(stats.n_used, 0);
    assert_int_equal(cellar_position_max(d.memory, 77), -1);
    close_drive(&d);
}

static void rows_are_read_back_as_they_stand(void **state)
{
    float k[3 * K_ROW], v[3 * V_ROW];
    cellar_error error = {0};
    (void)state;
    drive d = open_drive(16, 4);
    assert_int_equal(drive_append(&d, A, 0, 8, NULL), CELLAR_OK);
    assert_int_equal(cellar_read_rows(d.memory, A, 0, 5, 3, k, v, NULL), CELLAR_OK);
    assert_int_equal(cellar_read_rows(d.memory, A, 0, 5, 3, k, NULL, NULL), CELLAR_OK);
    assert_int_equal(cellar_read_rows(d.memory, A, 0, 5, 3, NULL, v, NULL), CELLAR_OK);
    assert_int_equal(cellar_read_rows(d.memory, A, 0, 6, 3, k, v, &error), CELLAR_NOT_FOUND);
    assert_int_equal(error.at, 8);
    assert_int_equal(cellar_remove(d.memory, A, 3, 5, NULL), CELLAR_OK);
    assert_int_equal(cellar_read_rows(d.memory, A, 0, 2, 3, k, v, &error), CELLAR_NOT_FOUND);
    assert_int_equal(error.at, 3);
    assert_int_equal(cellar_read_rows(d.memory, B, 0, 0, 1, k, v, &error), CELLAR_NOT_FOUND);
    assert_int_equal(error.at, 0);
    assert_int_equal(cellar_read_rows(d.memory, A, 2, 0, 1, k, v, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_read_rows(d.memory, -1, 0, 0, 1, k, v, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_read_rows(d.memory, A, 0, -1, 1, k, v, NULL), CELLAR_INVALID);
    close_drive(&d);
}

static void a_memory_says_where_a_sequence_can_go_on(void **state)
{
    static const cellar_pos start = 20;
    cellar_pos from = -7;
    (void)state;
    drive d = open_drive(16, 4);
    assert_int_equal(cellar_can_continue(d.memory, A, 0, &from, NULL), CELLAR_OK);
    assert_int_equal(cellar_can_continue(d.memory, A, 1, &from, NULL), CELLAR_REPLAY);
    assert_int_equal(from, 0);
    assert_int_equal(drive_append(&d, A, 0, 6, NULL), CELLAR_OK);
    for (cellar_pos n = 0; n <= 6; n++)
        assert_int_equal(cellar_can_continue(d.memory, A, n, &from, NULL), CELLAR_OK);
    assert_int_equal(cellar_can_continue(d.memory, A, 9, &from, NULL), CELLAR_REPLAY);
    assert_int_equal(from, 6);
    assert_int_equal(cellar_can_continue(d.memory, A, -1, &from, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_can_continue(d.memory, -1, 0, &from, NULL), CELLAR_INVALID);
    cellar_batch batch = batch_of(1, &start, (const cellar_seq[]){B});
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    store_all(&d);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_OK);
    assert_int_equal(cellar_can_continue(d.memory, B, 21, &from, NULL), CELLAR_OK);
    assert_int_equal(cellar_can_continue(d.memory, B, 10, &from, NULL), CELLAR_REPLAY);
    assert_int_equal(from, 0); /* what stood before 10 is gone */
    close_drive(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_of_nothing_but_a_count_goes_to_sequence_0),
        cmocka_unit_test(positions_follow_the_sequence_by_themselves),
        cmocka_unit_test(a_position_must_be_the_next_one),
        cmocka_unit_test(an_empty_sequence_may_start_anywhere),
        cmocka_unit_test(after_a_removal_reading_goes_on_there),
        cmocka_unit_test(sequences_of_a_token_are_checked),
        cmocka_unit_test(a_list_of_sequences_cannot_be_missing),
        cmocka_unit_test(a_token_in_several_sequences_needs_one_past),
        cmocka_unit_test(sequences_may_part_in_a_batch_but_not_meet_again),
        cmocka_unit_test(a_full_memory_says_how_many_cells_are_missing),
        cmocka_unit_test(the_arrays_of_a_batch_may_go_when_begin_returns),
        cmocka_unit_test(tokens_that_are_not_given_are_unknown),
        cmocka_unit_test(an_open_step_is_not_seen_and_makes_others_wait),
        cmocka_unit_test(layers_may_come_in_any_order_and_micro_batches_in_theirs),
        cmocka_unit_test(attention_needs_the_rows_of_its_micro_batch),
        cmocka_unit_test(attending_again_later_gives_the_same),
        cmocka_unit_test(micro_batches_stay_readable_until_the_step_ends),
        cmocka_unit_test(an_aborted_step_leaves_nothing),
        cmocka_unit_test(a_new_sequence_does_not_exist_before_the_commit),
        cmocka_unit_test(rows_are_read_back_as_they_stand),
        cmocka_unit_test(a_memory_says_where_a_sequence_can_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
