/*
 * template_run.c: the statements of a template, executed; and the bounds of a run.
 *
 * Output goes to one buffer. What is captured (a macro, a block that is set) is written behind the output
 * so far and then taken off again, so that one bound counts for all. A loop's turn has a scope of its own:
 * what is set in it is gone with it; the branch of an `if` has not.
 */
#include "template/template_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

/* ---- bounds ---------------------------------------------------------------------------------- */

bool template_fail(template_run *run, cellar_status status, const char *format, ...)
{
    if (run->status != CELLAR_OK) return false;
    char what[sizeof run->error->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    size_t line, column;
    template_place(run->program->source, run->at, &line, &column);
    run->status = report(run->error, status, run->at, "chat template, line %zu, column %zu: %s",
                         line, column, what);
    return false;
}

bool template_spend(template_run *run, uint64_t steps)
{
    run->steps += steps;
    if (run->steps <= run->limits->steps) return true;
    return template_fail(run, CELLAR_UNSUPPORTED,
                         "it takes more than %llu steps; shorten the conversation or use a simpler "
                         "template",
                         (unsigned long long)run->limits->steps);
}

bool template_spend_bytes(template_run *run, size_t n)
{
    return template_spend(run, n / 64);
}

void *template_take(template_run *run, size_t size)
{
    void *piece = template_arena_take(&run->arena, size);
    if (piece != NULL) return piece;
    if (run->arena.is_over_limit)
        template_fail(run, CELLAR_UNSUPPORTED,
                      "its values take more than %zu bytes; shorten the conversation or use a "
                      "simpler template",
                      run->limits->memory_bytes);
    else
        template_fail(run, CELLAR_NO_MEMORY, "no memory for %zu bytes of values", size);
    return NULL;
}

bool template_enter(template_run *run)
{
    if (run->depth < run->limits->depth) {
        run->depth++;
        return true;
    }
    return template_fail(run, CELLAR_UNSUPPORTED,
                         "it nests deeper than %u levels; look for a macro that calls itself",
                         (unsigned)run->limits->depth);
}

void template_leave(template_run *run)
{
    run->depth--;
}

/* ---- output ---------------------------------------------------------------------------------- */

bool template_output(template_run *run, template_text text)
{
    TEMPLATE_TRY(template_spend_bytes(run, text.length));
    if (text.length > run->limits->output_bytes - run->output_length)
        return template_fail(run, CELLAR_UNSUPPORTED,
                             "it writes more than %zu bytes; shorten the conversation",
                             run->limits->output_bytes);
    if (text.length > run->output_capacity - run->output_length || run->output == NULL) {
        const size_t capacity = 2 * run->output_length + text.length + 256;
        char *output = realloc(run->output, capacity + 1); /* a NUL in the end */
        if (output == NULL)
            return template_fail(run, CELLAR_NO_MEMORY, "no memory for %zu bytes of output",
                                 capacity);
        run->output = output;
        run->output_capacity = capacity;
    }
    if (text.length > 0) memcpy(run->output + run->output_length, text.data, text.length);
    run->output_length += text.length;
    return true;
}

bool template_output_value(template_run *run, const value *v)
{
    template_text text;
    TEMPLATE_TRY(value_to_text(run, v, &text));
    return template_output(run, text);
}

/* ---- scopes ---------------------------------------------------------------------------------- */

template_scope *template_scope_open(template_run *run, template_scope *outer)
{
    template_scope *scope = template_take(run, sizeof *scope);
    if (scope != NULL) *scope = (template_scope){.outer = outer};
    return scope;
}

bool template_scope_set(template_run *run, template_scope *scope, template_text name, value item)
{
    for (template_variable *v = scope->variables; v != NULL; v = v->next) {
        TEMPLATE_TRY(template_spend(run, 1));
        if (!template_text_equal(v->name, name)) continue;
        v->item = item;
        return true;
    }
    template_variable *variable = template_take(run, sizeof *variable);
    if (variable == NULL) return false;
    *variable = (template_variable){scope->variables, name, item};
    scope->variables = variable;
    return true;
}

static bool assign_attribute(template_run *run, template_scope *scope, const template_node *target,
                             value item)
{
    value object;
    TEMPLATE_TRY(template_evaluate(run, scope, target->first, &object));
    run->at = target->offset;
    if (object.kind != VALUE_NAMESPACE)
        return template_fail(run, CELLAR_MISMATCH,
                             "attributes can be set of a namespace() only, not of %s",
                             value_kind_name(&object));
    return value_dict_set(run, object.dict, value_of_text(target->name), item);
}

bool template_assign(template_run *run, template_scope *scope, const template_node *target,
                     value item)
{
    if (target->kind == NODE_NAME) return template_scope_set(run, scope, target->name, item);
    if (target->kind == NODE_ATTRIBUTE) return assign_attribute(run, scope, target, item);
    const value_list *items;
    run->at = target->offset;
    TEMPLATE_TRY(value_items(run, &item, &items));
    size_t n = 0;
    for (const template_node *one = target->items; one != NULL; one = one->next)
        n++;
    if (n != items->n)
        return template_fail(run, CELLAR_MISMATCH, "%zu values for %zu names", items->n, n);
    n = 0;
    for (const template_node *one = target->items; one != NULL; one = one->next)
        TEMPLATE_TRY(template_assign(run, scope, one, items->items[n++]));
    return true;
}

/* ---- statements ------------------------------------------------------------------------------ */

bool template_capture(template_run *run, template_scope *scope, const template_node *statements,
                      template_text *text)
{
    const size_t before = run->output_length;
    template_flow flow = FLOW_NEXT;
    TEMPLATE_TRY(template_execute(run, scope, statements, &flow));
    const size_t length = run->output_length - before;
    *text = (template_text){"", length};
    if (length > 0) {
        TEMPLATE_TRY(template_spend_bytes(run, length));
        char *copy = template_take(run, length);
        if (copy == NULL) return false;
        memcpy(copy, run->output + before, length);
        text->data = copy;
    }
    run->output_length = before;
    return true;
}

static bool execute_if(template_run *run, template_scope *scope, const template_node *node,
                       template_flow *flow)
{
    for (const template_node *branch = node->items; branch != NULL; branch = branch->next) {
        value condition;
        TEMPLATE_TRY(template_evaluate(run, scope, branch->first, &condition));
        if (value_is_true(&condition)) return template_execute(run, scope, branch->body, flow);
    }
    return template_execute(run, scope, node->otherwise, flow);
}

/* The items that pass the filter of a loop. */
static bool filter_items(template_run *run, template_scope *scope, const template_node *node,
                         const value_list **items)
{
    value passed;
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, 0, &passed));
    for (size_t i = 0; i < (*items)->n; i++) {
        template_scope *turn = template_scope_open(run, scope);
        value condition;
        if (turn == NULL) return false;
        TEMPLATE_TRY(template_assign(run, turn, node->first, (*items)->items[i]));
        TEMPLATE_TRY(template_evaluate(run, turn, node->items, &condition));
        if (value_is_true(&condition))
            TEMPLATE_TRY(value_append(run, passed.list, (*items)->items[i]));
    }
    *items = passed.list;
    return true;
}

/* *was_whole becomes true if a turn was not left by break or continue. */
static bool execute_turns(template_run *run, template_scope *scope, const template_node *node,
                          template_loop *loop, bool *was_whole)
{
    for (size_t i = 0; i < loop->items->n; i++) {
        loop->at = i;
        template_scope *turn = template_scope_open(run, scope);
        if (turn == NULL) return false;
        const value itself = {.kind = VALUE_LOOP, .loop = loop};
        TEMPLATE_TRY(template_scope_set(run, turn, TEMPLATE_TEXT("loop"), itself));
        TEMPLATE_TRY(template_assign(run, turn, node->first, loop->items->items[i]));
        template_flow flow = FLOW_NEXT;
        TEMPLATE_TRY(template_execute(run, turn, node->body, &flow));
        if (flow == FLOW_BREAK) break;
        if (flow == FLOW_NEXT) *was_whole = true;
    }
    return true;
}

static bool execute_for(template_run *run, template_scope *scope, const template_node *node,
                        template_flow *flow)
{
    value over;
    const value_list *items;
    TEMPLATE_TRY(template_evaluate(run, scope, node->second, &over));
    run->at = node->second->offset;
    TEMPLATE_TRY(value_items(run, &over, &items));
    if (node->items != NULL) TEMPLATE_TRY(filter_items(run, scope, node, &items));
    template_loop *loop = template_take(run, sizeof *loop);
    value_list *fixed = template_take(run, sizeof *fixed);
    if (loop == NULL || fixed == NULL) return false;
    *fixed = *items; /* a list that grows meanwhile is walked as it was */
    *loop = (template_loop){.items = fixed};
    bool was_whole = false;
    TEMPLATE_TRY(execute_turns(run, scope, node, loop, &was_whole));
    /* as in Jinja2, a loop of which no turn came to its end has had none */
    return was_whole || template_execute(run, scope, node->otherwise, flow);
}

/* Send a captured text through the filters of its block. */
static bool filter_captured(template_run *run, template_scope *scope, const template_node *filters,
                            template_text text, value *out)
{
    *out = value_of_text(text);
    if (filters == NULL) return true;
    template_scope *inner = template_scope_open(run, scope);
    if (inner == NULL) return false;
    /* the innermost filter has no subject: it takes this name, which no template can write */
    TEMPLATE_TRY(template_scope_set(run, inner, TEMPLATE_TEXT("(captured)"), *out));
    return template_evaluate(run, inner, filters, out);
}

static bool execute_block(template_run *run, template_scope *scope, const template_node *node)
{
    template_scope *inner = template_scope_open(run, scope);
    template_text text;
    value filtered;
    if (inner == NULL) return false;
    TEMPLATE_TRY(template_capture(run, inner, node->body, &text));
    TEMPLATE_TRY(filter_captured(run, scope, node->second, text, &filtered));
    if (node->kind == NODE_SET_BLOCK) return template_assign(run, scope, node->first, filtered);
    return template_output_value(run, &filtered);
}

static bool define_macro(template_run *run, template_scope *scope, const template_node *node,
                         value *out)
{
    template_macro *macro = template_take(run, sizeof *macro);
    if (macro == NULL) return false;
    *macro = (template_macro){node, scope};
    *out = (value){.kind = VALUE_MACRO, .macro = macro};
    return true;
}

static bool execute_call_block(template_run *run, template_scope *scope, const template_node *node)
{
    value caller, result;
    TEMPLATE_TRY(define_macro(run, scope, node->second, &caller));
    TEMPLATE_TRY(template_evaluate_call(run, scope, node->first, &caller, &result));
    return template_output_value(run, &result);
}

static bool execute_scope(template_run *run, template_scope *scope, const template_node *node,
                          template_flow *flow)
{
    template_scope *inner = template_scope_open(run, scope);
    if (inner == NULL) return false;
    for (const template_node *one = node->items; one != NULL; one = one->next) {
        value item;
        TEMPLATE_TRY(template_evaluate(run, scope, one->first, &item));
        TEMPLATE_TRY(template_scope_set(run, inner, one->name, item));
    }
    return template_execute(run, inner, node->body, flow);
}

static bool execute_one(template_run *run, template_scope *scope, const template_node *node,
                        template_flow *flow)
{
    value result;
    switch (node->kind) {
    case NODE_TEXT:
        return template_output(run, node->name);
    case NODE_PRINT:
        TEMPLATE_TRY(template_evaluate(run, scope, node->first, &result));
        run->at = node->offset;
        return template_output_value(run, &result);
    case NODE_IF:
        return execute_if(run, scope, node, flow);
    case NODE_FOR:
        return execute_for(run, scope, node, flow);
    case NODE_SET:
        TEMPLATE_TRY(template_evaluate(run, scope, node->second, &result));
        return template_assign(run, scope, node->first, result);
    case NODE_SET_BLOCK:
    case NODE_FILTER_BLOCK:
        return execute_block(run, scope, node);
    case NODE_MACRO:
        TEMPLATE_TRY(define_macro(run, scope, node, &result));
        return template_scope_set(run, scope, node->name, result);
    case NODE_CALL_BLOCK:
        return execute_call_block(run, scope, node);
    case NODE_SCOPE:
        return execute_scope(run, scope, node, flow);
    case NODE_DO:
        return template_evaluate(run, scope, node->first, &result);
    default:
        *flow = node->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        return true;
    }
}

bool template_execute(template_run *run, template_scope *scope, const template_node *statements,
                      template_flow *flow)
{
    TEMPLATE_TRY(template_enter(run));
    for (const template_node *node = statements; node != NULL; node = node->next) {
        run->at = node->offset;
        TEMPLATE_TRY(template_spend(run, 1));
        TEMPLATE_TRY(execute_one(run, scope, node, flow));
        if (*flow != FLOW_NEXT) break;
    }
    template_leave(run);
    return true;
}
