/*
 * watch.h: connections that take too long are closed, whatever they are doing with their bytes.
 *
 * A client may send a byte every few seconds for ever, or take its answer as slowly, and each byte looks
 * like life. So every state of a connection has an end: a time by which the request has to be complete, or the next part
 * of an answer to be taken. A thread looks a few times a second and shuts what is over time; the
 * connection's own thread then finds its socket closed. When most of the connections that there may be are in use, those that have
 * sent nothing whole for a short while already have to go.
 */
#ifndef APP_WATCH_H
#define APP_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "cellar.h"

typedef struct watch watch;
typedef struct watch_entry watch_entry;

/* n_most: connections that there may be. CELLAR_NO_MEMORY, CELLAR_IO. */
cellar_status watch_create(uint32_t n_most, watch **out, cellar_error *error);
void watch_destroy(watch *w); /* all entries must be closed; NULL is allowed */

/* A connection that is there from now on; NULL: no memory, it is not watched then. */
watch_entry *watch_open(watch *w, int socket);
void watch_close(watch *w, watch_entry *entry); /* before the socket is; NULL is allowed */

/* It may stay as it is for so many seconds; 0: as long as it likes. */
void watch_allow(watch *w, watch_entry *entry, double seconds);
/* The same, while it is sending a request: it may have to go earlier when there are many. */
void watch_expect(watch *w, watch_entry *entry, double seconds);

uint32_t watch_count(watch *w);

#endif /* APP_WATCH_H */
