/*
 * template_print.c: values as Python's str() and repr() write them.
 *
 * Printing goes down into containers; the depth of a run bounds it, also where a list holds itself. Of
 * characters that repr() escapes, those are escaped that a terminal must not see (safe_text.h).
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safe_text.h"
#include "template/template_run.h"

/* The fewest digits that read back as the same number: "d.ddde+XX". */
static void print_shortest(double real, char *to, size_t size)
{
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(to, size, "%.*e", precision, real);
        if (strtod(to, NULL) == real) return;
    }
}

void value_print_real(double real, char *to, size_t size)
{
    if (isnan(real) || isinf(real)) {
        snprintf(to, size, "%s", isnan(real) ? "nan" : real > 0 ? "inf" : "-inf");
        return;
    }
    char scientific[40];
    print_shortest(real, scientific, sizeof scientific);
    const char *e = strchr(scientific, 'e');
    const int exponent = (int)strtol(e + 1, NULL, 10);
    const char *point = strchr(scientific, '.');
    const int decimals = point == NULL ? 0 : (int)(e - point) - 1;
    if (exponent < -4 || exponent >= 16) {
        snprintf(to, size, "%.*se%c%02d", (int)(e - scientific), scientific,
                 exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    const int behind = decimals - exponent;
    snprintf(to, size, "%.*f", behind > 1 ? behind : 1, real);
}

static bool print_quoted_text(template_builder *builder, template_text text)
{
    const bool has_single = text.length > 0 && memchr(text.data, '\'', text.length) != NULL;
    const bool has_double = text.length > 0 && memchr(text.data, '"', text.length) != NULL;
    const char quote = has_single && !has_double ? '"' : '\'';
    TEMPLATE_TRY(template_builder_add_character(builder, quote));
    for (size_t at = 0, used; at < text.length; at += used) {
        const uint32_t code = safe_text_decode(text.data + at, text.length - at, &used);
        const char *letter = code < 0x80 ? strchr("\nn\tt\rr\\\\", (int)code) : NULL;
        char escape[16] = "";
        if (code == (unsigned char)quote || code == '\\')
            snprintf(escape, sizeof escape, "\\%c", (int)code);
        else if (letter != NULL && code != 0 && code < 0x20)
            snprintf(escape, sizeof escape, "\\%c", letter[1]);
        else if (!safe_text_is_printable(code) && code != SAFE_TEXT_INVALID)
            snprintf(escape, sizeof escape, code < 0x100 ? "\\x%02" PRIx32 : "\\u%04" PRIx32, code);
        if (escape[0] != '\0')
            TEMPLATE_TRY(template_builder_add(builder, escape, strlen(escape)));
        else
            TEMPLATE_TRY(template_builder_add(builder, text.data + at, used));
    }
    return template_builder_add_character(builder, quote);
}

static bool print_list(template_builder *builder, const value *v)
{
    const bool is_tuple = v->kind == VALUE_TUPLE;
    TEMPLATE_TRY(template_builder_add_character(builder, is_tuple ? '(' : '['));
    for (size_t i = 0; i < v->list->n; i++) {
        if (i > 0) TEMPLATE_TRY(template_builder_add(builder, ", ", 2));
        TEMPLATE_TRY(value_print_quoted(builder, &v->list->items[i]));
    }
    if (is_tuple && v->list->n == 1) TEMPLATE_TRY(template_builder_add_character(builder, ','));
    return template_builder_add_character(builder, is_tuple ? ')' : ']');
}

static bool print_dict(template_builder *builder, const value *v)
{
    TEMPLATE_TRY(template_builder_add_character(builder, '{'));
    for (size_t i = 0; i < v->dict->n; i++) {
        if (i > 0) TEMPLATE_TRY(template_builder_add(builder, ", ", 2));
        TEMPLATE_TRY(value_print_quoted(builder, &v->dict->pairs[i].key));
        TEMPLATE_TRY(template_builder_add(builder, ": ", 2));
        TEMPLATE_TRY(value_print_quoted(builder, &v->dict->pairs[i].item));
    }
    return template_builder_add_character(builder, '}');
}

static bool print_container(template_builder *builder, const value *v)
{
    TEMPLATE_TRY(template_enter(builder->run));
    const bool is_good = v->kind == VALUE_DICT ? print_dict(builder, v) : print_list(builder, v);
    template_leave(builder->run);
    return is_good;
}

bool value_print(template_builder *builder, const value *v)
{
    char number[48];
    switch (v->kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
        return true;
    case VALUE_NONE:
        return template_builder_add(builder, "None", 4);
    case VALUE_BOOLEAN:
        return template_builder_add_text(builder, v->boolean ? TEMPLATE_TEXT("True")
                                                             : TEMPLATE_TEXT("False"));
    case VALUE_INTEGER:
        snprintf(number, sizeof number, "%" PRId64, v->integer);
        return template_builder_add(builder, number, strlen(number));
    case VALUE_REAL:
        value_print_real(v->real, number, sizeof number);
        return template_builder_add(builder, number, strlen(number));
    case VALUE_TEXT:
        return template_builder_add_text(builder, v->text);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
        return print_container(builder, v);
    default:
        return template_fail(builder->run, CELLAR_MISMATCH, "%s has no written form",
                             value_kind_name(v));
    }
}

bool value_print_quoted(template_builder *builder, const value *v)
{
    if (v->kind == VALUE_TEXT) return print_quoted_text(builder, v->text);
    if (v->kind == VALUE_UNDEFINED) return template_builder_add(builder, "Undefined", 9);
    return value_print(builder, v);
}

bool value_to_text(template_run *run, const value *v, template_text *text)
{
    if (v->kind == VALUE_TEXT) {
        *text = v->text;
        return true;
    }
    template_builder builder = {.run = run};
    TEMPLATE_TRY(value_print(&builder, v));
    *text = template_builder_text(&builder);
    return true;
}
