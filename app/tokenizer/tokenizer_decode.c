/*
 * tokenizer_decode.c: token ids to text.
 *
 * A token's bytes depend on how its vocabulary spells texts: SentencePiece has U+2581 for a space
 * and byte tokens, byte-level BPE a character for each byte, RWKV's the bytes themselves. Special
 * tokens are spelled as they are in all. The spaces that encoding put before ordinary text are taken away again, by the same rule
 * (tokenizer_adds_space_after).
 *
 * The bytes are counted first and written afterwards, so nothing grows. Fails only for want of
 * memory.
 */
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "tokenizer/byte_text.h"
#include "tokenizer/tokenizer_internal.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */
#define SPACE_BYTES 3

/* ---- one token ------------------------------------------------------------------------------ */

/* Control and unknown tokens: silent in a text. */
static bool is_silent(const tokenizer *tok, cellar_token id)
{
    uint8_t type = tok->vocabulary.types[id];
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

/* A text with spaces for U+2581; writes at most `capacity` bytes of it, returns how many it has. */
static size_t copy_with_spaces(gguf_string text, char *to, size_t capacity)
{
    size_t n = 0;
    for (size_t i = 0; i < text.length; n++) {
        bool is_space = text.length - i >= SPACE_BYTES &&
                        memcmp(text.data + i, SPACE, SPACE_BYTES) == 0;
        if (n < capacity) {
            to[n] = is_space ? ' ' : text.data[i];
        }
        i += is_space ? SPACE_BYTES : 1;
    }
    return n;
}

/* A text whose characters stand for bytes; what stands for none is copied. */
static size_t copy_bytes(gguf_string text, char *to, size_t capacity)
{
    size_t n = 0;
    for (size_t i = 0, length; i < text.length; i += length, n++) {
        int byte = byte_text_get(text.data + i, text.length - i, &length);
        if (n < capacity) {
            to[n] = byte >= 0 ? (char)byte : text.data[i];
        }
    }
    return n;
}

static size_t copy_as_is(const char *data, size_t length, char *to, size_t capacity)
{
    size_t n = length < capacity ? length : capacity;
    if (n > 0) {
        memcpy(to, data, n);
    }
    return length;
}

/* A text as this kind of vocabulary spells it. */
static size_t copy_normal(const tokenizer *tok, gguf_string text, char *to, size_t capacity)
{
    switch (tok->kind) {
    case TOKENIZER_BYTES:
        return copy_bytes(text, to, capacity);
    case TOKENIZER_GREEDY:
        return copy_as_is(text.data, text.length, to, capacity);
    default:
        return copy_with_spaces(text, to, capacity);
    }
}

size_t tokenizer_piece(const tokenizer *tok, cellar_token id, bool show_special, char *to,
                       size_t capacity)
{
    if (!tokenizer_has(tok, id) || (is_silent(tok, id) && !show_special)) {
        return 0;
    }
    gguf_string text = tok->vocabulary.texts[id];
    switch (tok->vocabulary.types[id]) {
    case TOKEN_BYTE: {
        char byte = (char)vocabulary_byte(&tok->vocabulary, id);
        return copy_as_is(&byte, 1, to, capacity);
    }
    case TOKEN_NORMAL:
    case TOKEN_UNUSED:
        return copy_normal(tok, text, to, capacity);
    default: /* found in a text letter by letter, so given back letter by letter */
        return copy_as_is(text.data, text.length, to, capacity);
    }
}

/* ---- a text -------------------------------------------------------------------------------- */

/* A walk over the ids of a text that are to be decoded. */
typedef struct decoding {
    const tokenizer *tok;
    bool show_special;
    bool is_space_due; /* the next ordinary piece begins with the space that encoding added */
} decoding;

/*
 * The bytes of the next piece, without an added space; with `to`, they are written there, and one
 * more may be.
 */
static size_t decode_piece(decoding *d, cellar_token id, char *to)
{
    if (!tokenizer_has(d->tok, id)) {
        return 0;
    }
    uint8_t type = d->tok->vocabulary.types[id];
    char first = 0;
    size_t size = tokenizer_piece(d->tok, id, d->show_special, &first, 1);
    bool is_ordinary = type == TOKEN_NORMAL || type == TOKEN_BYTE || type == TOKEN_UNUSED;
    bool is_dropped = d->is_space_due && is_ordinary && size > 0 && first == ' ';
    if (to != NULL) {
        tokenizer_piece(d->tok, id, d->show_special, to, size);
        memmove(to, to + is_dropped, size - is_dropped);
    }
    if (!is_ordinary || size > 0) {
        d->is_space_due = tokenizer_adds_space_after(d->tok, id);
    }
    return size - is_dropped;
}

cellar_status tokenizer_decode(const tokenizer *tok, const cellar_token *ids, size_t n,
                               bool show_special, char **text, size_t *length, cellar_error *error)
{
    const decoding start = {tok, show_special, tok->adds_space};
    *text = NULL;
    *length = 0;
    size_t total = 0;
    decoding counting = start, writing = start;
    for (size_t i = 0; i < n; i++) {
        if (__builtin_add_overflow(total, decode_piece(&counting, ids[i], NULL), &total)) {
            total = SIZE_MAX;
            break;
        }
    }
    if (total == 0) {
        return CELLAR_OK;
    }
    char *written = total < SIZE_MAX ? malloc(total + 1) : NULL;
    if (written == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the text of %llu tokens",
                      (unsigned long long)n);
    }
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        used += decode_piece(&writing, ids[i], written + used);
    }
    *text = written;
    *length = used;
    return CELLAR_OK;
}
