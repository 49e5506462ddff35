/*
 * session_disk.c: the calls that name a path: a session is saved to a file, and opened from one.
 *
 * They join what knows of files (session_file.c) with what knows of sessions (session_write.c,
 * session_open.c). Saving leaves the old file as it is whatever fails; the file is open until the
 * session is closed.
 */
#include "session_file.h"

#include "error.h"
#include "session.h"

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

cellar_status cellar_open_session(const char *path, const cellar_allocator *allocator,
                                  cellar_session **session, cellar_error *error)
{
    if (!session) CL_FAIL(error, CELLAR_INVALID, -1, "session is NULL");
    *session = NULL;
    cl_file_source source;
    CL_TRY(cl_file_open(path, &source, error));
    const cl_bytes bytes = {
        .reader = cl_file_reader(&source), .is_shared = true, .size = source.size};
    const cellar_status status = cl_session_open(&bytes, source.file, allocator, session, error);
    if (status != CELLAR_OK) cl_file_close(source.file);
    return status;
}
