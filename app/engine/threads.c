/*
 * threads.c: a fixed set of worker threads that run one job at a time.
 *
 * The idea: a job is published by raising one number, the generation. Each worker remembers the
 * last generation it served and waits for another one; when it has run its part it lowers
 * `n_running`, and the caller waits for 0. Both waits spin for SPIN_NANOSECONDS, which bridges the
 * gap between two jobs of one forward pass, and then sleep on a condition variable, so that an
 * idle pool costs nothing. With more threads than processors spinning would only keep a core
 * from the thread that is waited for: then nobody spins.
 *
 * No wake-up is lost: who goes to sleep first announces it (n_sleeping, is_caller_asleep) and then
 * looks at the number again; who changes the number changes it first and then looks whether
 * anybody is asleep. Both steps are sequentially consistent, so at least one of the two sees the
 * other, and the mutex, held from the announcement to the sleep, orders the rest.
 *
 * task and argument are plain members: they are written before the generation rises and read after
 * it was seen to have risen, and only written again when every worker has lowered n_running.
 *
 * How it fails: a thread that cannot be started takes down those that were; nothing stays behind.
 */
#define _POSIX_C_SOURCE 200809L

#include "engine/threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "report.h"

#define MOST_THREADS 512u
/* Long enough for the differences between parts and for what stands between jobs: waking a sleeper is slow in a virtual machine,
 * and with 10 microseconds generation had half the speed (docs/performance.md). */
#define SPIN_NANOSECONDS 100000
#define PAUSES_PER_LOOK_AT_THE_CLOCK 8

/* A worker's own entry: which part it runs. */
typedef struct worker {
    threads *pool;
    uint32_t part; /* 1..n-1 */
    pthread_t thread;
} worker;

struct threads {
    uint32_t n;         /* parts of a job, the caller's included */
    uint32_t n_started; /* workers that exist: n - 1 once creation is over */
    bool is_spinning;   /* spin before sleeping */
    bool is_stopping;   /* set before the last generation */

    cellar_task task; /* the job of the current generation */
    void *argument;

    atomic_uint generation;       /* rises by one with each job; may wrap, only equality is asked */
    atomic_uint n_running;        /* workers that have not finished the current job */
    atomic_uint n_sleeping;       /* workers that sleep, or are about to, on `wake` */
    atomic_bool is_caller_asleep; /* the caller sleeps, or is about to, on `done` */

    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    worker workers[]; /* [n - 1] */
};

static void pause_processor(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Spin until *number is `wanted` (or, with is_change, is not); false: not within the time. */
static bool spin_until(const threads *pool, atomic_uint *number, unsigned wanted, bool is_change)
{
    if ((atomic_load(number) == wanted) != is_change) {
        return true;
    }
    if (!pool->is_spinning) {
        return false;
    }
    int64_t end = nanoseconds() + SPIN_NANOSECONDS;
    do {
        for (int i = 0; i < PAUSES_PER_LOOK_AT_THE_CLOCK; i++) {
            pause_processor();
            if ((atomic_load(number) == wanted) != is_change) {
                return true;
            }
        }
    } while (nanoseconds() < end);
    return false;
}

static void wait_for_another_generation(threads *pool, unsigned seen)
{
    if (spin_until(pool, &pool->generation, seen, true)) {
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleeping, 1);
    while (atomic_load(&pool->generation) == seen) {
        pthread_cond_wait(&pool->wake, &pool->mutex);
    }
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void finish_part(threads *pool)
{
    if (atomic_fetch_sub(&pool->n_running, 1) == 1 && atomic_load(&pool->is_caller_asleep)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->mutex);
    }
}

static void *work(void *argument)
{
    const worker *self = argument;
    threads *pool = self->pool;
    unsigned seen = 0;
    for (;;) {
        wait_for_another_generation(pool, seen);
        seen++; /* the next job is not published before this one is finished everywhere */
        if (pool->is_stopping) {
            return NULL;
        }
        pool->task(pool->argument, self->part, pool->n);
        finish_part(pool);
    }
}

static void publish(threads *pool)
{
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->n_sleeping) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
}

static void wait_for_workers(threads *pool)
{
    if (spin_until(pool, &pool->n_running, 0, false)) {
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->is_caller_asleep, true);
    while (atomic_load(&pool->n_running) > 0) {
        pthread_cond_wait(&pool->done, &pool->mutex);
    }
    atomic_store(&pool->is_caller_asleep, false);
    pthread_mutex_unlock(&pool->mutex);
}

void threads_run(void *pool_of_threads, cellar_task task, void *argument)
{
    threads *pool = pool_of_threads;
    if (pool->n == 1) {
        task(argument, 0, 1);
        return;
    }
    pool->task = task;
    pool->argument = argument;
    atomic_store(&pool->n_running, pool->n - 1);
    publish(pool);
    task(argument, 0, pool->n);
    wait_for_workers(pool);
}

uint32_t threads_count(const threads *pool)
{
    return pool->n;
}

/* ---- life cycle ----------------------------------------------------------------------------- */

/* Signals belong to the thread that made the pool, except those that a fault raises. */
static void block_signals(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

/* 0, or the error number of the thread that could not be started. */
static int start_workers(threads *pool)
{
    sigset_t before;
    int failure = 0;
    block_signals(&before);
    while (failure == 0 && pool->n_started < pool->n - 1) {
        worker *next = &pool->workers[pool->n_started];
        next->pool = pool;
        next->part = pool->n_started + 1;
        failure = pthread_create(&next->thread, NULL, work, next);
        pool->n_started += failure == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

static bool init_waiting(threads *pool)
{
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) {
        return false;
    }
    if (pthread_cond_init(&pool->wake, NULL) == 0) {
        if (pthread_cond_init(&pool->done, NULL) == 0) {
            return true;
        }
        pthread_cond_destroy(&pool->wake);
    }
    pthread_mutex_destroy(&pool->mutex);
    return false;
}

cellar_status threads_create(uint32_t n, threads **out, cellar_error *error)
{
    *out = NULL;
    if (n < 1 || n > MOST_THREADS) {
        return report(error, CELLAR_INVALID, -1, "number of threads %u is not in 1..%u",
                      (unsigned)n, MOST_THREADS);
    }
    threads *pool = calloc(1, sizeof *pool + (n - 1) * sizeof pool->workers[0]);
    if (pool == NULL || !init_waiting(pool)) {
        free(pool);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %u threads", (unsigned)n);
    }
    pool->n = n;
    pool->is_spinning = sysconf(_SC_NPROCESSORS_ONLN) >= (long)n;
    int failure = start_workers(pool);
    if (failure != 0) {
        unsigned failed = pool->n_started + 2; /* the caller is number 1 */
        threads_destroy(pool);
        return report(error, CELLAR_NO_MEMORY, -1,
                      "thread %u of %u could not be started (%s), ask for fewer", failed,
                      (unsigned)n, strerror(failure));
    }
    *out = pool;
    return CELLAR_OK;
}

void threads_destroy(threads *pool)
{
    if (pool == NULL) {
        return;
    }
    pool->is_stopping = true;
    publish(pool);
    for (uint32_t i = 0; i < pool->n_started; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}
