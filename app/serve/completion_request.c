/*
 * completion_request.c: members, names and ranges, for completion_request.h.
 *
 * Where a client may say the same in several ways (n_predict, max_tokens, max_completion_tokens) the last
 * of them that is given counts.
 */
#define _POSIX_C_SOURCE 200809L

#include "serve/completion_request.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define MOST_STOPS 64u
#define MOST_STOP_BYTES 4096u
#define MOST_SALT_BYTES 1024u
#define LONGEST_REPEAT (1 << 20)

static cellar_status no_memory(cellar_error *error)
{
    return report(error, CELLAR_NO_MEMORY, -1, "no memory for a request");
}

/* ---- sampling ------------------------------------------------------------------------------- */

static void read_sampling(const server *s, fields *f, job_request *out)
{
    sampler_options *o = &out->sampling;
    int64_t top_k = o->top_k, repeat_last = o->repeat_last, seed = s->seed;
    fields_number(f, "temperature", &o->temperature, 0, 1e6);
    fields_integer(f, "top_k", &top_k, -1, INT32_MAX);
    fields_number(f, "top_p", &o->top_p, 0, 1);
    fields_number(f, "min_p", &o->min_p, 0, 1);
    fields_number(f, "repeat_penalty", &o->repeat_penalty, 1e-3, 1e3);
    fields_integer(f, "repeat_last_n", &repeat_last, -1, LONGEST_REPEAT);
    fields_integer(f, "seed", &seed, INT64_MIN, INT64_MAX);
    fields_number(f, "presence_penalty", &out->presence_penalty, -100, 100);
    fields_number(f, "frequency_penalty", &out->frequency_penalty, -100, 100);
    o->top_k = top_k > 0 ? (uint32_t)top_k : 0;
    o->top_p = o->top_p > 1e-6 ? o->top_p : 1e-6; /* the likeliest alone */
    o->repeat_last = repeat_last < 0
                         ? (s->n_context < LONGEST_REPEAT ? s->n_context : LONGEST_REPEAT)
                         : (uint32_t)repeat_last;
    o->seed = seed == -1 ? server_fresh_seed() : (uint64_t)seed;
}

/* A pair of a token and its bias; false in the place of a bias: never. */
static void add_bias(const server *s, fields *f, int64_t token, const json_t *bias,
                     job_request *out)
{
    const double value = json_is_false(bias) ? -INFINITY : json_number_value(bias);
    if ((!json_is_number(bias) && !json_is_false(bias)) || token < 0 ||
        token >= (int64_t)engine_model(s->engine)->n_vocab) {
        fields_wrong(f, "logit_bias", "tokens of the model, each with a number or false");
        return;
    }
    out->biases[out->n_biases++] = (job_bias){(cellar_token)token, (float)value};
}

/* {"id": bias, ...} or [[id, bias], ...] */
static cellar_status read_biases(const server *s, fields *f, job_request *out, cellar_error *error)
{
    const json_t *list = fields_get(f, "logit_bias");
    if (list != NULL && !json_is_object(list) && !json_is_array(list)) {
        fields_wrong(f, "logit_bias", "an object or a list, found %s", fields_kind(list));
        return CELLAR_OK;
    }
    const size_t n = json_is_object(list) ? json_object_size(list) : json_array_size(list);
    if (n == 0) {
        return CELLAR_OK;
    }
    out->biases = calloc(n, sizeof *out->biases);
    if (out->biases == NULL) {
        return no_memory(error);
    }
    for (size_t i = 0; json_is_array(list) && i < n && !f->is_wrong; i++) {
        const json_t *pair = json_array_get(list, i);
        const json_t *token = json_array_get(pair, 0);
        add_bias(s, f, json_is_integer(token) ? json_integer_value(token) : -1,
                 json_array_get(pair, 1), out);
    }
    void *object = (void *)(uintptr_t)list; /* jansson's iterators are not const */
    for (void *at = json_is_object(list) ? json_object_iter(object) : NULL;
         at != NULL && !f->is_wrong; at = json_object_iter_next(object, at)) {
        char *end;
        const char *key = json_object_iter_key(at);
        const long long token = strtoll(key, &end, 10);
        add_bias(s, f, *key != '\0' && *end == '\0' ? token : -1, json_object_iter_value(at), out);
    }
    return CELLAR_OK;
}

/* ---- stops ---------------------------------------------------------------------------------- */

static cellar_status add_stop(job_request *out, const char *stop, cellar_error *error)
{
    if (*stop == '\0') {
        return CELLAR_OK;
    }
    char **larger = realloc(out->stops, (out->n_stops + 1) * sizeof *larger);
    if (larger == NULL) {
        return no_memory(error);
    }
    out->stops = larger;
    larger[out->n_stops] = strdup(stop);
    if (larger[out->n_stops] == NULL) {
        return no_memory(error);
    }
    out->n_stops++;
    return CELLAR_OK;
}

cellar_status completion_request_stops(fields *f, const char *name, job_request *out,
                                       cellar_error *error)
{
    const json_t *stops = fields_get(f, name);
    const bool is_list = json_is_array(stops);
    const size_t n = stops == NULL ? 0 : is_list ? json_array_size(stops) : 1;
    cellar_status status = CELLAR_OK;
    if (n > MOST_STOPS) {
        fields_wrong(f, name, "at most %u texts, found %zu", MOST_STOPS, n);
        return CELLAR_OK;
    }
    for (size_t i = 0; status == CELLAR_OK && i < n; i++) {
        const json_t *its = is_list ? json_array_get(stops, i) : stops;
        if (!json_is_string(its)) {
            fields_wrong(f, name, "a text or a list of texts, found %s%s",
                         is_list ? "a list with " : "", fields_kind(its));
        } else if (json_string_length(its) > MOST_STOP_BYTES) {
            fields_wrong(f, name, "texts of at most %u bytes", MOST_STOP_BYTES);
        } else {
            status = add_stop(out, json_string_value(its), error);
        }
    }
    return status;
}

/* ---- what cannot be done -------------------------------------------------------------------- */

static void refuse_unsupported(fields *f)
{
    static const char *const unsupported[] = {"grammar", "json_schema"};
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++) {
        const json_t *its = fields_get(f, unsupported[i]);
        if (its != NULL && !(json_is_string(its) && json_string_length(its) == 0)) {
            fields_wrong(f, unsupported[i],
                         "nothing: this server does not constrain what is written");
        }
    }
    const json_t *format = fields_object(f, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format != NULL && (type == NULL || strcmp(type, "text") != 0)) {
        fields_wrong(f, "response_format",
                     "the type \"text\": this server does not constrain what is written");
    }
    if (json_array_size(fields_array(f, "lora")) > 0) {
        fields_wrong(f, "lora", "an empty list: this server has no adapters");
    }
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void read_limits(const server *s, fields *f, job_request *out)
{
    int64_t limit = s->n_predict, slot = -1, n = 1, ignored = 0;
    fields_integer(f, "n_predict", &limit, -1, INT32_MAX);
    fields_integer(f, "max_tokens", &limit, -1, INT32_MAX);
    fields_integer(f, "max_completion_tokens", &limit, -1, INT32_MAX);
    fields_integer(f, "id_slot", &slot, -1, (int64_t)s->n_slots - 1);
    fields_integer(f, "n", &n, 1, JOB_MOST_CHOICES);
    /* Nothing is ever shifted out of a context here; the ranges hold all the same. */
    fields_integer(f, "n_keep", &ignored, -1, INT32_MAX);
    fields_integer(f, "n_discard", &ignored, 0, INT32_MAX);
    out->n_limit = limit < 0 ? UINT64_MAX : (uint64_t)limit;
    out->slot = slot;
    out->n_choices = (uint32_t)n;
}

static void read_wishes(fields *f, job_request *out, completion_wishes *wishes)
{
    bool caches = true;
    fields_flag(f, "stream", &wishes->is_stream);
    fields_flag(f, "cache_prompt", &caches);
    fields_flag(f, "ignore_eos", &out->ignore_end);
    fields_flag(f, "return_progress", &out->tells_progress);
    fields_flag(f, "timings_per_token", &wishes->tells_each_timing);
    fields_flag(f, "return_tokens", &wishes->wants_tokens);
    fields its = fields_of(fields_object(f, "stream_options"));
    its.within = "stream_options.";
    fields_flag(&its, "include_usage", &wishes->includes_usage);
    if (its.is_wrong && !f->is_wrong) {
        its.object = f->object;
        *f = its;
    }
    out->starts_cold = !caches;
    out->tells_progress = out->tells_progress && wishes->is_stream;
}

/* Whose memory it is: the key's; and the salt of the request. */
static cellar_status read_owner(const http_request *request, fields *f, job_request *out,
                                cellar_error *error)
{
    const json_t *salt = fields_text(f, "cache_salt");
    if (json_string_length(salt) > MOST_SALT_BYTES) {
        fields_wrong(f, "cache_salt", "at most %u bytes", MOST_SALT_BYTES);
        salt = NULL;
    }
    char owner[SERVER_OWNER_BYTES];
    server_owner(request, owner);
    out->owner = strdup(owner);
    out->salt = salt != NULL ? strdup(json_string_value(salt)) : NULL;
    return out->owner == NULL || (salt != NULL && out->salt == NULL) ? no_memory(error) : CELLAR_OK;
}

cellar_status completion_request_read(server *s, const http_request *request, fields *f,
                                      job_request *out, completion_wishes *wishes,
                                      cellar_error *error)
{
    *out = (job_request){.sampling = s->sampling, .n_top = -1};
    *wishes = (completion_wishes){.is_stream = false};
    out->client = http_client(request);
    read_sampling(s, f, out);
    read_limits(s, f, out);
    read_wishes(f, out, wishes);
    refuse_unsupported(f);
    cellar_status status = read_owner(request, f, out, error);
    if (status == CELLAR_OK) {
        status = read_biases(s, f, out, error);
    }
    return status == CELLAR_OK ? completion_request_stops(f, "stop", out, error) : status;
}

/* ---- prompts -------------------------------------------------------------------------------- */

/* A prompt that grows. */
typedef struct token_list {
    job_request *out;
    size_t capacity;
} token_list;

static cellar_status add_tokens(token_list *list, const cellar_token *tokens, size_t n,
                                cellar_error *error)
{
    job_request *out = list->out;
    if (n > list->capacity - out->n_prompt) {
        const size_t capacity = 2 * list->capacity + n;
        cellar_token *larger = realloc(out->prompt, capacity * sizeof *larger);
        if (larger == NULL) {
            return no_memory(error);
        }
        out->prompt = larger;
        list->capacity = capacity;
    }
    memcpy(out->prompt + out->n_prompt, tokens, n * sizeof *tokens);
    out->n_prompt += n;
    return CELLAR_OK;
}

static cellar_status add_text(const server *s, const json_t *text, bool is_first, token_list *list,
                              cellar_error *error)
{
    cellar_token *tokens = NULL;
    size_t n = 0;
    const tokenize_options how = {
        .add_special = is_first, .parse_special = true, .continues_text = !is_first};
    cellar_status status = tokenizer_encode(s->tokenizer, json_string_value(text),
                                            json_string_length(text), how, &tokens, &n, error);
    if (status == CELLAR_OK && n > 0) {
        status = add_tokens(list, tokens, n, error);
    }
    free(tokens);
    return status;
}

static cellar_status add_number(const server *s, fields *f, const char *name, const json_t *number,
                                token_list *list, cellar_error *error)
{
    const json_int_t id = json_integer_value(number);
    if (id < 0 || id >= (json_int_t)engine_model(s->engine)->n_vocab) {
        fields_wrong(f, name, "tokens below %" PRIu32 ", found %lld",
                     engine_model(s->engine)->n_vocab, (long long)id);
        return CELLAR_OK;
    }
    const cellar_token token = (cellar_token)id;
    return add_tokens(list, &token, 1, error);
}

/* Add what one prompt says to the list. */
static cellar_status add_prompt(const server *s, fields *f, const char *name, const json_t *prompt,
                                token_list *list, cellar_error *error)
{
    cellar_status status = CELLAR_OK;
    const bool is_list = json_is_array(prompt);
    const size_t n = is_list ? json_array_size(prompt) : 1, n_before = list->out->n_prompt;
    for (size_t i = 0; status == CELLAR_OK && !f->is_wrong && i < n; i++) {
        const json_t *its = is_list ? json_array_get(prompt, i) : prompt;
        if (json_is_string(its)) {
            status = add_text(s, its, i == 0, list, error);
        } else if (is_list && json_is_integer(its)) {
            status = add_number(s, f, name, its, list, error);
        } else {
            fields_wrong(f, name, "a text or a list of tokens, found %s",
                         its != NULL ? fields_kind(its) : "nothing");
        }
    }
    if (status == CELLAR_OK && !f->is_wrong && list->out->n_prompt == n_before) {
        fields_wrong(f, name, "something to read: it has no tokens");
    }
    return status;
}

static bool is_empty_text(const json_t *prompt)
{
    return json_is_string(prompt) && json_string_length(prompt) == 0;
}

cellar_status completion_request_prompt(const server *s, fields *f, const char *name,
                                        const json_t *prompt, job_request *out, cellar_error *error)
{
    token_list list = {.out = out};
    out->is_text_start = is_empty_text(prompt);
    return add_prompt(s, f, name, prompt, &list, error);
}

/* Texts alone, or lists among them, ask for an answer to each; texts among numbers are pieces of one prompt. */
static bool is_several(const json_t *prompt)
{
    const size_t n = json_array_size(prompt);
    size_t n_texts = 0, n_lists = 0;
    for (size_t i = 0; i < n; i++) {
        n_texts += json_is_string(json_array_get(prompt, i));
        n_lists += json_is_array(json_array_get(prompt, i));
    }
    return n_lists > 0 || (n > 1 && n_texts == n);
}

cellar_status completion_request_prompts(const server *s, fields *f, const char *name,
                                         job_request *out, cellar_error *error)
{
    const json_t *all = fields_get(f, name);
    if (!is_several(all)) {
        return completion_request_prompt(s, f, name, all, out, error);
    }
    const size_t n = json_array_size(all);
    if (n * out->n_choices > JOB_MOST_CHOICES) {
        fields_wrong(f, name, "at most %u answers, and %zu prompts with %" PRIu32 " each are more",
                     JOB_MOST_CHOICES, n, out->n_choices);
        return CELLAR_OK;
    }
    out->prompts = calloc(n, sizeof *out->prompts);
    token_list list = {.out = out};
    cellar_status status = out->prompts != NULL ? CELLAR_OK : no_memory(error);
    for (size_t i = 0; status == CELLAR_OK && !f->is_wrong && i < n; i++) {
        const json_t *its = json_array_get(all, i);
        const size_t n_before = out->n_prompt;
        status = add_prompt(s, f, name, its, &list, error);
        out->prompts[i] = (job_prompt){.n = out->n_prompt - n_before,
                                       .index = (uint32_t)i,
                                       .is_text_start = is_empty_text(its)};
    }
    /* Only now does the list stay where it is. */
    const cellar_token *at = out->prompt;
    for (size_t i = 0; status == CELLAR_OK && !f->is_wrong && i < n; i++) {
        out->prompts[i].tokens = at;
        at += out->prompts[i].n;
    }
    out->n_prompts = (uint32_t)n;
    out->n_choices *= (uint32_t)n;
    return status;
}
