/*
 * chat_probe.c: what a template does with the parts of a conversation.
 *
 * Nobody writes down what a template supports, so small conversations are rendered and their words looked
 * for: words that no template brings itself. What a template refuses, it does not support.
 */
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "template/chat_template.h"

#define SYSTEM "{\"role\": \"system\", \"content\": \"qzsystem\"}"
#define USER "{\"role\": \"user\", \"content\": \"qzuser\"}"
#define THOUGHT "{\"role\": \"assistant\", \"content\": \"<think>qzthought</think>qzanswer\"}"
#define CALL                                                                                       \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"qzcall123\", "       \
    "\"type\": \"function\", \"function\": {\"name\": \"qzfunction\", \"arguments\": "             \
    "{\"qzkey\": \"qzvalue\"}}}]}"
#define RESULT                                                                                     \
    "{\"role\": \"tool\", \"tool_call_id\": \"qzcall123\", \"name\": \"qzfunction\", "             \
    "\"content\": \"qzresult\"}"
#define TOOLS                                                                                      \
    "[{\"type\": \"function\", \"function\": {\"name\": \"qztool\", \"description\": \"qzabout\"," \
    " \"parameters\": {\"type\": \"object\", \"properties\": {\"qzkey\": {\"type\": \"string\","   \
    " \"description\": \"qzkeyabout\"}}, \"required\": [\"qzkey\"]}}}]"

typedef struct chat_prober {
    const chat_template *compiled;
    const char *bos_token, *eos_token;
    bool is_without_memory;
} chat_prober;

/* malloc'ed; NULL: refused, or no memory. The JSON texts may be NULL where the input may. */
static char *try_render(chat_prober *prober, const char *messages, const char *tools,
                        const char *variables, bool prompts)
{
    json_t *m = json_loads(messages, 0, NULL), *t = NULL, *v = NULL;
    if (tools != NULL) t = json_loads(tools, 0, NULL);
    if (variables != NULL) v = json_loads(variables, 0, NULL);
    const bool is_loaded = m != NULL && (tools == NULL || t != NULL) &&
                           (variables == NULL || v != NULL);
    const chat_template_input input = {.messages = m,
                                       .tools = t,
                                       .variables = v,
                                       .bos_token = prober->bos_token,
                                       .eos_token = prober->eos_token,
                                       .add_generation_prompt = prompts,
                                       .now = 1};
    char *text = NULL;
    size_t length;
    cellar_status status = CELLAR_NO_MEMORY;
    if (is_loaded) status = chat_template_render(prober->compiled, &input, &text, &length, NULL);
    if (status == CELLAR_NO_MEMORY) prober->is_without_memory = true;
    json_decref(m);
    json_decref(t);
    json_decref(v);
    return text;
}

/* Does the rendered text hold the word? */
static bool shows(chat_prober *prober, const char *messages, const char *tools, const char *word)
{
    char *text = try_render(prober, messages, tools, NULL, false);
    const bool found = text != NULL && strstr(text, word) != NULL;
    free(text);
    return found;
}

static bool both_differ(char *a, char *b)
{
    const bool differ = a != NULL && b != NULL && strcmp(a, b) != 0;
    free(a);
    free(b);
    return differ;
}

static bool ends_inside_thinking(chat_prober *prober)
{
    char *text = try_render(prober, "[" USER "]", NULL, NULL, true);
    bool is_open = false;
    for (const char *at = text; at != NULL && (at = strstr(at, "<think>")) != NULL; at++)
        is_open = strstr(at, "</think>") == NULL;
    free(text);
    return is_open;
}

cellar_status chat_template_probe(const chat_template *compiled, const char *bos_token,
                                  const char *eos_token, chat_template_features *features,
                                  cellar_error *error)
{
    chat_prober prober = {compiled, bos_token, eos_token, false};
    chat_prober *p = &prober;
    const char *turn = "[" USER "]", *answered = "[" USER "," THOUGHT "," USER "]";
    features->system = shows(p, "[" SYSTEM "," USER "]", NULL, "qzsystem");
    features->tools = shows(p, turn, TOOLS, "qztool");
    features->tool_calls = shows(p, "[" USER "," CALL "," RESULT "]", TOOLS, "qzfunction");
    features->tool_results = shows(p, "[" USER "," CALL "," RESULT "]", TOOLS, "qzresult");
    features->thinking_switch =
        both_differ(try_render(p, turn, NULL, "{\"enable_thinking\": true}", true),
                    try_render(p, turn, NULL, "{\"enable_thinking\": false}", true));
    features->opens_thinking = ends_inside_thinking(p);
    features->forgets_thinking = shows(p, answered, NULL, "qzanswer") &&
                                 !shows(p, answered, NULL, "qzthought");
    features->generation_prompt = both_differ(try_render(p, turn, NULL, NULL, true),
                                              try_render(p, turn, NULL, NULL, false));
    if (prober.is_without_memory)
        return report(error, CELLAR_NO_MEMORY, -1, "no memory to try the chat template");
    return CELLAR_OK;
}
