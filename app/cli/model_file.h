/*
 * model_file.h: the model that a command works with: a GGUF file, or the one that is built in.
 *
 * File, weights and vocabulary point into each other, so they are opened and closed together. Every
 * command that takes -m goes through here, and refuses the same things with the same words.
 */
#ifndef APP_MODEL_FILE_H
#define APP_MODEL_FILE_H

#include <stdbool.h>

#include "cli/options.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "tokenizer/tokenizer.h"

/* A model with its vocabulary. All NULL: nothing is open. */
typedef struct model_file {
    gguf_file *file;
    model *model; /* NULL: only the vocabulary was asked for */
    tokenizer *tokenizer;
} model_file;

/*
 * Open the file at `path` (NULL: the built-in model), mapped or, with `is_read`, read into memory. A
 * session is refused by that name. What model_load and tokenizer_create return; to be closed
 * whatever it returns.
 */
cellar_status model_file_open(const char *path, bool is_read, model_file *out, cellar_error *error);

/* The same without the weights: a file that has a vocabulary alone will do. */
cellar_status model_file_open_vocabulary(const char *path, model_file *out, cellar_error *error);

void model_file_close(model_file *its);

/* How the model is called in a message: its path, or "the built-in model". */
const char *model_file_name(const char *path);

#endif /* APP_MODEL_FILE_H */
