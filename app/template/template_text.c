/*
 * template_text.c: texts of UTF-8, and a text that grows.
 *
 * Lengths and places that a template sees count characters; everything inside counts bytes. A byte that is
 * no UTF-8 counts as a character, so that nothing here can fail over one. A builder doubles its room,
 * or extends it in place when nothing else was taken from the arena since.
 */
#include <string.h>

#include "safe_text.h"
#include "template/template_run.h"

bool template_text_equal(template_text a, template_text b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

size_t template_text_find(template_text text, template_text part, size_t from)
{
    if (from > text.length) return SIZE_MAX;
    if (part.length == 0) return from;
    while (text.length - from >= part.length) {
        const char *first = memchr(text.data + from, part.data[0],
                                   text.length - from - part.length + 1);
        if (first == NULL) return SIZE_MAX;
        from = (size_t)(first - text.data);
        if (memcmp(first, part.data, part.length) == 0) return from;
        from++;
    }
    return SIZE_MAX;
}

size_t template_text_count(template_text text)
{
    size_t n = 0;
    for (size_t at = 0, used; at < text.length; at += used, n++)
        safe_text_decode(text.data + at, text.length - at, &used);
    return n;
}

size_t template_text_offset(template_text text, size_t n)
{
    size_t at = 0;
    for (size_t used; n > 0 && at < text.length; at += used, n--)
        safe_text_decode(text.data + at, text.length - at, &used);
    return at;
}

/* ---- builders -------------------------------------------------------------------------------- */

bool template_builder_add(template_builder *builder, const char *data, size_t length)
{
    if (length == 0) return true;
    TEMPLATE_TRY(template_spend_bytes(builder->run, length));
    if (length > builder->capacity - builder->length) {
        template_arena *arena = &builder->run->arena;
        const size_t missing = length - (builder->capacity - builder->length);
        if (builder->data != NULL &&
            template_arena_extend(arena, builder->data + builder->capacity, missing)) {
            builder->capacity += missing;
        } else {
            const size_t capacity = 2 * builder->length + length + 32;
            char *more = template_take(builder->run, capacity);
            if (more == NULL) return false;
            if (builder->length > 0) memcpy(more, builder->data, builder->length);
            builder->data = more;
            builder->capacity = capacity;
        }
    }
    memcpy(builder->data + builder->length, data, length);
    builder->length += length;
    return true;
}

bool template_builder_add_text(template_builder *builder, template_text text)
{
    return template_builder_add(builder, text.data, text.length);
}

bool template_builder_add_character(template_builder *builder, char character)
{
    return template_builder_add(builder, &character, 1);
}

bool template_builder_add_code(template_builder *builder, uint32_t code)
{
    char bytes[4];
    size_t n = 0;
    if (code < 0x80) {
        bytes[n++] = (char)code;
    } else {
        if (code >= 0x10000) {
            bytes[n++] = (char)(0xf0 | code >> 18);
            bytes[n++] = (char)(0x80 | (code >> 12 & 0x3f));
        } else if (code >= 0x800) {
            bytes[n++] = (char)(0xe0 | code >> 12);
        }
        bytes[n++] = code < 0x800 ? (char)(0xc0 | code >> 6) : (char)(0x80 | (code >> 6 & 0x3f));
        bytes[n++] = (char)(0x80 | (code & 0x3f));
    }
    return template_builder_add(builder, bytes, n);
}

template_text template_builder_text(const template_builder *builder)
{
    return (template_text){builder->data != NULL ? builder->data : "", builder->length};
}
