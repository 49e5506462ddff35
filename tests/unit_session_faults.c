/*
 * unit_session_faults.c: every call of the system fails once, while sessions are saved and loaded.
 *
 * The calls that the library uses for files are defined here, in front of those of the C library:
 * they do what those do, but for one of them, counted from the beginning of a save or a load. It
 * fails (EIO, ENOSPC), is interrupted (EINTR), or does half of its work. This is done for the first
 * call, the second, and so on, until there is none left to fail. Each time
 *
 *     the file holds the old session or the new one, whole; the old one, if the save says it failed
 *       (but for the last step, the sync of the folder, whose message says so)
 *     no temporary file is left, and no descriptor
 *     the message has the reason of the system; the memory is as it was
 *     and the next save works.
 *
 * When all calls but looking fail from some moment on, a journal's commit record cannot be put back: then the new
 * session may be there though the save said it failed.
 * What is interrupted or done by half is no failure at all. Syncs do nothing else here.
 */
#undef _FORTIFY_SOURCE /* would call the system by other names */
#define _GNU_SOURCE 1
#define _FILE_OFFSET_BITS 64
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support_folder.h"
#include "support_journal.h"

/* ---- calls that fail ------------------------------------------------------------------------- */

enum { HALF = -1 }; /* instead of a number: half of the bytes are written or read */

typedef struct breakage {
    bool is_on, is_lasting; /* every call from that one on fails */
    unsigned n, at;         /* calls that could have failed so; which of them does */
    int number;
    char name[16]; /* of the call that failed; "": none did */
} breakage;

static breakage fault;

/* Calls that wait may be interrupted. */
static bool fails(const char *name, bool waits, bool has_bytes)
{
    const bool looks = strncmp(name, "fstat", 5) == 0;
    if (!fault.is_on || (fault.is_lasting && looks) || (fault.number == EINTR && !waits) ||
        (fault.number == HALF && !has_bytes))
        return false;
    const unsigned n = fault.n++;
    if (n < fault.at || (n > fault.at && !fault.is_lasting)) return false;
    strcpy(fault.name, name);
    errno = fault.number;
    return true;
}

int openat(int folder, const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails("openat", true, false) ? -1 : (int)syscall(SYS_openat, folder, name, flags, mode);
}

int open(const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails("open", true, false) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, name, flags, mode);
}

ssize_t pwrite(int file, const void *bytes, size_t n, off_t offset)
{
    if (fails("pwrite", true, n > 1)) {
        if (fault.number != HALF) return -1;
        n /= 2;
    }
    return syscall(SYS_pwrite64, file, bytes, n, offset);
}

ssize_t pread(int file, void *bytes, size_t n, off_t offset)
{
    if (fails("pread", true, n > 1)) {
        if (fault.number != HALF) return -1;
        n /= 2;
    }
    return syscall(SYS_pread64, file, bytes, n, offset);
}

int fsync(int file)
{
    (void)file;
    return fails("fsync", true, false) ? -1 : 0;
}

int fdatasync(int file)
{
    (void)file;
    return fails("fdatasync", true, false) ? -1 : 0;
}

int ftruncate(int file, off_t length)
{
    return fails("ftruncate", true, false) ? -1 : (int)syscall(SYS_ftruncate, file, length);
}

int renameat(int from, const char *name, int to, const char *new_name)
{
    return fails("renameat", false, false)
               ? -1
               : (int)syscall(SYS_renameat2, from, name, to, new_name, 0);
}

int flock(int file, int how)
{
    return fails("flock", true, false) ? -1 : (int)syscall(SYS_flock, file, how);
}

int fstat(int file, struct stat *to)
{
    return fails("fstat", false, false) ? -1 : (int)syscall(SYS_fstat, file, to);
}

int fstatat(int folder, const char *name, struct stat *to, int flags)
{
    return fails("fstatat", false, false) ? -1
                                          : (int)syscall(SYS_newfstatat, folder, name, to, flags);
}

/* ---- what is saved --------------------------------------------------------------------------- */

enum { OLD = 60, MORE = 20 };

typedef struct world {
    story s;
    cellar_journal *journal;
    parcel before, after; /* the memory, as it was first saved, and as it is to be */
} world;

static void read_many(story *s, uint32_t n)
{
    for (uint32_t done = 0; done < n; done += STORY_BATCH < n ? STORY_BATCH : n)
        assert_int_equal(story_read(s, 1, STORY_BATCH), CELLAR_OK);
}

static void write_memory(const cellar_memory *memory, parcel *to)
{
    cellar_error error = {0};
    journal_must(parcel_write(to, memory, NULL, &error), &error);
}

/* The old session is in the file (n_saves 0: there is none), and the memory has more. */
static void open_world(world *w, unsigned n_saves)
{
    memset(w, 0, sizeof *w);
    w->s.random = 1;
    small_init(&w->s.small, 256);
    (void)small_add_attention(&w->s.small, 0);
    story_open(&w->s);
    w->journal = journal_open(w->s.small.memory);
    read_many(&w->s, OLD);
    for (unsigned i = 0; i < n_saves; i++) {
        (void)journal_save(w->journal, NULL);
        write_memory(w->s.small.memory, &w->before);
        read_many(&w->s, MORE);
    }
    write_memory(w->s.small.memory, &w->after);
}

static void close_world(world *w)
{
    cellar_close_journal(w->journal);
    story_close(&w->s);
    parcel_free(&w->before);
    parcel_free(&w->after);
    unlink(journal_path());
}

/* What the file holds, written anew by a memory into which it was loaded. */
static parcel found_in_file(void)
{
    story copy = {.random = 1};
    parcel found = {NULL, 0, 0};
    cellar_session *session;
    const cellar_load_options all = cellar_load_options_init();
    cellar_error error = {0};
    small_init(&copy.small, 256);
    (void)small_add_attention(&copy.small, 0);
    story_open(&copy);
    journal_must(cellar_open_session(journal_path(), NULL, &session, &error), &error);
    journal_must(cellar_check_session(session, &error), &error);
    journal_must(cellar_load_session(copy.small.memory, session, &all, &error), &error);
    cellar_close_session(session);
    write_memory(copy.small.memory, &found);
    story_close(&copy);
    return found;
}

/* ---- one save -------------------------------------------------------------------------------- */

typedef struct way {
    unsigned n_saves; /* before */
    bool is_journal;
} way;

static cellar_status save(const way *how, world *w, cellar_error *error)
{
    const cellar_save_options all = cellar_save_options_init();
    *error = (cellar_error){.message = ""};
    return how->is_journal ? cellar_save_journal(w->journal, &all, NULL, error)
                           : cellar_save_session(w->s.small.memory, &all, journal_path(), error);
}

static void expect_reason(cellar_status status, const cellar_error *error)
{
    assert_int_not_equal(fault.number, EINTR);
    assert_int_not_equal(fault.number, HALF);
    folder_expect_failure(error, status, CELLAR_IO, strerror(fault.number));
    assert_non_null(strstr(error->message, "cannot "));
    assert_non_null(strstr(error->message, journal_path()));
}

static void expect_old_or_new(const way *how, const world *w, cellar_status status,
                              const cellar_error *error)
{
    const bool is_late = strstr(error->message, "sync the folder") != NULL;
    const bool is_there = access(journal_path(), F_OK) == 0;
    folder_expect_names(is_there);
    if (!is_there) { /* as it was before */
        assert_true(status != CELLAR_OK && how->n_saves == 0);
        return;
    }
    parcel found = found_in_file();
    const bool is_new = parcel_equal(&found, &w->after);
    if (status == CELLAR_OK || is_late)
        assert_true(is_new);
    else if (!is_new || !fault.is_lasting)
        assert_true(parcel_equal(&found, &w->before));
    parcel_free(&found);
}

static void expect_same_memory(const world *w)
{
    parcel now = {NULL, 0, 0};
    write_memory(w->s.small.memory, &now);
    assert_true(parcel_equal(&now, &w->after));
    parcel_free(&now);
}

/* False: there was no call left to fail. */
static bool try_save(const way *how, int number, bool is_lasting, unsigned at)
{
    world w;
    cellar_error error;
    open_world(&w, how->n_saves);
    fault = (breakage){.is_on = true, .is_lasting = is_lasting, .at = at, .number = number};
    cellar_status status = save(how, &w, &error);
    fault.is_on = false;
    const bool has_failed = *fault.name != '\0';
    if (status != CELLAR_OK) expect_reason(status, &error);
    expect_old_or_new(how, &w, status, &error);
    expect_same_memory(&w);
    status = save(how, &w, &error); /* nothing stands in the way of the next one */
    journal_must(status, &error);
    error.message[0] = '\0';
    expect_old_or_new(how, &w, status, &error);
    close_world(&w);
    return has_failed;
}

static const int numbers[] = {EIO, ENOSPC, EINTR, HALF};

static void every_call_of_a_save(const way *how)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        unsigned at = 0;
        const bool is_failure = numbers[i] != EINTR && numbers[i] != HALF;
        while (try_save(how, numbers[i], false, at))
            at++;
        assert_true(at >= (is_failure ? 10 : 1)); /* so many calls were made to fail */
        for (at = 0; is_failure && try_save(how, numbers[i], true, at);)
            at++;
    }
}

static void saving_a_new_file(void **state)
{
    (void)state;
    every_call_of_a_save(&(way){.n_saves = 0});
}

static void saving_over_a_file(void **state)
{
    (void)state;
    every_call_of_a_save(&(way){.n_saves = 1});
}

static void appending_for_the_first_time(void **state)
{
    (void)state;
    every_call_of_a_save(&(way){.n_saves = 1, .is_journal = true});
}

static void appending_to_a_journal(void **state)
{
    (void)state;
    every_call_of_a_save(&(way){.n_saves = 2, .is_journal = true});
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool try_load(world *w, int number, unsigned at)
{
    const cellar_load_options all = cellar_load_options_init();
    cellar_error error = {.message = ""};
    cellar_session *session = NULL;
    fault = (breakage){.is_on = true, .at = at, .number = number};
    cellar_status status = cellar_open_session(journal_path(), NULL, &session, &error);
    if (status == CELLAR_OK) status = cellar_load_session(w->s.small.memory, session, &all, &error);
    fault.is_on = false;
    cellar_close_session(session);
    const bool has_failed = *fault.name != '\0';
    if (has_failed && number != EINTR && number != HALF) {
        assert_int_equal(status, CELLAR_IO);
        expect_same_memory(w); /* which is not what the file holds */
    } else {
        journal_must(status, &error);
    }
    return has_failed;
}

static void loading(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        world w;
        unsigned at = 0;
        open_world(&w, 2);
        while (try_load(&w, numbers[i], at))
            at++;
        assert_true(at >= 5); /* header, index, sections */
        parcel now = {NULL, 0, 0};
        write_memory(w.s.small.memory, &now);
        assert_true(parcel_equal(&now, &w.before));
        parcel_free(&now);
        close_world(&w);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_set_up, folder_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(saving_a_new_file),
        TEST(saving_over_a_file),
        TEST(appending_for_the_first_time),
        TEST(appending_to_a_journal),
        TEST(loading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
