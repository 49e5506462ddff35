/*
 * session_model.h: MODEL: who a session belongs to, and how its layers are.
 *
 * What is written is what the memory uses, defaults filled in, and nothing that its kind of layer has no
 * use for; so two memories that compute the same write the same.
 */
#ifndef CL_SESSION_MODEL_H
#define CL_SESSION_MODEL_H

#include "session.h"
#include "session_sink.h"

/* MODEL of a memory, with these facts. */
void cl_model_put(const cellar_memory *memory, const cellar_note *facts, uint32_t n_facts,
                  cl_sink *sink);

/*
 * Read it; the cursor begins at byte `base` of the file and ends where the section ends. Everything that
 * the page says of MODEL is checked. CELLAR_CORRUPT (error->at: offset), CELLAR_NO_MEMORY; then nothing
 * is held.
 */
cellar_status cl_model_read(cl_cursor *cursor, cl_alloc *alloc, cl_saved_model *model,
                            uint64_t base, cellar_error *error);
void cl_model_free(cl_saved_model *model, cl_alloc *alloc);

/*
 * Can the session be loaded into the memory? CELLAR_MISMATCH names the field and both values; error->at:
 * the layer, -1 for facts and groups. CELLAR_UNSUPPORTED: external layers.
 */
cellar_status cl_model_compare(const cl_saved_model *model, const cellar_memory *memory,
                               const cellar_load_options *options, cellar_error *error);

/* CELLAR_UNSUPPORTED if the rows of some layer are the engine's. */
cellar_status cl_model_check_rows(const cellar_memory *memory, cellar_error *error);

#endif /* CL_SESSION_MODEL_H */
