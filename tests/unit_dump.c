/*
 * unit_dump.c: the map of a memory, line by line.
 *
 * Each memory here is so small that its map can be written down by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_small_memory.h"

enum { MOST_LINES = 32 };

typedef struct lines {
    char text[MOST_LINES][128];
    uint32_t n, most; /* most: after so many the writer wants no more */
} lines;

static bool take_line(void *context, const char *line)
{
    lines *l = context;
    assert_true(l->n < MOST_LINES);
    assert_true(strlen(line) < sizeof l->text[0]);
    strcpy(l->text[l->n++], line);
    return l->n < l->most;
}

static void assert_map(const small_memory *small, const char *const *expected, uint32_t n)
{
    lines l = {.most = MOST_LINES};
    assert_int_equal(cellar_dump(small->memory, take_line, &l, NULL), CELLAR_OK);
    for (uint32_t i = 0; i < n && i < l.n; i++)
        assert_string_equal(l.text[i], expected[i]);
    assert_int_equal(l.n, n);
}

#define ASSERT_MAP(small, ...)                                                                     \
    do {                                                                                           \
        static const char *const expected[] = {__VA_ARGS__};                                       \
        assert_map(small, expected, sizeof expected / sizeof expected[0]);                         \
    } while (0)

static void an_empty_memory_is_dots_and_shows_only_cells_that_count(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 70);
    small_add_attention(&small, 0);
    small_open(&small);
    ASSERT_MAP(&small, "group 0 (attention), pool 0: 0 of 70 cells used",
               "................................................................", "......");
    small_close(&small);
}

static void cells_show_the_last_digit_of_their_sequence(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 0);
    small_open(&small);
    small_read(&small, 3, 5);
    small_read(&small, 17, 2);
    ASSERT_MAP(&small, "group 0 (attention), pool 0: 7 of 64 cells used",
               "33333...........................77..............................");
    small_close(&small);
}

static void shared_cells_are_plus_and_lose_it_with_their_second_holder(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 32);
    small_add_attention(&small, 0);
    small_open(&small);
    small_read(&small, 1, 6);
    assert_int_equal(cellar_copy(small.memory, 1, 2, 0, 4, NULL), CELLAR_OK);
    ASSERT_MAP(&small, "group 0 (attention), pool 0: 6 of 32 cells used",
               "++++11..........................");
    assert_int_equal(cellar_remove(small.memory, 1, 0, 2, NULL), CELLAR_OK);
    ASSERT_MAP(&small, "group 0 (attention), pool 0: 6 of 32 cells used",
               "22++11..........................");
    small_close(&small);
}

static void reserved_cells_are_question_marks_until_the_step_ends(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 32);
    small_add_attention(&small, 0);
    small_open(&small);
    small_read(&small, 1, 2);
    small_begin(&small, 1, 3);
    ASSERT_MAP(&small, "group 0 (attention), pool 0: 5 of 32 cells used",
               "11???...........................");
    cellar_abort(small.memory);
    ASSERT_MAP(&small, "group 0 (attention), pool 0: 2 of 32 cells used",
               "11..............................");
    small_read(&small, 1, 3);
    ASSERT_MAP(&small, "group 0 (attention), pool 0: 5 of 32 cells used",
               "11111...........................");
    small_close(&small);
}

static void every_pool_has_a_map_of_its_own(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 50);
    small_add_attention(&small, 0);
    small.config.n_pools = 2;
    small_open(&small);
    small_read(&small, 4, 3);
    small_read(&small, 5, 2);
    ASSERT_MAP(&small, "group 0 (attention), pool 0: 3 of 25 cells used",
               "444......................", "group 0 (attention), pool 1: 2 of 25 cells used",
               "55.......................");
    small_close(&small);
}

static void every_group_has_a_map_of_its_own(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 40);
    small_add_attention(&small, 0);
    small_add_attention(&small, 4);
    small_add_recurrent(&small);
    small_open(&small);
    small_read(&small, 6, 8);
    small_read(&small, 6, 8);
    lines l = {.most = MOST_LINES};
    assert_int_equal(cellar_dump(small.memory, take_line, &l, NULL), CELLAR_OK);
    assert_int_equal(l.n, 6);
    assert_string_equal(l.text[0], "group 0 (attention), pool 0: 16 of 40 cells used");
    assert_string_equal(l.text[1], "6666666666666666........................");
    /* 4 cells of the window and a micro-batch of 8: what fell out of it made room. */
    assert_string_equal(l.text[2], "group 1 (window 4), pool 0: 12 of 12 cells used");
    assert_string_equal(l.text[3], "666666666666");
    assert_string_equal(l.text[4], "group 2 (recurrent), pool 0: 1 of 2 states used");
    assert_int_equal(strspn(l.text[5], "6."), 2);
    assert_int_equal(strlen(l.text[5]), 2);
    small_close(&small);
}

static void what_only_a_checkpoint_holds_is_a_number_sign(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 4);
    small.config.is_window_full = true;
    small_open(&small);
    small_read(&small, 1, 8);
    assert_int_equal(cellar_checkpoint(small.memory, 1, NULL), CELLAR_OK);
    /* Going on at 8, the window sees positions 5 to 7. */
    ASSERT_MAP(&small, "group 0 (window 4), pool 0: 8 of 64 cells used",
               "11111+++........................................................");
    assert_int_equal(cellar_remove(small.memory, 1, 6, -1, NULL), CELLAR_OK);
    ASSERT_MAP(&small, "group 0 (window 4), pool 0: 6 of 64 cells used",
               "111111..........................................................");
    small_close(&small);
}

static void a_writer_that_has_enough_is_called_no_more(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 256);
    small_add_attention(&small, 0);
    small_open(&small);
    lines l = {.most = 2};
    assert_int_equal(cellar_dump(small.memory, take_line, &l, NULL), CELLAR_OK);
    assert_int_equal(l.n, 2);
    small_close(&small);
}

static void bad_arguments_are_refused(void **state)
{
    small_memory small;
    lines l = {.most = MOST_LINES};
    cellar_error error = {0};
    (void)state;
    assert_int_equal(cellar_dump(NULL, take_line, &l, &error), CELLAR_INVALID);
    small_init(&small, 32);
    small_add_attention(&small, 0);
    small_open(&small);
    assert_int_equal(cellar_dump(small.memory, NULL, NULL, &error), CELLAR_INVALID);
    assert_string_equal(error.message, "write is NULL");
    small_close(&small);
}

/* ---- without memory -------------------------------------------------------------------------- */

static bool is_empty;

static void *allocate(void *context, size_t size, size_t align)
{
    (void)context;
    return is_empty ? NULL : aligned_alloc(align, (size + align - 1) / align * align);
}

static void release(void *context, void *block, size_t size)
{
    (void)context;
    (void)size;
    free(block);
}

static void without_memory_for_a_map_nothing_is_written(void **state)
{
    small_memory small;
    lines l = {.most = MOST_LINES};
    cellar_error error = {0};
    (void)state;
    small_init(&small, 32);
    small_add_attention(&small, 0);
    small.config.allocator.allocate = allocate;
    small.config.allocator.release = release;
    small_open(&small);
    is_empty = true;
    assert_int_equal(cellar_dump(small.memory, take_line, &l, &error), CELLAR_NO_MEMORY);
    is_empty = false;
    assert_int_equal(l.n, 0);
    small_close(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_memory_is_dots_and_shows_only_cells_that_count),
        cmocka_unit_test(cells_show_the_last_digit_of_their_sequence),
        cmocka_unit_test(shared_cells_are_plus_and_lose_it_with_their_second_holder),
        cmocka_unit_test(reserved_cells_are_question_marks_until_the_step_ends),
        cmocka_unit_test(every_pool_has_a_map_of_its_own),
        cmocka_unit_test(every_group_has_a_map_of_its_own),
        cmocka_unit_test(what_only_a_checkpoint_holds_is_a_number_sign),
        cmocka_unit_test(a_writer_that_has_enough_is_called_no_more),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(without_memory_for_a_map_nothing_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
