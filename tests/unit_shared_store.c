/*
 * unit_shared_store.c: the client of the shared store, against a store that behaves in every way it can.
 *
 * The other end is support_peer.c, which shares no code with this one. What was put has to come back byte by byte;
 * whatever else the peer does, a fetch ends without a value, in time, and the store goes on when the peer is well again.
 * Nothing here measures time; what has to happen some time is waited for.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "serve/job.h"
#include "shared/shared_store.h"
#include "support_peer.h"
#include "support_small_memory.h"

enum { N = 6, VALUE_BYTES = 1 << 16 };

static shared_name names[N];
static char values[N][VALUE_BYTES];
static size_t sizes[N];
static cellar_error error;

static bool add_bytes(void *context, const void *bytes, size_t size)
{
    const size_t i = *(const size_t *)context;
    assert_true(size <= VALUE_BYTES - sizes[i]);
    memcpy(values[i] + sizes[i], bytes, size);
    sizes[i] += size;
    return true;
}

/* Values are sessions, each of another length. */
static int make_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < N; i++) {
        small_memory small;
        const cellar_writer writer = {add_bytes, &i};
        const cellar_save_options options = cellar_save_options_init();
        small_init(&small, 64);
        small_add_attention(&small, 0);
        small_open(&small);
        small_read(&small, 0, (uint32_t)i + 1);
        if (cellar_write_session(small.memory, &options, &writer, NULL) != CELLAR_OK) {
            return -1;
        }
        small_close(&small);
        memset(&names[i], (int)(17 * i + 1), sizeof names[i]);
    }
    return 0;
}

static shared_store *make_store(const peer *p, const char *password)
{
    const shared_store_options options = {.address = peer_address(p),
                                          .password = password,
                                          .most_bytes = 4 << 20,
                                          .expire_seconds = 60};
    shared_store *store;
    if (shared_store_create(&options, &store, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return store;
}

static void wait_a_little(void)
{
    const struct timespec time = {.tv_nsec = 5000000};
    nanosleep(&time, NULL);
}

static bool put(shared_store *store, size_t i)
{
    char *bytes = malloc(sizes[i]);
    memcpy(bytes, values[i], sizes[i]);
    return shared_store_put(store, &names[0], &names[i], bytes, sizes[i]);
}

/* Put values [n], and wait until they are written. */
static void put_all(shared_store *store, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_true(put(store, i));
    }
    while (shared_store_count(store).n_queued > 0) {
        wait_a_little();
    }
}

/* Look all names up and wait for the end; the number of values, which have to be those of names[*at] and on. */
static size_t fetch(shared_store *store, bool wants_longest, double seconds, size_t *at)
{
    const shared_value *got;
    size_t n;
    shared_fetch *f = shared_store_fetch(store, &names[0], names, N, wants_longest,
                                         job_now() + seconds);
    if (f == NULL) {
        return 0;
    }
    while (!shared_store_poll(store, f, &got, &n, at)) {
        wait_a_little();
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got[i].size, sizes[*at + i]);
        assert_memory_equal(got[i].bytes, values[*at + i], got[i].size);
    }
    shared_store_release(store, f);
    return n;
}

static size_t fetch_all(shared_store *store)
{
    size_t at;
    return fetch(store, false, 30, &at);
}

/* ---- well ------------------------------------------------------------------------------------ */

static void what_was_put_is_fetched(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *a = make_store(p, NULL), *b = make_store(p, NULL);
    size_t at;
    assert_int_equal(fetch_all(a), 0);
    put_all(a, N);
    assert_int_equal(peer_count(p), N);
    assert_true(shared_store_knows(a, &names[3]));
    assert_false(shared_store_knows(b, &names[3]));
    assert_int_equal(fetch_all(b), N);
    assert_true(shared_store_knows(b, &names[3]));
    assert_int_equal(fetch(b, true, 30, &at), 1);
    assert_int_equal(at, N - 1);
    put_all(b, N); /* they are there: none is sent */
    assert_int_equal(shared_store_count(b).n_written, 0);
    assert_int_equal(shared_store_count(b).n_kept, N);
    assert_int_equal(shared_store_count(a).n_written, N);
    assert_int_equal(shared_store_count(b).n_failures, 0);
    shared_store_destroy(a);
    shared_store_destroy(b);
    peer_stop(p);
}

static void a_gap_ends_what_is_fetched(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *store = make_store(p, NULL);
    size_t at;
    put_all(store, 2);
    assert_true(put(store, 4));
    while (shared_store_count(store).n_queued > 0) {
        wait_a_little();
    }
    assert_int_equal(fetch_all(store), 2);
    assert_int_equal(fetch(store, true, 30, &at), 1);
    assert_int_equal(at, 4);
    shared_store_destroy(store);
    peer_stop(p);
}

static void keys_say_nothing_and_stay_together(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *store = make_store(p, NULL);
    put_all(store, N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(strlen(peer_key(p, i)), SHARED_KEY_BYTES - 1);
        assert_memory_equal(peer_key(p, i), "cellar:{0101010101010101}:", 26);
        assert_int_equal(strspn(peer_key(p, i) + 26, "0123456789abcdef"), 64);
    }
    shared_store_destroy(store);
    peer_stop(p);
}

static void a_password_is_sent(void **state)
{
    (void)state;
    peer *p = peer_start("pw");
    shared_store *right = make_store(p, "pw"), *wrong = make_store(p, "qw"),
                 *none = make_store(p, NULL);
    put_all(right, 2);
    assert_int_equal(fetch_all(right), 2);
    assert_int_equal(fetch_all(wrong), 0);
    assert_int_equal(fetch_all(none), 0);
    assert_false(shared_store_count(wrong).reads);
    assert_false(shared_store_count(none).reads);
    shared_store_destroy(right);
    shared_store_destroy(wrong);
    shared_store_destroy(none);
    peer_stop(p);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void what_waits_is_bounded(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    peer_set(p, PEER_SILENT, NULL);
    shared_store *store = make_store(p, NULL);
    size_t n = 0;
    while (put(store, 5)) {
        n++;
    }
    assert_true(n * sizes[5] <= 1 << 20 && (n + 1) * sizes[5] > 1 << 20);
    assert_false(shared_store_takes(store, sizes[5]));
    assert_false(shared_store_put(store, &names[0], &names[1], malloc(2 << 20), 2 << 20));
    shared_store_destroy(store); /* does not wait for the silent one */
    peer_stop(p);
}

static void time_that_is_over_is_no_failure(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *store = make_store(p, NULL);
    put_all(store, N);
    peer_set(p, PEER_SILENT, NULL);
    size_t at;
    assert_int_equal(fetch(store, false, 0.2, &at), 0);
    const shared_counters c = shared_store_count(store);
    assert_int_equal(c.n_late, 1);
    assert_true(c.reads);
    assert_int_equal(c.n_failures, 0);
    /* It is known to be slow now: nobody who has less time tries, but for one. */
    peer_set(p, PEER_GOOD, NULL);
    (void)fetch(store, false, 0.05, &at);
    assert_int_equal(fetch(store, false, 0.05, &at), 0);
    assert_int_equal(shared_store_count(store).n_skipped, 1);
    assert_int_equal(fetch_all(store), N);
    shared_store_destroy(store);
    peer_stop(p);
}

/* What came before time was over is there, from a store that says nothing more. */
static void what_came_in_time_is_there(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *store = make_store(p, NULL);
    put_all(store, N);
    peer_set(p, PEER_TIRED, NULL);
    shared_fetch *f = shared_store_fetch(store, &names[0], names, N, false, job_now() + 30);
    while (shared_store_count(store).n_read < 2) {
        wait_a_little();
    }
    const shared_value *got;
    size_t n, at;
    assert_false(shared_store_poll(store, f, &got, &n, &at));
    shared_store_cut(store, f, &got, &n, &at);
    assert_int_equal(n, 2);
    assert_int_equal(at, 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got[i].size, sizes[i]);
        assert_memory_equal(got[i].bytes, values[i], sizes[i]);
    }
    shared_store_release(store, f);
    peer_set(p, PEER_GOOD, NULL);
    f = shared_store_fetch(store, &names[0], names, N, false, job_now() + 30);
    shared_store_cut(store, f, &got, &n, &at); /* before anything came */
    assert_true(n <= N);
    shared_store_release(store, f);
    shared_store_destroy(store);
    peer_stop(p);
}

/* Values come, each in half a second: who would read six in 2.4 has seen enough after two. */
static void who_reads_faster_does_not_wait(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *store = make_store(p, NULL);
    put_all(store, N);
    peer_set(p, PEER_SLOW, NULL);
    size_t at;
    assert_int_equal(fetch(store, false, 2.4, &at), 2);
    const shared_counters c = shared_store_count(store);
    assert_int_equal(c.n_read, 2);
    assert_int_equal(c.n_late, 1);
    assert_int_equal(c.n_failures, 0);
    shared_store_destroy(store);
    peer_stop(p);
}

static void one_that_nobody_waits_for_is_given_back(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    peer_set(p, PEER_SILENT, NULL);
    shared_store *store = make_store(p, NULL);
    for (size_t i = 0; i < 300; i++) {
        shared_fetch *f = shared_store_fetch(store, &names[0], names, N, false, job_now() + 30);
        assert_true(f != NULL || i > 255);
        if (f != NULL) {
            shared_store_release(store, f);
        }
    }
    shared_store_destroy(store);
    peer_stop(p);
}

/* ---- not well -------------------------------------------------------------------------------- */

static void a_damaged_value_is_a_miss_and_goes(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *store = make_store(p, NULL);
    put_all(store, N);
    for (size_t i = 0; i < N; i++) {
        if (strstr(peer_key(p, i), "2323232323232323") != NULL) { /* names[2] */
            peer_damage(p, i, sizes[2] - 100);
        }
    }
    assert_int_equal(fetch_all(store), 2);
    assert_int_equal(shared_store_count(store).n_damaged, 1);
    while (peer_count(p) == N) {
        wait_a_little();
    }
    for (size_t i = 0; i < N - 1; i++) {
        assert_null(strstr(peer_key(p, i), "2323232323232323"));
    }
    assert_false(shared_store_knows(store, &names[2]));
    put_all(store, N); /* and is written anew */
    assert_int_equal(fetch_all(store), N);
    shared_store_destroy(store);
    peer_stop(p);
}

static void nothing_that_a_store_does_is_believed_or_waited_for(void **state)
{
    (void)state;
    static const peer_mood moods[] = {PEER_LOADING, PEER_GARBAGE, PEER_ARRAY,     PEER_HUGE,
                                      PEER_CUT,     PEER_CLOSED,  PEER_WRONG_MOVE};
    for (size_t m = 0; m < sizeof moods / sizeof moods[0]; m++) {
        peer *p = peer_start(NULL);
        shared_store *a = make_store(p, NULL), *b = make_store(p, NULL);
        put_all(a, N);
        peer_set(p, moods[m], NULL);
        assert_int_equal(fetch_all(b), 0);
        const shared_counters c = shared_store_count(b);
        assert_int_equal(c.n_failures, 1);
        assert_false(c.reads);
        assert_int_equal(fetch_all(b), 0); /* not even tried */
        assert_int_equal(shared_store_count(b).n_refused, 1);
        peer_set(p, PEER_GOOD, NULL);
        if (m == 0) { /* it comes back by itself */
            while (fetch_all(b) == 0) {
                wait_a_little();
            }
            assert_true(shared_store_count(b).reads);
        }
        shared_store_destroy(a);
        shared_store_destroy(b);
        peer_stop(p);
    }
}

static void another_kind_of_value_is_damaged(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *store = make_store(p, NULL);
    put_all(store, N);
    peer_set(p, PEER_LIST, NULL);
    assert_int_equal(fetch_all(store), 0);
    assert_true(shared_store_count(store).reads);
    peer_set(p, PEER_GOOD, NULL);
    assert_int_equal(fetch_all(store), N);
    shared_store_destroy(store);
    peer_stop(p);
}

static void what_could_not_be_written_is_written_later(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *store = make_store(p, NULL);
    peer_set(p, PEER_LOADING, NULL);
    for (size_t i = 0; i < N; i++) {
        assert_true(put(store, i));
    }
    while (shared_store_count(store).writes) {
        wait_a_little();
    }
    assert_int_equal(peer_count(p), 0);
    peer_set(p, PEER_GOOD, NULL);
    while (shared_store_count(store).n_queued > 0) {
        wait_a_little();
    }
    assert_int_equal(peer_count(p), N);
    assert_true(shared_store_count(store).writes);
    shared_store_destroy(store);
    peer_stop(p);
}

static void a_full_store_can_still_be_read(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *store = make_store(p, NULL);
    put_all(store, 2);
    peer_set(p, PEER_FULL, NULL);
    assert_true(put(store, 3));
    while (shared_store_count(store).writes) {
        wait_a_little();
    }
    assert_int_equal(fetch_all(store), 2);
    assert_true(shared_store_count(store).reads);
    shared_store_destroy(store);
    peer_stop(p);
}

static void what_is_drained_is_there(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    shared_store *store = make_store(p, NULL);
    for (size_t i = 0; i < N; i++) {
        assert_true(put(store, i));
    }
    shared_store_drain(store, 30);
    assert_int_equal(peer_count(p), N);
    assert_false(put(store, 0));
    assert_int_equal(fetch_all(store), 0);
    shared_store_destroy(store);
    peer_stop(p);
}

/* ---- clusters -------------------------------------------------------------------------------- */

static void a_slot_that_was_moved_is_followed(void **state)
{
    (void)state;
    peer *first = peer_start(NULL), *second = peer_start(NULL);
    shared_store *store = make_store(first, NULL);
    peer_set(first, PEER_MOVED, second);
    put_all(store, N);
    assert_int_equal(peer_count(first), 0);
    assert_int_equal(peer_count(second), N);
    assert_int_equal(fetch_all(store), N);
    const unsigned n = peer_commands(first);
    assert_int_equal(fetch_all(store), N); /* who has it is known now */
    assert_int_equal(peer_commands(first), n);
    assert_int_equal(peer_asked(second), 0);
    shared_store_destroy(store);
    peer_stop(first);
    peer_stop(second);
}

static void a_slot_on_its_way_is_asked_for(void **state)
{
    (void)state;
    peer *first = peer_start(NULL), *second = peer_start(NULL);
    shared_store *store = make_store(first, NULL);
    peer_set(first, PEER_ASKS, second);
    put_all(store, N);
    assert_int_equal(peer_count(second), N);
    assert_true(peer_asked(second) >= N);
    assert_int_equal(fetch_all(store), N);
    const unsigned n = peer_commands(first);
    assert_int_equal(fetch_all(store), N); /* the first one is still the one to ask */
    assert_true(peer_commands(first) > n);
    shared_store_destroy(store);
    peer_stop(first);
    peer_stop(second);
}

static void a_circle_of_redirections_ends(void **state)
{
    (void)state;
    peer *first = peer_start(NULL), *second = peer_start(NULL);
    shared_store *store = make_store(first, NULL);
    peer_set(first, PEER_MOVED, second);
    peer_set(second, PEER_MOVED, first);
    assert_int_equal(fetch_all(store), 0);
    assert_true(shared_store_count(store).reads); /* a miss */
    peer_set(first, PEER_LATER, NULL);
    peer_set(second, PEER_LATER, NULL);
    assert_int_equal(fetch_all(store), 0);
    peer_set(first, PEER_GOOD, NULL);
    peer_set(second, PEER_GOOD, NULL);
    assert_int_equal(fetch_all(store), 0);
    assert_int_equal(shared_store_count(store).n_failures, 0);
    shared_store_destroy(store);
    peer_stop(first);
    peer_stop(second);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    shared_store *store;
    shared_store_options options = {
        .address = "redis//", .most_bytes = 1 << 20, .expire_seconds = 1};
    assert_int_equal(shared_store_create(&options, &store, &error), CELLAR_INVALID);
    options.address = "rediss://h";
    options.ca_file = "/nowhere/ca.pem";
    assert_int_equal(shared_store_create(&options, &store, &error), CELLAR_INVALID);
    assert_null(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_is_fetched),
        cmocka_unit_test(a_gap_ends_what_is_fetched),
        cmocka_unit_test(keys_say_nothing_and_stay_together),
        cmocka_unit_test(a_password_is_sent),
        cmocka_unit_test(what_waits_is_bounded),
        cmocka_unit_test(time_that_is_over_is_no_failure),
        cmocka_unit_test(what_came_in_time_is_there),
        cmocka_unit_test(who_reads_faster_does_not_wait),
        cmocka_unit_test(one_that_nobody_waits_for_is_given_back),
        cmocka_unit_test(a_damaged_value_is_a_miss_and_goes),
        cmocka_unit_test(nothing_that_a_store_does_is_believed_or_waited_for),
        cmocka_unit_test(another_kind_of_value_is_damaged),
        cmocka_unit_test(what_could_not_be_written_is_written_later),
        cmocka_unit_test(a_full_store_can_still_be_read),
        cmocka_unit_test(what_is_drained_is_there),
        cmocka_unit_test(a_slot_that_was_moved_is_followed),
        cmocka_unit_test(a_slot_on_its_way_is_asked_for),
        cmocka_unit_test(a_circle_of_redirections_ends),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, make_values, NULL);
}
