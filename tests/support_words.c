/*
 * support_words.c: bytes put behind bytes, for support_words.h.
 *
 * Nothing is cut: a test that writes more than it said it would is wrong, and is told so. The 0 behind
 * the text is always there, so that texts are compared as strings.
 */
#include "support_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

bool words_add(void *context, const char *bytes, size_t n)
{
    words *w = context;
    assert_true(w->n + n < sizeof w->text);
    memcpy(w->text + w->n, bytes, n);
    w->n += n;
    w->text[w->n] = '\0';
    return true;
}
