/*
 * model_window.c: which layers look back through a window, and how far.
 *
 *   attention.sliding_window          W: the last W tokens are seen; 0 or absent: as the caller says
 *   attention.sliding_window_pattern  P: of every P layers all but the last have the window; or an
 *                                     array that says for each layer whether it has
 *
 * (Names: published model files. The models: Gemma 2, arXiv:2408.00118, section 2; Gemma 3,
 * arXiv:2503.19786, section 2; Command A, arXiv:2504.00698, section 2.) Fails as model_read.h says.
 */
#include "engine/model_arch.h"

#include <inttypes.h>

#include "report.h"

#define MAX_WINDOW (1u << 30)

static const char pattern_key[] = "attention.sliding_window_pattern";

static cellar_status read_list(const model *m, const gguf_value *value, bool *out,
                               cellar_error *error)
{
    if (value->element_type == GGUF_FLOAT32 || value->element_type == GGUF_FLOAT64 ||
        value->element_type == GGUF_STRING || value->count != m->n_layers) {
        return report(error, CELLAR_CORRUPT, (int64_t)value->offset,
                      "%s.%s: expected %" PRIu32 " truth values, one for each layer, found %" PRIu64
                      " of type %s",
                      m->architecture->name, pattern_key, m->n_layers, value->count,
                      gguf_type_name(value->element_type));
    }
    for (uint32_t i = 0; i < m->n_layers; i++) {
        out[i] = gguf_integer_at(value, i) != 0;
    }
    return CELLAR_OK;
}

static cellar_status read_pattern(const model *m, uint32_t period, bool *out, cellar_error *error)
{
    const gguf_value *value = model_find_value(m, pattern_key);
    if (value != NULL && value->type == GGUF_ARRAY) {
        return read_list(m, value, out, error);
    }
    cellar_status status = model_read_u32_or(m, pattern_key, 1, INT32_MAX, period, &period, error);
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        out[i] = (i + 1) % period != 0;
    }
    return status;
}

cellar_status model_read_windows(model *m, uint32_t absent, uint32_t period, model_windows *out,
                                 cellar_error *error)
{
    const char *key = "attention.sliding_window";
    uint32_t size;
    *out = (model_windows){.is_window = NULL};
    cellar_status status = absent == MODEL_WINDOW_REQUIRED
                               ? model_read_u32(m, key, 1, MAX_WINDOW, &size, error)
                               : model_read_u32_or(m, key, 0, MAX_WINDOW, absent, &size, error);
    if (status != CELLAR_OK || size == 0) {
        return status;
    }
    out->window = (cellar_window){.kind = CELLAR_WINDOW_STANDARD, .size = size};
    out->is_window = model_allocate(m, m->n_layers, sizeof *out->is_window, error);
    return out->is_window == NULL ? CELLAR_NO_MEMORY
                                  : read_pattern(m, period, out->is_window, error);
}
