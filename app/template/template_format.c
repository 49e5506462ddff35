/*
 * template_format.c: texts with places for values.
 *
 * "%s: %d" % values with the conversions s r d i x f e g c %, their flags, width and precision; and "{} {name}"
 * .format(values) without format specifications. What is not known is refused, not copied.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "template/template_run.h"

enum { WIDEST = 1000, MOST_DECIMALS = 60 };

typedef struct conversion {
    bool left;
    bool zeros;
    bool plus;
    bool space;
    int64_t width;
    int64_t precision; /* -1: none */
} conversion;

static bool read_amount(template_run *run, template_text format, size_t *at, int64_t *amount)
{
    *amount = 0;
    for (; *at < format.length && format.data[*at] >= '0' && format.data[*at] <= '9'; (*at)++) {
        *amount = 10 * *amount + (format.data[*at] - '0');
        if (*amount > WIDEST)
            return template_fail(run, CELLAR_UNSUPPORTED, "a width is more than %d", WIDEST);
    }
    return true;
}

static bool read_conversion(template_run *run, template_text format, size_t *at, conversion *c)
{
    *c = (conversion){.precision = -1};
    for (; *at < format.length; (*at)++) {
        const char flag = format.data[*at];
        c->left |= flag == '-';
        c->zeros |= flag == '0';
        c->plus |= flag == '+';
        c->space |= flag == ' ';
        if (flag != '-' && flag != '0' && flag != '+' && flag != ' ') break;
    }
    TEMPLATE_TRY(read_amount(run, format, at, &c->width));
    if (*at < format.length && format.data[*at] == '.') {
        (*at)++;
        TEMPLATE_TRY(read_amount(run, format, at, &c->precision));
    }
    return *at < format.length ||
           template_fail(run, CELLAR_MISMATCH, "the format ends inside a conversion");
}

static bool add_padded(template_builder *builder, template_text text, const conversion *c,
                       bool is_number)
{
    const size_t length = template_text_count(text);
    size_t pad = c->width > (int64_t)length ? (size_t)c->width - length : 0;
    const bool fills_zeros = c->zeros && !c->left && is_number;
    if (fills_zeros && text.length > 0 && (text.data[0] == '-' || text.data[0] == '+')) {
        TEMPLATE_TRY(template_builder_add_character(builder, text.data[0]));
        text.data++;
        text.length--;
    }
    for (; !c->left && pad > 0; pad--)
        TEMPLATE_TRY(template_builder_add_character(builder, fills_zeros ? '0' : ' '));
    TEMPLATE_TRY(template_builder_add_text(builder, text));
    for (; pad > 0; pad--)
        TEMPLATE_TRY(template_builder_add_character(builder, ' '));
    return true;
}

static bool add_number(template_builder *builder, const value *v, char letter, const conversion *c)
{
    char pattern[16], text[512];
    if (!value_is_number(v))
        return template_fail(builder->run, CELLAR_MISMATCH, "%%%c needs a number, not %s", letter,
                             value_kind_name(v));
    if (c->precision > MOST_DECIMALS)
        return template_fail(builder->run, CELLAR_UNSUPPORTED, "more than %d decimals",
                             MOST_DECIMALS);
    const char *sign = c->plus ? "+" : c->space ? " " : "";
    if (letter == 'd' || letter == 'i' || letter == 'u' || letter == 'x') {
        const double real = value_as_real(v);
        if (v->kind == VALUE_REAL && (letter == 'x' || !(real > -9e18 && real < 9e18)))
            return template_fail(builder->run, CELLAR_MISMATCH, "%%%c needs a whole number",
                                 letter);
        const int64_t integer = v->kind == VALUE_REAL ? (int64_t)real : value_as_integer(v);
        if (letter == 'x' && integer < 0)
            return template_fail(builder->run, CELLAR_UNSUPPORTED, "%%x of a number below zero");
        snprintf(pattern, sizeof pattern, "%%%s%s", sign, letter == 'x' ? PRIx64 : PRId64);
        snprintf(text, sizeof text, pattern, integer);
    } else {
        snprintf(pattern, sizeof pattern, "%%%s.*%c", sign, letter);
        snprintf(text, sizeof text, pattern, c->precision < 0 ? 6 : (int)c->precision,
                 value_as_real(v));
    }
    return add_padded(builder, (template_text){text, strlen(text)}, c, true);
}

static bool add_converted(template_builder *builder, const value *v, char letter,
                          const conversion *c)
{
    if (letter != '\0' && strchr("diuxfFeEgG", letter) != NULL)
        return add_number(builder, v, letter, c);
    if (letter != 's' && letter != 'r')
        return template_fail(builder->run, CELLAR_UNSUPPORTED, "there is no conversion %%%c here",
                             letter);
    template_builder inner = {.run = builder->run};
    TEMPLATE_TRY(letter == 'r' ? value_print_quoted(&inner, v) : value_print(&inner, v));
    template_text text = template_builder_text(&inner);
    if (c->precision >= 0) text.length = template_text_offset(text, (size_t)c->precision);
    return add_padded(builder, text, c, false);
}

/* The value for a conversion: by name, or the next one. */
static bool take_value(template_run *run, template_text format, size_t *at, const value *values,
                       size_t *next, value *out)
{
    if (*at < format.length && format.data[*at] == '(') {
        const char *end = memchr(format.data + *at, ')', format.length - *at);
        if (end == NULL || values->kind != VALUE_DICT)
            return template_fail(run, CELLAR_MISMATCH, "a name in a format needs a dictionary");
        const size_t from = *at + 1, to = (size_t)(end - format.data);
        const value key = value_of_text((template_text){format.data + from, to - from});
        value *item;
        TEMPLATE_TRY(value_dict_find(run, values->dict, &key, &item));
        if (item == NULL) return template_fail(run, CELLAR_MISMATCH, "a name is not there");
        *out = *item;
        *at = to + 1;
        return true;
    }
    const bool is_list = values->kind == VALUE_TUPLE;
    if (*next >= (is_list ? values->list->n : 1))
        return template_fail(run, CELLAR_MISMATCH, "the format has more places than values");
    *out = is_list ? values->list->items[*next] : *values;
    (*next)++;
    return true;
}

bool template_format_percent(template_run *run, template_text format, const value *values,
                             value *out)
{
    template_builder builder = {.run = run};
    size_t next = 0;
    for (size_t at = 0; at < format.length; at++) {
        if (format.data[at] != '%') {
            TEMPLATE_TRY(template_builder_add_character(&builder, format.data[at]));
            continue;
        }
        at++;
        TEMPLATE_TRY(template_spend(run, 1));
        if (at < format.length && format.data[at] == '%') {
            TEMPLATE_TRY(template_builder_add_character(&builder, '%'));
            continue;
        }
        value v;
        conversion c;
        TEMPLATE_TRY(take_value(run, format, &at, values, &next, &v));
        TEMPLATE_TRY(read_conversion(run, format, &at, &c));
        TEMPLATE_TRY(add_converted(&builder, &v, format.data[at], &c));
    }
    const size_t n = values->kind == VALUE_TUPLE ? values->list->n : 1;
    if (values->kind != VALUE_DICT && values->kind != VALUE_LIST && next < n)
        return template_fail(run, CELLAR_MISMATCH, "the format has fewer places than values");
    *out = value_of_text(template_builder_text(&builder));
    return true;
}

/* What stands in braces: nothing, a number, or a name. */
static bool find_field(template_run *run, template_text field, const template_call *call,
                       size_t *next, value *out)
{
    size_t index = 0, digits = 0;
    while (digits < field.length && digits < 6 && field.data[digits] >= '0' &&
           field.data[digits] <= '9')
        index = 10 * index + (size_t)(field.data[digits++] - '0');
    for (size_t i = 0; field.length > digits && i < call->n_keywords; i++) {
        if (!template_text_equal(call->keywords[i].name, field)) continue;
        *out = call->keywords[i].item;
        return true;
    }
    if (field.length == 0) index = (*next)++;
    if (field.length > digits || index >= call->n_positional)
        return template_fail(run, CELLAR_MISMATCH, "there is no value for {%.*s}",
                             (int)field.length, field.data);
    *out = call->positional[index];
    return true;
}

bool template_format_braces(template_run *run, template_text format, const template_call *call,
                            value *out)
{
    template_builder builder = {.run = run};
    size_t next = 0;
    for (size_t at = 0; at < format.length; at++) {
        const char c = format.data[at];
        if (c != '{' && c != '}') {
            TEMPLATE_TRY(template_builder_add_character(&builder, c));
            continue;
        }
        if (at + 1 < format.length && format.data[at + 1] == c) {
            TEMPLATE_TRY(template_builder_add_character(&builder, c));
            at++;
            continue;
        }
        const char *end = c == '{' ? memchr(format.data + at, '}', format.length - at) : NULL;
        if (end == NULL) return template_fail(run, CELLAR_MISMATCH, "a lone brace in a format");
        const size_t to = (size_t)(end - format.data);
        value v;
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(
            find_field(run, (template_text){format.data + at + 1, to - at - 1}, call, &next, &v));
        TEMPLATE_TRY(value_print(&builder, &v));
        at = to;
    }
    *out = value_of_text(template_builder_text(&builder));
    return true;
}
