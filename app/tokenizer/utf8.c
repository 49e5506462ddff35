/*
 * utf8.c: scan UTF-8, and turn a stream of bytes into valid UTF-8.
 *
 * A lead byte says how long its character is and in which range the second byte must lie; that
 * range is all it takes to keep out overlong forms, surrogates and what lies above U+10FFFF. All
 * later bytes lie in 80..BF. Whatever stops a character makes the bytes before it one "maximal
 * subpart", which is replaced by one U+FFFD, and is then looked at itself as the beginning of
 * something new.
 *
 * The stream holds back only bytes that may still become a character, at most three, so what it
 * writes does not depend on where its input was cut. Nothing here can fail.
 */
#include "tokenizer/utf8.h"

#include <string.h>

#include "tokenizer/tokenizer.h"

/* Bytes of the character that `lead` begins, and the range of its second byte; 0: begins none. */
static size_t length_by_lead(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return 0;
    }
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

utf8_kind utf8_scan(const unsigned char *bytes, size_t n, size_t *length)
{
    unsigned char low, high;
    size_t wanted = length_by_lead(bytes[0], &low, &high);
    *length = 1;
    if (wanted == 0) {
        return UTF8_INVALID;
    }
    while (*length < wanted) {
        if (*length == n) {
            return UTF8_BEGUN;
        }
        if (bytes[*length] < low || bytes[*length] > high) {
            return UTF8_INVALID;
        }
        low = 0x80;
        high = 0xBF;
        ++*length;
    }
    return UTF8_WHOLE;
}

uint32_t utf8_code(const unsigned char *bytes, size_t length)
{
    static const unsigned char lead_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = bytes[0] & lead_bits[length];
    for (size_t i = 1; i < length; i++) {
        code = code << 6 | (bytes[i] & 0x3F);
    }
    return code;
}

size_t utf8_put(uint32_t code, char *to)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    const size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    const uint32_t lead = length == 2 ? 0xC0 : length == 3 ? 0xE0 : 0xF0;
    for (size_t i = length - 1; i > 0; i--) {
        to[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    to[0] = (char)(lead | code);
    return length;
}

static size_t put_replacement(char *to)
{
    memcpy(to, "\xEF\xBF\xBD", 3);
    return 3;
}

/* Write what no longer has to wait. */
static size_t settle(utf8_stream *stream, char *to)
{
    size_t written = 0;
    while (stream->n_waiting > 0) {
        size_t length;
        utf8_kind kind = utf8_scan(stream->waiting, stream->n_waiting, &length);
        if (kind == UTF8_BEGUN) {
            break;
        }
        if (kind == UTF8_WHOLE) {
            memcpy(to + written, stream->waiting, length);
            written += length;
        } else {
            written += put_replacement(to + written);
        }
        stream->n_waiting -= (uint32_t)length;
        memmove(stream->waiting, stream->waiting + length, stream->n_waiting);
    }
    return written;
}

size_t utf8_stream_push(utf8_stream *stream, const char *bytes, size_t n, char *to)
{
    size_t written = 0;
    for (size_t i = 0; i < n; i++) {
        stream->waiting[stream->n_waiting++] = (unsigned char)bytes[i];
        written += settle(stream, to + written);
    }
    return written;
}

size_t utf8_stream_finish(utf8_stream *stream, char *to)
{
    if (stream->n_waiting == 0) {
        return 0;
    }
    stream->n_waiting = 0;
    return put_replacement(to);
}
