/*
 * template_value.c: lists, dictionaries, truth, equality and order of a template's values.
 *
 * Equality and order are Python's: numbers of all kinds compare with each other, a list is never a tuple,
 * dictionaries do not care for their order; what has no order is an error. Dictionaries are searched
 * from front to back: messages have few keys, and every step is counted.
 */
#include "template/template_value.h"

#include <math.h>
#include <string.h>

#include "safe_text.h"
#include "template/template_run.h"

/* ---- lists ----------------------------------------------------------------------------------- */

bool value_make_list(template_run *run, value_kind kind, size_t capacity, value *out)
{
    value_list *list = template_take(run, sizeof *list);
    if (list == NULL) return false;
    *list = (value_list){.capacity = capacity};
    if (capacity > 0) {
        list->items = template_take(run, capacity * sizeof *list->items);
        if (list->items == NULL) return false;
    }
    *out = (value){.kind = kind, .list = list};
    return true;
}

bool value_append(template_run *run, value_list *list, value item)
{
    TEMPLATE_TRY(template_spend(run, 1));
    if (list->n == list->capacity) {
        const size_t capacity = list->capacity == 0 ? 4 : 2 * list->capacity;
        value *items = template_take(run, capacity * sizeof *items);
        if (items == NULL) return false;
        if (list->n > 0) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = item;
    return true;
}

/* ---- dictionaries ---------------------------------------------------------------------------- */

bool value_make_dict(template_run *run, value_kind kind, value *out)
{
    value_dict *dict = template_take(run, sizeof *dict);
    if (dict == NULL) return false;
    *dict = (value_dict){0};
    *out = (value){.kind = kind, .dict = dict};
    return true;
}

bool value_dict_find(template_run *run, const value_dict *dict, const value *key, value **item)
{
    *item = NULL;
    for (size_t i = 0; i < dict->n; i++) {
        bool is_equal;
        if (i % 8 == 0) TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(value_equal(run, &dict->pairs[i].key, key, &is_equal));
        if (!is_equal) continue;
        *item = &dict->pairs[i].item;
        break;
    }
    return true;
}

bool value_dict_add(template_run *run, value_dict *dict, value key, value item)
{
    TEMPLATE_TRY(template_spend(run, 1));
    if (dict->n == dict->capacity) {
        const size_t capacity = dict->capacity == 0 ? 4 : 2 * dict->capacity;
        value_pair *pairs = template_take(run, capacity * sizeof *pairs);
        if (pairs == NULL) return false;
        if (dict->n > 0) memcpy(pairs, dict->pairs, dict->n * sizeof *pairs);
        dict->pairs = pairs;
        dict->capacity = capacity;
    }
    dict->pairs[dict->n++] = (value_pair){key, item};
    return true;
}

bool value_dict_set(template_run *run, value_dict *dict, value key, value item)
{
    if (key.kind == VALUE_LIST || key.kind == VALUE_DICT)
        return template_fail(run, CELLAR_MISMATCH, "%s cannot be the key of a dictionary",
                             value_kind_name(&key));
    value *known;
    TEMPLATE_TRY(value_dict_find(run, dict, &key, &known));
    if (known == NULL) return value_dict_add(run, dict, key, item);
    *known = item;
    return true;
}

/* ---- asking ---------------------------------------------------------------------------------- */

double value_as_real(const value *v)
{
    return v->kind == VALUE_REAL ? v->real : (double)value_as_integer(v);
}

const char *value_kind_name(const value *v)
{
    static const char *const names[] = {
        [VALUE_ABSENT] = "nothing",
        [VALUE_UNDEFINED] = "something undefined",
        [VALUE_NONE] = "none",
        [VALUE_BOOLEAN] = "a boolean",
        [VALUE_INTEGER] = "a whole number",
        [VALUE_REAL] = "a number",
        [VALUE_TEXT] = "a text",
        [VALUE_LIST] = "a list",
        [VALUE_TUPLE] = "a tuple",
        [VALUE_DICT] = "a dictionary",
        [VALUE_NAMESPACE] = "a namespace",
        [VALUE_LOOP] = "a loop",
        [VALUE_MACRO] = "a macro",
        [VALUE_FUNCTION] = "a function",
    };
    return names[v->kind];
}

bool value_is_true(const value *v)
{
    switch (v->kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOLEAN:
        return v->boolean;
    case VALUE_INTEGER:
        return v->integer != 0;
    case VALUE_REAL:
        return v->real != 0.0;
    case VALUE_TEXT:
        return v->text.length > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
        return v->list->n > 0;
    case VALUE_DICT:
        return v->dict->n > 0;
    default:
        return true;
    }
}

/* ---- equality -------------------------------------------------------------------------------- */

static bool lists_equal(template_run *run, const value_list *a, const value_list *b, bool *is_equal)
{
    *is_equal = a->n == b->n;
    for (size_t i = 0; *is_equal && i < a->n && i < b->n; i++) {
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(value_equal(run, &a->items[i], &b->items[i], is_equal));
    }
    return true;
}

static bool dicts_equal(template_run *run, const value_dict *a, const value_dict *b, bool *is_equal)
{
    *is_equal = a->n == b->n;
    for (size_t i = 0; *is_equal && i < a->n; i++) {
        value *item;
        TEMPLATE_TRY(value_dict_find(run, b, &a->pairs[i].key, &item));
        *is_equal = item != NULL;
        if (item != NULL) TEMPLATE_TRY(value_equal(run, &a->pairs[i].item, item, is_equal));
    }
    return true;
}

static bool numbers_equal(const value *a, const value *b)
{
    if (value_is_whole(a) && value_is_whole(b)) return value_as_integer(a) == value_as_integer(b);
    return value_as_real(a) == value_as_real(b);
}

static bool containers_equal(template_run *run, const value *a, const value *b, bool *is_equal)
{
    TEMPLATE_TRY(template_enter(run));
    const bool is_good = a->kind == VALUE_DICT ? dicts_equal(run, a->dict, b->dict, is_equal)
                                               : lists_equal(run, a->list, b->list, is_equal);
    template_leave(run);
    return is_good;
}

bool value_equal(template_run *run, const value *a, const value *b, bool *is_equal)
{
    *is_equal = false;
    if (value_is_number(a) && value_is_number(b)) {
        *is_equal = numbers_equal(a, b);
        return true;
    }
    if (a->kind != b->kind) return true;
    switch (a->kind) {
    case VALUE_TEXT:
        *is_equal = template_text_equal(a->text, b->text);
        return !*is_equal || template_spend_bytes(run, a->text.length);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
        return containers_equal(run, a, b, is_equal);
    case VALUE_NAMESPACE:
        *is_equal = a->dict == b->dict;
        return true;
    case VALUE_LOOP:
        *is_equal = a->loop == b->loop;
        return true;
    case VALUE_MACRO:
        *is_equal = a->macro == b->macro;
        return true;
    case VALUE_FUNCTION:
        *is_equal = a->method->builtin == b->method->builtin;
        return true;
    default:
        *is_equal = true; /* undefined, none */
        return true;
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

static int compare_texts(template_text a, template_text b)
{
    const size_t shared = a.length < b.length ? a.length : b.length;
    const int order = shared > 0 ? memcmp(a.data, b.data, shared) : 0;
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static bool compare_lists(template_run *run, const value_list *a, const value_list *b, int *order)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool is_equal;
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(value_equal(run, &a->items[i], &b->items[i], &is_equal));
        if (!is_equal) return value_compare(run, &a->items[i], &b->items[i], order);
    }
    *order = (a->n > b->n) - (a->n < b->n);
    return true;
}

bool value_compare(template_run *run, const value *a, const value *b, int *order)
{
    if (value_is_whole(a) && value_is_whole(b)) {
        *order = (value_as_integer(a) > value_as_integer(b)) -
                 (value_as_integer(a) < value_as_integer(b));
        return true;
    }
    if (value_is_number(a) && value_is_number(b)) {
        *order = (value_as_real(a) > value_as_real(b)) - (value_as_real(a) < value_as_real(b));
        return true;
    }
    if (a->kind == VALUE_TEXT && b->kind == VALUE_TEXT) {
        *order = compare_texts(a->text, b->text);
        return template_spend_bytes(run, a->text.length);
    }
    if (a->kind == b->kind && value_is_sequence(a)) {
        TEMPLATE_TRY(template_enter(run));
        const bool is_good = compare_lists(run, a->list, b->list, order);
        template_leave(run);
        return is_good;
    }
    return template_fail(run, CELLAR_MISMATCH, "%s and %s have no order", value_kind_name(a),
                         value_kind_name(b));
}

bool value_contains(template_run *run, const value *container, const value *item, bool *found)
{
    *found = false;
    if (container->kind == VALUE_TEXT) {
        if (item->kind != VALUE_TEXT)
            return template_fail(run, CELLAR_MISMATCH, "%s cannot be looked for in a text",
                                 value_kind_name(item));
        TEMPLATE_TRY(template_spend_bytes(run, container->text.length));
        *found = template_text_find(container->text, item->text, 0) != SIZE_MAX;
        return true;
    }
    if (container->kind == VALUE_DICT) {
        value *known;
        TEMPLATE_TRY(value_dict_find(run, container->dict, item, &known));
        *found = known != NULL;
        return true;
    }
    const value_list *items;
    TEMPLATE_TRY(value_items(run, container, &items));
    for (size_t i = 0; !*found && i < items->n; i++) {
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(value_equal(run, &items->items[i], item, found));
    }
    return true;
}

/* ---- walking --------------------------------------------------------------------------------- */

static bool list_characters(template_run *run, template_text text, value_list *list)
{
    for (size_t at = 0, used; at < text.length; at += used) {
        safe_text_decode(text.data + at, text.length - at, &used);
        TEMPLATE_TRY(value_append(run, list, value_of_text((template_text){text.data + at, used})));
    }
    return true;
}

bool value_items(template_run *run, const value *v, const value_list **items)
{
    static const value_list nothing = {0};
    *items = &nothing;
    value made;
    switch (v->kind) {
    case VALUE_UNDEFINED:
        return true;
    case VALUE_LIST:
    case VALUE_TUPLE:
        *items = v->list;
        return true;
    case VALUE_TEXT:
        TEMPLATE_TRY(value_make_list(run, VALUE_LIST, 0, &made));
        TEMPLATE_TRY(list_characters(run, v->text, made.list));
        *items = made.list;
        return true;
    case VALUE_DICT:
        TEMPLATE_TRY(value_make_list(run, VALUE_LIST, v->dict->n, &made));
        for (size_t i = 0; i < v->dict->n; i++)
            TEMPLATE_TRY(value_append(run, made.list, v->dict->pairs[i].key));
        *items = made.list;
        return true;
    default:
        return template_fail(run, CELLAR_MISMATCH, "%s has no items to walk over",
                             value_kind_name(v));
    }
}
