/*
 * http_parts.h: what http.c and http_reply.c share: a request and its reply.
 *
 * A request lives from its first header byte to the last byte of its reply; the HTTP library's callbacks get it
 * handed from one to the next. Only its connection's thread touches it.
 */
#ifndef APP_HTTP_PARTS_H
#define APP_HTTP_PARTS_H

#include <microhttpd.h>

#include <stdatomic.h>

#include "serve/http.h"
#include "serve/http_listen.h"
#include "serve/watch.h"

struct http {
    http_options options;
    struct MHD_Daemon *daemon;
    watch *watch;
    listening listening;
    atomic_uint n_active;
    atomic_size_t n_body_bytes; /* held by all requests together */
};

struct http_request {
    http *http;
    struct MHD_Connection *connection;
    watch_entry *watched;
    const char *method, *path, *rest;
    const http_route *route; /* NULL: there is none, or it may not be used */
    char *body;
    size_t n_body, capacity;
    bool is_too_large, is_out_of_room;
    int socket;
    size_t key;
    uint64_t client;
    double start;
    char note[256];

    struct MHD_Response *response; /* the reply; NULL: none yet */
    unsigned status;
    const char *allow; /* methods, for 405 */
};

/* A stream that is being sent. */
typedef struct http_stream {
    http_request *request;
    bool (*next)(void *context, const char **bytes, size_t *n);
    void (*end)(void *context);
    void *context;
    const char *bytes; /* [n] not yet given to the library */
    size_t n;
    bool is_over;
} http_stream;

#endif /* APP_HTTP_PARTS_H */
