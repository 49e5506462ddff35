/*
 * utf8.h: what counts as a character of UTF-8 (Unicode 15, table 3-7).
 *
 * One scan serves both sides: the tokenizer splits text into characters with it, and utf8_stream
 * (tokenizer.h) decides with it what to pass on, to keep waiting, or to replace.
 */
#ifndef APP_UTF8_H
#define APP_UTF8_H

#include <stddef.h>
#include <stdint.h>

typedef enum utf8_kind {
    UTF8_WHOLE,   /* a whole, valid character */
    UTF8_BEGUN,   /* the bytes end inside what may become one */
    UTF8_INVALID, /* a maximal part that can never become one */
} utf8_kind;

/* Look at the n >= 1 bytes; *length is how many (1..4) the answer is about. */
utf8_kind utf8_scan(const unsigned char *bytes, size_t n, size_t *length);

/* The code point of a whole character of `length` bytes. */
uint32_t utf8_code(const unsigned char *bytes, size_t length);

/* Write a code point, at most U+10FFFF; returns its bytes, at most 4. */
size_t utf8_put(uint32_t code, char *to);

#endif /* APP_UTF8_H */
