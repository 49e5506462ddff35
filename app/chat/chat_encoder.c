/*
 * chat_encoder.c: marks, and tokens with their places in the text, for chat_encoder.h.
 *
 * Which texts are control tokens is asked of the tokenizer, token by token, once: those that are
 * silent in a text, and those that end it. They are few and begin with few different bytes, so each
 * is simply tried where its first byte stands.
 *
 * Where a token ends in the text follows from its piece, as long as the pieces in a row are the text.
 * Where they are not (a character that has no token, say) the tokens between two cuts have no known
 * ends, and whoever goes back has to go back to the cut before.
 */
#include "chat/chat_encoder.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

#define MARK "\xEF\xB7\x90"        /* U+FDD0 */
#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */
#define MARK_BYTES 3u
#define FIRST_PIECE 64u

typedef struct control_text {
    const char *bytes; /* in the encoder's texts */
    size_t n;
} control_text;

struct chat_encoder {
    const tokenizer *tok;
    bool *is_control;                /* [tokenizer_size] */
    control_text *controls;          /* [n_controls], sorted by first byte */
    uint32_t n_controls, first[257]; /* those that begin with byte b: first[b] .. first[b + 1] */
    char *texts;
};

/* ---- creation ------------------------------------------------------------------------------- */

/* Is it silent, or the end of a text? *n: bytes of its text. */
static bool looks_like_control(const tokenizer *tok, cellar_token id, size_t *n)
{
    *n = tokenizer_piece(tok, id, true, NULL, 0);
    return *n > 0 &&
           (tokenizer_piece(tok, id, false, NULL, 0) == 0 || tokenizer_ends_text(tok, id));
}

static int by_first_byte(const void *a, const void *b)
{
    const control_text *x = a, *y = b;
    return (int)(unsigned char)x->bytes[0] - (int)(unsigned char)y->bytes[0];
}

static cellar_status list_controls(chat_encoder *encoder, cellar_error *error)
{
    const uint32_t n_vocab = tokenizer_size(encoder->tok);
    size_t total = 0, n;
    encoder->is_control = calloc((size_t)n_vocab + 1, sizeof *encoder->is_control);
    for (uint32_t id = 0; encoder->is_control != NULL && id < n_vocab; id++) {
        encoder->is_control[id] = looks_like_control(encoder->tok, (cellar_token)id, &n);
        encoder->n_controls += encoder->is_control[id];
        total += encoder->is_control[id] ? n : 0;
    }
    encoder->texts = malloc(total + 1);
    encoder->controls = malloc((encoder->n_controls + 1) * sizeof *encoder->controls);
    if (encoder->is_control == NULL || encoder->texts == NULL || encoder->controls == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the control tokens of the model");
    }
    uint32_t at = 0;
    char *text = encoder->texts;
    for (uint32_t id = 0; id < n_vocab; id++) {
        if (encoder->is_control[id]) {
            n = tokenizer_piece(encoder->tok, (cellar_token)id, true, text, total);
            encoder->controls[at++] = (control_text){text, n};
            text += n;
        }
    }
    qsort(encoder->controls, at, sizeof *encoder->controls, by_first_byte);
    for (uint32_t byte = 0, i = 0; byte < 257; byte++) {
        while (i < at && (unsigned char)encoder->controls[i].bytes[0] < byte) {
            i++;
        }
        encoder->first[byte] = i;
    }
    return CELLAR_OK;
}

cellar_status chat_encoder_create(const tokenizer *tok, chat_encoder **out, cellar_error *error)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for reading conversations");
    }
    (*out)->tok = tok;
    cellar_status status = list_controls(*out, error);
    if (status != CELLAR_OK) {
        chat_encoder_destroy(*out);
        *out = NULL;
    }
    return status;
}

void chat_encoder_destroy(chat_encoder *encoder)
{
    if (encoder != NULL) {
        free(encoder->is_control);
        free(encoder->controls);
        free(encoder->texts);
        free(encoder);
    }
}

bool chat_encoder_is_control(const chat_encoder *encoder, cellar_token token)
{
    return token >= 0 && (uint32_t)token < tokenizer_size(encoder->tok) &&
           encoder->is_control[token];
}

/* ---- marks ---------------------------------------------------------------------------------- */

/* Does a control token begin here? Then the bytes of its first character; *is_whole: it has no more. */
static size_t control_here(const chat_encoder *encoder, const char *at, size_t n, bool *is_whole)
{
    const unsigned char byte = (unsigned char)*at;
    bool is_found = false;
    *is_whole = false;
    size_t first = 1;
    while (first < n && ((unsigned char)at[first] & 0xc0) == 0x80) {
        first++;
    }
    for (uint32_t i = encoder->first[byte]; i < encoder->first[byte + 1]; i++) {
        const control_text *control = &encoder->controls[i];
        if (control->n <= n && memcmp(control->bytes, at, control->n) == 0) {
            is_found = true;
            *is_whole = *is_whole || control->n <= first;
        }
    }
    return is_found ? first : 0;
}

/* At most three times as long: a character gets a mark on both sides. */
static size_t mark_text(const chat_encoder *encoder, const char *text, size_t n, char *to)
{
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        bool is_whole;
        if (n - at >= MARK_BYTES && memcmp(text + at, MARK, MARK_BYTES) == 0) {
            memcpy(to + used, REPLACEMENT, MARK_BYTES);
            used += MARK_BYTES;
            at += MARK_BYTES;
            continue;
        }
        const size_t first = control_here(encoder, text + at, n - at, &is_whole);
        if (is_whole) {
            memcpy(to + used, MARK, MARK_BYTES);
            used += MARK_BYTES;
        }
        const size_t copied = first > 0 ? first : 1;
        memcpy(to + used, text + at, copied);
        used += copied;
        at += copied;
        if (first > 0) {
            memcpy(to + used, MARK, MARK_BYTES);
            used += MARK_BYTES;
        }
    }
    return used;
}

static json_t *mark_string(const chat_encoder *encoder, const json_t *value)
{
    const size_t n = json_string_length(value);
    if (n > SIZE_MAX / 8) {
        return NULL;
    }
    char *marked = malloc((1 + 2 * MARK_BYTES) * n + 1);
    json_t *made = NULL;
    if (marked != NULL) {
        made = json_stringn(marked, mark_text(encoder, json_string_value(value), n, marked));
    }
    free(marked);
    return made;
}

/* Recursive, as deep as the value; whoever reads values from outside bounds their depth. */
json_t *chat_encoder_mark(const chat_encoder *encoder, const json_t *value)
{
    if (json_is_string(value)) {
        return mark_string(encoder, value);
    }
    json_t *made = json_is_array(value)    ? json_array()
                   : json_is_object(value) ? json_object()
                                           : json_deep_copy(value);
    bool is_good = made != NULL;
    for (size_t i = 0; is_good && i < json_array_size(value); i++) {
        is_good = json_array_append_new(made,
                                        chat_encoder_mark(encoder, json_array_get(value, i))) == 0;
    }
    void *object = (void *)(uintptr_t)value; /* jansson's iterators are not const */
    for (void *at = json_object_iter(object); is_good && at != NULL;
         at = json_object_iter_next(object, at)) {
        json_t *member = chat_encoder_mark(encoder, json_object_iter_value(at));
        is_good = json_object_set_new(made, json_object_iter_key(at), member) == 0;
    }
    if (!is_good) {
        json_decref(made);
        made = NULL;
    }
    return made;
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* The piece as it is written out, malloc'ed. */
static char *whole_piece(const chat_encoder *encoder, cellar_token token, size_t *n)
{
    *n = tokenizer_piece(encoder->tok, token, true, NULL, 0);
    char *piece = malloc(*n + 1);
    if (piece != NULL) {
        tokenizer_piece(encoder->tok, token, true, piece, *n);
    }
    return piece;
}

/* Would the tokenizer put a space before ordinary text behind the tokens of `t`? */
static bool is_space_due(const chat_encoder *encoder, const chat_text *t)
{
    return tokenizer_adds_space(encoder->tok) &&
           (t->n_tokens == 0 || chat_encoder_is_control(encoder, t->tokens[t->n_tokens - 1]));
}

char *chat_encoder_piece(const chat_encoder *encoder, const chat_text *t, cellar_token token,
                         size_t *n)
{
    char *piece = whole_piece(encoder, token, n);
    if (piece != NULL && *n > 0 && piece[0] == ' ' && is_space_due(encoder, t) &&
        !chat_encoder_is_control(encoder, token)) {
        memmove(piece, piece + 1, --*n);
    }
    return piece;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* A part of the text without a mark: where it lies in the whole, and how it is read. */
typedef struct part {
    const char *bytes;
    size_t n;
    uint32_t place; /* of its first byte in the text */
    tokenize_options how;
} part;

static bool match_bytes(const part *p, const char *bytes, size_t n, size_t *from)
{
    if (n > p->n - *from || (n > 0 && memcmp(p->bytes + *from, bytes, n) != 0)) {
        return false;
    }
    *from += n;
    return true;
}

/* Does the piece stand at *from, perhaps without a space that was put before it? Then step over it. */
static bool match_piece(const part *p, const char *piece, size_t n, bool is_due, size_t *from)
{
    return (is_due && n > 0 && piece[0] == ' ' && match_bytes(p, piece + 1, n - 1, from)) ||
           match_bytes(p, piece, n, from);
}

/* Set the ends of the tokens from `first` on; unknown ones if the pieces are not the part. */
static cellar_status place_tokens(const chat_encoder *encoder, const part *p, uint32_t first,
                                  chat_text *out, cellar_error *error)
{
    bool is_due = tokenizer_adds_space(encoder->tok) && !p->how.continues_text, is_good = true;
    size_t at = p->how.drops_space ? tokenizer_skip_space(p->bytes, p->n, 0) : 0;
    for (uint32_t i = first; is_good && i < out->n_tokens; i++) {
        size_t n;
        char *piece = whole_piece(encoder, out->tokens[i], &n);
        if (piece == NULL) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for the text of a token");
        }
        const bool is_control = chat_encoder_is_control(encoder, out->tokens[i]);
        if (tokenizer_swallows_before(encoder->tok, out->tokens[i])) {
            at = tokenizer_skip_space(p->bytes, p->n, at);
        }
        is_good = match_piece(p, piece, n, is_due && !is_control, &at);
        if (tokenizer_swallows_after(encoder->tok, out->tokens[i])) {
            at = tokenizer_skip_space(p->bytes, p->n, at);
        }
        out->ends[i] = p->place + (uint32_t)at;
        is_due = is_control ? tokenizer_adds_space(encoder->tok) : is_due && n == 0;
        free(piece);
    }
    if (!is_good || at != p->n) {
        for (uint32_t i = first; i < out->n_tokens; i++) {
            out->ends[i] = CHAT_TEXT_UNKNOWN;
        }
    }
    out->ends[out->n_tokens - 1] = p->place + (uint32_t)p->n;
    return CELLAR_OK;
}

/* May the tokenizer begin before token i of a part that begins with token `first`? */
static chat_start start_of(const chat_encoder *encoder, const part *p, const cellar_token *tokens,
                           size_t i)
{
    const bool is_behind_control = i > 0 && chat_encoder_is_control(encoder, tokens[i - 1]);
    if (i == 0) {
        return p->how.continues_text ? CHAT_START_CONTINUES : CHAT_START_ANEW;
    }
    return is_behind_control                             ? CHAT_START_ANEW
           : chat_encoder_is_control(encoder, tokens[i]) ? CHAT_START_CONTINUES
                                                         : CHAT_START_INSIDE;
}

static cellar_status read_part(const chat_encoder *encoder, const part *p, chat_text *out,
                               cellar_error *error)
{
    cellar_token *tokens = NULL;
    size_t n = 0;
    cellar_status status = tokenizer_encode(encoder->tok, p->bytes, p->n, p->how, &tokens, &n,
                                            error);
    const uint32_t first = out->n_tokens;
    for (size_t i = 0; status == CELLAR_OK && i < n; i++) {
        status = chat_text_add_token(out, tokens[i], CHAT_TEXT_UNKNOWN,
                                     start_of(encoder, p, tokens, i), error);
    }
    free(tokens);
    if (status == CELLAR_OK && n == 0 && p->how.drops_space && out->ends[first - 1] == p->place) {
        out->ends[first - 1] += (uint32_t)p->n; /* all of it is swallowed by the token before it */
    }
    return status == CELLAR_OK && n > 0 ? place_tokens(encoder, p, first, out, error) : status;
}

static const char *find_mark(const char *bytes, size_t n)
{
    for (size_t i = 0; i + MARK_BYTES <= n; i++) {
        if (memcmp(bytes + i, MARK, MARK_BYTES) == 0) {
            return bytes + i;
        }
    }
    return NULL;
}

static bool is_one_character(const char *bytes, size_t n)
{
    size_t first = 1;
    while (first < n && ((unsigned char)bytes[first] & 0xc0) == 0x80) {
        first++;
    }
    return n > 0 && first == n;
}

/* The model wants a token before every text, and the template did not write it. */
static cellar_status add_beginning(const chat_encoder *encoder, chat_text *out, cellar_error *error)
{
    const cellar_token bos = tokenizer_bos(encoder->tok);
    if (!tokenizer_adds_bos(encoder->tok) || (out->n_tokens > 0 && out->tokens[0] == bos)) {
        return CELLAR_OK;
    }
    cellar_status status = chat_text_add_token(out, bos, 0, CHAT_START_ANEW, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const size_t n = out->n_tokens - 1u;
    memmove(out->tokens + 1, out->tokens, n * sizeof *out->tokens);
    memmove(out->ends + 1, out->ends, n * sizeof *out->ends);
    memmove(out->starts + 1, out->starts, n * sizeof *out->starts);
    out->tokens[0] = bos;
    out->ends[0] = 0;
    out->starts[0] = CHAT_START_ANEW;
    return CELLAR_OK;
}

cellar_status chat_encoder_read(const chat_encoder *encoder, const char *bytes, size_t n,
                                chat_text *out, cellar_error *error)
{
    const bool is_beginning = out->n_tokens == 0;
    const uint32_t place = out->n_bytes;
    cellar_status status = chat_text_add_bytes(out, bytes, n, error);
    bool is_behind_mark = false;
    for (size_t at = 0; status == CELLAR_OK && at < n;) {
        const char *mark = find_mark(bytes + at, n - at);
        part p = {.bytes = bytes + at,
                  .n = mark != NULL ? (size_t)(mark - bytes) - at : n - at,
                  .place = place + (uint32_t)at};
        const bool is_between_marks = is_behind_mark && mark != NULL;
        p.how.parse_special = !(is_between_marks && is_one_character(p.bytes, p.n));
        p.how.continues_text = is_behind_mark ||
                               (out->n_tokens > 0 &&
                                !chat_encoder_is_control(encoder, out->tokens[out->n_tokens - 1]));
        p.how.drops_space = out->n_tokens > 0 &&
                            tokenizer_swallows_after(encoder->tok, out->tokens[out->n_tokens - 1]);
        status = p.n > 0 ? read_part(encoder, &p, out, error) : CELLAR_OK;
        at += p.n + (mark != NULL ? MARK_BYTES : 0);
        is_behind_mark = mark != NULL;
    }
    return status == CELLAR_OK && is_beginning ? add_beginning(encoder, out, error) : status;
}
