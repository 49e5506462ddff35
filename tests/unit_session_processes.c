/*
 * unit_session_processes.c: what several processes do to one session file, and some that end.
 *
 * Children are made by fork: one without rights, for a folder that cannot be written to; some that
 * kill themselves in the middle of a save; one that waits there while another saves.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "session_file.h"
#include "support_folder.h"

/* Runs f in a child without rights; returns what f does. */
static int without_rights(int (*f)(void))
{
    const pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(99);
        _exit(f());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int save_without_rights(void)
{
    const folder_content c = folder_text("new");
    cellar_error error = {.message = ""};
    return folder_replace(folder_path("a"), &c, &error) == CELLAR_IO &&
                   strstr(error.message, "cannot make a temporary file") &&
                   strstr(error.message, "Permission denied")
               ? 0
               : 1;
}

static int read_without_rights(void)
{
    cl_file_source source;
    cellar_error error = {.message = ""};
    return cl_file_open(folder_path("a"), &source, &error) == CELLAR_IO &&
                   strstr(error.message, "cannot open the file: Permission denied")
               ? 0
               : 1;
}

static void a_folder_that_cannot_be_written_to(void **state)
{
    (void)state;
    folder_save_text("a", "old");
    assert_int_equal(chmod(folder_name, 0555), 0);
    const int saving = without_rights(save_without_rights);
    assert_int_equal(chmod(folder_path("a"), 0000), 0);
    const int reading = without_rights(read_without_rights);
    assert_int_equal(chmod(folder_path("a"), 0600), 0);
    assert_int_equal(chmod(folder_name, 0700), 0);
    assert_int_equal(saving, 0);
    assert_int_equal(reading, 0);
    folder_expect_text("a", "old");
    folder_expect_names(1);
}

/* A child that is killed when everything but the sync and the rename is done. */
static void killed_while_saving(const char *name)
{
    const pid_t child = fork();
    if (child == 0) {
        folder_content c = folder_text("killed");
        c.signal = SIGKILL;
        const cellar_status status = folder_replace(folder_path(name), &c, NULL);
        _exit(status == CELLAR_OK);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void what_a_killed_process_left_is_removed(void **state)
{
    (void)state;
    folder_save_text("a", "old");
    killed_while_saving("a");
    folder_expect_text("a", "old");
    folder_expect_names(2);
    killed_while_saving("a"); /* the second removes what the first left */
    folder_expect_names(2);
    folder_save_text("b", "another name leaves it alone");
    folder_expect_names(3);
    folder_save_text("a", "new");
    folder_expect_text("a", "new");
    folder_expect_names(2);
}

static int to_child[2], from_child[2];

static void wait_for_parent(void)
{
    char byte = 0;
    if (write(from_child[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1) _exit(98);
}

/* A child that is in the middle of a save until finish_child. */
static pid_t start_child(const char *name, const char *text)
{
    char byte;
    assert_int_equal(pipe(to_child), 0);
    assert_int_equal(pipe(from_child), 0);
    const pid_t child = fork();
    if (child == 0) {
        folder_content c = folder_text(text);
        c.at_end = wait_for_parent;
        const cellar_status status = folder_replace(folder_path(name), &c, NULL);
        _exit(status == CELLAR_OK ? 0 : 1);
    }
    assert_int_equal(read(from_child[0], &byte, 1), 1);
    return child;
}

static void finish_child(pid_t child)
{
    int status;
    char byte = 0;
    assert_int_equal(write(to_child[1], &byte, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
        close(to_child[i]);
        close(from_child[i]);
    }
}

static void two_processes_may_save_at_once(void **state)
{
    (void)state;
    const pid_t child = start_child("a", "of the child");
    folder_expect_names(1); /* its temporary file, which must survive the following */
    folder_save_text("a", "of the parent");
    folder_save_text("a", "again of the parent");
    folder_expect_text("a", "again of the parent");
    folder_expect_names(2);
    finish_child(child);
    folder_expect_text("a", "of the child");
    folder_expect_names(1);
}

static void note_slot(const char *name, void *context)
{
    if (name[0] == '.') strcpy(context, name);
}

static void what_is_not_ours_is_left_alone(void **state)
{
    (void)state;
    char slot[300] = "";
    killed_while_saving("a");
    folder_for_each(note_slot, slot);
    assert_true(*slot);
    folder_make_file("target", "precious", 8);
    for (int kind = 0; kind < 3; kind++) {
        folder_remove(slot, NULL);
        const int made = kind == 0   ? symlink("target", folder_path(slot))
                         : kind == 1 ? mkdir(folder_path(slot), 0700)
                                     : mkfifo(folder_path(slot), 0600);
        assert_int_equal(made, 0);
        folder_save_text("a", "new");
        folder_expect_text("a", "new");
        folder_expect_text("target", "precious");
        folder_expect_names(3);
    }
}

static void a_folder_full_of_names_is_an_error(void **state)
{
    (void)state;
    char slot[300] = "", name[320];
    cellar_error error;
    const folder_content c = folder_text("new");
    killed_while_saving("a");
    folder_for_each(note_slot, slot);
    char *number = strrchr(slot, '-');
    assert_non_null(number);
    *number = '\0';
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "%s-%d.tmp", slot, i);
        unlink(folder_path(name));
        assert_int_equal(mkdir(folder_path(name), 0700), 0);
    }
    folder_expect_failure(&error, folder_replace(folder_path("a"), &c, &error), CELLAR_IO,
                          "cannot make a temporary file beside the file: File exists");
    folder_expect_names(8);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_set_up, folder_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_folder_that_cannot_be_written_to), TEST(what_a_killed_process_left_is_removed),
        TEST(two_processes_may_save_at_once),     TEST(what_is_not_ours_is_left_alone),
        TEST(a_folder_full_of_names_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
