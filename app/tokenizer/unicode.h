/*
 * unicode.h: which kind of character a code point is: letter, mark, number, punctuation, symbol,
 * space (Unicode 15.0, general categories and White_Space).
 *
 * Made for matching sets: a class is a number below 16, a set of classes a mask of bits. Spaces are
 * the characters with the property White_Space, whatever their category; everything else that is
 * neither letter, mark, number, punctuation nor symbol (controls, formats, unassigned code points)
 * is "other".
 */
#ifndef APP_UNICODE_H
#define APP_UNICODE_H

#include <stdint.h>

enum {
    UNICODE_OTHER = 1u << 0,
    UNICODE_LU = 1u << 1, /* capital letters */
    UNICODE_LL = 1u << 2, /* small letters */
    UNICODE_LT = 1u << 3, /* title case */
    UNICODE_LM = 1u << 4, /* modifiers */
    UNICODE_LO = 1u << 5, /* letters without case */
    UNICODE_MARK = 1u << 6,
    UNICODE_NUMBER = 1u << 7,
    UNICODE_PUNCTUATION = 1u << 8,
    UNICODE_SYMBOL = 1u << 9,
    UNICODE_SPACE = 1u << 10,
    UNICODE_LETTER = UNICODE_LU | UNICODE_LL | UNICODE_LT | UNICODE_LM | UNICODE_LO,
    UNICODE_ALL = (1u << 11) - 1,
};

/* The one bit of the class of a code point; above U+10FFFF: other. */
uint32_t unicode_class(uint32_t code);

/* unicode_table.c */
extern const uint32_t unicode_runs[];
extern const uint32_t unicode_n_runs;
extern const uint16_t unicode_ascii[128]; /* the classes of ASCII */

#endif /* APP_UNICODE_H */
