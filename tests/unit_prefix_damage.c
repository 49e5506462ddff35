/*
 * unit_prefix_damage.c: damaged files of the prefix library, and processes that are killed.
 *
 * A byte is changed, or a file cut short, before the library starts and while it runs. Whatever happens, a
 * prompt is answered, what a sequence then holds is what its tokens say (support_prefix.h sees to that), and a file that is
 * not what it should be is gone. Killed writers leave whole files.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support_folder.h"
#include "support_prefix.h"

enum { TEXT = 40 };

static const char file_name[] = "prefix-0000000000000001.cellar";
static cellar_prefix_key plain;
static cellar_error error;
static cellar_token text[TEXT];

static void must(cellar_status status)
{
    if (status != CELLAR_OK) fail_msg("%s: %s", cellar_status_text(status), error.message);
}

static void init_on_disk(world *w)
{
    world_init(w, WORLD_EVERYTHING, 128);
    w->config.folder = folder_name;
    w->config.disk_bytes = 1 << 20;
}

/* A folder with one file; its bytes, for free(). */
static unsigned char *make_file(size_t *size)
{
    world w;
    init_on_disk(&w);
    prefix_world_open(&w);
    world_text(text, TEXT, 1);
    (void)world_serve(&w, &plain, 0, text, TEXT - 5);
    must(cellar_library_persist(w.library, 1, NULL, &error));
    prefix_world_close(&w);
    return folder_read(file_name, size);
}

static void put_file(const unsigned char *bytes, size_t size)
{
    unlink(folder_path(file_name));
    folder_make_file(file_name, bytes, size);
}

/* Ask for the text; the tokens that were reused are right (world_attach) and go on rightly. */
static cellar_prefix ask(world *w)
{
    cellar_prefix told = world_attach(w, &plain, 0, text, TEXT);
    world_read(w, 0, text, told.reused, TEXT, false);
    world_expect(w, 0, text, TEXT);
    must(cellar_library_release(w->library, 0, &error));
    must(cellar_remove(w->small.memory, 0, 0, -1, &error));
    world_check(w);
    return told;
}

static bool is_there(void)
{
    return access(folder_path(file_name), F_OK) == 0;
}

static void a_changed_byte_is_found_before_or_while_loading(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = make_file(&size);
    uint32_t n_at_start = 0, n_while_loading = 0, n_harmless = 0;
    world w;
    init_on_disk(&w);
    for (size_t at = 0; at < size; at += 1 + at / 40) {
        bytes[at] ^= 0x10;
        put_file(bytes, size);
        bytes[at] ^= 0x10;
        prefix_world_open(&w);
        bool was_taken = world_stats(&w).n_on_disk == 1;
        assert_int_equal(is_there(), was_taken);
        cellar_prefix told = ask(&w);
        if (!was_taken) {
            n_at_start++;
            assert_int_equal(world_stats(&w).n_damaged, 1);
            assert_int_equal(told.reason, CELLAR_PREFIX_COLD);
        } else if (told.reused == 0) {
            n_while_loading++;
            assert_int_equal(told.reason, CELLAR_PREFIX_DAMAGED);
            assert_int_equal(world_stats(&w).n_damaged, 1);
            assert_int_equal(world_stats(&w).n_entries, 0);
            assert_false(is_there());
        } else { /* between sections, say */
            n_harmless++;
            assert_int_equal(told.reused, TEXT - 5);
        }
        prefix_world_close(&w);
    }
    assert_true(n_at_start > 50 && n_while_loading > 20);
    assert_true(n_harmless < n_at_start + n_while_loading);
    free(bytes);
}

static void a_file_that_changes_while_the_library_runs_is_found(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = make_file(&size);
    world w;
    init_on_disk(&w);
    for (size_t cut = 0; cut < size; cut += 1 + size / 60) {
        put_file(bytes, size);
        prefix_world_open(&w);
        assert_int_equal(world_stats(&w).n_on_disk, 1);
        put_file(bytes, cut);
        cellar_prefix told = ask(&w);
        assert_int_equal(told.reused, 0);
        assert_int_equal(told.reason, CELLAR_PREFIX_DAMAGED);
        assert_false(is_there());
        assert_int_equal(world_stats(&w).disk_bytes, 0);
        prefix_world_close(&w);
    }
    put_file(bytes, size);
    prefix_world_open(&w);
    unlink(folder_path(file_name)); /* or is gone */
    assert_int_equal(ask(&w).reason, CELLAR_PREFIX_DAMAGED);
    assert_int_equal(world_stats(&w).n_entries, 0);
    prefix_world_close(&w);
    free(bytes);
}

static void a_cut_file_is_removed_at_the_start(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = make_file(&size);
    world w;
    init_on_disk(&w);
    for (size_t cut = 0; cut < size; cut += 1 + size / 60) {
        put_file(bytes, cut);
        prefix_world_open(&w);
        assert_int_equal(world_stats(&w).n_damaged, 1);
        assert_false(is_there());
        prefix_world_close(&w);
    }
    free(bytes);
}

static void files_that_change_places_are_not_mistaken(void **state)
{
    (void)state;
    world w;
    cellar_token other[TEXT];
    static const char second[] = "prefix-0000000000000002.cellar";
    init_on_disk(&w);
    prefix_world_open(&w);
    world_text(text, TEXT, 1);
    world_text(other, TEXT, 1);
    other[10] = 500;
    (void)world_serve(&w, &plain, 0, text, TEXT - 5);
    (void)world_serve(&w, &plain, 0, other, TEXT - 5);
    must(cellar_library_persist(w.library, UINT64_MAX, NULL, &error));
    must(cellar_library_make_room(w.library, 0, 128, &error));
    assert_int_equal(world_stats(&w).n_on_disk, 2);
    assert_int_equal(rename(folder_path(file_name), folder_path("x")), 0);
    assert_int_equal(rename(folder_path(second), folder_path(file_name)), 0);
    assert_int_equal(rename(folder_path("x"), folder_path(second)), 0);
    cellar_prefix told = ask(&w);
    assert_int_equal(told.reused, 0); /* neither has the tokens that it had */
    assert_int_equal(told.reason, CELLAR_PREFIX_DAMAGED);
    prefix_world_close(&w);
}

static void a_session_that_is_no_prefix_is_removed(void **state)
{
    (void)state;
    world w;
    init_on_disk(&w);
    prefix_world_open(&w);
    small_read(&w.small, 5, 10);
    cellar_save_options options = cellar_save_options_init();
    must(cellar_save_session(w.small.memory, &options, folder_path(file_name), &error));
    world_restart(&w);
    assert_int_equal(world_stats(&w).n_damaged, 1);
    assert_false(is_there());

    cellar_token tokens[10]; /* everything but an owner; then a note of places that lies */
    unsigned char places[8] = {1, 0, 0, 0, 11, 0, 0, 0};
    cellar_note note = {"prefix.places", places, 8}, fact = {"prefix.domain", "", 0};
    cellar_log log = {5, 10, tokens};
    world_text(tokens, 10, 1);
    options.notes = &note;
    options.logs = &log;
    options.n_notes = options.n_logs = 1;
    for (unsigned i = 0; i < 3; i++) {
        options.facts = i > 0 ? &fact : NULL;
        options.n_facts = i > 0;
        if (i != 1) places[4] = 10;
        if (i == 1) places[4] = 11;
        must(cellar_save_session(w.small.memory, &options, folder_path(file_name), &error));
        world_restart(&w);
        assert_int_equal(is_there(), i == 2);
    }
    prefix_world_close(&w);
}

/* ---- killed ------------------------------------------------------------------------------------ */

/* Serve and persist until the end of the process; a byte says that a file is there. */
static void write_for_ever(uint32_t seed, int tell)
{
    world w;
    init_on_disk(&w);
    w.config.ram_bytes = 20000;
    w.config.disk_bytes = 60000;
    prefix_world_open(&w);
    for (uint32_t i = seed;; i++) {
        world_text(text, TEXT, (cellar_token)(i % 16) * 1000);
        (void)world_serve(&w, &plain, (cellar_seq)(i % 4), text, 10 + i % 20);
        cellar_status status = cellar_library_persist(w.library, 1, NULL, &error);
        if (status != CELLAR_OK || (i == seed && write(tell, "x", 1) != 1)) _exit(1);
    }
}

static void a_killed_process_leaves_whole_files(void **state)
{
    (void)state;
    uint32_t n_reused = 0, n_damaged = 0;
    for (uint32_t round = 0; round < 30; round++) {
        int ends[2];
        char byte;
        assert_int_equal(pipe(ends), 0);
        fflush(stdout);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            write_for_ever(round * 7, ends[1]);
            _exit(2);
        }
        const struct timespec pause = {0, (long)(round * 1700000)};
        assert_int_equal(read(ends[0], &byte, 1), 1);
        nanosleep(&pause, NULL);
        close(ends[0]);
        close(ends[1]);
        assert_int_equal(kill(child, 9), 0);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how)); /* it had not failed before */

        world w;
        init_on_disk(&w);
        w.config.disk_bytes = 60000;
        prefix_world_open(&w);
        n_damaged += (uint32_t)world_stats(&w).n_damaged;
        assert_int_equal(folder_for_each(NULL, NULL), world_stats(&w).n_on_disk + 1);
        for (cellar_token i = 0; i < 16; i++) {
            world_text(text, TEXT, i * 1000);
            n_reused += ask(&w).reused;
        }
        n_damaged += (uint32_t)world_stats(&w).n_damaged;
        prefix_world_close(&w);
    }
    assert_true(n_reused > 100);
    assert_int_equal(n_damaged, 0);
}

int main(void)
{
    plain = cellar_prefix_key_init();
#define FOLDER_TEST(test) cmocka_unit_test_setup_teardown(test, folder_set_up, folder_tear_down)
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(a_changed_byte_is_found_before_or_while_loading),
        FOLDER_TEST(a_file_that_changes_while_the_library_runs_is_found),
        FOLDER_TEST(a_cut_file_is_removed_at_the_start),
        FOLDER_TEST(files_that_change_places_are_not_mistaken),
        FOLDER_TEST(a_session_that_is_no_prefix_is_removed),
        FOLDER_TEST(a_killed_process_leaves_whole_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
