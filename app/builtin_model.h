/*
 * builtin_model.h: the model that comes with the program.
 *
 * The bytes of a whole GGUF file, linked into the program's read-only data (builtin_model.S) and aligned to
 * 64 bytes. The file is [builtin_model_begin, builtin_model_end); give it to gguf_open_memory, which checks
 * it like any other.
 */
#ifndef APP_BUILTIN_MODEL_H
#define APP_BUILTIN_MODEL_H

#include <stddef.h>

extern const unsigned char builtin_model_begin[];
extern const unsigned char builtin_model_end[];

/* What `cellar --version` and `cellar run` call it. */
#define BUILTIN_MODEL_NAME "storyteller"

static inline size_t builtin_model_size(void)
{
    return (size_t)(builtin_model_end - builtin_model_begin);
}

#endif /* APP_BUILTIN_MODEL_H */
