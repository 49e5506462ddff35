/*
 * conversation.h: what was said in a session, and which of it the memory holds.
 *
 * A conversation is all its tokens in order, from the first on; nothing is ever taken out of the
 * middle. The memory holds some stretches of them, one behind the other from position 0: all from
 * the beginning at first, and after a shift of the context the kept beginning and what follows the
 * forgotten part. What was written but not yet read stands behind the last stretch.
 *
 *     tokens   0 1 2 3 4 5 6 7 8 9 10 11 12        held   0+3 7+5     (stretches: first + number)
 *     memory   0 1 2 . . . . 3 4 5  6  7  -        12 is written, and will be read first of all
 *
 * In a session file the tokens are the log of the only sequence, and the stretches the note "held".
 * A session without that note holds the beginning of its log.
 */
#ifndef APP_CONVERSATION_H
#define APP_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"

#define CONVERSATION_NOTE "held"

typedef struct conversation_part {
    uint32_t first, n; /* tokens first .. first + n - 1, n >= 1; rising, not touching the next */
} conversation_part;

typedef struct conversation {
    cellar_token *tokens; /* [n_tokens] */
    uint32_t n_tokens, capacity;
    conversation_part *parts; /* [n_parts] what the memory holds */
    uint32_t n_parts, parts_capacity;
    uint32_t n_held; /* positions: the sum of the parts */
} conversation;

void conversation_free(conversation *c); /* and make it empty */

/* Add tokens at the end. CELLAR_NO_MEMORY, CELLAR_FULL: more than there are positions. */
cellar_status conversation_add(conversation *c, const cellar_token *tokens, size_t n,
                               cellar_error *error);

/*
 * The memory now holds n positions: fewer (the last ones went), or more (the tokens behind the last
 * part were read; there must be as many). CELLAR_NO_MEMORY.
 */
cellar_status conversation_hold(conversation *c, uint32_t n, cellar_error *error);

/*
 * The memory forgot n positions from `at` on, and what follows moved down. Something has to follow
 * (CELLAR_INVALID). CELLAR_NO_MEMORY.
 */
cellar_status conversation_forget(conversation *c, uint32_t at, uint32_t n, cellar_error *error);

/*
 * Go back: of what is held the first n positions stay, and of what is written but not read nothing,
 * or, with n > n_held, the first n - n_held tokens. n at most conversation_length.
 */
void conversation_cut(conversation *c, uint32_t n);

/* What is held, and what is written but not read. */
uint32_t conversation_length(const conversation *c);

/* Token i of conversation_length: by position, then those that are not read. */
cellar_token conversation_at(const conversation *c, uint32_t i);

/* The note's text, "0+3 7+5", from malloc; *n its bytes. NULL: no memory. */
char *conversation_format(const conversation *c, size_t *n);

/*
 * Read it from a session. CELLAR_UNSUPPORTED: the session is of another kind: several sequences, or
 * no log. CELLAR_CORRUPT: its parts contradict each other. CELLAR_NO_MEMORY.
 */
cellar_status conversation_read(const cellar_session *session, conversation *out,
                                cellar_error *error);

/* The note of that name; false: the session has none. */
bool conversation_find_note(const cellar_session *session, const char *name, cellar_note *out);

#endif /* APP_CONVERSATION_H */
