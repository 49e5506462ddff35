/*
 * json_text.c: the strings of json_text.h, made and printed by jansson.
 *
 * jansson escapes everything but DEL, which is escaped here: it can only stand inside a string.
 */
#include "cli/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safe_text.h"

/* A copy in which every byte that is not UTF-8 is U+FFFD. The caller frees it; NULL: no memory. */
static char *replace_invalid(const char *bytes, size_t n, size_t *length)
{
    char *copy = malloc(3 * n + 1);
    if (copy == NULL) return NULL;
    size_t used = 0;
    *length = 0;
    for (size_t at = 0; at < n; at += used) {
        const bool is_valid = safe_text_decode(bytes + at, n - at, &used) != SAFE_TEXT_INVALID;
        memcpy(copy + *length, is_valid ? bytes + at : "\xef\xbf\xbd", is_valid ? used : 3);
        *length += is_valid ? used : 3;
    }
    return copy;
}

json_t *json_text(const char *bytes, size_t n, bool *is_lossy)
{
    if (n == 0) return json_string("");
    if (safe_text_is_utf8(bytes, n)) return json_stringn(bytes, n);
    if (is_lossy != NULL) *is_lossy = true;
    size_t length = 0;
    char *copy = replace_invalid(bytes, n, &length);
    json_t *string = copy != NULL ? json_stringn(copy, length) : NULL;
    free(copy);
    return string;
}

void json_text_print(const json_t *value, size_t indent)
{
    char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_INDENT(indent));
    for (const char *at = dumped != NULL ? dumped : "null"; *at != '\0'; at++) {
        if (*at == 0x7f) {
            (void)fputs("\\u007f", stdout);
        } else {
            putchar(*at);
        }
    }
    free(dumped);
}
