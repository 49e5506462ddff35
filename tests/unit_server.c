/*
 * unit_server.c: connections and those at their other ends: many, slow, rude, gone, without a key.
 *
 * What is asked here hardly matters; that everybody else is answered all the same does, and that each gets
 * what it would get alone. The endpoints themselves are in unit_api.c.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "support_http.h"

/* ---- connections ---------------------------------------------------------------------------- */

static void a_connection_serves_again_and_again(void **state)
{
    served *its = *state;
    const int socket_ = http_connect(its);
    for (int i = 0; i < 20; i++) {
        static const char ask[] = "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 21\r\n\r\n"
                                  "{\"content\":\"a story\"}";
        http_send(socket_, ask, sizeof ask - 1);
        http_answer a = http_receive(socket_);
        assert_int_equal(a.status, 200);
        http_forget(&a);
    }
    close(socket_);
}

static void pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void a_client_that_goes_away_is_not_served(void **state)
{
    served *its = *state;
    const uint64_t before = scheduler_count(its->server.scheduler).n_cancelled;
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        char text[512], body[256];
        snprintf(body, sizeof body,
                 "{\"prompt\":\"Once\",\"n_predict\":100000,\"ignore_eos\":true,\"stream\":%s}",
                 is_stream ? "true" : "false");
        snprintf(text, sizeof text,
                 "POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
                 strlen(body), body);
        /* the context would be full soon: the client goes at once */
        const int socket_ = http_connect(its);
        http_send(socket_, text, strlen(text));
        pause_ms(5);
        close(socket_);
    }
    for (int i = 0; i < 6000 && scheduler_load(its->server.scheduler) > 0; i++) {
        pause_ms(10);
    }
    assert_int_equal(scheduler_load(its->server.scheduler), 0);
    assert_true(scheduler_count(its->server.scheduler).n_cancelled >= before);
}

static void a_body_that_is_too_large_is_refused(void **state)
{
    served *its = *state;
    char *body = malloc((1 << 20) + 100);
    memset(body, ' ', (1 << 20) + 99);
    body[(1 << 20) + 99] = '\0';
    http_answer a = http_ask(its, "POST", "/completion", NULL, body);
    assert_true(a.status == 413 || a.status == 0); /* it may not wait for the end of it */
    http_forget(&a);
    /* without a length, in chunks */
    const int socket_ = http_connect(its);
    static const char head[] =
        "POST /completion HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    http_send(socket_, head, sizeof head - 1);
    for (int i = 0; i < 18; i++) {
        http_send(socket_, "10000\r\n", 7);
        http_send(socket_, body, 0x10000);
        http_send(socket_, "\r\n", 2);
    }
    http_send(socket_, "0\r\n\r\n", 5);
    a = http_receive(socket_);
    assert_int_equal(a.status, 413);
    http_forget(&a);
    close(socket_);
    free(body);
    a = http_ask(its, "GET", "/health", NULL, NULL);
    assert_int_equal(a.status, 200);
    http_forget(&a);
}

static void what_is_no_http_harms_nobody(void **state)
{
    served *its = *state;
    static const char *const said[] = {"\r\n\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\x00",
                                       "POST /completion HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                                       "GET /health HTTP/9.9\r\n\r\n"};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        const int socket_ = http_connect(its);
        http_send(socket_, said[i], strlen(said[i]));
        pause_ms(2);
        close(socket_);
    }
    char *line = malloc(100000);
    memset(line, 'a', 99999);
    line[99999] = '\0';
    http_answer a = http_ask(its, "GET", "/", line, NULL); /* a header far too long */
    assert_true(a.status >= 400 || a.status == 0);
    http_forget(&a);
    free(line);
    a = http_ask(its, "GET", "/health", NULL, NULL);
    assert_int_equal(a.status, 200);
    http_forget(&a);
}

/* Nesting far beyond what anybody needs: in what is known, in what is not, in what a template sees. */
static void deep_bodies_harm_nobody(void **state)
{
    served *its = *state;
    static const char *const around[] = {
        "{\"prompt\":%s}", "{\"prompt\":\"a\",\"n_predict\":1,\"x\":%s}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"x\":%s}]}"};
    static const char *const paths[] = {"/completion", "/completion", "/apply-template"};
    for (size_t depth = 1000; depth <= 100000; depth *= 10) {
        char *deep = malloc(2 * depth + 1), *body = malloc(2 * depth + 200);
        memset(deep, '[', depth);
        memset(deep + depth, ']', depth);
        deep[2 * depth] = '\0';
        for (size_t i = 0; i < 3; i++) {
            const char *hole = strstr(around[i], "%s");
            snprintf(body, 2 * depth + 200, "%.*s%s%s", (int)(hole - around[i]), around[i], deep,
                     hole + 2);
            http_answer a = http_ask(its, "POST", paths[i], NULL, body);
            assert_true(a.status == 200 || a.status == 400);
            assert_true(a.status == 400 || i > 0);
            http_forget(&a);
        }
        free(deep);
        free(body);
    }
}

/* ---- servers of their own ------------------------------------------------------------------- */

static void slow_clients_do_not_stop_others(void **state)
{
    (void)state;
    served its;
    served_options options = served_defaults();
    options.request_seconds = 1;
    options.n_connections = 16;
    served_start(&its, &options);
    int slow[10];
    for (int i = 0; i < 10; i++) {
        slow[i] = http_connect(&its);
        http_send(slow[i], "POST /completion HTTP/1.1\r\nHo", 29);
    }
    for (int round = 0; round < 6; round++) {
        http_answer a = http_ask(&its, "GET", "/health", NULL, NULL);
        assert_int_equal(a.status, 200);
        http_forget(&a);
        for (int i = 0; i < 10; i++) {
            http_send(slow[i], "s", 1);
        }
        pause_ms(300);
    }
    /* they had a second to say it */
    for (int i = 0; i < 10; i++) {
        char byte;
        assert_true(recv(slow[i], &byte, 1, 0) <= 0);
        close(slow[i]);
    }
    served_stop(&its);
}

static void keys_are_asked_for(void **state)
{
    (void)state;
    served its;
    served_options options = served_defaults();
    options.has_keys = true;
    served_start(&its, &options);
    static const char ask[] = "{\"prompt\":\"Once upon a time there was a princess\","
                              "\"n_predict\":3,\"temperature\":0}";
    static const struct {
        const char *header;
        int status;
    } tries[] = {{NULL, 401},
                 {"Authorization: Bearer \r\n", 401},
                 {"Authorization: Bearer firs\r\n", 401},
                 {"Authorization: Bearer firstt\r\n", 401},
                 {"Authorization: Basic first\r\n", 401},
                 {"X-Api-Key: third\r\n", 401},
                 {"X-Api-Key: second\r\n", 200},
                 {"Authorization: Bearer first\r\n", 200}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        http_answer a = http_ask(&its, "POST", "/completion", tries[i].header, ask);
        assert_int_equal(a.status, tries[i].status);
        if (a.status == 401) {
            assert_string_equal(json_text_at(a.json, "error.type"), "authentication_error");
        } else { /* nobody has read it for this key */
            assert_int_equal(json_number_at(a.json, "cellar.reusable"), 0);
        }
        http_forget(&a);
    }
    http_answer a = http_ask(&its, "POST", "/completion", "X-Api-Key: second\r\n", ask);
    assert_true(json_number_at(a.json, "cellar.reused") > 5);
    http_forget(&a);
    a = http_ask(&its, "GET", "/health", NULL, NULL);
    assert_int_equal(a.status, 200);
    http_forget(&a);
    a = http_ask(&its, "GET", "/v1/models", NULL, NULL);
    assert_int_equal(a.status, 401);
    http_forget(&a);
    served_stop(&its);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void a_slot_can_be_saved_and_restored(void **state)
{
    (void)state;
    char folder[] = "/tmp/cellar-slots-XXXXXX", path[128];
    assert_non_null(mkdtemp(folder));
    served its;
    served_options options = served_defaults();
    options.slot_folder = folder;
    served_start(&its, &options);
    static const char ask[] = "{\"prompt\":\"Once upon a time there was a princess\","
                              "\"n_predict\":8,\"temperature\":0,\"id_slot\":2}";
    http_answer first = http_ask(&its, "POST", "/completion", NULL, ask);
    http_answer a = http_ask(&its, "POST", "/slots/2?action=save", NULL, "{\"filename\":\"a\"}");
    assert_int_equal(a.status, 200);
    assert_true(json_number_at(a.json, "n_saved") > 8);
    assert_true(json_number_at(a.json, "n_written") > 1000);
    http_forget(&a);
    a = http_ask(&its, "POST", "/slots/2?action=erase", NULL, NULL);
    assert_true(json_number_at(a.json, "n_erased") > 8);
    http_forget(&a);
    a = http_ask(&its, "POST", "/completion", NULL, ask);
    assert_int_equal(json_number_at(a.json, "timings.cache_n"), 0); /* it is gone */
    http_forget(&a);
    a = http_ask(&its, "POST", "/slots/2?action=erase", NULL, NULL);
    http_forget(&a);
    /* what is no slot of ours is refused, and nothing changes */
    snprintf(path, sizeof path, "%s/noise", folder);
    write_text(path, "this is not a session");
    snprintf(path, sizeof path, "%s/link", folder);
    assert_int_equal(symlink("a", path), 0);
    static const char *const wrong[] = {"noise", "link", "../a", "none", ".hidden", "", "a/b"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char body[64];
        snprintf(body, sizeof body, "{\"filename\":\"%s\"}", wrong[i]);
        a = http_ask(&its, "POST", "/slots/1?action=restore", NULL, body);
        assert_int_equal(a.status, 400);
        http_forget(&a);
    }
    a = http_ask(&its, "POST", "/slots/1?action=save", NULL, "{\"filename\":\"link\"}");
    assert_int_equal(a.status, 400);
    http_forget(&a);
    a = http_ask(&its, "POST", "/slots/1?action=restore", NULL, "{\"filename\":\"a\"}");
    assert_int_equal(a.status, 200);
    http_forget(&a);
    a = http_ask(&its, "POST", "/completion", NULL, ask);
    assert_true(json_number_at(a.json, "timings.cache_n") > 5);
    assert_string_equal(json_text_at(a.json, "content"), json_text_at(first.json, "content"));
    http_forget(&a);
    http_forget(&first);
    served_stop(&its);
    static const char *const made[] = {"a", "noise", "link"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0); /* nothing else was left there */
}

/* Ask for a princess, and say where her beginning came from. */
static http_answer ask_of_princess(const served *its, int n_predict)
{
    char body[256];
    snprintf(body, sizeof body,
             "{\"prompt\":\"Once upon a time there was a princess who lived in a castle\","
             "\"n_predict\":%d,\"temperature\":0,\"ignore_eos\":true}",
             n_predict);
    const http_answer a = http_ask(its, "POST", "/completion", NULL, body);
    assert_int_equal(a.status, 200);
    return a;
}

static void remove_folder(const char *folder)
{
    DIR *list = opendir(folder);
    char path[512];
    for (struct dirent *its = readdir(list); its != NULL; its = readdir(list)) {
        snprintf(path, sizeof path, "%s/%s", folder, its->d_name);
        unlink(path);
    }
    closedir(list);
    assert_int_equal(rmdir(folder), 0);
}

static void what_leaves_the_cells_comes_back(void **state)
{
    (void)state;
    served its;
    served_options options = served_defaults();
    options.n_cells = 128;
    options.reuse.ram_bytes = 1 << 24;
    served_start(&its, &options);
    http_answer first = ask_of_princess(&its, 20);
    /* others need the cells */
    for (int i = 0; i < 4; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\":[1,%d,%d],\"n_predict\":90,\"ignore_eos\":true}",
                 300 + i, 400 + i);
        http_answer a = http_ask(&its, "POST", "/completion", NULL, body);
        assert_int_equal(a.status, 200);
        http_forget(&a);
    }
    assert_true(scheduler_count(its.server.scheduler).library.n_to_ram > 0);
    http_answer again = ask_of_princess(&its, 20);
    assert_string_equal(json_text_at(again.json, "cellar.source"), "ram");
    assert_string_equal(json_text_at(again.json, "cellar.reason"), "whole");
    assert_int_equal(json_number_at(again.json, "timings.prompt_n"), 1);
    assert_string_equal(json_text_at(again.json, "content"), json_text_at(first.json, "content"));
    http_forget(&first);
    http_forget(&again);
    served_stop(&its);
}

static void a_restart_finds_what_was_read(void **state)
{
    (void)state;
    char folder[] = "/tmp/cellar-cache-XXXXXX";
    assert_non_null(mkdtemp(folder));
    served its;
    served_options options = served_defaults();
    options.reuse.folder = folder;
    options.reuse.disk_bytes = 1 << 24;
    options.has_keys = false;
    served_start(&its, &options);
    http_answer first = ask_of_princess(&its, 20);
    served_stop(&its);
    served_start(&its, &options);
    http_answer again = ask_of_princess(&its, 20);
    assert_string_equal(json_text_at(again.json, "cellar.source"), "disk");
    assert_int_equal(json_number_at(again.json, "timings.prompt_n"), 1);
    assert_string_equal(json_text_at(again.json, "content"), json_text_at(first.json, "content"));
    http_forget(&again);
    served_stop(&its);
    /* somebody else does not find it */
    options.has_keys = true;
    served_start(&its, &options);
    again = http_ask(&its, "POST", "/completion", "X-Api-Key: first\r\n",
                     "{\"prompt\":\"Once upon a time there was a princess\",\"n_predict\":1}");
    assert_int_equal(again.status, 200);
    assert_int_equal(json_number_at(again.json, "timings.cache_n"), 0);
    assert_int_equal(json_number_at(again.json, "cellar.reusable"), 0);
    http_forget(&again);
    http_forget(&first);
    served_stop(&its);
    remove_folder(folder);
}

/* ---- many at once --------------------------------------------------------------------------- */

typedef struct client {
    const served *its;
    int number;
    bool is_wrong;
} client;

static const char *const subjects[] = {"dog", "cat", "fish", "bird"};

static void ask_for(char *body, size_t size, int k, bool is_stream)
{
    snprintf(body, size,
             "{\"prompt\":\"Once upon a time there was a %s\",\"n_predict\":%d,"
             "\"temperature\":%d,\"seed\":%d,\"stream\":%s}",
             subjects[k % 4], 10 + k % 3 * 10, k % 2, k, is_stream ? "true" : "false");
}

static char *wanted_texts[12];

static void *run_client(void *argument)
{
    client *c = argument;
    for (int i = 0; i < 12; i++) {
        const int k = (c->number + i) % 12;
        char body[256];
        size_t n;
        ask_for(body, sizeof body, k, i % 2 == 0);
        http_answer a = http_ask(c->its, "POST", "/completion", NULL, body);
        char *text = i % 2 == 0 ? http_join(&a, "content", &n)
                                : strdup(json_text_at(a.json, "content"));
        c->is_wrong = c->is_wrong || a.status != 200 || strcmp(text, wanted_texts[k]) != 0;
        free(text);
        http_forget(&a);
    }
    return NULL;
}

static void many_clients_get_what_each_would_alone(void **state)
{
    (void)state;
    served its;
    served_options options = served_defaults();
    served_start(&its, &options);
    for (int k = 0; k < 12; k++) {
        char body[256];
        ask_for(body, sizeof body, k, false);
        http_answer a = http_ask(&its, "POST", "/completion", NULL, body);
        wanted_texts[k] = strdup(json_text_at(a.json, "content"));
        http_forget(&a);
    }
    served_stop(&its);
    options.n_cells = 160; /* a part of what they want together */
    options.n_slots = 6;
    served_start(&its, &options);
    client clients[12];
    pthread_t running[12];
    for (int i = 0; i < 12; i++) {
        clients[i] = (client){.its = &its, .number = i};
        assert_int_equal(pthread_create(&running[i], NULL, run_client, &clients[i]), 0);
    }
    for (int i = 0; i < 12; i++) {
        pthread_join(running[i], NULL);
        assert_false(clients[i].is_wrong);
    }
    for (int k = 0; k < 12; k++) {
        free(wanted_texts[k]);
    }
    const scheduler_counters counters = scheduler_count(its.server.scheduler);
    assert_int_equal(counters.n_failed, 0);
    served_stop(&its);
}

/* ---- all -------------------------------------------------------------------------------------- */

static served common;

static int start_common(void **state)
{
    served_options options = served_defaults();
    served_start(&common, &options);
    *state = &common;
    return 0;
}

static int stop_common(void **state)
{
    (void)state;
    served_stop(&common);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_serves_again_and_again),
        cmocka_unit_test(a_client_that_goes_away_is_not_served),
        cmocka_unit_test(a_body_that_is_too_large_is_refused),
        cmocka_unit_test(what_is_no_http_harms_nobody),
        cmocka_unit_test(deep_bodies_harm_nobody),
        cmocka_unit_test(slow_clients_do_not_stop_others),
        cmocka_unit_test(keys_are_asked_for),
        cmocka_unit_test(a_slot_can_be_saved_and_restored),
        cmocka_unit_test(what_leaves_the_cells_comes_back),
        cmocka_unit_test(a_restart_finds_what_was_read),
        cmocka_unit_test(many_clients_get_what_each_would_alone),
    };
    return cmocka_run_group_tests(tests, start_common, stop_common);
}
