/*
 * unit_template.c: chat templates against what Jinja2 itself makes of them.
 *
 * tests/data/templates holds templates of the formats in common use, each with conversations and the
 * prompts that Jinja2 gave for them, and expressions.json with small templates for one construct each. They
 * were written by expected.py there. An error of Jinja2 must be an error here; the words are our own,
 * except those of raise_exception.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "template/chat_template.h"

#define FOLDER "tests/data/templates/"

enum { NOW = 1750000000 };

static json_t *load_cases(const char *name)
{
    char path[128];
    json_error_t why;
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    json_t *cases = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (cases == NULL) fail_msg("%s: %s", path, why.text);
    return cases;
}

static char *load_template(const char *name)
{
    static char text[16384];
    char path[128];
    snprintf(path, sizeof path, FOLDER "%s.jinja", name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s cannot be read", path);
    const size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_true(n > 0 && n < sizeof text - 1);
    text[n] = '\0';
    return text;
}

/* Compile and render; the text, or NULL with the error. */
static char *run(const char *text, size_t length, const json_t *given, cellar_error *error)
{
    const chat_template_input input = {
        .messages = json_object_get(given, "messages"),
        .tools = json_object_get(given, "tools"),
        .variables = json_object_get(given, "variables"),
        .bos_token = "<s>",
        .eos_token = "</s>",
        .add_generation_prompt = json_is_true(json_object_get(given, "add_generation_prompt")),
        .now = NOW};
    chat_template *compiled;
    char *out = NULL;
    size_t n = 0;
    memset(error, 0, sizeof *error);
    if (chat_template_compile(text, length, NULL, &compiled, error) == CELLAR_OK)
        chat_template_render(compiled, &input, &out, &n, error);
    chat_template_destroy(compiled);
    if (out != NULL) assert_int_equal(strlen(out), n);
    return out;
}

/* `given` has what Jinja2 made of it: "text", "refusal" (its words) or "error". */
static void check(const char *what, const char *about, char *text, const cellar_error *error,
                  const json_t *given)
{
    const char *expected = json_string_value(json_object_get(given, "text"));
    const char *refusal = json_string_value(json_object_get(given, "refusal"));
    if (expected != NULL && (text == NULL || strcmp(text, expected) != 0))
        fail_msg("%s, %s:\n%s\nexpected:\n%s", what, about, text != NULL ? text : error->message,
                 expected);
    if (expected == NULL && text != NULL)
        fail_msg("%s, %s: an error was expected, not:\n%s", what, about, text);
    if (expected == NULL) assert_non_null(strstr(error->message, "chat template, line "));
    if (refusal != NULL) {
        assert_int_equal(error->status, CELLAR_INVALID);
        if (strstr(error->message, refusal) == NULL)
            fail_msg("%s, %s: \"%s\" does not say \"%s\"", what, about, error->message, refusal);
    } else if (expected == NULL) {
        assert_true(error->status == CELLAR_CORRUPT || error->status == CELLAR_UNSUPPORTED ||
                    error->status == CELLAR_MISMATCH);
    }
    free(text);
}

static void check_format(const char *name)
{
    json_t *cases = load_cases(name);
    const char *text = load_template(name);
    assert_true(json_array_size(cases) >= 10);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *given = json_array_get(cases, i);
        cellar_error error;
        char *out = run(text, strlen(text), given, &error);
        check(name, json_string_value(json_object_get(given, "about")), out, &error, given);
    }
    json_decref(cases);
}

#define FORMAT_TEST(name)                                                                          \
    static void prompts_of_##name(void **state)                                                    \
    {                                                                                              \
        (void)state;                                                                               \
        check_format(#name);                                                                       \
    }

FORMAT_TEST(chatml)
FORMAT_TEST(command_r)
FORMAT_TEST(deepseek2)
FORMAT_TEST(deepseek_r1)
FORMAT_TEST(gemma)
FORMAT_TEST(gemma3)
FORMAT_TEST(granite)
FORMAT_TEST(llama2)
FORMAT_TEST(llama3)
FORMAT_TEST(mistral)
FORMAT_TEST(mistral_nemo)
FORMAT_TEST(phi3)
FORMAT_TEST(phi4)
FORMAT_TEST(qwen3)

static void every_construct_means_what_it_means_to_jinja(void **state)
{
    (void)state;
    json_t *cases = load_cases("expressions");
    const json_t *variables = json_object_get(json_array_get(cases, 0), "variables");
    assert_true(json_is_object(variables));
    for (size_t i = 1; i < json_array_size(cases); i++) {
        const json_t *given = json_array_get(cases, i);
        const json_t *source = json_object_get(given, "template");
        json_t *input = json_pack("{s:O}", "variables", variables);
        cellar_error error;
        char *out = run(json_string_value(source), json_string_length(source), input, &error);
        check("expressions", json_string_value(source), out, &error, given);
        json_decref(input);
    }
    assert_true(json_array_size(cases) > 100);
    json_decref(cases);
}

static void lists_can_grow(void **state)
{
    (void)state;
    static const char text[] =
        "{% set q = [1] %}{% do q.append('b') %}{% for x in q %}{% if loop.first %}"
        "{{ q.append(x) or '' }}{% endif %}{{ x }}{% endfor %}{{ q }}{% set p = (1,) %}";
    cellar_error error;
    char *out = run(text, sizeof text - 1, NULL, &error);
    assert_non_null(out);
    assert_string_equal(out, "1b[1, 'b', 1]");
    free(out);
}

static void line_ends_of_all_systems_are_one(void **state)
{
    (void)state;
    static const char text[] = "a\r\n{% if true %}\r\nb\r{% endif %}\r\nc\r\n";
    cellar_error error;
    char *out = run(text, sizeof text - 1, NULL, &error);
    assert_non_null(out);
    assert_string_equal(out, "a\nb\nc");
    free(out);
}

static void one_template_serves_many_renderings(void **state)
{
    (void)state;
    static const char text[] =
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% set messages = [] %}{% endfor %}{{ ns.n }}{{ messages|length }}";
    chat_template *compiled;
    assert_int_equal(chat_template_compile(text, sizeof text - 1, NULL, &compiled, NULL),
                     CELLAR_OK);
    json_t *messages = json_pack("[{s:s}, {s:s}]", "role", "user", "role", "assistant");
    for (int i = 0; i < 3; i++) {
        char *out;
        size_t n;
        const chat_template_input input = {.messages = messages};
        assert_int_equal(chat_template_render(compiled, &input, &out, &n, NULL), CELLAR_OK);
        assert_string_equal(out, "22");
        free(out);
    }
    json_decref(messages);
    chat_template_destroy(compiled);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_of_chatml),
        cmocka_unit_test(prompts_of_command_r),
        cmocka_unit_test(prompts_of_deepseek2),
        cmocka_unit_test(prompts_of_deepseek_r1),
        cmocka_unit_test(prompts_of_gemma),
        cmocka_unit_test(prompts_of_gemma3),
        cmocka_unit_test(prompts_of_granite),
        cmocka_unit_test(prompts_of_llama2),
        cmocka_unit_test(prompts_of_llama3),
        cmocka_unit_test(prompts_of_mistral),
        cmocka_unit_test(prompts_of_mistral_nemo),
        cmocka_unit_test(prompts_of_phi3),
        cmocka_unit_test(prompts_of_phi4),
        cmocka_unit_test(prompts_of_qwen3),
        cmocka_unit_test(every_construct_means_what_it_means_to_jinja),
        cmocka_unit_test(lists_can_grow),
        cmocka_unit_test(line_ends_of_all_systems_are_one),
        cmocka_unit_test(one_template_serves_many_renderings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
