/*
 * unit_session_load.c: a session that is loaded is what was saved, wherever it comes to.
 *
 * Memories in which anything may have happened (support_story.h) are saved and loaded into others: one
 * pool or several, more cells or fewer, rows in the library's memory or in a store, under the same names or
 * others. Whatever can be asked of a sequence has the same answer, attention to the last bit; checkpoints
 * lead to the same past. Where there is no room the memory is as it was. Each allocation, each call of a
 * store and of a reader fails once.
 *
 *   unit_session_load SEED [N]     N memories from that seed on
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/drive.h"
#include "model/random.h"
#include "support_faulty.h"
#include "support_session.h"
#include "support_session_view.h"
#include "support_story.h"

enum { MOST_NAMES = 16 };

static uint64_t first_seed = 1;
static uint32_t n_memories = 160;

/* ---- memories ------------------------------------------------------------------------------------------ */

static void tell_story(story *s, uint64_t seed)
{
    story_plan(s, seed);
    s->small.config.max_shifts = 0; /* a probe must not turn keys */
    story_open(s);
    for (uint32_t n = 20 + random_below(&s->random, 80); n > 0; n--)
        story_change(s);
}

/* Another memory of the same layers. Its layers are its own: no pointer leads to the story's. */
static void open_other(const story *s, small_memory *other, uint32_t n_cells, uint32_t n_pools)
{
    *other = s->small;
    other->config.layers = other->layers;
    other->memory = NULL;
    other->config.n_cells = n_cells;
    other->config.n_pools = n_pools;
    other->config.n_sequences = n_cells > 1000 ? 40 : s->small.config.n_sequences + n_pools;
    if (n_cells > 1000) {
        other->config.is_window_full = true;
        other->config.checkpoint_bytes *= 40;
        other->config.rollback_bytes = s->small.config.rollback_bytes;
    }
    for (uint32_t l = 0; s->seed % 2 && l < other->config.n_layers; l++)
        other->layers[l].store = NULL;
    small_open(other);
}

static cellar_session *open_session(const parcel *file)
{
    cellar_session *session;
    cellar_error error = {0};
    if (cellar_open_session_bytes(file->bytes, file->size, NULL, &session, &error) != CELLAR_OK)
        fail_msg("%s", error.message);
    return session;
}

/* Load everything, the last name first, `more` added to each. */
static cellar_status load_as(small_memory *to, const cellar_session *session, cellar_seq more,
                             cellar_error *error)
{
    cellar_seq from[MOST_NAMES], as[MOST_NAMES];
    cellar_session_info info;
    assert_int_equal(cellar_describe_session(session, &info, NULL), CELLAR_OK);
    assert_true(info.n_sequences <= MOST_NAMES);
    for (uint32_t i = 0; i < info.n_sequences; i++) { /* the last first */
        cellar_session_sequence its;
        uint32_t k = info.n_sequences - 1 - i;
        assert_int_equal(cellar_get_session_sequence(session, k, &its, NULL), CELLAR_OK);
        from[i] = its.seq;
        as[i] = its.seq + more;
    }
    cellar_load_options options = cellar_load_options_init();
    options.sequences = from;
    options.as = as;
    options.n_sequences = info.n_sequences;
    return cellar_load_session(to->memory, session, &options, error);
}

static void expect_sound(const small_memory *small, const char *what)
{
    cellar_error error = {0};
    if (cellar_check(small->memory, &error) != CELLAR_OK) fail_msg("%s: %s", what, error.message);
}

/* ---- the same wherever it comes to -------------------------------------------------------------------------- */

/* Rewind both to their last checkpoint: they hold the same then. */
static void compare_returns(view a, view b, const char *what)
{
    cellar_sequence_info info;
    cellar_pos from_a = -1, from_b = -1;
    assert_int_equal(cellar_get_sequence(a.small->memory, a.seq, &info, NULL), CELLAR_OK);
    if (info.n_checkpoints == 0 || info.pos_max < 1) return;
    assert_int_equal(cellar_rewind(a.small->memory, a.seq, info.pos_max / 2 + 1, &from_a, NULL),
                     CELLAR_OK);
    assert_int_equal(cellar_rewind(b.small->memory, b.seq, info.pos_max / 2 + 1, &from_b, NULL),
                     CELLAR_OK);
    if (from_a != from_b) fail_msg("%s: returns to %d, not %d", what, (int)from_b, (int)from_a);
    view_compare(a, b, true, what);
}

/* What they are, perhaps after going back, and attention: how many probes could be compared. */
static uint32_t compare_all(story *s, small_memory *other, cellar_seq more, bool is_whole,
                            const char *what)
{
    cellar_seq names[MOST_NAMES];
    uint32_t n = view_names(s->small.memory, names, MOST_NAMES), n_probed = 0;
    for (uint32_t i = 0; i < n; i++) {
        view a = {&s->small, names[i]}, b = {other, names[i] + more};
        view_compare(a, b, is_whole, what);
    }
    for (uint32_t i = 0; i < n && is_whole && s->seed % 2; i++)
        compare_returns((view){&s->small, names[i]}, (view){other, names[i] + more}, what);
    for (uint32_t i = 0; i < n; i++)
        n_probed += view_probe((view){&s->small, names[i]}, (view){other, names[i] + more}, what);
    expect_sound(other, what);
    return n_probed;
}

/* Cells are shared as they were: as many are in use, when everything is in one pool. */
static void compare_use(const small_memory *a, const small_memory *b, const char *what)
{
    for (uint32_t g = 0; g < cellar_count_groups(a->memory); g++) {
        cellar_group_info of_a, of_b;
        assert_int_equal(cellar_get_group(a->memory, g, &of_a, NULL), CELLAR_OK);
        assert_int_equal(cellar_get_group(b->memory, g, &of_b, NULL), CELLAR_OK);
        if (of_a.n_used != of_b.n_used)
            fail_msg("%s: group %u: %u cells in use, not %u", what, g, of_b.n_used, of_a.n_used);
    }
}

static uint64_t dropped_by(const small_memory *small)
{
    cellar_statistics statistics;
    assert_int_equal(cellar_stats(small->memory, &statistics, NULL), CELLAR_OK);
    return statistics.checkpoints_dropped;
}

static void what_is_loaded_is_what_was_saved(void **state)
{
    (void)state;
    uint32_t n_probed = 0, n_whole = 0;
    for (uint64_t seed = first_seed; seed < first_seed + n_memories; seed++) {
        story s;
        parcel file = {0}, again = {0};
        cellar_error error = {0};
        char what[40];
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
        tell_story(&s, seed);
        assert_int_equal(parcel_write(&file, s.small.memory, NULL, &error), CELLAR_OK);
        cellar_session *session = open_session(&file);
        uint32_t n_pools = 1 + (uint32_t)(seed % 4) / 2 * 4;
        cellar_seq more = seed % 3 ? 0 : 1003;
        small_memory other;
        open_other(&s, &other, 3000 * n_pools, n_pools);
        small_read(&other, 555, 9); /* so that cells are others */
        if (load_as(&other, session, more, &error) != CELLAR_OK)
            fail_msg("%s: %s", what, error.message);
        expect_sound(&other, what);
        assert_int_equal(cellar_remove(other.memory, 555, 0, -1, NULL), CELLAR_OK);
        bool is_whole = dropped_by(&other) == 0;
        if (n_pools == 1 && is_whole) compare_use(&s.small, &other, what);
        if (n_pools == 1 && is_whole && more == 0) {
            assert_int_equal(parcel_write(&again, other.memory, NULL, &error), CELLAR_OK);
            if (!parcel_equal(&file, &again)) fail_msg("%s: another file", what);
        }
        n_whole += is_whole;
        n_probed += compare_all(&s, &other, more, is_whole, what);
        cellar_close_session(session);
        parcel_free(&file);
        parcel_free(&again);
        small_close(&other);
        story_close(&s);
    }
    if (n_memories > 100) assert_true(n_probed > n_memories && n_whole > n_memories / 2);
}

/* ---- little room ------------------------------------------------------------------------------------------------ */

static void where_there_is_little_room_old_things_stay_out(void **state)
{
    (void)state;
    uint32_t n_loaded = 0, n_full = 0, n_probed = 0;
    for (uint64_t seed = first_seed; seed < first_seed + n_memories; seed++) {
        story s;
        parcel file = {0};
        cellar_error error = {0};
        char what[40], why[200];
        snprintf(what, sizeof what, "seed %llu, little room", (unsigned long long)seed);
        tell_story(&s, seed);
        assert_int_equal(parcel_write(&file, s.small.memory, NULL, &error), CELLAR_OK);
        cellar_session *session = open_session(&file);
        small_memory other;
        open_other(&s, &other, 40 + 13 * (uint32_t)(seed % 9), 1 + (uint32_t)(seed % 2));
        small_read(&other, 555, 7);
        if (seed % 3 == 0) small_read(&other, 556, 5);
        drive_snapshot before = {0}, after = {0};
        assert_true(drive_snapshot_take(&before, other.memory));
        cellar_status status = load_as(&other, session, 0, &error);
        expect_sound(&other, what);
        if (status == CELLAR_OK) {
            n_loaded++;
            n_probed += compare_all(&s, &other, 0, false, what);
        } else {
            assert_int_equal(status, CELLAR_FULL);
            assert_true(error.at > 0 && error.message[0]);
            assert_true(drive_snapshot_take(&after, other.memory));
            if (!drive_snapshot_equal(&before, &after, why)) fail_msg("%s: %s", what, why);
            n_full++;
        }
        drive_snapshot_free(&before);
        drive_snapshot_free(&after);
        cellar_close_session(session);
        parcel_free(&file);
        small_close(&other);
        story_close(&s);
    }
    if (n_memories > 100) assert_true(n_loaded > 20 && n_full > 10 && n_probed > 20);
}

/* ---- in the place of others --------------------------------------------------------------------------------------- */

static void names_in_use_are_replaced(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + n_memories / 4; seed++) {
        story s;
        parcel file = {0};
        cellar_error error = {0};
        tell_story(&s, seed);
        assert_int_equal(parcel_write(&file, s.small.memory, NULL, &error), CELLAR_OK);
        cellar_session *session = open_session(&file);
        small_memory other;
        open_other(&s, &other, 3000, 1);
        for (int i = 0; i < 3; i++)
            assert_int_equal(load_as(&other, session, 0, &error), CELLAR_OK);
        expect_sound(&other, "three times");
        if (dropped_by(&other) == 0) {
            compare_use(&s.small, &other, "three times");
            (void)compare_all(&s, &other, 0, true, "three times");
        }
        cellar_close_session(session);
        parcel_free(&file);
        small_close(&other);
        story_close(&s);
    }
}

/* ---- failures ------------------------------------------------------------------------------------------------------- */

/* A failed call left the memory as it was. */
static void expect_unchanged(const small_memory *small, const drive_snapshot *before, int at)
{
    drive_snapshot after = {0};
    char why[200];
    expect_sound(small, "after a failure");
    assert_true(drive_snapshot_take(&after, small->memory));
    if (!drive_snapshot_equal(before, &after, why)) fail_msg("failure %d: %s", at, why);
    drive_snapshot_free(&after);
}

static bool read_or_fail(void *context, uint64_t offset, void *to, size_t size)
{
    const parcel *file = context;
    if (faulty_store_calls_left == 0) return false;
    if (faulty_store_calls_left > 0) faulty_store_calls_left--;
    if (offset > file->size || size > file->size - offset) return false;
    memcpy(to, file->bytes + offset, size);
    return true;
}

/* Open and load, from the reader. */
static cellar_status open_and_load(small_memory *to, parcel *file, cellar_error *error)
{
    cellar_reader reader = {read_or_fail, file->size, file};
    cellar_allocator allocator = faulty_allocator();
    cellar_load_options options = cellar_load_options_init();
    cellar_session *session;
    cellar_status status = cellar_open_session_reader(&reader, &allocator, &session, error);
    if (status != CELLAR_OK) return status;
    status = cellar_load_session(to->memory, session, &options, error);
    cellar_close_session(session);
    return status;
}

/* Let `left` of the calls go well, one more each time, until everything does. */
static void fail_each(int *left, cellar_status want, uint64_t seed)
{
    story s;
    parcel file = {0};
    cellar_error error = {0};
    tell_story(&s, seed);
    assert_int_equal(parcel_write(&file, s.small.memory, NULL, &error), CELLAR_OK);
    small_memory other;
    s.small.config.allocator = faulty_allocator();
    open_other(&s, &other, 3000, 1);
    small_read(&other, 555, 9);
    drive_snapshot before = {0};
    assert_true(drive_snapshot_take(&before, other.memory));
    cellar_status status = CELLAR_IO;
    for (int at = 0; status != CELLAR_OK; at++) {
        *left = at;
        status = open_and_load(&other, &file, &error);
        *left = -1;
        if (status == CELLAR_OK) break;
        if (status != want)
            fail_msg("failure %d: %s: %s", at, cellar_status_text(status), error.message);
        assert_int_equal(error.status, want);
        expect_unchanged(&other, &before, at);
        assert_true(at < 5000);
    }
    (void)compare_all(&s, &other, 0, dropped_by(&other) == 0, "after failures");
    drive_snapshot_free(&before);
    parcel_free(&file);
    small_close(&other);
    story_close(&s);
}

static void each_allocation_that_fails_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++)
        fail_each(&faulty_allocations_left, CELLAR_NO_MEMORY, seed);
}

/* Reads of the file, and calls of stores where layers have one. */
static void each_read_and_write_that_fails_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 2; seed <= 12; seed += 2)
        fail_each(&faulty_store_calls_left, CELLAR_IO, seed);
}

/* ---- arguments --------------------------------------------------------------------------------------------------------- */

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    small_memory small;
    parcel file = {0};
    small_init(&small, 64);
    small_add_attention(&small, 0);
    small_open(&small);
    small_read(&small, 3, 5);
    small_read(&small, 4, 5);
    assert_int_equal(parcel_write(&file, small.memory, NULL, NULL), CELLAR_OK);
    cellar_session *session = open_session(&file);
    const cellar_seq two[2] = {3, 4}, same[2] = {9, 9}, below[2] = {9, -1}, none[2] = {3, 5};
    cellar_load_options good = cellar_load_options_init(), bad = good;
    drive_snapshot before = {0};
    assert_true(drive_snapshot_take(&before, small.memory));
#define EXPECT(want)                                                                               \
    do {                                                                                           \
        cellar_error error = {0};                                                                  \
        assert_int_equal(cellar_load_session(small.memory, session, &bad, &error), want);          \
        assert_true(error.status == want && error.message[0]);                                     \
        expect_unchanged(&small, &before, __LINE__);                                               \
        bad = good;                                                                                \
    } while (0)
    bad.struct_size--;
    EXPECT(CELLAR_INVALID);
    bad.n_sequences = 1;
    EXPECT(CELLAR_INVALID);
    bad.as = two;
    EXPECT(CELLAR_INVALID);
    bad = (cellar_load_options){sizeof bad, two, same, 2, 0, NULL, false};
    EXPECT(CELLAR_INVALID);
    bad = (cellar_load_options){sizeof bad, two, below, 2, 0, NULL, false};
    EXPECT(CELLAR_INVALID);
    bad = (cellar_load_options){sizeof bad, none, NULL, 2, 0, NULL, false};
    EXPECT(CELLAR_NOT_FOUND);
    assert_int_equal(cellar_load_session(NULL, session, &good, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_load_session(small.memory, NULL, &good, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_load_session(small.memory, session, NULL, NULL), CELLAR_INVALID);
    small_begin(&small, 3, 1);
    assert_int_equal(cellar_load_session(small.memory, session, &good, NULL), CELLAR_BUSY);
    cellar_abort(small.memory);
    /* One sequence under two names is two sequences that share nothing they must not. */
    const cellar_seq twice[2] = {3, 3}, as[2] = {20, 21};
    bad = (cellar_load_options){sizeof bad, twice, as, 2, 0, NULL, false};
    assert_int_equal(cellar_load_session(small.memory, session, &bad, NULL), CELLAR_OK);
    expect_sound(&small, "two names");
    view_compare((view){&small, 20}, (view){&small, 21}, true, "two names");
    drive_snapshot_free(&before);
    cellar_close_session(session);
    parcel_free(&file);
    small_close(&small);
}

/* ---- checkpoints that stay out --------------------------------------------------------------------------- */

/* Three sequences that share forty checkpoints come into a memory that has not room for all. */
static void a_shared_checkpoint_that_stays_out_is_counted_once(void **state)
{
    (void)state;
    enum { CHECKPOINTS = 40 };
    small_memory from, to;
    parcel file = {0};
    cellar_error error = {0};
    small_init(&from, 512);
    (void)small_add_attention(&from, 0);
    (void)small_add_recurrent(&from);
    from.config.n_sequences = 3;
    to = from;
    to.config.layers = to.layers;
    from.config.checkpoint_bytes = 1 << 16;
    small_open(&from);
    for (uint32_t i = 0; i < CHECKPOINTS; i++) {
        small_read(&from, 0, 5);
        assert_int_equal(cellar_checkpoint(from.memory, 0, NULL), CELLAR_OK);
    }
    for (cellar_seq seq = 1; seq < 3; seq++)
        assert_int_equal(cellar_copy(from.memory, 0, seq, 0, -1, NULL), CELLAR_OK);
    assert_int_equal(parcel_write(&file, from.memory, NULL, &error), CELLAR_OK);
    cellar_session *session = open_session(&file);
    cellar_session_info info;
    assert_int_equal(cellar_describe_session(session, &info, NULL), CELLAR_OK);
    assert_int_equal(info.n_checkpoints, CHECKPOINTS);
    small_open(&to);
    assert_int_equal(load_as(&to, session, 0, &error), CELLAR_OK);
    cellar_statistics statistics;
    assert_int_equal(cellar_stats(to.memory, &statistics, NULL), CELLAR_OK);
    assert_true(statistics.n_checkpoints < CHECKPOINTS);
    assert_int_equal(dropped_by(&to) + statistics.n_checkpoints, CHECKPOINTS);
    expect_sound(&to, "too many checkpoints");
    cellar_close_session(session);
    parcel_free(&file);
    small_close(&from);
    small_close(&to);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_loaded_is_what_was_saved),
        cmocka_unit_test(where_there_is_little_room_old_things_stay_out),
        cmocka_unit_test(names_in_use_are_replaced),
        cmocka_unit_test(each_allocation_that_fails_changes_nothing),
        cmocka_unit_test(each_read_and_write_that_fails_changes_nothing),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_shared_checkpoint_that_stays_out_is_counted_once),
    };
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 1) n_memories = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
