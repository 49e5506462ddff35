/*
 * template_evaluate.c: the value of an expression.
 *
 * A function for each kind of node; every node costs a step, every nesting a level. Arguments are
 * evaluated once and handed over as a template_call, which a builtin binds to its parameters by name.
 */
#include <string.h>

#include "template/template_run.h"

/* ---- names and places ------------------------------------------------------------------------ */

static bool look_up(template_run *run, const template_scope *scope, template_text name, value *out)
{
    for (; scope != NULL; scope = scope->outer) {
        TEMPLATE_TRY(template_spend(run, 1));
        for (const template_variable *v = scope->variables; v != NULL; v = v->next) {
            TEMPLATE_TRY(template_spend(run, 1));
            if (!template_text_equal(v->name, name)) continue;
            *out = v->item;
            return true;
        }
    }
    const template_builtin *function = template_function_find(name);
    *out = value_of_undefined(name);
    if (function == NULL) return true;
    template_method *method = template_take(run, sizeof *method);
    if (method == NULL) return false;
    *method = (template_method){.builtin = function};
    *out = (value){.kind = VALUE_FUNCTION, .method = method};
    return true;
}

static void loop_attribute(const template_loop *loop, template_text name, value *out)
{
    static const char *const numbers[] = {"index",  "index0", "revindex", "revindex0",
                                          "length", "depth",  "depth0"};
    const int64_t at = (int64_t)loop->at, n = (int64_t)loop->items->n;
    /* the depth is that of recursive loops, which there are none of */
    const int64_t amounts[] = {at + 1, at, n - at, n - at - 1, n, 1, 0};
    *out = value_of_undefined(name);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (template_text_equal(name, (template_text){numbers[i], strlen(numbers[i])}))
            *out = value_of_integer(amounts[i]);
    if (template_text_equal(name, TEMPLATE_TEXT("first"))) *out = value_of_boolean(at == 0);
    if (template_text_equal(name, TEMPLATE_TEXT("last"))) *out = value_of_boolean(at == n - 1);
    if (template_text_equal(name, TEMPLATE_TEXT("previtem")) && at > 0)
        *out = loop->items->items[at - 1];
    if (template_text_equal(name, TEMPLATE_TEXT("nextitem")) && at + 1 < n)
        *out = loop->items->items[at + 1];
}

static bool find_method(template_run *run, const value *object, template_text name, value *out)
{
    const template_builtin *builtin = template_method_find(object, name);
    if (builtin == NULL) return true;
    template_method *method = template_take(run, sizeof *method);
    if (method == NULL) return false;
    *method = (template_method){builtin, *object};
    *out = (value){.kind = VALUE_FUNCTION, .method = method};
    return true;
}

static bool refuse_undefined(template_run *run, const value *object)
{
    return template_fail(run, CELLAR_MISMATCH, "'%.*s' is undefined", (int)object->text.length,
                         object->text.data);
}

bool template_attribute(template_run *run, const value *object, template_text name, value *out)
{
    *out = value_of_undefined(name);
    if (object->kind == VALUE_UNDEFINED) return refuse_undefined(run, object);
    if (object->kind == VALUE_LOOP) loop_attribute(object->loop, name, out);
    if (out->kind == VALUE_UNDEFINED) TEMPLATE_TRY(find_method(run, object, name, out));
    if (out->kind != VALUE_UNDEFINED) return true;
    if (object->kind == VALUE_DICT || object->kind == VALUE_NAMESPACE) {
        const value key = value_of_text(name);
        value *item;
        TEMPLATE_TRY(value_dict_find(run, object->dict, &key, &item));
        if (item != NULL) *out = *item;
    }
    return true;
}

/* A place counted from the end if it is below 0; false: not there. */
static bool resolve_index(int64_t index, size_t n, size_t *place)
{
    if (index < 0) index += (int64_t)n;
    *place = (size_t)index;
    return index >= 0 && index < (int64_t)n;
}

bool template_item(template_run *run, const value *object, const value *key, value *out)
{
    size_t place;
    *out = value_of_undefined(key->kind == VALUE_TEXT ? key->text : TEMPLATE_TEXT("the item"));
    if (object->kind == VALUE_UNDEFINED) return refuse_undefined(run, object);
    if (object->kind == VALUE_DICT) {
        value *item;
        TEMPLATE_TRY(value_dict_find(run, object->dict, key, &item));
        if (item != NULL) {
            *out = *item;
            return true;
        }
    }
    if (value_is_whole(key) && value_is_sequence(object)) {
        if (resolve_index(value_as_integer(key), object->list->n, &place))
            *out = object->list->items[place];
        return true;
    }
    if (value_is_whole(key) && object->kind == VALUE_TEXT) {
        const template_text text = object->text;
        TEMPLATE_TRY(template_spend_bytes(run, text.length));
        if (resolve_index(value_as_integer(key), template_text_count(text), &place)) {
            const size_t from = template_text_offset(text, place);
            const template_text rest = {text.data + from, text.length - from};
            *out = value_of_text((template_text){rest.data, template_text_offset(rest, 1)});
        }
        return true;
    }
    return key->kind != VALUE_TEXT || template_attribute(run, object, key->text, out);
}

/* A bound of a slice as Python clips it: to [low, high]. */
static bool clip_bound(template_run *run, const value *bound, int64_t n, int64_t low, int64_t high,
                       int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (bound->kind == VALUE_NONE) return true;
    if (!value_is_whole(bound))
        return template_fail(run, CELLAR_MISMATCH, "%s cannot bound a slice",
                             value_kind_name(bound));
    int64_t at = value_as_integer(bound);
    if (at < 0) at = at < -n ? low : at + n;
    *out = at < low ? low : at > high ? high : at;
    return true;
}

static bool slice_bounds(template_run *run, const value bounds[3], int64_t n, int64_t *start,
                         int64_t *stop, int64_t *step)
{
    *step = value_is_whole(&bounds[2]) ? value_as_integer(&bounds[2]) : 1;
    if (!value_is_whole(&bounds[2]) && bounds[2].kind != VALUE_NONE)
        return template_fail(run, CELLAR_MISMATCH, "%s cannot be a slice's step",
                             value_kind_name(&bounds[2]));
    if (*step == 0) return template_fail(run, CELLAR_MISMATCH, "a slice's step cannot be zero");
    const int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    TEMPLATE_TRY(clip_bound(run, &bounds[0], n, low, high, *step < 0 ? high : low, start));
    return clip_bound(run, &bounds[1], n, low, high, *step < 0 ? low : high, stop);
}

static bool slice_text(template_run *run, template_text text, const value bounds[3], value *out)
{
    const value whole = value_of_text(text);
    const value_list *characters;
    int64_t start, stop, step;
    TEMPLATE_TRY(template_spend_bytes(run, text.length));
    TEMPLATE_TRY(
        slice_bounds(run, bounds, (int64_t)template_text_count(text), &start, &stop, &step));
    if (step == 1) {
        const size_t from = template_text_offset(text, (size_t)start);
        const size_t to = stop > start ? template_text_offset(text, (size_t)stop) : from;
        *out = value_of_text((template_text){text.data + from, to - from});
        return true;
    }
    template_builder builder = {.run = run};
    TEMPLATE_TRY(value_items(run, &whole, &characters));
    while (step > 0 ? start < stop : start > stop) {
        TEMPLATE_TRY(template_builder_add_text(&builder, characters->items[start].text));
        if (__builtin_add_overflow(start, step, &start)) break;
    }
    *out = value_of_text(template_builder_text(&builder));
    return true;
}

bool template_slice(template_run *run, const value *object, const value bounds[3], value *out)
{
    int64_t start, stop, step;
    if (object->kind == VALUE_UNDEFINED) return refuse_undefined(run, object);
    if (object->kind == VALUE_TEXT) return slice_text(run, object->text, bounds, out);
    if (!value_is_sequence(object))
        return template_fail(run, CELLAR_MISMATCH, "%s has no slices", value_kind_name(object));
    TEMPLATE_TRY(slice_bounds(run, bounds, (int64_t)object->list->n, &start, &stop, &step));
    TEMPLATE_TRY(value_make_list(run, object->kind, 0, out));
    while (step > 0 ? start < stop : start > stop) {
        TEMPLATE_TRY(value_append(run, out->list, object->list->items[start]));
        if (__builtin_add_overflow(start, step, &start)) break;
    }
    return true;
}

static bool evaluate_slice(template_run *run, template_scope *scope, const template_node *node,
                           value *out)
{
    value object, bounds[3];
    size_t n = 0;
    TEMPLATE_TRY(template_evaluate(run, scope, node->first, &object));
    for (const template_node *bound = node->items; bound != NULL; bound = bound->next)
        TEMPLATE_TRY(template_evaluate(run, scope, bound, &bounds[n++]));
    run->at = node->offset;
    return template_slice(run, &object, bounds, out);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* `caller`: what {% call %} hands over beside the arguments, or NULL. */
static bool gather_arguments(template_run *run, template_scope *scope, const template_node *items,
                             const value *caller, template_call *call)
{
    size_t n_positional = 0, n_keywords = caller != NULL;
    for (const template_node *one = items; one != NULL; one = one->next)
        *(one->kind == NODE_KEYWORD ? &n_keywords : &n_positional) += 1;
    value *positional = template_take(run, n_positional * sizeof *positional);
    template_keyword *keywords = template_take(run, n_keywords * sizeof *keywords);
    if (positional == NULL || keywords == NULL) return false;
    call->positional = positional;
    call->keywords = keywords;
    for (const template_node *one = items; one != NULL; one = one->next) {
        const bool is_keyword = one->kind == NODE_KEYWORD;
        value *to = is_keyword ? &keywords[call->n_keywords].item : &positional[call->n_positional];
        TEMPLATE_TRY(template_evaluate(run, scope, is_keyword ? one->first : one, to));
        if (is_keyword)
            keywords[call->n_keywords++].name = one->name;
        else
            call->n_positional++;
    }
    if (caller != NULL)
        keywords[call->n_keywords++] = (template_keyword){TEMPLATE_TEXT("caller"), *caller};
    return true;
}

bool template_evaluate_call(template_run *run, template_scope *scope, const template_node *node,
                            const value *caller, value *out)
{
    value callee;
    template_call call = {0};
    TEMPLATE_TRY(template_evaluate(run, scope, node->first, &callee));
    TEMPLATE_TRY(gather_arguments(run, scope, node->items, caller, &call));
    run->at = node->offset;
    if (callee.kind == VALUE_MACRO) return template_call_macro(run, callee.macro, &call, out);
    if (callee.kind == VALUE_FUNCTION) {
        call.self = callee.method->self;
        return template_run_builtin(run, callee.method->builtin, &call, out);
    }
    if (callee.kind == VALUE_UNDEFINED) return refuse_undefined(run, &callee);
    return template_fail(run, CELLAR_MISMATCH, "%s cannot be called", value_kind_name(&callee));
}

static bool evaluate_filter(template_run *run, template_scope *scope, const template_node *node,
                            value *out)
{
    template_call call = {0};
    if (node->first != NULL)
        TEMPLATE_TRY(template_evaluate(run, scope, node->first, &call.self));
    else
        TEMPLATE_TRY(look_up(run, scope, TEMPLATE_TEXT("(captured)"), &call.self));
    TEMPLATE_TRY(gather_arguments(run, scope, node->items, NULL, &call));
    run->at = node->offset;
    return template_run_builtin(run, node->builtin, &call, out);
}

/* ---- operators ------------------------------------------------------------------------------- */

static bool compare(template_run *run, template_operator op, const value *a, const value *b,
                    bool *holds)
{
    int order = 0;
    switch (op) {
    case OP_EQUAL:
    case OP_NOT_EQUAL:
        TEMPLATE_TRY(value_equal(run, a, b, holds));
        if (op == OP_NOT_EQUAL) *holds = !*holds;
        return true;
    case OP_IN:
    case OP_NOT_IN:
        TEMPLATE_TRY(value_contains(run, b, a, holds));
        if (op == OP_NOT_IN) *holds = !*holds;
        return true;
    default:
        break;
    }
    TEMPLATE_TRY(value_compare(run, a, b, &order));
    *holds = op == OP_LESS         ? order < 0
             : op == OP_LESS_EQUAL ? order <= 0
             : op == OP_GREATER    ? order > 0
                                   : order >= 0;
    return true;
}

static bool evaluate_compare(template_run *run, template_scope *scope, const template_node *node,
                             value *out)
{
    value left, right;
    bool holds = true;
    TEMPLATE_TRY(template_evaluate(run, scope, node->first, &left));
    for (const template_node *one = node->items; holds && one != NULL; one = one->next) {
        TEMPLATE_TRY(template_evaluate(run, scope, one->first, &right));
        run->at = one->offset;
        TEMPLATE_TRY(compare(run, one->op, &left, &right, &holds));
        left = right;
    }
    *out = value_of_boolean(holds);
    return true;
}

static bool evaluate_concatenation(template_run *run, template_scope *scope,
                                   const template_node *node, value *out)
{
    value left, right;
    template_text text;
    TEMPLATE_TRY(template_evaluate(run, scope, node->items, &left));
    TEMPLATE_TRY(value_to_text(run, &left, &text));
    left = value_of_text(text);
    for (const template_node *one = node->items->next; one != NULL; one = one->next) {
        TEMPLATE_TRY(template_evaluate(run, scope, one, &right));
        TEMPLATE_TRY(value_to_text(run, &right, &text));
        right = value_of_text(text);
        TEMPLATE_TRY(template_binary(run, OP_ADD, &left, &right, &left));
    }
    *out = left;
    return true;
}

static bool evaluate_unary(template_run *run, template_scope *scope, const template_node *node,
                           value *out)
{
    value operand, negated;
    TEMPLATE_TRY(template_evaluate(run, scope, node->first, &operand));
    run->at = node->offset;
    TEMPLATE_TRY(template_negate(run, &operand, &negated));
    *out = negated;
    if (node->op == OP_PLUS)
        *out = operand.kind == VALUE_BOOLEAN ? value_of_integer(operand.boolean) : operand;
    return true;
}

static bool evaluate_binary(template_run *run, template_scope *scope, const template_node *node,
                            value *out)
{
    value a, b;
    TEMPLATE_TRY(template_evaluate(run, scope, node->first, &a));
    TEMPLATE_TRY(template_evaluate(run, scope, node->second, &b));
    run->at = node->offset;
    return template_binary(run, node->op, &a, &b, out);
}

static bool evaluate_choice(template_run *run, template_scope *scope, const template_node *node,
                            value *out)
{
    if (node->kind == NODE_CONDITIONAL) {
        value condition;
        TEMPLATE_TRY(template_evaluate(run, scope, node->items->next, &condition));
        if (value_is_true(&condition)) return template_evaluate(run, scope, node->items, out);
        *out = value_of_undefined(TEMPLATE_TEXT("the value of an if without else"));
        return node->second == NULL || template_evaluate(run, scope, node->second, out);
    }
    TEMPLATE_TRY(template_evaluate(run, scope, node->first, out));
    if (node->kind == NODE_NOT) {
        *out = value_of_boolean(!value_is_true(out));
        return true;
    }
    if (value_is_true(out) == (node->kind == NODE_OR)) return true;
    return template_evaluate(run, scope, node->second, out);
}

/* ---- literals -------------------------------------------------------------------------------- */

static bool evaluate_items(template_run *run, template_scope *scope, const template_node *node,
                           value *out)
{
    const value_kind kind = node->kind == NODE_TUPLE ? VALUE_TUPLE : VALUE_LIST;
    value list, item;
    TEMPLATE_TRY(value_make_list(run, kind, 0, &list));
    for (const template_node *one = node->items; one != NULL; one = one->next) {
        TEMPLATE_TRY(template_evaluate(run, scope, one, &item));
        TEMPLATE_TRY(value_append(run, list.list, item));
    }
    *out = list;
    return true;
}

static bool evaluate_dict(template_run *run, template_scope *scope, const template_node *node,
                          value *out)
{
    value dict, key, item;
    TEMPLATE_TRY(value_make_dict(run, VALUE_DICT, &dict));
    for (const template_node *pair = node->items; pair != NULL; pair = pair->next) {
        TEMPLATE_TRY(template_evaluate(run, scope, pair->first, &key));
        TEMPLATE_TRY(template_evaluate(run, scope, pair->second, &item));
        run->at = pair->offset;
        TEMPLATE_TRY(value_dict_set(run, dict.dict, key, item));
    }
    *out = dict;
    return true;
}

static bool evaluate_place(template_run *run, template_scope *scope, const template_node *node,
                           value *out)
{
    value object, key;
    TEMPLATE_TRY(template_evaluate(run, scope, node->first, &object));
    if (node->kind == NODE_ATTRIBUTE) {
        run->at = node->offset;
        return template_attribute(run, &object, node->name, out);
    }
    TEMPLATE_TRY(template_evaluate(run, scope, node->second, &key));
    run->at = node->offset;
    return template_item(run, &object, &key, out);
}

static bool evaluate_node(template_run *run, template_scope *scope, const template_node *node,
                          value *out)
{
    switch (node->kind) {
    case NODE_CONSTANT:
        *out = node->constant;
        return true;
    case NODE_NAME:
        return look_up(run, scope, node->name, out);
    case NODE_LIST:
    case NODE_TUPLE:
        return evaluate_items(run, scope, node, out);
    case NODE_DICT:
        return evaluate_dict(run, scope, node, out);
    case NODE_ATTRIBUTE:
    case NODE_ITEM:
        return evaluate_place(run, scope, node, out);
    case NODE_SLICE:
        return evaluate_slice(run, scope, node, out);
    case NODE_CALL:
        return template_evaluate_call(run, scope, node, NULL, out);
    case NODE_FILTER:
    case NODE_TEST:
        return evaluate_filter(run, scope, node, out);
    case NODE_UNARY:
        return evaluate_unary(run, scope, node, out);
    case NODE_BINARY:
        return evaluate_binary(run, scope, node, out);
    case NODE_COMPARE:
        return evaluate_compare(run, scope, node, out);
    case NODE_CONCATENATE:
        return evaluate_concatenation(run, scope, node, out);
    default:
        return evaluate_choice(run, scope, node, out);
    }
}

bool template_evaluate(template_run *run, template_scope *scope, const template_node *node,
                       value *out)
{
    run->at = node->offset;
    TEMPLATE_TRY(template_spend(run, 1));
    TEMPLATE_TRY(template_enter(run));
    const bool is_good = evaluate_node(run, scope, node, out);
    template_leave(run);
    return is_good;
}
