/*
 * support_http.c: a server in this process, and a client that reads what comes, for support_http.h.
 *
 * An answer is read until its length is reached, its last chunk came, or the connection ended; nothing
 * is assumed of where the system cuts the bytes.
 */
#define _POSIX_C_SOURCE 200809L

#include "support_http.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "builtin_model.h"
#include "template/chat_formats.h"

/* ---- the server ----------------------------------------------------------------------------- */

served_options served_defaults(void)
{
    return (served_options){.n_cells = 1024,
                            .n_ubatch = 64,
                            .n_slots = 4,
                            .n_queue = 64,
                            .max_body = 1 << 20,
                            .request_seconds = 30,
                            .n_connections = 64};
}

static void must(cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK) {
        fail_msg("%s", error->message);
    }
}

static void make_chat(served *its, const served_options *o)
{
    cellar_error error;
    must(chat_encoder_create(its->tokenizer, &its->encoder, &error), &error);
    if (o->format != NULL) {
        its->template_text = strdup(chat_format_find(o->format)->template_text);
        must(chat_template_compile(its->template_text, strlen(its->template_text), NULL,
                                   &its->compiled, &error),
             &error);
        must(chat_template_probe(its->compiled, NULL, NULL, &its->server.features, &error), &error);
    }
    must(chat_renderer_make(its->encoder, its->compiled, NULL, NULL, 1, &its->server.renderer,
                            &error),
         &error);
}

void served_start(served *its, const served_options *o)
{
    *its = (served){.file = NULL};
    cellar_error error;
    must(gguf_open_memory(builtin_model_begin, builtin_model_size(), &its->file, &error), &error);
    must(model_load(its->file, &its->model, &error), &error);
    must(tokenizer_create(its->file, &its->tokenizer, &error), &error);
    engine_options memory = engine_defaults();
    memory.n_cells = o->n_cells;
    memory.n_ubatch = o->n_ubatch;
    must(engine_create(its->model, &memory, &its->engine, &error), &error);
    make_chat(its, o);
    server *s = &its->server;
    s->engine = its->engine;
    s->tokenizer = its->tokenizer;
    s->encoder = its->encoder;
    s->template_text = its->template_text;
    s->model_name = "storyteller";
    s->sampling = sampler_defaults();
    s->seed = -1;
    s->n_predict = -1;
    s->n_slots = o->n_slots;
    s->n_context = o->n_cells;
    s->reuse = o->reuse;
    s->shows_slots = s->shows_metrics = true;
    s->slot_folder = o->slot_folder;
    must(server_start(s, 16, o->n_queue, &error), &error);
    its->keys[0] = strdup("first");
    its->keys[1] = strdup("second");
    const http_options door = {.host = "127.0.0.1",
                               .n_connections = o->n_connections,
                               .max_body = o->max_body,
                               .request_seconds = o->request_seconds,
                               .routes = server_routes,
                               .n_routes = n_server_routes,
                               .keys = its->keys,
                               .n_keys = o->has_keys ? 2 : 0,
                               .server = s};
    must(http_create(&door, &its->http, &error), &error);
    its->port = http_port(its->http);
}

static void check_memory(void *context)
{
    const served *its = context;
    cellar_error error;
    must(cellar_check(engine_memory(its->engine), &error), &error);
    must(reuse_check(scheduler_reuse(its->server.scheduler), &error), &error);
}

void served_stop(served *its)
{
    assert_true(scheduler_run(its->server.scheduler, check_memory, its));
    scheduler_stop(its->server.scheduler);
    http_destroy(its->http);
    server_stop(&its->server);
    engine_destroy(its->engine);
    chat_template_destroy(its->compiled);
    chat_encoder_destroy(its->encoder);
    tokenizer_destroy(its->tokenizer);
    model_free(its->model);
    gguf_close(its->file);
    free(its->template_text);
    free(its->keys[0]);
    free(its->keys[1]);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

int http_try_to_connect(const served *its)
{
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(its->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct timeval limit = {.tv_sec = 300};
    assert_true(s >= 0);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(s, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(s);
        return -1;
    }
    return s;
}

int http_connect(const served *its)
{
    const int s = http_try_to_connect(its);
    assert_true(s >= 0);
    return s;
}

void http_send(int socket_, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t sent = send(socket_, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) {
            return; /* the other side may have had enough; what it says is read next */
        }
        bytes += sent;
        n -= (size_t)sent;
    }
}

/* What has come so far. */
typedef struct received {
    char *bytes;
    size_t n, capacity;
} received;

/* Read more; false: the end. */
static bool read_more(int socket_, received *r)
{
    if (r->capacity - r->n < 4096) {
        r->capacity = 2 * r->capacity + 8192;
        r->bytes = realloc(r->bytes, r->capacity);
        assert_non_null(r->bytes);
    }
    ssize_t n;
    do {
        n = recv(socket_, r->bytes + r->n, r->capacity - r->n - 1, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        fail_msg("no answer within 300 seconds");
    }
    if (n <= 0) {
        return false;
    }
    r->n += (size_t)n;
    r->bytes[r->n] = '\0';
    return true;
}

static const char *header(const char *head, const char *name)
{
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':') {
            return line + strlen(name) + 1;
        }
    }
    return NULL;
}

/* Put the chunks from `at` on together; false: there are more to come. */
static bool join_chunks(const received *r, size_t at, http_answer *answer)
{
    answer->n_body = 0;
    for (;;) {
        char *end;
        const char *line_end = at < r->n ? strstr(r->bytes + at, "\r\n") : NULL;
        if (line_end == NULL) {
            return false;
        }
        const size_t n = strtoul(r->bytes + at, &end, 16);
        at = (size_t)(line_end - r->bytes) + 2;
        if (n > r->n - at || r->n - at - n < 2) {
            return false;
        }
        memcpy(answer->body + answer->n_body, r->bytes + at, n);
        answer->n_body += n;
        at += n + 2;
        if (n == 0) {
            return true;
        }
    }
}

/* Is the body whole? Then it is in the answer. */
static bool take_body(const received *r, size_t n_head, bool is_ended, http_answer *answer)
{
    const char *length = header(answer->head, "Content-Length");
    const char *coding = header(answer->head, "Transfer-Encoding");
    free(answer->body);
    answer->body = calloc(1, r->n + 1);
    assert_non_null(answer->body);
    if (coding != NULL) {
        return join_chunks(r, n_head, answer) || is_ended;
    }
    const size_t n = length != NULL ? strtoul(length, NULL, 10) : SIZE_MAX;
    answer->n_body = r->n - n_head < n ? r->n - n_head : n;
    memcpy(answer->body, r->bytes + n_head, answer->n_body);
    return answer->n_body == n || is_ended;
}

http_answer http_receive(int socket_)
{
    http_answer answer = {.status = 0};
    received r = {.bytes = NULL};
    bool is_whole = false;
    while (!is_whole) {
        const bool is_ended = !read_more(socket_, &r);
        const char *end = r.n > 0 ? strstr(r.bytes, "\r\n\r\n") : NULL;
        if (end != NULL) {
            const size_t n_head = (size_t)(end - r.bytes) + 4;
            free(answer.head);
            answer.head = strndup(r.bytes, n_head);
            answer.status = atoi(answer.head + 9);
            is_whole = take_body(&r, n_head, is_ended, &answer);
            if (is_whole && answer.status == 100) {
                memmove(r.bytes, r.bytes + n_head, r.n - n_head + 1);
                r.n -= n_head;
                is_whole = false;
            }
        }
        is_whole = is_whole || is_ended;
    }
    free(r.bytes);
    answer.json = answer.body != NULL ? json_loadb(answer.body, answer.n_body, 0, NULL) : NULL;
    return answer;
}

http_answer http_ask(const served *its, const char *method, const char *path, const char *headers,
                     const char *body)
{
    const size_t n_body = body != NULL ? strlen(body) : 0;
    const size_t room = strlen(path) + (headers != NULL ? strlen(headers) : 0) + n_body + 512;
    char *text = malloc(room);
    assert_non_null(text);
    const int n = snprintf(text, room,
                           "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                           "Content-Length: %zu\r\n%s\r\n%s",
                           method, path, n_body, headers != NULL ? headers : "",
                           body != NULL ? body : "");
    const int socket_ = http_connect(its);
    http_send(socket_, text, (size_t)n);
    free(text);
    const http_answer answer = http_receive(socket_);
    close(socket_);
    return answer;
}

void http_forget(http_answer *answer)
{
    free(answer->head);
    free(answer->body);
    json_decref(answer->json);
    *answer = (http_answer){.status = 0};
}

char *http_event(const http_answer *answer, size_t i)
{
    const char *at = strstr(answer->body, "data: ");
    while (at != NULL && i > 0) {
        at = strstr(at + 6, "\ndata: ");
        at = at != NULL ? at + 1 : NULL;
        i--;
    }
    return at != NULL ? strndup(at + 6, strcspn(at + 6, "\n")) : NULL;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

const json_t *json_at(const json_t *value, const char *path)
{
    char part[64];
    while (value != NULL && *path != '\0') {
        const size_t n = strcspn(path, ".");
        assert_true(n < sizeof part);
        memcpy(part, path, n);
        part[n] = '\0';
        value = json_is_array(value) ? json_array_get(value, strtoul(part, NULL, 10))
                                     : json_object_get(value, part);
        path += n + (path[n] == '.');
    }
    return value;
}

const char *json_text_at(const json_t *value, const char *path)
{
    const json_t *its = json_at(value, path);
    return json_is_string(its) ? json_string_value(its) : "";
}

json_int_t json_number_at(const json_t *value, const char *path)
{
    const json_t *its = json_at(value, path);
    return json_is_integer(its) ? json_integer_value(its) : -1;
}

char *http_join(const http_answer *answer, const char *place, size_t *n_events)
{
    char *all = calloc(1, answer->n_body + 1), *event;
    for (*n_events = 0; (event = http_event(answer, *n_events)) != NULL; ++*n_events) {
        json_t *json = json_loads(event, 0, NULL);
        strcat(all, json_text_at(json, place));
        json_decref(json);
        free(event);
    }
    return all;
}

json_t *http_event_json(const http_answer *answer, size_t i)
{
    char *event = http_event(answer, i);
    json_t *json = event != NULL ? json_loads(event, 0, NULL) : NULL;
    free(event);
    return json;
}
