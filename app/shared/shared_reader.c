/*
 * shared_reader.c: the thread that looks prompts up.
 *
 * One at a time, in the order in which they came, each to its own moment. First which of the names are there, in one
 * pipeline; then their values, a few at a time, as many as take about 50 ms: so that little is lost when
 * time is over, and little is waited for in between. It ends early when values come slower than the prompt would be read. A value that is no whole session is a miss; it and what is behind it is
 * not used.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/job.h"
#include "shared/shared_parts.h"

#define MOST_LOOKUPS 1024u /* in one pipeline */
#define MOST_VALUES 64u
#define FIRST_VALUES 2u
#define BATCH_SECONDS 0.05

/* A name with what is made of it for a command. */
typedef struct asked {
    char key[SHARED_KEY_BYTES];
} asked;

typedef struct reading {
    shared_store *store;
    shared_nodes *nodes;
    shared_fetch *fetch; /* now */
    shared_command commands[MOST_LOOKUPS];
    asked keys[MOST_LOOKUPS];
    shared_reply replies[MOST_LOOKUPS];
    double latency, bytes_per_second; /* as in the counters */
    size_t value_bytes;
    bool was_damaged; /* one of the last pipeline */
    cellar_error error;
} reading;

/* Ask the same about n names, from names[at] on. */
static cellar_status ask(reading *r, const char *verb, size_t at, size_t n)
{
    const shared_fetch *f = r->fetch;
    const shared_wait wait = {
        .until = f->until, .idle = SHARED_IDLE_SECONDS, .stop = &r->store->is_stopping};
    for (size_t i = 0; i < n; i++) {
        shared_names_write(&f->first, &f->names[at + i], r->keys[i].key);
        r->commands[i] = (shared_command){
            .n = 2, .parts = {verb, r->keys[i].key}, .sizes = {strlen(verb), SHARED_KEY_BYTES - 1}};
    }
    return shared_nodes_run(r->nodes, r->keys[0].key + strlen("cellar:{"), SHARED_TAG_DIGITS,
                            r->commands, n, &wait, SHARED_IDLE_SECONDS, r->replies, &r->error);
}

static double mix(double before, double now)
{
    return before > 0 ? (before + now) / 2 : now;
}

/* How many of the names are there: without a gap, or up to the last one. */
static cellar_status count_present(reading *r, size_t *n)
{
    const shared_fetch *f = r->fetch;
    *n = 0;
    for (size_t at = 0; at < f->n; at += MOST_LOOKUPS) {
        const size_t part = f->n - at < MOST_LOOKUPS ? f->n - at : MOST_LOOKUPS;
        const double begin = job_now();
        const cellar_status status = ask(r, "EXISTS", at, part);
        if (status != CELLAR_OK) {
            return status;
        }
        r->latency = mix(r->latency, job_now() - begin);
        for (size_t i = 0; i < part; i++) {
            const bool is_there = r->replies[i].kind == SHARED_NUMBER && r->replies[i].number > 0;
            free(r->replies[i].bytes);
            if (f->wants_longest ? is_there : is_there && *n == at + i) {
                *n = at + i + 1;
            }
        }
        if (!f->wants_longest && *n < at + part) {
            break;
        }
    }
    return CELLAR_OK;
}

/* Is it a whole session? That is asked here, beside the engine; what it says is asked there. */
static bool is_session(const shared_reply *reply)
{
    cellar_session *session;
    if (reply->kind != SHARED_BYTES ||
        cellar_open_session_bytes(reply->bytes, reply->size, NULL, &session, NULL) != CELLAR_OK) {
        return false;
    }
    const bool is_whole = cellar_check_session(session, NULL) == CELLAR_OK;
    cellar_close_session(session);
    return is_whole;
}

/* With the lock: a value becomes the fetch's. false: there is no room for more, or nobody waits. */
static bool take_value(reading *r, size_t at, shared_reply *reply)
{
    shared_fetch *f = r->fetch;
    shared_store *store = r->store;
    if (f->is_abandoned || store->fetched_bytes + reply->size > store->options.most_bytes) {
        return false;
    }
    f->values[f->n_values++] = (shared_value){reply->bytes, reply->size};
    f->bytes += reply->size;
    store->fetched_bytes += reply->size;
    store->counters.n_read++;
    store->counters.bytes_read += reply->size;
    store->value_bytes = reply->size;
    shared_store_know(store, &f->names[at], true);
    reply->bytes = NULL;
    return true;
}

/*
 * Take n replies over. false: one is missing or damaged, or there is no room for more. Those behind a damaged one are
 * of no use, but are looked at, so that all that is damaged goes at once.
 */
static bool take_values(reading *r, size_t at, size_t n)
{
    shared_fetch *f = r->fetch;
    bool goes_on = true;
    r->was_damaged = false;
    for (size_t i = 0; i < n; i++) {
        shared_reply *reply = &r->replies[i];
        const bool is_there = reply->kind != SHARED_NOTHING; /* else it went in between */
        const bool is_whole = is_there && is_session(reply);
        if (is_there && !is_whole) {
            r->was_damaged = true;
            shared_store_reject(r->store, &f->first, &f->names[at + i]);
        }
        r->value_bytes = is_whole ? reply->size : r->value_bytes;
        if (goes_on && is_whole) {
            pthread_mutex_lock(&r->store->lock);
            goes_on = take_value(r, at + i, reply);
            pthread_mutex_unlock(&r->store->lock);
        } else {
            goes_on = false;
        }
        free(reply->bytes);
        reply->bytes = NULL;
    }
    return goes_on;
}

static size_t choose_batch(const reading *r)
{
    if (r->bytes_per_second <= 0 || r->value_bytes == 0) {
        return FIRST_VALUES;
    }
    const double seconds = BATCH_SECONDS > 4 * r->latency ? BATCH_SECONDS : 4 * r->latency;
    const double n = r->bytes_per_second * seconds / (double)r->value_bytes;
    return n < 2 ? 2 : n > MOST_VALUES ? MOST_VALUES : (size_t)n;
}

/*
 * Behind a damaged value others may be so too, and what is there is not sent again: all that could not be looked at goes,
 * and is written anew by who reads this prompt now.
 */
static void delete_unseen(reading *r, size_t at, size_t end)
{
    pthread_mutex_lock(&r->store->lock);
    for (; at < end; at++) {
        shared_store_delete(r->store, &r->fetch->first, &r->fetch->names[at]);
    }
    pthread_mutex_unlock(&r->store->lock);
}

/* Does a block take longer to come than its share of the time? Then reading the rest is faster. */
static bool is_too_slow(const reading *r)
{
    const shared_fetch *f = r->fetch;
    return r->bytes_per_second > 0 &&
           (double)r->value_bytes / r->bytes_per_second > (f->until - f->asked) / (double)f->n;
}

static cellar_status get_values(reading *r, size_t first, size_t end)
{
    for (size_t at = first; at < end;) {
        size_t n = choose_batch(r);
        n = end - at < n ? end - at : n;
        const uint64_t had = r->fetch->bytes;
        const double begin = job_now();
        const cellar_status status = ask(r, "GET", at, n);
        const double seconds = job_now() - begin;
        if (status != CELLAR_OK) {
            const double at_most = (double)(n * r->value_bytes) / seconds;
            if (status == CELLAR_BUSY && r->value_bytes > 0 &&
                (r->bytes_per_second <= 0 || at_most < r->bytes_per_second)) {
                r->bytes_per_second = at_most;
            }
            return status;
        }
        const bool goes_on = take_values(r, at, n);
        if (seconds > 0 && r->fetch->bytes > had) {
            r->bytes_per_second = mix(r->bytes_per_second,
                                      (double)(r->fetch->bytes - had) / seconds);
        }
        at += n;
        if (!goes_on) {
            delete_unseen(r, at, r->was_damaged ? end : at);
            return CELLAR_OK;
        }
        if (at < end && is_too_slow(r)) {
            return CELLAR_BUSY;
        }
    }
    return CELLAR_OK;
}

static cellar_status look_up(reading *r)
{
    shared_fetch *f = r->fetch;
    size_t n = 0;
    const double begin = job_now();
    cellar_status status = count_present(r, &n);
    if (status != CELLAR_OK || n == 0) {
        const double seconds = job_now() - begin;
        r->latency = status == CELLAR_BUSY && seconds > r->latency ? seconds : r->latency;
        return status;
    }
    const size_t first = f->wants_longest ? n - 1 : 0;
    shared_value *values = calloc(n - first, sizeof *values);
    if (values == NULL) {
        return CELLAR_OK; /* a miss */
    }
    pthread_mutex_lock(&r->store->lock);
    f->values = values;
    f->at = first;
    pthread_mutex_unlock(&r->store->lock);
    return get_values(r, first, n);
}

/* With the lock: what became of it is the breaker's and the counters' business. */
static void judge(reading *r, cellar_status status)
{
    shared_store *store = r->store;
    shared_counters *c = &store->counters;
    c->latency = r->latency;
    c->bytes_per_second = r->bytes_per_second;
    c->n_hits += r->fetch->n_values > 0;
    if (status == CELLAR_OK || status == CELLAR_NOT_FOUND) {
        shared_store_work(store, &store->reading, "reading");
    } else if (status == CELLAR_BUSY) {
        c->n_late += !atomic_load(&store->is_stopping);
    } else {
        shared_store_fail(store, &store->reading, "reading", &r->error);
    }
}

/* With the lock: the next one that is wanted; NULL: the store stops. */
static shared_fetch *wait_for_fetch(shared_store *store)
{
    while (!atomic_load(&store->is_stopping)) {
        shared_fetch *f = store->fetches;
        if (f == NULL) {
            pthread_cond_wait(&store->changed, &store->lock);
            continue;
        }
        store->fetches = f->next;
        store->n_fetches--;
        return f;
    }
    return NULL;
}

static void finish(reading *r)
{
    shared_store *store = r->store;
    r->fetch->is_done = true;
    shared_store_let_go(store, r->fetch);
    r->fetch = NULL;
    if (store->options.wake != NULL) {
        pthread_mutex_unlock(&store->lock);
        store->options.wake(store->options.context);
        pthread_mutex_lock(&store->lock);
    }
}

void *shared_reader_run(void *argument)
{
    shared_store *store = argument;
    reading *r = calloc(1, sizeof *r);
    shared_nodes *nodes = NULL;
    const bool is_able = r != NULL && shared_nodes_create(&store->login, &nodes, NULL) == CELLAR_OK;
    if (is_able) {
        r->store = store;
        r->nodes = nodes;
    }
    pthread_mutex_lock(&store->lock);
    store->is_closed = store->is_closed || !is_able; /* without memory there is no store */
    while (is_able && (r->fetch = wait_for_fetch(store)) != NULL) {
        const double now = job_now();
        const bool is_over = r->fetch->is_abandoned || now >= r->fetch->until ||
                             now < store->reading.until;
        if (!is_over) {
            pthread_mutex_unlock(&store->lock);
            const cellar_status status = look_up(r);
            pthread_mutex_lock(&store->lock);
            judge(r, status);
        } else {
            store->counters.n_late++;
        }
        finish(r);
    }
    pthread_mutex_unlock(&store->lock);
    shared_nodes_destroy(nodes);
    free(r);
    return NULL;
}
