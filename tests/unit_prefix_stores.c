/*
 * unit_prefix_stores.c: the prefix library's stores: in RAM, and files in a folder.
 *
 * What left the cells comes back as it was, in every kind of memory, also in another library that only has the
 * folder. Limits hold, files are whole or not there, links are not followed. Damaged files are in
 * unit_prefix_damage.c.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support_folder.h"
#include "support_prefix.h"

static cellar_prefix_key plain;
static cellar_error error;

static void expect(cellar_status got, cellar_status expected, const char *text)
{
    assert_int_equal(got, expected);
    if (!strstr(error.message, text)) fail_msg("\"%s\" does not say \"%s\"", error.message, text);
}

enum { IN_RAM = 1, ON_DISK = 2 };

static void init_stored(world *w, world_kind kind, uint32_t n_cells, unsigned stores)
{
    world_init(w, kind, n_cells);
    if (stores & IN_RAM) w->config.ram_bytes = 16 << 20;
    if (stores & ON_DISK) {
        w->config.folder = folder_name;
        w->config.disk_bytes = 64 << 20;
    }
}

static void forget_it(world *w, cellar_seq seq)
{
    expect(cellar_library_release(w->library, seq, &error), CELLAR_OK, "");
    expect(cellar_remove(w->small.memory, seq, 0, -1, &error), CELLAR_OK, "");
}

/* Serve a text, and evict it. */
static uint64_t store_text(world *w, const cellar_token *text, uint32_t n)
{
    cellar_prefix told = world_attach(w, &plain, 0, text, n);
    world_read(w, 0, text, told.reused, n, true);
    uint64_t number = world_retain(w, 0);
    expect(cellar_library_evict(w->library, number, &error), CELLAR_OK, "");
    world_check(w);
    return number;
}

static void the_best_prefix_wins_wherever_it_is(void **state) /* S22 */
{
    (void)state;
    static cellar_token e[500], x[520], y[487];
    world_text(e, 500, 1);
    world_text(x, 520, 1);
    world_text(y, 487, 1);
    for (uint32_t i = 480; i < 520; i++)
        x[i] = 9000 + (cellar_token)i;
    for (uint32_t i = 480; i < 487; i++)
        y[i] = 8000 + (cellar_token)i;
    for (unsigned store = IN_RAM; store <= ON_DISK; store++) {
        world w;
        init_stored(&w, WORLD_FULL, 2048, store);
        prefix_world_open(&w);
        uint64_t stored = store_text(&w, e, 500);
        /* P of its own: retained in the cells. */
        expect(cellar_library_pin(w.library, stored, true, &error), CELLAR_OK, "");
        cellar_prefix told;
        expect(cellar_library_attach(w.library, &plain, 0, e, 100, 0, &told, &error), CELLAR_OK,
               "");
        assert_int_equal(told.reused, 0);
        world_read(&w, 0, e, 0, 100, false);
        uint64_t p = world_retain(&w, 0);

        told = world_attach(&w, &plain, 1, x, 520);
        assert_int_equal(told.reused, 480);
        assert_int_equal(told.source, (int)store + 1);
        assert_int_equal(told.diverged_at, 480);
        told = world_attach(&w, &plain, 2, y, 487); /* using it did not consume it */
        assert_int_equal(told.reused, 480);
        assert_int_equal(told.source, CELLAR_PREFIX_FROM_CELLS); /* and x has it in the cells */
        forget_it(&w, 1);
        forget_it(&w, 2);
        told = world_attach(&w, &plain, 2, y, 487);
        assert_int_equal(told.reused, 480);
        assert_int_equal(told.entry, stored);
        assert_true(world_entry(&w, p, NULL)); /* P alone is still there */
        forget_it(&w, 2);
        told = world_attach(&w, &plain, 0, e, 101);
        assert_int_equal(told.reused, 100);
        assert_int_equal(told.source, CELLAR_PREFIX_FROM_CELLS);
        prefix_world_close(&w);
        folder_for_each(folder_remove, NULL);
    }
}

static void what_left_the_cells_comes_back_in_every_kind_of_memory(void **state)
{
    (void)state;
    for (unsigned store = IN_RAM; store <= ON_DISK; store++)
        for (world_kind kind = 0; kind < WORLD_KINDS; kind++) {
            world w;
            cellar_token text[140], other[140];
            init_stored(&w, kind, 256, store);
            prefix_world_open(&w);
            world_text(text, 140, 1);
            world_text(other, 140, 1);
            other[70] = 3000;
            (void)world_attach(&w, &plain, 0, text, 140);
            world_read(&w, 0, text, 0, 60, true);
            world_read(&w, 0, text, 60, 100, true);
            uint64_t number = world_retain(&w, 0);
            expect(cellar_library_evict(w.library, number, &error), CELLAR_OK, "");
            cellar_prefix told = world_attach(&w, &plain, 5, text, 140);
            assert_int_equal(told.reused, 100);
            assert_int_equal(told.source, (int)store + 1);
            assert_int_equal(told.reason, CELLAR_PREFIX_ENDED);
            world_read(&w, 5, text, 100, 140, false);
            forget_it(&w, 5);
            told = world_attach(&w, &plain, 6, other, 140); /* back to a checkpoint of the file */
            assert_int_equal(told.matched, 70);
            bool goes_anywhere = kind == WORLD_FULL;
            assert_true(told.reused >= 60 && (told.reused == 70 || !goes_anywhere));
            world_read(&w, 6, other, told.reused, 140, false);
            world_expect(&w, 6, other, 140);
            prefix_world_close(&w);
            folder_for_each(folder_remove, NULL);
        }
}

static void a_folder_is_known_again_after_a_restart(void **state)
{
    (void)state;
    for (world_kind kind = 0; kind < WORLD_KINDS; kind++) {
        world w;
        cellar_token text[90];
        uint64_t n_bytes;
        init_stored(&w, kind, 256, IN_RAM | ON_DISK);
        prefix_world_open(&w);
        world_text(text, 90, 1);
        (void)world_serve(&w, &plain, 0, text, 40);
        (void)world_serve(&w, &plain, 0, text, 80);
        cellar_prefix_key other = plain;
        other.salt = "x";
        other.salt_size = 1;
        (void)world_serve(&w, &other, 0, text, 50);
        expect(cellar_library_persist(w.library, UINT64_MAX, &n_bytes, &error), CELLAR_OK, "");
        assert_true(n_bytes > 0);
        assert_int_equal(world_stats(&w).disk_bytes, n_bytes);
        assert_int_equal(world_stats(&w).n_on_disk, 2);
        expect(cellar_library_persist(w.library, 1, &n_bytes, &error), CELLAR_OK, "");
        assert_int_equal(n_bytes, 0);
        uint64_t disk_bytes = world_stats(&w).disk_bytes;
        world_restart(&w);
        assert_int_equal(cellar_position_max(w.small.memory, w.config.first_seq), -1);
        assert_int_equal(world_stats(&w).n_on_disk, 2);
        assert_int_equal(world_stats(&w).disk_bytes, disk_bytes);
        cellar_prefix told = world_attach(&w, &plain, 0, text, 90);
        assert_int_equal(told.reused, 80);
        assert_int_equal(told.source, CELLAR_PREFIX_FROM_DISK);
        world_read(&w, 0, text, 80, 90, false);
        told = world_attach(&w, &other, 1, text, 90);
        assert_int_equal(told.reused, 50);
        prefix_world_close(&w);
        folder_for_each(folder_remove, NULL);
    }
}

static void another_model_or_row_type_finds_nothing(void **state)
{
    (void)state;
    world w;
    cellar_token text[40];
    cellar_note model = {"model", "a", 1}, other = {"model", "b", 1};
    init_stored(&w, WORLD_FULL, 256, ON_DISK);
    w.config.facts = &model;
    w.config.n_facts = 1;
    prefix_world_open(&w);
    world_text(text, 40, 1);
    store_text(&w, text, 40);
    w.config.facts = &other;
    world_restart(&w);
    assert_int_equal(world_attach(&w, &plain, 0, text, 40).reason, CELLAR_PREFIX_COLD);
    w.config.facts = &model;
    prefix_world_close(&w);

    small_init(&w.small, 256);
    cellar_layer *layer = small_add_attention(&w.small, 0); /* f16 */
    assert_int_equal(layer->k_type, CELLAR_F16);
    prefix_world_open(&w);
    cellar_prefix told;
    expect(cellar_library_find(w.library, &plain, text, 40, 40, &told, &error), CELLAR_OK, "");
    assert_int_equal(told.matched, 0);
    assert_int_equal(world_stats(&w).n_on_disk, 1);
    prefix_world_close(&w);
}

static void what_is_loaded_shares_what_is_in_the_cells_already(void **state)
{
    (void)state;
    world w;
    cellar_token texts[4][150];
    init_stored(&w, WORLD_FULL, 512, IN_RAM);
    prefix_world_open(&w);
    for (cellar_token i = 0; i < 4; i++) { /* 100 tokens in common */
        world_text(texts[i], 150, 1);
        for (uint32_t t = 100; t < 150; t++)
            texts[i][t] += 1000 * (i + 1);
        store_text(&w, texts[i], 150);
    }
    for (cellar_token i = 0; i < 4; i++) {
        cellar_prefix told = world_attach(&w, &plain, i, texts[i], 150);
        assert_int_equal(told.source, CELLAR_PREFIX_FROM_RAM);
        assert_int_equal(told.reused, 149);
    }
    cellar_statistics stats;
    expect(cellar_stats(w.small.memory, &stats, &error), CELLAR_OK, "");
    assert_int_equal(stats.n_used, 100 + 4 * 49);
    assert_int_equal(stats.n_shared, 100);
    prefix_world_close(&w);
}

static void what_can_never_have_room_evicts_nothing(void **state)
{
    (void)state;
    world w;
    cellar_token text[100], small[20], running[60];
    init_stored(&w, WORLD_FULL, 128, IN_RAM);
    prefix_world_open(&w);
    world_text(text, 100, 1);
    world_text(small, 20, 1000);
    world_text(running, 60, 2000);
    store_text(&w, text, 100);
    (void)world_serve(&w, &plain, 0, small, 20);
    (void)world_attach(&w, &plain, 1, running, 60);
    world_read(&w, 1, running, 0, 60, false);
    cellar_prefix told = world_attach(&w, &plain, 2, text, 100); /* 60 + 100 are too many */
    assert_int_equal(told.reused, 0);
    assert_int_equal(told.reason, CELLAR_PREFIX_NO_ROOM);
    assert_int_equal(world_stats(&w).n_evicted, 1); /* by store_text alone */
    prefix_world_close(&w);
}

/* ---- limits ------------------------------------------------------------------------------------ */

static void ram_and_folder_never_hold_more_than_they_may(void **state)
{
    (void)state;
    world w;
    cellar_token text[60];
    init_stored(&w, WORLD_FULL, 128, ON_DISK);
    prefix_world_open(&w);
    world_text(text, 60, 0);
    store_text(&w, text, 60);
    uint64_t size = world_stats(&w).disk_bytes; /* of one */
    prefix_world_close(&w);
    folder_for_each(folder_remove, NULL);

    init_stored(&w, WORLD_FULL, 128, IN_RAM | ON_DISK);
    w.config.ram_bytes = 3 * size;
    w.config.disk_bytes = 4 * size;
    prefix_world_open(&w);
    for (cellar_token i = 0; i < 20; i++) {
        world_text(text, 60, 1000 * i);
        (void)world_serve(&w, &plain, 0, text, 60);
    }
    cellar_library_statistics stats = world_stats(&w);
    assert_int_equal(stats.n_retained, 2); /* 120 of 128 cells */
    assert_int_equal(stats.n_in_ram, 3);
    assert_int_equal(stats.n_on_disk, 4);
    assert_int_equal(stats.n_lost, 20 - 9);
    assert_int_equal(stats.ram_bytes, 3 * size);
    assert_int_equal(stats.disk_bytes, 4 * size);
    assert_int_equal(folder_for_each(NULL, NULL), 5); /* with .lock */
    cellar_prefix_source sources[20];
    for (cellar_token i = 0; i < 20; i++) {
        cellar_prefix told;
        world_text(text, 60, 1000 * i);
        expect(cellar_library_find(w.library, &plain, text, 60, 60, &told, &error), CELLAR_OK, "");
        sources[i] = told.source;
    }
    for (int i = 1; i < 20; i++) /* the last used nearest */
        assert_int_equal(sources[i], i >= 18   ? CELLAR_PREFIX_FROM_CELLS
                                     : i >= 15 ? CELLAR_PREFIX_FROM_RAM
                                     : i >= 11 ? CELLAR_PREFIX_FROM_DISK
                                               : CELLAR_PREFIX_FROM_NOWHERE);
    w.config.disk_bytes = 2 * size; /* a smaller folder: the oldest files go */
    world_restart(&w);
    assert_int_equal(world_stats(&w).n_on_disk, 2);
    for (int i = 11; i < 15; i++) {
        cellar_prefix told;
        world_text(text, 60, 1000 * i);
        expect(cellar_library_find(w.library, &plain, text, 60, 60, &told, &error), CELLAR_OK, "");
        assert_int_equal(told.reusable, i >= 13 ? 60 : 0);
    }
    prefix_world_close(&w);
}

static void what_is_larger_than_the_store_goes_past_it(void **state)
{
    (void)state;
    world w;
    cellar_token text[60];
    init_stored(&w, WORLD_FULL, 128, IN_RAM | ON_DISK);
    w.config.ram_bytes = 100;
    prefix_world_open(&w);
    world_text(text, 60, 1);
    store_text(&w, text, 60);
    assert_int_equal(world_stats(&w).n_on_disk, 1);
    assert_int_equal(world_stats(&w).n_in_ram, 0);
    prefix_world_close(&w);
    folder_for_each(folder_remove, NULL);
    init_stored(&w, WORLD_FULL, 128, IN_RAM | ON_DISK);
    w.config.ram_bytes = w.config.disk_bytes = 100;
    prefix_world_open(&w);
    store_text(&w, text, 60);
    assert_int_equal(world_stats(&w).n_entries, 0);
    assert_int_equal(world_stats(&w).n_lost, 1);
    folder_expect_names(1); /* .lock */
    prefix_world_close(&w);
}

static void persisting_takes_the_last_used_first_and_stops(void **state)
{
    (void)state;
    world w;
    cellar_token text[30];
    uint64_t n_bytes, size;
    init_stored(&w, WORLD_FULL, 256, ON_DISK);
    prefix_world_open(&w);
    for (cellar_token i = 0; i < 5; i++) {
        world_text(text, 30, 1000 * i);
        (void)world_serve(&w, &plain, 0, text, 30);
    }
    expect(cellar_library_persist(w.library, 1, &size, &error), CELLAR_OK, "");
    assert_int_equal(world_stats(&w).n_on_disk, 1);
    expect(cellar_library_persist(w.library, size + 1, &n_bytes, &error), CELLAR_OK, "");
    assert_int_equal(n_bytes, 2 * size);
    w.config.disk_bytes = 3 * size; /* what is there stays: it was used later than the rest */
    world_restart(&w);
    for (cellar_token i = 0; i < 5; i++) {
        cellar_prefix told;
        world_text(text, 30, 1000 * i);
        expect(cellar_library_find(w.library, &plain, text, 30, 30, &told, &error), CELLAR_OK, "");
        assert_int_equal(told.reusable, i >= 2 ? 30 : 0);
    }
    prefix_world_close(&w);
}

static void dropping_removes_every_copy(void **state)
{
    (void)state;
    world w;
    cellar_token text[30];
    init_stored(&w, WORLD_FULL, 256, ON_DISK);
    prefix_world_open(&w);
    world_text(text, 30, 1);
    (void)world_attach(&w, &plain, 0, text, 30);
    world_read(&w, 0, text, 0, 30, false);
    uint64_t number = world_retain(&w, 0);
    expect(cellar_library_persist(w.library, 1, NULL, &error), CELLAR_OK, "");
    cellar_entry entry;
    assert_true(world_entry(&w, number, &entry));
    assert_true(entry.disk_bytes > 0 && entry.seq >= 0);
    folder_expect_names(2);
    expect(cellar_library_drop(w.library, number, &error), CELLAR_OK, "");
    folder_expect_names(1);
    assert_false(world_entry(&w, number, NULL));
    assert_int_equal(cellar_position_max(w.small.memory, entry.seq), -1);
    prefix_world_close(&w);
}

static void a_conversation_has_one_file_not_one_a_turn(void **state)
{
    (void)state;
    world w;
    cellar_token text[100];
    init_stored(&w, WORLD_EVERYTHING, 256, ON_DISK);
    prefix_world_open(&w);
    world_text(text, 100, 1);
    for (uint32_t n = 20; n <= 100; n += 20) {
        (void)world_serve(&w, &plain, 0, text, n);
        expect(cellar_library_persist(w.library, UINT64_MAX, NULL, &error), CELLAR_OK, "");
        folder_expect_names(2);
    }
    prefix_world_close(&w);
}

/* ---- the folder -------------------------------------------------------------------------------- */

static void a_folder_has_one_library_at_a_time(void **state)
{
    (void)state;
    world w;
    cellar_library *second;
    init_stored(&w, WORLD_FULL, 64, ON_DISK);
    prefix_world_open(&w);
    expect(cellar_library_create(w.small.memory, &w.config, &second, &error), CELLAR_BUSY,
           "another prefix library");
    assert_null(second);
    cellar_library_config missing = w.config;
    missing.folder = "/nowhere/at/all";
    expect(cellar_library_create(w.small.memory, &missing, &second, &error), CELLAR_NOT_FOUND, "");
    missing.folder = folder_path("file");
    folder_make_file("file", "x", 1);
    expect(cellar_library_create(w.small.memory, &missing, &second, &error), CELLAR_INVALID, "");
    prefix_world_close(&w);
}

static void names_of_others_are_left_alone_and_links_not_followed(void **state)
{
    (void)state;
    world w;
    cellar_token text[30];
    char outside[80];
    snprintf(outside, sizeof outside, "%s.outside", folder_name);
    init_stored(&w, WORLD_FULL, 256, ON_DISK);
    prefix_world_open(&w);
    world_text(text, 30, 1);
    store_text(&w, text, 30);
    prefix_world_close(&w);
    size_t size;
    unsigned char *bytes = folder_read("prefix-0000000000000001.cellar", &size);
    FILE *file = fopen(outside, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    free(bytes);
    folder_make_file("notes.txt", "mine", 4);
    folder_make_file("prefix-00000000000000zz.cellar", "mine", 4);
    folder_make_file(".cellar-0123456789abcdef-0.tmp", "left", 4);
    assert_int_equal(symlink(outside, folder_path("prefix-0000000000000009.cellar")), 0);
    unlink(folder_path("prefix-0000000000000001.cellar"));

    prefix_world_open(&w);
    assert_int_equal(world_stats(&w).n_on_disk, 0);
    folder_expect_text("notes.txt", "mine");
    folder_expect_text("prefix-00000000000000zz.cellar", "mine");
    folder_expect_names(4); /* those, the link, .lock; what was left is gone */
    store_text(&w, text, 30);
    assert_int_equal(access(folder_path("prefix-000000000000000a.cellar"), F_OK), 0);
    /* Put a link where the file was: it is not followed, and what it means stays. */
    unlink(folder_path("prefix-000000000000000a.cellar"));
    assert_int_equal(symlink(outside, folder_path("prefix-000000000000000a.cellar")), 0);
    cellar_prefix told = world_attach(&w, &plain, 0, text, 30);
    assert_int_equal(told.reused, 0);
    assert_int_equal(told.reason, CELLAR_PREFIX_DAMAGED);
    assert_int_equal(access(outside, F_OK), 0);
    prefix_world_close(&w);
    unlink(outside);
}

static void a_folder_that_fails_costs_the_entry_not_the_call(void **state)
{
    (void)state;
    world w;
    cellar_token text[30];
    init_stored(&w, WORLD_FULL, 256, ON_DISK);
    prefix_world_open(&w);
    world_text(text, 30, 1);
    folder_for_each(folder_remove, NULL);
    assert_int_equal(rmdir(folder_name), 0); /* nothing can be written there any more */
    (void)world_serve(&w, &plain, 0, text, 30);
    expect(cellar_library_persist(w.library, 1, NULL, &error), CELLAR_IO, "prefix-");
    assert_int_equal(world_stats(&w).n_retained, 1);
    expect(cellar_library_make_room(w.library, 0, 250, &error), CELLAR_OK, "");
    cellar_library_statistics stats = world_stats(&w);
    assert_int_equal(stats.n_lost, 1);
    assert_int_equal(stats.n_failures, 2);
    assert_int_equal(stats.n_entries, 0);
    prefix_world_close(&w);
    void *again = NULL;
    folder_set_up(&again);
}

int main(void)
{
    plain = cellar_prefix_key_init();
#define FOLDER_TEST(test) cmocka_unit_test_setup_teardown(test, folder_set_up, folder_tear_down)
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(the_best_prefix_wins_wherever_it_is),
        FOLDER_TEST(what_left_the_cells_comes_back_in_every_kind_of_memory),
        FOLDER_TEST(a_folder_is_known_again_after_a_restart),
        FOLDER_TEST(another_model_or_row_type_finds_nothing),
        FOLDER_TEST(what_is_loaded_shares_what_is_in_the_cells_already),
        FOLDER_TEST(what_can_never_have_room_evicts_nothing),
        FOLDER_TEST(ram_and_folder_never_hold_more_than_they_may),
        FOLDER_TEST(what_is_larger_than_the_store_goes_past_it),
        FOLDER_TEST(persisting_takes_the_last_used_first_and_stops),
        FOLDER_TEST(dropping_removes_every_copy),
        FOLDER_TEST(a_conversation_has_one_file_not_one_a_turn),
        FOLDER_TEST(a_folder_has_one_library_at_a_time),
        FOLDER_TEST(names_of_others_are_left_alone_and_links_not_followed),
        FOLDER_TEST(a_folder_that_fails_costs_the_entry_not_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
