/*
 * engine_memory.h: the memory that an engine makes, for engine.c alone.
 *
 * What others may ask of it (a plan without a memory) is engine_plan in engine.h.
 */
#ifndef APP_ENGINE_MEMORY_H
#define APP_ENGINE_MEMORY_H

#include "engine/engine.h"

/* Micro-batches are never larger than the memory. */
uint32_t engine_usable_ubatch(const engine_options *options);

/*
 * Make it; the workers must outlive it. CELLAR_INVALID; CELLAR_NO_MEMORY, with what was asked for in
 * vain and what to do about it.
 */
cellar_status engine_make_memory(const model *m, const engine_options *options,
                                 block_workers *workers, cellar_memory **out, cellar_error *error);

#endif /* APP_ENGINE_MEMORY_H */
