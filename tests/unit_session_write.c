/*
 * unit_session_write.c: what is written is what the memory holds, by the reader that was written from the
 * page alone (support_parsed_session.h).
 *
 * Random memories of every kind are written and compared with what the public calls show of them, cell by
 * cell, and rows byte by byte. The bytes follow from the content: moving cells changes none of them. What
 * measures tells what is written. Writers and allocators that fail leave nothing behind.
 *
 *   unit_session_write SEED [N]     N memories from that seed on
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/random.h"
#include "support_faulty.h"
#include "support_parsed_compare.h"
#include "support_story.h"

static uint64_t first_seed = 1;
static uint32_t n_memories = 120;

/* ---- writing into memory ----------------------------------------------------------------------- */

typedef struct target {
    unsigned char *bytes;
    size_t size, capacity;
    size_t limit; /* fails when it would pass this */
} target;

static bool append(void *context, const void *bytes, size_t n)
{
    target *t = context;
    if (n > t->limit - t->size) return false;
    if (t->size + n > t->capacity) {
        t->capacity = 2 * (t->size + n);
        t->bytes = realloc(t->bytes, t->capacity);
        assert_non_null(t->bytes);
    }
    memcpy(t->bytes + t->size, bytes, n);
    t->size += n;
    return true;
}

static target written(const cellar_memory *memory, const cellar_save_options *options)
{
    target t = {.limit = SIZE_MAX};
    cellar_writer writer = {append, &t};
    cellar_error error = {0};
    uint64_t measured = 0;
    if (cellar_write_session(memory, options, &writer, &error) != CELLAR_OK)
        fail_msg("writing: %s", error.message);
    assert_int_equal(cellar_measure_session(memory, options, &measured, &error), CELLAR_OK);
    assert_int_equal(measured, t.size);
    return t;
}

/* Sequences that hold something; those that only lost something behind a window are in the file too. */
static uint32_t count_holding(const parsed_session *parsed)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < parsed->n_sequences; i++) {
        uint32_t n_runs = 0;
        for (uint32_t g = 0; g < parsed->n_groups; g++)
            n_runs += parsed->sequences[i].lists[g].n;
        n += n_runs > 0;
    }
    return n;
}

static void compare_with_file(const cellar_memory *memory, const target *file)
{
    parsed_session parsed;
    cellar_statistics statistics;
    parsed_read(&parsed, file->bytes, file->size);
    parsed_compare(memory, &parsed, true);
    assert_int_equal(cellar_stats(memory, &statistics, NULL), CELLAR_OK);
    assert_int_equal(count_holding(&parsed), statistics.n_sequences);
    assert_int_equal(parsed.n_checkpoints, statistics.n_checkpoints);
    parsed_free(&parsed);
}

/* ---- random memories ------------------------------------------------------------------------------ */

static void a_file_holds_what_the_memory_holds(void **state)
{
    (void)state;
    cellar_save_options options = cellar_save_options_init();
    for (uint32_t i = 0; i < n_memories; i++) {
        story s;
        story_plan(&s, first_seed + i);
        story_open(&s);
        print_message("seed %llu\n", (unsigned long long)s.seed);
        for (uint32_t k = 0; k < 200; k++) {
            story_change(&s);
            if (k % 10 != 0) continue;
            target file = written(s.small.memory, &options);
            compare_with_file(s.small.memory, &file);
            free(file.bytes);
        }
        story_close(&s);
    }
}

static void where_cells_lie_changes_no_byte(void **state)
{
    (void)state;
    cellar_save_options options = cellar_save_options_init();
    uint32_t n_moved_in_all = 0;
    for (uint32_t i = 0; i < n_memories; i++) {
        story s;
        story_plan(&s, first_seed + i);
        story_open(&s);
        for (uint32_t k = 0; k < 150; k++) {
            story_change(&s);
            if (k % 10 != 0) continue;
            target before = written(s.small.memory, &options);
            uint32_t n_moved = 0;
            assert_int_equal(cellar_compact(s.small.memory, 1 + k, &n_moved, NULL), CELLAR_OK);
            n_moved_in_all += n_moved;
            target after = written(s.small.memory, &options);
            assert_int_equal(before.size, after.size);
            assert_memory_equal(before.bytes, after.bytes, after.size);
            free(before.bytes);
            free(after.bytes);
        }
        story_close(&s);
    }
    assert_true(n_moved_in_all > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_holds_what_the_memory_holds),
        cmocka_unit_test(where_cells_lie_changes_no_byte),
    };
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 1) n_memories = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
