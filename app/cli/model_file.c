/*
 * model_file.c: open, load, read the vocabulary; and give it all back in the opposite order.
 *
 * The parts point into each other (the model and the tokenizer into the file), which is why they go
 * together. A session given for a model is a common slip, and is told from a damaged file; so is a
 * file with a vocabulary alone.
 */
#include "cli/model_file.h"

#include "builtin_model.h"
#include "cli/session_command.h"
#include "report.h"

static cellar_status open_file(const char *path, bool is_read, model_file *out, cellar_error *error)
{
    *out = (model_file){.file = NULL};
    if (path == NULL) {
        return gguf_open_memory(builtin_model_begin, builtin_model_size(), &out->file, error);
    }
    if (session_is_one(path)) {
        return report(
            error, CELLAR_INVALID, -1,
            "a session, not a model: 'cellar run' and 'cellar chat' take it by --session");
    }
    return is_read ? gguf_load(path, &out->file, error) : gguf_open(path, &out->file, error);
}

cellar_status model_file_open(const char *path, bool is_read, model_file *out, cellar_error *error)
{
    cellar_status status = open_file(path, is_read, out, error);
    if (status == CELLAR_OK && gguf_count_tensors(out->file) == 0) {
        status = report(error, CELLAR_UNSUPPORTED, -1,
                        "has no tensors, so it is no model: a vocabulary alone serves 'cellar "
                        "tokenize' and 'detokenize'");
    }
    if (status == CELLAR_OK) {
        status = model_load(out->file, &out->model, error);
    }
    return status == CELLAR_OK ? tokenizer_create(out->file, &out->tokenizer, error) : status;
}

cellar_status model_file_open_vocabulary(const char *path, model_file *out, cellar_error *error)
{
    cellar_status status = open_file(path, false, out, error);
    return status == CELLAR_OK ? tokenizer_create(out->file, &out->tokenizer, error) : status;
}

void model_file_close(model_file *its)
{
    tokenizer_destroy(its->tokenizer);
    model_free(its->model);
    gguf_close(its->file);
    *its = (model_file){.file = NULL};
}

const char *model_file_name(const char *path)
{
    return path != NULL ? path : "the built-in model";
}
