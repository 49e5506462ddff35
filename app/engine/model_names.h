/*
 * model_names.h: which tensors of a file a model has asked for, while it loads.
 *
 * A plain growing list, because it is walked only once, at the end, to name a tensor that nobody
 * asked for. Asking for one twice is noted twice, which does no harm.
 */
#ifndef APP_MODEL_NAMES_H
#define APP_MODEL_NAMES_H

#include "engine/model.h"

typedef struct model_names {
    const gguf_tensor **tensors; /* [n], room for `capacity` */
    size_t n, capacity;
} model_names;

/* CELLAR_NO_MEMORY. */
cellar_status model_names_add(model_names *names, const gguf_tensor *tensor, cellar_error *error);

/*
 * The first tensor of the file that is neither in the list nor excused by its name; NULL: all are.
 */
const gguf_tensor *model_names_first_missing(const model_names *names, const gguf_file *file,
                                             bool (*is_excused)(gguf_string name));

void model_names_free(model_names *names);

/* Give back what model_allocate gave (model_tensors.c). */
void model_free_copies(model *m);

#endif /* APP_MODEL_NAMES_H */
