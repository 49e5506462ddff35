/*
 * server.c: what the endpoints share: bodies, errors, ids, texts, and the line in the log.
 *
 * Bodies are strangers' bytes: they are parsed with a bound on depth (jansson's), must be an object, and numbers and
 * texts are looked at by fields.h before they are used.
 */
#define _GNU_SOURCE /* getrandom */

#include "serve/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "cli/json_text.h"
#include "engine/random_source.h"
#include "safe_text.h"

uint64_t server_fresh_seed(void)
{
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
        seed = (uint32_t)time(NULL);
    }
    return seed;
}

/* Has the memory parts that do not keep every position? Then it can go back to its checkpoints alone. */
static bool forgets(const cellar_memory *memory)
{
    for (uint32_t i = 0; i < cellar_count_groups(memory); i++) {
        cellar_group_info group;
        if (cellar_get_group(memory, i, &group, NULL) == CELLAR_OK &&
            (group.kind != CELLAR_LAYER_ATTENTION || group.window.kind != CELLAR_WINDOW_NONE)) {
            return true;
        }
    }
    return false;
}

cellar_status server_start(server *s, uint32_t n_chunk, uint32_t n_queue, cellar_error *error)
{
    const scheduler_options options = {.engine = s->engine,
                                       .tok = s->tokenizer,
                                       .n_slots = s->n_slots,
                                       .n_context = s->n_context,
                                       .n_chunk = n_chunk,
                                       .n_queue = n_queue,
                                       .reuse = s->reuse};
    s->started = (int64_t)time(NULL);
    s->marks_messages = forgets(engine_memory(s->engine));
    s->id_seed = server_fresh_seed() << 32 ^ (uint64_t)s->started;
    atomic_init(&s->next_id, 0);
    cellar_status status = scheduler_create(&options, &s->scheduler, error);
    if (status == CELLAR_OK) {
        pthread_mutex_init(&s->embedding, NULL);
    }
    return status;
}

void server_stop(server *s)
{
    if (s->scheduler != NULL) {
        scheduler_destroy(s->scheduler);
        pthread_mutex_destroy(&s->embedding);
        s->scheduler = NULL;
    }
}

void server_new_id(server *s, const char *prefix, char id[SERVER_ID_BYTES])
{
    uint64_t state = s->id_seed + atomic_fetch_add(&s->next_id, 1);
    const uint64_t a = random_source_split(&state), b = random_source_split(&state);
    snprintf(id, SERVER_ID_BYTES, "%.15s%016" PRIx64 "%08" PRIx32, prefix, a, (uint32_t)b);
}

/* 64 bits of a text, by FNV-1a from another beginning for each half, mixed. */
static uint64_t hash(const char *text, uint64_t seed)
{
    uint64_t state = 0xcbf29ce484222325u ^ seed;
    for (; *text != '\0'; text++) {
        state = (state ^ (unsigned char)*text) * 0x100000001b3u;
    }
    return random_source_split(&state);
}

void server_owner(const http_request *request, char owner[SERVER_OWNER_BYTES])
{
    const char *key = http_key(request);
    owner[0] = '\0';
    if (key != NULL) {
        snprintf(owner, SERVER_OWNER_BYTES, "key:%016" PRIx64 "%016" PRIx64, hash(key, 0),
                 hash(key, 0x5bd1e995u));
    }
}

/* ---- bodies and errors ---------------------------------------------------------------------- */

json_t *server_read_body(http_request *request)
{
    size_t n;
    const char *body = http_body(request, &n);
    json_error_t wrong;
    json_t *parsed = json_loadb(body, n, 0, &wrong);
    if (parsed == NULL) {
        http_reply_error(request, 400, "invalid_request_error", NULL, NULL,
                         "the body is not valid JSON: line %d, column %d: %s", wrong.line,
                         wrong.column, wrong.text);
        return NULL;
    }
    if (!json_is_object(parsed)) {
        http_reply_error(request, 400, "invalid_request_error", NULL, NULL,
                         "the body has to be a JSON object");
        json_decref(parsed);
        return NULL;
    }
    return parsed;
}

bool server_refuse_fields(http_request *request, const fields *f)
{
    if (f->is_wrong) {
        http_reply_error(request, 400, "invalid_request_error", f->param, NULL, "%s", f->message);
    }
    return f->is_wrong;
}

void server_reply_status(http_request *request, cellar_status status, const cellar_error *error)
{
    const bool is_clients = status == CELLAR_INVALID || status == CELLAR_MISMATCH ||
                            status == CELLAR_UNSUPPORTED || status == CELLAR_CORRUPT ||
                            status == CELLAR_NOT_FOUND;
    const bool is_busy = status == CELLAR_FULL || status == CELLAR_BUSY;
    http_reply_error(request,
                     is_clients ? 400
                     : is_busy  ? 503
                                : 500,
                     is_clients ? "invalid_request_error"
                     : is_busy  ? "unavailable_error"
                                : "server_error",
                     NULL, NULL, "%s", error->message);
}

/* ---- texts ---------------------------------------------------------------------------------- */

json_t *server_text_of(const server *s, const cellar_token *tokens, size_t n)
{
    char *text = NULL;
    size_t length = 0;
    if (tokenizer_decode(s->tokenizer, tokens, n, true, &text, &length, NULL) != CELLAR_OK) {
        return NULL;
    }
    json_t *made = json_text(text != NULL ? text : "", length, NULL);
    free(text);
    return made;
}

void server_describe_token(const server *s, cellar_token token, json_t *to)
{
    const size_t n = tokenizer_piece(s->tokenizer, token, true, NULL, 0);
    char *piece = malloc(n + 1);
    if (piece == NULL) {
        return;
    }
    tokenizer_piece(s->tokenizer, token, true, piece, n);
    json_t *bytes = json_array();
    for (size_t i = 0; i < n; i++) {
        (void)!json_array_append_new(bytes, json_integer((unsigned char)piece[i]));
    }
    (void)!json_object_set_new(to, "token", json_text(piece, n, NULL));
    (void)!json_object_set_new(to, "bytes", bytes);
    free(piece);
}

/* ---- the log -------------------------------------------------------------------------------- */

/* What a terminal may see of a path that somebody sent. */
static void make_printable(char *text)
{
    size_t used;
    for (size_t at = 0, n = strlen(text); at < n; at += used) {
        const uint32_t code = safe_text_decode(text + at, n - at, &used);
        if (!safe_text_is_printable(code)) {
            memset(text + at, '?', used);
        }
    }
}

void server_log(server *s, const http_request *request, unsigned status, double seconds)
{
    if (!s->logs) {
        return;
    }
    char path[160], note[256];
    snprintf(path, sizeof path, "%.150s", http_path(request));
    snprintf(note, sizeof note, "%.250s", http_noted(request));
    make_printable(path);
    make_printable(note);
    if (s->logs_json) {
        json_t *line = json_pack("{s:I, s:s, s:o, s:i, s:f, s:o}", "time", (json_int_t)time(NULL),
                                 "method", http_method(request), "path",
                                 json_text(path, strlen(path), NULL), "status", (int)status, "ms",
                                 seconds * 1e3, "note", json_text(note, strlen(note), NULL));
        char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(6));
        fprintf(stderr, "%s\n", text != NULL ? text : "{}");
        free(text);
        json_decref(line);
    } else {
        fprintf(stderr, "%s %s %u, %.1f ms%s%s\n", http_method(request), path, status,
                seconds * 1e3, note[0] != '\0' ? ": " : "", note);
    }
}
