/*
 * conversation_request.c: messages, checked and copied, rendered and read, for conversation_request.h.
 *
 * The copy is what the template sees: the members of a message stay, whatever a template may know of
 * them; only its content becomes a text. A template that refuses says so in its own words, and that is the
 * client's mistake.
 */
#include "serve/conversation_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define MARK "\xEF\xB7\x90" /* U+FDD0, see chat_encoder.h */

/* ---- messages ------------------------------------------------------------------------------- */

json_t *conversation_request_content(fields *f, const char *name, const json_t *content)
{
    if (content == NULL || json_is_null(content)) {
        return json_string("");
    }
    if (json_is_string(content)) {
        return json_copy((json_t *)(uintptr_t)content);
    }
    if (!json_is_array(content)) {
        fields_wrong(f, name, "a text or a list of parts, found %s", fields_kind(content));
        return NULL;
    }
    json_t *all = json_string("");
    for (size_t i = 0; all != NULL && i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        const char *text = json_string_value(json_object_get(part, "text"));
        if (type == NULL || strcmp(type, "text") != 0 || text == NULL) {
            fields_wrong(f, name, "parts of the type \"text\", found \"%.40s\"",
                         type != NULL ? type : "none");
            json_decref(all);
            return NULL;
        }
        json_t *both = json_sprintf("%s%s", json_string_value(all), text);
        json_decref(all);
        all = both;
    }
    return all;
}

static json_t *copy_message(fields *f, size_t i, const json_t *message)
{
    char name[64];
    const char *role = json_string_value(json_object_get(message, "role"));
    if (role == NULL) {
        snprintf(name, sizeof name, "messages[%zu].role", i);
        fields_wrong(f, name, "a text");
        return NULL;
    }
    snprintf(name, sizeof name, "messages[%zu].content", i);
    json_t *content = conversation_request_content(f, name, json_object_get(message, "content"));
    json_t *copy = content != NULL ? json_copy((json_t *)(uintptr_t)message) : NULL;
    if (copy == NULL) {
        json_decref(content);
        return NULL;
    }
    (void)!json_object_set_new(copy, "content", content);
    if (strcmp(role, "developer") == 0) {
        (void)!json_object_set_new(copy, "role", json_string("system"));
    }
    return copy;
}

static cellar_status read_messages(fields *f, conversation_request *out, cellar_error *error)
{
    const json_t *messages = fields_array(f, "messages");
    if (json_array_size(messages) == 0) {
        fields_wrong(f, "messages", "a list of messages");
        return CELLAR_OK;
    }
    out->messages = json_array();
    for (size_t i = 0; !f->is_wrong && i < json_array_size(messages); i++) {
        json_t *copy = copy_message(f, i, json_array_get(messages, i));
        if (!f->is_wrong && json_array_append_new(out->messages, copy) != 0) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for a conversation");
        }
    }
    return CELLAR_OK;
}

cellar_status conversation_request_read(fields *f, conversation_request *out, cellar_error *error)
{
    *out = (conversation_request){.asks = true};
    out->tools = fields_array(f, "tools");
    if (json_array_size(out->tools) == 0) {
        out->tools = NULL;
    }
    out->variables = fields_object(f, "chat_template_kwargs");
    fields_flag(f, "add_generation_prompt", &out->asks);
    return read_messages(f, out, error);
}

void conversation_request_free(conversation_request *c)
{
    json_decref(c->messages);
    c->messages = NULL;
}

/* ---- the prompt ----------------------------------------------------------------------------- */

static cellar_status render(const server *s, const conversation_request *c, char **text, size_t *n,
                            cellar_error *error)
{
    chat_renderer renderer = s->renderer;
    renderer.tools = c->tools;
    renderer.variables = c->variables;
    return chat_renderer_render(&renderer, c->messages, c->asks, text, n, error);
}

cellar_status conversation_request_show(const server *s, const conversation_request *c, char **text,
                                        size_t *n, cellar_error *error)
{
    cellar_status status = render(s, c, text, n, error);
    size_t to = 0;
    for (size_t at = 0; status == CELLAR_OK && at < *n;) {
        if (*n - at >= 3 && memcmp(*text + at, MARK, 3) == 0) {
            at += 3;
        } else {
            (*text)[to++] = (*text)[at++];
        }
    }
    *n = to;
    return status;
}

cellar_status conversation_request_tokens(const server *s, const conversation_request *c,
                                          cellar_token **tokens, size_t *n, bool *is_text_start,
                                          cellar_error *error)
{
    char *text;
    size_t length;
    *tokens = NULL;
    *n = 0;
    cellar_status status = render(s, c, &text, &length, error);
    if (status != CELLAR_OK) {
        return status;
    }
    chat_text line = {.n_bytes = 0};
    status = chat_encoder_read(s->encoder, text, length, &line, error);
    free(text);
    if (status == CELLAR_OK && line.n_tokens == 0) {
        status = report(error, CELLAR_INVALID, -1, "the messages have no words to read");
    }
    if (status == CELLAR_OK) {
        *is_text_start = chat_encoder_is_control(s->encoder, line.tokens[line.n_tokens - 1]);
        *tokens = line.tokens;
        *n = line.n_tokens;
        line.tokens = NULL;
    }
    chat_text_free(&line);
    return status;
}

/* ---- where messages begin ------------------------------------------------------------------- */

/* How many tokens the first n_messages have, if the whole conversation begins with just these; else 0. */
static size_t measure(const server *s, const conversation_request *c, size_t n_messages,
                      const cellar_token *tokens, size_t n)
{
    conversation_request first = *c;
    cellar_token *its = NULL;
    size_t n_its = 0;
    bool ignored;
    first.asks = false;
    first.messages = json_array();
    for (size_t i = 0; i < n_messages; i++) {
        (void)!json_array_append(first.messages, json_array_get(c->messages, i));
    }
    const cellar_status status = conversation_request_tokens(s, &first, &its, &n_its, &ignored,
                                                             NULL);
    const bool is_beginning = status == CELLAR_OK && n_its < n &&
                              memcmp(its, tokens, n_its * sizeof *its) == 0;
    json_decref(first.messages);
    free(its);
    return is_beginning ? n_its : 0;
}

uint32_t conversation_request_boundaries(const server *s, const conversation_request *c,
                                         const cellar_token *tokens, size_t n, size_t *places,
                                         uint32_t most)
{
    uint32_t found = 0;
    const size_t n_messages = json_array_size(c->messages);
    /* Not for ever, with a template that never does. */
    const size_t last = n_messages > 2 * (size_t)most ? n_messages - 2 * (size_t)most : 0;
    for (size_t i = n_messages; i > last + 1 && found < most; i--) {
        const size_t at = measure(s, c, i - 1, tokens, n);
        if (at > 0) {
            places[found++] = at;
        }
    }
    return found;
}

cellar_status conversation_request_ask(const server *s, const conversation_request *c,
                                       job_request *asked, cellar_error *error)
{
    const cellar_status status = conversation_request_tokens(s, c, &asked->prompt, &asked->n_prompt,
                                                             &asked->is_text_start, error);
    if (status == CELLAR_OK && s->marks_messages) {
        asked->n_marks = conversation_request_boundaries(s, c, asked->prompt, asked->n_prompt,
                                                         asked->marks, JOB_MOST_MARKS);
    }
    return status;
}
