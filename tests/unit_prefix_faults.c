/*
 * unit_prefix_faults.c: the prefix library without memory.
 *
 * Every operation is made to fail at its first allocation, its second, and so on, the memory's included. A failed one says
 * CELLAR_NO_MEMORY and leaves what is known as it was, and the same operation then succeeds. Where the promise is
 * weaker (what is evicted without memory to store it is lost) the test says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_faulty.h"
#include "support_folder.h"
#include "support_prefix.h"

enum { TEXT = 60, MOST_ENTRIES = 8 };

static cellar_prefix_key plain;
static cellar_error error;
static cellar_token text[TEXT], other[TEXT];

static void open_faulty(world *w, bool has_disk)
{
    faulty_allocations_left = -1;
    world_init(w, WORLD_EVERYTHING, 256);
    w->small.config.allocator = faulty_allocator();
    w->config.allocator = faulty_allocator();
    w->config.ram_bytes = 1 << 20;
    if (has_disk) {
        w->config.folder = folder_name;
        w->config.disk_bytes = 1 << 20;
    }
    prefix_world_open(w);
    world_text(text, TEXT, 1);
    world_text(other, TEXT, 1);
    other[30] = 700;
}

/* What is known, in its order. */
typedef struct known {
    cellar_entry entries[MOST_ENTRIES];
    uint32_t n;
} known;

static bool note_entry(void *context, const cellar_entry *entry)
{
    known *all = context;
    assert_true(all->n < MOST_ENTRIES);
    cellar_entry *to = &all->entries[all->n++];
    *to = *entry;
    to->tokens = NULL; /* may move */
    to->domain = NULL;
    return true;
}

static known look(const world *w)
{
    known all;
    memset(&all, 0, sizeof all);
    assert_int_equal(cellar_library_visit(w->library, note_entry, &all, &error), CELLAR_OK);
    return all;
}

typedef cellar_status operation(world *w);

/* Let it fail at each allocation; it must succeed in the end. *w is then what it has made. */
static void fail_at_each(world *w, operation *run)
{
    uint32_t n_failed = 0;
    for (int left = 0;; left++) {
        known before = look(w);
        faulty_allocations_left = left;
        cellar_status status = run(w);
        faulty_allocations_left = -1;
        world_check(w);
        if (status == CELLAR_OK) break;
        assert_int_equal(status, CELLAR_NO_MEMORY);
        assert_true(error.message[0] != '\0');
        known after = look(w);
        assert_memory_equal(&before, &after, sizeof before);
        n_failed++;
        assert_true(left < 1000);
    }
    assert_true(n_failed > 0);
}

static cellar_prefix told;

static cellar_status run_find(world *w)
{
    return cellar_library_find(w->library, &plain, other, TEXT, TEXT, &told, &error);
}

static cellar_status run_attach(world *w)
{
    return cellar_library_attach(w->library, &plain, 1, other, TEXT, TEXT - 1, &told, &error);
}

static cellar_status run_extend(world *w)
{
    static const cellar_token more[5] = {9, 9, 9, 9, 9};
    return cellar_library_extend(w->library, 1, more, 5, &error);
}

static cellar_status run_retain(world *w)
{
    return cellar_library_retain(w->library, 1, NULL, &error);
}

static cellar_status run_persist(world *w)
{
    return cellar_library_persist(w->library, UINT64_MAX, NULL, &error);
}

static void failed_operations_change_nothing(void **state)
{
    (void)state;
    world w;
    open_faulty(&w, true);
    (void)world_serve(&w, &plain, 0, text, TEXT);
    fail_at_each(&w, run_find);
    assert_int_equal(told.matched, 30);
    fail_at_each(&w, run_attach);
    world_expect(&w, 1, other, told.reused);
    world_read(&w, 1, other, told.reused, TEXT, true);
    small_read(&w.small, 1, 5);
    fail_at_each(&w, run_extend);
    fail_at_each(&w, run_retain);
    assert_int_equal(world_stats(&w).n_retained, 2);
    prefix_world_close(&w);
}

static void loading_without_memory_changes_nothing(void **state)
{
    (void)state;
    for (int has_disk = 0; has_disk < 2; has_disk++) {
        world w;
        open_faulty(&w, has_disk);
        if (has_disk) w.config.ram_bytes = 0;
        if (has_disk) world_restart(&w);
        (void)world_serve(&w, &plain, 0, text, 30);
        assert_int_equal(cellar_library_make_room(w.library, 0, 256, &error), CELLAR_OK);
        fail_at_each(&w, run_attach);
        assert_int_equal(told.reused, 30);
        assert_int_equal(told.source, has_disk ? CELLAR_PREFIX_FROM_DISK : CELLAR_PREFIX_FROM_RAM);
        world_expect(&w, 1, other, 30);
        prefix_world_close(&w);
    }
}

static void persisting_without_memory_leaves_what_is_there(void **state)
{
    (void)state;
    world w;
    open_faulty(&w, true);
    (void)world_serve(&w, &plain, 0, text, TEXT);
    fail_at_each(&w, run_persist);
    assert_int_equal(world_stats(&w).n_on_disk, 1);
    prefix_world_close(&w);
}

static void what_cannot_be_stored_is_lost_and_the_room_is_there(void **state)
{
    (void)state;
    bool was_kept = false, was_lost = false;
    for (int left = 0; !was_kept; left++) {
        world w;
        open_faulty(&w, false);
        (void)world_serve(&w, &plain, 0, text, TEXT);
        faulty_allocations_left = left;
        assert_int_equal(cellar_library_make_room(w.library, 0, 256, &error), CELLAR_OK);
        faulty_allocations_left = -1;
        cellar_library_statistics stats = world_stats(&w);
        was_kept = stats.n_in_ram == 1;
        was_lost = was_lost || stats.n_lost == 1;
        assert_int_equal(stats.n_lost + stats.n_in_ram, 1);
        assert_int_equal(stats.n_failures, stats.n_lost);
        prefix_world_close(&w);
        assert_true(left < 1000);
    }
    assert_true(was_lost);
}

static void a_library_is_made_or_nothing_is_held(void **state)
{
    (void)state;
    world w;
    open_faulty(&w, true);
    (void)world_serve(&w, &plain, 0, text, TEXT);
    assert_int_equal(run_persist(&w), CELLAR_OK);
    cellar_library_destroy(w.library);
    uint32_t n_failed = 0;
    for (int left = 0;; left++) {
        faulty_allocations_left = left;
        cellar_status status = cellar_library_create(w.small.memory, &w.config, &w.library, &error);
        faulty_allocations_left = -1;
        if (status == CELLAR_OK) break;
        assert_int_equal(status, CELLAR_NO_MEMORY);
        assert_null(w.library);
        n_failed++;
    }
    assert_true(n_failed > 5);
    assert_int_equal(world_stats(&w).n_on_disk, 1); /* no file was taken for damaged */
    prefix_world_close(&w);
}

int main(void)
{
    plain = cellar_prefix_key_init();
#define FOLDER_TEST(test) cmocka_unit_test_setup_teardown(test, folder_set_up, folder_tear_down)
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(failed_operations_change_nothing),
        FOLDER_TEST(loading_without_memory_changes_nothing),
        FOLDER_TEST(persisting_without_memory_leaves_what_is_there),
        FOLDER_TEST(what_cannot_be_stored_is_lost_and_the_room_is_there),
        FOLDER_TEST(a_library_is_made_or_nothing_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
