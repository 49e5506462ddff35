/*
 * answer_text.c: characters and stops, for answer_text.h.
 *
 * Stops are few and short, what is held is shorter than the longest of them, so they are simply compared
 * at every place that is new. What went out stays at the beginning of the buffer until the next call,
 * so that nothing has to be copied for the caller.
 */
#include "serve/answer_text.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

void answer_text_free(answer_text *a)
{
    free(a->held);
    a->held = NULL;
    a->n_held = a->capacity = a->n_out = 0;
}

/* Forget what went out, and make room for n more bytes. */
static cellar_status make_room(answer_text *a, size_t n, cellar_error *error)
{
    if (a->n_out > 0) {
        memmove(a->held, a->held + a->n_out, a->n_held - a->n_out);
        a->n_held -= a->n_out;
        a->n_out = 0;
    }
    if (a->capacity - a->n_held >= n) {
        return CELLAR_OK;
    }
    const size_t capacity = 2 * a->capacity + n + 64;
    char *larger = realloc(a->held, capacity);
    if (larger == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a text of %zu bytes", capacity);
    }
    a->held = larger;
    a->capacity = capacity;
    return CELLAR_OK;
}

/* Does a stop begin at `at` and end by `end`? */
static const char *stop_at(const answer_text *a, size_t at, size_t end)
{
    for (size_t i = 0; i < a->n_stops; i++) {
        const size_t n = strlen(a->stops[i]);
        if (n == end - at && memcmp(a->held + at, a->stops[i], n) == 0) {
            return a->stops[i];
        }
    }
    return NULL;
}

/* Could the held bytes from `at` on be the beginning of a stop? */
static bool may_become_stop(const answer_text *a, size_t at)
{
    const size_t n = a->n_held - at;
    for (size_t i = 0; i < a->n_stops; i++) {
        if (n < strlen(a->stops[i]) && memcmp(a->held + at, a->stops[i], n) == 0) {
            return true;
        }
    }
    return false;
}

/* Of the held bytes those from `first` on are new: look for a stop, and say what goes out. */
static void look(answer_text *a, size_t first)
{
    for (size_t end = first + 1; a->n_stops > 0 && end <= a->n_held; end++) {
        for (size_t at = 0; at < end; at++) {
            a->stop = stop_at(a, at, end);
            if (a->stop != NULL) {
                a->n_held = end;
                a->n_out = at;
                return;
            }
        }
    }
    size_t at = a->n_stops > 0 ? 0 : a->n_held;
    while (at < a->n_held && !may_become_stop(a, at)) {
        at++;
    }
    a->n_out = at;
}

cellar_status answer_text_add(answer_text *a, cellar_token token, const char **text, size_t *n,
                              cellar_error *error)
{
    char bytes[256], *piece = bytes;
    size_t n_piece = tokenizer_piece(a->tok, token, false, bytes, sizeof bytes);
    cellar_status status = make_room(a, 3 * (n_piece + 3), error);
    if (status == CELLAR_OK && n_piece > sizeof bytes) {
        piece = malloc(n_piece);
        if (piece == NULL) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for the text of a token");
        }
        n_piece = tokenizer_piece(a->tok, token, false, piece, n_piece);
    }
    if (status != CELLAR_OK) {
        return status;
    }
    const bool drops = a->is_start && n_piece > 0 && piece[0] == ' ' &&
                       tokenizer_adds_space(a->tok);
    a->is_start = a->is_start && n_piece == 0;
    const size_t first = a->n_held;
    a->n_held += utf8_stream_push(&a->stream, piece + drops, n_piece - drops, a->held + a->n_held);
    if (piece != bytes) {
        free(piece);
    }
    look(a, first);
    *text = a->held;
    *n = a->n_out;
    return CELLAR_OK;
}

cellar_status answer_text_finish(answer_text *a, const char **text, size_t *n, cellar_error *error)
{
    cellar_status status = make_room(a, 12, error);
    if (status == CELLAR_OK) {
        a->n_held += utf8_stream_finish(&a->stream, a->held + a->n_held);
        a->n_out = a->n_held;
        *text = a->held;
        *n = a->n_out;
    }
    return status;
}
