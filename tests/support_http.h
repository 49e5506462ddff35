/*
 * support_http.h: a small HTTP client for tests, and a server of the built-in model in the same process.
 *
 * The client says exactly what it is told, whole or in parts, so that it can also say what no decent client would.
 * Only the loopback address is ever spoken to. What goes wrong fails the test (cmocka).
 */
#ifndef TESTS_SUPPORT_HTTP_H
#define TESTS_SUPPORT_HTTP_H

#include <jansson.h>

#include "serve/server.h"

/* A server that listens on a free port. */
typedef struct served {
    gguf_file *file;
    model *model;
    tokenizer *tokenizer;
    chat_encoder *encoder;
    chat_template *compiled;
    char *template_text;
    engine *engine;
    http *http;
    uint16_t port; /* of all that the client below needs this alone */
    server server;
    char *keys[2];
} served;

typedef struct served_options {
    uint32_t n_cells, n_ubatch, n_slots, n_queue;
    size_t max_body;
    double request_seconds;
    uint32_t n_connections;
    const char *format; /* of conversations; NULL: none */
    bool has_keys;      /* "first" and "second" */
    reuse_options reuse;
    const char *slot_folder;
} served_options;

served_options served_defaults(void);
void served_start(served *its, const served_options *options);
void served_stop(served *its); /* and check that the memory is sound */

/* ---- the client ----------------------------------------------------------------------------- */

typedef struct http_answer {
    int status;        /* 0: the connection ended without one */
    char *head, *body; /* NUL-terminated; chunks are put together */
    size_t n_body;
    json_t *json; /* the body, if it is JSON */
} http_answer;

/* One request on a connection of its own. `headers` are whole lines with \r\n, may be NULL; so may `body`. */
http_answer http_ask(const served *its, const char *method, const char *path, const char *headers,
                     const char *body);
void http_forget(http_answer *answer);

/* By hand: connect, send bytes, read an answer to its end. Blocking; a read gives up after 300 seconds. */
int http_connect(const served *its);
int http_try_to_connect(const served *its); /* -1: nobody listens */
void http_send(int socket, const char *bytes, size_t n);
http_answer http_receive(int socket);

/* Event i of a stream's body, without "data: "; NULL: there are not as many. To be freed. */
char *http_event(const http_answer *answer, size_t i);

/* The same as JSON; NULL: there are not as many, or it is none. */
json_t *http_event_json(const http_answer *answer, size_t i);

/* The texts at a place of all events, put together; to be freed. *n_events: how many there are. */
char *http_join(const http_answer *answer, const char *place, size_t *n_events);

/* The value at a path such as "choices.0.message.content"; NULL: there is none. */
const json_t *json_at(const json_t *value, const char *path);
const char *json_text_at(const json_t *value, const char *path);  /* "": none */
json_int_t json_number_at(const json_t *value, const char *path); /* -1: none */

#endif /* TESTS_SUPPORT_HTTP_H */
