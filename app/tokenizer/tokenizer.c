/*
 * tokenizer.c: text to token ids and back.
 *
 * What is the same for every algorithm lives here: reading the special ids and switches of the
 * vocabulary, cutting a text at the special tokens written in it, and turning ids back into bytes.
 * The stretches between special tokens go to the algorithm (spm.c).
 *
 * Where a space is put: with add_space_prefix (the default) before the text and before the text
 * after each control token, as the models of this family were trained; a user-defined token is
 * part of the text around it, so none follows it, and none precedes it at the beginning.
 * tokenizer_decode takes away exactly these spaces.
 *
 * Special ids: a key that is there must name a token, else the file is refused; where a key is
 * absent the usual id of the family (unknown 0, BOS 1, EOS 2) counts, if there is such a token.
 */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "tokenizer/id_list.h"
#include "tokenizer/special.h"
#include "tokenizer/spm.h"
#include "tokenizer/vocabulary.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */
#define SPACE_BYTES 3
#define LONGEST_TEXT ((size_t)1 << 30)

_Static_assert(LONGEST_TEXT <= SPM_LONGEST_TEXT, "what is accepted must fit the algorithm");

struct tokenizer {
    vocabulary vocabulary;
    special_texts specials;
    cellar_token bos, eos, unknown; /* -1: none */
    cellar_token eot, eom;          /* end of a turn, of a message; -1: none */
    bool adds_bos, adds_eos, adds_space;
};

/* ---- creation ------------------------------------------------------------------------------- */

/* Refuse what is not the one algorithm we have. */
static cellar_status check_model(const gguf_file *file, cellar_error *error)
{
    gguf_string model;
    cellar_status status = gguf_get_string(file, "tokenizer.ggml.model", &model, error);
    if (status == CELLAR_NOT_FOUND) {
        return report(error, CELLAR_CORRUPT, -1, "no key tokenizer.ggml.model: no tokenizer");
    }
    if (status != CELLAR_OK) {
        return status;
    }
    if (model.length != 5 || memcmp(model.data, "llama", 5) != 0) {
        int shown = model.length < 40 ? (int)model.length : 40;
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "tokenizer.ggml.model is \"%.*s\"; supported is \"llama\"", shown,
                      model.data);
    }
    return CELLAR_OK;
}

static cellar_status read_id(const gguf_file *file, const char *key, uint32_t n_vocab, int usual,
                             cellar_token *id, cellar_error *error)
{
    uint32_t value = 0;
    cellar_status status = gguf_get_u32(file, key, &value, error);
    if (status == CELLAR_NOT_FOUND) {
        *id = usual < (int64_t)n_vocab ? usual : -1;
        return CELLAR_OK;
    }
    if (status != CELLAR_OK) {
        return status;
    }
    if (value >= n_vocab) {
        return report(error, CELLAR_CORRUPT, -1, "%s is %u, but there are only %u tokens", key,
                      (unsigned)value, (unsigned)n_vocab);
    }
    *id = (cellar_token)value;
    return CELLAR_OK;
}

static cellar_status read_ids(const gguf_file *file, tokenizer *tok, cellar_error *error)
{
    const struct {
        const char *key;
        int usual;
        cellar_token *id;
    } all[] = {
        {"tokenizer.ggml.unknown_token_id", 0, &tok->unknown},
        {"tokenizer.ggml.bos_token_id", 1, &tok->bos},
        {"tokenizer.ggml.eos_token_id", 2, &tok->eos},
        {"tokenizer.ggml.eot_token_id", -1, &tok->eot},
        {"tokenizer.ggml.eom_token_id", -1, &tok->eom},
    };
    cellar_status status = CELLAR_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == CELLAR_OK; i++) {
        status = read_id(file, all[i].key, tok->vocabulary.n, all[i].usual, all[i].id, error);
    }
    return status;
}

static cellar_status read_switches(const gguf_file *file, tokenizer *tok, cellar_error *error)
{
    const struct {
        const char *key;
        bool usual;
        bool *is_on;
    } all[] = {
        {"tokenizer.ggml.add_bos_token", true, &tok->adds_bos},
        {"tokenizer.ggml.add_eos_token", false, &tok->adds_eos},
        {"tokenizer.ggml.add_space_prefix", true, &tok->adds_space},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        *all[i].is_on = all[i].usual;
        cellar_status status = gguf_get_bool(file, all[i].key, all[i].is_on, error);
        if (status != CELLAR_OK && status != CELLAR_NOT_FOUND) {
            return status;
        }
    }
    tok->adds_bos = tok->adds_bos && tok->bos >= 0;
    tok->adds_eos = tok->adds_eos && tok->eos >= 0;
    return CELLAR_OK;
}

static cellar_status read_all(const gguf_file *file, tokenizer *tok, cellar_error *error)
{
    cellar_status status = check_model(file, error);
    if (status == CELLAR_OK) {
        status = vocabulary_read(file, &tok->vocabulary, error);
    }
    if (status == CELLAR_OK) {
        status = read_ids(file, tok, error);
    }
    if (status == CELLAR_OK) {
        status = read_switches(file, tok, error);
    }
    if (status == CELLAR_OK) {
        status = special_create(&tok->vocabulary, &tok->specials, error);
    }
    return status;
}

cellar_status tokenizer_create(const gguf_file *file, tokenizer **out, cellar_error *error)
{
    *out = NULL;
    tokenizer *tok = calloc(1, sizeof *tok);
    if (tok == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a tokenizer");
    }
    cellar_status status = read_all(file, tok, error);
    if (status != CELLAR_OK) {
        tokenizer_destroy(tok);
        return status;
    }
    if (error != NULL) {
        *error = (cellar_error){.status = CELLAR_OK, .at = -1}; /* absent keys left their message */
    }
    *out = tok;
    return CELLAR_OK;
}

void tokenizer_destroy(tokenizer *tok)
{
    if (tok != NULL) {
        special_free(&tok->specials);
        vocabulary_free(&tok->vocabulary);
        free(tok);
    }
}

/* ---- questions ------------------------------------------------------------------------------ */

uint32_t tokenizer_size(const tokenizer *tok)
{
    return tok->vocabulary.n;
}

cellar_token tokenizer_bos(const tokenizer *tok)
{
    return tok->bos;
}

cellar_token tokenizer_eos(const tokenizer *tok)
{
    return tok->eos;
}

bool tokenizer_adds_bos(const tokenizer *tok)
{
    return tok->adds_bos;
}

bool tokenizer_adds_space(const tokenizer *tok)
{
    return tok->adds_space;
}

static bool is_in_range(const tokenizer *tok, cellar_token id)
{
    return id >= 0 && (uint32_t)id < tok->vocabulary.n;
}

/* Control and unknown tokens: silent in a text. */
static bool is_silent(const tokenizer *tok, cellar_token id)
{
    uint8_t type = tok->vocabulary.types[id];
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

/* Names under which fine-tuned models end a turn, often without telling it by a key. */
static bool is_named_like_an_end(gguf_string text)
{
    static const char *const names[] = {
        "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<end_of_turn>",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (text.length == strlen(names[i]) && memcmp(text.data, names[i], text.length) == 0) {
            return true;
        }
    }
    return false;
}

bool tokenizer_ends_text(const tokenizer *tok, cellar_token id)
{
    if (!is_in_range(tok, id)) {
        return false;
    }
    if (id == tok->eos || id == tok->eot || id == tok->eom) {
        return true;
    }
    uint8_t type = tok->vocabulary.types[id];
    return (type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED) &&
           is_named_like_an_end(tok->vocabulary.texts[id]);
}

/* ---- text to ids ---------------------------------------------------------------------------- */

/* Does encoding put a space before ordinary text that follows this token? */
static bool is_space_due_after(const tokenizer *tok, cellar_token id)
{
    return tok->adds_space && tok->vocabulary.types[id] == TOKEN_CONTROL;
}

static cellar_status append(id_list *ids, cellar_token id, cellar_error *error)
{
    if (!id_list_append(ids, id)) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %llu tokens",
                      (unsigned long long)ids->n + 1);
    }
    return CELLAR_OK;
}

/* The text between BOS and EOS: ordinary stretches and the special tokens between them. */
static cellar_status encode_text(const tokenizer *tok, const char *text, size_t length,
                                 tokenize_options options, id_list *ids, cellar_error *error)
{
    const bool with_control = options.parse_special;
    bool is_space_due = tok->adds_space && !options.continues_text;
    size_t from = 0;
    while (from < length) {
        size_t at;
        cellar_token special = special_find(&tok->specials, text, length, from, with_control, &at);
        if (at > from) {
            cellar_status status = spm_encode(&tok->vocabulary, tok->unknown, text + from,
                                              at - from, is_space_due, ids, error);
            if (status != CELLAR_OK) {
                return status;
            }
            is_space_due = false;
        }
        if (special < 0) {
            break;
        }
        cellar_status status = append(ids, special, error);
        if (status != CELLAR_OK) {
            return status;
        }
        is_space_due = is_space_due_after(tok, special);
        from = at + tok->vocabulary.texts[special].length;
    }
    return CELLAR_OK;
}

cellar_status tokenizer_encode(const tokenizer *tok, const char *text, size_t length,
                               tokenize_options options, cellar_token **ids, size_t *n,
                               cellar_error *error)
{
    *ids = NULL;
    *n = 0;
    if (length > LONGEST_TEXT) {
        return report(error, CELLAR_INVALID, -1,
                      "a text of %llu bytes is too long, the most is %llu",
                      (unsigned long long)length, (unsigned long long)LONGEST_TEXT);
    }
    id_list list = {0};
    cellar_status status = CELLAR_OK;
    if (options.add_special && tok->adds_bos) {
        status = append(&list, tok->bos, error);
    }
    if (status == CELLAR_OK) {
        status = encode_text(tok, text, length, options, &list, error);
    }
    if (status == CELLAR_OK && options.add_special && tok->adds_eos) {
        status = append(&list, tok->eos, error);
    }
    if (status != CELLAR_OK) {
        free(list.ids);
        return status;
    }
    *ids = list.ids;
    *n = list.n;
    return CELLAR_OK;
}

/* ---- ids to text ---------------------------------------------------------------------------- */

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

static size_t copy_as_is(const char *data, size_t length, char *to, size_t capacity)
{
    size_t n = length < capacity ? length : capacity;
    if (n > 0) {
        memcpy(to, data, n);
    }
    return length;
}

size_t tokenizer_piece(const tokenizer *tok, cellar_token id, bool show_special, char *to,
                       size_t capacity)
{
    if (!is_in_range(tok, id) || (is_silent(tok, id) && !show_special)) {
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
        return copy_with_spaces(text, to, capacity);
    default: /* found in a text letter by letter, so given back letter by letter */
        return copy_as_is(text.data, text.length, to, capacity);
    }
}

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
    if (!is_in_range(d->tok, id)) {
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
        d->is_space_due = is_space_due_after(d->tok, id);
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
