/*
 * template_json.c: values as json.dumps() writes them.
 *
 * Which is not what jansson writes: blanks behind commas and colons, numbers as Python prints them, NaN
 * and Infinity, keys that are no texts as texts. The depth of a run bounds the nesting.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safe_text.h"
#include "template/template_run.h"

typedef struct json_writer {
    template_builder *builder;
    const template_json_style *style;
    size_t level;
} json_writer;

static bool write_value(json_writer *writer, const value *v);

static bool write_escape(template_builder *builder, uint32_t code)
{
    char escape[16];
    if (code >= 0x10000)
        snprintf(escape, sizeof escape, "\\u%04" PRIx32 "\\u%04" PRIx32,
                 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + (code & 0x3ff));
    else
        snprintf(escape, sizeof escape, "\\u%04" PRIx32, code);
    return template_builder_add(builder, escape, strlen(escape));
}

static bool write_text(json_writer *writer, template_text text)
{
    static const char short_codes[] = "\"\\\n\r\t\f\b", short_letters[] = "\"\\nrtfb";
    template_builder *builder = writer->builder;
    TEMPLATE_TRY(template_builder_add_character(builder, '"'));
    for (size_t at = 0, used; at < text.length; at += used) {
        const uint32_t code = safe_text_decode(text.data + at, text.length - at, &used);
        const char *known = code > 0 && code < 0x80 ? strchr(short_codes, (int)code) : NULL;
        if (known != NULL) {
            const char escape[2] = {'\\', short_letters[known - short_codes]};
            TEMPLATE_TRY(template_builder_add(builder, escape, 2));
        } else if (code < 0x20 ||
                   (writer->style->ascii && code >= 0x7f && code <= 0x10ffff && code != 0x7f)) {
            TEMPLATE_TRY(write_escape(builder, code));
        } else {
            TEMPLATE_TRY(template_builder_add(builder, text.data + at, used));
        }
    }
    return template_builder_add_character(builder, '"');
}

static bool write_real(json_writer *writer, double real)
{
    char number[48];
    value_print_real(real, number, sizeof number);
    if (isnan(real)) return template_builder_add(writer->builder, "NaN", 3);
    if (isinf(real))
        return template_builder_add_text(writer->builder, real > 0 ? TEMPLATE_TEXT("Infinity")
                                                                   : TEMPLATE_TEXT("-Infinity"));
    return template_builder_add(writer->builder, number, strlen(number));
}

static bool begin_line(json_writer *writer)
{
    if (!writer->style->is_indented) return true;
    TEMPLATE_TRY(template_builder_add_character(writer->builder, '\n'));
    for (size_t i = 0; i < writer->level; i++)
        TEMPLATE_TRY(template_builder_add_text(writer->builder, writer->style->indent));
    return true;
}

static bool begin_item(json_writer *writer, size_t index)
{
    if (index > 0)
        TEMPLATE_TRY(template_builder_add_text(writer->builder, writer->style->item_separator));
    return begin_line(writer);
}

static bool write_list(json_writer *writer, const value_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        TEMPLATE_TRY(begin_item(writer, i));
        TEMPLATE_TRY(write_value(writer, &list->items[i]));
    }
    return true;
}

static bool write_key(json_writer *writer, const value *key)
{
    if (key->kind == VALUE_TEXT) return write_text(writer, key->text);
    if (key->kind != VALUE_NONE && !value_is_number(key))
        return template_fail(writer->builder->run, CELLAR_MISMATCH,
                             "%s cannot be a key in JSON; use a text", value_kind_name(key));
    TEMPLATE_TRY(template_builder_add_character(writer->builder, '"'));
    TEMPLATE_TRY(write_value(writer, key));
    return template_builder_add_character(writer->builder, '"');
}

static bool write_dict(json_writer *writer, const value_dict *dict)
{
    for (size_t i = 0; i < dict->n; i++) {
        TEMPLATE_TRY(begin_item(writer, i));
        TEMPLATE_TRY(write_key(writer, &dict->pairs[i].key));
        TEMPLATE_TRY(template_builder_add_text(writer->builder, writer->style->key_separator));
        TEMPLATE_TRY(write_value(writer, &dict->pairs[i].item));
    }
    return true;
}

/* The pairs by key; the keys must have an order. */
static bool sort_pairs(template_run *run, const value_dict *dict, value_dict *sorted)
{
    value keys;
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, dict->n, &keys));
    for (size_t i = 0; i < dict->n; i++)
        TEMPLATE_TRY(value_append(run, keys.list, dict->pairs[i].key));
    TEMPLATE_TRY(template_sort(run, keys.list, &(template_order){.case_sensitive = true}));
    *sorted = (value_dict){0};
    for (size_t i = 0; i < dict->n; i++) {
        value *item;
        TEMPLATE_TRY(value_dict_find(run, dict, &keys.list->items[i], &item));
        TEMPLATE_TRY(value_dict_add(run, sorted, keys.list->items[i], *item));
    }
    return true;
}

static bool write_container(json_writer *writer, const value *v)
{
    const bool is_dict = v->kind == VALUE_DICT;
    const size_t n = is_dict ? v->dict->n : v->list->n;
    if (n == 0)
        return template_builder_add_text(writer->builder,
                                         is_dict ? TEMPLATE_TEXT("{}") : TEMPLATE_TEXT("[]"));
    value_dict sorted;
    const value_dict *dict = v->dict;
    if (is_dict && writer->style->sorted) {
        TEMPLATE_TRY(sort_pairs(writer->builder->run, v->dict, &sorted));
        dict = &sorted;
    }
    TEMPLATE_TRY(template_builder_add_character(writer->builder, is_dict ? '{' : '['));
    writer->level++;
    TEMPLATE_TRY(is_dict ? write_dict(writer, dict) : write_list(writer, v->list));
    writer->level--;
    TEMPLATE_TRY(begin_line(writer));
    return template_builder_add_character(writer->builder, is_dict ? '}' : ']');
}

static bool write_value(json_writer *writer, const value *v)
{
    switch (v->kind) {
    case VALUE_NONE:
        return template_builder_add(writer->builder, "null", 4);
    case VALUE_BOOLEAN:
        return template_builder_add_text(writer->builder, v->boolean ? TEMPLATE_TEXT("true")
                                                                     : TEMPLATE_TEXT("false"));
    case VALUE_INTEGER:
        return value_print(writer->builder, v);
    case VALUE_REAL:
        return write_real(writer, v->real);
    case VALUE_TEXT:
        return write_text(writer, v->text);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT: {
        TEMPLATE_TRY(template_enter(writer->builder->run));
        const bool is_good = write_container(writer, v);
        template_leave(writer->builder->run);
        return is_good;
    }
    default:
        return template_fail(writer->builder->run, CELLAR_MISMATCH, "%s has no form in JSON",
                             value_kind_name(v));
    }
}

bool value_print_json(template_builder *builder, const value *v, const template_json_style *style)
{
    json_writer writer = {.builder = builder, .style = style};
    return write_value(&writer, v);
}
