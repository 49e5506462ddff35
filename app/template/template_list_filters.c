/*
 * template_list_filters.c: the filters that take what can be walked over.
 *
 * They make new lists and leave what they got as it was. Of equal items `unique` and the sorts keep the
 * order.
 */
#include <string.h>

#include "template/template_run.h"

static bool copy_items(template_run *run, const value *v, value *out)
{
    const value_list *items;
    TEMPLATE_TRY(value_items(run, v, &items));
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, items->n, out));
    for (size_t i = 0; i < items->n; i++)
        TEMPLATE_TRY(value_append(run, out->list, items->items[i]));
    return true;
}

static bool filter_list(template_run *run, const template_call *call, value *out)
{
    return copy_items(run, &call->self, out);
}

static bool filter_first(template_run *run, const template_call *call, value *out)
{
    const value_list *items;
    TEMPLATE_TRY(value_items(run, &call->self, &items));
    *out = items->n > 0 ? items->items[0] : value_of_undefined(TEMPLATE_TEXT("the first item"));
    return true;
}

static bool filter_last(template_run *run, const template_call *call, value *out)
{
    const value_list *items;
    TEMPLATE_TRY(value_items(run, &call->self, &items));
    *out = items->n > 0 ? items->items[items->n - 1]
                        : value_of_undefined(TEMPLATE_TEXT("the last item"));
    return true;
}

static bool filter_join(template_run *run, const template_call *call, value *out)
{
    const value_list *items;
    template_text between;
    template_builder builder = {.run = run};
    TEMPLATE_TRY(value_to_text(run, &call->bound[0], &between));
    TEMPLATE_TRY(value_items(run, &call->self, &items));
    for (size_t i = 0; i < items->n; i++) {
        value item = items->items[i];
        if (call->bound[1].kind != VALUE_ABSENT && call->bound[1].kind != VALUE_NONE)
            TEMPLATE_TRY(template_attribute_path(run, &items->items[i], &call->bound[1], &item));
        TEMPLATE_TRY(template_spend(run, 1));
        if (i > 0) TEMPLATE_TRY(template_builder_add_text(&builder, between));
        TEMPLATE_TRY(value_print(&builder, &item));
    }
    *out = value_of_text(template_builder_text(&builder));
    return true;
}

static void reverse_list(value_list *list)
{
    for (size_t i = 0; i + 1 < list->n - i; i++) {
        const value swapped = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = swapped;
    }
}

static bool filter_reverse(template_run *run, const template_call *call, value *out)
{
    TEMPLATE_TRY(copy_items(run, &call->self, out));
    reverse_list(out->list);
    if (call->self.kind != VALUE_TEXT) return true;
    template_builder builder = {.run = run};
    for (size_t i = 0; i < out->list->n; i++)
        TEMPLATE_TRY(template_builder_add_text(&builder, out->list->items[i].text));
    *out = value_of_text(template_builder_text(&builder));
    return true;
}

static bool filter_sort(template_run *run, const template_call *call, value *out)
{
    const template_order order = {.reverse = value_is_true(&call->bound[0]),
                                  .case_sensitive = value_is_true(&call->bound[1]),
                                  .attribute = call->bound[2]};
    TEMPLATE_TRY(copy_items(run, &call->self, out));
    return template_sort(run, out->list, &order);
}

static bool filter_unique(template_run *run, const template_call *call, value *out)
{
    const template_order order = {.case_sensitive = value_is_true(&call->bound[0]),
                                  .attribute = call->bound[1]};
    const value_list *items;
    value keys;
    TEMPLATE_TRY(value_items(run, &call->self, &items));
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, 0, out));
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, 0, &keys));
    for (size_t i = 0; i < items->n; i++) {
        value key;
        bool is_known;
        TEMPLATE_TRY(template_order_key(run, &items->items[i], &order, &key));
        TEMPLATE_TRY(value_contains(run, &keys, &key, &is_known));
        if (is_known) continue;
        TEMPLATE_TRY(value_append(run, keys.list, key));
        TEMPLATE_TRY(value_append(run, out->list, items->items[i]));
    }
    return true;
}

/* The first item that no other goes before. */
static bool find_extreme(template_run *run, const template_call *call, int sign, value *out)
{
    const template_order by = {.case_sensitive = value_is_true(&call->bound[0]),
                               .attribute = call->bound[1]};
    const value_list *items;
    value best = value_of_none(), key;
    TEMPLATE_TRY(value_items(run, &call->self, &items));
    *out = value_of_undefined(TEMPLATE_TEXT("an item of nothing"));
    for (size_t i = 0; i < items->n; i++) {
        int order = 1;
        TEMPLATE_TRY(template_order_key(run, &items->items[i], &by, &key));
        if (i > 0) TEMPLATE_TRY(value_compare(run, &key, &best, &order));
        TEMPLATE_TRY(template_spend(run, 1));
        if (i > 0 && order * sign <= 0) continue;
        best = key;
        *out = items->items[i];
    }
    return true;
}

static bool filter_max(template_run *run, const template_call *call, value *out)
{
    return find_extreme(run, call, 1, out);
}

static bool filter_min(template_run *run, const template_call *call, value *out)
{
    return find_extreme(run, call, -1, out);
}

static bool filter_sum(template_run *run, const template_call *call, value *out)
{
    const value_list *items;
    TEMPLATE_TRY(value_items(run, &call->self, &items));
    *out = call->bound[1].kind != VALUE_ABSENT ? call->bound[1] : value_of_integer(0);
    for (size_t i = 0; i < items->n; i++) {
        value item = items->items[i], sum;
        if (call->bound[0].kind != VALUE_ABSENT && call->bound[0].kind != VALUE_NONE)
            TEMPLATE_TRY(template_attribute_path(run, &items->items[i], &call->bound[0], &item));
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(template_binary(run, OP_ADD, out, &item, &sum));
        *out = sum;
    }
    return true;
}

/* ---- dictionaries ---------------------------------------------------------------------------- */

static bool filter_items(template_run *run, const template_call *call, value *out)
{
    if (call->self.kind == VALUE_UNDEFINED) return value_make_list(run, VALUE_LIST, 0, out);
    if (call->self.kind != VALUE_DICT)
        return template_fail(run, CELLAR_MISMATCH, "%s has no pairs of keys and items",
                             value_kind_name(&call->self));
    const template_builtin *method = template_method_find(&call->self, TEMPLATE_TEXT("items"));
    template_call inner = {.self = call->self};
    return template_run_builtin(run, method, &inner, out);
}

static bool filter_dictsort(template_run *run, const template_call *call, value *out)
{
    template_text by;
    TEMPLATE_TRY(template_argument_text(run, &call->bound[1], TEMPLATE_TEXT("key"), &by));
    const bool by_value = template_text_equal(by, TEMPLATE_TEXT("value"));
    if (!by_value && !template_text_equal(by, TEMPLATE_TEXT("key")))
        return template_fail(run, CELLAR_MISMATCH, "dictsort sorts by 'key' or by 'value'");
    if (call->self.kind != VALUE_DICT)
        return template_fail(run, CELLAR_MISMATCH, "%s has no pairs of keys and items",
                             value_kind_name(&call->self));
    const template_order order = {.case_sensitive = value_is_true(&call->bound[0]),
                                  .attribute = value_of_integer(by_value),
                                  .reverse = value_is_true(&call->bound[2])};
    TEMPLATE_TRY(filter_items(run, call, out));
    return template_sort(run, out->list, &order);
}

const template_builtin template_list_filters[] = {
    {"dictsort", filter_dictsort, "case_sensitive? by? reverse?"},
    {"first", filter_first, ""},
    {"items", filter_items, ""},
    {"join", filter_join, "d? attribute?"},
    {"last", filter_last, ""},
    {"list", filter_list, ""},
    {"max", filter_max, "case_sensitive? attribute?"},
    {"min", filter_min, "case_sensitive? attribute?"},
    {"reverse", filter_reverse, ""},
    {"sort", filter_sort, "reverse? case_sensitive? attribute?"},
    {"sum", filter_sum, "attribute? start?"},
    {"unique", filter_unique, "case_sensitive? attribute?"},
    {NULL, NULL, NULL},
};
