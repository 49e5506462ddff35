/*
 * chat_formats.h: the prompt formats that models are known by, for models without a template.
 *
 * Each is a template of the language of chat_template.h; `--chat-template NAME` chooses one.
 */
#ifndef APP_CHAT_FORMATS_H
#define APP_CHAT_FORMATS_H

#include <stddef.h>

typedef struct chat_format {
    const char *name;          /* as on the command line */
    const char *template_text; /* NUL-terminated */
    const char *description;   /* a few words for the help */
} chat_format;

/* NULL if there is none of that name. */
const chat_format *chat_format_find(const char *name);

/* All of them, sorted by name; *n is how many. */
const chat_format *chat_format_list(size_t *n);

#endif /* APP_CHAT_FORMATS_H */
