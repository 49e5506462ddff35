/*
 * shared_writer.c: the thread that writes values.
 *
 * What waits is taken a few at a time, as long as they are of one text and not too many bytes. First the values that may be there get
 * their time anew; those that are not there are sent. What could not be sent stays first in the queue, and is
 * tried again when the breaker lets it; what is refused three times is given up, so that one bad value
 * does not keep the others.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report.h"
#include "serve/job.h"
#include "shared/shared_parts.h"

#define MOST_TOGETHER 16u
#define MOST_TOGETHER_BYTES ((size_t)8 << 20)
#define MOST_TRIES 3u
#define WRITE_SECONDS 60.0 /* for one pipeline, as long as it moves */

typedef struct writing {
    shared_store *store;
    shared_nodes *nodes;
    shared_write *batch[MOST_TOGETHER]; /* [n] still in the queue */
    size_t n;
    char keys[MOST_TOGETHER][SHARED_KEY_BYTES];
    shared_command commands[MOST_TOGETHER];
    shared_reply replies[MOST_TOGETHER];
    char seconds[16];
    uint64_t n_connected;
    unsigned n_tries;
    cellar_error error;
} writing;

/* With the lock: the first of the queue that go together. */
static void choose(writing *w)
{
    size_t bytes = 0;
    w->n = 0;
    for (shared_write *its = w->store->writes; its != NULL && w->n < MOST_TOGETHER;
         its = its->next) {
        const bool is_other = w->n > 0 &&
                              memcmp(&its->first, &w->batch[0]->first, sizeof its->first) != 0;
        if (is_other || (w->n > 0 && bytes + its->size > MOST_TOGETHER_BYTES)) {
            return;
        }
        bytes += its->size;
        shared_names_write(&its->first, &its->name, w->keys[w->n]);
        w->batch[w->n++] = its;
    }
}

static cellar_status run(writing *w, size_t n)
{
    const shared_wait wait = {.until = job_now() + WRITE_SECONDS,
                              .idle = SHARED_IDLE_SECONDS,
                              .stop = &w->store->is_stopping};
    const cellar_status status = shared_nodes_run(w->nodes, w->keys[0] + strlen("cellar:{"),
                                                  SHARED_TAG_DIGITS, w->commands, n, &wait,
                                                  SHARED_IDLE_SECONDS, w->replies, &w->error);
    /* Time is up only for a store that does nothing but trickle. */
    return status == CELLAR_BUSY && !atomic_load(&w->store->is_stopping) ? CELLAR_IO : status;
}

static shared_command make_command(const writing *w, size_t i, bool is_there)
{
    const shared_write *its = w->batch[i];
    if (its->bytes == NULL) {
        return (shared_command){
            .n = 2, .parts = {"DEL", w->keys[i]}, .sizes = {3, SHARED_KEY_BYTES - 1}};
    }
    if (is_there) {
        return (shared_command){.n = 3,
                                .parts = {"EXPIRE", w->keys[i], w->seconds},
                                .sizes = {6, SHARED_KEY_BYTES - 1, strlen(w->seconds)}};
    }
    return (shared_command){.n = 5,
                            .parts = {"SET", w->keys[i], its->bytes, "EX", w->seconds},
                            .sizes = {3, SHARED_KEY_BYTES - 1, its->size, 2, strlen(w->seconds)}};
}

/* One of the replies is a refusal: that is the status of them all. */
static cellar_status look_for_refusal(writing *w, size_t n)
{
    cellar_status status = CELLAR_OK;
    for (size_t i = 0; i < n; i++) {
        if (w->replies[i].kind == SHARED_REFUSAL && status == CELLAR_OK) {
            status = report(&w->error, CELLAR_REFUSED, -1, "it says %.100s",
                            w->replies[i].bytes != NULL ? w->replies[i].bytes : "");
        }
        free(w->replies[i].bytes);
        w->replies[i].bytes = NULL;
    }
    return status;
}

static cellar_status write_batch(writing *w, uint64_t *n_written, uint64_t *bytes)
{
    for (size_t i = 0; i < w->n; i++) {
        w->commands[i] = make_command(w, i, true);
    }
    cellar_status status = run(w, w->n);
    size_t missing[MOST_TOGETHER], n = 0;
    for (size_t i = 0; status == CELLAR_OK && i < w->n; i++) {
        if (w->batch[i]->bytes != NULL && w->replies[i].number == 0) {
            missing[n++] = i;
        }
    }
    status = status == CELLAR_OK ? look_for_refusal(w, w->n) : status;
    for (size_t i = 0; status == CELLAR_OK && i < n; i++) {
        w->commands[i] = make_command(w, missing[i], false);
    }
    if (status == CELLAR_OK && n > 0) {
        status = run(w, n);
        status = status == CELLAR_OK ? look_for_refusal(w, n) : status;
    }
    for (size_t i = 0; status == CELLAR_OK && i < n; i++) {
        ++*n_written;
        *bytes += w->batch[missing[i]]->size;
    }
    return status;
}

/* With the lock: the batch leaves the queue. */
static void remove_batch(writing *w, bool is_written)
{
    shared_store *store = w->store;
    for (size_t i = 0; i < w->n; i++) {
        shared_write *its = w->batch[i];
        store->writes = its->next;
        store->counters.n_queued--;
        store->counters.queued_bytes -= its->size;
        if (!is_written) {
            shared_store_know(store, &its->name, false);
        }
        free(its->bytes);
        free(its);
    }
    if (store->writes == NULL) {
        store->last_write = NULL;
    }
    w->n = 0;
}

/* With the lock: a store that was away may have lost everything. */
static void note_connection(writing *w)
{
    const uint64_t n = shared_nodes_connected(w->nodes);
    if (n != w->n_connected && w->n_connected > 0) {
        memset(w->store->known, 0, sizeof w->store->known);
        for (const shared_write *its = w->store->writes; its != NULL; its = its->next) {
            if (its->bytes != NULL) {
                shared_store_know(w->store, &its->name, true);
            }
        }
    }
    w->n_connected = n;
}

/* With the lock: what became of the batch. */
static void judge(writing *w, cellar_status status, uint64_t n_written, uint64_t bytes)
{
    shared_store *store = w->store;
    note_connection(w);
    if (status == CELLAR_OK) {
        size_t n_values = 0;
        for (size_t i = 0; i < w->n; i++) {
            n_values += w->batch[i]->bytes != NULL;
        }
        store->counters.n_written += n_written;
        store->counters.bytes_written += bytes;
        store->counters.n_kept += n_values - n_written;
        shared_store_work(store, &store->writing, "writing");
        remove_batch(w, true);
        w->n_tries = 0;
        return;
    }
    if (status == CELLAR_BUSY) { /* the store stops */
        return;
    }
    shared_store_fail(store, &store->writing, "writing", &w->error);
    if (status != CELLAR_IO && ++w->n_tries >= MOST_TRIES) {
        remove_batch(w, false);
        w->n_tries = 0;
    }
}

/* With the lock: sleep until there is something to write that may be written. */
static bool wait_for_work(shared_store *store)
{
    while (!atomic_load(&store->is_stopping)) {
        const double left = store->writing.until - job_now();
        if (store->writes != NULL && left <= 0) {
            return true;
        }
        if (store->writes == NULL) {
            pthread_cond_wait(&store->changed, &store->lock);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        const double slice = left < 0.1 ? left : 0.1;
        until.tv_nsec += (long)(slice * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&store->changed, &store->lock, &until);
    }
    return false;
}

void *shared_writer_run(void *argument)
{
    shared_store *store = argument;
    writing *w = calloc(1, sizeof *w);
    shared_nodes *nodes = NULL;
    const bool is_able = w != NULL && shared_nodes_create(&store->login, &nodes, NULL) == CELLAR_OK;
    if (is_able) {
        w->store = store;
        w->nodes = nodes;
        snprintf(w->seconds, sizeof w->seconds, "%u", (unsigned)store->options.expire_seconds);
    }
    pthread_mutex_lock(&store->lock);
    store->is_closed = store->is_closed || !is_able;
    while (is_able && wait_for_work(store)) {
        uint64_t n_written = 0, bytes = 0;
        choose(w);
        pthread_mutex_unlock(&store->lock);
        const cellar_status status = write_batch(w, &n_written, &bytes);
        pthread_mutex_lock(&store->lock);
        judge(w, status, n_written, bytes);
        if (status == CELLAR_OK && store->wants_room && store->options.wake != NULL) {
            store->wants_room = false;
            pthread_mutex_unlock(&store->lock);
            store->options.wake(store->options.context);
            pthread_mutex_lock(&store->lock);
        }
    }
    pthread_mutex_unlock(&store->lock);
    shared_nodes_destroy(nodes);
    free(w);
    return NULL;
}
