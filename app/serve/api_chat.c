/*
 * api_chat.c: /v1/chat/completions in the words of OpenAI, and how many tokens a conversation has.
 *
 * Tools are shown to the model by its template; what it writes about them comes back as the content of its
 * message. The last chunk before the end tells figures; with stream_options.include_usage it is one with no
 * choices and the usage.
 */
#include <stdlib.h>

#include "serve/answer.h"
#include "serve/conversation_request.h"

#define MOST_TOP 20

/* ---- words ---------------------------------------------------------------------------------- */

static json_t *head(const answer *a, const char *object)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", a->id, "object", object, "created",
                     (json_int_t)a->created, "model", a->server->model_name, "system_fingerprint",
                     json_sprintf("cellar-%s", cellar_version()));
}

/* An event with one choice; delta and logprobs (may be NULL) are taken over. */
static json_t *chunk(const answer *a, uint32_t choice, json_t *delta, json_t *logprobs,
                     const char *finish)
{
    json_t *event = head(a, "chat.completion.chunk");
    json_t *its = json_pack("{s:I, s:o, s:o, s:o}", "index", (json_int_t)choice, "delta", delta,
                            "logprobs", logprobs != NULL ? logprobs : json_null(), "finish_reason",
                            finish != NULL ? json_string(finish) : json_null());
    (void)!json_object_set_new(event, "choices", json_pack("[o]", its));
    return event;
}

static void say_begin(answer *a, uint32_t choice)
{
    if (!a->choices[choice].has_begun) {
        a->choices[choice].has_begun = true;
        answer_say(a, chunk(a, choice, json_pack("{s:s, s:s}", "role", "assistant", "content", ""),
                            NULL, NULL));
    }
}

static void say_progress(answer *a, const job_piece *piece)
{
    const job_report its = job_look(a->job, piece->choice);
    json_t *event = chunk(a, piece->choice, json_object(), NULL, NULL);
    (void)!json_object_set_new(
        event, "prompt_progress",
        json_pack("{s:I, s:I, s:I, s:f}", "total", (json_int_t)a->job->request.n_prompt, "cache",
                  (json_int_t)its.n_reused, "processed", (json_int_t)piece->n_read, "time_ms",
                  (job_now() - a->job->made - its.wait_seconds) * 1e3));
    answer_say(a, event);
}

static void chat_piece(answer *a, const job_piece *piece)
{
    json_t *logprobs = NULL;
    answer_choice *c = &a->choices[piece->choice];
    if (a->job->request.n_top >= 0 && piece->token >= 0 && !piece->is_progress) {
        logprobs = answer_probability(a, piece, "top_logprobs");
    }
    if (!a->wishes.is_stream) {
        if (logprobs != NULL) {
            c->probabilities = c->probabilities != NULL ? c->probabilities : json_array();
            (void)!json_array_append_new(c->probabilities, logprobs);
        }
        return;
    }
    say_begin(a, piece->choice);
    if (piece->is_progress) {
        say_progress(a, piece);
    } else if (piece->n_text > 0 || logprobs != NULL) {
        json_t *lists = logprobs != NULL ? json_pack("{s:[o]}", "content", logprobs) : NULL;
        json_t *event = chunk(a, piece->choice,
                              json_pack("{s:o}", "content", answer_piece_text(piece)), lists, NULL);
        if (a->wishes.tells_each_timing) {
            (void)!json_object_set_new(event, "timings", answer_timings(a));
        }
        answer_say(a, event);
    }
}

static void chat_choice_ends(answer *a, uint32_t choice)
{
    const job_report *its = &a->choices[choice].report;
    if (its->finish == JOB_FAILED || its->finish == JOB_CANCELLED) {
        return;
    }
    say_begin(a, choice);
    json_t *event = chunk(a, choice, json_object(), NULL, answer_finish_reason(its));
    answer_say_end(a, event);
}

static void chat_end(answer *a)
{
    if (a->wishes.includes_usage) {
        answer_say_usage(a, head(a, "chat.completion.chunk"));
    }
}

static json_t *chat_whole(answer *a)
{
    json_t *made = head(a, "chat.completion"), *choices = json_array();
    for (uint32_t i = 0; i < a->n_choices; i++) {
        const answer_choice *c = &a->choices[i];
        json_t *logprobs = c->probabilities != NULL
                               ? json_pack("{s:O}", "content", c->probabilities)
                               : json_null();
        (void)!json_array_append_new(
            choices, json_pack("{s:I, s:{s:s, s:o}, s:o, s:s}", "index", (json_int_t)i, "message",
                               "role", "assistant", "content", answer_text_of(c), "logprobs",
                               logprobs, "finish_reason", answer_finish_reason(&c->report)));
    }
    (void)!json_object_set_new(made, "choices", choices);
    (void)!json_object_set_new(made, "usage", answer_usage(a));
    answer_add_figures(a, made);
    return made;
}

static const answer_format chat_format = {
    .id_prefix = "chatcmpl-",
    .last_line = "data: [DONE]\n\n",
    .piece = chat_piece,
    .choice_ends = chat_choice_ends,
    .end = chat_end,
    .whole = chat_whole,
};

/* ---- endpoints ------------------------------------------------------------------------------ */

/* "logprobs": true and "top_logprobs": n */
static void read_probabilities(fields *f, job_request *asked)
{
    bool tells = false;
    int64_t n_top = 0;
    fields_flag(f, "logprobs", &tells);
    fields_integer(f, "top_logprobs", &n_top, 0, MOST_TOP);
    asked->n_top = tells ? (int32_t)n_top : -1;
}

void api_chat_completions(server *s, http_request *request)
{
    json_t *body = server_read_body(request);
    if (body == NULL) {
        return;
    }
    fields f = fields_of(body);
    job_request asked;
    completion_wishes wishes;
    conversation_request talk = {.messages = NULL};
    cellar_error error = {.status = CELLAR_OK};
    cellar_status status = completion_request_read(s, request, &f, &asked, &wishes, &error);
    read_probabilities(&f, &asked);
    if (status == CELLAR_OK) {
        status = conversation_request_read(&f, &talk, &error);
    }
    if (status == CELLAR_OK && !f.is_wrong) {
        status = conversation_request_ask(s, &talk, &asked, &error);
    }
    if (server_refuse_fields(request, &f)) {
        job_request_free(&asked);
    } else if (status != CELLAR_OK) {
        server_reply_status(request, status, &error);
        job_request_free(&asked);
    } else {
        answer_make(s, request, &chat_format, &asked, &wishes, NULL);
    }
    conversation_request_free(&talk);
    json_decref(body);
}

/* Read the messages of a body; false: the reply says what is wrong. */
static bool read_talk(http_request *request, json_t *body, conversation_request *talk)
{
    fields f = fields_of(body);
    cellar_error error = {.status = CELLAR_OK};
    const cellar_status status = conversation_request_read(&f, talk, &error);
    if (server_refuse_fields(request, &f)) {
        return false;
    }
    if (status != CELLAR_OK) {
        server_reply_status(request, status, &error);
    }
    return status == CELLAR_OK;
}

void api_apply_template(server *s, http_request *request)
{
    json_t *body = server_read_body(request);
    conversation_request talk = {.messages = NULL};
    if (body != NULL && read_talk(request, body, &talk)) {
        char *text = NULL;
        size_t n = 0;
        cellar_error error = {.status = CELLAR_OK};
        const cellar_status status = conversation_request_show(s, &talk, &text, &n, &error);
        if (status == CELLAR_OK) {
            http_reply_json(request, 200, json_pack("{s:o}", "prompt", json_stringn(text, n)));
        } else {
            server_reply_status(request, status, &error);
        }
        free(text);
    }
    conversation_request_free(&talk);
    json_decref(body);
}

void api_count_chat(server *s, http_request *request)
{
    json_t *body = server_read_body(request);
    conversation_request talk = {.messages = NULL};
    if (body != NULL && read_talk(request, body, &talk)) {
        cellar_token *tokens = NULL;
        size_t n = 0;
        bool is_start;
        cellar_error error = {.status = CELLAR_OK};
        const cellar_status status = conversation_request_tokens(s, &talk, &tokens, &n, &is_start,
                                                                 &error);
        if (status == CELLAR_OK) {
            http_reply_json(request, 200,
                            json_pack("{s:s, s:I}", "object", "response.input_tokens",
                                      "input_tokens", (json_int_t)n));
        } else {
            server_reply_status(request, status, &error);
        }
        free(tokens);
    }
    conversation_request_free(&talk);
    json_decref(body);
}
