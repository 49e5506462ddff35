/*
 * support_tale.h: tell a story piece by piece, each piece as `cellar run --session` does it, for tests.
 *
 *     tale t = tale_create(&shape);
 *     tale_piece piece = tale_piece_default("Once");
 *     piece.n_limit = 20;
 *     tale_tell(&t, &piece);              everything is made, done, saved and given back
 *     ... t.tokens, t.logits ...
 *     tale_destroy(&t);
 *
 * After a piece t has all tokens of the text, and the logits after the last token that was read: told
 * without a break or in pieces, the same bits are wanted. Files lie in a folder of the tale's own.
 */
#ifndef TESTS_SUPPORT_TALE_H
#define TESTS_SUPPORT_TALE_H

#include "cli/run_session.h"
#include "support_model.h"

#define TALE_MOST_TOKENS 1024u

typedef struct tale_piece {
    const char *file;   /* in the tale's folder; NULL: without a session */
    const char *prompt; /* NULL: none is given */
    const char *title;
    bool replaces, is_seeded;
    uint64_t n_limit, seed;
    uint64_t stop_after; /* questions whether to stop; UINT64_MAX: never */
    double temperature;
    uint32_t n_cells, n_ubatch, n_keep;
    cellar_type type;
    generate_on_full on_full;
} tale_piece;

/* Temperature 1, seed 7, 200 cells, f16 rows, "tale" as the file, 20 tokens. */
tale_piece tale_piece_default(const char *text);

typedef struct tale {
    fixture made;
    model *model;
    tokenizer *tok;
    char folder[64];
    cellar_token tokens[TALE_MOST_TOKENS]; /* [n_tokens] the whole text after the last piece */
    uint32_t n_tokens;
    float logits[FIXTURE_VOCABULARY]; /* after the last token that was read */
    generate_result result;           /* of the last piece */
    cellar_error error;
} tale;

tale *tale_create(const fixture_shape *shape);
void tale_destroy(tale *t); /* with the folder */

/* "FOLDER/NAME", valid until the next call. */
const char *tale_path(tale *t, const char *name);

/* Tell a piece. Whatever fails is in t->error; a piece that fails before it reads saves nothing. */
cellar_status tale_tell(tale *t, const tale_piece *piece);

/* All bytes of a file, from malloc. */
unsigned char *tale_read(tale *t, const char *name, size_t *size);
void tale_write(tale *t, const char *name, const void *bytes, size_t size);

#endif /* TESTS_SUPPORT_TALE_H */
