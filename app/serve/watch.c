/*
 * watch.c: a list of sockets with their times, and the thread that looks at them, for watch.h.
 *
 * Entries are opened and closed by the HTTP library's threads, before the socket is closed and its number used
 * again; the lock keeps the two apart. Shutting a socket does not close it.
 */
#define _POSIX_C_SOURCE 200809L

#include "serve/watch.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "report.h"
#include "serve/job.h"

#define LOOK_SECONDS 0.25
#define CROWDED_SECONDS 5.0 /* for a request that is not whole, when connections are scarce */

struct watch_entry {
    watch_entry *next, **before;
    int socket;
    double since, until; /* 0: no end */
    bool is_expected;    /* it is sending a request, or could */
};

struct watch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    watch_entry *first;
    uint32_t n, n_most;
    bool is_stopping;
};

/* With the lock. */
static void look(watch *w)
{
    const double now = job_now();
    const bool is_crowded = w->n > w->n_most - w->n_most / 4;
    for (watch_entry *e = w->first; e != NULL; e = e->next) {
        const bool is_over = e->until > 0 && now > e->until;
        const bool is_in_the_way = is_crowded && e->is_expected && now > e->since + CROWDED_SECONDS;
        if (is_over || is_in_the_way) {
            shutdown(e->socket, SHUT_RDWR);
            e->until = 0;
            e->is_expected = false;
        }
    }
}

static void *run_thread(void *argument)
{
    watch *w = argument;
    pthread_mutex_lock(&w->lock);
    while (!w->is_stopping) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)(LOOK_SECONDS * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&w->changed, &w->lock, &until);
        look(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

cellar_status watch_create(uint32_t n_most, watch **out, cellar_error *error)
{
    *out = NULL;
    watch *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for watching connections");
    }
    w->n_most = n_most;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (pthread_create(&w->thread, NULL, run_thread, w) != 0) {
        pthread_mutex_destroy(&w->lock);
        pthread_cond_destroy(&w->changed);
        free(w);
        return report(error, CELLAR_IO, -1, "no thread for watching connections");
    }
    *out = w;
    return CELLAR_OK;
}

void watch_destroy(watch *w)
{
    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->is_stopping = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w);
}

watch_entry *watch_open(watch *w, int socket)
{
    watch_entry *entry = calloc(1, sizeof *entry);
    if (entry != NULL) {
        entry->socket = socket;
        pthread_mutex_lock(&w->lock);
        entry->next = w->first;
        entry->before = &w->first;
        if (w->first != NULL) {
            w->first->before = &entry->next;
        }
        w->first = entry;
        w->n++;
        pthread_mutex_unlock(&w->lock);
    }
    return entry;
}

void watch_close(watch *w, watch_entry *entry)
{
    if (entry != NULL) {
        pthread_mutex_lock(&w->lock);
        *entry->before = entry->next;
        if (entry->next != NULL) {
            entry->next->before = entry->before;
        }
        w->n--;
        pthread_mutex_unlock(&w->lock);
        free(entry);
    }
}

static void set(watch *w, watch_entry *entry, double seconds, bool is_expected)
{
    if (entry != NULL) {
        const double now = job_now();
        pthread_mutex_lock(&w->lock);
        entry->since = now;
        entry->until = seconds > 0 ? now + seconds : 0;
        entry->is_expected = is_expected;
        pthread_mutex_unlock(&w->lock);
    }
}

void watch_allow(watch *w, watch_entry *entry, double seconds)
{
    set(w, entry, seconds, false);
}

void watch_expect(watch *w, watch_entry *entry, double seconds)
{
    set(w, entry, seconds, true);
}

uint32_t watch_count(watch *w)
{
    pthread_mutex_lock(&w->lock);
    const uint32_t n = w->n;
    pthread_mutex_unlock(&w->lock);
    return n;
}
