/*
 * gguf_metadata.c: keys and values, and typed reads of them.
 *
 * A value is never converted while it is parsed: numbers stay where they are, unaligned and
 * little-endian, and only their extent, type and count are kept. Strings have lengths of their own,
 * so a table of them is made: one gguf_string for a value that is a string (in file->strings), one
 * allocation for an array of strings.
 *
 * Counts are compared with the bytes that remain before anything is allocated; a string takes 8
 * bytes of the file at least, its entry in the table 16 of memory, hence the limit on the number of
 * strings in a file.
 *
 * Typed reads check type, count and range, and name the key, what was expected and what is there: a
 * caller that passes the message on needs no checks of its own.
 */
#define _POSIX_C_SOURCE 200809L

#include "gguf_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../report.h"
#include "../safe_text.h"

#define N_VALUE_TYPES 13u

static const struct {
    const char *name;
    uint32_t size; /* bytes of one; 0: it varies */
} value_types[N_VALUE_TYPES] = {
    [GGUF_UINT8] = {"uint8", 1},     [GGUF_INT8] = {"int8", 1},     [GGUF_UINT16] = {"uint16", 2},
    [GGUF_INT16] = {"int16", 2},     [GGUF_UINT32] = {"uint32", 4}, [GGUF_INT32] = {"int32", 4},
    [GGUF_FLOAT32] = {"float32", 4}, [GGUF_BOOL] = {"bool", 1},     [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0},     [GGUF_UINT64] = {"uint64", 8}, [GGUF_INT64] = {"int64", 8},
    [GGUF_FLOAT64] = {"float64", 8},
};

const char *gguf_type_name(gguf_type type)
{
    return (uint32_t)type < N_VALUE_TYPES ? value_types[type].name : "unknown";
}

/* ---- parsing -------------------------------------------------------------------------------- */

static cellar_status parse_key(gguf_cursor *cursor, uint32_t index, gguf_string *key)
{
    const uint64_t at = cursor->at;
    GGUF_TRY(gguf_take_string(cursor, "key", key));
    if (key->length == 0 || key->length > GGUF_MAX_KEY_LENGTH)
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at,
                           "key %u: %zu bytes long, must be 1 to %u", index, key->length,
                           GGUF_MAX_KEY_LENGTH);
    if (memchr(key->data, '\0', key->length) != NULL)
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at, "key %u: contains a NUL byte", index);
    if (!safe_text_is_utf8(key->data, key->length))
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at, "key %u: not UTF-8: %.*s", index,
                           GGUF_SHOW(*key));
    return CELLAR_OK;
}

static cellar_status parse_type(gguf_cursor *cursor, const gguf_value *value, const char *what,
                                gguf_type *out)
{
    const uint64_t at = cursor->at;
    uint32_t type = 0;
    GGUF_TRY(gguf_take_u32(cursor, what, &type));
    if (type >= N_VALUE_TYPES)
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at, "%.*s: %s %u is not known",
                           GGUF_SHOW(value->key), what, type);
    *out = (gguf_type)type;
    return CELLAR_OK;
}

/*
 * Elements of a fixed size, count of them. A bool other than 0 and 1 is invalid by the
 * specification.
 */
static cellar_status parse_numbers(gguf_cursor *cursor, gguf_value *value)
{
    const uint64_t at = cursor->at;
    uint64_t n_bytes = 0;
    if (__builtin_mul_overflow(value->count, (uint64_t)value_types[value->element_type].size,
                               &n_bytes) ||
        n_bytes > gguf_remaining(cursor))
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at,
                           "%.*s: value: %llu of %s do not fit in the file", GGUF_SHOW(value->key),
                           (unsigned long long)value->count, gguf_type_name(value->element_type));
    GGUF_TRY(gguf_take(cursor, n_bytes, "value", &value->data));
    if (value->element_type == GGUF_BOOL)
        for (uint64_t i = 0; i < n_bytes; i++)
            if (value->data[i] > 1)
                return gguf_refuse(cursor->error, CELLAR_CORRUPT, at + i,
                                   "%.*s: value: bool is %u, must be 0 or 1", GGUF_SHOW(value->key),
                                   value->data[i]);
    return CELLAR_OK;
}

static cellar_status parse_strings(gguf_file *file, gguf_cursor *cursor, gguf_value *value,
                                   uint32_t index)
{
    gguf_string *strings = &file->strings[index];
    if (value->type == GGUF_ARRAY && value->count > 0) {
        file->n_array_strings += value->count;
        if (file->n_array_strings > GGUF_MAX_STRINGS)
            return gguf_refuse(cursor->error, CELLAR_UNSUPPORTED, value->offset,
                               "%.*s: array: more than %u strings in the arrays of the file",
                               GGUF_SHOW(value->key), GGUF_MAX_STRINGS);
        strings = malloc((size_t)value->count * sizeof *strings);
        if (strings == NULL)
            return report(cursor->error, CELLAR_NO_MEMORY, -1, "no memory for %llu strings",
                          (unsigned long long)value->count);
    }
    value->strings = strings;
    value->data = cursor->data + cursor->at;
    for (uint64_t i = 0; i < value->count; i++)
        GGUF_TRY(gguf_take_string(cursor, "string", &strings[i]));
    return CELLAR_OK;
}

/* The element type and count of an array. */
static cellar_status parse_array_header(gguf_cursor *cursor, gguf_value *value)
{
    const uint64_t type_at = cursor->at;
    GGUF_TRY(parse_type(cursor, value, "array element type", &value->element_type));
    if (value->element_type == GGUF_ARRAY)
        return gguf_refuse(cursor->error, CELLAR_UNSUPPORTED, type_at,
                           "%.*s: array of arrays is not supported", GGUF_SHOW(value->key));
    const uint64_t count_at = cursor->at;
    GGUF_TRY(gguf_take_u64(cursor, "array count", &value->count));
    const uint32_t size = value_types[value->element_type].size;
    if (value->count > gguf_remaining(cursor) / (size > 0 ? size : 8))
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, count_at,
                           "%.*s: array count %llu is more than the file can hold",
                           GGUF_SHOW(value->key), (unsigned long long)value->count);
    if (value->count > GGUF_MAX_ARRAY)
        return gguf_refuse(cursor->error, CELLAR_UNSUPPORTED, count_at,
                           "%.*s: array count %llu, at most %u are read", GGUF_SHOW(value->key),
                           (unsigned long long)value->count, GGUF_MAX_ARRAY);
    return CELLAR_OK;
}

static cellar_status parse_value(gguf_file *file, gguf_cursor *cursor, uint32_t index)
{
    gguf_value *value = &file->values[index];
    const uint64_t key_at = cursor->at;
    GGUF_TRY(parse_key(cursor, index, &value->key));
    if (!gguf_names_insert(&file->value_names, &value->key, index))
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, key_at, "key %u: duplicate of %.*s",
                           index, GGUF_SHOW(value->key));
    cursor->subject = value->key;
    GGUF_TRY(parse_type(cursor, value, "value type", &value->type));
    value->offset = cursor->at;
    value->element_type = value->type;
    value->count = 1;
    if (value->type == GGUF_ARRAY) GGUF_TRY(parse_array_header(cursor, value));
    return value->element_type == GGUF_STRING ? parse_strings(file, cursor, value, index)
                                              : parse_numbers(cursor, value);
}

static cellar_status read_alignment(gguf_file *file, cellar_error *error)
{
    file->alignment = GGUF_DEFAULT_ALIGNMENT;
    const gguf_value *value = gguf_find_value(file, "general.alignment");
    if (value == NULL) return CELLAR_OK;
    if (value->type != GGUF_UINT32)
        return gguf_refuse(error, CELLAR_CORRUPT, value->offset,
                           "general.alignment: expected uint32, found %s",
                           gguf_type_name(value->type));
    const uint32_t alignment = gguf_read_u32(value->data);
    if (alignment < GGUF_MIN_ALIGNMENT || alignment > GGUF_MAX_ALIGNMENT ||
        (alignment & (alignment - 1)) != 0)
        return gguf_refuse(error, CELLAR_CORRUPT, value->offset,
                           "general.alignment: %u, must be a power of two from %u to %u", alignment,
                           GGUF_MIN_ALIGNMENT, GGUF_MAX_ALIGNMENT);
    file->alignment = alignment;
    return CELLAR_OK;
}

cellar_status gguf_parse_values(gguf_file *file, gguf_cursor *cursor, uint32_t n)
{
    GGUF_TRY(gguf_names_create(&file->value_names, n, cursor->error));
    const size_t room = n > 0 ? n : 1;
    file->values = calloc(room, sizeof *file->values);
    file->strings = calloc(room, sizeof *file->strings);
    if (file->values == NULL || file->strings == NULL)
        return report(cursor->error, CELLAR_NO_MEMORY, -1, "no memory for %u metadata values", n);
    for (uint32_t i = 0; i < n; i++) {
        file->n_values = i + 1; /* even if it fails: its strings have to be freed */
        GGUF_TRY(parse_value(file, cursor, i));
        cursor->subject.length = 0;
    }
    return read_alignment(file, cursor->error);
}

void gguf_free_values(gguf_file *file)
{
    for (uint32_t i = 0; file->values != NULL && file->strings != NULL && i < file->n_values; i++)
        if (file->values[i].strings != &file->strings[i])
            free((void *)(uintptr_t)file->values[i].strings); /* const for everybody else */
    gguf_names_destroy(&file->value_names);
    free(file->values);
    free(file->strings);
    file->values = NULL;
    file->strings = NULL;
    file->n_values = 0;
    file->n_array_strings = 0;
}

/* ---- look-up -------------------------------------------------------------------------------- */

uint32_t gguf_count_values(const gguf_file *file)
{
    return file->n_values;
}

const gguf_value *gguf_value_at(const gguf_file *file, uint32_t index)
{
    return index < file->n_values ? &file->values[index] : NULL;
}

const gguf_value *gguf_find_value(const gguf_file *file, const char *key)
{
    uint32_t index = 0;
    return gguf_names_find(&file->value_names, key, strlen(key), &index) ? &file->values[index]
                                                                         : NULL;
}

/* ---- typed reads ---------------------------------------------------------------------------- */

static bool is_integer(gguf_type type)
{
    return type != GGUF_FLOAT32 && type != GGUF_FLOAT64 && type != GGUF_STRING &&
           type != GGUF_ARRAY && type != GGUF_BOOL;
}

static cellar_status find(const gguf_file *file, const char *key, const gguf_value **value,
                          cellar_error *error)
{
    *value = gguf_find_value(file, key);
    return *value != NULL ? CELLAR_OK : report(error, CELLAR_NOT_FOUND, -1, "no key %s", key);
}

static cellar_status refuse_type(const gguf_value *value, const char *expected, cellar_error *error)
{
    const bool is_array = value->type == GGUF_ARRAY;
    return gguf_refuse(error, CELLAR_CORRUPT, value->offset, "%.*s: expected %s, found %s%s",
                       GGUF_SHOW(value->key), expected, is_array ? "array of " : "",
                       gguf_type_name(value->element_type));
}

int64_t gguf_integer_at(const gguf_value *value, uint64_t i)
{
    assert(i < value->count && value->element_type != GGUF_STRING);
    const unsigned char *bytes = value->data + i * value_types[value->element_type].size;
    switch (value->element_type) {
    case GGUF_INT8:
        return (int8_t)bytes[0];
    case GGUF_UINT16:
        return gguf_read_u16(bytes);
    case GGUF_INT16:
        return (int16_t)gguf_read_u16(bytes);
    case GGUF_UINT32:
        return gguf_read_u32(bytes);
    case GGUF_INT32:
        return (int32_t)gguf_read_u32(bytes);
    case GGUF_INT64:
        return (int64_t)gguf_read_u64(bytes);
    case GGUF_UINT64: {
        const uint64_t number = gguf_read_u64(bytes);
        return number > INT64_MAX ? INT64_MAX : (int64_t)number;
    }
    default:
        return bytes[0]; /* uint8 and bool */
    }
}

double gguf_number_at(const gguf_value *value, uint64_t i)
{
    assert(i < value->count && value->element_type != GGUF_STRING);
    const unsigned char *bytes = value->data + i * value_types[value->element_type].size;
    if (value->element_type == GGUF_FLOAT32) {
        const uint32_t bits = gguf_read_u32(bytes);
        float number;
        memcpy(&number, &bits, sizeof number);
        return number;
    }
    if (value->element_type == GGUF_FLOAT64) {
        const uint64_t bits = gguf_read_u64(bytes);
        double number;
        memcpy(&number, &bits, sizeof number);
        return number;
    }
    if (value->element_type == GGUF_UINT64) return (double)gguf_read_u64(bytes);
    return (double)gguf_integer_at(value, i);
}

cellar_status gguf_get_u32(const gguf_file *file, const char *key, uint32_t *out,
                           cellar_error *error)
{
    const gguf_value *value;
    GGUF_TRY(find(file, key, &value, error));
    if (!is_integer(value->type)) return refuse_type(value, "an integer", error);
    const int64_t number = gguf_integer_at(value, 0);
    if (number < 0 || number > UINT32_MAX)
        return gguf_refuse(error, CELLAR_CORRUPT, value->offset,
                           "%.*s: %s value does not fit in 0 to %u", GGUF_SHOW(value->key),
                           number < 0 ? "negative" : "large", UINT32_MAX);
    *out = (uint32_t)number;
    return CELLAR_OK;
}

cellar_status gguf_get_float(const gguf_file *file, const char *key, double *out,
                             cellar_error *error)
{
    const gguf_value *value;
    GGUF_TRY(find(file, key, &value, error));
    if (value->type != GGUF_FLOAT32 && value->type != GGUF_FLOAT64)
        return refuse_type(value, "float32 or float64", error);
    *out = gguf_number_at(value, 0);
    return CELLAR_OK;
}

cellar_status gguf_get_bool(const gguf_file *file, const char *key, bool *out, cellar_error *error)
{
    const gguf_value *value;
    GGUF_TRY(find(file, key, &value, error));
    if (value->type != GGUF_BOOL) return refuse_type(value, "bool", error);
    *out = value->data[0] != 0;
    return CELLAR_OK;
}

cellar_status gguf_get_string(const gguf_file *file, const char *key, gguf_string *out,
                              cellar_error *error)
{
    const gguf_value *value;
    GGUF_TRY(find(file, key, &value, error));
    if (value->type != GGUF_STRING) return refuse_type(value, "string", error);
    *out = value->strings[0];
    return CELLAR_OK;
}

cellar_status gguf_get_array(const gguf_file *file, const char *key, gguf_type element,
                             uint64_t count_wanted, const gguf_value **out, cellar_error *error)
{
    const gguf_value *value;
    GGUF_TRY(find(file, key, &value, error));
    if (value->type != GGUF_ARRAY || value->element_type != element)
        return gguf_refuse(error, CELLAR_CORRUPT, value->offset,
                           "%.*s: expected array of %s, found %s%s", GGUF_SHOW(value->key),
                           gguf_type_name(element), value->type == GGUF_ARRAY ? "array of " : "",
                           gguf_type_name(value->element_type));
    if (count_wanted != 0 && value->count != count_wanted)
        return gguf_refuse(error, CELLAR_CORRUPT, value->offset,
                           "%.*s: expected an array of %llu elements, found %llu",
                           GGUF_SHOW(value->key), (unsigned long long)count_wanted,
                           (unsigned long long)value->count);
    *out = value;
    return CELLAR_OK;
}
