/*
 * model_names.c: the list of tensors that were asked for. See model_names.h.
 *
 * Finding the first tensor that is missing compares every tensor of the file with the list, but
 * stops at the first that is not there; before it all are, so the cost is bounded by the square of
 * what the architecture asks for (some 6,000 at most), not by what the file holds.
 */
#include "engine/model_names.h"

#include <stdlib.h>

#include "report.h"

cellar_status model_names_add(model_names *names, const gguf_tensor *tensor, cellar_error *error)
{
    if (names->n == names->capacity) {
        size_t capacity = names->capacity == 0 ? 64 : 2 * names->capacity;
        const gguf_tensor **grown = realloc(names->tensors, capacity * sizeof *grown);
        if (grown == NULL) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for %zu names of tensors",
                          capacity);
        }
        names->tensors = grown;
        names->capacity = capacity;
    }
    names->tensors[names->n++] = tensor;
    return CELLAR_OK;
}

static bool holds(const model_names *names, const gguf_tensor *tensor)
{
    for (size_t i = 0; i < names->n; i++) {
        if (names->tensors[i] == tensor) {
            return true;
        }
    }
    return false;
}

const gguf_tensor *model_names_first_missing(const model_names *names, const gguf_file *file,
                                             bool (*is_excused)(gguf_string name))
{
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        if (!holds(names, tensor) && !is_excused(tensor->name)) {
            return tensor;
        }
    }
    return NULL;
}

void model_names_free(model_names *names)
{
    free(names->tensors);
    *names = (model_names){.n = 0};
}
