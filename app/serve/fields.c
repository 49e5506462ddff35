/*
 * fields.c: types and ranges, for fields.h.
 *
 * A whole number may be written with a point (2.0), as some languages do; a number need not have one.
 */
#include "serve/fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

fields fields_of(const json_t *object)
{
    return (fields){.object = object};
}

const json_t *fields_get(const fields *f, const char *name)
{
    const json_t *value = json_object_get(f->object, name);
    return json_is_null(value) ? NULL : value;
}

const char *fields_kind(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a text";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    default:
        return "null";
    }
}

void fields_wrong(fields *f, const char *name, const char *expected, ...)
{
    if (f->is_wrong) {
        return;
    }
    f->is_wrong = true;
    snprintf(f->param, sizeof f->param, "%s%s", f->within != NULL ? f->within : "", name);
    const int n = snprintf(f->message, sizeof f->message, "'%s': expected ", f->param);
    va_list arguments;
    va_start(arguments, expected);
    vsnprintf(f->message + n, sizeof f->message - (size_t)n, expected, arguments);
    va_end(arguments);
}

void fields_flag(fields *f, const char *name, bool *value)
{
    const json_t *its = fields_get(f, name);
    if (its == NULL) {
        return;
    }
    if (!json_is_boolean(its)) {
        fields_wrong(f, name, "true or false, found %s", fields_kind(its));
        return;
    }
    *value = json_is_true(its);
}

void fields_integer(fields *f, const char *name, int64_t *value, int64_t least, int64_t most)
{
    const json_t *its = fields_get(f, name);
    if (its == NULL) {
        return;
    }
    const double number = json_number_value(its);
    if (!json_is_number(its) ||
        (json_is_real(its) && (floor(number) != number || fabs(number) > 9e15))) {
        fields_wrong(f, name, "a whole number, found %s",
                     json_is_number(its) ? "another number" : fields_kind(its));
        return;
    }
    const int64_t whole = json_is_real(its) ? (int64_t)number : json_integer_value(its);
    if (whole < least || whole > most) {
        fields_wrong(f, name, "a number from %" PRId64 " to %" PRId64 ", found %" PRId64, least,
                     most, whole);
        return;
    }
    *value = whole;
}

void fields_number(fields *f, const char *name, double *value, double least, double most)
{
    const json_t *its = fields_get(f, name);
    if (its == NULL) {
        return;
    }
    if (!json_is_number(its)) {
        fields_wrong(f, name, "a number, found %s", fields_kind(its));
        return;
    }
    const double number = json_number_value(its);
    if (!(number >= least && number <= most)) {
        fields_wrong(f, name, "a number from %g to %g, found %g", least, most, number);
        return;
    }
    *value = number;
}

static const json_t *get_kind(fields *f, const char *name, bool is_right(const json_t *),
                              const char *expected)
{
    const json_t *its = fields_get(f, name);
    if (its != NULL && !is_right(its)) {
        fields_wrong(f, name, "%s, found %s", expected, fields_kind(its));
        return NULL;
    }
    return its;
}

static bool is_text(const json_t *value)
{
    return json_is_string(value);
}

static bool is_array(const json_t *value)
{
    return json_is_array(value);
}

static bool is_object(const json_t *value)
{
    return json_is_object(value);
}

const json_t *fields_text(fields *f, const char *name)
{
    return get_kind(f, name, is_text, "a text");
}

const json_t *fields_array(fields *f, const char *name)
{
    return get_kind(f, name, is_array, "a list");
}

const json_t *fields_object(fields *f, const char *name)
{
    return get_kind(f, name, is_object, "an object");
}
