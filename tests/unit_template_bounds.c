/*
 * unit_template_bounds.c: templates that are refused, and how.
 *
 * A template is a stranger's program. Each bound of chat_template.h is met here by one that would use more,
 * and each kind of error by one that makes it, with status, line and column. Nothing may be left behind: the
 * sanitizers watch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template/chat_template.h"

/* Expect `status` and words of the message, from compiling or rendering within the limits. */
static void assert_refused(const char *text, const chat_template_limits *limits,
                           const json_t *messages, cellar_status status, const char *words)
{
    chat_template *compiled;
    cellar_error error = {0};
    char *out = NULL;
    size_t n;
    cellar_status got = chat_template_compile(text, strlen(text), limits, &compiled, &error);
    assert_true((got == CELLAR_OK) == (compiled != NULL));
    if (got == CELLAR_OK) {
        const chat_template_input input = {.messages = messages};
        got = chat_template_render(compiled, &input, &out, &n, &error);
        assert_null(got == CELLAR_OK ? NULL : out);
    }
    chat_template_destroy(compiled);
    if (got != status || strstr(error.message, words) == NULL)
        fail_msg("%.80s: status %d, \"%s\"; expected %d, \"%s\"", text, (int)got, error.message,
                 (int)status, words);
    assert_int_equal(error.status, status);
    free(out);
}

static char *repeat(const char *part, size_t times)
{
    const size_t length = strlen(part);
    char *text = malloc(length * times + 1);
    assert_non_null(text);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * length, part, length);
    text[length * times] = '\0';
    return text;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void a_long_template_is_refused(void **state)
{
    (void)state;
    chat_template_limits limits = chat_template_default_limits();
    limits.template_bytes = 100;
    char *text = repeat("x", 101);
    assert_refused(text, &limits, NULL, CELLAR_UNSUPPORTED, "at most 100");
    text[100] = '\0';
    assert_refused(text, &limits, NULL, CELLAR_OK, "");
    free(text);
}

static void a_large_compiled_form_is_refused(void **state)
{
    (void)state;
    chat_template_limits limits = chat_template_default_limits();
    limits.memory_bytes = 64 << 10;
    char *text = repeat("{{a}}", 2000);
    assert_refused(text, &limits, NULL, CELLAR_UNSUPPORTED, "compiled form takes more than");
    free(text);
}

static void endless_loops_end(void **state)
{
    (void)state;
    chat_template_limits limits = chat_template_default_limits();
    limits.steps = 100000;
    static const char *const texts[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{{ range(10 ** 18)|list }}",
        "{% set ns = namespace(l=range(400)|list) %}{% for a in ns.l %}"
        "{{ ns.l|unique|list|length }}{% endfor %}",
        "{{ ([0] * 3000)|map('string')|map('length')|map('string')|map('upper')|join|length }}"
        "{% for i in range(99) %}{{ ([0] * 3000)|sort|length }}{% endfor %}",
        "{% macro f(n) %}{% for i in range(9) %}{{ f(n - 1) if n }}{% endfor %}{% endmacro %}"
        "{{ f(9) }}",
        "{% for i in range(300) %}{{ ('ab' * 20000).find('ba' * 9000 ~ 'x') }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_refused(texts[i], &limits, NULL, CELLAR_UNSUPPORTED, "more than 100000 steps");
}

static void values_stay_in_their_memory(void **state)
{
    (void)state;
    chat_template_limits limits = chat_template_default_limits();
    limits.memory_bytes = 1 << 20;
    static const char *const texts[] = {
        "{{ 'abc' * 1000000 }}",
        "{% set ns = namespace(t='x') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}"
        "{% endfor %}",
        "{{ [1, 2, 3] * 100000 }}",
        "{% set l = [] %}{% for i in range(1000000) %}{% do l.append(i) %}{% endfor %}",
        "{{ ('a' * 300000)|replace('a', 'bbbb') }}",
        "{{ ('a' * 60000)|list|tojson(indent=250) }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l }}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_refused(texts[i], &limits, NULL, CELLAR_UNSUPPORTED,
                       "values take more than 1048576");
}

static void a_text_that_grows_costs_what_it_is_long(void **state)
{
    (void)state;
    /* 20000 appended pieces would be 2 GB if each made a copy */
    assert_refused("{% set ns = namespace(t='') %}{% for i in range(20000) %}"
                   "{% set ns.t = ns.t + 'ten bytes.' %}{% endfor %}{{ ns.t|length }}",
                   NULL, NULL, CELLAR_OK, "");
}

static void output_is_bounded(void **state)
{
    (void)state;
    chat_template_limits limits = chat_template_default_limits();
    limits.output_bytes = 1000;
    assert_refused("{% for i in range(100) %}0123456789x{% endfor %}", &limits, NULL,
                   CELLAR_UNSUPPORTED, "writes more than 1000 bytes");
    assert_refused("{% for i in range(100) %}0123456789{% endfor %}", &limits, NULL, CELLAR_OK, "");
    assert_refused("{% set x %}{% for i in range(100) %}0123456789x{% endfor %}{% endset %}",
                   &limits, NULL, CELLAR_UNSUPPORTED, "writes more than 1000 bytes");
}

/* Text, and which part of it comes `n` times. */
static void assert_nests_too_deep(const char *before, const char *part, const char *after, size_t n)
{
    char *middle = repeat(part, n);
    char *text = malloc(strlen(before) + strlen(middle) + strlen(after) + 1);
    assert_non_null(text);
    sprintf(text, "%s%s%s", before, middle, after);
    assert_refused(text, NULL, NULL, CELLAR_UNSUPPORTED, "deeper than 200 levels");
    free(text);
    free(middle);
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    assert_nests_too_deep("{{ ", "-", "1 }}", 100000);
    assert_nests_too_deep("{{ ", "not ", "1 }}", 50000);
    assert_nests_too_deep("{{ 1", " + 1", " }}", 20000);
    assert_nests_too_deep("{{ a", "|list", " }}", 20000);
    assert_nests_too_deep("{{ 1", " if 1 else 1", " }}", 10000);
    assert_nests_too_deep("", "{% if 1 %}", "", 10000);
    char *inner = repeat("[", 250), *closing = repeat("]", 250), both[520];
    snprintf(both, sizeof both, "{{ %s%s }}", inner, closing);
    assert_refused(both, NULL, NULL, CELLAR_UNSUPPORTED, "deeper than 200 levels");
    free(inner);
    free(closing);
    assert_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", NULL, NULL,
                   CELLAR_UNSUPPORTED, "a macro that calls itself");
    assert_refused("{% set q = [1] %}{% do q.append(q) %}{{ q }}", NULL, NULL, CELLAR_UNSUPPORTED,
                   "deeper than 200");
    assert_refused("{% set q = [1] %}{% do q.append(q) %}{{ q|tojson }}", NULL, NULL,
                   CELLAR_UNSUPPORTED, "deeper than 200");
    assert_refused("{% set q = [] %}{% set p = [] %}{% do q.append(p) %}{% do p.append(q) %}"
                   "{{ q == p }}",
                   NULL, NULL, CELLAR_UNSUPPORTED, "deeper than 200");
    char *brackets = repeat("[", 3000);
    assert_refused(brackets, NULL, NULL, CELLAR_OK, ""); /* outside of a tag it is only text */
    free(brackets);
}

static void a_chain_of_elifs_does_not_nest(void **state)
{
    (void)state;
    char *chain = repeat("{% elif false %}x", 5000);
    char *text = malloc(strlen(chain) + 64);
    assert_non_null(text);
    sprintf(text, "{%% if false %%}%s{%% else %%}end{%% endif %%}", chain);
    assert_refused(text, NULL, NULL, CELLAR_OK, "");
    free(text);
    free(chain);
}

static void deep_messages_are_refused(void **state)
{
    (void)state;
    json_t *deep = json_array();
    for (int i = 0; i < 300; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    assert_refused("x", NULL, deep, CELLAR_UNSUPPORTED, "deeper than 200");
    json_decref(deep);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void errors_say_what_and_where(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        cellar_status status;
        const char *words;
    } cases[] = {
        {"ab\n {{ x", CELLAR_CORRUPT, "line 2, column 2: the tag that begins here has no end"},
        {"{# x", CELLAR_CORRUPT, "line 1, column 1: the comment"},
        {"{% raw %}{{", CELLAR_CORRUPT, "has no {% endraw %}"},
        {"{{ 'x }}", CELLAR_CORRUPT, "column 4: this text literal has no closing quote"},
        {"{{ a ? b }}", CELLAR_CORRUPT, "column 6: the character '?'"},
        {"{{ (1] }}", CELLAR_CORRUPT, "column 6: ']' closes no bracket"},
        {"{{ 99999999999999999999 }}", CELLAR_UNSUPPORTED, "number is too long"},
        {"{{ '\\ud800' }}", CELLAR_CORRUPT, "names no character"},
        {"{{ '\\x4' }}", CELLAR_CORRUPT, "names no character"},
        {"{{ 1 2 }}", CELLAR_CORRUPT, "'2' stands where }} must stand"},
        {"{{ }}", CELLAR_CORRUPT, "the tag ends where a value must stand"},
        {"{{ f(a=1, 2) }}", CELLAR_CORRUPT, "follows one with a name"},
        {"{{ f(*a) }}", CELLAR_UNSUPPORTED, "by * or **"},
        {"{{ a[] }}", CELLAR_CORRUPT, "brackets are empty"},
        {"{% if a %}", CELLAR_CORRUPT, "no {% endif %}"},
        {"{% for a in b %}x", CELLAR_CORRUPT, "no {% endfor %}"},
        {"{% macro f() %}", CELLAR_CORRUPT, "no {% endmacro %}"},
        {"\n\n{% endif %}", CELLAR_CORRUPT, "line 3, column 4: {% endif %} has nothing"},
        {"{% include 'x' %}", CELLAR_UNSUPPORTED, "there is no tag 'include'"},
        {"{% extends 'x' %}", CELLAR_UNSUPPORTED, "there is no tag 'extends'"},
        {"{% import 'x' as y %}", CELLAR_UNSUPPORTED, "there is no tag 'import'"},
        {"{% for a in b recursive %}{% endfor %}", CELLAR_UNSUPPORTED, "recursive loops"},
        {"{% break %}", CELLAR_CORRUPT, "only in a loop"},
        {"{% for a in b %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}", CELLAR_CORRUPT,
         "only in a loop"},
        {"{% set 1 = 2 %}", CELLAR_CORRUPT, "nothing can be assigned"},
        {"{% set true = 2 %}", CELLAR_CORRUPT, "nothing can be assigned"},
        {"{{ 1|nothing }}", CELLAR_UNSUPPORTED, "column 6: there is no filter 'nothing'"},
        {"{{ 1 is nothing }}", CELLAR_UNSUPPORTED, "there is no test 'nothing'"},
        {"{{ [1]|map('nothing') }}", CELLAR_UNSUPPORTED, "there is no filter 'nothing'"},
        {"a\n{{ nothing.x }}", CELLAR_MISMATCH, "line 2, column 11: 'nothing' is undefined"},
        {"{{ nothing() }}", CELLAR_MISMATCH, "'nothing' is undefined"},
        {"{{ 1() }}", CELLAR_MISMATCH, "cannot be called"},
        {"{{ 1 // 0 }}", CELLAR_MISMATCH, "division by zero"},
        {"{{ 1.0 % 0 }}", CELLAR_MISMATCH, "division by zero"},
        {"{{ 9223372036854775807 + 1 }}", CELLAR_UNSUPPORTED, "does not fit in 64 bits"},
        {"{{ 10 ** 40 }}", CELLAR_UNSUPPORTED, "does not fit in 64 bits"},
        {"{{ -(-9223372036854775807 - 1) }}", CELLAR_UNSUPPORTED, "does not fit in 64 bits"},
        {"{{ (-9223372036854775807 - 1) // -1 }}", CELLAR_UNSUPPORTED, "does not fit in 64 bits"},
        {"{{ 1|int('x', y=2) }}", CELLAR_MISMATCH, "int takes no argument 'y'"},
        {"{{ 1|replace('x') }}", CELLAR_MISMATCH, "replace needs the argument 'new'"},
        {"{{ 1|abs(2) }}", CELLAR_MISMATCH, "abs takes 0 arguments, not 1"},
        {"{{ {[1]: 2} }}", CELLAR_MISMATCH, "cannot be the key"},
        {"{% set a.b = 1 %}", CELLAR_MISMATCH, "attributes can be set of a namespace() only"},
        {"{% set a, b = [1] %}", CELLAR_MISMATCH, "1 values for 2 names"},
        {"{{ 'abc'[::0] }}", CELLAR_MISMATCH, "cannot be zero"},
        {"{{ 'a'.split('') }}", CELLAR_MISMATCH, "separator is empty"},
        {"{{ '%1001d' % 1 }}", CELLAR_UNSUPPORTED, "a width is more than"},
        {"{{ '%q' % 1 }}", CELLAR_UNSUPPORTED, "no conversion %q"},
        {"{{ '%' % 1 }}", CELLAR_MISMATCH, "ends inside a conversion"},
        {"{{ '{' .format(1) }}", CELLAR_MISMATCH, "lone brace"},
        {"{{ '{:9999999999}'.format(1) }}", CELLAR_MISMATCH, "no value for {:9999999999}"},
        {"{{ strftime_now('%9999999d') }}", CELLAR_UNSUPPORTED, "knows no %9"},
        {"{{ range(1, 2, 0) }}", CELLAR_MISMATCH, "step by zero"},
        {"{{ range }}", CELLAR_MISMATCH, "no written form"},
        {"{{ nothing|tojson }}", CELLAR_MISMATCH, "has no form in JSON"},
        {"{{ raise_exception('no\x1b[31m way') }}", CELLAR_INVALID, "conversation: no?[31m way"},
        {"ab\xff{{ 1 }}", CELLAR_CORRUPT, "column 3: these bytes are not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(cases[i].text, NULL, NULL, cases[i].status, cases[i].words);
}

static void errors_need_no_place_to_go(void **state)
{
    (void)state;
    chat_template *compiled;
    char *out;
    size_t n;
    assert_int_equal(chat_template_compile("{{", 2, NULL, &compiled, NULL), CELLAR_CORRUPT);
    assert_null(compiled);
    assert_int_equal(chat_template_compile("{{ a.b }}", 9, NULL, &compiled, NULL), CELLAR_OK);
    const chat_template_input input = {.messages = NULL};
    assert_int_equal(chat_template_render(compiled, &input, &out, &n, NULL), CELLAR_MISMATCH);
    assert_null(out);
    chat_template_destroy(compiled);
    chat_template_destroy(NULL);
}

static void the_place_is_an_offset_too(void **state)
{
    (void)state;
    chat_template *compiled;
    cellar_error error = {0};
    assert_int_equal(chat_template_compile("\xc3\xa9\n {% x %}", 11, NULL, &compiled, &error),
                     CELLAR_UNSUPPORTED);
    assert_int_equal(error.at, 7);
    assert_non_null(strstr(error.message, "line 2, column 5"));
}

static void an_empty_template_is_an_empty_text(void **state)
{
    (void)state;
    chat_template *compiled;
    char *out;
    size_t n;
    const chat_template_input input = {.messages = NULL};
    assert_int_equal(chat_template_compile("", 0, NULL, &compiled, NULL), CELLAR_OK);
    assert_int_equal(chat_template_render(compiled, &input, &out, &n, NULL), CELLAR_OK);
    assert_string_equal(out, "");
    assert_int_equal(n, 0);
    free(out);
    chat_template_destroy(compiled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_template_is_refused),
        cmocka_unit_test(a_large_compiled_form_is_refused),
        cmocka_unit_test(endless_loops_end),
        cmocka_unit_test(values_stay_in_their_memory),
        cmocka_unit_test(a_text_that_grows_costs_what_it_is_long),
        cmocka_unit_test(output_is_bounded),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(a_chain_of_elifs_does_not_nest),
        cmocka_unit_test(deep_messages_are_refused),
        cmocka_unit_test(errors_say_what_and_where),
        cmocka_unit_test(errors_need_no_place_to_go),
        cmocka_unit_test(the_place_is_an_offset_too),
        cmocka_unit_test(an_empty_template_is_an_empty_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
