/*
 * unit_session_append.c: what is appended to a session file counts whole, or not at all.
 *
 * The files here have the header and the commit records of docs/session-format.md around bytes that
 * mean nothing, which is all that appending looks at. Records are read back with a CRC of this test's
 * own. After every failure the old state must be the one that counts.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "error.h"
#include "session_file.h"
#include "support_folder.h"

enum { INDEX = 64, WHOLE = CL_SESSION_HEADER + 64 + INDEX };

static cl_kernels kernels;
static cl_file_identity identity; /* of the file "a" */

/* ---- such a file ----------------------------------------------------------------------------- */

static uint32_t bit_by_bit(const unsigned char *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* A record; false: it was never used, or is damaged. */
static bool read_record(const unsigned char *record, cl_session_commit *out)
{
    *out = (cl_session_commit){cl_get_u64(record), cl_get_u64(record + 8), cl_get_u64(record + 16),
                               cl_get_u64(record + 24)};
    for (size_t i = 32; i < 60; i++)
        if (record[i] != 0) return false;
    return out->generation > 0 && cl_get_u32(record + 60) == bit_by_bit(record, 60);
}

/* Header, 64 bytes, and an index that ends with a number that stands for its checksum. */
static void put_whole(unsigned char *to, unsigned char filler)
{
    memset(to, 0, WHOLE);
    memcpy(to, cl_session_magic, sizeof cl_session_magic);
    unsigned char *record = to + CL_SESSION_COMMIT_A;
    cl_put_u64(cl_put_u64(cl_put_u64(cl_put_u64(record, 1), WHOLE), WHOLE - INDEX), INDEX);
    cl_put_u32(record + 60, bit_by_bit(record, 60));
    memset(to + CL_SESSION_HEADER, filler, WHOLE - CL_SESSION_HEADER);
}

static void save_whole(unsigned char filler)
{
    unsigned char bytes[WHOLE];
    cellar_error error = {.message = ""};
    uint64_t n_written = 0;
    put_whole(bytes, filler);
    folder_content c = {.bytes = bytes, .size = WHOLE};
    if (cl_file_replace(folder_path("a"), folder_fill, &c, &identity, &n_written, &error) !=
        CELLAR_OK)
        fail_msg("%s", error.message);
    assert_int_equal(n_written, WHOLE);
    assert_true(identity.is_known);
}

static int set_up(void **state)
{
    if (folder_set_up(state) != 0) return -1;
    cl_kernels_fill(&kernels, UINT32_MAX);
    save_whole('w');
    return 0;
}

/* What the file is now: the record that counts, and the bytes that belong to it. */
typedef struct now {
    cl_session_commit commit;
    bool is_a, has_both;
    size_t size;
    unsigned char bytes[4096];
} now;

static now look(void)
{
    now n = {.size = 0};
    cl_session_commit a, b;
    unsigned char *bytes = folder_read("a", &n.size);
    assert_true(n.size >= WHOLE && n.size <= sizeof n.bytes);
    memcpy(n.bytes, bytes, n.size);
    free(bytes);
    const bool has_a = read_record(n.bytes + CL_SESSION_COMMIT_A, &a);
    const bool has_b = read_record(n.bytes + CL_SESSION_COMMIT_B, &b);
    assert_true(has_a || has_b);
    n.is_a = has_a && (!has_b || a.generation > b.generation);
    n.has_both = has_a && has_b;
    n.commit = n.is_a ? a : b;
    assert_true(n.commit.length <= n.size);
    assert_true(n.commit.index_offset + n.commit.index_length == n.commit.length);
    return n;
}

/* ---- what is appended ------------------------------------------------------------------------ */

typedef struct addition {
    size_t size; /* bytes of `filler`, the last INDEX of them the index */
    unsigned char filler;
    cellar_status status;
    int signal;
    unsigned n_calls;
} addition;

static cellar_status add(void *context, const cellar_writer *writer, cl_session_commit *commit,
                         cellar_error *error)
{
    addition *a = context;
    unsigned char *bytes = malloc(a->size);
    assert_non_null(bytes);
    memset(bytes, a->filler, a->size);
    a->n_calls++;
    const bool is_written = writer->write(writer->context, bytes, a->size);
    free(bytes);
    if (!is_written) CL_FAIL(error, CELLAR_IO, -1, "the writer failed");
    if (a->signal) raise(a->signal);
    if (a->status != CELLAR_OK) CL_FAIL(error, a->status, 7, "a reason of its own");
    commit->length += a->size;
    commit->index_offset = commit->length - INDEX;
    commit->index_length = INDEX;
    return CELLAR_OK;
}

static cellar_status append(addition *a, cl_file_identity *known, uint64_t *n_written,
                            cellar_error *error)
{
    return cl_file_append(folder_path("a"), &kernels, add, a, known, n_written, error);
}

static void must_append(size_t size, unsigned char filler, uint64_t expected)
{
    addition a = {.size = size, .filler = filler};
    cellar_error error = {.message = ""};
    uint64_t n_written = 0;
    if (append(&a, &identity, &n_written, &error) != CELLAR_OK) fail_msg("%s", error.message);
    assert_int_equal(n_written, expected);
    assert_true(identity.is_known);
}

/* It refuses, touches nothing and asks for nothing to be written. */
static void expect_mismatch(const cl_file_identity *known)
{
    addition a = {.size = 128, .filler = 'x'};
    cl_file_identity copy = *known;
    cellar_error error = {.message = ""};
    const now before = look();
    folder_expect_failure(&error, append(&a, &copy, NULL, &error), CELLAR_MISMATCH,
                          "another file is in the place of the known one");
    const now after = look();
    assert_int_equal(after.size, before.size);
    assert_memory_equal(after.bytes, before.bytes, before.size);
    assert_int_equal(a.n_calls, 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void records_take_turns(void **state)
{
    (void)state;
    now n = look();
    assert_true(n.is_a && !n.has_both);
    assert_int_equal(n.commit.generation, 1);
    must_append(192, 'x', 192 + 2 * CL_SESSION_COMMIT); /* the first time also the second record */
    uint64_t length = WHOLE;
    for (uint64_t generation = 3; generation < 9; generation++) {
        length += 192;
        n = look();
        assert_true(n.has_both);
        assert_int_equal(n.is_a, generation % 2 == 1);
        assert_int_equal(n.commit.generation, generation);
        assert_int_equal(n.commit.length, length);
        assert_int_equal(n.size, length);
        assert_int_equal(identity.commit.generation, generation);
        cl_session_commit older;
        assert_true(
            read_record(n.bytes + (n.is_a ? CL_SESSION_COMMIT_B : CL_SESSION_COMMIT_A), &older));
        assert_int_equal(older.generation, generation - 1);
        assert_int_equal(older.length, length - 192);
        must_append(192, (unsigned char)generation, 192 + CL_SESSION_COMMIT);
    }
    for (size_t i = CL_SESSION_HEADER; i < WHOLE; i++) /* what was there is as it was */
        assert_int_equal(n.bytes[i], 'w');
    for (size_t i = WHOLE; i < WHOLE + 192; i++)
        assert_int_equal(n.bytes[i], 'x');
    folder_expect_names(1);
}

static void an_opened_file_is_known_too(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        const now n = look();
        cl_file_source source;
        assert_int_equal(cl_file_open(folder_path("a"), &source, NULL), CELLAR_OK);
        cl_file_identify(&source, &n.commit, &identity);
        assert_true(identity.is_known);
        cl_file_close(source.file);
        addition a = {.size = 64, .filler = 'o'};
        assert_int_equal(append(&a, &identity, NULL, NULL), CELLAR_OK);
    }
    assert_int_equal(look().commit.generation, 5);
}

static void only_the_known_file_is_appended_to(void **state)
{
    (void)state;
    cl_file_identity other = identity;
    other.is_known = false;
    expect_mismatch(&other);
    other = identity;
    other.inode++;
    expect_mismatch(&other);
    other = identity;
    other.device++;
    expect_mismatch(&other);
    other = identity;
    other.index_checksum ^= 1;
    expect_mismatch(&other);
    other = identity;
    other.header[CL_SESSION_COMMIT_B] = 1;
    expect_mismatch(&other);
    other = identity;
    other.commit.length += 64; /* it was cut short */
    expect_mismatch(&other);
    must_append(64, 'x', 64 + 2 * CL_SESSION_COMMIT); /* nothing of that did harm */
}

static void another_file_in_its_place_is_noticed(void **state)
{
    (void)state;
    const cl_file_identity old = identity;
    save_whole('w'); /* the same bytes, by somebody else */
    expect_mismatch(&old);
    must_append(64, 'x', 64 + 2 * CL_SESSION_COMMIT);
    const cl_file_identity before = identity;
    must_append(64, 'y', 64 + CL_SESSION_COMMIT);
    expect_mismatch(&before); /* somebody else has appended */
    assert_int_equal(rename(folder_path("a"), folder_path("b")), 0);
    unsigned char bytes[WHOLE];
    put_whole(bytes, 'w');
    folder_make_file("a", bytes, WHOLE);
    expect_mismatch(&identity); /* the known one is elsewhere now */
}

static void a_locked_file_is_busy(void **state)
{
    (void)state;
    addition a = {.size = 64, .filler = 'x'};
    cellar_error error;
    const int file = open(folder_path("a"), O_RDONLY);
    assert_int_equal(flock(file, LOCK_EX), 0);
    folder_expect_failure(&error, append(&a, &identity, NULL, &error), CELLAR_BUSY,
                          "another process is saving to the file");
    close(file);
    assert_int_equal(a.n_calls, 0);
    must_append(64, 'x', 64 + 2 * CL_SESSION_COMMIT);
}

static void what_an_append_left_is_cut_off(void **state)
{
    (void)state;
    const int file = open(folder_path("a"), O_WRONLY | O_APPEND);
    unsigned char rest[1000];
    memset(rest, 'r', sizeof rest);
    assert_int_equal(write(file, rest, sizeof rest), sizeof rest);
    close(file);
    must_append(128, 'x', 128 + 2 * CL_SESSION_COMMIT);
    assert_int_equal(look().size, WHOLE + 128);
}

static void expect_old(uint64_t length)
{
    const now n = look();
    assert_int_equal(n.commit.length, length);
    assert_int_equal(n.size, length);
    for (size_t i = CL_SESSION_HEADER; i < WHOLE; i++)
        assert_int_equal(n.bytes[i], 'w');
}

static void a_failed_append_is_cut_off(void **state)
{
    (void)state;
    addition a = {.size = 512, .filler = 'f', .status = CELLAR_NO_MEMORY};
    uint64_t length = WHOLE;
    cellar_error error;
    for (int round = 0; round < 3; round++) {
        folder_expect_failure(&error, append(&a, &identity, NULL, &error), CELLAR_NO_MEMORY,
                              "a reason of its own");
        assert_int_equal(error.at, 7);
        expect_old(length);
        assert_true(identity.is_known);
        must_append(64, 'x', 64 + CL_SESSION_COMMIT); /* the second record was there already */
        length += 64;
    }
}

static void a_full_disk_leaves_the_old_session(void **state)
{
    (void)state;
    struct rlimit before;
    addition a = {.size = 100000, .filler = 'f'};
    cellar_error error;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t limit = WHOLE; limit < 90000; limit += 17777) {
        const struct rlimit less = {.rlim_cur = limit, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
        const cellar_status status = append(&a, &identity, NULL, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        folder_expect_failure(&error, status, CELLAR_IO, "cannot write the file: File too large");
        expect_old(WHOLE);
    }
    signal(SIGXFSZ, SIG_DFL);
    must_append(64, 'x', 64 + CL_SESSION_COMMIT);
}

/* Not even the header can be written: nothing was, and who has it must not trust it any more. */
static void a_header_that_cannot_be_written(void **state)
{
    (void)state;
    struct rlimit before;
    addition a = {.size = 64, .filler = 'f'};
    cellar_error error;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit less = {.rlim_cur = 100, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    const cellar_status status = append(&a, &identity, NULL, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    folder_expect_failure(&error, status, CELLAR_IO, "cannot write the commit record");
    assert_int_equal(a.n_calls, 0);
    assert_false(identity.is_known);
    expect_old(WHOLE);
}

static void a_killed_append_leaves_the_old_session(void **state)
{
    (void)state;
    must_append(64, 'x', 64 + 2 * CL_SESSION_COMMIT);
    const pid_t child = fork();
    if (child == 0) {
        addition a = {.size = 100000, .filler = 'k', .signal = SIGKILL};
        _exit(append(&a, &identity, NULL, NULL) == CELLAR_OK);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    struct stat info;
    assert_int_equal(stat(folder_path("a"), &info), 0);
    assert_int_equal(info.st_size, WHOLE + 64 + 100000); /* it has come that far */
    must_append(64, 'y', 64 + CL_SESSION_COMMIT);
    const now n = look();
    assert_int_equal(n.commit.length, WHOLE + 128);
    assert_int_equal(n.size, WHOLE + 128);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, folder_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(records_take_turns),
        TEST(an_opened_file_is_known_too),
        TEST(only_the_known_file_is_appended_to),
        TEST(another_file_in_its_place_is_noticed),
        TEST(a_locked_file_is_busy),
        TEST(what_an_append_left_is_cut_off),
        TEST(a_failed_append_is_cut_off),
        TEST(a_full_disk_leaves_the_old_session),
        TEST(a_header_that_cannot_be_written),
        TEST(a_killed_append_leaves_the_old_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
