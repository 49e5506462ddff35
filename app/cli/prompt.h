/*
 * prompt.h: the text that the model shall go on from, wherever it comes from.
 *
 * A prompt is bytes, of any kind and length up to a bound; nothing here knows tokens. What cannot
 * be read is a failure, never a shorter prompt.
 */
#ifndef APP_PROMPT_H
#define APP_PROMPT_H

#include <stdbool.h>
#include <stddef.h>

#include "cellar.h"

#define PROMPT_DEFAULT "Once upon a time" /* when nobody gives one */

typedef struct prompt {
    char *text; /* [length] from malloc, for prompt_free; not NUL-terminated */
    size_t length;
    bool is_default; /* nobody gave one: it is PROMPT_DEFAULT */
} prompt;

/*
 * `text` if it is not NULL; else the file `path` if it is not NULL ("-": standard input); else
 * standard input if it is not a terminal and holds anything; else PROMPT_DEFAULT. Of a file or
 * standard input the last line end is dropped: it belongs to the file, not to the text.
 * CELLAR_IO (naming the file), CELLAR_INVALID (longer than 2^30 bytes), CELLAR_NO_MEMORY.
 */
cellar_status prompt_read(const char *text, const char *path, prompt *out, cellar_error *error);

/*
 * `text`, or the file `path` ("-" or NULL: standard input), to the last byte: nothing is dropped
 * and nothing takes the place of an empty one. Fails as prompt_read.
 */
cellar_status prompt_read_exactly(const char *text, const char *path, prompt *out,
                                  cellar_error *error);
void prompt_free(prompt *p);

#endif /* APP_PROMPT_H */
