/*
 * byte_text.h: bytes written as printable characters, as byte-level vocabularies spell their tokens.
 *
 * GPT-2's table: the bytes 21..7E, A1..AC and AE..FF are the characters of the same number; the
 * others are, in their order, U+0100, U+0101, ... So a space is U+0120 and a line end U+010A, and
 * every byte takes one or two bytes of UTF-8.
 */
#ifndef APP_BYTE_TEXT_H
#define APP_BYTE_TEXT_H

#include <stddef.h>

/* Write a byte as its character to `to`; returns 1 or 2. */
size_t byte_text_put(unsigned char byte, char to[2]);

/*
 * The byte that the character at the start of text[0..n) stands for, and in *length how long it is;
 * -1: none, then *length is 1. n >= 1.
 */
int byte_text_get(const char *text, size_t n, size_t *length);

#endif /* APP_BYTE_TEXT_H */
