/*
 * shared_parts.h: what the files of the shared store have in common.
 *
 * One lock is over everything but what a thread has for itself: its connections, and what it has taken out of a
 * queue. It is never held while anybody waits for the network.
 */
#ifndef APP_SHARED_PARTS_H
#define APP_SHARED_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "shared/shared_nodes.h"
#include "shared/shared_store.h"

#define SHARED_TAG_DIGITS 16u   /* between the braces of a key, which begin behind "cellar:" */
#define SHARED_IDLE_SECONDS 2.0 /* in which nothing comes: the store is gone */
#define SHARED_MOST_VALUE ((size_t)1 << 30)
#define SHARED_MOST_FETCHES 256u  /* that wait */
#define SHARED_MOST_WRITES 65536u /* that wait, whatever their size */
#define SHARED_KNOWN 32768u       /* names that are remembered */
#define SHARED_KNOWN_SECONDS 600.0

/* Whether a store can be used: closed until it fails, then open for a while that doubles. */
typedef struct shared_breaker {
    double until;   /* nothing is tried before; 0: closed */
    double seconds; /* how long it was opened last */
} shared_breaker;

struct shared_fetch {
    struct shared_fetch *next; /* in the queue */
    shared_name first;
    shared_name *names; /* [n] */
    size_t n;
    bool wants_longest;
    double asked, until;
    unsigned n_holders; /* who asked, and the reader */
    bool is_done, is_abandoned;
    shared_value *values; /* [n_values], the first of names[at] */
    size_t n_values, at;
    uint64_t bytes;
};

typedef struct shared_write {
    struct shared_write *next;
    shared_name first, name;
    char *bytes; /* [size]; NULL: delete it */
    size_t size;
} shared_write;

typedef struct shared_known {
    uint64_t name; /* the beginning of it */
    double until;
} shared_known;

struct shared_store {
    shared_store_options options;
    shared_login login;
    shared_tls *tls;
    pthread_t reader, writer;
    bool has_reader, has_writer;
    atomic_bool is_stopping;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    bool is_closed;  /* nothing more is taken */
    bool wants_room; /* somebody was told that there is none */
    shared_fetch *fetches, *last_fetch;
    unsigned n_fetches;
    uint64_t fetched_bytes; /* held by fetches */
    shared_write *writes, *last_write;
    shared_breaker reading, writing;
    double probed;        /* when it was last tried although it seemed slow */
    uint64_t value_bytes; /* of the last value */
    shared_counters counters;
    shared_known known[SHARED_KNOWN];
};

/* The threads; the argument is the store. */
void *shared_reader_run(void *store);
void *shared_writer_run(void *store);

/* With the lock. */
void shared_store_fail(shared_store *store, shared_breaker *breaker, const char *what,
                       const cellar_error *error);
void shared_store_work(shared_store *store, shared_breaker *breaker, const char *what);
void shared_store_know(shared_store *store, const shared_name *name, bool is_known);
void shared_store_let_go(shared_store *store, shared_fetch *fetch); /* one holder less */

/* Delete it: queued without regard to room, but for the number. */
void shared_store_delete(shared_store *store, const shared_name *first, const shared_name *name);

#endif /* APP_SHARED_PARTS_H */
