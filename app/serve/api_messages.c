/*
 * api_messages.c: /v1/messages in the words of Anthropic, and how many tokens such a conversation has.
 *
 * The differences that matter: the system's words stand beside the messages; input_tokens are those that were
 * computed, and what was taken over is counted beside them (cache_read_input_tokens); a stream is a sequence
 * of named events. cache_control in a block is accepted and not needed: everything is kept as long as there is room.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/answer.h"
#include "serve/conversation_request.h"

/* ---- words ---------------------------------------------------------------------------------- */

static json_t *usage_of(const answer *a)
{
    const job_report its = job_look(a->job, 0);
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens",
                     (json_int_t)(a->job->request.n_prompt - its.n_reused),
                     "cache_creation_input_tokens", (json_int_t)0, "cache_read_input_tokens",
                     (json_int_t)its.n_reused, "output_tokens", (json_int_t)its.n_written);
}

static const char *stop_reason(const job_report *its)
{
    return its->finish == JOB_END_OF_TEXT ? "end_turn"
           : its->finish == JOB_STOP_TEXT ? "stop_sequence"
                                          : "max_tokens";
}

static json_t *stop_sequence(const job_report *its)
{
    return its->stop != NULL ? json_string(its->stop) : json_null();
}

static json_t *message_of(const answer *a, json_t *content, json_t *reason, json_t *sequence)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", a->id, "type", "message",
                     "role", "assistant", "model", a->server->model_name, "content", content,
                     "stop_reason", reason, "stop_sequence", sequence, "usage", usage_of(a));
}

static void say_begin(answer *a)
{
    if (!a->choices[0].has_begun) {
        a->choices[0].has_begun = true;
        answer_say(a, json_pack("{s:s, s:o}", "type", "message_start", "message",
                                message_of(a, json_array(), json_null(), json_null())));
        answer_say(a, json_pack("{s:s, s:i, s:{s:s, s:s}}", "type", "content_block_start", "index",
                                0, "content_block", "type", "text", "text", ""));
    }
}

static void messages_piece(answer *a, const job_piece *piece)
{
    if (a->wishes.is_stream && !piece->is_progress) {
        say_begin(a);
        if (piece->n_text > 0) {
            answer_say(a, json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta",
                                    "index", 0, "delta", "type", "text_delta", "text",
                                    answer_piece_text(piece)));
        }
    }
}

static void messages_choice_ends(answer *a, uint32_t choice)
{
    const job_report *its = &a->choices[choice].report;
    if (its->finish == JOB_FAILED || its->finish == JOB_CANCELLED) {
        return;
    }
    say_begin(a);
    answer_say(a, json_pack("{s:s, s:i}", "type", "content_block_stop", "index", 0));
    json_t *event = json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta",
                              "stop_reason", stop_reason(its), "stop_sequence", stop_sequence(its),
                              "usage", usage_of(a));
    answer_add_figures(a, event);
    answer_say(a, event);
    answer_say(a, json_pack("{s:s}", "type", "message_stop"));
}

static json_t *messages_whole(answer *a)
{
    const answer_choice *c = &a->choices[0];
    json_t *content = json_pack("[{s:s, s:o}]", "type", "text", "text", answer_text_of(c));
    json_t *made = message_of(a, content, json_string(stop_reason(&c->report)),
                              stop_sequence(&c->report));
    answer_add_figures(a, made);
    return made;
}

static const answer_format messages_format = {
    .id_prefix = "msg_",
    .names_events = true,
    .piece = messages_piece,
    .choice_ends = messages_choice_ends,
    .whole = messages_whole,
};

/* ---- the conversation ----------------------------------------------------------------------- */

/* A tool as templates know it. */
static json_t *tool_of(const json_t *tool)
{
    json_t *function = json_pack("{s:O?, s:O?, s:O?}", "name", json_object_get(tool, "name"),
                                 "description", json_object_get(tool, "description"), "parameters",
                                 json_object_get(tool, "input_schema"));
    return json_pack("{s:s, s:o}", "type", "function", "function", function);
}

/* A conversation, and what it holds beside the body. */
typedef struct message_request {
    conversation_request talk;
    json_t *tools; /* NULL: none */
} message_request;

static cellar_status read_talk(fields *f, message_request *out, cellar_error *error)
{
    cellar_status status = conversation_request_read(f, &out->talk, error);
    const json_t *system = fields_get(f, "system");
    if (system != NULL && status == CELLAR_OK && !f->is_wrong) {
        json_t *content = conversation_request_content(f, "system", system);
        if (content != NULL) {
            (void)!json_array_insert_new(
                out->talk.messages, 0,
                json_pack("{s:s, s:o}", "role", "system", "content", content));
        }
    }
    if (out->talk.tools != NULL) {
        out->tools = json_array();
        for (size_t i = 0; i < json_array_size(out->talk.tools); i++) {
            (void)!json_array_append_new(out->tools, tool_of(json_array_get(out->talk.tools, i)));
        }
        out->talk.tools = out->tools;
    }
    return status;
}

static void free_talk(message_request *its)
{
    conversation_request_free(&its->talk);
    json_decref(its->tools);
}

/* ---- endpoints ------------------------------------------------------------------------------ */

void api_messages(server *s, http_request *request)
{
    json_t *body = server_read_body(request);
    if (body == NULL) {
        return;
    }
    fields f = fields_of(body);
    job_request asked;
    completion_wishes wishes;
    message_request its = {.tools = NULL};
    cellar_error error = {.status = CELLAR_OK};
    cellar_status status = completion_request_read(s, request, &f, &asked, &wishes, &error);
    asked.n_choices = 1;
    if (status == CELLAR_OK) {
        status = completion_request_stops(&f, "stop_sequences", &asked, &error);
    }
    if (status == CELLAR_OK) {
        status = read_talk(&f, &its, &error);
    }
    if (status == CELLAR_OK && !f.is_wrong) {
        status = conversation_request_ask(s, &its.talk, &asked, &error);
    }
    if (server_refuse_fields(request, &f)) {
        job_request_free(&asked);
    } else if (status != CELLAR_OK) {
        server_reply_status(request, status, &error);
        job_request_free(&asked);
    } else {
        answer_make(s, request, &messages_format, &asked, &wishes, NULL);
    }
    free_talk(&its);
    json_decref(body);
}

void api_count_messages(server *s, http_request *request)
{
    json_t *body = server_read_body(request);
    if (body == NULL) {
        return;
    }
    fields f = fields_of(body);
    message_request its = {.tools = NULL};
    cellar_error error = {.status = CELLAR_OK};
    cellar_status status = read_talk(&f, &its, &error);
    cellar_token *tokens = NULL;
    size_t n = 0;
    bool is_start;
    if (status == CELLAR_OK && !f.is_wrong) {
        status = conversation_request_tokens(s, &its.talk, &tokens, &n, &is_start, &error);
    }
    if (!server_refuse_fields(request, &f)) {
        if (status == CELLAR_OK) {
            http_reply_json(request, 200, json_pack("{s:I}", "input_tokens", (json_int_t)n));
        } else {
            server_reply_status(request, status, &error);
        }
    }
    free(tokens);
    free_talk(&its);
    json_decref(body);
}
