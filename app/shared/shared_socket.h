/*
 * shared_socket.h: a connection to the shared store: plain, or TLS, and never longer than one is willing to wait.
 *
 * hiredis would open one too, but without TLS (0.14) and with one time limit for each read. Here every call
 * has a moment at which it ends, whatever the other side does, and ends early when the program wants to stop.
 */
#ifndef APP_SHARED_SOCKET_H
#define APP_SHARED_SOCKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "cellar.h"

/* How long: until a moment (job_now's clock), with no more than so many seconds in which nothing comes or goes. */
typedef struct shared_wait {
    double until, idle;
    const atomic_bool *stop; /* give up when it is set; NULL: never */
} shared_wait;

/* What is needed for TLS: authorities. */
typedef struct shared_tls shared_tls;

/* ca_file NULL: the system's. CELLAR_UNSUPPORTED: this build has no TLS; CELLAR_INVALID: the file; CELLAR_NO_MEMORY. */
cellar_status shared_tls_create(const char *ca_file, shared_tls **out, cellar_error *error);
void shared_tls_destroy(shared_tls *tls); /* NULL is allowed */

typedef struct shared_socket shared_socket;

/*
 * Connect; with TLS, the certificate has to be of that host. CELLAR_IO: refused, lost, not to be trusted, or
 * nothing came for too long; CELLAR_BUSY: the moment has come, or the program stops; CELLAR_NO_MEMORY.
 */
cellar_status shared_socket_open(const char *host, unsigned port, const shared_tls *tls,
                                 const shared_wait *wait, shared_socket **out, cellar_error *error);
void shared_socket_close(shared_socket *s); /* NULL is allowed */

/* Send all, or receive at least a byte. Statuses as above; the connection is of no use afterwards. */
cellar_status shared_socket_send(shared_socket *s, const void *bytes, size_t n,
                                 const shared_wait *wait, cellar_error *error);
cellar_status shared_socket_receive(shared_socket *s, void *to, size_t most, size_t *n,
                                    const shared_wait *wait, cellar_error *error);

/* Wait until the descriptor can be read, or written: what both kinds of connections need. */
cellar_status shared_socket_poll(int descriptor, bool to_write, const shared_wait *wait,
                                 cellar_error *error);

/* ---- the part of TLS (shared_tls.c) --------------------------------------------------------- */

typedef struct shared_session shared_session;

/* Shake hands on a connected descriptor. */
cellar_status shared_session_open(const shared_tls *tls, int descriptor, const char *host,
                                  const shared_wait *wait, shared_session **out,
                                  cellar_error *error);
void shared_session_close(shared_session *s);
cellar_status shared_session_send(shared_session *s, const void *bytes, size_t n,
                                  const shared_wait *wait, cellar_error *error);
cellar_status shared_session_receive(shared_session *s, void *to, size_t most, size_t *n,
                                     const shared_wait *wait, cellar_error *error);

#endif /* APP_SHARED_SOCKET_H */
