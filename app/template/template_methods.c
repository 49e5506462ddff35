/*
 * template_methods.c: what may be called on dictionaries, lists and loops.
 *
 * A list's append is the one method that changes a value: templates collect with it. Those of texts are in
 * template_strings.c.
 */
#include "template/template_run.h"

static bool method_items(template_run *run, const template_call *call, value *out)
{
    const value_dict *dict = call->self.dict;
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, dict->n, out));
    for (size_t i = 0; i < dict->n; i++) {
        value pair;
        TEMPLATE_TRY(value_make_list(run, VALUE_TUPLE, 2, &pair));
        TEMPLATE_TRY(value_append(run, pair.list, dict->pairs[i].key));
        TEMPLATE_TRY(value_append(run, pair.list, dict->pairs[i].item));
        TEMPLATE_TRY(value_append(run, out->list, pair));
    }
    return true;
}

static bool method_keys(template_run *run, const template_call *call, value *out)
{
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, call->self.dict->n, out));
    for (size_t i = 0; i < call->self.dict->n; i++)
        TEMPLATE_TRY(value_append(run, out->list, call->self.dict->pairs[i].key));
    return true;
}

static bool method_values(template_run *run, const template_call *call, value *out)
{
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, call->self.dict->n, out));
    for (size_t i = 0; i < call->self.dict->n; i++)
        TEMPLATE_TRY(value_append(run, out->list, call->self.dict->pairs[i].item));
    return true;
}

static bool method_get(template_run *run, const template_call *call, value *out)
{
    value *item;
    TEMPLATE_TRY(value_dict_find(run, call->self.dict, &call->bound[0], &item));
    if (item != NULL)
        *out = *item;
    else
        *out = call->bound[1].kind != VALUE_ABSENT ? call->bound[1] : value_of_none();
    return true;
}

static const template_builtin dict_methods[] = {
    {"items", method_items, ""},         {"keys", method_keys, ""}, {"values", method_values, ""},
    {"get", method_get, "key default?"}, {NULL, NULL, NULL},
};

static bool method_append(template_run *run, const template_call *call, value *out)
{
    *out = value_of_none();
    return value_append(run, call->self.list, call->bound[0]);
}

static bool method_list_index(template_run *run, const template_call *call, value *out)
{
    const value_list *list = call->self.list;
    for (size_t i = 0; i < list->n; i++) {
        bool is_equal;
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(value_equal(run, &list->items[i], &call->bound[0], &is_equal));
        *out = value_of_integer((int64_t)i);
        if (is_equal) return true;
    }
    return template_fail(run, CELLAR_MISMATCH, "the list does not hold this item");
}

static bool method_list_count(template_run *run, const template_call *call, value *out)
{
    const value_list *list = call->self.list;
    *out = value_of_integer(0);
    for (size_t i = 0; i < list->n; i++) {
        bool is_equal;
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(value_equal(run, &list->items[i], &call->bound[0], &is_equal));
        out->integer += is_equal;
    }
    return true;
}

static const template_builtin list_methods[] = {
    {"index", method_list_index, "value"},
    {"count", method_list_count, "value"},
    {"append", method_append, "object"}, /* not of tuples: the last */
    {NULL, NULL, NULL},
};

static bool method_cycle(template_run *run, const template_call *call, value *out)
{
    if (call->n_positional == 0)
        return template_fail(run, CELLAR_MISMATCH, "loop.cycle needs something to cycle through");
    *out = call->positional[call->self.loop->at % call->n_positional];
    return true;
}

static bool method_changed(template_run *run, const template_call *call, value *out)
{
    template_loop *loop = call->self.loop;
    value values;
    bool is_equal = false;
    TEMPLATE_TRY(value_make_list(run, VALUE_TUPLE, call->n_positional, &values));
    for (size_t i = 0; i < call->n_positional; i++)
        TEMPLATE_TRY(value_append(run, values.list, call->positional[i]));
    if (loop->has_last_values)
        TEMPLATE_TRY(value_equal(run, &values, &loop->last_values, &is_equal));
    loop->has_last_values = true;
    loop->last_values = values;
    *out = value_of_boolean(!is_equal);
    return true;
}

static const template_builtin loop_methods[] = {
    {"cycle", method_cycle, NULL},
    {"changed", method_changed, NULL},
    {NULL, NULL, NULL},
};

const template_builtin *template_method_find(const value *self, template_text name)
{
    const template_builtin *found;
    switch (self->kind) {
    case VALUE_TEXT:
        return template_find_builtin(template_text_methods, name);
    case VALUE_DICT:
        return template_find_builtin(dict_methods, name);
    case VALUE_LIST:
        return template_find_builtin(list_methods, name);
    case VALUE_TUPLE:
        found = template_find_builtin(list_methods, name);
        return found != NULL && found->run == method_append ? NULL : found;
    case VALUE_LOOP:
        return template_find_builtin(loop_methods, name);
    default:
        return NULL;
    }
}
