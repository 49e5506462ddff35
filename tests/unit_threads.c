/*
 * unit_threads.c: every part of every job runs once, whatever the number of threads.
 *
 * Meant to be run under the thread sanitizer too: the jobs share plain memory on purpose, so that
 * the pool's own ordering is all that keeps them apart.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "engine/threads.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

#define MOST_PARTS 512

/* What a job leaves behind; no atomics. */
typedef struct record {
    uint64_t runs[MOST_PARTS]; /* of each part */
    uint32_t n_parts[MOST_PARTS];
    pthread_t caller;
    bool is_part_0_on_caller;
    uint32_t naps; /* microseconds that odd parts sleep */
} record;

static void note(void *argument, uint32_t part, uint32_t n_parts)
{
    record *r = argument;
    if (part < MOST_PARTS) {
        r->runs[part]++;
        r->n_parts[part] = n_parts;
    }
    if (part == 0) {
        r->is_part_0_on_caller = pthread_equal(pthread_self(), r->caller);
    }
    if (r->naps > 0 && part % 2 == 1) {
        nanosleep(&(struct timespec){.tv_nsec = (long)r->naps * 1000}, NULL);
    }
}

static threads *create(uint32_t n)
{
    threads *pool;
    cellar_error error;
    if (threads_create(n, &pool, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(threads_count(pool), n);
    return pool;
}

static void assert_runs(const record *r, uint32_t n, uint64_t wanted)
{
    for (uint32_t part = 0; part < MOST_PARTS; part++) {
        assert_int_equal(r->runs[part], part < n ? wanted : 0);
        assert_int_equal(r->n_parts[part], part < n && wanted > 0 ? n : 0);
    }
    assert_true(wanted == 0 || r->is_part_0_on_caller);
}

static void each_part_runs_once_and_part_0_on_the_caller(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n++) {
        threads *pool = create(n);
        record r = {.caller = pthread_self()};
        assert_runs(&r, n, 0);
        for (uint64_t i = 1; i <= 50; i++) {
            threads_run(pool, note, &r);
            assert_runs(&r, n, i);
        }
        threads_destroy(pool);
    }
}

static void a_hundred_thousand_short_jobs_all_run(void **state)
{
    (void)state;
    const uint32_t counts[] = {1, 2, 3};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        threads *pool = create(counts[c]);
        record r = {.caller = pthread_self()};
        uint64_t jobs = counts[c] < 3 ? 100000 : 20000;
        for (uint64_t i = 0; i < jobs; i++) {
            threads_run(pool, note, &r);
        }
        assert_runs(&r, counts[c], jobs);
        threads_destroy(pool);
    }
}

/* Parts that are late and jobs that come late take every way through spinning and sleeping. */
static void jobs_with_pauses_before_and_inside_all_run(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 5; n++) {
        threads *pool = create(n);
        record r = {.caller = pthread_self()};
        for (uint32_t i = 0; i < 120; i++) {
            r.naps = i % 3 == 0 ? 0 : i * 4;
            threads_run(pool, note, &r);
            nanosleep(&(struct timespec){.tv_nsec = (long)(i % 7) * 5000}, NULL);
        }
        assert_runs(&r, n, 120);
        threads_destroy(pool);
    }
}

typedef struct sum {
    const uint32_t *numbers;
    uint32_t n;
    uint64_t parts[8];
} sum;

static void add_up(void *argument, uint32_t part, uint32_t n_parts)
{
    sum *s = argument;
    uint32_t first = (uint32_t)((uint64_t)s->n * part / n_parts);
    uint32_t last = (uint32_t)((uint64_t)s->n * (part + 1) / n_parts);
    s->parts[part] = 0;
    for (uint32_t i = first; i < last; i++) {
        s->parts[part] += s->numbers[i];
    }
}

static void what_one_job_writes_the_next_one_reads(void **state)
{
    (void)state;
    enum { N = 1000 };
    static uint32_t numbers[N];
    for (uint32_t n = 1; n <= 8; n++) {
        threads *pool = create(n);
        for (uint32_t round = 0; round < 100; round++) {
            uint64_t expected = 0, got = 0;
            for (uint32_t i = 0; i < N; i++) {
                numbers[i] = i * round;
                expected += numbers[i];
            }
            sum s = {.numbers = numbers, .n = N};
            threads_run(pool, add_up, &s);
            for (uint32_t part = 0; part < n; part++) {
                got += s.parts[part];
            }
            assert_int_equal(got, expected);
        }
        threads_destroy(pool);
    }
}

static void pools_come_and_go_used_and_unused(void **state)
{
    (void)state;
    threads_destroy(NULL);
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t n = 1 + i % 8;
        threads *pool = create(n);
        if (i % 2 == 0) {
            record r = {.caller = pthread_self()};
            threads_run(pool, note, &r);
            assert_runs(&r, n, 1);
        }
        threads_destroy(pool);
    }
}

static void two_pools_do_not_disturb_each_other(void **state)
{
    (void)state;
    threads *one = create(2), *other = create(3);
    record r1 = {.caller = pthread_self()}, r2 = r1;
    for (uint32_t i = 0; i < 200; i++) {
        threads_run(one, note, &r1);
        threads_run(other, note, &r2);
    }
    assert_runs(&r1, 2, 200);
    assert_runs(&r2, 3, 200);
    threads_destroy(one);
    threads_destroy(other);
}

static void a_bad_number_of_threads_is_refused(void **state)
{
    (void)state;
    const uint32_t bad[] = {0, 513, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        threads *pool = (threads *)&pool;
        cellar_error error;
        assert_int_equal(threads_create(bad[i], &pool, &error), CELLAR_INVALID);
        assert_null(pool);
        assert_non_null(strstr(error.message, "number of threads"));
        assert_int_equal(threads_create(bad[i], &pool, NULL), CELLAR_INVALID);
    }
}

static void the_most_threads_work(void **state)
{
    (void)state;
    threads *pool = create(MOST_PARTS);
    record r = {.caller = pthread_self()};
    threads_run(pool, note, &r);
    threads_run(pool, note, &r);
    assert_runs(&r, MOST_PARTS, 2);
    threads_destroy(pool);
}

/* Threads of this process, or 0. */
static int count_threads(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/task");
    if (folder != NULL) {
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            n += entry->d_name[0] != '.';
        }
        closedir(folder);
    }
    return n;
}

/* The kernel forgets a thread that was joined a moment later; a thread left behind stays. */
static void assert_count_of_threads_becomes(int wanted)
{
    for (int i = 0; i < 1000 && count_threads() != wanted; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    assert_int_equal(count_threads(), wanted);
}

/* Bytes of address space in use, or 0. */
static size_t used_address_space(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%lu", &pages) != 1) {
            pages = 0;
        }
        fclose(file);
    }
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* With too little address space for all their stacks, some threads start and one does not. */
static void if_a_thread_cannot_start_all_are_taken_down(void **state)
{
    (void)state;
    size_t used = used_address_space();
    struct rlimit before = {0}, tight;
    if (HAS_SANITIZER || used == 0 || getrlimit(RLIMIT_AS, &before) != 0) {
        print_message("skipped: a limit on address space is of no use here\n");
        skip();
    }
    int n_threads = count_threads();
    tight = before;
    tight.rlim_cur = used + ((rlim_t)100 << 20);
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    threads *pool = NULL;
    cellar_error error;
    cellar_status status = threads_create(MOST_PARTS, &pool, &error);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(status, CELLAR_NO_MEMORY);
    assert_null(pool);
    assert_non_null(strstr(error.message, "could not be started"));
    assert_count_of_threads_becomes(n_threads);
    each_part_runs_once_and_part_0_on_the_caller(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_runs_once_and_part_0_on_the_caller),
        cmocka_unit_test(a_hundred_thousand_short_jobs_all_run),
        cmocka_unit_test(jobs_with_pauses_before_and_inside_all_run),
        cmocka_unit_test(what_one_job_writes_the_next_one_reads),
        cmocka_unit_test(pools_come_and_go_used_and_unused),
        cmocka_unit_test(two_pools_do_not_disturb_each_other),
        cmocka_unit_test(a_bad_number_of_threads_is_refused),
        cmocka_unit_test(if_a_thread_cannot_start_all_are_taken_down),
        cmocka_unit_test(the_most_threads_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
