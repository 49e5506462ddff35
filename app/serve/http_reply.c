/*
 * http_reply.c: what a handler may ask of its request, and the replies it can make.
 *
 * Of several replies the first one counts, so an error can be made anywhere without looking whether
 * something was said already. A reply for which there is no memory is no reply, and the connection is closed.
 */
#define _GNU_SOURCE /* POLLRDHUP */

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json_text.h"
#include "serve/http_parts.h"
#include "serve/job.h"

#define PART_BYTES 16384u /* of a stream, that are sent at once */

/* ---- the request ---------------------------------------------------------------------------- */

const char *http_method(const http_request *r)
{
    return r->method;
}

const char *http_path(const http_request *r)
{
    return r->path;
}

const char *http_rest(const http_request *r)
{
    return r->rest;
}

const char *http_body(const http_request *r, size_t *n)
{
    *n = r->n_body;
    return r->body != NULL ? r->body : "";
}

const char *http_query(const http_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
}

int http_socket(const http_request *r)
{
    return r->socket;
}

bool http_is_gone(const http_request *r)
{
    struct pollfd look = {.fd = r->socket, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0;
}

const char *http_key(const http_request *r)
{
    return r->key > 0 ? r->http->options.keys[r->key - 1] : NULL;
}

uint64_t http_client(const http_request *r)
{
    return r->client;
}

void http_note(http_request *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->note, sizeof r->note, format, arguments);
    va_end(arguments);
}

const char *http_noted(const http_request *r)
{
    return r->note;
}

/* ---- replies -------------------------------------------------------------------------------- */

/* `bytes` are malloc'ed and taken over. */
static void reply_bytes(http_request *r, unsigned status, const char *type, char *bytes, size_t n)
{
    if (r->response != NULL || bytes == NULL) {
        free(bytes);
        return;
    }
    r->response = MHD_create_response_from_buffer(n, bytes, MHD_RESPMEM_MUST_FREE);
    if (r->response == NULL) {
        free(bytes);
        return;
    }
    r->status = status;
    (void)!MHD_add_response_header(r->response, "Content-Type", type);
}

void http_reply_json(http_request *r, unsigned status, json_t *body)
{
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(body);
    if (text != NULL) {
        reply_bytes(r, status, "application/json; charset=utf-8", text, strlen(text));
    } else {
        http_reply_error(r, 500, "server_error", NULL, NULL, "no memory for the answer");
    }
}

void http_reply_text(http_request *r, unsigned status, const char *type, const char *bytes,
                     size_t n)
{
    char *copy = malloc(n + 1);
    if (copy != NULL) {
        memcpy(copy, bytes, n);
    }
    reply_bytes(r, status, type, copy, n);
}

void http_add_header(http_request *r, const char *name, const char *value)
{
    if (r->response != NULL) {
        (void)!MHD_add_response_header(r->response, name, value);
    }
}

void http_reply_error(http_request *r, unsigned status, const char *type, const char *param,
                      json_t *more, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    json_t *error = json_pack("{s:i, s:o, s:s}", "code", (int)status, "message",
                              json_text(message, strlen(message), NULL), "type", type);
    if (param != NULL) {
        (void)!json_object_set_new(error, "param", json_string(param));
    }
    (void)!json_object_update(error, more);
    json_decref(more);
    json_t *body = json_pack("{s:o}", "error", error);
    if (strncmp(r->path, "/v1/messages", 12) == 0) { /* as that API has it */
        (void)!json_object_set_new(body, "type", json_string("error"));
    }
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    http_note(r, "%.200s", message);
    reply_bytes(r, status, "application/json; charset=utf-8", text,
                text != NULL ? strlen(text) : 0);
}

/* ---- streams -------------------------------------------------------------------------------- */

/* MHD_ContentReaderCallback */
static ssize_t read_stream(void *context, uint64_t at, char *to, size_t most)
{
    (void)at;
    http_stream *s = context;
    watch *w = s->request->http->watch;
    if (s->n == 0 && !s->is_over) {
        watch_allow(w, s->request->watched, 0);
        s->is_over = !s->next(s->context, &s->bytes, &s->n);
        watch_allow(w, s->request->watched, s->request->http->options.request_seconds);
        if (!s->is_over && s->n == 0) {
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
    }
    const size_t n = s->n < most ? s->n : most;
    if (n == 0) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    memcpy(to, s->bytes, n);
    s->bytes += n;
    s->n -= n;
    return (ssize_t)n;
}

static void end_stream(void *context)
{
    http_stream *s = context;
    s->end(s->context);
    free(s);
}

void http_reply_stream(http_request *r, const char *type,
                       bool (*next)(void *context, const char **bytes, size_t *n),
                       void (*end)(void *context), void *context)
{
    http_stream *s = r->response == NULL ? calloc(1, sizeof *s) : NULL;
    if (s == NULL) {
        end(context);
        http_reply_error(r, 500, "server_error", NULL, NULL, "no memory for the answer");
        return;
    }
    *s = (http_stream){.request = r, .next = next, .end = end, .context = context};
    r->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PART_BYTES, read_stream, s,
                                                    end_stream);
    if (r->response == NULL) {
        end_stream(s);
        return;
    }
    r->status = 200;
    (void)!MHD_add_response_header(r->response, "Content-Type", type);
    (void)!MHD_add_response_header(r->response, "Cache-Control", "no-cache");
}
