/*
 * unit_options.c: how command lines are read, and what is said about wrong ones.
 *
 * One table with an option of each kind; every test reads a line of arguments with it and looks at
 * the variables or at the message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cli/memory_options.h"
#include "cli/options.h"

/* What a line of arguments led to. */
typedef struct reading {
    options_result result;
    cellar_error error;
    bool quiet, echo;
    const char *text;
    int64_t count;
    double number;
    int choice;
    const char *operands[2];
    size_t n_operands;
} reading;

static const char *const colours[] = {"red", "green", "blue", NULL};

static reading read_line(const char *const *arguments, int n)
{
    reading r = {.text = "unset", .count = 7, .number = 0.5, .choice = 1};
    const option table[] = {
        option_flag('q', "quiet", &r.quiet),
        option_flag('e', "echo", &r.echo),
        option_text('p', "prompt", &r.text),
        option_integer('n', "predict", &r.count, -1, 1000),
        option_number(0, "temp", &r.number, 0, 2),
        option_choice('k', "colour", &r.choice, colours),
    };
    char *argv[12] = {(char *)(uintptr_t) "command"};
    for (int i = 0; i < n; i++) {
        argv[i + 1] = (char *)(uintptr_t)arguments[i];
    }
    r.result = options_parse(table, sizeof table / sizeof table[0], n + 1, argv, r.operands, 2,
                             &r.n_operands, &r.error);
    return r;
}

#define READ(...)                                                                                  \
    read_line((const char *const[]){__VA_ARGS__},                                                  \
              (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

static void options_that_are_not_given_keep_their_values(void **state)
{
    (void)state;
    reading r = read_line(NULL, 0);
    assert_int_equal(r.result, OPTIONS_OK);
    assert_false(r.quiet);
    assert_string_equal(r.text, "unset");
    assert_int_equal(r.count, 7);
    assert_true(r.number == 0.5);
    assert_int_equal(r.choice, 1);
    assert_int_equal(r.n_operands, 0);
}

static void every_way_of_writing_an_option_is_read(void **state)
{
    (void)state;
    assert_int_equal(READ("-n", "5").count, 5);
    assert_int_equal(READ("-n5").count, 5);
    assert_int_equal(READ("-qn5").count, 5);
    assert_true(READ("-qn5").quiet);
    assert_true(READ("-qe").echo);
    assert_int_equal(READ("--predict", "5").count, 5);
    assert_int_equal(READ("--predict=5").count, 5);
    assert_int_equal(READ("-n", "-1").count, -1);
    assert_int_equal(READ("--predict=-1").count, -1);
    assert_string_equal(READ("-p", "").text, "");
    assert_string_equal(READ("--prompt=").text, "");
    assert_string_equal(READ("--prompt=a=b").text, "a=b");
    assert_string_equal(READ("-p", "--quiet").text, "--quiet");
    assert_true(READ("--temp", "1.25").number == 1.25);
    assert_true(READ("--temp", "0").number == 0);
    assert_int_equal(READ("--colour", "blue").choice, 2);
    assert_int_equal(READ("-n", "1", "-n", "2").count, 2);
}

static void operands_stand_anywhere_and_two_dashes_end_the_options(void **state)
{
    (void)state;
    reading r = READ("one", "-q", "-");
    assert_int_equal(r.result, OPTIONS_OK);
    assert_int_equal(r.n_operands, 2);
    assert_string_equal(r.operands[0], "one");
    assert_string_equal(r.operands[1], "-");
    r = READ("--", "-q", "--");
    assert_int_equal(r.result, OPTIONS_OK);
    assert_false(r.quiet);
    assert_string_equal(r.operands[0], "-q");
    assert_string_equal(r.operands[1], "--");
}

static void help_is_always_there(void **state)
{
    (void)state;
    assert_int_equal(READ("-q", "-h").result, OPTIONS_HELP);
    assert_int_equal(READ("--help", "--nonsense").result, OPTIONS_HELP);
    assert_int_equal(READ("-p", "--help").result, OPTIONS_OK);
}

static void every_mistake_is_told_with_what_was_expected(void **state)
{
    (void)state;
    const struct {
        const char *arguments[3];
        int n;
        const char *message;
    } wrong[] = {
        {{"-n", "x"}, 2, "option -n: expected a whole number in -1..1000, found 'x'"},
        {{"-n", ""}, 2, "option -n: expected a whole number in -1..1000, found ''"},
        {{"-n", "5x"}, 2, "option -n: expected a whole number in -1..1000, found '5x'"},
        {{"-n", "1.5"}, 2, "option -n: expected a whole number in -1..1000, found '1.5'"},
        {{"-n", "1001"}, 2, "option -n: expected a whole number in -1..1000, found '1001'"},
        {{"-n-2"}, 1, "option -n: expected a whole number in -1..1000, found '-2'"},
        {{"--predict=99999999999999999999"},
         1,
         "option --predict: expected a whole number in -1..1000, found '99999999999999999999'"},
        {{"--temp", "nan"}, 2, "option --temp: expected a number in 0..2, found 'nan'"},
        {{"--temp", "inf"}, 2, "option --temp: expected a number in 0..2, found 'inf'"},
        {{"--temp", "-0.1"}, 2, "option --temp: expected a number in 0..2, found '-0.1'"},
        {{"--temp", "hot"}, 2, "option --temp: expected a number in 0..2, found 'hot'"},
        {{"--colour", "pink"}, 2, "option --colour: expected red, green or blue, found 'pink'"},
        {{"-n"}, 1, "option -n needs a value"},
        {{"--prompt"}, 1, "option --prompt needs a value"},
        {{"--quiet=yes"}, 1, "option --quiet takes no value"},
        {{"--qiuet"}, 1, "there is no option --qiuet; did you mean --quiet?"},
        {{"--tmep", "1"}, 2, "there is no option --tmep; did you mean --temp?"},
        {{"--promt=x"}, 1, "there is no option --promt; did you mean --prompt?"},
        {{"--unheard-of"}, 1, "there is no option --unheard-of"},
        {{"-z"}, 1, "there is no option -z"},
        {{"-qz"}, 1, "there is no option -qz"},
        {{"a", "b", "c"}, 3, "unexpected argument 'c'"},
        {{"--a\x1b[31m"}, 1, "there is no option --a?[31m"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        reading r = read_line(wrong[i].arguments, wrong[i].n);
        assert_int_equal(r.result, OPTIONS_WRONG);
        assert_string_equal(r.error.message, wrong[i].message);
    }
}

/* The choices of --cache-type-k and -v are all row types that the library has, by its names. */
static void row_types_have_the_librarys_names(void **state)
{
    (void)state;
    int n_known = 0, n_chosen = 0;
    for (int type = 0; type < 64; type++)
        n_known += cellar_type_name((cellar_type)type) != NULL;
    for (; memory_type_names[n_chosen] != NULL; n_chosen++) {
        bool is_known = false;
        for (int type = 0; type < 64; type++) {
            const char *name = cellar_type_name((cellar_type)type);
            is_known = is_known || (name != NULL && !strcmp(name, memory_type_names[n_chosen]));
        }
        assert_true(is_known);
    }
    assert_int_equal(n_chosen, n_known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_are_not_given_keep_their_values),
        cmocka_unit_test(every_way_of_writing_an_option_is_read),
        cmocka_unit_test(operands_stand_anywhere_and_two_dashes_end_the_options),
        cmocka_unit_test(help_is_always_there),
        cmocka_unit_test(every_mistake_is_told_with_what_was_expected),
        cmocka_unit_test(row_types_have_the_librarys_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
