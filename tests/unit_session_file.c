/*
 * unit_session_file.c: plain files are replaced whole, or left as they are.
 *
 * Every test has a folder of its own and looks at it afterwards: the bytes of the file, its mode,
 * and that nothing else lies there. A limit on the size of files stands for a full disk: the system
 * then writes a part, and fails. unit_session_append.c has appending, unit_session_processes.c what
 * several processes do to one file.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "session_file.h"
#include "support_folder.h"

static const cl_kernels no_kernels; /* what is refused is not written to */

/* ---- replacing ------------------------------------------------------------------------------- */

static void a_file_is_written_and_replaced(void **state)
{
    (void)state;
    struct stat info;
    const mode_t before = umask(0);
    folder_save_text("a", "first");
    umask(before);
    assert_int_equal(stat(folder_path("a"), &info), 0);
    assert_int_equal(info.st_mode, S_IFREG | 0600);
    folder_expect_text("a", "first");
    folder_save_text("a", "");
    folder_expect_text("a", "");
    folder_save_text("a", "the third");
    folder_expect_text("a", "the third");
    folder_expect_names(1);
}

static void pieces_of_any_size_arrive_in_order(void **state)
{
    (void)state;
    static const size_t pieces[] = {7, 4096, 65535, 65536, 65537, 262144, 300000, 0};
    const size_t size = 300003;
    unsigned char *bytes = folder_random_bytes(size);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        folder_content c = {.bytes = bytes, .size = size, .piece = pieces[i]};
        uint64_t n_written = 0;
        assert_int_equal(cl_file_replace(folder_path("a"), folder_fill, &c, NULL, &n_written, NULL),
                         CELLAR_OK);
        assert_int_equal(n_written, size);
        folder_expect_bytes("a", bytes, size);
    }
    free(bytes);
    folder_expect_names(1);
}

static void a_path_may_be_short_or_lead_through_links(void **state)
{
    (void)state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(mkdir(folder_path("inner"), 0700), 0);
    assert_int_equal(symlink("inner", folder_path("link")), 0);
    folder_save_text("link/a", "through a link");
    folder_expect_text("inner/a", "through a link");
    assert_int_equal(chdir(folder_path("inner")), 0);
    const folder_content c = folder_text("a name alone");
    cellar_error error;
    const cellar_status status = folder_replace("a", &c, &error);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(status, CELLAR_OK);
    folder_expect_text("inner/../inner/a", "a name alone");
    unlink(folder_path("inner/a"));
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void make_every_kind(void)
{
    folder_make_file("file", "old", 3);
    assert_int_equal(symlink("file", folder_path("link")), 0);
    assert_int_equal(symlink("nowhere", folder_path("dangling")), 0);
    assert_int_equal(symlink("loop", folder_path("loop")), 0);
    assert_int_equal(mkdir(folder_path("folder"), 0700), 0);
    assert_int_equal(mkfifo(folder_path("pipe"), 0600), 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder_name);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    close(listener);
}

static cellar_status no_addition(void *context, const cellar_writer *writer,
                                 cl_session_commit *commit, cellar_error *error)
{
    (void)context;
    (void)writer;
    (void)commit;
    (void)error;
    fail_msg("something is appended to what is no file");
    return CELLAR_OK;
}

/* Reading, replacing and appending all refuse it, and leave it as it is. */
static void expect_refused(const char *path, const char *text)
{
    cl_file_source source;
    cellar_error error = {.message = ""};
    cl_file_identity identity = {.is_known = true};
    const folder_content c = folder_text("new");
    folder_expect_failure(&error, cl_file_open(path, &source, &error), CELLAR_INVALID, text);
    folder_expect_failure(&error, folder_replace(path, &c, &error), CELLAR_INVALID, text);
    folder_expect_failure(
        &error, cl_file_append(path, &no_kernels, no_addition, NULL, &identity, NULL, &error),
        CELLAR_INVALID, text);
}

static void only_plain_files_have_names(void **state)
{
    (void)state;
    static const char *const kinds[] = {"link",   "dangling", "loop",     "folder",   "pipe",
                                        "socket", "folder/",  "folder/.", "folder/.."};
    make_every_kind();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        expect_refused(folder_path(kinds[i]), "not a plain file");
    expect_refused("/dev/null", "not a plain file");
    expect_refused("/", "not a plain file");
    expect_refused(".", "not a plain file");
    expect_refused("..", "not a plain file");
    expect_refused(NULL, "empty");
    expect_refused("", "empty");
    expect_refused(folder_path("file/a"), "Not a directory");
    expect_refused(folder_path("loop/a"), "Too many levels");
    folder_expect_names(7);
    folder_expect_text("file", "old");
}

static void names_that_no_file_can_have(void **state)
{
    (void)state;
    char name[301], path[6000];
    memset(name, 'n', 300);
    name[300] = '\0';
    expect_refused(folder_path(name), "File name too long");
    snprintf(path, sizeof path, "/%s", name);
    expect_refused(path, "File name too long");
    memset(path, '/', sizeof path - 2);
    path[sizeof path - 2] = 'a';
    path[sizeof path - 1] = '\0';
    expect_refused(path, "File name too long");
    name[255] = '\0'; /* the longest there is: the temporary name must not be longer */
    folder_save_text(name, "long");
    folder_expect_text(name, "long");
    folder_expect_names(1);
}

static void long_paths_are_shown_by_their_end(void **state)
{
    (void)state;
    char name[241];
    cl_file_source source;
    cellar_error error;
    for (size_t i = 0; i < 240; i++) /* of two bytes each: none may be cut in half */
        name[i] = (char)(i % 2 ? 0xa4 : 0xc3);
    name[240] = '\0';
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(cl_file_open(folder_path(name + 2 * i), &source, &error),
                         CELLAR_NOT_FOUND);
        const char *dots = strstr(error.message, "(...");
        assert_non_null(dots);
        assert_int_equal((unsigned char)dots[4], 0xc3);
        assert_int_equal(error.message[strlen(error.message) - 1], ')');
        name[239] = 'x'; /* and with an odd length behind the cut */
        name[240] = '\0';
    }
}

static void what_is_missing_is_not_found(void **state)
{
    (void)state;
    cl_file_source source;
    cellar_error error;
    cl_file_identity identity = {.is_known = true};
    const folder_content c = folder_text("new");
    folder_expect_failure(&error, cl_file_open(folder_path("a"), &source, &error), CELLAR_NOT_FOUND,
                          "cannot open the file: No such file or directory");
    folder_expect_failure(&error, cl_file_open(folder_path("no/a"), &source, &error),
                          CELLAR_NOT_FOUND, "cannot open the folder: No such file or directory");
    folder_expect_failure(&error, folder_replace(folder_path("no/a"), &c, &error), CELLAR_IO,
                          "cannot open the folder: No such file or directory");
    for (size_t i = 0; i < 2; i++)
        folder_expect_failure(&error,
                              cl_file_append(folder_path(i ? "no/a" : "a"), &no_kernels,
                                             no_addition, NULL, &identity, NULL, &error),
                              CELLAR_MISMATCH, "No such file or directory");
    folder_expect_names(0);
}

static void an_empty_file_has_no_bytes(void **state)
{
    (void)state;
    cl_file_source source;
    folder_make_file("a", "", 0);
    assert_int_equal(cl_file_open(folder_path("a"), &source, NULL), CELLAR_OK);
    assert_int_equal(source.size, 0);
    cl_file_close(source.file);
}

/* ---- failures while saving ------------------------------------------------------------------- */

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    const size_t size = 3 << 20;
    unsigned char *bytes = folder_random_bytes(size);
    static const size_t pieces[] = {1000, 70000, 0}, limits[] = {0, 1, 100000, 1 << 20, 3 << 20};
    struct rlimit before;
    cellar_error error;
    folder_save_text("a", "old");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (size_t p = 0; p < 3; p++)
        for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
            const folder_content c = {.bytes = bytes, .size = size, .piece = pieces[p]};
            const struct rlimit limit = {.rlim_cur = limits[l], .rlim_max = before.rlim_max};
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
            const cellar_status status = folder_replace(folder_path("a"), &c, &error);
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
            if (limits[l] < size) {
                folder_expect_failure(&error, status, CELLAR_IO,
                                      "cannot write the file: File too large");
                folder_expect_text("a", "old");
            } else {
                assert_int_equal(status, CELLAR_OK);
                folder_expect_bytes("a", bytes, size);
                folder_save_text("a", "old");
            }
            folder_expect_names(1);
        }
    signal(SIGXFSZ, SIG_DFL);
    free(bytes);
}

static void what_the_caller_says_is_passed_on(void **state)
{
    (void)state;
    folder_content c = folder_text("new");
    c.status = CELLAR_NOT_FOUND;
    cellar_error error;
    folder_save_text("a", "old");
    folder_expect_failure(&error, folder_replace(folder_path("a"), &c, &error), CELLAR_NOT_FOUND,
                          "a reason of its own");
    assert_int_equal(error.at, 7);
    folder_expect_text("a", "old");
    folder_expect_names(1);
}

static void put_link(void)
{
    unlink(folder_path("a"));
    assert_int_equal(symlink("b", folder_path("a")), 0);
}

static void a_link_that_comes_meanwhile_is_not_replaced(void **state)
{
    (void)state;
    folder_content c = folder_text("new");
    c.at_end = put_link;
    cellar_error error;
    folder_save_text("a", "old");
    folder_save_text("b", "other");
    folder_expect_failure(&error, folder_replace(folder_path("a"), &c, &error), CELLAR_INVALID,
                          "not a plain file");
    folder_expect_text("b", "other");
    folder_expect_names(2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_set_up, folder_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_written_and_replaced),
        TEST(pieces_of_any_size_arrive_in_order),
        TEST(a_path_may_be_short_or_lead_through_links),
        TEST(only_plain_files_have_names),
        TEST(names_that_no_file_can_have),
        TEST(long_paths_are_shown_by_their_end),
        TEST(what_is_missing_is_not_found),
        TEST(an_empty_file_has_no_bytes),
        TEST(a_full_disk_leaves_the_old_file),
        TEST(what_the_caller_says_is_passed_on),
        TEST(a_link_that_comes_meanwhile_is_not_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
