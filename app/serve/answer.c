/*
 * answer.c: from the pieces of a job to the bytes of a reply, for answer.h.
 *
 * Both ways take the same events; a whole answer gathers them, a stream says them as they come. What is
 * gathered for a stream is what its end repeats. Without memory an answer ends as an error.
 */
#include "serve/answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report.h"

/* ---- room ----------------------------------------------------------------------------------- */

static void add_bytes(answer *a, char **to, size_t *n, size_t *capacity, const void *bytes,
                      size_t size)
{
    if (size > *capacity - *n) {
        const size_t larger_by = *capacity + size + 256;
        char *larger = realloc(*to, *capacity + larger_by);
        if (larger == NULL) {
            a->is_out_of_memory = true;
            return;
        }
        *to = larger;
        *capacity += larger_by;
    }
    if (size > 0) {
        memcpy(*to + *n, bytes, size);
        *n += size;
    }
}

static void write_out(answer *a, const char *bytes, size_t n)
{
    add_bytes(a, &a->out, &a->n_out, &a->out_capacity, bytes, n);
}

void answer_say(answer *a, json_t *event)
{
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(9));
    const char *type = json_string_value(json_object_get(event, "type"));
    a->is_out_of_memory = a->is_out_of_memory || text == NULL;
    if (text != NULL) {
        if (a->format->names_events && type != NULL) {
            write_out(a, "event: ", 7);
            write_out(a, type, strlen(type));
            write_out(a, "\n", 1);
        }
        write_out(a, "data: ", 6);
        write_out(a, text, strlen(text));
        write_out(a, "\n\n", 2);
    }
    free(text);
    json_decref(event);
}

static void destroy(answer *a)
{
    if (a == NULL) {
        return;
    }
    for (uint32_t i = 0; a->choices != NULL && i < a->n_choices; i++) {
        free(a->choices[i].text);
        free(a->choices[i].tokens);
        json_decref(a->choices[i].probabilities);
        json_decref(a->choices[i].more);
    }
    free(a->choices);
    free(a->out);
    json_decref(a->echo);
    job_release(a->job);
    free(a);
}

/* ---- what comes ----------------------------------------------------------------------------- */

static void gather(answer *a, const job_piece *piece)
{
    answer_choice *c = &a->choices[piece->choice];
    add_bytes(a, &c->text, &c->n_text, &c->capacity, piece->text, piece->n_text);
    if (piece->token >= 0) {
        if (c->n_tokens == c->tokens_capacity) {
            const size_t capacity = 2 * c->tokens_capacity + 64;
            cellar_token *larger = realloc(c->tokens, capacity * sizeof *larger);
            a->is_out_of_memory = a->is_out_of_memory || larger == NULL;
            if (larger == NULL) {
                return;
            }
            c->tokens = larger;
            c->tokens_capacity = capacity;
        }
        c->tokens[c->n_tokens++] = piece->token;
    }
}

/* Take one event; false: the client went away. */
static bool take(answer *a, bool is_stream)
{
    job_piece *piece = NULL;
    uint32_t choice = 0;
    switch (job_next(a->job, http_socket(a->request), &piece, &choice)) {
    case JOB_PIECE:
        if (!piece->is_progress) {
            gather(a, piece);
        }
        if (a->format->piece != NULL) {
            a->format->piece(a, piece);
        }
        free(piece);
        return true;
    case JOB_CHOICE_ENDS:
        a->choices[choice].report = job_look(a->job, choice);
        a->choices[choice].has_ended = true;
        if (is_stream && a->format->choice_ends != NULL) {
            a->format->choice_ends(a, choice);
        }
        return true;
    case JOB_ALL_ENDED:
        a->is_over = true;
        return true;
    case JOB_CLIENT_GONE:
        break;
    }
    job_cancel(a->job);
    http_reply_error(a->request, 499, "client_closed_request", NULL, NULL,
                     "the client went away"); /* for the log: nobody will read it */
    return false;
}

/* The report of a choice that failed; NULL: none did. */
static const job_report *failure(const answer *a)
{
    for (uint32_t i = 0; i < a->n_choices; i++) {
        const job_report *its = &a->choices[i].report;
        if (a->choices[i].has_ended &&
            (its->finish == JOB_FAILED || its->finish == JOB_CANCELLED)) {
            return its;
        }
    }
    return NULL;
}

/* ---- figures -------------------------------------------------------------------------------- */

static uint64_t count_written(const answer *a)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < a->n_choices; i++) {
        n += a->choices[i].has_ended ? a->choices[i].report.n_written : a->choices[i].n_tokens;
    }
    return n;
}

/*
 * How the whole request stands: of one prompt what its first choice says, and of several the sums, with the reason
 * and the times of the first.
 */
static job_report look_at_all(const answer *a)
{
    const job_request *r = &a->job->request;
    job_report all = job_look(a->job, 0);
    for (uint32_t i = 1; i < a->n_choices; i++) {
        if (job_choice_of_prompt(r, i) == 0) {
            const job_report its = job_look(a->job, i);
            all.n_reusable += its.n_reusable;
            all.n_reused += its.n_reused;
            all.n_written += its.n_written;
            all.n_set_aside += its.n_set_aside;
        }
    }
    return all;
}

json_t *answer_usage(const answer *a)
{
    const job_report its = look_at_all(a);
    const json_int_t n_prompt = (json_int_t)a->job->request.n_prompt,
                     n_written = (json_int_t)count_written(a);
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", n_prompt, "completion_tokens",
                     n_written, "total_tokens", n_prompt + n_written, "prompt_tokens_details",
                     "cached_tokens", (json_int_t)its.n_reused);
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

json_t *answer_timings(const answer *a)
{
    const job_report its = look_at_all(a);
    const double n_read = (double)(a->job->request.n_prompt - its.n_reused),
                 read_ms = its.read_seconds * 1e3, n_written = (double)its.n_written,
                 write_ms = its.write_seconds * 1e3;
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n",
                     (json_int_t)its.n_reused, "prompt_n", (json_int_t)n_read, "prompt_ms", read_ms,
                     "prompt_per_token_ms", per(read_ms, n_read), "prompt_per_second",
                     per(n_read, its.read_seconds), "predicted_n", (json_int_t)its.n_written,
                     "predicted_ms", write_ms, "predicted_per_token_ms", per(write_ms, n_written),
                     "predicted_per_second", per(n_written, its.write_seconds));
}

json_t *answer_reuse(const answer *a)
{
    const job_report its = look_at_all(a);
    const job_prompt prompt = job_prompt_of(&a->job->request, 0);
    json_t *made = json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:I}", "reusable",
                             (json_int_t)its.n_reusable, "reused", (json_int_t)its.n_reused,
                             "source", job_source_name(its.source), "reason", its.reason,
                             "set_aside", (json_int_t)its.n_set_aside, "id_slot",
                             (json_int_t)its.slot, "conversation", (json_int_t)its.conversation);
    if (its.diverged_at >= 0) {
        const size_t at = (size_t)its.diverged_at, n = prompt.n - at < 8 ? prompt.n - at : 8;
        (void)!json_object_set_new(made, "diverged_at", json_integer(its.diverged_at));
        (void)!json_object_set_new(made, "diverged_text",
                                   server_text_of(a->server, prompt.tokens + at, n));
    }
    return made;
}

void answer_add_figures(const answer *a, json_t *to)
{
    (void)!json_object_set_new(to, "timings", answer_timings(a));
    (void)!json_object_set_new(to, "cellar", answer_reuse(a));
}

static bool have_all_ended(const answer *a)
{
    for (uint32_t i = 0; i < a->n_choices; i++) {
        if (!a->choices[i].has_ended) {
            return false;
        }
    }
    return true;
}

void answer_say_end(answer *a, json_t *event)
{
    if (have_all_ended(a) && !a->wishes.includes_usage) {
        answer_add_figures(a, event);
    }
    answer_say(a, event);
}

void answer_say_usage(answer *a, json_t *event)
{
    (void)!json_object_set_new(event, "choices", json_array());
    (void)!json_object_set_new(event, "usage", answer_usage(a));
    answer_add_figures(a, event);
    answer_say(a, event);
}

static void note_figures(answer *a)
{
    const job_report its = look_at_all(a);
    http_note(a->request,
              "prompt %zu, reused %zu (%s%s), written %" PRIu64 ", waited %.0f ms, read %.0f ms, "
              "wrote %.0f ms",
              a->job->request.n_prompt, its.n_reused, its.reason,
              its.n_set_aside > 0 ? ", set aside" : "", count_written(a), its.wait_seconds * 1e3,
              its.read_seconds * 1e3, its.write_seconds * 1e3);
}

/* ---- parts of what formats say -------------------------------------------------------------- */

json_t *answer_text_of(const answer_choice *c)
{
    return json_stringn(c->n_text > 0 ? c->text : "", c->n_text);
}

json_t *answer_piece_text(const job_piece *piece)
{
    return json_stringn(piece->text, piece->n_text);
}

const char *answer_finish_reason(const job_report *its)
{
    return its->finish == JOB_END_OF_TEXT || its->finish == JOB_STOP_TEXT ? "stop" : "length";
}

static json_t *probability(const answer *a, cellar_token token, float logprob)
{
    /* JSON has no infinity. */
    json_t *made = json_pack("{s:I, s:f}", "id", (json_int_t)token, "logprob",
                             (double)(logprob > -1e9f ? logprob : -1e9f));
    server_describe_token(a->server, token, made);
    return made;
}

json_t *answer_probability(const answer *a, const job_piece *piece, const char *top_name)
{
    json_t *made = probability(a, piece->token, piece->logprob);
    json_t *top = json_array();
    for (uint32_t i = 0; i < piece->n_top; i++) {
        (void)!json_array_append_new(top,
                                     probability(a, piece->top[i].token, piece->top[i].logprob));
    }
    (void)!json_object_set_new(made, top_name, top);
    return made;
}

/* ---- replies -------------------------------------------------------------------------------- */

static void reply_failure(answer *a, const job_report *its)
{
    if (its->finish == JOB_CANCELLED) {
        http_reply_error(a->request, 503, "unavailable_error", NULL, NULL,
                         "the server is stopping");
    } else if (its->error.status == CELLAR_FULL) {
        http_reply_error(a->request, 400, "exceed_context_size_error", NULL,
                         json_pack("{s:I, s:I}", "n_prompt_tokens",
                                   (json_int_t)a->job->request.n_prompt, "n_ctx",
                                   (json_int_t)a->server->n_context),
                         "%s", its->error.message);
    } else {
        server_reply_status(a->request, its->error.status, &its->error);
    }
}

static void say_failure(answer *a, const job_report *its)
{
    const bool is_stop = its->finish == JOB_CANCELLED;
    answer_say(a, json_pack("{s:s, s:{s:i, s:s, s:s}}", "type", "error", "error", "code",
                            is_stop ? 503 : 500, "message",
                            is_stop ? "the server is stopping" : its->error.message, "type",
                            is_stop ? "unavailable_error" : "server_error"));
}

/* Everything was taken: the last words of a stream. */
static void say_end(answer *a)
{
    const job_report *failed = failure(a);
    if (failed != NULL) {
        say_failure(a, failed);
    } else if (a->format->end != NULL) {
        a->format->end(a);
    }
    if (a->format->last_line != NULL) {
        write_out(a, a->format->last_line, strlen(a->format->last_line));
    }
    note_figures(a);
}

/* The next part of a stream. */
static bool next_part(void *context, const char **bytes, size_t *n)
{
    answer *a = context;
    static const char nothing[] = "";
    bool is_there = true;
    *bytes = nothing;
    *n = 0;
    while (a->n_out == 0 && !a->is_over && is_there && !a->is_out_of_memory) {
        is_there = take(a, true);
        if (a->is_over) {
            say_end(a);
        }
    }
    if (!is_there || a->is_out_of_memory) {
        job_cancel(a->job);
        return true; /* cut */
    }
    if (a->n_out == 0) {
        return false;
    }
    /* What is handed out stays valid until the next call; only then is the buffer used again. */
    *bytes = a->out;
    *n = a->n_out;
    a->n_out = 0;
    return true;
}

static void end_stream(void *context)
{
    answer *a = context;
    job_cancel(a->job); /* if it is still there: nobody listens */
    destroy(a);
}

static void reply_stream(answer *a)
{
    if (a->format->begin != NULL) {
        a->format->begin(a);
    }
    const size_t n_begin = a->n_out;
    /* The first event decides whether this is a stream at all. */
    bool is_there = true;
    while (is_there && a->n_out == n_begin && !a->is_over && failure(a) == NULL) {
        is_there = take(a, true);
    }
    const job_report *failed = failure(a);
    if (!is_there) {
        destroy(a);
    } else if (failed != NULL && count_written(a) == 0) {
        reply_failure(a, failed);
        end_stream(a);
    } else {
        if (a->is_over) {
            say_end(a);
        }
        http_reply_stream(a->request, "text/event-stream; charset=utf-8", next_part, end_stream, a);
    }
}

static void reply_whole(answer *a)
{
    while (!a->is_over) {
        if (!take(a, false)) {
            destroy(a);
            return;
        }
    }
    const job_report *failed = failure(a);
    if (failed != NULL) {
        reply_failure(a, failed);
    } else {
        json_t *whole = a->is_out_of_memory ? NULL : a->format->whole(a);
        note_figures(a);
        http_reply_json(a->request, 200, whole);
    }
    destroy(a);
}

/* ---- making it ------------------------------------------------------------------------------ */

static void reply_too_long(http_request *request, size_t n_prompt, uint32_t n_context)
{
    http_reply_error(request, 400, "exceed_context_size_error", NULL,
                     json_pack("{s:I, s:I}", "n_prompt_tokens", (json_int_t)n_prompt, "n_ctx",
                               (json_int_t)n_context),
                     "request (%zu tokens) exceeds the available context size (%" PRIu32
                     " tokens), try increasing it",
                     n_prompt, n_context);
}

void answer_make(server *s, http_request *request, const answer_format *format, job_request *asked,
                 const completion_wishes *wishes, json_t *echo)
{
    cellar_error error = {.status = CELLAR_OK};
    const size_t n_prompt = job_longest_prompt(asked);
    answer *a = calloc(1, sizeof *a);
    if (a == NULL || n_prompt > s->n_context) {
        job_request_free(asked);
        json_decref(echo);
        if (a != NULL) {
            reply_too_long(request, n_prompt, s->n_context);
        }
        free(a);
        return;
    }
    a->server = s;
    a->format = format;
    a->request = request;
    a->wishes = *wishes;
    a->echo = echo;
    a->created = (int64_t)time(NULL);
    a->n_choices = asked->n_choices;
    a->choices = calloc(a->n_choices, sizeof *a->choices);
    server_new_id(s, format->id_prefix, a->id);
    cellar_status status = a->choices != NULL
                               ? job_create(asked, &a->job, &error)
                               : report(&error, CELLAR_NO_MEMORY, -1, "no memory for an answer");
    if (status == CELLAR_OK) {
        status = scheduler_submit(s->scheduler, a->job, &error);
    }
    if (status != CELLAR_OK) {
        job_request_free(asked);
        server_reply_status(request, status, &error);
        destroy(a);
    } else if (a->wishes.is_stream) {
        reply_stream(a);
    } else {
        reply_whole(a);
    }
}
