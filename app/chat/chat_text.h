/*
 * chat_text.h: the tokens of a conversation, and which piece of its text each of them stands for.
 *
 * A conversation is written down as text (a template renders its messages) and remembered as tokens.
 * Texts can be compared, extended and cut; tokens alone cannot, because what a model wrote token by
 * token may be cut into others when the same text is read again. So both are kept side by side:
 *
 *     bytes    < s > H e l l o   w o r l d
 *     tokens   [--1--] [--2-------] [--3---]
 *     ends           3            9        14       bytes up to and with the token
 *     starts       ANEW        ANEW     INSIDE      may the tokenizer begin before the token?
 *
 * A token whose end is not known (its piece is not the text it was made of) has CHAT_TEXT_UNKNOWN.
 * Two texts that agree up to some byte agree in all tokens that end before it; chat_text_start says
 * where the tokenizer has to begin again so that the rest is cut as in one go.
 */
#ifndef APP_CHAT_TEXT_H
#define APP_CHAT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"

#define CHAT_TEXT_UNKNOWN UINT32_MAX

typedef enum chat_start {
    CHAT_START_INSIDE,    /* the token was cut together with the one before it */
    CHAT_START_CONTINUES, /* the tokenizer may begin here, behind ordinary text */
    CHAT_START_ANEW,      /* it may begin here: behind a control token, or nothing */
} chat_start;

typedef struct chat_text {
    char *bytes; /* [n_bytes] */
    uint32_t n_bytes, bytes_capacity;
    cellar_token *tokens; /* [n_tokens] */
    uint32_t *ends;       /* [n_tokens] rising; or CHAT_TEXT_UNKNOWN */
    uint8_t *starts;      /* [n_tokens] chat_start */
    uint32_t n_tokens, capacity;
} chat_text;

void chat_text_free(chat_text *t); /* and make it empty */

/* Make *to, which is empty, the same. CELLAR_NO_MEMORY. */
cellar_status chat_text_copy(const chat_text *from, chat_text *to, cellar_error *error);

/* Room for so many more. CELLAR_NO_MEMORY, CELLAR_FULL: more than can be counted. */
cellar_status chat_text_reserve(chat_text *t, size_t n_bytes, size_t n_tokens, cellar_error *error);

/* Add bytes, or a token that ends where the text now ends (or nowhere known). As above. */
cellar_status chat_text_add_bytes(chat_text *t, const char *bytes, size_t n, cellar_error *error);
cellar_status chat_text_add_token(chat_text *t, cellar_token token, uint32_t end, chat_start start,
                                  cellar_error *error);

/* The first n tokens stay, and their text. The end of token n - 1 must be known. */
void chat_text_cut(chat_text *t, uint32_t n);

/* Tokens first .. last - 1 and their text go; the ends of first - 1 and last - 1 must be known. */
void chat_text_remove(chat_text *t, uint32_t first, uint32_t last);

/* Bytes of the text before token i; CHAT_TEXT_UNKNOWN. */
uint32_t chat_text_place(const chat_text *t, uint32_t i);

/* How many bytes both begin with. */
uint32_t chat_text_agreement(const chat_text *t, const char *bytes, size_t n);

/* The last token (or the end) before which the tokenizer may begin, no farther than `most` bytes. */
uint32_t chat_text_start(const chat_text *t, uint32_t most);

#endif /* APP_CHAT_TEXT_H */
