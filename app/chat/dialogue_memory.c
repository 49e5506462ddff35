/*
 * dialogue_memory.c: the sequence of a dialogue follows its messages.
 *
 * Going on. The new text and the old one are compared byte by byte. Tokens of the old one that end
 * before they part stay as they are; from the last place at which the tokenizer may begin, the rest
 * is cut anew. As many tokens as are then the same, so many the sequence may keep.
 *
 *     old text    [ system ][ user: How are you ][ answer: Fine.  ][ user: And ...
 *     new text    [ system ][ user: How are you ][ answer: Fine.  ][ user: Then ...
 *     kept        ................................................|        from here tokens are cut
 *
 * Forgetting. Rendered without its oldest turn the text is the old one with a piece taken out. If
 * that piece begins and ends between tokens, the sequence lets it go and moves the rest up; nothing
 * is read. Else (a recurrent state, a text that changes with its beginning) nothing is cut here, and
 * going on reads again what differs.
 */
#include "chat/dialogue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

/* ---- rendering ------------------------------------------------------------------------------ */

/* The messages that are rendered, without the last if it is an answer that goes on. */
static json_t *visible_messages(const dialogue *d)
{
    const size_t n_system = dialogue_has_system(d), n = json_array_size(d->messages) - d->is_open;
    json_t *visible = json_array();
    bool is_good = visible != NULL;
    for (size_t i = 0; is_good && i < n; i++) {
        if (i < n_system || i >= n_system + d->n_forgotten) {
            is_good = json_array_append(visible, json_array_get(d->messages, i)) == 0;
        }
    }
    if (!is_good) {
        json_decref(visible);
        visible = NULL;
    }
    return visible;
}

/* Add what is there of an answer that goes on, marked like everything that was said. */
static cellar_status add_answer(const dialogues *all, const dialogue *d, char **bytes, size_t *n,
                                cellar_error *error)
{
    const json_t *last = json_array_get(d->messages, json_array_size(d->messages) - 1);
    json_t *marked = chat_encoder_mark(all->encoder, json_object_get(last, "content"));
    const size_t length = json_string_length(marked);
    char *both = marked != NULL ? realloc(*bytes, *n + length + 1) : NULL;
    if (both == NULL) {
        json_decref(marked);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the text of a conversation");
    }
    memcpy(both + *n, json_string_value(marked), length + 1);
    *bytes = both;
    *n += length;
    json_decref(marked);
    return CELLAR_OK;
}

cellar_status dialogue_render(const dialogues *all, const dialogue *d, bool asks, char **bytes,
                              size_t *n, cellar_error *error)
{
    *bytes = NULL;
    *n = 0;
    json_t *visible = visible_messages(d);
    if (visible == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the text of a conversation");
    }
    cellar_status status = chat_renderer_render(&all->renderer, visible, asks, bytes, n, error);
    json_decref(visible);
    if (status == CELLAR_OK && d->is_open) {
        status = add_answer(all, d, bytes, n, error);
    }
    if (status != CELLAR_OK) {
        free(*bytes);
        *bytes = NULL;
    }
    return status;
}

/* ---- going on ------------------------------------------------------------------------------- */

/* The new text with its tokens: those of the old one as far as they agree, the rest cut anew. */
static cellar_status make_line(const dialogues *all, const dialogue *d, const char *bytes, size_t n,
                               chat_text *line, cellar_error *error)
{
    const uint32_t same = chat_text_agreement(&d->text, bytes, n);
    const uint32_t first = chat_text_start(&d->text, same);
    cellar_status status = chat_text_copy(&d->text, line, error);
    if (status == CELLAR_OK) {
        chat_text_cut(line, first);
        const size_t place = line->n_bytes;
        status = chat_encoder_read(all->encoder, bytes + place, n - place, line, error);
    }
    if (status == CELLAR_OK && line->n_tokens == 0) {
        status = report(error, CELLAR_INVALID, -1, "there is nothing to read");
    }
    return status;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* How many tokens of the line the sequence of `d` could keep, by its tokens and by its memory. */
static uint32_t usable(const dialogues *all, const dialogue *d, const chat_text *line,
                       uint32_t *same)
{
    const uint32_t most = smaller(smaller(line->n_tokens - 1, d->text.n_tokens),
                                  dialogue_held(all, d));
    *same = 0;
    while (*same < most && line->tokens[*same] == d->text.tokens[*same]) {
        ++*same;
    }
    cellar_pos from = 0;
    const cellar_status status = cellar_can_continue(engine_memory(all->engine), d->seq,
                                                     (cellar_pos)*same, &from, NULL);
    return status == CELLAR_OK ? *same : status == CELLAR_REPLAY ? (uint32_t)from : 0;
}

/* Take over what another one holds, if that is more of this line than our own sequence has. */
static cellar_status take_best(dialogues *all, const dialogue *d, const chat_text *line,
                               uint32_t *same, cellar_error *error)
{
    uint32_t most = usable(all, d, line, same);
    const dialogue *donor = NULL;
    for (uint32_t i = 0; i < all->n; i++) {
        uint32_t its;
        const uint32_t n = all->list[i] == d ? 0 : usable(all, all->list[i], line, &its);
        if (n > most) {
            most = n;
            donor = all->list[i];
            *same = its;
        }
    }
    return donor == NULL
               ? CELLAR_OK
               : cellar_copy(engine_memory(all->engine), donor->seq, d->seq, 0, -1, error);
}

cellar_status dialogue_bring(dialogues *all, dialogue *d, const char *bytes, size_t n,
                             uint32_t *n_held, cellar_error *error)
{
    chat_text line = {.n_bytes = 0};
    uint32_t same = 0;
    *n_held = dialogue_held(all, d);
    cellar_status status = make_line(all, d, bytes, n, &line, error);
    if (status == CELLAR_OK) {
        status = take_best(all, d, &line, &same, error);
    }
    if (status == CELLAR_OK) {
        *n_held = dialogue_held(all, d);
        if (same < *n_held) {
            cellar_pos from = 0;
            status = cellar_rewind(engine_memory(all->engine), d->seq, (cellar_pos)same, &from,
                                   error);
            *n_held = dialogue_held(all, d);
        }
        /* Whatever the sequence holds now begins like the line, also if it could not be shortened
         * to where they part: then it is emptied. */
        if (status != CELLAR_OK) {
            (void)!cellar_remove(engine_memory(all->engine), d->seq, 0, -1, NULL);
        }
        chat_text_free(&d->text);
        d->text = line;
        return status;
    }
    chat_text_free(&line);
    return status;
}

void dialogue_trim(dialogues *all, dialogue *d)
{
    char *bytes;
    size_t n;
    if (d->text.n_tokens == 0 ||
        dialogue_render(all, d, dialogue_is_waiting(d), &bytes, &n, NULL) != CELLAR_OK) {
        return;
    }
    const uint32_t first = chat_text_start(&d->text, chat_text_agreement(&d->text, bytes, n));
    free(bytes);
    cellar_pos from = 0;
    if (first < dialogue_held(all, d) &&
        cellar_rewind(engine_memory(all->engine), d->seq, (cellar_pos)first, &from, NULL) !=
            CELLAR_OK) {
        return;
    }
    chat_text_cut(&d->text, first);
}

/* ---- forgetting ----------------------------------------------------------------------------- */

static bool is_user(const dialogue *d, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(d->messages, i), "role"));
    return role != NULL && strcmp(role, "user") == 0;
}

/* Messages of the oldest turn that is rendered; 0: it is the last. */
static uint32_t oldest_turn(const dialogue *d)
{
    const size_t first = (size_t)d->n_forgotten + dialogue_has_system(d);
    for (size_t i = first + 1; i < json_array_size(d->messages); i++) {
        if (is_user(d, i)) {
            return (uint32_t)(i - first);
        }
    }
    return 0;
}

/* A stretch of tokens. */
typedef struct stretch {
    uint32_t first, last;
} stretch;

/*
 * The last token up to *token before which `place` bytes stand (behind those that stand for no text,
 * as the one that begins every text); false: none begins there, or it is not known.
 */
static bool token_at(const chat_text *t, uint32_t place, uint32_t *token)
{
    uint32_t its = chat_text_place(t, *token);
    while (*token > 0 && (its == CHAT_TEXT_UNKNOWN || its > place)) {
        its = chat_text_place(t, --*token);
    }
    return its == place;
}

/*
 * The tokens that have to go so that the text becomes the bytes: `gone` bytes in one piece. Where
 * the texts part the piece may begin, and everywhere before where both its ends look alike. The
 * first of these places is taken: people say the same again and again, and what is to go is the oldest.
 */
static bool find_piece(const chat_text *t, const char *bytes, size_t n, uint32_t gone,
                       stretch *piece)
{
    const uint32_t part = chat_text_agreement(t, bytes, n);
    if (gone == 0 || gone > t->n_bytes - part) {
        return false;
    }
    const size_t n_rest = smaller(t->n_bytes - part - gone, (uint32_t)(n - part));
    if (memcmp(t->bytes + part + gone, bytes + part, n_rest) != 0) {
        return false;
    }
    bool is_found = false;
    stretch its = {.first = t->n_tokens, .last = t->n_tokens};
    for (uint32_t at = part;; at--) {
        const bool begins = token_at(t, at, &its.first), ends = token_at(t, at + gone, &its.last);
        if (begins && ends) {
            *piece = its;
            is_found = true;
        }
        if (at == 0 || t->bytes[at - 1] != t->bytes[at - 1 + gone]) {
            return is_found;
        }
    }
}

/* Take the piece out of the sequence and of the text; false: the memory cannot. */
static bool take_out(dialogues *all, dialogue *d, stretch piece)
{
    cellar_memory *memory = engine_memory(all->engine);
    const uint32_t held = dialogue_held(all, d);
    const cellar_pos first = (cellar_pos)piece.first, n = (cellar_pos)(piece.last - piece.first);
    if (piece.last < held) {
        if (cellar_shift_context(memory, d->seq, first, n, NULL, NULL) != CELLAR_OK) {
            return false;
        }
    } else if (piece.first < held && cellar_remove(memory, d->seq, first, -1, NULL) != CELLAR_OK) {
        return false;
    }
    chat_text_remove(&d->text, piece.first, piece.last);
    return true;
}

cellar_status dialogue_forget_turn(dialogues *all, dialogue *d, uint32_t *n_messages,
                                   uint32_t *n_tokens, cellar_error *error)
{
    *n_messages = oldest_turn(d);
    *n_tokens = 0;
    if (*n_messages == 0) {
        return report(error, CELLAR_FULL, -1,
                      "all %" PRIu32 " cells are full, and only the last turn is left to forget",
                      engine_cells(all->engine));
    }
    char *before = NULL, *after = NULL;
    size_t n_before, n_after = 0;
    cellar_status status = dialogue_render(all, d, true, &before, &n_before, error);
    if (status == CELLAR_OK) {
        d->n_forgotten += *n_messages;
        status = dialogue_render(all, d, true, &after, &n_after, error);
        d->n_forgotten -= status == CELLAR_OK ? 0 : *n_messages;
    }
    stretch piece;
    if (status == CELLAR_OK && n_after < n_before &&
        find_piece(&d->text, after, n_after, (uint32_t)(n_before - n_after), &piece) &&
        take_out(all, d, piece)) {
        *n_tokens = piece.last - piece.first;
    }
    free(before);
    free(after);
    return status;
}
