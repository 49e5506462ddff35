/*
 * chat_template.c: compile a chat template, and render with it.
 *
 * Compiling copies the text with its line ends made \n (and the last one dropped, as Jinja2 does), cuts it
 * into tokens and makes a tree. Rendering makes a scope of the caller's variables, runs the tree over it
 * and hands the output over; everything else of the run is freed with its arena, however it ended.
 */
#include "template/chat_template.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report.h"
#include "safe_text.h"
#include "template/template_input.h"
#include "template/template_run.h"

struct chat_template {
    template_program program;
    chat_template_limits limits;
};

chat_template_limits chat_template_default_limits(void)
{
    return (chat_template_limits){.template_bytes = 256u << 10,
                                  .output_bytes = 64u << 20,
                                  .memory_bytes = 256u << 20,
                                  .steps = 20000000,
                                  .depth = 200};
}

/* ---- compiling ------------------------------------------------------------------------------- */

void template_place(template_text source, size_t offset, size_t *line, size_t *column)
{
    *line = 1;
    size_t begin = 0;
    for (size_t i = 0; i < offset && i < source.length; i++) {
        if (source.data[i] != '\n') continue;
        ++*line;
        begin = i + 1;
    }
    const size_t end = offset < source.length ? offset : source.length;
    *column = 1 + template_text_count((template_text){source.data + begin, end - begin});
}

bool template_syntax_fail(template_compiler *compiler, cellar_status status, uint32_t offset,
                          const char *format, ...)
{
    if (compiler->status != CELLAR_OK) return false;
    char what[sizeof compiler->error->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    size_t line, column;
    template_place(compiler->program->source, offset, &line, &column);
    compiler->status = report(compiler->error, status, offset,
                              "chat template, line %zu, column %zu: %s", line, column, what);
    return false;
}

void *template_syntax_take(template_compiler *compiler, size_t size)
{
    template_arena *arena = &compiler->program->arena;
    const uint32_t offset = compiler->n_tokens > 0 ? template_peek(compiler, 0)->offset : 0;
    void *piece = template_arena_take(arena, size);
    if (piece != NULL) return piece;
    if (arena->is_over_limit)
        template_syntax_fail(compiler, CELLAR_UNSUPPORTED, offset,
                             "its compiled form takes more than %zu bytes",
                             compiler->limits->memory_bytes);
    else
        template_syntax_fail(compiler, CELLAR_NO_MEMORY, offset, "no memory for %zu bytes", size);
    return NULL;
}

/* Copy the text with its line ends as \n, and without the last one. */
static bool copy_source(template_compiler *compiler, const char *text, size_t length)
{
    char *copy = template_syntax_take(compiler, length + 1);
    if (copy == NULL) return false;
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\r' && i + 1 < length && text[i + 1] == '\n') continue;
        copy[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    compiler->program->source = (template_text){copy, n};
    for (size_t at = 0, used; at < n; at += used)
        if (safe_text_decode(copy + at, n - at, &used) == SAFE_TEXT_INVALID)
            return template_syntax_fail(compiler, CELLAR_CORRUPT, (uint32_t)at,
                                        "these bytes are not UTF-8");
    return true;
}

cellar_status chat_template_compile(const char *text, size_t length,
                                    const chat_template_limits *limits, chat_template **out,
                                    cellar_error *error)
{
    *out = NULL;
    const chat_template_limits chosen = limits != NULL ? *limits : chat_template_default_limits();
    if (length > chosen.template_bytes || length > UINT32_MAX / 2)
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "the chat template has %zu bytes; at most %zu are read", length,
                      chosen.template_bytes);
    chat_template *compiled = calloc(1, sizeof *compiled);
    if (compiled == NULL) return report(error, CELLAR_NO_MEMORY, -1, "no memory for a template");
    compiled->limits = chosen;
    compiled->program.source = TEMPLATE_TEXT("");
    compiled->program.arena.limit = chosen.memory_bytes;
    template_compiler compiler = {
        .program = &compiled->program, .limits = &compiled->limits, .error = error};
    const bool is_good = copy_source(&compiler, text, length) && template_lex(&compiler) &&
                         template_parse(&compiler);
    free(compiler.tokens);
    if (!is_good) {
        chat_template_destroy(compiled);
        return compiler.status;
    }
    *out = compiled;
    return CELLAR_OK;
}

void chat_template_destroy(chat_template *compiled)
{
    if (compiled == NULL) return;
    template_arena_free(&compiled->program.arena);
    free(compiled);
}

/* ---- rendering ------------------------------------------------------------------------------- */

static bool set_json(template_run *run, template_text name, const json_t *json)
{
    value converted;
    TEMPLATE_TRY(template_from_json(run, json, &converted));
    return template_scope_set(run, run->globals, name, converted);
}

static bool set_token(template_run *run, template_text name, const char *token)
{
    if (token == NULL) return true;
    const template_text text = {token, strlen(token)};
    return template_scope_set(run, run->globals, name, value_of_text(text));
}

static bool set_variables(template_run *run, const chat_template_input *input)
{
    const char *name;
    json_t *item;
    run->globals = template_scope_open(run, NULL);
    if (run->globals == NULL) return false;
    TEMPLATE_TRY(set_json(run, TEMPLATE_TEXT("messages"), input->messages));
    TEMPLATE_TRY(set_json(run, TEMPLATE_TEXT("tools"), input->tools));
    TEMPLATE_TRY(set_json(run, TEMPLATE_TEXT("documents"), NULL));
    TEMPLATE_TRY(template_scope_set(run, run->globals, TEMPLATE_TEXT("add_generation_prompt"),
                                    value_of_boolean(input->add_generation_prompt)));
    TEMPLATE_TRY(set_token(run, TEMPLATE_TEXT("bos_token"), input->bos_token));
    TEMPLATE_TRY(set_token(run, TEMPLATE_TEXT("eos_token"), input->eos_token));
    json_object_foreach((json_t *)(uintptr_t)input->variables, name, item)
        TEMPLATE_TRY(set_json(run, (template_text){name, strlen(name)}, item));
    return true;
}

static bool render(template_run *run, const chat_template_input *input)
{
    TEMPLATE_TRY(set_variables(run, input));
    template_scope *scope = template_scope_open(run, run->globals);
    template_flow flow = FLOW_NEXT;
    if (scope == NULL) return false;
    TEMPLATE_TRY(template_execute(run, scope, run->program->statements, &flow));
    return template_output(run, TEMPLATE_TEXT("")); /* so that there is a buffer */
}

cellar_status chat_template_render(const chat_template *compiled, const chat_template_input *input,
                                   char **text, size_t *length, cellar_error *error)
{
    *text = NULL;
    *length = 0;
    template_run run = {.program = &compiled->program,
                        .limits = &compiled->limits,
                        .arena = {.limit = compiled->limits.memory_bytes},
                        .now = input->now != 0 ? input->now : (int64_t)time(NULL),
                        .error = error};
    if (render(&run, input)) {
        run.output[run.output_length] = '\0';
        *text = run.output;
        *length = run.output_length;
    } else {
        free(run.output);
    }
    template_arena_free(&run.arena);
    return run.status;
}
