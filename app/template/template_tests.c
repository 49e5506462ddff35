/*
 * template_tests.c: what may stand behind `is`.
 *
 * Jinja2's tests, with its names for them. A tested value may be undefined; that is an answer, not an
 * error.
 */
#include <string.h>

#include "template/template_run.h"

static bool answer(bool is_true, value *out)
{
    *out = value_of_boolean(is_true);
    return true;
}

static bool test_defined(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind != VALUE_UNDEFINED, out);
}

static bool test_undefined(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind == VALUE_UNDEFINED, out);
}

static bool test_none(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind == VALUE_NONE, out);
}

static bool test_boolean(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind == VALUE_BOOLEAN, out);
}

static bool test_true(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind == VALUE_BOOLEAN && call->self.boolean, out);
}

static bool test_false(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind == VALUE_BOOLEAN && !call->self.boolean, out);
}

static bool test_integer(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind == VALUE_INTEGER, out);
}

static bool test_float(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind == VALUE_REAL, out);
}

static bool test_number(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(value_is_number(&call->self), out);
}

static bool test_string(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind == VALUE_TEXT, out);
}

static bool test_mapping(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind == VALUE_DICT, out);
}

static bool has_length(const value *v)
{
    return v->kind == VALUE_TEXT || v->kind == VALUE_DICT || v->kind == VALUE_UNDEFINED ||
           value_is_sequence(v);
}

static bool test_iterable(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(has_length(&call->self) || call->self.kind == VALUE_LOOP, out);
}

/* What has a length and items: an undefined value has a length, but no items. */
static bool test_sequence(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(has_length(&call->self), out);
}

static bool test_callable(template_run *run, const template_call *call, value *out)
{
    (void)run;
    return answer(call->self.kind == VALUE_MACRO || call->self.kind == VALUE_FUNCTION ||
                      call->self.kind == VALUE_UNDEFINED,
                  out);
}

static bool test_rest(template_run *run, const value *number, const value *divisor, int64_t wanted,
                      value *out)
{
    value rest;
    TEMPLATE_TRY(template_binary(run, OP_MODULO, number, divisor, &rest));
    return answer(value_is_number(&rest) && value_as_real(&rest) == (double)wanted, out);
}

static bool test_even(template_run *run, const template_call *call, value *out)
{
    const value two = value_of_integer(2);
    return test_rest(run, &call->self, &two, 0, out);
}

static bool test_odd(template_run *run, const template_call *call, value *out)
{
    const value two = value_of_integer(2);
    return test_rest(run, &call->self, &two, 1, out);
}

static bool test_divisibleby(template_run *run, const template_call *call, value *out)
{
    return test_rest(run, &call->self, &call->bound[0], 0, out);
}

static bool test_equal(template_run *run, const template_call *call, value *out)
{
    bool is_equal;
    TEMPLATE_TRY(value_equal(run, &call->self, &call->bound[0], &is_equal));
    return answer(is_equal, out);
}

/* Equal and of one kind: 1 is not true. */
static bool test_same(template_run *run, const template_call *call, value *out)
{
    if (call->self.kind != call->bound[0].kind) return answer(false, out);
    return test_equal(run, call, out);
}

static bool test_not_equal(template_run *run, const template_call *call, value *out)
{
    TEMPLATE_TRY(test_equal(run, call, out));
    out->boolean = !out->boolean;
    return true;
}

static bool test_greater(template_run *run, const template_call *call, value *out)
{
    int order;
    TEMPLATE_TRY(value_compare(run, &call->self, &call->bound[0], &order));
    return answer(order > 0, out);
}

static bool test_greater_equal(template_run *run, const template_call *call, value *out)
{
    int order;
    TEMPLATE_TRY(value_compare(run, &call->self, &call->bound[0], &order));
    return answer(order >= 0, out);
}

static bool test_less(template_run *run, const template_call *call, value *out)
{
    int order;
    TEMPLATE_TRY(value_compare(run, &call->self, &call->bound[0], &order));
    return answer(order < 0, out);
}

static bool test_less_equal(template_run *run, const template_call *call, value *out)
{
    int order;
    TEMPLATE_TRY(value_compare(run, &call->self, &call->bound[0], &order));
    return answer(order <= 0, out);
}

static bool test_in(template_run *run, const template_call *call, value *out)
{
    bool found;
    TEMPLATE_TRY(value_contains(run, &call->bound[0], &call->self, &found));
    return answer(found, out);
}

static bool test_case(template_run *run, const template_call *call, template_case wanted,
                      value *out)
{
    template_text text, upper, lower;
    TEMPLATE_TRY(value_to_text(run, &call->self, &text));
    TEMPLATE_TRY(template_change_case(run, text, CASE_UPPER, &upper));
    TEMPLATE_TRY(template_change_case(run, text, CASE_LOWER, &lower));
    return answer(!template_text_equal(upper, lower) &&
                      template_text_equal(text, wanted == CASE_UPPER ? upper : lower),
                  out);
}

static bool test_upper(template_run *run, const template_call *call, value *out)
{
    return test_case(run, call, CASE_UPPER, out);
}

static bool test_lower(template_run *run, const template_call *call, value *out)
{
    return test_case(run, call, CASE_LOWER, out);
}

static bool test_filter(template_run *run, const template_call *call, value *out)
{
    template_text name;
    TEMPLATE_TRY(value_to_text(run, &call->self, &name));
    return answer(template_filter_find(name) != NULL, out);
}

static bool test_test(template_run *run, const template_call *call, value *out)
{
    template_text name;
    TEMPLATE_TRY(value_to_text(run, &call->self, &name));
    return answer(template_test_find(name) != NULL, out);
}

static const template_builtin tests[] = {
    {"defined", test_defined, ""},
    {"undefined", test_undefined, ""},
    {"none", test_none, ""},
    {"boolean", test_boolean, ""},
    {"true", test_true, ""},
    {"false", test_false, ""},
    {"integer", test_integer, ""},
    {"float", test_float, ""},
    {"number", test_number, ""},
    {"string", test_string, ""},
    {"mapping", test_mapping, ""},
    {"iterable", test_iterable, ""},
    {"sequence", test_sequence, ""},
    {"callable", test_callable, ""},
    {"even", test_even, ""},
    {"odd", test_odd, ""},
    {"divisibleby", test_divisibleby, "num"},
    {"equalto", test_equal, "other"},
    {"eq", test_equal, "other"},
    {"sameas", test_same, "other"},
    {"ne", test_not_equal, "other"},
    {"gt", test_greater, "other"},
    {"greaterthan", test_greater, "other"},
    {"ge", test_greater_equal, "other"},
    {"lt", test_less, "other"},
    {"lessthan", test_less, "other"},
    {"le", test_less_equal, "other"},
    {"in", test_in, "seq"},
    {"upper", test_upper, ""},
    {"lower", test_lower, ""},
    {"filter", test_filter, ""},
    {"test", test_test, ""},
    /* select('==', 1) and its like find their tests by these names */
    {"==", test_equal, "other"},
    {"!=", test_not_equal, "other"},
    {">", test_greater, "other"},
    {">=", test_greater_equal, "other"},
    {"<", test_less, "other"},
    {"<=", test_less_equal, "other"},
    {NULL, NULL, NULL},
};

const template_builtin *template_test_find(template_text name)
{
    return template_find_builtin(tests, name);
}
