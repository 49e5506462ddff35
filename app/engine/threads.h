/*
 * threads.h: a fixed set of worker threads that run one job at a time.
 *
 * threads_run calls task(argument, part, n) for each part 0..n-1, part 0 on the calling thread,
 * and returns when all are done. Waiting threads spin for a bounded while, then sleep. Its
 * signature is that of cellar_workers.run, so the library's attention runs on the same threads.
 */
#ifndef APP_THREADS_H
#define APP_THREADS_H

#include "cellar.h"

typedef struct threads threads;

/*
 * Start n - 1 threads (n in 1..512); the caller is the other one. CELLAR_INVALID, CELLAR_NO_MEMORY
 * (a thread could not be started; those that were are gone again).
 */
cellar_status threads_create(uint32_t n, threads **out, cellar_error *error);
void threads_destroy(threads *pool); /* NULL is allowed */
uint32_t threads_count(const threads *pool);

/* `pool` is a threads *, as void * to fit cellar_workers. One caller at a time. */
void threads_run(void *pool, cellar_task task, void *argument);

#endif /* APP_THREADS_H */
