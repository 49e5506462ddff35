/*
 * unit_settle_failures.c: settling when something goes wrong, and settling for an engine.
 *
 * A store of the caller that fails at its n-th call, an allocator that has no more, wrong arguments: every
 * row must be as it was, with the position that it is known to be rotated for. And the list of moves for
 * an engine that keeps rows itself.
 */
#include "support_settling.h"

/* ---- what can go wrong ----------------------------------------------------------------------- */

typedef struct flaky {
    int n_until_failure; /* < 0: never */
} flaky;

static bool goes_well(flaky *f)
{
    if (f->n_until_failure == 0) return false;
    if (f->n_until_failure > 0) f->n_until_failure--;
    return true;
}

static void *flaky_allocate(void *context, size_t size)
{
    (void)context;
    return calloc(1, size);
}

static void flaky_release(void *context, void *buffer, size_t size)
{
    (void)context;
    (void)size;
    free(buffer);
}

static bool flaky_read(void *context, void *buffer, size_t offset, void *to, size_t size)
{
    if (!goes_well(context)) return false;
    memcpy(to, (char *)buffer + offset, size);
    return true;
}

static bool flaky_write(void *context, void *buffer, size_t offset, const void *from, size_t size)
{
    if (!goes_well(context)) return false;
    memcpy((char *)buffer + offset, from, size);
    return true;
}

static bool flaky_copy(void *context, void *to, size_t to_offset, void *from, size_t from_offset,
                       size_t size)
{
    if (!goes_well(context)) return false;
    memmove((char *)to + to_offset, (char *)from + from_offset, size);
    return true;
}

static bool flaky_clear(void *context, void *buffer, size_t offset, size_t size)
{
    if (!goes_well(context)) return false;
    memset((char *)buffer + offset, 0, size);
    return true;
}

static void a_store_that_fails_leaves_every_row_as_it_was(void **state)
{
    (void)state;
    flaky context = {-1};
    const cellar_row_store store = {flaky_allocate, flaky_release, NULL,        flaky_read,
                                    flaky_write,    flaky_copy,    flaky_clear, &context};
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
        context.n_until_failure = n;
        cellar_status status = cellar_settle(d.memory, 0, &error);
        context.n_until_failure = -1;
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

static int allocations_left = -1;

static void *give(void *context, size_t size, size_t align)
{
    (void)context;
    if (allocations_left == 0) return NULL;
    if (allocations_left > 0) allocations_left--;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void take_back(void *context, void *block, size_t size)
{
    (void)context;
    (void)size;
    free(block);
}

static void without_memory_nothing_changes(void **state)
{
    (void)state;
    drive d = {.n_layers = 1, .seed = 9};
    d.layers[0] = rotated(32, CELLAR_ROPE_NORMAL, CELLAR_F32);
    cellar_config config = cellar_config_init();
    config.n_cells = 128;
    config.allocator = (cellar_allocator){give, NULL, take_back, NULL};
    assert_int_equal(drive_open(&d, &config, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 0, 1, 40, NULL), CELLAR_OK);
    assert_int_equal(cellar_copy(d.memory, 0, 1, 0, 20, NULL), CELLAR_OK);
    assert_int_equal(cellar_shift(d.memory, 0, 5, -1, 4, NULL), CELLAR_OK);
    drive_snapshot before = {0}, after = {0};
    char why[200] = "";
    assert_true(drive_snapshot_take(&before, d.memory));
    int n = 0;
    for (;; n++) {
        allocations_left = n;
        cellar_status status = cellar_settle(d.memory, 0, NULL);
        allocations_left = -1;
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
        cmocka_unit_test(a_store_that_fails_leaves_every_row_as_it_was),
        cmocka_unit_test(without_memory_nothing_changes),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(an_engine_is_told_what_to_copy_and_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
