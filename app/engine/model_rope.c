/*
 * model_rope.c: the rotary embedding as a model file describes it.
 *
 *   rope.dimension_count                 leading elements of a head that rotate; absent: all
 *   rope.freq_base                       absent: 10000
 *   rope.scaling.type                    none, linear, yarn, longrope; absent: linear, with factor 1
 *   rope.scaling.factor                  how many times longer than trained
 *   rope.scale_linear                    the same, in older files
 *   rope.scaling.original_context_length what it was trained with; absent: context_length
 *   rope.scaling.attn_factor             magnitude; also rope.scaling.yarn_attn_factor
 *   rope.scaling.yarn_ext_factor, yarn_beta_fast, yarn_beta_slow
 *   tensor rope_freqs.weight             a divisor for each frequency
 *
 * (Names: the GGUF specification and published model files.) Every number is bounded, so that no
 * angle can become infinite or NaN: a position times the largest frequency stays finite in double.
 */
#include "engine/model_read.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report.h"

#define MAX_FACTOR 1e6
#define NO_TURN 1e15 /* a divisor from here on says that a pair does not turn (files have 1e30) */

static bool is_text(gguf_string s, const char *text)
{
    return s.length == strlen(text) && memcmp(s.data, text, s.length) == 0;
}

static cellar_status read_rotated(const model *m, uint32_t k_size, cellar_rope *out,
                                  cellar_error *error)
{
    const char *key = "rope.dimension_count";
    cellar_status status = model_read_u32_or(m, key, 2, k_size, k_size, &out->n_rot, error);
    if (status == CELLAR_OK && out->n_rot % 2 != 0) {
        return model_refuse_key(m, key, "an even number", out->n_rot, error);
    }
    return status;
}

/* rope.scaling.factor, or the key it had before. 1 if there is neither. */
static cellar_status read_factor(const model *m, double *factor, cellar_error *error)
{
    const char *key = "rope.scaling.factor";
    if (!model_has_key(m, key)) {
        key = "rope.scale_linear";
    }
    return model_read_number_or(m, key, 1 / MAX_FACTOR, MAX_FACTOR, factor, error);
}

/* What only YaRN reads. */
static cellar_status read_yarn(const model *m, cellar_rope *out, cellar_error *error)
{
    double magnitude = 1;
    out->yarn_ext = 1;
    cellar_status status;
    if ((status = model_read_number_or(m, "rope.scaling.yarn_ext_factor", 0, 1, &out->yarn_ext,
                                       error)) != CELLAR_OK ||
        (status = model_read_number_or(m, "rope.scaling.yarn_attn_factor", 1 / MAX_FACTOR,
                                       MAX_FACTOR, &magnitude, error)) != CELLAR_OK ||
        (status = model_read_number_or(m, "rope.scaling.yarn_beta_fast", 1 / MAX_FACTOR, MAX_FACTOR,
                                       &out->yarn_beta_fast, error)) != CELLAR_OK ||
        (status = model_read_number_or(m, "rope.scaling.yarn_beta_slow", 1 / MAX_FACTOR, MAX_FACTOR,
                                       &out->yarn_beta_slow, error)) != CELLAR_OK) {
        return status;
    }
    out->yarn_attn *= magnitude;
    return model_read_u32_or(m, "rope.scaling.original_context_length", 1, INT32_MAX, m->n_context,
                             &out->yarn_context, error);
}

static cellar_status read_scaling(const model *m, cellar_rope *out, cellar_error *error)
{
    gguf_string type;
    double factor = 1;
    cellar_status status = model_read_string_or(m, "rope.scaling.type", &type, error);
    if (status != CELLAR_OK) {
        return status;
    }
    /* Of longrope the architecture reads the rest, or its tensors are refused. */
    bool is_long = is_text(type, "longrope") && model_has_tensor(m, "rope_factors_long.weight");
    if (is_text(type, "none") || is_long) {
        return CELLAR_OK;
    }
    if (type.length != 0 && !is_text(type, "linear") && !is_text(type, "yarn")) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "%s.rope.scaling.type: expected none, linear or yarn, found %.*s",
                      m->architecture->name, (int)(type.length < 40 ? type.length : 40), type.data);
    }
    status = read_factor(m, &factor, error);
    out->scale = 1 / factor;
    if (status != CELLAR_OK || !is_text(type, "yarn")) {
        return status;
    }
    if (factor < 1) {
        return model_refuse_key(m, "rope.scaling.factor", "at least 1 with yarn", factor, error);
    }
    return read_yarn(m, out, error);
}

cellar_status model_read_divisors(model *m, const char *name, uint32_t n, const float **out,
                                  cellar_error *error)
{
    const float *given;
    cellar_status status = model_read_vector(m, name, n, &given, error);
    float *divisors = status == CELLAR_OK ? model_allocate(m, n, sizeof *divisors, error) : NULL;
    if (divisors == NULL) {
        return status == CELLAR_OK ? CELLAR_NO_MEMORY : status;
    }
    for (uint32_t i = 0; i < n; i++) {
        double divisor = (double)given[i];
        if (!(divisor >= 1 / MAX_FACTOR && (divisor <= MAX_FACTOR || divisor >= NO_TURN))) {
            return report(error, CELLAR_CORRUPT, -1,
                          "tensor %s: expected numbers in %g to %g, found %g at %" PRIu32, name,
                          1 / MAX_FACTOR, MAX_FACTOR, divisor, i);
        }
        divisors[i] = divisor >= NO_TURN ? INFINITY : given[i];
    }
    *out = divisors;
    return CELLAR_OK;
}

static cellar_status read_factors(model *m, cellar_rope *out, cellar_error *error)
{
    const char *name = "rope_freqs.weight";
    if (!model_has_tensor(m, name)) {
        return CELLAR_OK;
    }
    return model_read_divisors(m, name, out->n_rot / 2, &out->factors, error);
}

cellar_status model_read_rope(model *m, uint32_t k_size, cellar_rope *out, cellar_error *error)
{
    cellar_status status;
    if ((status = read_rotated(m, k_size, out, error)) != CELLAR_OK ||
        (status = model_read_number_or(m, "rope.freq_base", 1, 1e12, &out->base, error)) !=
            CELLAR_OK ||
        (status = model_read_number_or(m, "rope.scaling.attn_factor", 1 / MAX_FACTOR, MAX_FACTOR,
                                       &out->yarn_attn, error)) != CELLAR_OK ||
        (status = read_scaling(m, out, error)) != CELLAR_OK) {
        return status;
    }
    return read_factors(m, out, error);
}

cellar_status model_read_window_rope(const model *m, uint32_t k_size, const cellar_rope *full,
                                     double base, cellar_rope *out, cellar_error *error)
{
    const char *key = "rope.dimension_count_swa";
    uint32_t n_rot = full->n_rot < k_size ? full->n_rot : k_size;
    *out = cellar_layer_init().rope;
    out->kind = full->kind;
    out->base = base;
    cellar_status status = model_read_u32_or(m, key, 2, k_size, n_rot, &out->n_rot, error);
    if (status == CELLAR_OK && out->n_rot % 2 != 0) {
        return model_refuse_key(m, key, "an even number", out->n_rot, error);
    }
    return status == CELLAR_OK
               ? model_read_number_or(m, "rope.freq_base_swa", 1, 1e12, &out->base, error)
               : status;
}
