/*
 * special.c: find user-defined and control tokens that are written out in a text.
 *
 * One search for each place where a special token may begin (prefix_set.h), and from the longest
 * that fits on to the first that is looked for. Fails only for want of memory, when it is made.
 */
#include "tokenizer/special.h"

cellar_status special_create(const vocabulary *v, prefix_set *specials, cellar_error *error)
{
    const uint32_t types = 1u << TOKEN_USER_DEFINED | 1u << TOKEN_CONTROL | 1u << TOKEN_UNKNOWN;
    return prefix_set_create(v, types, specials, error);
}

/* The longest special token that is looked for with which the text begins, or -1. */
static cellar_token match(const prefix_set *specials, const char *text, size_t length,
                          bool with_control)
{
    int32_t entry = prefix_set_find(specials, text, length);
    for (; entry >= 0; entry = specials->entries[entry].inner) {
        cellar_token id = specials->entries[entry].id;
        if (with_control || specials->vocabulary->types[id] == TOKEN_USER_DEFINED) {
            return id;
        }
    }
    return -1;
}

cellar_token special_find(const prefix_set *specials, const char *text, size_t length, size_t from,
                          bool with_control, size_t *at)
{
    for (size_t i = from; i < length && specials->n > 0; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (specials->first[byte] == specials->first[byte + 1]) {
            continue;
        }
        cellar_token id = match(specials, text + i, length - i, with_control);
        if (id >= 0) {
            *at = i;
            return id;
        }
    }
    *at = length;
    return -1;
}
