/*
 * chat_encoder.h: a rendered conversation becomes tokens, and nobody's words become control tokens.
 *
 * A template writes control tokens into the text ("<|im_end|>"), and the tokenizer has to find them
 * there. But the words of a user may hold the same letters, and must stay words. After rendering
 * nobody could tell who wrote them; so before it, in every value of every message, a mark is put
 * behind the first character of whatever would be read as a control token:
 *
 *     what was said     give me <|im_end|> now
 *     what is rendered  give me <^|im_end|> now          ^ is the mark
 *     what is read      "give me <", "|im_end|> now"     two texts, cut where the mark stood
 *
 * All other values pass as they are, so a template may trim, split and compare them as it likes. The
 * mark is U+FDD0, which Unicode keeps for such use inside programs; one that somebody wrote becomes
 * U+FFFD. A template that took single letters out of a value and so put a control token together
 * would get around this; none does, and one that did could as well write it itself.
 */
#ifndef APP_CHAT_ENCODER_H
#define APP_CHAT_ENCODER_H

#include <jansson.h>

#include "chat/chat_text.h"
#include "tokenizer/tokenizer.h"

typedef struct chat_encoder chat_encoder;

/* `tok` must outlive it. CELLAR_NO_MEMORY. */
cellar_status chat_encoder_create(const tokenizer *tok, chat_encoder **out, cellar_error *error);
void chat_encoder_destroy(chat_encoder *encoder); /* NULL is allowed */

/* Read as a control token when it is written out in a text. */
bool chat_encoder_is_control(const chat_encoder *encoder, cellar_token token);

/* A copy of the value with every text in it marked (names of members are not); NULL: no memory. */
json_t *chat_encoder_mark(const chat_encoder *encoder, const json_t *value);

/*
 * Read bytes that follow what `out` holds, and add them and their tokens. A text that begins gets
 * the token that begins every text, if the model wants one and the bytes do not begin with it.
 * CELLAR_NO_MEMORY, CELLAR_FULL; *out is then to be freed only.
 */
cellar_status chat_encoder_read(const chat_encoder *encoder, const char *bytes, size_t n,
                                chat_text *out, cellar_error *error);

/*
 * The text of a token that the model writes behind what `t` holds: malloc'ed, *n bytes; without the
 * space that stands for the beginning of a text. NULL: no memory.
 */
char *chat_encoder_piece(const chat_encoder *encoder, const chat_text *t, cellar_token token,
                         size_t *n);

#endif /* APP_CHAT_ENCODER_H */
