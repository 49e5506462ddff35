/*
 * http.c: connections, and requests from their first byte to the last byte of their reply.
 *
 * libmicrohttpd calls back on the connection's thread: when it comes and goes, with the header, with parts of the
 * body, when the body is complete, and when the reply was sent. Its own time-outs are off, since they would count the
 * time that a handler waits for the engine; watch.h keeps time instead.
 *
 * A body that is not wanted (no such path, no key) is read and thrown away, so that the connection can be used
 * again. One that says beforehand that it is too large is answered at once, and the connection ends. All bodies
 * together have a bound too.
 */
#define _POSIX_C_SOURCE 200809L

#include "serve/http.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "serve/http_parts.h"
#include "serve/job.h"

#define HEADER_BYTES (32u * 1024)  /* most of a request line and header */
#define STACK_BYTES (1024u * 1024) /* of a connection's thread */
#define BODIES 8u                  /* times max_body that all bodies together may take */

/* ---- what came in --------------------------------------------------------------------------- */

/* Does the path fit the route? *rest: what `*` stands for. */
static bool fits(const http_route *route, const char *path, const char **rest)
{
    const size_t n = strlen(route->path);
    *rest = "";
    if (route->path[n - 1] != '*') {
        return strcmp(route->path, path) == 0;
    }
    if (strncmp(route->path, path, n - 1) != 0 || path[n - 1] == '\0' ||
        strchr(path + n - 1, '/') != NULL) {
        return false;
    }
    *rest = path + n - 1;
    return true;
}

static bool is_method(const http_route *route, const char *method)
{
    return strcmp(route->method, method) == 0 ||
           (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static void find_route(http_request *r)
{
    const http_options *o = &r->http->options;
    const char *rest;
    for (size_t i = 0; i < o->n_routes && r->route == NULL; i++) {
        if (fits(&o->routes[i], r->path, &rest)) {
            r->allow = r->allow != NULL ? r->allow : o->routes[i].method;
            if (is_method(&o->routes[i], r->method)) {
                r->route = &o->routes[i];
                r->rest = rest;
            }
        }
    }
}

/* Compare without telling by the time it takes how much is right. */
static bool is_same_key(const char *given, const char *key)
{
    const size_t n = strlen(given), n_key = strlen(key);
    unsigned char difference = n != n_key;
    for (size_t i = 0; i < n; i++) {
        difference |= (unsigned char)(given[i] ^ key[n_key == 0 ? 0 : i % n_key]);
    }
    return difference == 0;
}

static const char *given_key(const http_request *r)
{
    const char *value = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND,
                                                    "Authorization");
    if (value != NULL && strncmp(value, "Bearer ", 7) == 0) {
        return value + 7;
    }
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "X-Api-Key");
}

/* Which key it has; false: it needs one. */
static bool find_key(http_request *r)
{
    const http_options *o = &r->http->options;
    const char *given = o->n_keys > 0 ? given_key(r) : NULL;
    for (size_t i = 0; given != NULL && i < o->n_keys; i++) {
        if (is_same_key(given, o->keys[i])) {
            r->key = i + 1;
        }
    }
    return o->n_keys == 0 || r->key > 0;
}

/* A number that tells addresses apart (FNV-1a). */
static uint64_t hash_address(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    uint64_t hash = 0xcbf29ce484222325u;
    const unsigned char *bytes = NULL;
    size_t n = 0;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (info != NULL && info->client_addr->sa_family == AF_INET) {
        memcpy(&four, info->client_addr, sizeof four);
        bytes = (const unsigned char *)&four.sin_addr;
        n = sizeof four.sin_addr;
    } else if (info != NULL && info->client_addr->sa_family == AF_INET6) {
        memcpy(&six, info->client_addr, sizeof six);
        bytes = (const unsigned char *)&six.sin6_addr;
        n = sizeof six.sin6_addr;
    }
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

/* ---- bodies --------------------------------------------------------------------------------- */

static void free_body(http_request *r)
{
    atomic_fetch_sub(&r->http->n_body_bytes, r->capacity);
    free(r->body);
    r->body = NULL;
    r->n_body = r->capacity = 0;
}

static void add_to_body(http_request *r, const char *bytes, size_t n)
{
    http *h = r->http;
    if (r->route == NULL || r->is_too_large || r->is_out_of_room) {
        return; /* it is answered without its body */
    }
    if (n > h->options.max_body - r->n_body) {
        r->is_too_large = true;
        free_body(r);
        return;
    }
    if (r->n_body + n + 1 > r->capacity) {
        const size_t capacity = 2 * r->capacity + n + 256, more = capacity - r->capacity;
        const size_t total = atomic_fetch_add(&h->n_body_bytes, more) + more;
        char *larger = total <= BODIES * h->options.max_body + HEADER_BYTES
                           ? realloc(r->body, capacity)
                           : NULL;
        if (larger == NULL) {
            atomic_fetch_sub(&h->n_body_bytes, more);
            r->is_out_of_room = true;
            free_body(r);
            return;
        }
        r->body = larger;
        r->capacity = capacity;
    }
    memcpy(r->body + r->n_body, bytes, n);
    r->n_body += n;
    r->body[r->n_body] = '\0';
}

static bool says_too_large(const http_request *r)
{
    const char *length = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND,
                                                     "Content-Length");
    return length != NULL && strtoull(length, NULL, 10) > r->http->options.max_body;
}

/* ---- answering ------------------------------------------------------------------------------ */

static void reply_too_large(http_request *r)
{
    http_reply_error(r, 413, "invalid_request_error", NULL, NULL,
                     "the body is larger than %zu bytes (--max-body)", r->http->options.max_body);
}

static void answer(http_request *r)
{
    const http_options *o = &r->http->options;
    if (r->is_too_large) {
        reply_too_large(r);
    } else if (r->is_out_of_room) {
        http_reply_error(r, 503, "unavailable_error", NULL, NULL,
                         "too many requests are being read; try again");
    } else if (r->status == 401) {
        http_reply_error(r, 401, "authentication_error", NULL, NULL, "Invalid API Key");
    } else if (r->route != NULL) {
        r->route->handle(o->server, r);
    } else if (r->allow != NULL) {
        http_reply_error(r, 405, "invalid_request_error", NULL, NULL,
                         "%s is not how %.80s is asked; try %s", r->method, r->path, r->allow);
    } else {
        http_reply_error(r, 404, "not_found_error", NULL, NULL, "there is no %.120s here", r->path);
    }
    if (r->response == NULL) {
        http_reply_error(r, 500, "server_error", NULL, NULL, "no answer was made");
    }
}

static enum MHD_Result send_reply(http_request *r)
{
    if (r->response == NULL) {
        return MHD_NO; /* not even an error could be made: the connection ends */
    }
    watch_allow(r->http->watch, r->watched, r->http->options.request_seconds);
    if (r->status == 405) {
        (void)!MHD_add_response_header(r->response, "Allow", r->allow);
    }
    if (r->status == 503) {
        (void)!MHD_add_response_header(r->response, "Retry-After", "1");
    }
    const enum MHD_Result result = MHD_queue_response(r->connection, r->status, r->response);
    MHD_destroy_response(r->response);
    return result;
}

static http_request *begin(http *h, struct MHD_Connection *connection, const char *url,
                           const char *method)
{
    http_request *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return NULL;
    }
    r->http = h;
    r->connection = connection;
    r->method = method;
    r->path = url;
    r->rest = "";
    r->start = job_now();
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    r->watched = info != NULL ? info->socket_context : NULL;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    r->socket = info != NULL ? info->connect_fd : -1;
    atomic_fetch_add(&h->n_active, 1);
    watch_expect(h->watch, r->watched, h->options.request_seconds);
    find_route(r);
    if (!find_key(r) && !(r->route != NULL && r->route->is_public)) {
        r->status = 401;
        r->route = NULL;
    }
    r->client = r->key > 0 ? r->key : hash_address(connection);
    return r;
}

/* MHD_AccessHandlerCallback */
static enum MHD_Result take(void *context, struct MHD_Connection *connection, const char *url,
                            const char *method, const char *version, const char *data,
                            size_t *n_data, void **its)
{
    (void)version;
    http_request *r = *its;
    if (r == NULL) {
        r = begin(context, connection, url, method);
        *its = r;
        if (r != NULL && says_too_large(r)) {
            reply_too_large(r);
            return send_reply(r);
        }
        return r != NULL ? MHD_YES : MHD_NO;
    }
    if (*n_data > 0) {
        add_to_body(r, data, *n_data);
        *n_data = 0;
        return MHD_YES;
    }
    watch_allow(r->http->watch, r->watched, 0); /* as long as the engine needs */
    answer(r);
    return send_reply(r);
}

/* MHD_RequestCompletedCallback */
static void complete(void *context, struct MHD_Connection *connection, void **its,
                     enum MHD_RequestTerminationCode how)
{
    (void)connection;
    (void)how;
    http *h = context;
    http_request *r = *its;
    if (r == NULL) {
        return;
    }
    if (h->options.log != NULL && r->status != 0) {
        h->options.log(h->options.server, r, r->status, job_now() - r->start);
    }
    watch_expect(h->watch, r->watched, h->options.request_seconds);
    free_body(r);
    free(r);
    *its = NULL;
    atomic_fetch_sub(&h->n_active, 1);
}

/* MHD_NotifyConnectionCallback */
static void note_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                            enum MHD_ConnectionNotificationCode what)
{
    http *h = context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const int on = 1;
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info != NULL) {
            (void)!setsockopt(info->connect_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            *socket_context = watch_open(h->watch, info->connect_fd);
            watch_expect(h->watch, *socket_context, h->options.request_seconds);
        }
    } else {
        watch_close(h->watch, *socket_context);
        *socket_context = NULL;
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

cellar_status http_create(const http_options *options, http **out, cellar_error *error)
{
    *out = NULL;
    http *h = calloc(1, sizeof *h);
    if (h == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a server");
    }
    h->options = *options;
    h->listening.socket = -1;
    cellar_status status = watch_create(options->n_connections, &h->watch, error);
    if (status == CELLAR_OK) {
        status = listening_open(options->host, options->port, &h->listening, error);
    }
    if (status == CELLAR_OK) {
        h->daemon = MHD_start_daemon(
            MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
                MHD_USE_ITC,
            0, NULL, NULL, take, h, MHD_OPTION_LISTEN_SOCKET, h->listening.socket,
            MHD_OPTION_NOTIFY_COMPLETED, complete, h, MHD_OPTION_NOTIFY_CONNECTION, note_connection,
            h, MHD_OPTION_CONNECTION_LIMIT, options->n_connections,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_THREAD_STACK_SIZE,
            (size_t)STACK_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_END);
        if (h->daemon == NULL) {
            status = report(error, CELLAR_IO, -1, "the HTTP server does not start");
        }
    }
    if (status != CELLAR_OK) {
        http_destroy(h);
        return status;
    }
    *out = h;
    return CELLAR_OK;
}

uint16_t http_port(const http *h)
{
    return h->listening.port;
}

const char *http_address(const http *h)
{
    return h->listening.address;
}

void http_close(http *h)
{
    const MHD_socket its = MHD_quiesce_daemon(h->daemon);
    if (its != MHD_INVALID_SOCKET) {
        close(its);
        h->listening.socket = -1;
    }
}

uint32_t http_active(http *h)
{
    return atomic_load(&h->n_active);
}

void http_destroy(http *h)
{
    if (h == NULL) {
        return;
    }
    if (h->daemon != NULL) {
        MHD_stop_daemon(h->daemon); /* closes the socket that it still has */
    } else if (h->listening.socket >= 0) {
        close(h->listening.socket);
    }
    watch_destroy(h->watch);
    free(h);
}
