/*
 * byte_text.c: bytes written as printable characters.
 *
 * The bytes that are not printed as themselves are three stretches: 00..20 become U+0100..U+0120,
 * 7F..A0 become U+0121..U+0142, and AD becomes U+0143. So both directions are a few comparisons and
 * no table. Nothing here can fail.
 */
#include "tokenizer/byte_text.h"

#define FIRST_MOVED 0x100u
#define N_LOW 0x21u  /* 00..20 */
#define N_HIGH 0x22u /* 7F..A0 */

static unsigned character_of(unsigned char byte)
{
    if (byte < N_LOW) {
        return FIRST_MOVED + byte;
    }
    if (byte >= 0x7F && byte < 0x7F + N_HIGH) {
        return FIRST_MOVED + N_LOW + (byte - 0x7Fu);
    }
    return byte == 0xAD ? FIRST_MOVED + N_LOW + N_HIGH : byte;
}

static int byte_of(unsigned code)
{
    if (code < FIRST_MOVED) {
        return character_of((unsigned char)code) == code ? (int)code : -1;
    }
    unsigned moved = code - FIRST_MOVED;
    if (moved < N_LOW) {
        return (int)moved;
    }
    if (moved < N_LOW + N_HIGH) {
        return (int)(moved - N_LOW + 0x7F);
    }
    return moved == N_LOW + N_HIGH ? 0xAD : -1;
}

size_t byte_text_put(unsigned char byte, char to[2])
{
    unsigned code = character_of(byte);
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    to[0] = (char)(0xC0 | code >> 6);
    to[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

int byte_text_get(const char *text, size_t n, size_t *length)
{
    unsigned char first = (unsigned char)text[0];
    *length = 1;
    if (first < 0x80) {
        return byte_of(first);
    }
    if (first < 0xC2 || first > 0xDF || n < 2 || ((unsigned char)text[1] & 0xC0) != 0x80) {
        return -1;
    }
    int byte = byte_of((first & 0x1Fu) << 6 | ((unsigned char)text[1] & 0x3Fu));
    *length = byte < 0 ? 1 : 2;
    return byte;
}
