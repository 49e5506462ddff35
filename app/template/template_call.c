/*
 * template_call.c: calling macros and what is built in.
 *
 * Arguments go to parameters first by place, then by name. Too many, unknown or missing ones are errors for
 * what is built in; a macro's parameter that gets nothing has its default, or is undefined.
 */
#include <string.h>

#include "template/template_run.h"

/* ---- builtins -------------------------------------------------------------------------------- */

const template_builtin *template_find_builtin(const template_builtin *table, template_text name)
{
    for (; table->name != NULL; table++)
        if (template_text_equal(name, (template_text){table->name, strlen(table->name)}))
            return table;
    return NULL;
}

static bool bind_keyword(template_run *run, const template_builtin *builtin, template_call *call,
                         const template_keyword *keyword)
{
    size_t index = 0;
    for (const char *at = builtin->parameters; *at != '\0'; index++) {
        const size_t length = strcspn(at, " ?");
        if (template_text_equal(keyword->name, (template_text){at, length})) {
            if (call->bound[index].kind != VALUE_ABSENT) break;
            call->bound[index] = keyword->item;
            return true;
        }
        at += length;
        at += strspn(at, " ?");
    }
    return template_fail(run, CELLAR_MISMATCH, "%s takes no argument '%.*s' here", builtin->name,
                         (int)keyword->name.length, keyword->name.data);
}

static bool check_bound(template_run *run, const template_builtin *builtin,
                        const template_call *call)
{
    size_t index = 0;
    for (const char *at = builtin->parameters; *at != '\0'; index++) {
        const size_t length = strcspn(at, " ?");
        if (at[length] != '?' && call->bound[index].kind == VALUE_ABSENT)
            return template_fail(run, CELLAR_MISMATCH, "%s needs the argument '%.*s'",
                                 builtin->name, (int)length, at);
        at += length;
        at += strspn(at, " ?");
    }
    return true;
}

static size_t count_parameters(const char *parameters)
{
    size_t n = parameters[0] != '\0';
    for (; *parameters != '\0'; parameters++)
        n += *parameters == ' ';
    return n;
}

bool template_run_builtin(template_run *run, const template_builtin *builtin, template_call *call,
                          value *out)
{
    if (builtin->parameters != NULL) {
        if (call->n_positional > count_parameters(builtin->parameters))
            return template_fail(run, CELLAR_MISMATCH, "%s takes %zu arguments, not %zu",
                                 builtin->name, count_parameters(builtin->parameters),
                                 call->n_positional);
        for (size_t i = 0; i < call->n_positional; i++)
            call->bound[i] = call->positional[i];
        for (size_t i = 0; i < call->n_keywords; i++)
            TEMPLATE_TRY(bind_keyword(run, builtin, call, &call->keywords[i]));
        TEMPLATE_TRY(check_bound(run, builtin, call));
    }
    return builtin->run(run, call, out);
}

/* ---- macros ---------------------------------------------------------------------------------- */

static bool has_parameter(const template_macro *macro, template_text name)
{
    if (template_text_equal(name, TEMPLATE_TEXT("caller"))) return true;
    for (const template_node *one = macro->node->items; one != NULL; one = one->next)
        if (template_text_equal(one->name, name)) return true;
    return false;
}

/* What a parameter gets: VALUE_ABSENT: nothing was given. */
static bool find_argument(template_run *run, const template_call *call, size_t index,
                          template_text name, value *out)
{
    *out = (value){.kind = VALUE_ABSENT};
    if (index < call->n_positional) *out = call->positional[index];
    for (size_t i = 0; i < call->n_keywords; i++) {
        TEMPLATE_TRY(template_spend(run, 1));
        if (!template_text_equal(call->keywords[i].name, name)) continue;
        if (out->kind != VALUE_ABSENT)
            return template_fail(run, CELLAR_MISMATCH, "the argument '%.*s' is given twice",
                                 (int)name.length, name.data);
        *out = call->keywords[i].item;
    }
    return true;
}

bool template_call_macro(template_run *run, const template_macro *macro, const template_call *call,
                         value *out)
{
    template_scope *scope = template_scope_open(run, macro->scope);
    if (scope == NULL) return false;
    size_t index = 0;
    value given;
    for (const template_node *one = macro->node->items; one != NULL; one = one->next, index++) {
        TEMPLATE_TRY(find_argument(run, call, index, one->name, &given));
        if (given.kind == VALUE_ABSENT) {
            given = value_of_undefined(one->name);
            if (one->first != NULL) TEMPLATE_TRY(template_evaluate(run, scope, one->first, &given));
        }
        TEMPLATE_TRY(template_scope_set(run, scope, one->name, given));
    }
    if (call->n_positional > index)
        return template_fail(run, CELLAR_MISMATCH, "the macro takes %zu arguments, not %zu", index,
                             call->n_positional);
    for (size_t i = 0; i < call->n_keywords; i++)
        if (!has_parameter(macro, call->keywords[i].name))
            return template_fail(run, CELLAR_MISMATCH, "the macro takes no argument '%.*s'",
                                 (int)call->keywords[i].name.length, call->keywords[i].name.data);
    TEMPLATE_TRY(find_argument(run, call, SIZE_MAX, TEMPLATE_TEXT("caller"), &given));
    if (given.kind != VALUE_ABSENT)
        TEMPLATE_TRY(template_scope_set(run, scope, TEMPLATE_TEXT("caller"), given));
    template_text text;
    TEMPLATE_TRY(template_capture(run, scope, macro->node->body, &text));
    *out = value_of_text(text);
    return true;
}
