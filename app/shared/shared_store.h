/*
 * shared_store.h: a store that several servers share, behind two threads: one reads, one writes.
 *
 * Who asks never waits here: what is wanted and what is to be written goes into bounded queues, and what came is
 * looked at later. Values are bytes with a name; the reader checks that they are whole sessions, what they say is for the memory to
 * check. docs/shared-tier.md says what happens when the store is slow, damaged or gone; nothing of it is an
 * error of the caller's.
 */
#ifndef APP_SHARED_STORE_H
#define APP_SHARED_STORE_H

#include "shared/shared_address.h"
#include "shared/shared_names.h"

typedef struct shared_store_options {
    const char *address;  /* redis://... */
    const char *password; /* if the address has none; NULL: none */
    const char *ca_file;  /* for TLS; NULL: the system's authorities */
    uint64_t
        most_bytes; /* that were fetched and not taken yet; a quarter as many wait to be written */
    uint32_t expire_seconds; /* after which the store may forget a value, >= 1 */
    bool logs;               /* when the store goes and comes back, to stderr */
    void (*wake)(
        void *context); /* called, on another thread, when a fetch has ended; NULL: nobody */
    void *context;
} shared_store_options;

typedef struct shared_counters {
    uint64_t n_fetches, n_hits; /* prompts that were looked up; of which something came */
    uint64_t n_late;            /* looked up, and given up: time was over, or would not do */
    uint64_t n_skipped;         /* not looked up: reading them again is faster */
    uint64_t n_refused;         /* not looked up: the store is gone, or too many wait */
    uint64_t n_read, bytes_read, n_written, bytes_written; /* values */
    uint64_t n_kept;     /* values that were there already, not sent */
    uint64_t n_damaged;  /* values that were no sessions, or not what was asked for */
    uint64_t n_failures; /* times that the store could not be used */
    uint64_t queued_bytes;
    uint32_t n_queued;
    bool reads, writes;               /* now: the breakers are closed */
    double latency, bytes_per_second; /* as last measured; 0: not yet */
} shared_counters;

typedef struct shared_store shared_store;

/* CELLAR_INVALID: the address, or ca_file; CELLAR_UNSUPPORTED: not built in; CELLAR_NO_MEMORY, CELLAR_IO: no thread. No connection is made yet. */
cellar_status shared_store_create(const shared_store_options *options, shared_store **out,
                                  cellar_error *error);

/* What waits to be written gets so many seconds. Nothing more is taken or fetched. */
void shared_store_drain(shared_store *store, double seconds);
void shared_store_destroy(shared_store *store); /* NULL is allowed; fetches may still be released */

/* ---- reading -------------------------------------------------------------------------------- */

typedef struct shared_value {
    char *bytes; /* [size] */
    size_t size;
} shared_value;

/* What is to be fetched, and what came. */
typedef struct shared_fetch shared_fetch;

/*
 * Look up n names of a text whose first block is `first`, in their order. wants_longest: the last that is there, alone;
 * else all, up to the first that is not. It ends at a moment (job_now's clock) at the latest. NULL: it is
 * not tried, and why not is counted.
 */
shared_fetch *shared_store_fetch(shared_store *store, const shared_name *first,
                                 const shared_name *names, size_t n, bool wants_longest,
                                 double until);

/* Has it ended? *values [*n] are its own then; the first of them is that of names[*at]. */
bool shared_store_poll(shared_store *store, shared_fetch *fetch, const shared_value **values,
                       size_t *n, size_t *at);

/* Its time is over: no more is added, and what came so far is as by shared_store_poll. */
void shared_store_cut(shared_store *store, shared_fetch *fetch, const shared_value **values,
                      size_t *n, size_t *at);

/* It is not wanted any more, ended or not. */
void shared_store_release(shared_store *store, shared_fetch *fetch);

/* ---- writing -------------------------------------------------------------------------------- */

/* Has it been written, or found, not long ago? */
bool shared_store_knows(shared_store *store, const shared_name *name);

/* Is there room for so many bytes to wait? */
bool shared_store_takes(shared_store *store, size_t size);

/* Write a value; takes over bytes (malloc'ed), also on failure. false: there is no room. */
bool shared_store_put(shared_store *store, const shared_name *first, const shared_name *name,
                      void *bytes, size_t size);

/* A value was not what it should be: count it, and delete it. */
void shared_store_reject(shared_store *store, const shared_name *first, const shared_name *name);

shared_counters shared_store_count(shared_store *store);

#endif /* APP_SHARED_STORE_H */
