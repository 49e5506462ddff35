/*
 * normal_form.h: texts in Unicode's normal forms C and D (Unicode 15.0, annex 15).
 *
 * "é" can be one code point or two, an "e" and a mark. Some models were trained on texts in which
 * all such pairs had become one (form C), and have tokens for nothing else; others look at letters
 * without their marks, which takes form D. Both forms are the same text to a reader.
 *
 * Any bytes: what is not UTF-8 stays as it is and combines with nothing. The time is O(n log n) for
 * any text, also for one of a million marks in a row; most texts are seen to need nothing in one
 * pass over their bytes.
 */
#ifndef APP_NORMAL_FORM_H
#define APP_NORMAL_FORM_H

#include <stddef.h>
#include <stdint.h>

#include "cellar.h"

typedef enum normal_form {
    NORMAL_FORM_C, /* composed */
    NORMAL_FORM_D, /* decomposed */
} normal_form;

/*
 * Put text[0..length) into the form: *out is malloc'ed, the caller's to free, and *n its bytes, at
 * most three times as many as before (form D: four). *out NULL: nothing has to change, the text is
 * in that form as it stands. CELLAR_NO_MEMORY.
 */
cellar_status normal_form_make(normal_form form, const char *text, size_t length, char **out,
                               size_t *n, cellar_error *error);

/* ---- normal_form_table.c -------------------------------------------------------------------- */

/* A character in the upper 22 bits, then 21 bits for each of its parts; sorted by the character. */
extern const uint64_t normal_form_decompositions[];
extern const uint32_t normal_form_n_decompositions;
extern const uint16_t normal_form_compositions[];
extern const uint32_t normal_form_n_compositions;
extern const uint32_t normal_form_classes[];
extern const uint32_t normal_form_n_classes;

#endif /* APP_NORMAL_FORM_H */
