/*
 * unit_serve_reuse.c: what a request over HTTP can take over from others, counted in tokens.
 *
 * Two of the scenarios that the memory is built after, as a client meets them: the best entry wins wherever it lies (S22), and
 * what belongs to the key of an entry (S24). Then one system prompt and sixteen clients, which is to be computed once and
 * stored once, and where the messages of a conversation begin. Figures follow from the lengths of the prompts alone.
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

#include "model/random.h"
#include "serve/conversation_request.h"
#include "support_http.h"

#define MOST_BODY 8192

/* ---- prompts -------------------------------------------------------------------------------- */

/* Of the stream of tokens that a seed stands for, those from..to-1 are written behind what is there. */
static void add_tokens(char *body, unsigned seed, unsigned from, unsigned to)
{
    uint64_t random = random_mix(seed, 3);
    size_t n = strlen(body);
    for (unsigned i = 0; i < to; i++) {
        const unsigned token = 260 + random_below(&random, 1000);
        if (i >= from) {
            n += (size_t)snprintf(body + n, MOST_BODY - n, "%s%u", body[n - 1] == '[' ? "" : ",",
                                  token);
        }
    }
    assert_true(n < MOST_BODY - 128);
}

/* Ask for one token behind a prompt; `more` are other members, with a comma before each. */
static http_answer ask(const served *its, const char *key, char *body, const char *more)
{
    const size_t n = strlen(body);
    snprintf(body + n, MOST_BODY - n, "],\"n_predict\":1,\"temperature\":0%s}", more);
    return http_ask(its, "POST", "/completion", key, body);
}

static void expect(http_answer *a, json_int_t cached, json_int_t evaluated)
{
    if (a->status != 200 || json_number_at(a->json, "timings.cache_n") != cached ||
        json_number_at(a->json, "timings.prompt_n") != evaluated) {
        fail_msg("not %d cached and %d read: %s", (int)cached, (int)evaluated, a->body);
    }
    http_forget(a);
}

/* ---- S22 ------------------------------------------------------------------------------------ */

enum { P = 1, Q, ELSE, X_END, Y_END };

static void is_in_ram(const served *its, json_int_t n_tokens)
{
    http_answer a = http_ask(its, "GET", "/cache", NULL, NULL);
    const json_t *entries = json_object_get(a.json, "entries"), *entry;
    bool is_there = false;
    size_t i;
    json_array_foreach(entries, i, entry) {
        is_there = is_there || (json_number_at(entry, "tokens") == n_tokens &&
                                strcmp(json_text_at(entry, "tier"), "ram") == 0);
    }
    if (!is_there) {
        fail_msg("no entry of %d tokens in RAM: %s", (int)n_tokens, a.body);
    }
    http_forget(&a);
}

/* `more` says which slot X has to have. */
static void play_best_prefix(const char *more)
{
    served its;
    served_options options = served_defaults();
    options.n_cells = 640;
    options.n_slots = 2;
    options.reuse.ram_bytes = 1 << 24;
    served_start(&its, &options);
    char e[MOST_BODY] = "{\"prompt\":[", other[MOST_BODY] = "{\"prompt\":[",
         p[MOST_BODY] = "{\"prompt\":[", x[MOST_BODY] = "{\"prompt\":[",
         y[MOST_BODY] = "{\"prompt\":[", again[MOST_BODY] = "{\"prompt\":[";
    /* E = P + Q, and then so much else that it leaves the cells; P is in slot 0 */
    add_tokens(e, P, 0, 100);
    add_tokens(e, Q, 0, 400);
    http_answer a = ask(&its, NULL, e, ",\"id_slot\":1");
    expect(&a, 0, 500);
    add_tokens(other, ELSE, 0, 500);
    a = ask(&its, NULL, other, ",\"id_slot\":1");
    expect(&a, 0, 500);
    add_tokens(p, P, 0, 100);
    a = ask(&its, NULL, p, ",\"id_slot\":0");
    expect(&a, 99, 1);
    is_in_ram(&its, 500);
    /* X and Y begin like E for 480 tokens, and like what is in slot 0 for 100 */
    add_tokens(x, P, 0, 100);
    add_tokens(x, Q, 0, 380);
    add_tokens(x, X_END, 0, 40);
    a = ask(&its, NULL, x, more);
    expect(&a, 480, 40);
    add_tokens(y, P, 0, 100);
    add_tokens(y, Q, 0, 380);
    add_tokens(y, Y_END, 0, 7);
    a = ask(&its, NULL, y, "");
    expect(&a, 480, 7);
    add_tokens(again, P, 0, 100);
    a = ask(&its, NULL, again, "");
    expect(&a, 99, 1);
    served_stop(&its);
}

static void the_best_prefix_wins_whichever_slot(void **state)
{
    (void)state;
    play_best_prefix("");
    play_best_prefix(",\"id_slot\":1");
    play_best_prefix(",\"id_slot\":0");
}

/* ---- S24 ------------------------------------------------------------------------------------ */

static void ask_for_64(const served *its, const char *key, const char *more, json_int_t cached)
{
    char body[MOST_BODY] = "{\"prompt\":[";
    add_tokens(body, P, 0, 64);
    http_answer a = ask(its, key, body, more);
    expect(&a, cached, 64 - cached);
}

static void owners_and_salts_belong_to_the_key(void **state)
{
    (void)state;
    static const char first[] = "X-Api-Key: first\r\n", second[] = "X-Api-Key: second\r\n";
    served its;
    served_options options = served_defaults();
    options.has_keys = true;
    options.format = "chatml";
    served_start(&its, &options);
    ask_for_64(&its, first, "", 0);
    ask_for_64(&its, second, "", 0);
    ask_for_64(&its, first, ",\"cache_salt\":\"second\"", 0); /* a salt named like a key */
    ask_for_64(&its, second, ",\"cache_salt\":\"first\"", 0);
    ask_for_64(&its, second, ",\"cache_salt\":\"second\"", 0);
    ask_for_64(&its, first, ",\"cache_salt\":\"\"", 63); /* an empty salt is none */
    /* an adapter would belong to it: there is none, so none may be asked for */
    char body[MOST_BODY] = "{\"prompt\":[";
    add_tokens(body, P, 0, 64);
    http_answer a = ask(&its, first, body, ",\"lora\":[{\"id\":0,\"scale\":1.0}]");
    assert_int_equal(a.status, 400);
    assert_string_equal(json_text_at(a.json, "error.param"), "lora");
    http_forget(&a);
    /* so would a picture: it is no text, and refused */
    a = http_ask(&its, "POST", "/v1/chat/completions", first,
                 "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}");
    assert_int_equal(a.status, 400);
    http_forget(&a);
    /* everything the same: all but the last */
    ask_for_64(&its, first, "", 63);
    ask_for_64(&its, second, "", 63);
    ask_for_64(&its, first, ",\"cache_salt\":\"second\"", 63);
    served_stop(&its);
}

/* ---- one system prompt ---------------------------------------------------------------------- */

#define N_CLIENTS 16u
#define N_SYSTEM 400u
#define N_OWN 12u
#define N_WRITTEN 8u

typedef struct client {
    pthread_t thread;
    const served *its;
    unsigned number;
    http_answer answer;
} client;

static void *run_client(void *argument)
{
    client *c = argument;
    char body[MOST_BODY] = "{\"prompt\":[", more[64];
    add_tokens(body, P, 0, N_SYSTEM);
    add_tokens(body, 100 + c->number, 0, N_OWN);
    snprintf(more, sizeof more, ",\"n_predict\":%u,\"ignore_eos\":true", N_WRITTEN);
    c->answer = ask(c->its, NULL, body, more);
    return NULL;
}

static void do_nothing(void *context)
{
    (void)context;
}

/* The counters once the round is over in which the last answer was given. */
static scheduler_counters count_all(const served *its)
{
    assert_true(scheduler_run(its->server.scheduler, do_nothing, NULL));
    return scheduler_count(its->server.scheduler);
}

/* What was computed, and what is held, is what they have in common once, and what is their own. */
static void sixteen_clients_read_and_store_a_system_prompt_once(void **state)
{
    (void)state;
    served its;
    served_options options = served_defaults();
    options.n_slots = N_CLIENTS;
    options.n_cells = 2048; /* nothing has to leave */
    served_start(&its, &options);
    client clients[N_CLIENTS];
    for (unsigned i = 0; i < N_CLIENTS; i++) {
        clients[i] = (client){.its = &its, .number = i};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
    }
    for (unsigned i = 0; i < N_CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        assert_int_equal(clients[i].answer.status, 200);
        assert_int_equal(json_number_at(clients[i].answer.json, "tokens_predicted"), N_WRITTEN);
        http_forget(&clients[i].answer);
    }
    const scheduler_counters c = count_all(&its);
    assert_int_equal(c.n_prompt, N_SYSTEM + N_CLIENTS * N_OWN);
    assert_int_equal(c.n_reused, (N_CLIENTS - 1) * N_SYSTEM);
    /* the last token that was written is not read by anyone */
    assert_int_equal(c.n_used, N_SYSTEM + N_CLIENTS * (N_OWN + N_WRITTEN - 1));
    /* And for one who comes later with nothing of his own, one token is computed before the first is written. */
    const uint64_t n_steps = c.n_steps;
    char body[MOST_BODY] = "{\"prompt\":[";
    add_tokens(body, P, 0, N_SYSTEM);
    http_answer a = ask(&its, NULL, body, "");
    expect(&a, N_SYSTEM - 1, 1);
    assert_int_equal(count_all(&its).n_steps, n_steps + 1);
    served_stop(&its);
}

/* ---- where messages begin ------------------------------------------------------------------- */

static void messages_begin_where_the_template_begins_them(void **state)
{
    (void)state;
    static const char *const texts[] = {"Be brief.", "Who is there?", "A dog.", "Which dog?"};
    served its;
    served_options options = served_defaults();
    options.format = "chatml";
    served_start(&its, &options);
    conversation_request talk = {.messages = json_array(), .asks = true};
    for (unsigned i = 0; i < 4; i++) {
        (void)!json_array_append_new(talk.messages, json_pack("{s:s, s:s}", "role",
                                                              i == 0       ? "system"
                                                              : i % 2 == 1 ? "user"
                                                                           : "assistant",
                                                              "content", texts[i]));
    }
    cellar_token *tokens;
    size_t n, places[4];
    bool ignored;
    assert_int_equal(conversation_request_tokens(&its.server, &talk, &tokens, &n, &ignored, NULL),
                     CELLAR_OK);
    assert_int_equal(conversation_request_boundaries(&its.server, &talk, tokens, n, places, 2), 2);
    assert_int_equal(conversation_request_boundaries(&its.server, &talk, tokens, n, places, 4), 3);
    for (unsigned i = 0; i < 3; i++) {
        json_t *rest = server_text_of(&its.server, tokens + places[i], n - places[i]);
        char wanted[64];
        snprintf(wanted, sizeof wanted, "%s\n%s", i % 2 == 0 ? "user" : "assistant", texts[3 - i]);
        const char *found = strstr(json_string_value(rest), wanted);
        assert_non_null(found);
        /* nothing but the mark of a beginning stands before it */
        assert_true(found - json_string_value(rest) <= (long)strlen("<|im_start|>") + 1);
        json_decref(rest);
    }
    free(tokens);
    conversation_request_free(&talk);
    served_stop(&its);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_prefix_wins_whichever_slot),
        cmocka_unit_test(owners_and_salts_belong_to_the_key),
        cmocka_unit_test(sixteen_clients_read_and_store_a_system_prompt_once),
        cmocka_unit_test(messages_begin_where_the_template_begins_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
