/*
 * shared_store.c: the queues, what is known of the store, and its beginning and end.
 *
 * What callers do is quick: they take the lock, look or queue, and leave. Whether looking up is worth it is
 * decided here, from what the reader measured: a store that answers later than the prompt would be read again is
 * left alone, but for one try in ten seconds.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report.h"
#include "serve/job.h"
#include "shared/shared_parts.h"

#define FIRST_SECONDS 1.0 /* that a breaker is open */
#define MOST_SECONDS 30.0
#define PROBE_SECONDS 10.0

/* ---- with the lock -------------------------------------------------------------------------- */

void shared_store_fail(shared_store *store, shared_breaker *breaker, const char *what,
                       const cellar_error *error)
{
    const bool was_closed = breaker->seconds == 0;
    breaker->seconds = was_closed ? FIRST_SECONDS : breaker->seconds * 2;
    if (breaker->seconds > MOST_SECONDS) {
        breaker->seconds = MOST_SECONDS;
    }
    breaker->until = job_now() + breaker->seconds;
    store->counters.n_failures++;
    if (was_closed && store->options.logs) {
        fprintf(stderr, "cellar serve: shared store: %s: %s; going on without it\n", what,
                error->message);
    }
}

void shared_store_work(shared_store *store, shared_breaker *breaker, const char *what)
{
    if (breaker->seconds > 0 && store->options.logs) {
        fprintf(stderr, "cellar serve: shared store: %s: works again\n", what);
    }
    *breaker = (shared_breaker){.until = 0};
}

static shared_known *place_of(shared_store *store, const shared_name *name, uint64_t *head)
{
    memcpy(head, name->bytes, sizeof *head);
    return &store->known[*head % SHARED_KNOWN];
}

void shared_store_know(shared_store *store, const shared_name *name, bool is_known)
{
    uint64_t head;
    shared_known *its = place_of(store, name, &head);
    if (is_known) {
        *its = (shared_known){.name = head, .until = job_now() + SHARED_KNOWN_SECONDS};
    } else if (its->name == head) {
        its->until = 0;
    }
}

void shared_store_let_go(shared_store *store, shared_fetch *fetch)
{
    if (--fetch->n_holders > 0) {
        return;
    }
    store->fetched_bytes -= fetch->bytes;
    for (size_t i = 0; i < fetch->n_values; i++) {
        free(fetch->values[i].bytes);
    }
    free(fetch->values);
    free(fetch->names);
    free(fetch);
}

static bool queue_write(shared_store *store, const shared_name *first, const shared_name *name,
                        void *bytes, size_t size)
{
    shared_write *w = store->counters.n_queued < SHARED_MOST_WRITES ? calloc(1, sizeof *w) : NULL;
    if (w == NULL) {
        free(bytes);
        return false;
    }
    *w = (shared_write){.first = *first, .name = *name, .bytes = bytes, .size = size};
    if (store->last_write != NULL) {
        store->last_write->next = w;
    } else {
        store->writes = w;
    }
    store->last_write = w;
    store->counters.n_queued++;
    store->counters.queued_bytes += size;
    pthread_cond_broadcast(&store->changed);
    return true;
}

void shared_store_delete(shared_store *store, const shared_name *first, const shared_name *name)
{
    shared_store_know(store, name, false);
    (void)queue_write(store, first, name, NULL, 0); /* else it is overwritten some time */
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static cellar_status prepare(shared_store *store, cellar_error *error)
{
    const shared_store_options *o = &store->options;
    cellar_status status = shared_address_read(o->address, &store->login.address, error);
    if (status == CELLAR_OK && o->password != NULL && store->login.address.password[0] == '\0') {
        if (strlen(o->password) >= sizeof store->login.address.password) {
            return report(error, CELLAR_INVALID, -1,
                          "the password of the shared store is too long");
        }
        memcpy(store->login.address.password, o->password, strlen(o->password) + 1);
    }
    if (status == CELLAR_OK && store->login.address.has_tls) {
        status = shared_tls_create(o->ca_file, &store->tls, error);
    }
    store->login.tls = store->tls;
    store->login.most_bytes = o->most_bytes < SHARED_MOST_VALUE ? (size_t)o->most_bytes
                                                                : SHARED_MOST_VALUE;
    return status;
}

/* Signals are for the main thread; a connection that breaks while OpenSSL writes is no reason to end. */
static cellar_status start_threads(shared_store *store, cellar_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    store->has_reader = pthread_create(&store->reader, NULL, shared_reader_run, store) == 0;
    store->has_writer = store->has_reader &&
                        pthread_create(&store->writer, NULL, shared_writer_run, store) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return store->has_writer ? CELLAR_OK
                             : report(error, CELLAR_IO, -1, "no thread for the shared store");
}

cellar_status shared_store_create(const shared_store_options *options, shared_store **out,
                                  cellar_error *error)
{
    *out = NULL;
    cellar_status status = shared_link_check_build(error);
    if (status != CELLAR_OK) {
        return status;
    }
    shared_store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the shared store");
    }
    store->options = *options;
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->changed, NULL);
    status = prepare(store, error);
    status = status == CELLAR_OK ? start_threads(store, error) : status;
    store->options.address = store->options.password = store->options.ca_file = NULL;
    if (status != CELLAR_OK) {
        shared_store_destroy(store);
        return status;
    }
    *out = store;
    return CELLAR_OK;
}

static void sleep_a_little(void)
{
    const struct timespec time = {.tv_nsec = 10000000};
    nanosleep(&time, NULL);
}

void shared_store_drain(shared_store *store, double seconds)
{
    const double until = job_now() + seconds;
    for (bool is_empty = false; !is_empty && job_now() < until;) {
        pthread_mutex_lock(&store->lock);
        store->is_closed = true;
        is_empty = store->writes == NULL || store->writing.seconds > 0; /* or it is hopeless */
        pthread_mutex_unlock(&store->lock);
        if (!is_empty) {
            sleep_a_little();
        }
    }
}

void shared_store_destroy(shared_store *store)
{
    if (store == NULL) {
        return;
    }
    pthread_mutex_lock(&store->lock);
    store->is_closed = true;
    atomic_store(&store->is_stopping, true);
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    if (store->has_reader) {
        pthread_join(store->reader, NULL);
    }
    if (store->has_writer) {
        pthread_join(store->writer, NULL);
    }
    while (store->fetches != NULL) {
        shared_fetch *its = store->fetches;
        store->fetches = its->next;
        shared_store_let_go(store, its);
    }
    while (store->writes != NULL) {
        shared_write *its = store->writes;
        store->writes = its->next;
        free(its->bytes);
        free(its);
    }
    shared_tls_destroy(store->tls);
    pthread_mutex_destroy(&store->lock);
    pthread_cond_destroy(&store->changed);
    free(store);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* With the lock: would it come before the prompt is read again? */
static bool is_worth_it(shared_store *store, size_t n, double seconds)
{
    const shared_counters *c = &store->counters;
    double expected = 2 * c->latency;
    if (c->bytes_per_second > 0) {
        expected += (double)n * (double)store->value_bytes / c->bytes_per_second;
    }
    if (expected <= seconds) {
        return true;
    }
    const double now = job_now();
    if (now - store->probed < PROBE_SECONDS) {
        return false;
    }
    store->probed = now;
    return true;
}

/* With the lock: may it be queued? Otherwise the reason is counted. */
static bool may_fetch(shared_store *store, size_t n, bool wants_longest, double until)
{
    const double now = job_now();
    if (store->is_closed || now < store->reading.until || store->n_fetches == SHARED_MOST_FETCHES ||
        store->fetched_bytes >= store->options.most_bytes) {
        store->counters.n_refused++;
        return false;
    }
    if (!is_worth_it(store, wants_longest ? 1 : n, until - now)) {
        store->counters.n_skipped++;
        return false;
    }
    return true;
}

shared_fetch *shared_store_fetch(shared_store *store, const shared_name *first,
                                 const shared_name *names, size_t n, bool wants_longest,
                                 double until)
{
    pthread_mutex_lock(&store->lock);
    shared_fetch *f = n > 0 && may_fetch(store, n, wants_longest, until) ? calloc(1, sizeof *f)
                                                                         : NULL;
    if (f != NULL && (f->names = malloc(n * sizeof *names)) == NULL) {
        free(f);
        f = NULL;
    }
    if (f != NULL) {
        f->first = *first;
        memcpy(f->names, names, n * sizeof *names);
        f->n = n;
        f->wants_longest = wants_longest;
        f->asked = job_now();
        f->until = until;
        f->n_holders = 2;
        if (store->fetches == NULL) {
            store->fetches = f;
        } else {
            store->last_fetch->next = f;
        }
        store->last_fetch = f;
        store->n_fetches++;
        store->counters.n_fetches++;
        pthread_cond_broadcast(&store->changed);
    }
    pthread_mutex_unlock(&store->lock);
    return f;
}

bool shared_store_poll(shared_store *store, shared_fetch *fetch, const shared_value **values,
                       size_t *n, size_t *at)
{
    pthread_mutex_lock(&store->lock);
    const bool is_done = fetch->is_done;
    pthread_mutex_unlock(&store->lock);
    *values = is_done ? fetch->values : NULL;
    *n = is_done ? fetch->n_values : 0;
    *at = is_done ? fetch->at : 0;
    return is_done;
}

void shared_store_cut(shared_store *store, shared_fetch *fetch, const shared_value **values,
                      size_t *n, size_t *at)
{
    pthread_mutex_lock(&store->lock);
    fetch->is_abandoned = true; /* the reader adds nothing more */
    *values = fetch->values;
    *n = fetch->n_values;
    *at = fetch->at;
    pthread_mutex_unlock(&store->lock);
}

void shared_store_release(shared_store *store, shared_fetch *fetch)
{
    pthread_mutex_lock(&store->lock);
    fetch->is_abandoned = true;
    shared_store_let_go(store, fetch);
    pthread_mutex_unlock(&store->lock);
}

/* ---- writing -------------------------------------------------------------------------------- */

bool shared_store_knows(shared_store *store, const shared_name *name)
{
    uint64_t head;
    pthread_mutex_lock(&store->lock);
    const shared_known *its = place_of(store, name, &head);
    const bool is_known = its->name == head && its->until > job_now();
    pthread_mutex_unlock(&store->lock);
    return is_known;
}

/* With the lock. */
static bool has_room(const shared_store *store, size_t size)
{
    const uint64_t most = store->options.most_bytes / 4;
    return !store->is_closed && size <= most && store->counters.queued_bytes <= most - size &&
           store->counters.n_queued < SHARED_MOST_WRITES;
}

bool shared_store_takes(shared_store *store, size_t size)
{
    pthread_mutex_lock(&store->lock);
    const bool takes = has_room(store, size);
    store->wants_room = store->wants_room || !takes;
    pthread_mutex_unlock(&store->lock);
    return takes;
}

bool shared_store_put(shared_store *store, const shared_name *first, const shared_name *name,
                      void *bytes, size_t size)
{
    pthread_mutex_lock(&store->lock);
    bool is_taken = has_room(store, size);
    if (is_taken) {
        is_taken = queue_write(store, first, name, bytes, size);
        shared_store_know(store, name, is_taken);
    } else {
        free(bytes);
    }
    pthread_mutex_unlock(&store->lock);
    return is_taken;
}

void shared_store_reject(shared_store *store, const shared_name *first, const shared_name *name)
{
    pthread_mutex_lock(&store->lock);
    store->counters.n_damaged++;
    shared_store_delete(store, first, name);
    pthread_mutex_unlock(&store->lock);
}

shared_counters shared_store_count(shared_store *store)
{
    pthread_mutex_lock(&store->lock);
    shared_counters counters = store->counters;
    counters.reads = store->reading.seconds == 0;
    counters.writes = store->writing.seconds == 0;
    pthread_mutex_unlock(&store->lock);
    return counters;
}
