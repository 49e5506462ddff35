/*
 * charsmap.h: SentencePiece's precompiled table of replacements, by which a text is normalised.
 *
 * The bytes of tokenizer.ggml.precompiled_charsmap: the size of a double array of 32-bit units
 * (little-endian), the units, and the replacements, each ended by NUL. The double array is a trie
 * of the texts that are replaced (Aoe, 1989; the layout is that of the Darts-clone library).
 *
 * Nothing is believed: every value that a unit may lead to must be the place of a replacement of at
 * most CHARSMAP_LONGEST bytes, and every step of a walk is held against the size of the array. No
 * text of more than CHARSMAP_LONGEST bytes is replaced at once.
 */
#ifndef APP_CHARSMAP_H
#define APP_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

#include "cellar.h"

#define CHARSMAP_LONGEST 255u

typedef struct charsmap {
    const unsigned char *units; /* [n_units] of 4 bytes, little-endian */
    size_t n_units;             /* 0: nothing is replaced */
    const char *replacements;
    size_t n_replacements; /* bytes; the last is NUL */
} charsmap;

/* Check; the bytes must outlive it. CELLAR_CORRUPT, naming the key and the byte. */
cellar_status charsmap_read(const unsigned char *bytes, size_t n, charsmap *map,
                            cellar_error *error);

/*
 * What text[0..length), length >= 1, begins with after normalising: its bytes, *n of them, perhaps
 * none, and in *used how many bytes of the text they stand for, at least one. What is not replaced
 * is one character as it is, or U+FFFD for a byte that is none.
 */
const char *charsmap_next(const charsmap *map, const char *text, size_t length, size_t *n,
                          size_t *used);

#endif /* APP_CHARSMAP_H */
