/*
 * unit_load.c: a mixed load: many clients, a pool that is far too small, cancels, prompts that are too long.
 *
 * Every answer has to be what the same request gets alone and cold; nobody gets an error that is the server's; what
 * is too long is refused; who goes away is noticed; and in the end nothing is held but what is retained. The
 * order in which clients meet is the system's, the requests are drawn from a seed that is printed.
 *
 * LOAD_REQUESTS=200 makes each client ask that often; LOAD_SEED=n repeats the draw.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/random_source.h"
#include "support_http.h"

#define CLIENTS 32
#define KINDS 24   /* different requests */
#define CELLS 128u /* far fewer than those at work want */
#define SLOTS 8u
#define SHARED "The sun was warm and the birds sang in the trees. Lily and Tom went to the park. "

static char *wanted[KINDS]; /* what each kind gets alone */

/* Kinds share beginnings, differ in length, sampling and API. */
static void make_body(char *body, size_t size, unsigned kind, bool is_stream, bool is_cold)
{
    static const char *const ends[] = {"They saw a dog", "They saw a big", "Tom said", "Lily had"};
    snprintf(body, size,
             "{\"prompt\":\"%s%s\",\"n_predict\":%u,\"temperature\":%s,\"seed\":%u,"
             "\"stream\":%s,\"cache_prompt\":%s,\"ignore_eos\":true%s}",
             kind % 3 == 0 ? "" : SHARED, ends[kind % 4], 8 + kind % 5 * 12,
             kind % 2 == 0 ? "0" : "0.9", kind, is_stream ? "true" : "false",
             is_cold ? "false" : "true", kind % 7 == 0 ? ",\"stop\":[\"the \"]" : "");
}

typedef struct load_client {
    const served *its;
    unsigned n_requests;
    random_source random;
    unsigned n_good, n_gone, n_refused;
    char wrong[512]; /* what went wrong first */
} load_client;

static void ask_and_compare(load_client *c, unsigned kind)
{
    char body[512];
    size_t n;
    const bool is_stream = random_source_next(&c->random) % 2 == 0;
    make_body(body, sizeof body, kind, is_stream, random_source_next(&c->random) % 8 == 0);
    http_answer a = http_ask(c->its, "POST", "/completion", NULL, body);
    char *text = a.status != 200 ? strdup("")
                 : is_stream     ? http_join(&a, "content", &n)
                                 : strdup(json_text_at(a.json, "content"));
    if (a.status == 200 && strcmp(text, wanted[kind]) == 0) {
        c->n_good++;
    } else if (c->wrong[0] == '\0') {
        snprintf(c->wrong, sizeof c->wrong, "status %d to %.200s: '%.80s', not '%.80s'", a.status,
                 body, text, wanted[kind]);
    }
    free(text);
    http_forget(&a);
}

/* Ask, and go away before the answer, or in the middle of it. */
static void ask_and_go(load_client *c, unsigned kind)
{
    char body[512], text[1024];
    make_body(body, sizeof body, kind, random_source_next(&c->random) % 2 == 0, false);
    const int n = snprintf(text, sizeof text,
                           "POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
                           strlen(body), body);
    const int socket_ = http_connect(c->its);
    /* sometimes before the request was whole */
    http_send(socket_, text, random_source_next(&c->random) % 4 == 0 ? (size_t)n / 2 : (size_t)n);
    const struct timespec pause = {.tv_nsec = (long)(random_source_next(&c->random) % 20000000)};
    nanosleep(&pause, NULL);
    close(socket_);
    c->n_gone++;
}

static void ask_too_much(load_client *c)
{
    char *body = malloc(8192);
    strcpy(body, "{\"prompt\":[1");
    for (int i = 0; i < 300; i++) {
        strcat(body, ",305");
    }
    strcat(body, "]}");
    http_answer a = http_ask(c->its, "POST", "/completion", NULL, body);
    if (a.status == 400) {
        c->n_refused++;
    } else if (c->wrong[0] == '\0') {
        snprintf(c->wrong, sizeof c->wrong, "status %d to a prompt that is too long", a.status);
    }
    http_forget(&a);
    free(body);
}

static void *run_client(void *argument)
{
    load_client *c = argument;
    for (unsigned i = 0; i < c->n_requests; i++) {
        const uint64_t draw = random_source_next(&c->random);
        const unsigned kind = (unsigned)(draw >> 8) % KINDS;
        if (draw % 8 == 0) {
            ask_and_go(c, kind);
        } else if (draw % 16 == 1) {
            ask_too_much(c);
        } else {
            ask_and_compare(c, kind);
        }
    }
    return NULL;
}

static unsigned from_environment(const char *name, unsigned usual)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : usual;
}

/* What each request gets alone: one slot, room for all, nothing taken over. */
static void write_down_what_is_wanted(void)
{
    served its;
    served_options options = served_defaults();
    options.n_slots = 1;
    served_start(&its, &options);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        char body[512];
        make_body(body, sizeof body, kind, false, true);
        http_answer a = http_ask(&its, "POST", "/completion", NULL, body);
        assert_int_equal(a.status, 200);
        assert_int_equal(json_number_at(a.json, "timings.cache_n"), 0);
        wanted[kind] = strdup(json_text_at(a.json, "content"));
        http_forget(&a);
    }
    served_stop(&its);
}

typedef struct held {
    const served *its;
    uint32_t n_used, n_sequences;
    uint64_t bytes;
} held;

static void count_held(void *context)
{
    held *h = context;
    cellar_statistics memory;
    assert_int_equal(cellar_stats(engine_memory(h->its->engine), &memory, NULL), CELLAR_OK);
    h->n_used = memory.n_used;
    h->n_sequences = memory.n_sequences;
    h->bytes = memory.sizes.bytes[CELLAR_BYTES_ROWS] + memory.sizes.bytes[CELLAR_BYTES_CELLS];
}

static void a_mixed_load_harms_nobody(void **state)
{
    (void)state;
    const unsigned seed = from_environment("LOAD_SEED", (unsigned)time(NULL)),
                   n_requests = from_environment("LOAD_REQUESTS", 20);
    print_message("seed %u\n", seed);
    write_down_what_is_wanted();
    served its;
    served_options options = served_defaults();
    options.n_cells = CELLS;
    options.n_slots = SLOTS;
    options.n_ubatch = 32;
    options.reuse.ram_bytes = 1 << 19; /* a few sequences */
    served_start(&its, &options);
    held before = {.its = &its}, after = before;
    assert_true(scheduler_run(its.server.scheduler, count_held, &before));
    load_client clients[CLIENTS];
    pthread_t running[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (load_client){.its = &its, .n_requests = n_requests};
        random_source_seed(&clients[i].random, ((uint64_t)seed << 8) + i);
        assert_int_equal(pthread_create(&running[i], NULL, run_client, &clients[i]), 0);
    }
    unsigned n_good = 0, n_refused = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        pthread_join(running[i], NULL);
        n_good += clients[i].n_good;
        n_refused += clients[i].n_refused;
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (clients[i].wrong[0] != '\0') {
            fail_msg("seed %u, client %u: %s", seed, i, clients[i].wrong);
        }
    }
    assert_true(n_good > 0 && n_refused > 0);
    /* What is counted is made public at the end of a round, a little after the last client has its answer. */
    scheduler_counters counters = {0};
    for (int i = 0; i < 6000; i++) {
        const struct timespec pause = {.tv_nsec = 10000000};
        assert_true(scheduler_run(its.server.scheduler, count_held, &after));
        counters = scheduler_count(its.server.scheduler);
        if (scheduler_load(its.server.scheduler) == 0 &&
            after.n_sequences == counters.library.n_retained) {
            break;
        }
        nanosleep(&pause, NULL);
    }
    assert_int_equal(scheduler_load(its.server.scheduler), 0);
    assert_int_equal(counters.n_failed, 0);
    assert_true(counters.n_reused > 0);
    assert_int_equal(after.n_sequences, counters.library.n_retained);
    assert_true(after.n_used <= CELLS);
    assert_int_equal(after.bytes, before.bytes); /* rows and cells were all made at the start */
    assert_true(counters.library.ram_bytes <= options.reuse.ram_bytes);
    print_message("%u answers, set aside %u times, %u evictions\n", n_good,
                  (unsigned)counters.n_set_aside, (unsigned)counters.library.n_evicted);
    served_stop(&its);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        free(wanted[kind]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_mixed_load_harms_nobody)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
