/*
 * template_strings.c: Python's operations on texts, as methods and for filters.
 *
 * Places and widths count characters. What is found is a part of the text itself and costs no memory; what
 * is made new is built in the arena.
 */
#include <string.h>

#include "safe_text.h"
#include "template/template_run.h"

/* ---- arguments ------------------------------------------------------------------------------- */

bool template_argument_integer(template_run *run, const value *given, int64_t otherwise,
                               int64_t *out)
{
    *out = otherwise;
    if (given->kind == VALUE_ABSENT || given->kind == VALUE_NONE) return true;
    if (!value_is_whole(given))
        return template_fail(run, CELLAR_MISMATCH, "a whole number must stand where %s does",
                             value_kind_name(given));
    *out = value_as_integer(given);
    return true;
}

bool template_argument_text(template_run *run, const value *given, template_text otherwise,
                            template_text *out)
{
    *out = otherwise;
    if (given->kind == VALUE_ABSENT || given->kind == VALUE_NONE) return true;
    if (given->kind != VALUE_TEXT)
        return template_fail(run, CELLAR_MISMATCH, "a text must stand where %s does",
                             value_kind_name(given));
    *out = given->text;
    return true;
}

static bool give_text(template_text text, value *out)
{
    *out = value_of_text(text);
    return true;
}

/* ---- trimming -------------------------------------------------------------------------------- */

/* Bytes of the character at `at` if it is one of those that go. */
static size_t goes(template_text text, size_t at, const template_text *characters)
{
    if (characters == NULL) return template_space_at(text, at);
    size_t used;
    safe_text_decode(text.data + at, text.length - at, &used);
    const template_text one = {text.data + at, used};
    return template_text_find(*characters, one, 0) != SIZE_MAX ? used : 0;
}

bool template_trim(template_run *run, template_text text, const template_text *characters,
                   template_side side, template_text *out)
{
    size_t from = 0, to;
    const uint64_t each = characters == NULL ? 1 : 1 + characters->length / 8;
    TEMPLATE_TRY(template_spend(run, text.length / 16 * each));
    for (size_t used; (side & SIDE_LEFT) && from < text.length; from += used)
        if ((used = goes(text, from, characters)) == 0) break;
    to = side & SIDE_RIGHT ? from : text.length;
    for (size_t at = from; (side & SIDE_RIGHT) && at < text.length;) {
        size_t used = goes(text, at, characters);
        const bool stays = used == 0;
        if (stays) safe_text_decode(text.data + at, text.length - at, &used);
        at += used;
        if (stays) to = at;
    }
    *out = (template_text){text.data + from, to - from};
    return true;
}

static bool trim_method(template_run *run, const template_call *call, template_side side,
                        value *out)
{
    template_text characters, text;
    const bool is_given = call->bound[0].kind == VALUE_TEXT;
    TEMPLATE_TRY(template_argument_text(run, &call->bound[0], TEMPLATE_TEXT(""), &characters));
    TEMPLATE_TRY(template_trim(run, call->self.text, is_given ? &characters : NULL, side, &text));
    return give_text(text, out);
}

static bool method_strip(template_run *run, const template_call *call, value *out)
{
    return trim_method(run, call, SIDE_BOTH, out);
}

static bool method_lstrip(template_run *run, const template_call *call, value *out)
{
    return trim_method(run, call, SIDE_LEFT, out);
}

static bool method_rstrip(template_run *run, const template_call *call, value *out)
{
    return trim_method(run, call, SIDE_RIGHT, out);
}

/* ---- splitting ------------------------------------------------------------------------------- */

static bool add_part(template_run *run, value *list, template_text text, size_t from, size_t to)
{
    return value_append(run, list->list,
                        value_of_text((template_text){text.data + from, to - from}));
}

static bool split_by_space(template_run *run, template_text text, int64_t most, value *out)
{
    size_t at = 0;
    for (;;) {
        for (size_t used; (used = template_space_at(text, at)) > 0;)
            at += used;
        if (at >= text.length) return true;
        size_t end = at;
        while (end < text.length && template_space_at(text, end) == 0)
            end++;
        if (most >= 0 && (int64_t)out->list->n >= most) {
            const template_text rest = {text.data + at, text.length - at};
            template_text last;
            TEMPLATE_TRY(template_trim(run, rest, NULL, SIDE_RIGHT, &last));
            return value_append(run, out->list, value_of_text(last));
        }
        TEMPLATE_TRY(add_part(run, out, text, at, end));
        at = end;
    }
}

static bool check_separator(template_run *run, template_text separator)
{
    return separator.length > 0 || template_fail(run, CELLAR_MISMATCH, "the separator is empty");
}

static bool method_split(template_run *run, const template_call *call, value *out)
{
    const template_text text = call->self.text;
    template_text separator;
    int64_t most;
    TEMPLATE_TRY(template_argument_integer(run, &call->bound[1], -1, &most));
    TEMPLATE_TRY(template_argument_text(run, &call->bound[0], TEMPLATE_TEXT(""), &separator));
    TEMPLATE_TRY(template_spend_bytes(run, 4 * text.length));
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, 0, out));
    if (call->bound[0].kind != VALUE_TEXT) return split_by_space(run, text, most, out);
    TEMPLATE_TRY(check_separator(run, separator));
    size_t from = 0;
    while (most < 0 || (int64_t)out->list->n < most) {
        const size_t at = template_text_find(text, separator, from);
        if (at == SIZE_MAX) break;
        TEMPLATE_TRY(add_part(run, out, text, from, at));
        from = at + separator.length;
    }
    return add_part(run, out, text, from, text.length);
}

/* The last place of `part` that ends at or before `to`, or SIZE_MAX. */
static size_t find_last(template_text text, template_text part, size_t to)
{
    for (size_t at = to >= part.length ? to - part.length + 1 : 0; at-- > 0;)
        if (part.length == 0 || memcmp(text.data + at, part.data, part.length) == 0) return at;
    return SIZE_MAX;
}

static bool method_rsplit(template_run *run, const template_call *call, value *out)
{
    const template_text text = call->self.text;
    template_text separator;
    int64_t most;
    TEMPLATE_TRY(template_argument_integer(run, &call->bound[1], -1, &most));
    if (most < 0) return method_split(run, call, out);
    if (call->bound[0].kind != VALUE_TEXT)
        return template_fail(run, CELLAR_UNSUPPORTED, "rsplit needs a separator here");
    TEMPLATE_TRY(template_argument_text(run, &call->bound[0], TEMPLATE_TEXT(""), &separator));
    TEMPLATE_TRY(check_separator(run, separator));
    TEMPLATE_TRY(template_spend(run, text.length / 8));
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, 0, out));
    size_t to = text.length;
    while ((int64_t)out->list->n < most) {
        const size_t at = find_last(text, separator, to);
        if (at == SIZE_MAX) break;
        TEMPLATE_TRY(add_part(run, out, text, at + separator.length, to));
        to = at;
    }
    TEMPLATE_TRY(add_part(run, out, text, 0, to));
    for (size_t i = 0, j = out->list->n - 1; i < j; i++, j--) {
        const value swapped = out->list->items[i];
        out->list->items[i] = out->list->items[j];
        out->list->items[j] = swapped;
    }
    return true;
}

bool template_split_lines(template_run *run, template_text text, value *out)
{
    TEMPLATE_TRY(template_spend_bytes(run, 4 * text.length));
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, 0, out));
    for (size_t at = 0, from = 0; at < text.length; from = at) {
        size_t used = 1;
        uint32_t code = 0;
        for (; at < text.length; at += used) {
            code = safe_text_decode(text.data + at, text.length - at, &used);
            if ((code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
                code == 0x2028 || code == 0x2029)
                break;
        }
        TEMPLATE_TRY(add_part(run, out, text, from, at));
        if (at < text.length) at += used;
        if (code == '\r' && at < text.length && text.data[at] == '\n') at++;
    }
    return true;
}

static bool method_splitlines(template_run *run, const template_call *call, value *out)
{
    return template_split_lines(run, call->self.text, out);
}

/* ---- searching ------------------------------------------------------------------------------- */

static bool begins_or_ends(template_text text, template_text part, bool at_end)
{
    if (part.length > text.length) return false;
    const size_t at = at_end ? text.length - part.length : 0;
    return part.length == 0 || memcmp(text.data + at, part.data, part.length) == 0;
}

static bool match_side(template_run *run, const template_call *call, bool at_end, value *out)
{
    const value *wanted = &call->bound[0];
    const value_list single = {.items = &(value){0}, .n = 1};
    const value_list *items = &single;
    single.items[0] = *wanted;
    if (wanted->kind == VALUE_TUPLE) items = wanted->list;
    *out = value_of_boolean(false);
    for (size_t i = 0; i < items->n && !out->boolean; i++) {
        template_text part;
        if (items->items[i].kind != VALUE_TEXT)
            return template_fail(run, CELLAR_MISMATCH, "a text neither begins nor ends with %s",
                                 value_kind_name(&items->items[i]));
        TEMPLATE_TRY(template_argument_text(run, &items->items[i], TEMPLATE_TEXT(""), &part));
        TEMPLATE_TRY(template_spend(run, 1 + part.length / 64));
        out->boolean = begins_or_ends(call->self.text, part, at_end);
    }
    return true;
}

static bool method_startswith(template_run *run, const template_call *call, value *out)
{
    return match_side(run, call, false, out);
}

static bool method_endswith(template_run *run, const template_call *call, value *out)
{
    return match_side(run, call, true, out);
}

static bool remove_side(template_run *run, const template_call *call, bool at_end, value *out)
{
    template_text text = call->self.text, part;
    TEMPLATE_TRY(template_argument_text(run, &call->bound[0], TEMPLATE_TEXT(""), &part));
    if (begins_or_ends(text, part, at_end)) {
        if (!at_end) text.data += part.length;
        text.length -= part.length;
    }
    return give_text(text, out);
}

static bool method_removeprefix(template_run *run, const template_call *call, value *out)
{
    return remove_side(run, call, false, out);
}

static bool method_removesuffix(template_run *run, const template_call *call, value *out)
{
    return remove_side(run, call, true, out);
}

static bool find_place(template_run *run, const template_call *call, bool from_end, value *out)
{
    const template_text text = call->self.text;
    template_text part;
    TEMPLATE_TRY(template_argument_text(run, &call->bound[0], TEMPLATE_TEXT(""), &part));
    TEMPLATE_TRY(template_spend(run, text.length / 8));
    const size_t at = from_end ? find_last(text, part, text.length)
                               : template_text_find(text, part, 0);
    *out = value_of_integer(-1);
    if (at != SIZE_MAX) out->integer = (int64_t)template_text_count((template_text){text.data, at});
    return true;
}

static bool method_find(template_run *run, const template_call *call, value *out)
{
    return find_place(run, call, false, out);
}

static bool method_rfind(template_run *run, const template_call *call, value *out)
{
    return find_place(run, call, true, out);
}

static bool method_index(template_run *run, const template_call *call, value *out)
{
    TEMPLATE_TRY(find_place(run, call, false, out));
    return out->integer >= 0 || template_fail(run, CELLAR_MISMATCH, "the text is not found");
}

static bool method_count(template_run *run, const template_call *call, value *out)
{
    const template_text text = call->self.text;
    template_text part;
    int64_t n = 0;
    TEMPLATE_TRY(template_argument_text(run, &call->bound[0], TEMPLATE_TEXT(""), &part));
    TEMPLATE_TRY(template_spend(run, text.length / 8));
    if (part.length == 0) n = (int64_t)template_text_count(text) + 1;
    for (size_t at = 0; part.length > 0; at += part.length, n++)
        if ((at = template_text_find(text, part, at)) == SIZE_MAX) break;
    *out = value_of_integer(n);
    return true;
}

/* ---- changing -------------------------------------------------------------------------------- */

/* An empty text is found before every character and at the end. */
static bool replace_nothing(template_run *run, template_text text, template_text by, int64_t most,
                            template_text *out)
{
    template_builder builder = {.run = run};
    size_t at = 0;
    for (; most != 0; most--) {
        size_t used = 0;
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(template_builder_add_text(&builder, by));
        if (at >= text.length) break;
        safe_text_decode(text.data + at, text.length - at, &used);
        TEMPLATE_TRY(template_builder_add(&builder, text.data + at, used));
        at += used;
    }
    if (at < text.length)
        TEMPLATE_TRY(template_builder_add(&builder, text.data + at, text.length - at));
    *out = template_builder_text(&builder);
    return true;
}

bool template_replace(template_run *run, template_text text, template_text old, template_text by,
                      int64_t most, template_text *out)
{
    if (old.length == 0) return replace_nothing(run, text, by, most, out);
    template_builder builder = {.run = run};
    size_t from = 0;
    TEMPLATE_TRY(template_spend(run, text.length / 16));
    for (; most != 0; most--) {
        const size_t at = template_text_find(text, old, from);
        if (at == SIZE_MAX) break;
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(template_builder_add(&builder, text.data + from, at - from));
        TEMPLATE_TRY(template_builder_add_text(&builder, by));
        from = at + old.length;
    }
    *out = text;
    if (from == 0) return true;
    TEMPLATE_TRY(template_builder_add(&builder, text.data + from, text.length - from));
    *out = template_builder_text(&builder);
    return true;
}

static bool method_replace(template_run *run, const template_call *call, value *out)
{
    template_text old, by, text;
    int64_t most;
    TEMPLATE_TRY(template_argument_text(run, &call->bound[0], TEMPLATE_TEXT(""), &old));
    TEMPLATE_TRY(template_argument_text(run, &call->bound[1], TEMPLATE_TEXT(""), &by));
    TEMPLATE_TRY(template_argument_integer(run, &call->bound[2], -1, &most));
    TEMPLATE_TRY(template_replace(run, call->self.text, old, by, most, &text));
    return give_text(text, out);
}

static bool case_method(template_run *run, const template_call *call, template_case wanted,
                        value *out)
{
    template_text text;
    TEMPLATE_TRY(template_change_case(run, call->self.text, wanted, &text));
    return give_text(text, out);
}

static bool method_upper(template_run *run, const template_call *call, value *out)
{
    return case_method(run, call, CASE_UPPER, out);
}

static bool method_lower(template_run *run, const template_call *call, value *out)
{
    return case_method(run, call, CASE_LOWER, out);
}

static bool method_title(template_run *run, const template_call *call, value *out)
{
    return case_method(run, call, CASE_TITLE, out);
}

static bool method_capitalize(template_run *run, const template_call *call, value *out)
{
    return case_method(run, call, CASE_CAPITALIZED, out);
}

static bool method_join(template_run *run, const template_call *call, value *out)
{
    const value_list *items;
    template_builder builder = {.run = run};
    TEMPLATE_TRY(value_items(run, &call->bound[0], &items));
    for (size_t i = 0; i < items->n; i++) {
        if (items->items[i].kind != VALUE_TEXT)
            return template_fail(run, CELLAR_MISMATCH, "join joins texts; item %zu is %s", i,
                                 value_kind_name(&items->items[i]));
        TEMPLATE_TRY(template_spend(run, 1));
        if (i > 0) TEMPLATE_TRY(template_builder_add_text(&builder, call->self.text));
        TEMPLATE_TRY(template_builder_add_text(&builder, items->items[i].text));
    }
    return give_text(template_builder_text(&builder), out);
}

static bool method_format(template_run *run, const template_call *call, value *out)
{
    return template_format_braces(run, call->self.text, call, out);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static bool is_all(template_run *run, template_text text, const char *characters, value *out)
{
    TEMPLATE_TRY(template_spend(run, text.length / 8));
    *out = value_of_boolean(text.length > 0);
    for (size_t i = 0; i < text.length && out->boolean; i++)
        out->boolean = text.data[i] != '\0' && strchr(characters, text.data[i]) != NULL;
    return true;
}

static bool method_isdigit(template_run *run, const template_call *call, value *out)
{
    return is_all(run, call->self.text, "0123456789", out);
}

static bool method_isspace(template_run *run, const template_call *call, value *out)
{
    template_text rest;
    TEMPLATE_TRY(template_trim(run, call->self.text, NULL, SIDE_LEFT, &rest));
    *out = value_of_boolean(call->self.text.length > 0 && rest.length == 0);
    return true;
}

const template_builtin template_text_methods[] = {
    {"strip", method_strip, "chars?"},
    {"lstrip", method_lstrip, "chars?"},
    {"rstrip", method_rstrip, "chars?"},
    {"split", method_split, "sep? maxsplit?"},
    {"rsplit", method_rsplit, "sep? maxsplit?"},
    {"splitlines", method_splitlines, ""},
    {"startswith", method_startswith, "prefix"},
    {"endswith", method_endswith, "suffix"},
    {"removeprefix", method_removeprefix, "prefix"},
    {"removesuffix", method_removesuffix, "suffix"},
    {"find", method_find, "sub"},
    {"rfind", method_rfind, "sub"},
    {"index", method_index, "sub"},
    {"count", method_count, "sub"},
    {"replace", method_replace, "old new count?"},
    {"upper", method_upper, ""},
    {"lower", method_lower, ""},
    {"title", method_title, ""},
    {"capitalize", method_capitalize, ""},
    {"join", method_join, "iterable"},
    {"format", method_format, NULL},
    {"isdigit", method_isdigit, ""},
    {"isspace", method_isspace, ""},
    {NULL, NULL, NULL},
};
