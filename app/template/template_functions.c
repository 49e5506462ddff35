/*
 * template_functions.c: the functions that a template may call by name.
 *
 * range, dict and namespace are Jinja2's; raise_exception and strftime_now are what chat templates expect
 * of whoever renders them. The time is the one that the rendering was given.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "template/template_run.h"

static bool function_range(template_run *run, const template_call *call, value *out)
{
    int64_t bounds[3] = {0, 0, 1};
    for (size_t i = 0; i < 3; i++) {
        const value *bound = &call->bound[i];
        if (bound->kind == VALUE_ABSENT) continue;
        if (!value_is_whole(bound))
            return template_fail(run, CELLAR_MISMATCH, "range counts by whole numbers, not by %s",
                                 value_kind_name(bound));
        bounds[i] = value_as_integer(bound);
    }
    if (call->bound[1].kind == VALUE_ABSENT) {
        bounds[1] = bounds[0];
        bounds[0] = 0;
    }
    if (bounds[2] == 0) return template_fail(run, CELLAR_MISMATCH, "range cannot step by zero");
    TEMPLATE_TRY(value_make_list(run, VALUE_LIST, 0, out));
    for (int64_t at = bounds[0]; bounds[2] > 0 ? at < bounds[1] : at > bounds[1];) {
        TEMPLATE_TRY(value_append(run, out->list, value_of_integer(at)));
        if (__builtin_add_overflow(at, bounds[2], &at)) break;
    }
    return true;
}

static bool make_from_arguments(template_run *run, const template_call *call, value_kind kind,
                                value *out)
{
    TEMPLATE_TRY(value_make_dict(run, kind, out));
    for (size_t i = 0; i < call->n_positional; i++) {
        const value *from = &call->positional[i];
        if (i > 0 || from->kind != VALUE_DICT)
            return template_fail(run, CELLAR_MISMATCH,
                                 "this is made of one dictionary and named arguments");
        for (size_t pair = 0; pair < from->dict->n; pair++)
            TEMPLATE_TRY(value_dict_set(run, out->dict, from->dict->pairs[pair].key,
                                        from->dict->pairs[pair].item));
    }
    for (size_t i = 0; i < call->n_keywords; i++)
        TEMPLATE_TRY(value_dict_set(run, out->dict, value_of_text(call->keywords[i].name),
                                    call->keywords[i].item));
    return true;
}

static bool function_namespace(template_run *run, const template_call *call, value *out)
{
    return make_from_arguments(run, call, VALUE_NAMESPACE, out);
}

static bool function_dict(template_run *run, const template_call *call, value *out)
{
    return make_from_arguments(run, call, VALUE_DICT, out);
}

static bool function_raise_exception(template_run *run, const template_call *call, value *out)
{
    template_text message;
    (void)out;
    TEMPLATE_TRY(value_to_text(run, &call->bound[0], &message));
    return template_fail(run, CELLAR_INVALID, "the template refuses this conversation: %.*s",
                         (int)(message.length < 200 ? message.length : 200),
                         message.length > 0 ? message.data : "");
}

/* One conversion of strftime at a time, and only those whose length is bounded. */
static bool function_strftime_now(template_run *run, const template_call *call, value *out)
{
    if (call->bound[0].kind != VALUE_TEXT)
        return template_fail(run, CELLAR_MISMATCH, "strftime_now takes a text");
    const template_text format = call->bound[0].text;
    const time_t now = (time_t)run->now;
    struct tm parts;
    if (localtime_r(&now, &parts) == NULL)
        return template_fail(run, CELLAR_MISMATCH, "the time given is no date");
    template_builder builder = {.run = run};
    for (size_t i = 0; i < format.length; i++) {
        if (format.data[i] != '%' || i + 1 == format.length) {
            TEMPLATE_TRY(template_builder_add_character(&builder, format.data[i]));
            continue;
        }
        char text[128], one[4] = {'%', format.data[++i], '\0'};
        if (one[1] == '-' && i + 1 < format.length) one[2] = format.data[++i]; /* no zero before */
        const char letter = one[2] != '\0' ? one[2] : one[1];
        if (letter == '\0' || strchr("aAbBcdeHIjklmMpSuUVwWxXyYzZDFTRGhnt%", letter) == NULL)
            return template_fail(run, CELLAR_UNSUPPORTED, "strftime_now knows no %%%c", letter);
        const size_t length = strftime(text, sizeof text, one, &parts);
        TEMPLATE_TRY(template_builder_add(&builder, text, length));
    }
    *out = value_of_text(template_builder_text(&builder));
    return true;
}

static const template_builtin functions[] = {
    {"range", function_range, "start stop? step?"},
    {"namespace", function_namespace, NULL},
    {"dict", function_dict, NULL},
    {"raise_exception", function_raise_exception, "message"},
    {"strftime_now", function_strftime_now, "format"},
    {NULL, NULL, NULL},
};

const template_builtin *template_function_find(template_text name)
{
    return template_find_builtin(functions, name);
}
