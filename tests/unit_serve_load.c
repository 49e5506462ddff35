/*
 * unit_serve_load.c: a mixed load on a server whose memory holds a quarter of what is wanted at once.
 *
 *   unit_serve_load [--clients N] [--requests N] [--seed N]
 *
 * Clients of two keys ask for what others ask for too, or begin alike: whole and as streams, one choice or two. Some
 * go away in the middle, some ask for more than the context holds. Every answer has to be, to the byte, what the
 * model writes alone, in an engine of its own that nobody shares. Nothing may fail but what asks for
 * too much, no limit may ever be passed, and at the end the cells hold what is retained and nothing else.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "engine/generate.h"
#include "model/random.h"
#include "support_folder.h"
#include "support_http.h"
#include "support_words.h"

#define N_TALKS 12u   /* streams of tokens that prompts are the beginnings of */
#define N_DEPTHS 8u   /* how long a beginning */
#define N_CELLS 1024u /* the clients want about four times as many at once */
#define N_CONTEXT 1024u
#define LONGEST (20 + 12 * N_DEPTHS)
#define N_KINDS (N_TALKS * N_DEPTHS)

static unsigned n_clients = 32, n_requests = 4, first_seed = 1;

/* ---- what is asked, and what has to come back ----------------------------------------------- */

/* One of the requests that clients choose from. */
typedef struct kind {
    cellar_token prompt[LONGEST + 8];
    size_t n_prompt;
    unsigned n_choices, n_limit, seed;
    bool is_warm;  /* with a temperature */
    char *text[2]; /* what each choice has to be */
} kind;

static kind kinds[N_KINDS];

static void make_kind(kind *k, unsigned talk, unsigned depth)
{
    /* Of a talk the beginnings are the same; the end of a prompt is its own. */
    uint64_t shared = random_mix(talk, 1), own = random_mix(talk, 100 + depth);
    k->n_prompt = 20 + 12 * depth;
    for (size_t i = 0; i < k->n_prompt; i++) {
        k->prompt[i] = (cellar_token)(260 + random_below(&shared, 250));
    }
    for (unsigned i = 0; i < 1 + depth % 8; i++) {
        k->prompt[k->n_prompt++] = (cellar_token)(260 + random_below(&own, 250));
    }
    k->n_limit = 60 +
                 random_below(&own,
                              100); /* past the margin that admission leaves: some are set aside */
    k->seed = talk * 100 + depth;
    k->is_warm = depth % 2 == 1;
    k->n_choices = depth == 3 ? 2 : 1;
}

static sampler_options sampling_of(const kind *k, unsigned choice)
{
    sampler_options sampling = sampler_defaults();
    sampling.seed = k->seed + choice;
    sampling.temperature = k->is_warm ? 0.8 : 0;
    return sampling;
}

/* What `cellar run` would write. */
static char *write_alone(const served *its, engine *e, const kind *k, unsigned choice)
{
    words w = {.n = 0};
    sampler *s;
    const sampler_options sampling = sampling_of(k, choice);
    generate_options g = generate_defaults();
    generate_result result;
    assert_int_equal(sampler_create(&sampling, its->model->n_vocab, &s, NULL), CELLAR_OK);
    g.prompt = k->prompt;
    g.n_prompt = k->n_prompt;
    g.n_limit = k->n_limit;
    g.ignore_end = true;
    g.context = &w;
    g.text = words_add;
    assert_int_equal(generate(e, its->tokenizer, s, &g, &result, NULL), CELLAR_OK);
    sampler_destroy(s);
    assert_int_equal(cellar_remove(engine_memory(e), 0, 0, -1, NULL), CELLAR_OK);
    char *text = strdup(w.text);
    assert_non_null(text);
    return text;
}

static void make_kinds(const served *its)
{
    engine_options options = engine_defaults();
    options.n_cells = LONGEST + 256;
    engine *e;
    assert_int_equal(engine_create(its->model, &options, &e, NULL), CELLAR_OK);
    for (unsigned i = 0; i < N_KINDS; i++) {
        kind *k = &kinds[i];
        make_kind(k, i / N_DEPTHS, i % N_DEPTHS);
        for (unsigned c = 0; c < k->n_choices; c++) {
            k->text[c] = write_alone(its, e, k, c);
        }
    }
    engine_destroy(e);
}

static void forget_kinds(void)
{
    for (unsigned i = 0; i < N_KINDS; i++) {
        free(kinds[i].text[0]);
        free(kinds[i].text[1]);
    }
}

/* ---- clients -------------------------------------------------------------------------------- */

typedef struct client {
    const served *its;
    unsigned number;
    uint64_t random;
    unsigned n_right, n_gone, n_refused;
    char wrong[512]; /* what was not as it has to be; "": nothing */
} client;

static char *body_of(const kind *k, size_t n_prompt, bool is_stream)
{
    char *body = malloc(n_prompt * 5 + 256), *at = body;
    assert_non_null(body);
    at += sprintf(at, "{\"prompt\":[");
    for (size_t i = 0; i < n_prompt; i++) {
        at += sprintf(at, "%s%d", i > 0 ? "," : "", (int)k->prompt[i % k->n_prompt]);
    }
    sprintf(at,
            "],\"n_predict\":%u,\"n\":%u,\"seed\":%u,\"temperature\":%s,\"stream\":%s,"
            "\"ignore_eos\":true}",
            k->n_limit, k->n_choices, k->seed, k->is_warm ? "0.8" : "0",
            is_stream ? "true" : "false");
    return body;
}

static const char *key_of(const client *c)
{
    return c->number % 2 == 0 ? "X-Api-Key: first\r\n" : "X-Api-Key: second\r\n";
}

/* The texts of one choice in a stream put together; to be freed. */
static char *join_choice(const http_answer *a, unsigned choice)
{
    char *all = calloc(1, a->n_body + 1);
    json_t *event;
    assert_non_null(all);
    for (size_t i = 0; (event = http_event_json(a, i)) != NULL; i++) {
        if (json_number_at(event, "index") == (json_int_t)choice) {
            strcat(all, json_text_at(event, "content"));
        }
        json_decref(event);
    }
    return all;
}

static char *text_of(const http_answer *a, const kind *k, unsigned choice, bool is_stream)
{
    if (is_stream) {
        return join_choice(a, choice);
    }
    const json_t *its = k->n_choices == 1 ? a->json : json_array_get(a->json, choice);
    return strdup(json_text_at(its, "content"));
}

static void compare(client *c, const kind *k, bool is_stream, http_answer *a)
{
    for (unsigned i = 0; i < k->n_choices && c->wrong[0] == '\0'; i++) {
        char *text = a->status == 200 ? text_of(a, k, i, is_stream) : NULL;
        if (text == NULL || strcmp(text, k->text[i]) != 0) {
            snprintf(c->wrong, sizeof c->wrong,
                     "%d, choice %u of %u: '%.150s', not '%.150s': %.150s", a->status, i, k->seed,
                     text != NULL ? text : "", k->text[i], a->body);
        }
        free(text);
    }
    c->n_right++;
    http_forget(a);
}

/* More than fits is refused, with figures. */
static void ask_too_much(client *c, const kind *k)
{
    char *body = body_of(k, N_CONTEXT + 1 + random_below(&c->random, 100), false);
    http_answer a = http_ask(c->its, "POST", "/completion", key_of(c), body);
    if (a.status != 400 ||
        strcmp(json_text_at(a.json, "error.type"), "exceed_context_size_error") != 0 ||
        json_number_at(a.json, "error.n_ctx") != N_CONTEXT) {
        snprintf(c->wrong, sizeof c->wrong, "%d for too long a prompt: %.300s", a.status, a.body);
    }
    c->n_refused++;
    free(body);
    http_forget(&a);
}

/* Ask, read a little or nothing, and be gone. */
static void ask_and_go(client *c, const kind *k)
{
    char *body = body_of(k, k->n_prompt, true), head[256], part[64];
    const size_t n_body = strlen(body);
    const int n = snprintf(head, sizeof head,
                           "POST /completion HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n",
                           key_of(c), n_body);
    const int socket_ = http_connect(c->its);
    http_send(socket_, head, (size_t)n);
    http_send(socket_, body, random_below(&c->random, 4) == 0 ? n_body / 2 : n_body);
    if (random_below(&c->random, 2) == 0) {
        const struct timespec moment = {.tv_nsec = (long)random_below(&c->random, 20) * 1000000};
        nanosleep(&moment, NULL);
        (void)!recv(socket_, part, sizeof part, MSG_DONTWAIT);
    }
    close(socket_);
    c->n_gone++;
    free(body);
}

static void *run_client(void *argument)
{
    client *c = argument;
    c->random = random_mix(first_seed, c->number);
    for (unsigned i = 0; i < n_requests && c->wrong[0] == '\0'; i++) {
        const kind *k = &kinds[random_below(&c->random, N_KINDS)];
        const unsigned what = random_below(&c->random, 20);
        if (what == 0) {
            ask_too_much(c, k);
        } else if (what <= 3) {
            ask_and_go(c, k);
        } else {
            const bool is_stream = what % 2 == 0;
            char *body = body_of(k, k->n_prompt, is_stream);
            http_answer a = http_ask(c->its, "POST", "/completion", key_of(c), body);
            free(body);
            compare(c, k, is_stream, &a);
        }
    }
    return NULL;
}

/* ---- limits --------------------------------------------------------------------------------- */

/* Looks at the server again and again, beside the clients. */
typedef struct watcher {
    const served *its;
    const served_options *options;
    atomic_bool is_over;
    uint64_t first_kib, most_kib, n_looks;
    char wrong[256];
} watcher;

static uint64_t resident_kib(void)
{
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            kib = strtoull(line + 6, NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

static void look_at_limits(watcher *w)
{
    const scheduler_counters c = scheduler_count(w->its->server.scheduler);
    const uint64_t kib = resident_kib();
    w->most_kib = kib > w->most_kib ? kib : w->most_kib;
    if (c.bytes > c.budget_bytes && c.budget_bytes > 0) {
        snprintf(w->wrong, sizeof w->wrong, "%llu bytes of %llu", (unsigned long long)c.bytes,
                 (unsigned long long)c.budget_bytes);
    }
    if (c.n_used > c.n_cells || c.n_cells != w->options->n_cells) {
        snprintf(w->wrong, sizeof w->wrong, "%u cells of %u", c.n_used, c.n_cells);
    }
    if (c.library.ram_bytes > w->options->reuse.ram_bytes ||
        c.library.disk_bytes > w->options->reuse.disk_bytes) {
        snprintf(w->wrong, sizeof w->wrong, "%llu bytes in RAM, %llu on disk",
                 (unsigned long long)c.library.ram_bytes, (unsigned long long)c.library.disk_bytes);
    }
    w->n_looks++;
}

static void *run_watcher(void *argument)
{
    watcher *w = argument;
    const struct timespec moment = {.tv_nsec = 10000000};
    while (!atomic_load(&w->is_over) && w->wrong[0] == '\0') {
        look_at_limits(w);
        nanosleep(&moment, NULL);
    }
    return NULL;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* On the engine's thread: which cells are held, and by whom. */
typedef struct tally {
    const served *its;
    uint64_t numbers[8192]; /* of retained entries */
    size_t n;
    unsigned n_running;
    uint32_t n_used, n_after;
    uint64_t n_most; /* cells, if no two entries shared any */
} tally;

static bool count_entry(void *context, const cellar_entry *entry, const reuse_note *note)
{
    tally *t = context;
    (void)note;
    t->n_running += entry->is_running;
    t->n_most += entry->seq >= 0 ? entry->n_tokens : 0;
    assert_true(t->n < sizeof t->numbers / sizeof t->numbers[0]);
    t->numbers[t->n++] = entry->entry;
    return true;
}

static uint32_t count_used(const served *its)
{
    cellar_statistics memory;
    assert_int_equal(cellar_stats(engine_memory(its->engine), &memory, NULL), CELLAR_OK);
    return memory.n_used;
}

static void take_tally(void *context)
{
    tally *t = context;
    reuse *r = scheduler_reuse(t->its->server.scheduler);
    cellar_error error;
    if (cellar_check(engine_memory(t->its->engine), &error) != CELLAR_OK ||
        reuse_check(r, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    reuse_visit(r, count_entry, t);
    t->n_used = count_used(t->its);
    for (size_t i = 0; i < t->n; i++) {
        assert_int_equal(reuse_forget(r, t->numbers[i], NULL), CELLAR_OK);
    }
    t->n_after = count_used(t->its);
}

static void wait_until_idle(const served *its)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    for (int i = 0; i < 12000 && scheduler_load(its->server.scheduler) > 0; i++) {
        nanosleep(&moment, NULL);
    }
    assert_int_equal(scheduler_load(its->server.scheduler), 0);
}

/* ---- the test ------------------------------------------------------------------------------- */

static bool is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#else
    return false;
#endif
#else
    return false;
#endif
}

static void check_counters(const served *its, const client *clients)
{
    unsigned n_right = 0, n_gone = 0, n_refused = 0;
    for (unsigned i = 0; i < n_clients; i++) {
        n_right += clients[i].n_right;
        n_gone += clients[i].n_gone;
        n_refused += clients[i].n_refused;
    }
    const scheduler_counters c = scheduler_count(its->server.scheduler);
    print_message("%u answers right, %u clients gone, %u refused; %llu cancelled, %llu set aside, "
                  "%llu prompt tokens read, %llu reused, %llu to RAM, %llu to disk\n",
                  n_right, n_gone, n_refused, (unsigned long long)c.n_cancelled,
                  (unsigned long long)c.n_set_aside, (unsigned long long)c.n_prompt,
                  (unsigned long long)c.n_reused, (unsigned long long)c.library.n_to_ram,
                  (unsigned long long)c.library.n_to_disk);
    assert_int_equal(n_right + n_gone + n_refused, n_clients * n_requests);
    assert_int_equal(c.n_failed, 0);
    assert_int_equal(c.library.n_damaged, 0);
    assert_true(c.n_reused > 0 && c.n_set_aside > 0 && c.n_cancelled > 0);
}

static void check_end(const served *its)
{
    tally *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->its = its;
    assert_true(scheduler_run(its->server.scheduler, take_tally, t));
    assert_int_equal(t->n_running, 0);
    assert_true(t->n_used <= t->n_most);
    assert_int_equal(t->n_after, 0); /* what is retained was all that held cells */
    free(t);
}

static void a_mixed_load_is_answered_as_if_each_were_alone(void **state)
{
    (void)state;
    served its;
    served_options options = served_defaults();
    options.n_cells = N_CELLS;
    options.n_slots = n_clients;
    options.n_queue = 4 * n_clients;
    options.n_connections = 4 * n_clients;
    options.has_keys = true;
    options.reuse.ram_bytes = 1 << 20;
    options.reuse.folder = folder_name;
    options.reuse.disk_bytes = 4 << 20;
    served_start(&its, &options);
    make_kinds(&its);
    client *clients = calloc(n_clients, sizeof *clients);
    pthread_t *running = calloc(n_clients, sizeof *running), watching;
    assert_true(clients != NULL && running != NULL);
    watcher w = {.its = &its, .options = &options, .first_kib = resident_kib()};
    assert_int_equal(pthread_create(&watching, NULL, run_watcher, &w), 0);
    for (unsigned i = 0; i < n_clients; i++) {
        clients[i] = (client){.its = &its, .number = i};
        assert_int_equal(pthread_create(&running[i], NULL, run_client, &clients[i]), 0);
    }
    for (unsigned i = 0; i < n_clients; i++) {
        pthread_join(running[i], NULL);
    }
    atomic_store(&w.is_over, true);
    pthread_join(watching, NULL);
    wait_until_idle(&its);
    for (unsigned i = 0; i < n_clients; i++) {
        assert_string_equal(clients[i].wrong, "");
    }
    assert_string_equal(w.wrong, "");
    assert_true(w.n_looks > 0);
    print_message("resident: %llu KiB before, %llu at most\n", (unsigned long long)w.first_kib,
                  (unsigned long long)w.most_kib);
    /* The stores, and what connections, requests and the clients of this test need. */
    assert_true(is_sanitized() ||
                w.most_kib <= w.first_kib + (options.reuse.ram_bytes >> 10) + (24 << 10));
    check_counters(&its, clients);
    check_end(&its);
    forget_kinds();
    free(clients);
    free(running);
    served_stop(&its);
}

static void read_arguments(int n, char **arguments)
{
    for (int i = 1; i + 1 < n; i += 2) {
        const unsigned value = (unsigned)strtoul(arguments[i + 1], NULL, 10);
        if (strcmp(arguments[i], "--clients") == 0) {
            n_clients = value;
        } else if (strcmp(arguments[i], "--requests") == 0) {
            n_requests = value;
        } else if (strcmp(arguments[i], "--seed") == 0) {
            first_seed = value;
        }
    }
}

int main(int n, char **arguments)
{
    read_arguments(n, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_mixed_load_is_answered_as_if_each_were_alone,
                                        folder_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
