/*
 * template_arithmetic.c: + - * / // % ** between values, as Python has them.
 *
 * Whole numbers have 64 bits here; what does not fit is an error, not a wrong number. Also: texts join and
 * repeat, lists and tuples join and repeat, and % formats a text.
 */
#include <math.h>
#include <string.h>

#include "template/template_run.h"

static bool too_large(template_run *run)
{
    return template_fail(run, CELLAR_UNSUPPORTED, "the result does not fit in 64 bits");
}

/* Python rounds down and gives the rest the divisor's sign. */
static bool divide_whole(template_run *run, int64_t a, int64_t b, bool wants_rest, value *out)
{
    if (b == 0) return template_fail(run, CELLAR_MISMATCH, "division by zero");
    if (a == INT64_MIN && b == -1) {
        if (!wants_rest) return too_large(run);
        *out = value_of_integer(0);
        return true;
    }
    int64_t quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    *out = value_of_integer(wants_rest ? rest : quotient);
    return true;
}

static bool raise_whole(template_run *run, int64_t base, int64_t exponent, value *out)
{
    int64_t result = 1;
    bool is_over = false;
    for (; exponent > 0 && !is_over; exponent >>= 1) {
        if (exponent & 1) is_over = __builtin_mul_overflow(result, base, &result);
        if (exponent > 1) is_over |= __builtin_mul_overflow(base, base, &base);
    }
    if (is_over) return too_large(run);
    *out = value_of_integer(result);
    return true;
}

static bool whole_binary(template_run *run, template_operator op, int64_t a, int64_t b, value *out)
{
    int64_t result = 0;
    bool is_over;
    switch (op) {
    case OP_ADD:
        is_over = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUBTRACT:
        is_over = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MULTIPLY:
        is_over = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_POWER:
        return raise_whole(run, a, b, out);
    default:
        return divide_whole(run, a, b, op == OP_MODULO, out);
    }
    if (is_over) return too_large(run);
    *out = value_of_integer(result);
    return true;
}

static bool real_binary(template_run *run, template_operator op, double a, double b, value *out)
{
    if ((op == OP_DIVIDE || op == OP_FLOOR_DIVIDE || op == OP_MODULO) && b == 0.0)
        return template_fail(run, CELLAR_MISMATCH, "division by zero");
    double result = 0.0, rest;
    switch (op) {
    case OP_ADD:
        result = a + b;
        break;
    case OP_SUBTRACT:
        result = a - b;
        break;
    case OP_MULTIPLY:
        result = a * b;
        break;
    case OP_DIVIDE:
        result = a / b;
        break;
    case OP_POWER:
        if (a == 0.0 && b < 0.0) return template_fail(run, CELLAR_MISMATCH, "division by zero");
        if (a < 0.0 && b != floor(b))
            return template_fail(run, CELLAR_MISMATCH, "this power is not a real number");
        result = pow(a, b);
        if (isinf(result) && !isinf(a) && !isinf(b)) return too_large(run);
        break;
    default:
        rest = fmod(a, b);
        if (rest != 0.0 && (rest < 0.0) != (b < 0.0)) rest += b;
        if (rest == 0.0) rest = copysign(0.0, b);
        if (op == OP_MODULO) {
            result = rest;
        } else {
            result = (a - rest) / b;
            result = result == 0.0 ? copysign(0.0, a / b) : floor(result + 0.5);
        }
        break;
    }
    *out = value_of_real(result);
    return true;
}

/* Append to the left text in place, if it ends where a growing text has room. */
static bool extend_text(template_run *run, template_text a, template_text b)
{
    for (size_t i = 0; i < TEMPLATE_GROWING_TEXTS; i++) {
        template_growing_text *growing = &run->growing[i];
        if (growing->end != a.data + a.length || growing->room < b.length) continue;
        memcpy(growing->end, b.data, b.length);
        growing->end += b.length;
        growing->room -= b.length;
        return true;
    }
    return false;
}

/*
 * Templates collect their output piece by piece, by `text + piece` in a loop. So a joined text that is not
 * short gets as much room behind it again, and the next piece is appended there: the left text stays as
 * it was, as the beginning of the new one. Each place of the memory is written once.
 */
static bool join_texts(template_run *run, template_text a, template_text b, value *out)
{
    enum { SHORT_TEXT = 256 };
    const size_t length = a.length + b.length;
    if (a.length == 0 || b.length == 0) {
        *out = value_of_text(a.length == 0 ? b : a);
        return true;
    }
    TEMPLATE_TRY(template_spend_bytes(run, b.length));
    if (extend_text(run, a, b)) {
        *out = value_of_text((template_text){a.data, length});
        return true;
    }
    TEMPLATE_TRY(template_spend_bytes(run, a.length));
    const size_t room = length < SHORT_TEXT ? 0 : length;
    char *joined = template_take(run, length + room);
    if (joined == NULL) return false;
    memcpy(joined, a.data, a.length);
    memcpy(joined + a.length, b.data, b.length);
    *out = value_of_text((template_text){joined, length});
    if (room > 0) {
        run->growing[run->next_growing] = (template_growing_text){joined + length, room};
        run->next_growing = (run->next_growing + 1) % TEMPLATE_GROWING_TEXTS;
    }
    return true;
}

static bool join_lists(template_run *run, const value *a, const value *b, value *out)
{
    TEMPLATE_TRY(value_make_list(run, a->kind, a->list->n + b->list->n, out));
    for (size_t i = 0; i < a->list->n; i++)
        TEMPLATE_TRY(value_append(run, out->list, a->list->items[i]));
    for (size_t i = 0; i < b->list->n; i++)
        TEMPLATE_TRY(value_append(run, out->list, b->list->items[i]));
    return true;
}

static bool repeat(template_run *run, const value *a, int64_t times, value *out)
{
    if (a->kind == VALUE_TEXT) {
        template_builder builder = {.run = run};
        for (int64_t i = 0; a->text.length > 0 && i < times; i++) {
            TEMPLATE_TRY(template_spend(run, 1));
            TEMPLATE_TRY(template_builder_add_text(&builder, a->text));
        }
        *out = value_of_text(template_builder_text(&builder));
        return true;
    }
    TEMPLATE_TRY(value_make_list(run, a->kind, 0, out));
    for (int64_t i = 0; a->list->n > 0 && i < times; i++)
        for (size_t item = 0; item < a->list->n; item++)
            TEMPLATE_TRY(value_append(run, out->list, a->list->items[item]));
    return true;
}

static bool has_no_meaning(template_run *run, template_operator op, const value *a, const value *b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    for (int side = 0; side < 2; side++) {
        const value *v = side == 0 ? a : b;
        if (v->kind == VALUE_UNDEFINED)
            return template_fail(run, CELLAR_MISMATCH, "'%.*s' is undefined", (int)v->text.length,
                                 v->text.data);
    }
    return template_fail(run, CELLAR_MISMATCH, "there is no %s between %s and %s", names[op],
                         value_kind_name(a), value_kind_name(b));
}

bool template_binary(template_run *run, template_operator op, const value *a, const value *b,
                     value *out)
{
    const bool a_repeats = a->kind == VALUE_TEXT || value_is_sequence(a);
    const bool b_repeats = b->kind == VALUE_TEXT || value_is_sequence(b);
    if (value_is_whole(a) && value_is_whole(b)) {
        const int64_t x = value_as_integer(a), y = value_as_integer(b);
        if (op != OP_DIVIDE && !(op == OP_POWER && y < 0)) return whole_binary(run, op, x, y, out);
    }
    if (value_is_number(a) && value_is_number(b))
        return real_binary(run, op, value_as_real(a), value_as_real(b), out);
    if (op == OP_ADD && a->kind == VALUE_TEXT && b->kind == VALUE_TEXT)
        return join_texts(run, a->text, b->text, out);
    if (op == OP_ADD && a->kind == b->kind && value_is_sequence(a))
        return join_lists(run, a, b, out);
    if (op == OP_MULTIPLY && a_repeats && value_is_whole(b))
        return repeat(run, a, value_as_integer(b), out);
    if (op == OP_MULTIPLY && b_repeats && value_is_whole(a))
        return repeat(run, b, value_as_integer(a), out);
    if (op == OP_MODULO && a->kind == VALUE_TEXT)
        return template_format_percent(run, a->text, b, out);
    return has_no_meaning(run, op, a, b);
}

bool template_negate(template_run *run, const value *a, value *out)
{
    if (a->kind == VALUE_REAL) {
        *out = value_of_real(-a->real);
        return true;
    }
    if (!value_is_whole(a))
        return template_fail(run, CELLAR_MISMATCH, "%s has no sign", value_kind_name(a));
    const int64_t integer = value_as_integer(a);
    if (integer == INT64_MIN) return too_large(run);
    *out = value_of_integer(-integer);
    return true;
}
