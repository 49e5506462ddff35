/*
 * template_select.c: the filters map, select, reject, selectattr and rejectattr.
 *
 * They run another filter or a test, named by a text, over each item. The name is only known when the
 * template runs, so an unknown one is an error then.
 */
#include "template/template_run.h"

/* Call what is named by the first argument left with the others, for one item. */
typedef struct item_call {
    const template_builtin *builtin;
    template_call arguments; /* without self */
} item_call;

static bool find_by_name(template_run *run, const template_call *call, size_t skip, bool is_test,
                         item_call *found)
{
    template_text name;
    TEMPLATE_TRY(template_argument_text(run, &call->positional[skip], TEMPLATE_TEXT(""), &name));
    found->builtin = is_test ? template_test_find(name) : template_filter_find(name);
    if (found->builtin == NULL)
        return template_fail(run, CELLAR_UNSUPPORTED, "there is no %s '%.*s' here",
                             is_test ? "test" : "filter", (int)name.length, name.data);
    found->arguments = (template_call){.positional = call->positional + skip + 1,
                                       .n_positional = call->n_positional - skip - 1,
                                       .keywords = call->keywords,
                                       .n_keywords = call->n_keywords};
    return true;
}

static bool run_for_item(template_run *run, const item_call *with, const value *item, value *out)
{
    template_call call = with->arguments;
    call.self = *item;
    TEMPLATE_TRY(template_spend(run, 1));
    TEMPLATE_TRY(template_enter(run)); /* map('map', 'map', ...) nests */
    const bool is_good = template_run_builtin(run, with->builtin, &call, out);
    template_leave(run);
    return is_good;
}

static const value *find_keyword(const template_call *call, template_text name)
{
    for (size_t i = 0; i < call->n_keywords; i++)
        if (template_text_equal(call->keywords[i].name, name)) return &call->keywords[i].item;
    return NULL;
}

static bool map_attribute(template_run *run, const template_call *call, const value *attribute,
                          const value_list *items, value *out)
{
    const value *otherwise = find_keyword(call, TEMPLATE_TEXT("default"));
    for (size_t i = 0; i < items->n; i++) {
        value item;
        TEMPLATE_TRY(template_attribute_path(run, &items->items[i], attribute, &item));
        if (item.kind == VALUE_UNDEFINED && otherwise != NULL) item = *otherwise;
        TEMPLATE_TRY(value_append(run, out->list, item));
    }
    return true;
}

bool template_filter_map(template_run *run, const template_call *call, value *out)
{
    const value_list *items;
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, 0, out));
    if (!value_is_true(&call->self)) return true; /* none has no items, as in Jinja2 */
    TEMPLATE_TRY(value_items(run, &call->self, &items));
    const value *attribute = find_keyword(call, TEMPLATE_TEXT("attribute"));
    if (call->n_positional == 0 && attribute != NULL)
        return map_attribute(run, call, attribute, items, out);
    if (call->n_positional == 0)
        return template_fail(run, CELLAR_MISMATCH, "map needs the name of a filter");
    item_call with;
    TEMPLATE_TRY(find_by_name(run, call, 0, false, &with));
    for (size_t i = 0; i < items->n; i++) {
        value item;
        TEMPLATE_TRY(run_for_item(run, &with, &items->items[i], &item));
        TEMPLATE_TRY(value_append(run, out->list, item));
    }
    return true;
}

/* The items for which the test gives `wanted`; with an attribute, that is tested. */
static bool select_items(template_run *run, const template_call *call, bool by_attribute,
                         bool wanted, value *out)
{
    const value_list *items;
    const size_t skip = by_attribute;
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, 0, out));
    if (!value_is_true(&call->self)) return true;
    TEMPLATE_TRY(value_items(run, &call->self, &items));
    if (call->n_positional < skip)
        return template_fail(run, CELLAR_MISMATCH, "this filter needs the name of an attribute");
    item_call with = {0};
    if (call->n_positional > skip) TEMPLATE_TRY(find_by_name(run, call, skip, true, &with));
    for (size_t i = 0; i < items->n; i++) {
        value tested = items->items[i], verdict;
        if (by_attribute)
            TEMPLATE_TRY(
                template_attribute_path(run, &items->items[i], &call->positional[0], &tested));
        verdict = tested;
        if (with.builtin != NULL) TEMPLATE_TRY(run_for_item(run, &with, &tested, &verdict));
        TEMPLATE_TRY(template_spend(run, 1));
        if (value_is_true(&verdict) == wanted)
            TEMPLATE_TRY(value_append(run, out->list, items->items[i]));
    }
    return true;
}

bool template_filter_select(template_run *run, const template_call *call, value *out)
{
    return select_items(run, call, false, true, out);
}

bool template_filter_reject(template_run *run, const template_call *call, value *out)
{
    return select_items(run, call, false, false, out);
}

bool template_filter_selectattr(template_run *run, const template_call *call, value *out)
{
    return select_items(run, call, true, true, out);
}

bool template_filter_rejectattr(template_run *run, const template_call *call, value *out)
{
    return select_items(run, call, true, false, out);
}
