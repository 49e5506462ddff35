/*
 * model_metadata.c: numbers from a model's metadata, checked against bounds.
 *
 * gguf.c has made sure that the bytes are there and of the type they claim; here it is made sure
 * that the values make sense. A key is the architecture's name, a dot and what the caller asks for.
 * Every refusal reads "<key>: expected <what>, found <value>", with the value's offset.
 */
#include "engine/model_read.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

typedef struct full_key {
    char text[MODEL_KEY_SIZE];
} full_key;

static full_key with_architecture(const model *m, const char *key)
{
    full_key full;
    snprintf(full.text, sizeof full.text, "%s.%s", m->architecture->name, key);
    return full;
}

/* Offset of a key's value, -1 if there is no such key. */
static int64_t offset_of(const model *m, const char *full)
{
    const gguf_value *value = gguf_find_value(m->file, full);
    return value == NULL ? -1 : (int64_t)value->offset;
}

static cellar_status refuse_integer(const model *m, const char *full, uint32_t min, uint32_t max,
                                    int64_t found, cellar_error *error)
{
    return report(error, CELLAR_CORRUPT, offset_of(m, full),
                  "%s: expected %" PRIu32 " to %" PRIu32 ", found %" PRId64, full, min, max, found);
}

static cellar_status refuse_missing(const char *full, cellar_error *error)
{
    return report(error, CELLAR_CORRUPT, -1, "%s: expected this key, found none", full);
}

const gguf_value *model_find_value(const model *m, const char *key)
{
    full_key full = with_architecture(m, key);
    return gguf_find_value(m->file, full.text);
}

bool model_has_key(const model *m, const char *key)
{
    return model_find_value(m, key) != NULL;
}

/* Read `full` into *out; *is_present says whether it is there. */
static cellar_status read_integer(const model *m, const char *full, uint32_t min, uint32_t max,
                                  bool *is_present, uint32_t *out, cellar_error *error)
{
    uint32_t found = 0;
    *is_present = false;
    cellar_status status = gguf_get_u32(m->file, full, &found, error);
    if (status == CELLAR_NOT_FOUND) {
        return CELLAR_OK;
    }
    if (status != CELLAR_OK) {
        return status;
    }
    *is_present = true;
    if (found < min || found > max) {
        return refuse_integer(m, full, min, max, found, error);
    }
    *out = found;
    return CELLAR_OK;
}

cellar_status model_read_u32(const model *m, const char *key, uint32_t min, uint32_t max,
                             uint32_t *out, cellar_error *error)
{
    full_key full = with_architecture(m, key);
    bool is_present;
    cellar_status status = read_integer(m, full.text, min, max, &is_present, out, error);
    if (status == CELLAR_OK && !is_present) {
        return refuse_missing(full.text, error);
    }
    return status;
}

cellar_status model_read_u32_or(const model *m, const char *key, uint32_t min, uint32_t max,
                                uint32_t absent, uint32_t *out, cellar_error *error)
{
    full_key full = with_architecture(m, key);
    bool is_present;
    *out = absent;
    return read_integer(m, full.text, min, max, &is_present, out, error);
}

static bool is_integer_type(gguf_type type)
{
    return type != GGUF_FLOAT32 && type != GGUF_FLOAT64 && type != GGUF_BOOL &&
           type != GGUF_STRING && type != GGUF_ARRAY;
}

/* An array with one integer for each layer. */
static cellar_status read_array(const model *m, const gguf_value *value, const char *full,
                                uint32_t min, uint32_t max, uint32_t *out, cellar_error *error)
{
    if (!is_integer_type(value->element_type)) {
        return report(error, CELLAR_CORRUPT, (int64_t)value->offset,
                      "%s: expected an array of integers, found an array of %s", full,
                      gguf_type_name(value->element_type));
    }
    if (value->count != m->n_layers) {
        return report(error, CELLAR_CORRUPT, (int64_t)value->offset,
                      "%s: expected %" PRIu32 " elements, one for each layer, found %" PRIu64, full,
                      m->n_layers, value->count);
    }
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        int64_t found = gguf_integer_at(value, layer);
        if (found < (int64_t)min || found > (int64_t)max) {
            return refuse_integer(m, full, min, max, found, error);
        }
        out[layer] = (uint32_t)found;
    }
    return CELLAR_OK;
}

cellar_status model_read_per_layer(const model *m, const char *key, uint32_t min, uint32_t max,
                                   const uint32_t *absent, uint32_t *out, cellar_error *error)
{
    full_key full = with_architecture(m, key);
    const gguf_value *value = gguf_find_value(m->file, full.text);
    if (value == NULL && absent == NULL) {
        return refuse_missing(full.text, error);
    }
    if (value == NULL) {
        memcpy(out, absent, m->n_layers * sizeof *out);
        return CELLAR_OK;
    }
    if (value->type == GGUF_ARRAY) {
        return read_array(m, value, full.text, min, max, out, error);
    }
    bool is_present;
    uint32_t one = 0;
    cellar_status status = read_integer(m, full.text, min, max, &is_present, &one, error);
    for (uint32_t layer = 0; status == CELLAR_OK && layer < m->n_layers; layer++) {
        out[layer] = one;
    }
    return status;
}

cellar_status model_refuse_key(const model *m, const char *key, const char *what, double found,
                               cellar_error *error)
{
    full_key full = with_architecture(m, key);
    return report(error, CELLAR_CORRUPT, offset_of(m, full.text), "%s: expected %s, found %g",
                  full.text, what, found);
}

cellar_status model_read_number_or(const model *m, const char *key, double min, double max,
                                   double *out, cellar_error *error)
{
    full_key full = with_architecture(m, key);
    double found = 0;
    cellar_status status = gguf_get_float(m->file, full.text, &found, error);
    if (status == CELLAR_NOT_FOUND) {
        return CELLAR_OK;
    }
    if (status != CELLAR_OK) {
        return status;
    }
    if (!isfinite(found) || found < min || found > max) {
        return report(error, CELLAR_CORRUPT, offset_of(m, full.text),
                      "%s: expected a number in %g to %g, found %g", full.text, min, max, found);
    }
    *out = found;
    return CELLAR_OK;
}

cellar_status model_read_positive(const model *m, const char *key, bool is_required, double *out,
                                  cellar_error *error)
{
    full_key full = with_architecture(m, key);
    double found = 0;
    cellar_status status = gguf_get_float(m->file, full.text, &found, error);
    if (status == CELLAR_NOT_FOUND) {
        return is_required ? refuse_missing(full.text, error) : CELLAR_OK;
    }
    if (status != CELLAR_OK) {
        return status;
    }
    if (!isfinite(found) || found <= 0) {
        return model_refuse_key(m, key, "a finite number above 0", found, error);
    }
    *out = found;
    return CELLAR_OK;
}

cellar_status model_read_string_or(const model *m, const char *key, gguf_string *out,
                                   cellar_error *error)
{
    full_key full = with_architecture(m, key);
    *out = (gguf_string){.data = "", .length = 0};
    cellar_status status = gguf_get_string(m->file, full.text, out, error);
    return status == CELLAR_NOT_FOUND ? CELLAR_OK : status;
}
