/*
 * chat_template.h: a conversation as the text that a model was trained to read.
 *
 * A model file may bring its own template (`tokenizer.chat_template`), a small program in the language
 * of Jinja2. chat_template_compile reads it once; chat_template_render runs it over messages and tools.
 * The meaning is Jinja2's with trim_blocks, lstrip_blocks and loop controls, and `tojson` as Python's
 * json.dumps without ASCII escapes: what Hugging Face's apply_chat_template gives. Where a model has
 * no template, chat_formats.h holds the known formats by name.
 *
 * A template is a stranger's program. Everything it may use is bounded (chat_template_limits); what
 * asks for more, or is not understood, is refused with line and column. It reads no file, no clock but
 * the one it is given, and nothing of the process.
 *
 * A compiled template is immutable: any number of threads may render with it at once.
 */
#ifndef APP_CHAT_TEMPLATE_H
#define APP_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "cellar.h"

typedef struct chat_template chat_template;

/* What one template may use at most. */
typedef struct chat_template_limits {
    size_t template_bytes; /* length of the template's text */
    size_t output_bytes;   /* length of the rendered text, with what is captured on the way */
    size_t memory_bytes;   /* values of one rendering; the same again for the compiled form */
    uint64_t steps;        /* evaluations and items looked at, and one for every 64 bytes copied */
    uint32_t depth;        /* nesting, of the text, of the data and of calls, all alike */
} chat_template_limits;

/* 256 KiB of template, 64 MiB of output, 256 MiB of values, 20 million steps, depth 200. */
chat_template_limits chat_template_default_limits(void);

/*
 * Read a template of `length` bytes of UTF-8; `limits` NULL: the default ones. The text is copied.
 * CELLAR_CORRUPT: it is not a valid template (error->at: offset in its text); CELLAR_UNSUPPORTED: it
 * uses a tag, a filter or a test that is not known here, or is larger than the limits allow;
 * CELLAR_NO_MEMORY. *out is NULL after a failure.
 */
cellar_status chat_template_compile(const char *text, size_t length,
                                    const chat_template_limits *limits, chat_template **out,
                                    cellar_error *error);
void chat_template_destroy(chat_template *compiled); /* NULL is allowed */

/* What is rendered. All of it stays the caller's and is only read. */
typedef struct chat_template_input {
    const json_t *messages;  /* array of {"role", "content", ...} */
    const json_t *tools;     /* array of tool descriptions; NULL: none */
    const json_t *variables; /* object of further variables, such as enable_thinking; NULL: none */
    const char *bos_token;   /* the written form of the model's token; NULL: it has none */
    const char *eos_token;
    bool add_generation_prompt; /* end with the beginning of an assistant's turn */
    int64_t now;                /* seconds since 1970 for strftime_now; 0: the clock is asked */
} chat_template_input;

/*
 * *text is malloc'ed, the caller's to free, and has a NUL behind its *length bytes; NULL after a
 * failure. CELLAR_INVALID: the template itself refuses the conversation (raise_exception), and the message
 * quotes its words; CELLAR_MISMATCH: it does something with this conversation that has no meaning,
 * as adding a number to a text; CELLAR_UNSUPPORTED: over a limit; CELLAR_NO_MEMORY.
 */
cellar_status chat_template_render(const chat_template *compiled, const chat_template_input *input,
                                   char **text, size_t *length, cellar_error *error);

/* What a template does with parts of a conversation, found by rendering small ones. */
typedef struct chat_template_features {
    bool system;            /* a system message is accepted and its text appears */
    bool tools;             /* tool descriptions appear */
    bool tool_calls;        /* the calls of an assistant's turn appear */
    bool tool_results;      /* a message with role "tool" is accepted and its text appears */
    bool thinking_switch;   /* the variable enable_thinking changes the prompt */
    bool opens_thinking;    /* the generation prompt itself ends inside <think> */
    bool forgets_thinking;  /* <think>...</think> of an earlier answer is left out */
    bool generation_prompt; /* add_generation_prompt changes the prompt */
} chat_template_features;

/*
 * Never fails because of the template: what cannot be rendered is not supported. CELLAR_NO_MEMORY.
 */
cellar_status chat_template_probe(const chat_template *compiled, const char *bos_token,
                                  const char *eos_token, chat_template_features *features,
                                  cellar_error *error);

#endif /* APP_CHAT_TEMPLATE_H */
