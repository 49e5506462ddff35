/*
 * http.h: requests come in whole, answers go out whole or piece by piece. The only user of libmicrohttpd.
 *
 * Each connection has a thread, which reads a request within bounds (header, body, time), calls the handler of
 * its route, and sends the reply that this has made. A handler may block as long as it watches
 * request->socket. A reply that is a stream asks for its next part whenever the one before was sent; each
 * part goes out at once.
 *
 * What is wrong with a request before a handler is asked (path, method, key, size) is answered here.
 */
#ifndef APP_HTTP_H
#define APP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "cellar.h"

typedef struct http http;
typedef struct http_request http_request;
struct server;

typedef void (*http_handler)(struct server *server, http_request *request);

typedef struct http_route {
    const char *method; /* "GET" also answers HEAD */
    const char *path;   /* a last part of `*` stands for anything without a slash: http_rest */
    http_handler handle;
    bool is_public; /* no key is asked for */
} http_route;

typedef struct http_options {
    const char *host;
    uint16_t port; /* 0: one that is free */
    uint32_t n_connections;
    size_t max_body;          /* bytes */
    double request_seconds;   /* for a request to be whole; for a part of an answer to be taken */
    const http_route *routes; /* [n_routes] */
    size_t n_routes;
    char *const *keys; /* [n_keys]; none: everybody may */
    size_t n_keys;
    struct server *server;
    /* Said of each request that was answered; may be NULL. */
    void (*log)(struct server *server, const http_request *request, unsigned status,
                double seconds);
} http_options;

/* Listen. CELLAR_INVALID: there is no such host; CELLAR_IO: the address is in use; CELLAR_NO_MEMORY. */
cellar_status http_create(const http_options *options, http **out, cellar_error *error);
uint16_t http_port(const http *h);
const char *http_address(const http *h); /* as a URL has it, "127.0.0.1" or "[::1]" */
void http_close(http *h);                /* take no more connections */
uint32_t http_active(http *h);           /* requests that are not answered to their end */
void http_destroy(http *h);              /* NULL is allowed; handlers must not block any more */

/* ---- a request ------------------------------------------------------------------------------ */

const char *http_method(const http_request *request);
const char *http_path(const http_request *request);
const char *http_rest(const http_request *request); /* what `*` of the route stands for */
const char *http_body(const http_request *request, size_t *n);
const char *http_query(const http_request *request, const char *name); /* NULL: not given */
int http_socket(const http_request *request);
bool http_is_gone(const http_request *request); /* the client closed its side */
/* The key that it came with; NULL: none is asked for. */
const char *http_key(const http_request *request);
/* Who asks, for a fair share: the key, or else the address. */
uint64_t http_client(const http_request *request);
/* What the log says of it beside the usual; a format. */
void http_note(http_request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *http_noted(const http_request *request); /* "": nothing */

/* ---- its reply: the first one that is made counts --------------------------------------------- */

/* Takes over `body`; NULL stands for a lack of memory. */
void http_reply_json(http_request *request, unsigned status, json_t *body);
/* The bytes are copied. */
void http_reply_text(http_request *request, unsigned status, const char *type, const char *bytes,
                     size_t n);

/* A header more, of the reply that was made; `value` may hold no line end. */
void http_add_header(http_request *request, const char *name, const char *value);

/*
 * {"error": {"code", "message", "type", "param"}}; `param` may be NULL. `more` (may be NULL) holds further members and
 * is taken over.
 */
void http_reply_error(http_request *request, unsigned status, const char *type, const char *param,
                      json_t *more, const char *format, ...) __attribute__((format(printf, 6, 7)));

/*
 * A stream: next(context, &bytes, &n) gives the next part, valid until it is called again; false: that was
 * all; n 0 with true: the connection is to be cut. `end` is called once, in any case.
 */
void http_reply_stream(http_request *request, const char *type,
                       bool (*next)(void *context, const char **bytes, size_t *n),
                       void (*end)(void *context), void *context);

#endif /* APP_HTTP_H */
