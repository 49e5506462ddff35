/*
 * swallowing.c: which families have special tokens that take white space, and what white space is.
 *
 * The flags are those of the models' own tokenizer.json files. White space is Unicode's White_Space.
 * Only control and user-defined tokens can swallow: others are not found by their spelling. Fails
 * only for want of memory.
 */
#include "tokenizer/swallowing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

/* ---- families ------------------------------------------------------------------------------- */

#define MOST_NAMES 16

typedef struct family {
    const char *architecture, *model; /* general.architecture, tokenizer.ggml.model */
    uint8_t swallows;
    const char *names[MOST_NAMES + 1]; /* ended by NULL */
} family;

static const family families[] = {
    /* Phi-3 and 3.5 mini, medium; Phi-4, of the same architecture, has another tokenizer. */
    {"phi3",
     "llama",
     SWALLOWS_AFTER,
     {"</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|placeholder1|>",
      "<|placeholder2|>", "<|placeholder3|>", "<|placeholder4|>", "<|placeholder5|>",
      "<|placeholder6|>", NULL}},
};

static bool is_text(const gguf_file *file, const char *key, const char *expected)
{
    gguf_string value;
    return gguf_get_string(file, key, &value, NULL) == CELLAR_OK &&
           value.length == strlen(expected) && memcmp(value.data, expected, value.length) == 0;
}

static const family *find_family(const gguf_file *file)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (is_text(file, "general.architecture", families[i].architecture) &&
            is_text(file, "tokenizer.ggml.model", families[i].model)) {
            return &families[i];
        }
    }
    return NULL;
}

static bool has_name(const family *f, gguf_string text)
{
    for (size_t i = 0; f->names[i] != NULL; i++) {
        if (text.length == strlen(f->names[i]) &&
            memcmp(text.data, f->names[i], text.length) == 0) {
            return true;
        }
    }
    return false;
}

cellar_status swallowing_create(const gguf_file *file, const vocabulary *v, uint8_t **out,
                                cellar_error *error)
{
    *out = NULL;
    const family *f = find_family(file);
    if (f == NULL) {
        return CELLAR_OK;
    }
    *out = calloc(v->n, 1);
    if (*out == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %u tokens", (unsigned)v->n);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        const bool can = v->types[i] == TOKEN_CONTROL || v->types[i] == TOKEN_USER_DEFINED;
        if (can && has_name(f, v->texts[i])) {
            (*out)[i] = f->swallows;
        }
    }
    return CELLAR_OK;
}

/* ---- white space ---------------------------------------------------------------------------- */

/* Bytes of the white space at text[at..length), 0: it is none. */
static size_t space_at(const char *text, size_t length, size_t at)
{
    const unsigned char *bytes = (const unsigned char *)text + at;
    size_t n;
    if (at >= length || utf8_scan(bytes, length - at, &n) != UTF8_WHOLE) {
        return 0;
    }
    return unicode_class(utf8_code(bytes, n)) == UNICODE_SPACE ? n : 0;
}

size_t swallowing_skip(const char *text, size_t length, size_t from)
{
    for (size_t n; (n = space_at(text, length, from)) > 0;) {
        from += n;
    }
    return from;
}

size_t swallowing_trim(const char *text, size_t from, size_t end)
{
    while (end > from) {
        size_t at = end - 1;
        while (at > from && ((unsigned char)text[at] & 0xC0) == 0x80) {
            at--;
        }
        const size_t n = space_at(text, end, at);
        if (n == 0 || at + n != end) {
            break;
        }
        end = at;
    }
    return end;
}
