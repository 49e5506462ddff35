/*
 * template_filters.c: the filters that make a text or a number of one value, and the table of all.
 *
 * As in Jinja2, those for texts take anything and work on its written form. `safe` changes nothing, because
 * nothing is escaped here unless `e` asks for it.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template/template_run.h"

enum { WIDEST_INDENT = 256 };

static bool give_text(template_text text, value *out)
{
    *out = value_of_text(text);
    return true;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static bool filter_string(template_run *run, const template_call *call, value *out)
{
    template_text text;
    TEMPLATE_TRY(value_to_text(run, &call->self, &text));
    return give_text(text, out);
}

static bool change_case(template_run *run, const template_call *call, template_case wanted,
                        value *out)
{
    template_text text;
    TEMPLATE_TRY(value_to_text(run, &call->self, &text));
    TEMPLATE_TRY(template_change_case(run, text, wanted, &text));
    return give_text(text, out);
}

static bool filter_upper(template_run *run, const template_call *call, value *out)
{
    return change_case(run, call, CASE_UPPER, out);
}

static bool filter_lower(template_run *run, const template_call *call, value *out)
{
    return change_case(run, call, CASE_LOWER, out);
}

static bool filter_title(template_run *run, const template_call *call, value *out)
{
    return change_case(run, call, CASE_WORDS, out);
}

static bool filter_capitalize(template_run *run, const template_call *call, value *out)
{
    return change_case(run, call, CASE_CAPITALIZED, out);
}

static bool filter_trim(template_run *run, const template_call *call, value *out)
{
    template_text text, characters;
    const bool is_given = call->bound[0].kind == VALUE_TEXT;
    TEMPLATE_TRY(template_argument_text(run, &call->bound[0], TEMPLATE_TEXT(""), &characters));
    TEMPLATE_TRY(value_to_text(run, &call->self, &text));
    TEMPLATE_TRY(template_trim(run, text, is_given ? &characters : NULL, SIDE_BOTH, &text));
    return give_text(text, out);
}

static bool filter_replace(template_run *run, const template_call *call, value *out)
{
    template_text text, old, by;
    int64_t most;
    TEMPLATE_TRY(value_to_text(run, &call->self, &text));
    TEMPLATE_TRY(value_to_text(run, &call->bound[0], &old));
    TEMPLATE_TRY(value_to_text(run, &call->bound[1], &by));
    TEMPLATE_TRY(template_argument_integer(run, &call->bound[2], -1, &most));
    TEMPLATE_TRY(template_replace(run, text, old, by, most, &text));
    return give_text(text, out);
}

static bool filter_escape(template_run *run, const template_call *call, value *out)
{
    static const char special[] = "&<>'\"";
    static const char *const written[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    template_text text;
    template_builder builder = {.run = run};
    TEMPLATE_TRY(value_to_text(run, &call->self, &text));
    TEMPLATE_TRY(template_spend(run, text.length / 8));
    for (size_t i = 0; i < text.length; i++) {
        const char *found = text.data[i] == '\0' ? NULL : strchr(special, text.data[i]);
        if (found == NULL)
            TEMPLATE_TRY(template_builder_add_character(&builder, text.data[i]));
        else
            TEMPLATE_TRY(template_builder_add(&builder, written[found - special],
                                              strlen(written[found - special])));
    }
    return give_text(template_builder_text(&builder), out);
}

/* `width` blanks, or the text itself that stands for them. */
static bool read_indent(template_run *run, const value *width, int64_t otherwise,
                        template_text *indent)
{
    static const char blanks[WIDEST_INDENT + 1] =
        "                                                                "
        "                                                                "
        "                                                                "
        "                                                                ";
    int64_t n;
    if (width->kind == VALUE_TEXT) {
        *indent = width->text;
        return true;
    }
    TEMPLATE_TRY(template_argument_integer(run, width, otherwise, &n));
    if (n > WIDEST_INDENT)
        return template_fail(run, CELLAR_UNSUPPORTED, "more than %d blanks of indentation",
                             WIDEST_INDENT);
    *indent = (template_text){blanks, n > 0 ? (size_t)n : 0};
    return true;
}

static bool filter_indent(template_run *run, const template_call *call, value *out)
{
    template_text text, indent;
    value lines;
    template_builder builder = {.run = run};
    if (call->self.kind != VALUE_TEXT)
        return template_fail(run, CELLAR_MISMATCH, "indent takes a text, not %s",
                             value_kind_name(&call->self));
    text = call->self.text;
    TEMPLATE_TRY(read_indent(run, &call->bound[0], 4, &indent));
    const bool first = value_is_true(&call->bound[1]), blank = value_is_true(&call->bound[2]);
    TEMPLATE_TRY(template_split_lines(run, text, &lines));
    /* an end of a line in the end begins a last, empty one */
    if (text.length == 0 || text.data[text.length - 1] == '\n')
        TEMPLATE_TRY(value_append(run, lines.list, value_of_text(TEMPLATE_TEXT(""))));
    for (size_t i = 0; i < lines.list->n; i++) {
        const template_text line = lines.list->items[i].text;
        const bool is_indented = i == 0 ? first : blank || line.length > 0;
        if (i > 0) TEMPLATE_TRY(template_builder_add_character(&builder, '\n'));
        if (is_indented) TEMPLATE_TRY(template_builder_add_text(&builder, indent));
        TEMPLATE_TRY(template_builder_add_text(&builder, line));
    }
    return give_text(template_builder_text(&builder), out);
}

static bool filter_format(template_run *run, const template_call *call, value *out)
{
    template_text format;
    value values;
    TEMPLATE_TRY(value_to_text(run, &call->self, &format));
    if (call->n_keywords > 0) {
        TEMPLATE_TRY(value_make_dict(run, VALUE_DICT, &values));
        for (size_t i = 0; i < call->n_keywords; i++)
            TEMPLATE_TRY(value_dict_set(run, values.dict, value_of_text(call->keywords[i].name),
                                        call->keywords[i].item));
    } else {
        TEMPLATE_TRY(value_make_list(run, VALUE_TUPLE, call->n_positional, &values));
        for (size_t i = 0; i < call->n_positional; i++)
            TEMPLATE_TRY(value_append(run, values.list, call->positional[i]));
    }
    return template_format_percent(run, format, &values, out);
}

static bool filter_tojson(template_run *run, const template_call *call, value *out)
{
    template_json_style style = {.ascii = value_is_true(&call->bound[0]),
                                 .sorted = value_is_true(&call->bound[3]),
                                 .item_separator = TEMPLATE_TEXT(", "),
                                 .key_separator = TEMPLATE_TEXT(": ")};
    const value *indent = &call->bound[1], *separators = &call->bound[2];
    if (indent->kind != VALUE_ABSENT && indent->kind != VALUE_NONE) {
        style.is_indented = true;
        style.item_separator = TEMPLATE_TEXT(",");
        TEMPLATE_TRY(read_indent(run, indent, 0, &style.indent));
    }
    if (separators->kind != VALUE_ABSENT && separators->kind != VALUE_NONE) {
        if (!value_is_sequence(separators) || separators->list->n != 2)
            return template_fail(run, CELLAR_MISMATCH, "separators are two texts");
        const value *pair = separators->list->items;
        TEMPLATE_TRY(value_to_text(run, &pair[0], &style.item_separator));
        TEMPLATE_TRY(value_to_text(run, &pair[1], &style.key_separator));
    }
    template_builder builder = {.run = run};
    TEMPLATE_TRY(value_print_json(&builder, &call->self, &style));
    return give_text(template_builder_text(&builder), out);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The text as a C string without white space around it; false: too long for a number. */
static bool copy_number(template_run *run, template_text text, char *to, size_t size)
{
    template_text trimmed;
    if (!template_trim(run, text, NULL, SIDE_BOTH, &trimmed)) return false;
    if (trimmed.length == 0 || trimmed.length >= size) return false;
    for (size_t i = 0; i < trimmed.length; i++)
        if (trimmed.data[i] == '\0' || trimmed.data[i] == 'x' || trimmed.data[i] == 'X' ||
            trimmed.data[i] == '(')
            return false; /* what strtod reads and Python does not */
    memcpy(to, trimmed.data, trimmed.length);
    to[trimmed.length] = '\0';
    return true;
}

static bool read_real(template_run *run, const value *v, double *real)
{
    char digits[128], *end;
    if (value_is_number(v)) {
        *real = value_as_real(v);
        return true;
    }
    if (v->kind != VALUE_TEXT || !copy_number(run, v->text, digits, sizeof digits)) return false;
    *real = strtod(digits, &end);
    return *end == '\0';
}

/* Undefined is no number, not even by default. */
static bool refuse_undefined(template_run *run, const value *v)
{
    return v->kind != VALUE_UNDEFINED || template_fail(run, CELLAR_MISMATCH, "'%.*s' is undefined",
                                                       (int)v->text.length, v->text.data);
}

static bool filter_float(template_run *run, const template_call *call, value *out)
{
    double real;
    TEMPLATE_TRY(refuse_undefined(run, &call->self));
    if (read_real(run, &call->self, &real))
        *out = value_of_real(real);
    else
        *out = call->bound[0].kind != VALUE_ABSENT ? call->bound[0] : value_of_real(0.0);
    return run->status == CELLAR_OK;
}

static bool filter_int(template_run *run, const template_call *call, value *out)
{
    char digits[128], *end;
    double real;
    int64_t base;
    TEMPLATE_TRY(refuse_undefined(run, &call->self));
    TEMPLATE_TRY(template_argument_integer(run, &call->bound[1], 10, &base));
    if (base < 2 || base > 36) return template_fail(run, CELLAR_MISMATCH, "a base is 2 to 36");
    *out = call->bound[0].kind != VALUE_ABSENT ? call->bound[0] : value_of_integer(0);
    if (value_is_whole(&call->self)) {
        *out = value_of_integer(value_as_integer(&call->self));
        return true;
    }
    if (call->self.kind == VALUE_TEXT && copy_number(run, call->self.text, digits, sizeof digits)) {
        errno = 0;
        const int64_t integer = strtoll(digits, &end, (int)base);
        if (*end == '\0' && errno == 0) {
            *out = value_of_integer(integer);
            return true;
        }
    }
    if (read_real(run, &call->self, &real) && real > -9.2e18 && real < 9.2e18)
        *out = value_of_integer((int64_t)real);
    return run->status == CELLAR_OK;
}

static bool filter_abs(template_run *run, const template_call *call, value *out)
{
    const value *v = &call->self;
    if (!value_is_number(v))
        return template_fail(run, CELLAR_MISMATCH, "%s has no absolute value", value_kind_name(v));
    *out = value_is_whole(v) ? value_of_integer(value_as_integer(v)) : *v;
    if (value_as_real(v) < 0.0) return template_negate(run, v, out);
    return true;
}

static bool filter_round(template_run *run, const template_call *call, value *out)
{
    template_text method;
    int64_t precision;
    TEMPLATE_TRY(template_argument_integer(run, &call->bound[0], 0, &precision));
    TEMPLATE_TRY(template_argument_text(run, &call->bound[1], TEMPLATE_TEXT("common"), &method));
    if (!value_is_number(&call->self) || precision < 0 || precision > 15)
        return template_fail(run, CELLAR_MISMATCH, "round takes a number and 0 to 15 decimals");
    const double real = value_as_real(&call->self), scale = pow(10.0, (double)precision);
    if (template_text_equal(method, TEMPLATE_TEXT("ceil"))) {
        *out = value_of_real(ceil(real * scale) / scale);
    } else if (template_text_equal(method, TEMPLATE_TEXT("floor"))) {
        *out = value_of_real(floor(real * scale) / scale);
    } else if (template_text_equal(method, TEMPLATE_TEXT("common"))) {
        char text[400];
        snprintf(text, sizeof text, "%.*f", (int)precision, real);
        *out = value_is_whole(&call->self) ? value_of_integer(value_as_integer(&call->self))
                                           : value_of_real(strtod(text, NULL));
    } else {
        return template_fail(run, CELLAR_MISMATCH, "round knows common, ceil and floor");
    }
    return true;
}

/* ---- any value ------------------------------------------------------------------------------- */

static bool filter_default(template_run *run, const template_call *call, value *out)
{
    (void)run;
    const bool replaces = call->self.kind == VALUE_UNDEFINED ||
                          (value_is_true(&call->bound[1]) && !value_is_true(&call->self));
    *out = call->self;
    if (replaces)
        *out = call->bound[0].kind != VALUE_ABSENT ? call->bound[0]
                                                   : value_of_text(TEMPLATE_TEXT(""));
    return true;
}

static bool filter_length(template_run *run, const template_call *call, value *out)
{
    const value *v = &call->self;
    size_t n = 0;
    switch (v->kind) {
    case VALUE_UNDEFINED:
        break;
    case VALUE_TEXT:
        TEMPLATE_TRY(template_spend_bytes(run, v->text.length));
        n = template_text_count(v->text);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        n = v->list->n;
        break;
    case VALUE_DICT:
        n = v->dict->n;
        break;
    default:
        return template_fail(run, CELLAR_MISMATCH, "%s has no length", value_kind_name(v));
    }
    *out = value_of_integer((int64_t)n);
    return true;
}

static bool filter_safe(template_run *run, const template_call *call, value *out)
{
    return filter_string(run, call, out);
}

static bool filter_attr(template_run *run, const template_call *call, value *out)
{
    template_text name;
    TEMPLATE_TRY(template_argument_text(run, &call->bound[0], TEMPLATE_TEXT(""), &name));
    return template_attribute(run, &call->self, name, out);
}

static const template_builtin filters[] = {
    {"abs", filter_abs, ""},
    {"attr", filter_attr, "name"},
    {"capitalize", filter_capitalize, ""},
    {"count", filter_length, ""},
    {"d", filter_default, "default_value? boolean?"},
    {"default", filter_default, "default_value? boolean?"},
    {"e", filter_escape, ""},
    {"escape", filter_escape, ""},
    {"float", filter_float, "default?"},
    {"format", filter_format, NULL},
    {"indent", filter_indent, "width? first? blank?"},
    {"int", filter_int, "default? base?"},
    {"length", filter_length, ""},
    {"lower", filter_lower, ""},
    {"map", template_filter_map, NULL},
    {"reject", template_filter_reject, NULL},
    {"rejectattr", template_filter_rejectattr, NULL},
    {"replace", filter_replace, "old new count?"},
    {"round", filter_round, "precision? method?"},
    {"safe", filter_safe, ""},
    {"select", template_filter_select, NULL},
    {"selectattr", template_filter_selectattr, NULL},
    {"string", filter_string, ""},
    {"title", filter_title, ""},
    {"tojson", filter_tojson, "ensure_ascii? indent? separators? sort_keys?"},
    {"trim", filter_trim, "chars?"},
    {"upper", filter_upper, ""},
    {NULL, NULL, NULL},
};

const template_builtin *template_filter_find(template_text name)
{
    const template_builtin *found = template_find_builtin(filters, name);
    return found != NULL ? found : template_find_builtin(template_list_filters, name);
}
