/*
 * template_order.c: sorting, and where filters look when they are told an attribute.
 *
 * A stable merge sort. Comparing may fail (values without an order) and costs steps, which qsort could
 * not say.
 */
#include <string.h>

#include "template/template_run.h"

bool template_attribute_path(template_run *run, const value *object, const value *path, value *out)
{
    *out = *object;
    if (path->kind != VALUE_TEXT) return template_item(run, object, path, out);
    template_text rest = path->text;
    for (;;) {
        const char *dot = rest.length > 0 ? memchr(rest.data, '.', rest.length) : NULL;
        const template_text part = {rest.data,
                                    dot != NULL ? (size_t)(dot - rest.data) : rest.length};
        int64_t index = 0;
        size_t digits = 0;
        while (digits < part.length && digits < 10 && part.data[digits] >= '0' &&
               part.data[digits] <= '9')
            index = 10 * index + (part.data[digits++] - '0');
        const bool is_index = digits == part.length && digits > 0;
        const value key = is_index ? value_of_integer(index) : value_of_text(part);
        value inner;
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(template_item(run, out, &key, &inner));
        *out = inner;
        if (dot == NULL) return true;
        rest = (template_text){dot + 1, rest.length - part.length - 1};
    }
}

bool template_order_key(template_run *run, const value *item, const template_order *order,
                        value *key)
{
    *key = *item;
    if (order->attribute.kind != VALUE_ABSENT && order->attribute.kind != VALUE_NONE)
        TEMPLATE_TRY(template_attribute_path(run, item, &order->attribute, key));
    if (key->kind == VALUE_TEXT && !order->case_sensitive)
        return template_change_case(run, key->text, CASE_LOWER, &key->text);
    return true;
}

/* Merge the sorted halves of keys[from..to) by way of the spare room, items alongside. */
static bool merge(template_run *run, value_pair *pairs, value_pair *spare, size_t from,
                  size_t middle, size_t to, bool reverse)
{
    size_t left = from, right = middle, n = 0;
    while (left < middle && right < to) {
        int order;
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(value_compare(run, &pairs[right].key, &pairs[left].key, &order));
        const bool takes_right = reverse ? order > 0 : order < 0;
        spare[n++] = pairs[takes_right ? right++ : left++];
    }
    while (left < middle)
        spare[n++] = pairs[left++];
    while (right < to)
        spare[n++] = pairs[right++];
    memcpy(pairs + from, spare, n * sizeof *pairs);
    return true;
}

bool template_sort(template_run *run, value_list *list, const template_order *order)
{
    if (list->n == 0) return true;
    value_pair *pairs = template_take(run, list->n * sizeof *pairs);
    value_pair *spare = template_take(run, list->n * sizeof *spare);
    if (pairs == NULL || spare == NULL) return false;
    for (size_t i = 0; i < list->n; i++) {
        pairs[i].item = list->items[i];
        TEMPLATE_TRY(template_order_key(run, &list->items[i], order, &pairs[i].key));
    }
    for (size_t width = 1; width < list->n; width *= 2) {
        for (size_t from = 0; from + width < list->n; from += 2 * width) {
            const size_t to = from + 2 * width < list->n ? from + 2 * width : list->n;
            TEMPLATE_TRY(merge(run, pairs, spare, from, from + width, to, order->reverse));
        }
    }
    for (size_t i = 0; i < list->n; i++)
        list->items[i] = pairs[i].item;
    return true;
}
