/*
 * api_embeddings.c: /v1/embeddings: a text as the mean, or the last, of what comes out of the last layer.
 *
 * A text is read in a sequence of its own, a chunk at a time, each an errand between two micro-batches, so those who
 * write wait for no more than one chunk; one text is read at a time. The vector has length 1. Nothing is
 * retained: a vector needs what comes out for every token, and that is not in the memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "serve/completion_request.h"
#include "serve/reuse.h"
#include "serve/server.h"

#define CHUNK 128u

typedef struct reading {
    server *server;
    const cellar_token *tokens; /* [n] */
    size_t n, n_read;
    uint32_t n_embd;
    bool takes_last;    /* instead of the mean */
    reuse_entry *entry; /* its sequence; without tokens, so nobody finds it */
    cellar_seq seqs[CHUNK];
    uint32_t wanted[CHUNK];
    float *rows;    /* [CHUNK][n_embd] */
    double *vector; /* [n_embd] the sum so far */
    cellar_status status;
    cellar_error error;
} reading;

/* ---- on the scheduler's thread -------------------------------------------------------------- */

static void add_rows(reading *r, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        for (uint32_t k = 0; k < r->n_embd; k++) {
            r->vector[k] += (double)r->rows[(size_t)i * r->n_embd + k];
        }
    }
}

static void read_chunk(void *context)
{
    reading *r = context;
    reuse *index = scheduler_reuse(r->server->scheduler);
    const uint32_t most = engine_ubatch(r->server->engine) < CHUNK
                              ? engine_ubatch(r->server->engine)
                              : CHUNK;
    if (r->entry == NULL) {
        r->status = reuse_name(index, &r->entry, &r->error);
        if (r->status != CELLAR_OK) {
            return;
        }
    }
    const uint32_t n = r->n - r->n_read < most ? (uint32_t)(r->n - r->n_read) : most;
    const bool is_last = r->n_read + n == r->n;
    for (uint32_t i = 0; i < n; i++) {
        r->seqs[i] = r->entry->seq;
        r->wanted[i] = i;
    }
    const uint32_t last = n - 1;
    const uint32_t n_wanted = !r->takes_last ? n : is_last ? 1 : 0;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = r->tokens + r->n_read;
    batch.seqs = r->seqs;
    const uint32_t *wanted = r->takes_last ? &last : r->wanted;
    r->status = engine_embed(r->server->engine, &batch, wanted, n_wanted, r->rows, &r->error);
    if (r->status == CELLAR_FULL && reuse_makes_fit(index, &batch)) {
        r->status = engine_embed(r->server->engine, &batch, wanted, n_wanted, r->rows, &r->error);
    }
    if (r->status == CELLAR_OK) {
        r->n_read += n;
        add_rows(r, n_wanted);
    }
}

static void end_reading(void *context)
{
    reading *r = context;
    if (r->entry != NULL) {
        reuse_drop(scheduler_reuse(r->server->scheduler), r->entry);
    }
}

/* ---- vectors -------------------------------------------------------------------------------- */

static void normalise(double *vector, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += vector[i] * vector[i];
    }
    for (uint32_t i = 0; i < n && sum > 0; i++) {
        vector[i] /= sqrt(sum);
    }
}

static json_t *list_of(const double *vector, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        (void)!json_array_append_new(list, json_real(vector[i]));
    }
    return list;
}

/* The numbers as little-endian binary32, in base 64 (RFC 4648). */
static json_t *base64_of(const double *vector, uint32_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t n_bytes = (size_t)n * 4;
    unsigned char *bytes = calloc(n_bytes + 3, 1);
    char *text = malloc(n_bytes / 3 * 4 + 8);
    json_t *made = NULL;
    if (bytes != NULL && text != NULL) {
        for (uint32_t i = 0; i < n; i++) {
            const float number = (float)vector[i];
            uint32_t bits;
            memcpy(&bits, &number, sizeof bits);
            for (uint32_t k = 0; k < 4; k++) {
                bytes[4 * (size_t)i + k] = (unsigned char)(bits >> 8 * k);
            }
        }
        size_t to = 0;
        for (size_t i = 0; i < n_bytes; i += 3) {
            const uint32_t three = (uint32_t)bytes[i] << 16 | (uint32_t)bytes[i + 1] << 8 |
                                   bytes[i + 2];
            text[to++] = digits[three >> 18];
            text[to++] = digits[three >> 12 & 63];
            text[to++] = i + 1 < n_bytes ? digits[three >> 6 & 63] : '=';
            text[to++] = i + 2 < n_bytes ? digits[three & 63] : '=';
        }
        made = json_stringn(text, to);
    }
    free(bytes);
    free(text);
    return made;
}

/* ---- the request ---------------------------------------------------------------------------- */

/* Read one text to its end; false: the reply says what went wrong. */
static bool read_text(reading *r, http_request *request)
{
    server *s = r->server;
    bool is_running = true;
    r->n_read = 0;
    r->entry = NULL;
    memset(r->vector, 0, r->n_embd * sizeof *r->vector);
    pthread_mutex_lock(&s->embedding);
    while (is_running && r->status == CELLAR_OK && r->n_read < r->n && !http_is_gone(request)) {
        is_running = scheduler_run(s->scheduler, read_chunk, r);
    }
    is_running = scheduler_run(s->scheduler, end_reading, r) && is_running;
    pthread_mutex_unlock(&s->embedding);
    if (!is_running) {
        http_reply_error(request, 503, "unavailable_error", NULL, NULL, "the server is stopping");
        return false;
    }
    if (r->status != CELLAR_OK) {
        server_reply_status(request, r->status, &r->error);
        return false;
    }
    if (r->n_read < r->n) {
        http_reply_error(request, 499, "client_closed_request", NULL, NULL, "the client went away");
        return false;
    }
    normalise(r->vector, r->n_embd);
    return true;
}

/* What is asked for. */
typedef struct wishes {
    const json_t *input;
    bool is_list; /* of several texts */
    bool is_base64;
    bool takes_last;
} wishes;

static void read_choice(fields *f, const char *name, const char *first, const char *second,
                        bool *is_second)
{
    const char *its = json_string_value(fields_text(f, name));
    if (its != NULL && strcmp(its, first) != 0 && strcmp(its, second) != 0) {
        fields_wrong(f, name, "\"%s\" or \"%s\"", first, second);
    }
    *is_second = its != NULL && strcmp(its, second) == 0;
}

static wishes read_wishes(fields *f)
{
    wishes w = {.input = fields_get(f, "input")};
    const json_t *first = json_array_get(w.input, 0);
    /* a list of texts or of lists is several; a list of numbers is one */
    w.is_list = json_is_array(w.input) && !json_is_integer(first);
    if (w.input == NULL) {
        fields_wrong(f, "input", "a text, a list of texts, or tokens");
    } else if (w.is_list && (json_array_size(w.input) == 0 || json_array_size(w.input) > 2048)) {
        fields_wrong(f, "input", "from 1 to 2048 texts");
    }
    read_choice(f, "encoding_format", "float", "base64", &w.is_base64);
    read_choice(f, "pooling", "mean", "last", &w.takes_last);
    return w;
}

/* Turn one input into an item of the reply; NULL: the reply says what is wrong. */
static json_t *embed(reading *r, http_request *request, fields *f, const wishes *w, size_t i)
{
    job_request asked = {.n_prompt = 0};
    const json_t *text = w->is_list ? json_array_get(w->input, i) : w->input;
    json_t *made = NULL;
    r->status = completion_request_prompt(r->server, f, "input", text, &asked, &r->error);
    if (server_refuse_fields(request, f)) {
        // said
    } else if (r->status != CELLAR_OK) {
        server_reply_status(request, r->status, &r->error);
    } else if (asked.n_prompt > r->server->n_context) {
        http_reply_error(request, 400, "exceed_context_size_error", "input",
                         json_pack("{s:I, s:I}", "n_prompt_tokens", (json_int_t)asked.n_prompt,
                                   "n_ctx", (json_int_t)r->server->n_context),
                         "request (%zu tokens) exceeds the available context size (%u tokens), "
                         "try increasing it",
                         asked.n_prompt, (unsigned)r->server->n_context);
    } else {
        r->tokens = asked.prompt;
        r->n = asked.n_prompt;
        if (read_text(r, request)) {
            made = json_pack(
                "{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)i, "embedding",
                w->is_base64 ? base64_of(r->vector, r->n_embd) : list_of(r->vector, r->n_embd));
        }
    }
    job_request_free(&asked);
    return made;
}

static void embed_all(reading *r, http_request *request, fields *f, const wishes *w)
{
    json_t *data = json_array();
    json_int_t n_tokens = 0;
    const size_t n = w->is_list ? json_array_size(w->input) : 1;
    bool is_good = true;
    for (size_t i = 0; is_good && i < n; i++) {
        json_t *item = embed(r, request, f, w, i);
        is_good = item != NULL;
        if (is_good) {
            n_tokens += (json_int_t)r->n;
            (void)!json_array_append_new(data, item);
        }
    }
    if (!is_good) {
        json_decref(data);
        return;
    }
    http_note(request, "%zu texts, %lld tokens", n, (long long)n_tokens);
    http_reply_json(request, 200,
                    json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", data,
                              "model", r->server->model_name, "usage", "prompt_tokens", n_tokens,
                              "total_tokens", n_tokens));
}

void api_embeddings(server *s, http_request *request)
{
    json_t *body = server_read_body(request);
    if (body == NULL) {
        return;
    }
    fields f = fields_of(body);
    const wishes w = read_wishes(&f);
    if (!server_refuse_fields(request, &f)) {
        reading *r = calloc(1, sizeof *r);
        const uint32_t n_embd = engine_model(s->engine)->n_embd;
        if (r != NULL) {
            r->server = s;
            r->n_embd = n_embd;
            r->takes_last = w.takes_last;
            r->rows = malloc((size_t)CHUNK * n_embd * sizeof *r->rows);
            r->vector = malloc(n_embd * sizeof *r->vector);
            if (r->rows != NULL && r->vector != NULL) {
                embed_all(r, request, &f, &w);
            }
            free(r->rows);
            free(r->vector);
            free(r);
        }
    }
    json_decref(body);
}
