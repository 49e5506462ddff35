/*
 * safe_text.h: look at bytes that somebody else wrote before showing them to a person.
 *
 * Names and texts in a model file may hold anything: escape sequences that drive a terminal, bytes
 * that are not UTF-8, characters that turn the reading direction around. Whoever prints such bytes
 * walks over them with safe_text_decode and shows as they are only the characters that
 * safe_text_is_printable allows.
 *
 * Everything here is static inline and never fails: a byte that starts no valid character is a
 * "character" of one byte with the value SAFE_TEXT_INVALID. UTF-8 as in RFC 3629: no overlong
 * forms, no surrogates, nothing above U+10FFFF.
 */
#ifndef APP_SAFE_TEXT_H
#define APP_SAFE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAFE_TEXT_INVALID UINT32_MAX

/*
 * Take the first character of text[0..length), length >= 1; *used becomes its size in bytes, 1..4.
 */
static inline uint32_t safe_text_decode(const char *text, size_t length, size_t *used)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = (const unsigned char *)text;
    const unsigned first = byte[0];
    *used = 1;
    if (first < 0x80) return first;
    const size_t size = first >= 0xf8   ? 0
                        : first >= 0xf0 ? 4
                        : first >= 0xe0 ? 3
                        : first >= 0xc0 ? 2
                                        : 0;
    if (size == 0 || size > length) return SAFE_TEXT_INVALID;
    uint32_t code = first & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((byte[i] & 0xc0u) != 0x80u) return SAFE_TEXT_INVALID;
        code = code << 6 | (byte[i] & 0x3fu);
    }
    if (code < smallest[size] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return SAFE_TEXT_INVALID;
    *used = size;
    return code;
}

/* Is the whole of text[0..length) UTF-8? */
static inline bool safe_text_is_utf8(const char *text, size_t length)
{
    size_t used = 0;
    for (size_t at = 0; at < length; at += used)
        if (safe_text_decode(text + at, length - at, &used) == SAFE_TEXT_INVALID) return false;
    return true;
}

/*
 * May a terminal see this character? No: controls (C0, DEL, C1), line separators, direction
 * changes, invalid bytes.
 */
static inline bool safe_text_is_printable(uint32_t code)
{
    return code >= 0x20 && (code < 0x7f || code > 0x9f) && code != SAFE_TEXT_INVALID &&
           code != 0x061c && !(code >= 0x200e && code <= 0x200f) &&
           !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069) &&
           code != 0xfeff;
}

#endif /* APP_SAFE_TEXT_H */
