/*
 * unit_session_sections.c: session files whose sections, index or header are not as they should be.
 *
 * Sections that are missing, twice, in another order or of another length; entries of the index that lead
 * elsewhere; a header with other numbers. Checksums are right, but where the test is about them. Each
 * file is refused with the status that the table says, and has changed nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_session_case.h"

#define MOST 0xffffffffu

static void expect_status(session_case *c, const parcel *file, const char *name, cellar_status want)
{
    cellar_status got = case_try(c, file->bytes, file->size);
    if (got != want)
        fail_msg("%s, %s: %s, not %s: %s", case_names[c->shape], name, cellar_status_text(got),
                 cellar_status_text(want), c->error.message);
    case_expect_unchanged(c, name);
}

/* ---- sections -------------------------------------------------------------------------------------- */

static part *find(parts *p, cl_session_kind kind, uint32_t number, uint32_t nth)
{
    part *found = parts_find(p, kind, number, nth);
    assert_non_null(found);
    return found;
}

static void swap(part *a, part *b)
{
    part other = *a;
    *a = *b;
    *b = other;
}

static void no_model(parts *p)
{
    parts_erase(p, find(p, CL_SESSION_MODEL, 0, 0));
}

static void two_models(parts *p)
{
    parts_double(p, find(p, CL_SESSION_MODEL, 0, 0));
}

static void two_notes(parts *p)
{
    parts_double(p, find(p, CL_SESSION_NOTES, 0, 0));
}

static void no_sequences(parts *p)
{
    parts_erase(p, find(p, CL_SESSION_SEQUENCES, 0, 0));
}

static void two_sequences(parts *p)
{
    parts_double(p, find(p, CL_SESSION_SEQUENCES, 0, 0));
}

static void nothing(parts *p)
{
    while (p->n > 0)
        parts_erase(p, &p->items[0]);
}

static void no_cells(parts *p)
{
    parts_erase(p, find(p, CL_SESSION_CELLS, 0, 0));
    parts_erase(p, find(p, CL_SESSION_ROWS, 0, 0));
}

static void cells_without_rows(parts *p)
{
    parts_erase(p, find(p, CL_SESSION_ROWS, 0, 0));
}

static void rows_without_cells(parts *p)
{
    parts_erase(p, find(p, CL_SESSION_CELLS, 0, 0));
}

static void cells_twice(parts *p)
{
    parts_double(p, find(p, CL_SESSION_CELLS, 0, 0));
}

static void cells_and_rows_twice(parts *p)
{
    parts_double(p, find(p, CL_SESSION_CELLS, 0, 0));
    parts_double(p, find(p, CL_SESSION_ROWS, 0, 0));
}

static void rows_twice(parts *p)
{
    parts_double(p, find(p, CL_SESSION_ROWS, 0, 0));
}

static void rows_before_cells(parts *p)
{
    swap(find(p, CL_SESSION_CELLS, 0, 0), find(p, CL_SESSION_ROWS, 0, 0));
}

static void rows_one_longer(parts *p)
{
    part *rows = find(p, CL_SESSION_ROWS, 0, 0);
    part_insert(rows, rows->size, 1);
}

static void rows_one_shorter(parts *p)
{
    part *rows = find(p, CL_SESSION_ROWS, 0, 0);
    part_cut(rows, rows->size - 1, 1);
}

static void rows_one_cell_shorter(parts *p)
{
    part *rows = find(p, CL_SESSION_ROWS, 0, 0);
    size_t cell = rows->size / rows->entry.count;
    part_cut(rows, rows->size - cell, cell);
}

static void rows_of_another_number(parts *p)
{
    find(p, CL_SESSION_ROWS, 0, 0)->entry.count--;
}

static void rows_from_another_cell(parts *p)
{
    find(p, CL_SESSION_ROWS, 0, 0)->entry.first++;
}

static void rows_of_another_group(parts *p)
{
    find(p, CL_SESSION_ROWS, 0, 0)->entry.part = 1;
}

static void rows_are_empty(parts *p)
{
    part *rows = find(p, CL_SESSION_ROWS, 0, 0);
    part_cut(rows, 0, rows->size);
}

static void cells_one_number_longer(parts *p)
{
    part *cells = find(p, CL_SESSION_CELLS, 0, 0);
    part_insert(cells, cells->size, 4);
}

static void cells_one_number_shorter(parts *p)
{
    part *cells = find(p, CL_SESSION_CELLS, 0, 0);
    part_cut(cells, cells->size - 4, 4);
}

static void set_count(parts *p, uint32_t first, uint32_t count)
{
    part *cells = find(p, CL_SESSION_CELLS, 0, 0), *rows = find(p, CL_SESSION_ROWS, 0, 0);
    cells->entry.first = rows->entry.first = first;
    cells->entry.count = rows->entry.count = count;
}

static void no_cells_counted(parts *p)
{
    set_count(p, 0, 0);
}

static void one_cell_more(parts *p)
{
    set_count(p, 0, find(p, CL_SESSION_CELLS, 0, 0)->entry.count + 1);
}

static void most_cells(parts *p)
{
    set_count(p, 0, MOST);
}

/* count * 8 bytes of CELLS, and count * 32 of ROWS, wrap in 32 bits to what is there. */
static void cells_that_wrap(parts *p)
{
    set_count(p, 0, find(p, CL_SESSION_CELLS, 0, 0)->entry.count + (1u << 29));
}

/* In 64 bits nothing of 32 bits times a row wraps, but first + count does in 32. */
static void cells_whose_numbers_wrap(parts *p)
{
    set_count(p, MOST - 15, find(p, CL_SESSION_CELLS, 0, 0)->entry.count);
}

static void cells_from_elsewhere(parts *p)
{
    set_count(p, 100, find(p, CL_SESSION_CELLS, 0, 0)->entry.count);
}

static void cells_of_no_group(parts *p)
{
    find(p, CL_SESSION_CELLS, 0, 0)->entry.part = 16;
}

static void points_are_missing(parts *p)
{
    part *cells = find(p, CL_SESSION_CELLS, 0, 0);
    part_cut(cells, 8 * (size_t)cells->entry.count, 4 * (size_t)cells->entry.count);
}

static void points_that_nobody_uses(parts *p)
{
    part *cells = find(p, CL_SESSION_CELLS, 0, 0);
    part_insert(cells, 8 * (size_t)cells->entry.count, 4 * (size_t)cells->entry.count);
}

static void states_are_missing(parts *p)
{
    parts_erase(p, find(p, CL_SESSION_CELLS, 1, 0));
    parts_erase(p, find(p, CL_SESSION_ROWS, 1, 0));
}

static void states_twice(parts *p)
{
    parts_double(p, find(p, CL_SESSION_CELLS, 1, 0));
    parts_double(p, find(p, CL_SESSION_ROWS, 1, 0));
}

static void states_one_number_shorter(parts *p)
{
    part *rows = find(p, CL_SESSION_ROWS, 1, 0);
    part_cut(rows, rows->size - 4, 4);
}

static void a_log_with_a_gap(parts *p)
{
    find(p, CL_SESSION_TOKENS, 0, 0)->entry.first = 1;
}

static void a_log_twice(parts *p)
{
    parts_double(p, find(p, CL_SESSION_TOKENS, 0, 0));
}

static void a_log_of_nobody(parts *p)
{
    find(p, CL_SESSION_TOKENS, 1, 0)->entry.part = 2;
}

static void a_log_of_somebody(parts *p)
{
    find(p, CL_SESSION_TOKENS, 1, 0)->entry.part = MOST;
}

static void a_log_one_too_long(parts *p)
{
    find(p, CL_SESSION_TOKENS, 0, 0)->entry.count++;
}

static void a_log_of_most_tokens(parts *p)
{
    find(p, CL_SESSION_TOKENS, 0, 0)->entry.count = MOST;
}

static void a_log_of_no_tokens(parts *p)
{
    find(p, CL_SESSION_TOKENS, 0, 0)->entry.count = 0;
}

static void a_log_with_half_a_token(parts *p)
{
    part *log = find(p, CL_SESSION_TOKENS, 0, 0);
    part_insert(log, log->size, 2);
}

static void no_logs(parts *p)
{
    parts_erase(p, find(p, CL_SESSION_TOKENS, 0, 0));
    parts_erase(p, find(p, CL_SESSION_TOKENS, 1, 0));
}

static void no_notes(parts *p)
{
    parts_erase(p, find(p, CL_SESSION_NOTES, 0, 0));
}

static void model_goes_on(parts *p)
{
    part *model = find(p, CL_SESSION_MODEL, 0, 0);
    part_insert(model, model->size, 4);
}

static void notes_go_on(parts *p)
{
    part *notes = find(p, CL_SESSION_NOTES, 0, 0);
    part_insert(notes, notes->size, 4);
}

static void sequences_go_on(parts *p)
{
    part *sequences = find(p, CL_SESSION_SEQUENCES, 0, 0);
    part_insert(sequences, sequences->size, 4);
}

static void sequences_are_empty(parts *p)
{
    part *sequences = find(p, CL_SESSION_SEQUENCES, 0, 0);
    part_cut(sequences, 0, sequences->size);
}

static void model_is_empty(parts *p)
{
    part *model = find(p, CL_SESSION_MODEL, 0, 0);
    part_cut(model, 0, model->size);
}

static void a_number_where_there_is_none(parts *p)
{
    find(p, CL_SESSION_MODEL, 0, 0)->entry.count = 1;
}

static void a_part_where_there_is_none(parts *p)
{
    find(p, CL_SESSION_SEQUENCES, 0, 0)->entry.part = 1;
}

static void an_unknown_kind(parts *p)
{
    find(p, CL_SESSION_NOTES, 0, 0)->entry.kind = 7;
}

static void kind_0(parts *p)
{
    find(p, CL_SESSION_NOTES, 0, 0)->entry.kind = 0;
}

typedef struct change {
    const char *name;
    case_shape shape;
    void (*make)(parts *p);
    cellar_status status;
} change;

#define CHANGE(shape, make, status)                                                                \
    {                                                                                              \
#make, shape, make, status                                                                 \
    }

static const change changes[] = {
    CHANGE(CASE_PLAIN, no_model, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, two_models, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, two_notes, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, no_sequences, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, two_sequences, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, nothing, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, no_cells, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, cells_without_rows, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, rows_without_cells, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, cells_twice, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, cells_and_rows_twice, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, rows_twice, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, rows_before_cells, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, rows_one_longer, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, rows_one_shorter, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, rows_one_cell_shorter, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, rows_of_another_number, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, rows_from_another_cell, CELLAR_CORRUPT),
    CHANGE(CASE_WINDOW, rows_of_another_group, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, rows_are_empty, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, cells_one_number_longer, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, cells_one_number_shorter, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, no_cells_counted, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, one_cell_more, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, most_cells, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, cells_that_wrap, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, cells_whose_numbers_wrap, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, cells_from_elsewhere, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, cells_of_no_group, CELLAR_CORRUPT),
    CHANGE(CASE_PICTURE, points_are_missing, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, points_that_nobody_uses, CELLAR_CORRUPT),
    CHANGE(CASE_HYBRID, states_are_missing, CELLAR_CORRUPT),
    CHANGE(CASE_HYBRID, states_twice, CELLAR_CORRUPT),
    CHANGE(CASE_HYBRID, states_one_number_shorter, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, a_log_with_a_gap, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, a_log_twice, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, a_log_of_nobody, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, a_log_of_somebody, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, a_log_one_too_long, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, a_log_of_most_tokens, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, a_log_of_no_tokens, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, a_log_with_half_a_token, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, no_logs, CELLAR_OK),
    CHANGE(CASE_PLAIN, no_notes, CELLAR_OK),
    CHANGE(CASE_PLAIN, model_goes_on, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, notes_go_on, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, sequences_go_on, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, sequences_are_empty, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, model_is_empty, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, a_number_where_there_is_none, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, a_part_where_there_is_none, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, an_unknown_kind, CELLAR_CORRUPT),
    CHANGE(CASE_PLAIN, kind_0, CELLAR_CORRUPT),
};
enum { N_CHANGES = sizeof changes / sizeof *changes };

static void sections_are_held_against_each_other(void **state)
{
    (void)state;
    for (case_shape shape = 0; shape < CASE_SHAPES; shape++) {
        session_case c;
        case_open(&c, shape);
        for (uint32_t i = 0; i < N_CHANGES; i++) {
            if (changes[i].shape != shape) continue;
            parcel file = {0};
            parts all;
            parts_take(&all, &c.file);
            changes[i].make(&all);
            parts_put(&all, &file);
            expect_status(&c, &file, changes[i].name, changes[i].status);
            parts_free(&all);
            parcel_free(&file);
        }
        case_close(&c);
    }
}

/* Taken apart and put together again a file is the same, so the tests above change what they mean to. */
static void parts_make_the_same_file(void **state)
{
    (void)state;
    for (case_shape shape = 0; shape < CASE_SHAPES; shape++) {
        session_case c;
        parcel file = {0};
        parts all;
        case_open(&c, shape);
        parts_take(&all, &c.file);
        parts_put(&all, &file);
        assert_true(parcel_equal(&file, &c.file));
        parts_free(&all);
        parcel_free(&file);
        case_close(&c);
    }
}

/* ---- header and index --------------------------------------------------------------------------------- */

/* A number of the file: u32, or the lower half of a u64. */
typedef struct number {
    const char *name;
    bool is_index; /* counted from the index on, else from the beginning */
    uint32_t at;
    char how; /* '=' or '+' */
    uint32_t value;
    cellar_status status;
} number;

static const number numbers[] = {
    {"another magic", false, 0, '+', 1, CELLAR_CORRUPT},
    {"line ends were changed", false, 4, '=', 0x0a0a5241, CELLAR_CORRUPT},
    {"version 0", false, 8, '=', 0, CELLAR_UNSUPPORTED},
    {"version 2", false, 8, '=', 2, CELLAR_UNSUPPORTED},
    {"version 2^32-1", false, 8, '=', MOST, CELLAR_UNSUPPORTED},
    {"a header of 0 bytes", false, 12, '=', 0, CELLAR_CORRUPT},
    {"a header of 257 bytes", false, 12, '+', 1, CELLAR_CORRUPT},
    {"a header of 2^32-1 bytes", false, 12, '=', MOST, CELLAR_CORRUPT},
    {"something where zeros are", false, 32, '=', 1, CELLAR_CORRUPT},
    {"something behind the records", false, 200, '=', 1, CELLAR_CORRUPT},
    {"something in the record", false, 64 + 40, '=', 1, CELLAR_CORRUPT},
    {"generation 0", false, 64, '=', 0, CELLAR_CORRUPT},
    {"a length one shorter", false, 72, '+', MOST, CELLAR_CORRUPT},
    {"a length one longer", false, 72, '+', 1, CELLAR_CORRUPT},
    {"a length of 0", false, 72, '=', 0, CELLAR_CORRUPT},
    {"a length of 2^32 and more", false, 76, '=', 1, CELLAR_CORRUPT},
    {"a length of 2^63 and more", false, 76, '=', 1u << 31, CELLAR_CORRUPT},
    {"an index at 0", false, 80, '=', 0, CELLAR_CORRUPT},
    {"an index in the header", false, 80, '=', 192, CELLAR_CORRUPT},
    {"an index elsewhere", false, 80, '+', 64, CELLAR_CORRUPT},
    {"an index that is not aligned", false, 80, '+', 4, CELLAR_CORRUPT},
    {"an index behind the file", false, 84, '=', 1, CELLAR_CORRUPT},
    {"an index of 0 bytes", false, 88, '=', 0, CELLAR_CORRUPT},
    {"an index one longer", false, 88, '+', 1, CELLAR_CORRUPT},
    {"an index of 2^64 - 1 bytes", false, 92, '=', MOST, CELLAR_CORRUPT},
    {"a second record that is damaged", false, 128, '=', 1, CELLAR_CORRUPT},
    {"the index's magic", true, 0, '+', 1, CELLAR_CORRUPT},
    {"sections: 0", true, 4, '=', 0, CELLAR_CORRUPT},
    {"sections: one less", true, 4, '+', MOST, CELLAR_CORRUPT},
    {"sections: one more", true, 4, '+', 1, CELLAR_CORRUPT},
    {"sections: 2^32-1", true, 4, '=', MOST, CELLAR_CORRUPT},
    {"a section in the header", true, 8 + 16, '=', 192, CELLAR_CORRUPT},
    {"a section that is not aligned", true, 8 + 16, '+', 4, CELLAR_CORRUPT},
    {"a section elsewhere", true, 8 + 16, '+', 64, CELLAR_CORRUPT},
    {"a section behind the file", true, 8 + 20, '=', 1, CELLAR_CORRUPT},
    {"a section over its neighbour", true, 8 + 40 + 16, '=', 256, CELLAR_CORRUPT},
    {"a section one longer", true, 8 + 24, '+', 1, CELLAR_CORRUPT},
    {"a section over its neighbours", true, 8 + 24, '+', 640, CELLAR_CORRUPT},
    {"a section of 2^32 and more", true, 8 + 28, '=', 1, CELLAR_CORRUPT},
    {"a section of 2^64 - 1 and more", true, 8 + 28, '=', MOST, CELLAR_CORRUPT},
    {"another checksum", true, 8 + 32, '+', 1, CELLAR_CORRUPT},
    {"something in an entry", true, 8 + 36, '=', 1, CELLAR_CORRUPT},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static void header_and_index_are_held_against_the_file(void **state)
{
    (void)state;
    session_case c;
    case_open(&c, CASE_PLAIN);
    size_t index = (size_t)cl_get_u64(c.file.bytes + 80), size = c.file.size;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        const number *n = &numbers[i];
        parcel file = {parcel_exact(c.file.bytes, size), size, size};
        unsigned char *at = file.bytes + (n->is_index ? index : 0) + n->at;
        cl_put_u32(at, n->how == '+' ? cl_get_u32(at) + n->value : n->value);
        parcel_seal_at(&file, index);
        expect_status(&c, &file, n->name, n->status);
        parcel_free(&file);
    }
    assert_int_equal(case_try(&c, c.file.bytes, size), CELLAR_OK);
    case_close(&c);
}

/* ---- length --------------------------------------------------------------------------------------------- */

static void bytes_behind_the_end_are_refused(void **state)
{
    (void)state;
    session_case c;
    case_open(&c, CASE_PLAIN);
    for (size_t more = 1; more <= 4096; more *= 4) {
        parcel file = {malloc(c.file.size + more), c.file.size + more, 0};
        memset(file.bytes, 0, file.size);
        memcpy(file.bytes, c.file.bytes, c.file.size);
        expect_status(&c, &file, "more bytes", CELLAR_CORRUPT);
        parcel_free(&file);
    }
    case_close(&c);
}

/* ---- rows -------------------------------------------------------------------------------------------------- */

/* Rows are looked at when they are loaded: a damaged one is noticed then, by itself by the check. */
static void a_flipped_bit_in_any_section_is_noticed(void **state)
{
    (void)state;
    for (case_shape shape = 0; shape < CASE_SHAPES; shape++) {
        session_case c;
        case_open(&c, shape);
        for (uint32_t i = 0; i < parcel_entries(&c.file); i++) {
            cl_session_entry entry = parcel_entry(&c.file, i, NULL);
            unsigned char *byte = c.file.bytes + entry.offset + entry.length / 2;
            cellar_session *session = NULL;
            *byte ^= 4;
            cellar_status status = cellar_open_session_bytes(c.file.bytes, c.file.size, NULL,
                                                             &session, NULL);
            assert_int_equal(status, entry.kind == CL_SESSION_ROWS ? CELLAR_OK : CELLAR_CORRUPT);
            if (session) {
                cellar_error error = {0};
                assert_int_equal(cellar_check_session(session, &error), CELLAR_CORRUPT);
                assert_int_equal(error.at, entry.offset);
            }
            cellar_close_session(session);
            expect_status(&c, &c.file, "a flipped bit", CELLAR_CORRUPT);
            *byte ^= 4;
        }
        assert_int_equal(case_try(&c, c.file.bytes, c.file.size), CELLAR_OK);
        case_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_make_the_same_file),
        cmocka_unit_test(sections_are_held_against_each_other),
        cmocka_unit_test(header_and_index_are_held_against_the_file),
        cmocka_unit_test(bytes_behind_the_end_are_refused),
        cmocka_unit_test(a_flipped_bit_in_any_section_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
