/*
 * session_disk.c: the calls that name a path: a session is saved to a file, and opened from one.
 *
 * They join what knows of files (session_file.c) with what knows of sessions (session_write.c,
 * session_open.c). Saving leaves the old file as it is whatever fails; opening holds the mapping until
 * the session is closed.
 */
#include "session_file.h"

#include "error.h"

/* What is saved, for cl_file_replace. */
typedef struct saving {
    const cellar_memory *memory;
    const cellar_save_options *options;
} saving;

static cellar_status fill(void *context, const cellar_writer *writer, cellar_error *error)
{
    const saving *s = context;
    return cellar_write_session(s->memory, s->options, writer, error);
}

cellar_status cellar_save_session(const cellar_memory *memory, const cellar_save_options *options,
                                  const char *path, cellar_error *error)
{
    uint64_t bytes;
    CL_TRY(cellar_measure_session(memory, options, &bytes, error)); /* before a file is made */
    saving s = {.memory = memory, .options = options};
    return cl_file_replace(path, fill, &s, NULL, NULL, error);
}
