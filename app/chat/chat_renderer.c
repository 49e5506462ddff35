/*
 * chat_renderer.c: a template, or the words one behind the other, for chat_renderer.h.
 *
 * The messages are copied with marks for every rendering. That costs their length, once a turn, and
 * nothing has to be kept in step.
 */
#include "chat/chat_renderer.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

static cellar_status no_memory(cellar_error *error)
{
    return report(error, CELLAR_NO_MEMORY, -1, "no memory for the text of a conversation");
}

cellar_status chat_renderer_make(const chat_encoder *encoder, const chat_template *compiled,
                                 const char *bos, const char *eos, int64_t now, chat_renderer *out,
                                 cellar_error *error)
{
    *out = (chat_renderer){
        .encoder = encoder, .compiled = compiled, .bos = bos, .eos = eos, .now = now};
    if (compiled == NULL) {
        return CELLAR_OK;
    }
    chat_template_features features;
    cellar_status status = chat_template_probe(compiled, bos, eos, &features, error);
    out->merges_system = status == CELLAR_OK && !features.system;
    return status;
}

/* ---- without a template --------------------------------------------------------------------- */

static const char *content_of(const json_t *messages, size_t i, size_t *n)
{
    const json_t *content = json_object_get(json_array_get(messages, i), "content");
    *n = json_string_length(content);
    return *n > 0 ? json_string_value(content) : "";
}

static bool has_role(const json_t *message, const char *role)
{
    const char *its = json_string_value(json_object_get(message, "role"));
    return its != NULL && strcmp(its, role) == 0;
}

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

static cellar_status join_words(const json_t *messages, char **text, size_t *n, cellar_error *error)
{
    size_t total = 1, length;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        content_of(messages, i, &length);
        total += length + 1;
    }
    *n = 0;
    *text = malloc(total);
    if (*text == NULL) {
        return no_memory(error);
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const char *content = content_of(messages, i, &length);
        const bool is_written = has_role(json_array_get(messages, i), "assistant");
        if (length > 0 && *n > 0 && !is_written && !is_space((*text)[*n - 1]) &&
            !is_space(content[0])) {
            (*text)[(*n)++] = ' '; /* what the model writes brings its own */
        }
        memcpy(*text + *n, content, length);
        *n += length;
    }
    (*text)[*n] = '\0';
    return CELLAR_OK;
}

/* ---- system messages ------------------------------------------------------------------------ */

/* In an array of copies: the first message goes, its words come before those of the next. */
static cellar_status merge_system(json_t *messages, cellar_error *error)
{
    json_t *next = json_array_get(messages, 1);
    if (!has_role(json_array_get(messages, 0), "system") || !has_role(next, "user") ||
        !json_is_string(json_object_get(next, "content"))) {
        return CELLAR_OK; /* nothing to merge with: the template may refuse it in its own words */
    }
    size_t n_system, n_user;
    const char *system = content_of(messages, 0, &n_system);
    const char *user = content_of(messages, 1, &n_user);
    char *both = malloc(n_system + n_user + 2);
    if (both == NULL) {
        return no_memory(error);
    }
    memcpy(both, system, n_system);
    memcpy(both + n_system, "\n\n", 2);
    memcpy(both + n_system + 2, user, n_user);
    json_t *content = json_stringn(both, n_system + 2 + n_user);
    free(both);
    return json_object_set_new(next, "content", content) == 0 && json_array_remove(messages, 0) == 0
               ? CELLAR_OK
               : no_memory(error);
}

/* ---- rendering ------------------------------------------------------------------------------ */

static cellar_status render(const chat_renderer *renderer, json_t *marked, bool asks, char **text,
                            size_t *n, cellar_error *error)
{
    if (renderer->compiled == NULL) {
        return join_words(marked, text, n, error);
    }
    cellar_status status = renderer->merges_system ? merge_system(marked, error) : CELLAR_OK;
    json_t *tools = NULL; /* their words are somebody's too */
    if (status == CELLAR_OK && renderer->tools != NULL) {
        tools = chat_encoder_mark(renderer->encoder, renderer->tools);
        status = tools != NULL ? CELLAR_OK : no_memory(error);
    }
    const chat_template_input input = {.messages = marked,
                                       .tools = tools,
                                       .variables = renderer->variables,
                                       .bos_token = renderer->bos,
                                       .eos_token = renderer->eos,
                                       .add_generation_prompt = asks,
                                       .now = renderer->now};
    if (status == CELLAR_OK) {
        status = chat_template_render(renderer->compiled, &input, text, n, error);
    }
    json_decref(tools);
    return status;
}

cellar_status chat_renderer_render(const chat_renderer *renderer, const json_t *messages, bool asks,
                                   char **text, size_t *n, cellar_error *error)
{
    *text = NULL;
    *n = 0;
    json_t *marked = chat_encoder_mark(renderer->encoder, messages);
    if (marked == NULL) {
        return no_memory(error);
    }
    cellar_status status = render(renderer, marked, asks, text, n, error);
    json_decref(marked);
    return status;
}
