/*
 * support_charsmap.h: make tables of replacements as SentencePiece writes them, for tests.
 *
 *     static const char *const pairs[][2] = {{"A", "a"}, {"\xC2\xA0", " "}};
 *     size_t size;
 *     unsigned char *bytes = charsmap_make(pairs, 2, &size);
 *
 * The layout is described in app/tokenizer/charsmap.h and charsmap.c. Texts have no NUL; without
 * memory the program ends.
 */
#ifndef TESTS_SUPPORT_CHARSMAP_H
#define TESTS_SUPPORT_CHARSMAP_H

#include <stddef.h>

/* A table that replaces pairs[i][0] by pairs[i][1]; from malloc, *size its bytes. */
unsigned char *charsmap_make(const char *const (*pairs)[2], size_t n, size_t *size);

#endif /* TESTS_SUPPORT_CHARSMAP_H */
