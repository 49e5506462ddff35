/*
 * support_words.h: what an engine writes, collected as a text that ends in 0.
 *
 *     words w = {.n = 0};
 *     options.text = words_add;  options.context = &w;
 *
 * More than there is room for fails the test (cmocka).
 */
#ifndef SUPPORT_WORDS_H
#define SUPPORT_WORDS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct words {
    char text[4096];
    size_t n;
} words;

/* A writer of bytes, as generate() wants one; context is a words. */
bool words_add(void *context, const char *bytes, size_t n);

#endif /* SUPPORT_WORDS_H */
