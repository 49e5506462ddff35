/*
 * block_workers.c: run a job on all threads, or on one if it is small.
 *
 * The parts of a job do not know who runs them, so running them one after the other on the calling
 * thread gives the same results. The library's jobs come through here too: block_attention.c says how
 * large they are before it calls. Cannot fail.
 */
#include "engine/block.h"

void block_workers_run(void *workers, cellar_task task, void *argument)
{
    const block_workers *w = workers;
    if (w->work >= BLOCK_SMALL_JOB) {
        threads_run(w->threads, task, argument);
        return;
    }
    uint32_t n_parts = threads_count(w->threads);
    for (uint32_t part = 0; part < n_parts; part++) {
        task(argument, part, n_parts);
    }
}
