/*
 * answer_text.h: the text of an answer, token by token: whole characters, ending before a stop.
 *
 * Tokens bring bytes that may end inside a character, and a stop may be spread over tokens. So bytes wait
 * until they are a character, and characters wait as long as they may become a stop:
 *
 *     stop "\n\nUser:"      written  "Yes.\n"   goes out "Yes."     held "\n"
 *                           written  "\nUs"                         held "\n\nUs"
 *                           written  "eful"     goes out "\n\nUseful"
 *
 * What goes out is valid UTF-8. The first of the stops that is complete ends the text; where two end with
 * the same character, the one that begins first. Fails only for want of memory, and then nothing is changed
 * that matters: the answer has to end.
 */
#ifndef APP_ANSWER_TEXT_H
#define APP_ANSWER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "tokenizer/tokenizer.h"

typedef struct answer_text {
    const tokenizer *tok;
    char *const *stops; /* [n_stops] none empty */
    size_t n_stops;
    bool is_start; /* no text yet: the space that the model puts before a text is dropped */
    utf8_stream stream;
    char *held; /* [n_held] */
    size_t n_held, capacity;
    size_t n_out;     /* of the held bytes, those that go out now */
    const char *stop; /* the one that came; NULL */
} answer_text;

void answer_text_free(answer_text *a);

/*
 * Add a token. *text [*n] goes out; it is valid until the next call. a->stop is set when a stop is complete: then
 * this was the last. CELLAR_NO_MEMORY.
 */
cellar_status answer_text_add(answer_text *a, cellar_token token, const char **text, size_t *n,
                              cellar_error *error);

/* The answer ended without a stop: what was held goes out. */
cellar_status answer_text_finish(answer_text *a, const char **text, size_t *n, cellar_error *error);

#endif /* APP_ANSWER_TEXT_H */
