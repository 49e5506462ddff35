/*
 * fuzz_template.c: any template over any conversation, within its bounds.
 *
 * Input: the template, a NUL, and the conversation as JSON (if it is none, a fixed one with tools, calls and
 * variables of every kind). The limits are small, so that each of them is met.
 *
 * Checked: a failure has a message that names line and column or a size, and leaves nothing; a success
 * gives a text within the bounds that ends with NUL; the same again gives the same.
 */
#include <stdlib.h>
#include <string.h>

#include "template/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) __builtin_trap();                                                        \
    } while (0)

static const chat_template_limits limits = {.template_bytes = 4096,
                                            .output_bytes = 100000,
                                            .memory_bytes = 4 << 20,
                                            .steps = 100000,
                                            .depth = 60};

static const char fixed[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"be kind\"}, {\"role\": \"user\","
    " \"content\": \" h\\u00e9llo \\n\"}, {\"role\": \"assistant\", \"content\": null,"
    " \"tool_calls\": [{\"id\": \"a1\", \"function\": {\"name\": \"f\", \"arguments\":"
    " {\"x\": [1, 2.5, true, null], \"items\": {}}}}]}, {\"role\": \"tool\", \"content\": \"3\"}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\":"
    " {\"b\": 1, \"a\": -2}}}], \"variables\": {\"s\": \"Text <b>\", \"n\": 7, \"x\": 0.1,"
    " \"l\": [3, 1, 2], \"big\": 9223372036854775807, \"d\": {\"k\": \"v\"}}}";

static chat_template_input input_of(const json_t *conversation)
{
    const json_t *tools = json_object_get(conversation, "tools");
    const json_t *variables = json_object_get(conversation, "variables");
    return (chat_template_input){.messages = json_object_get(conversation, "messages"),
                                 .tools = tools,
                                 .variables = json_is_object(variables) ? variables : NULL,
                                 .bos_token = "<s>",
                                 .add_generation_prompt = true,
                                 .now = 1750000000};
}

static void check(const chat_template *compiled, const json_t *conversation)
{
    const chat_template_input input = input_of(conversation);
    char *text, *again;
    size_t length, n;
    cellar_error error = {0};
    const cellar_status status = chat_template_render(compiled, &input, &text, &length, &error);
    REQUIRE(chat_template_render(compiled, &input, &again, &n, NULL) == status);
    if (status == CELLAR_OK) {
        REQUIRE(length <= limits.output_bytes && text[length] == '\0');
        REQUIRE(n == length && memcmp(text, again, n) == 0);
    } else {
        REQUIRE(text == NULL && again == NULL);
        REQUIRE(error.status == status && strstr(error.message, "line ") != NULL);
    }
    free(text);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size > 0 ? memchr(data, '\0', size) : NULL;
    const size_t length = end != NULL ? (size_t)(end - data) : size;
    char *text = malloc(length + !length); /* exactly sized, so that a read beyond it shows */
    REQUIRE(text != NULL);
    if (length > 0) memcpy(text, data, length);
    chat_template *compiled;
    cellar_error error = {0};
    const cellar_status status = chat_template_compile(text, length, &limits, &compiled, &error);
    free(text);
    REQUIRE((status == CELLAR_OK) == (compiled != NULL));
    REQUIRE(status == CELLAR_OK || (error.status == status && error.message[0] != '\0'));
    if (compiled != NULL) {
        json_t *conversation = NULL;
        if (end != NULL)
            conversation = json_loadb((const char *)end + 1, size - length - 1, 0, NULL);
        if (!json_is_object(conversation)) {
            json_decref(conversation);
            conversation = json_loads(fixed, 0, NULL);
        }
        check(compiled, conversation);
        json_decref(conversation);
    }
    chat_template_destroy(compiled);
    return 0;
}
