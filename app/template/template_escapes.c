/*
 * template_escapes.c: what a backslash means in a text literal.
 *
 * As in Python: \n and its like, \xHH, \uHHHH, \UHHHHHHHH, up to three octal digits, and a backslash at a
 * line's end joins the lines. A backslash before anything else stands for itself. Refused: \N{...} (names
 * of characters), numbers that are no character, and digits that are missing.
 */
#include <string.h>

#include "template/template_syntax.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static size_t put_code(char *to, uint32_t code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    const size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = size - 1; i > 0; i--) {
        to[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    to[0] = (char)(lead[size] | code);
    return size;
}

/* Exactly n hexadecimal digits at raw[at]. */
static bool read_hex(template_text raw, size_t at, size_t n, uint32_t *code)
{
    *code = 0;
    for (size_t i = 0; i < n; i++) {
        const int digit = at + i < raw.length ? hex_digit(raw.data[at + i]) : -1;
        if (digit < 0) return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return *code <= 0x10ffff && !(*code >= 0xd800 && *code <= 0xdfff);
}

static size_t read_octal(template_text raw, size_t at, uint32_t *code)
{
    size_t n = 0;
    *code = 0;
    while (n < 3 && at + n < raw.length && raw.data[at + n] >= '0' && raw.data[at + n] <= '7')
        *code = *code << 3 | (uint32_t)(raw.data[at + n++] - '0');
    return n;
}

/* The escape whose letter is raw[at]: how many bytes it has from there, 0: it is none; its text in to[*n]. */
static size_t resolve(template_text raw, size_t at, char *to, size_t *n, bool *is_bad)
{
    static const char letters[] = "abfnrtv\\'\"", meanings[] = "\a\b\f\n\r\t\v\\'\"";
    const char letter = raw.data[at];
    const char *simple = letter == '\0' ? NULL : strchr(letters, letter);
    uint32_t code;
    if (letter == '\n') return 1;
    if (simple != NULL) {
        to[(*n)++] = meanings[simple - letters];
        return 1;
    }
    if (letter == 'x' || letter == 'u' || letter == 'U') {
        const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
        *is_bad = !read_hex(raw, at + 1, digits, &code);
        if (!*is_bad) *n += put_code(to + *n, code);
        return 1 + digits;
    }
    *is_bad = letter == 'N';
    const size_t octal = read_octal(raw, at, &code);
    if (octal > 0) *n += put_code(to + *n, code);
    return octal;
}

bool template_unescape(template_compiler *compiler, uint32_t offset, template_text raw,
                       template_text *out)
{
    *out = raw;
    if (raw.length == 0 || memchr(raw.data, '\\', raw.length) == NULL) return true;
    char *to = template_syntax_take(compiler, raw.length); /* no escape is shorter than its text */
    if (to == NULL) return false;
    size_t n = 0;
    for (size_t at = 0; at < raw.length;) {
        if (raw.data[at] != '\\' || at + 1 == raw.length) {
            to[n++] = raw.data[at++];
            continue;
        }
        bool is_bad = false;
        const size_t used = resolve(raw, at + 1, to, &n, &is_bad);
        if (is_bad)
            return template_syntax_fail(compiler, CELLAR_CORRUPT, (uint32_t)(offset + 1 + at),
                                        "this escape names no character");
        if (used == 0) to[n++] = '\\';
        at += 1 + used;
    }
    *out = (template_text){to, n};
    return true;
}
