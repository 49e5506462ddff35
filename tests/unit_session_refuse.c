/*
 * unit_session_refuse.c: what is not written, and says why.
 *
 * Options that break a rule, memories that cannot be saved now or ever, writers, stores and allocators that
 * fail: each with the status, and the word that the message must have. A writer that has failed is not called
 * again, whatever byte it failed at. What was refused has held nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_faulty.h"
#include "support_session.h"
#include "support_story.h"

/* A little of everything. */
static void open_all(story *s)
{
    *s = (story){.random = 3};
    small_init(&s->small, 256);
    (void)small_add_attention(&s->small, 0);
    (void)small_add_attention(&s->small, 8);
    (void)small_add_recurrent(&s->small);
    s->small.config.n_sequences = 4;
    s->small.config.checkpoint_bytes = 4000;
    s->small.config.checkpoint_interval = 5;
    s->small.config.allocator = faulty_allocator();
    story_open(s);
    for (cellar_seq seq = 1; seq < 4; seq++)
        for (int i = 0; i < 2; i++)
            assert_int_equal(story_read(s, seq, 9), CELLAR_OK);
    assert_int_equal(cellar_copy(s->small.memory, 2, 9, 0, -1, NULL), CELLAR_OK);
}

/* Both calls refuse alike. */
static void expect_refused(const cellar_memory *memory, const cellar_save_options *options,
                           cellar_status status, int64_t at, const char *word)
{
    parcel p = {NULL, 0, 0};
    cellar_error error = {0};
    uint64_t bytes = 77;
    assert_int_equal(cellar_measure_session(memory, options, &bytes, &error), status);
    assert_int_equal(bytes, 77);
    assert_int_equal(error.at, at);
    if (!strstr(error.message, word)) fail_msg("%s: where is \"%s\"?", error.message, word);
    assert_int_equal(parcel_write(&p, memory, options, &error), status);
    assert_int_equal(p.size, 0);
    parcel_free(&p);
}

/* ---- options ---------------------------------------------------------------------------------------- */

static void options_that_break_a_rule_are_refused(void **state)
{
    (void)state;
    story s;
    open_all(&s);
    const cellar_memory *memory = s.small.memory;
    cellar_seq twice[] = {1, 2, 1}, unknown[] = {1, 5}, negative[] = {-1};
    cellar_token tokens[3] = {0};
    cellar_log logs[] = {{1, 3, tokens}, {1, 3, tokens}}, stranger = {8, 3, tokens};
    cellar_log missing = {1, 3, NULL};
    cellar_save_options good = cellar_save_options_init(), o;
    o = good, o.struct_size--;
    expect_refused(memory, &o, CELLAR_INVALID, -1, "struct_size");
    o = good, o.n_sequences = 1;
    expect_refused(memory, &o, CELLAR_INVALID, -1, "sequences is NULL");
    o = good, o.sequences = twice, o.n_sequences = 3;
    expect_refused(memory, &o, CELLAR_INVALID, 1, "twice");
    o = good, o.sequences = unknown, o.n_sequences = 2;
    expect_refused(memory, &o, CELLAR_NOT_FOUND, 5, "sequence 5");
    o = good, o.sequences = negative, o.n_sequences = 1;
    expect_refused(memory, &o, CELLAR_INVALID, -1, "below 0");
    o = good, o.n_logs = 1;
    expect_refused(memory, &o, CELLAR_INVALID, -1, "logs is NULL");
    o = good, o.logs = logs, o.n_logs = 2;
    expect_refused(memory, &o, CELLAR_INVALID, 1, "two logs");
    o = good, o.logs = &stranger, o.n_logs = 1;
    expect_refused(memory, &o, CELLAR_INVALID, 8, "not saved");
    o = good, o.logs = &missing, o.n_logs = 1;
    expect_refused(memory, &o, CELLAR_INVALID, 1, "NULL");
    o = good, o.sequences = unknown, o.n_sequences = 1, o.logs = &stranger, o.n_logs = 1;
    expect_refused(memory, &o, CELLAR_INVALID, 8, "not saved");
    uint64_t bytes;
    assert_int_equal(cellar_measure_session(memory, NULL, &bytes, NULL), CELLAR_INVALID);
    expect_refused(NULL, &good, CELLAR_INVALID, -1, "memory is NULL");
    assert_int_equal(cellar_measure_session(memory, &good, NULL, NULL), CELLAR_INVALID);
    cellar_writer none = {NULL, NULL};
    assert_int_equal(cellar_write_session(memory, &good, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_write_session(memory, &good, &none, NULL), CELLAR_INVALID);
    story_close(&s);
}

static void notes_that_break_a_rule_are_refused(void **state)
{
    (void)state;
    story s;
    open_all(&s);
    static char longest[257];
    memset(longest, 'x', 256);
    const struct {
        cellar_note note;
        const char *word;
    } bad[] = {
        {{NULL, "v", 1}, "name is NULL"},
        {{"", "v", 1}, "1..255"},
        {{longest, "v", 1}, "1..255"},
        {{"a\nb", "v", 1}, "control"},
        {{"\x7f", "v", 1}, "control"},
        {{"\xc2\x85", "v", 1}, "control"},       /* U+0085 */
        {{"\xc0\xaf", "v", 1}, "UTF-8"},         /* '/' in two bytes */
        {{"\xe0\x80\xaf", "v", 1}, "UTF-8"},     /* in three */
        {{"\xed\xa0\x80", "v", 1}, "UTF-8"},     /* half of a pair */
        {{"\xf4\x90\x80\x80", "v", 1}, "UTF-8"}, /* behind the last one */
        {{"\xf8\x88\x80\x80\x80", "v", 1}, "UTF-8"},
        {{"\x80", "v", 1}, "UTF-8"},
        {{"\xc3", "v", 1}, "UTF-8"}, /* it ends inside */
        {{"\xc3(", "v", 1}, "UTF-8"},
        {{"a", NULL, 1}, "value is NULL"},
        {{"a", "v", (16 << 20) + 1}, "more than"},
    };
    cellar_save_options options;
    for (size_t i = 0; i < 2 * sizeof bad / sizeof *bad; i++) {
        cellar_note two[2] = {{"title", NULL, 0}, bad[i / 2].note};
        options = cellar_save_options_init();
        if (i % 2 == 0) options.notes = two, options.n_notes = 2;
        if (i % 2 == 1) options.facts = two, options.n_facts = 2;
        expect_refused(s.small.memory, &options, CELLAR_INVALID, 1, bad[i / 2].word);
        expect_refused(s.small.memory, &options, CELLAR_INVALID, 1, i % 2 ? "fact" : "note");
    }
    cellar_note twins[4] = {{"b", "", 0}, {"a", "1", 1}, {"c", "", 0}, {"a", "2", 1}};
    cellar_error error = {0};
    uint64_t bytes;
    options = cellar_save_options_init();
    options.notes = twins;
    options.n_notes = 4;
    assert_int_equal(cellar_measure_session(s.small.memory, &options, &bytes, &error),
                     CELLAR_INVALID);
    assert_non_null(strstr(error.message, "twice"));
    options.n_notes = 3;
    assert_int_equal(cellar_measure_session(s.small.memory, &options, &bytes, NULL), CELLAR_OK);
    longest[255] = '\0';
    twins[1].name = longest;
    twins[2].name = "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80";
    assert_int_equal(cellar_measure_session(s.small.memory, &options, &bytes, NULL), CELLAR_OK);
    options.notes = NULL;
    expect_refused(s.small.memory, &options, CELLAR_INVALID, -1, "NULL");
    story_close(&s);
}

/* ---- memories ------------------------------------------------------------------------------------------ */

static void an_open_step_is_busy(void **state)
{
    (void)state;
    story s;
    open_all(&s);
    cellar_save_options options = cellar_save_options_init();
    small_begin(&s.small, 1, 2);
    expect_refused(s.small.memory, &options, CELLAR_BUSY, -1, "step is open");
    cellar_abort(s.small.memory);
    story_close(&s);
}

static void rows_of_the_engine_cannot_be_saved(void **state)
{
    (void)state;
    small_memory small;
    small_init(&small, 64);
    (void)small_add_attention(&small, 8);
    small_add_attention(&small, 0)->is_external = true;
    small_open(&small);
    small_read(&small, 1, 20);
    cellar_save_options options = cellar_save_options_init();
    expect_refused(small.memory, &options, CELLAR_UNSUPPORTED, 1, "layer 1 is external");
    cellar_journal *journal;
    assert_int_equal(cellar_open_journal(small.memory, "/tmp/x", &journal, NULL),
                     CELLAR_UNSUPPORTED);
    assert_int_equal(cellar_shift(small.memory, 1, 0, -1, 3, NULL), CELLAR_OK);
    assert_int_equal(cellar_settle(small.memory, 1, NULL), CELLAR_OK);
    expect_refused(small.memory, &options, CELLAR_BUSY, 1, "moves are pending");
    small_close(&small);
}

static void an_empty_memory_and_no_sequences_are_written(void **state)
{
    (void)state;
    story s;
    open_all(&s);
    parcel none = {NULL, 0, 0}, empty = {NULL, 0, 0};
    cellar_save_options options = cellar_save_options_init();
    cellar_seq unused = 0;
    options.sequences = &unused; /* none of them */
    assert_int_equal(parcel_write(&none, s.small.memory, &options, NULL), CELLAR_OK);
    assert_int_equal(cellar_clear(s.small.memory, NULL), CELLAR_OK);
    assert_int_equal(parcel_write(&empty, s.small.memory, NULL, NULL), CELLAR_OK);
    assert_true(parcel_equal(&none, &empty));
    parcel_free(&none);
    parcel_free(&empty);
    story_close(&s);
}

/* ---- failures ------------------------------------------------------------------------------------------ */

/* A writer that takes so many bytes and no more. */
typedef struct tight {
    const unsigned char *expected;
    size_t used, limit;
    bool has_failed;
} tight;

static bool take(void *context, const void *bytes, size_t n)
{
    tight *t = context;
    assert_false(t->has_failed); /* nothing more is written */
    if (n > t->limit - t->used) {
        t->has_failed = true;
        return false;
    }
    assert_memory_equal(t->expected + t->used, bytes, n);
    t->used += n;
    return true;
}

static void a_writer_may_fail_at_every_byte(void **state)
{
    (void)state;
    story s;
    open_all(&s);
    parcel whole = {NULL, 0, 0};
    cellar_save_options options = cellar_save_options_init();
    assert_int_equal(parcel_write(&whole, s.small.memory, &options, NULL), CELLAR_OK);
    for (size_t limit = 0; limit <= whole.size; limit++) {
        tight t = {whole.bytes, 0, limit, false};
        cellar_writer writer = {take, &t};
        cellar_error error = {0};
        cellar_status status = cellar_write_session(s.small.memory, &options, &writer, &error);
        assert_int_equal(status, limit < whole.size ? CELLAR_IO : CELLAR_OK);
        if (limit == whole.size) break;
        assert_true(t.has_failed);
        assert_non_null(strstr(error.message, "writer"));
    }
    parcel_free(&whole);
    story_close(&s);
}

/* In a file of several buffers, it fails in the middle of rows and lists too. */
static void a_writer_may_fail_in_a_larger_file(void **state)
{
    (void)state;
    small_memory small;
    small_init(&small, 4096);
    (void)small_add_attention(&small, 0);
    (void)small_add_attention(&small, 0);
    small_open(&small);
    for (int i = 0; i < 8; i++)
        small_read(&small, i, 500);
    parcel whole = {NULL, 0, 0};
    cellar_save_options options = cellar_save_options_init();
    assert_int_equal(parcel_write(&whole, small.memory, &options, NULL), CELLAR_OK);
    assert_true(whole.size > 900000);
    for (size_t limit = 0; limit < whole.size; limit += 9973) {
        tight t = {whole.bytes, 0, limit, false};
        cellar_writer writer = {take, &t};
        assert_int_equal(cellar_write_session(small.memory, &options, &writer, NULL), CELLAR_IO);
        assert_true(t.has_failed);
    }
    parcel_free(&whole);
    small_close(&small);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    story s;
    open_all(&s);
    cellar_token tokens[4] = {1, 2, 3, 4};
    cellar_log log = {2, 4, tokens};
    cellar_note notes[2] = {{"b", "", 0}, {"a", "", 0}};
    cellar_save_options options = cellar_save_options_init();
    options.logs = &log;
    options.n_logs = 1;
    options.notes = options.facts = notes;
    options.n_notes = options.n_facts = 2;
    parcel whole = {NULL, 0, 0}, p = {NULL, 0, 0};
    assert_int_equal(parcel_write(&whole, s.small.memory, &options, NULL), CELLAR_OK);
    cellar_status status = CELLAR_NO_MEMORY;
    int n = 0;
    for (; status != CELLAR_OK; n++) {
        cellar_error error = {0};
        faulty_allocations_left = n;
        status = parcel_write(&p, s.small.memory, &options, &error);
        faulty_allocations_left = -1;
        if (status == CELLAR_OK) break;
        assert_int_equal(status, CELLAR_NO_MEMORY);
        assert_int_equal(error.status, CELLAR_NO_MEMORY);
    }
    assert_true(n > 15);
    assert_true(parcel_equal(&whole, &p));
    uint64_t bytes = 0;
    for (n = 0, status = CELLAR_NO_MEMORY; status != CELLAR_OK; n++) {
        faulty_allocations_left = n;
        status = cellar_measure_session(s.small.memory, &options, &bytes, NULL);
        faulty_allocations_left = -1;
        assert_true(status == CELLAR_OK || status == CELLAR_NO_MEMORY);
    }
    assert_int_equal(bytes, whole.size);
    parcel_free(&whole);
    parcel_free(&p);
    story_close(&s);
}

static void a_store_that_fails_is_named(void **state)
{
    (void)state;
    small_memory small;
    cellar_row_store store = faulty_store();
    small_init(&small, 64);
    small_add_attention(&small, 0)->store = &store;
    small_open(&small);
    small_read(&small, 1, 40);
    cellar_save_options options = cellar_save_options_init();
    cellar_status status = CELLAR_IO;
    parcel p = {NULL, 0, 0};
    int n = 0;
    for (; status != CELLAR_OK; n++) {
        cellar_error error = {0};
        faulty_store_calls_left = n;
        status = parcel_write(&p, small.memory, &options, &error);
        faulty_store_calls_left = -1;
        if (status == CELLAR_OK) break;
        assert_int_equal(status, CELLAR_IO);
        assert_int_equal(error.reason, CELLAR_REASON_STORE);
        assert_non_null(strstr(error.message, "store"));
    }
    assert_true(n >= 4); /* two tiles, K and V */
    parcel_free(&p);
    small_close(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_break_a_rule_are_refused),
        cmocka_unit_test(notes_that_break_a_rule_are_refused),
        cmocka_unit_test(an_open_step_is_busy),
        cmocka_unit_test(rows_of_the_engine_cannot_be_saved),
        cmocka_unit_test(an_empty_memory_and_no_sequences_are_written),
        cmocka_unit_test(a_writer_may_fail_at_every_byte),
        cmocka_unit_test(a_writer_may_fail_in_a_larger_file),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_store_that_fails_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
