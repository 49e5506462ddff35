/*
 * shared_socket.c: sockets that do not block, and poll.
 *
 * Waiting is cut into slices, so that a program that stops is not kept by a store that is silent. Names are
 * resolved by the system, which takes as long as it takes; that is the one wait without a limit, and it is a thread's
 * own that nobody waits for.
 */
#define _GNU_SOURCE /* SOCK_CLOEXEC, SOCK_NONBLOCK */
#include "shared/shared_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "report.h"
#include "serve/job.h"

#define SLICE 0.05 /* seconds after which it is seen that the program stops */

struct shared_socket {
    int descriptor;
    shared_session *session; /* NULL: plain */
};

static bool is_stopping(const shared_wait *wait)
{
    return wait->stop != NULL && atomic_load(wait->stop);
}

cellar_status shared_socket_poll(int descriptor, bool to_write, const shared_wait *wait,
                                 cellar_error *error)
{
    struct pollfd its = {.fd = descriptor, .events = to_write ? POLLOUT : POLLIN};
    const double begin = job_now();
    for (;;) {
        const double now = job_now();
        if (is_stopping(wait) || now >= wait->until) {
            return report(error, CELLAR_BUSY, -1, "there was no time to wait for the shared store");
        }
        if (now - begin >= wait->idle) {
            return report(error, CELLAR_IO, -1, "no answer within %.1f seconds", wait->idle);
        }
        double left = wait->until - now < SLICE ? wait->until - now : SLICE;
        left = wait->idle - (now - begin) < left ? wait->idle - (now - begin) : left;
        const int n = poll(&its, 1, (int)(left * 1e3) + 1);
        if (n > 0) {
            return CELLAR_OK;
        }
        if (n < 0 && errno != EINTR) {
            return report(error, CELLAR_IO, -1, "waiting failed: %s", strerror(errno));
        }
    }
}

/* ---- connecting ----------------------------------------------------------------------------- */

static cellar_status connect_to(const struct addrinfo *address, const shared_wait *wait, int *out,
                                cellar_error *error)
{
    const int one = 1;
    const int descriptor = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                                  0);
    if (descriptor < 0) {
        return report(error, CELLAR_IO, -1, "no socket: %s", strerror(errno));
    }
    int number = connect(descriptor, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    cellar_status status = CELLAR_OK;
    if (number == EINPROGRESS) {
        status = shared_socket_poll(descriptor, true, wait, error);
        socklen_t size = sizeof number;
        number = 0;
        if (status == CELLAR_OK &&
            getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &number, &size) != 0) {
            number = errno;
        }
    }
    if (status == CELLAR_OK && number != 0) {
        status = report(error, CELLAR_IO, -1, "no connection: %s", strerror(number));
    }
    if (status != CELLAR_OK) {
        close(descriptor);
        return status;
    }
    (void)setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* slower without */
    *out = descriptor;
    return CELLAR_OK;
}

/* Each address of the host in turn. */
static cellar_status connect_any(const char *host, unsigned port, const shared_wait *wait, int *out,
                                 cellar_error *error)
{
    char service[8];
    struct addrinfo *all = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    snprintf(service, sizeof service, "%u", port % 65536);
    const int number = getaddrinfo(host, service, &hints, &all);
    if (number != 0) {
        return report(error, CELLAR_IO, -1, "the host is not known: %s", gai_strerror(number));
    }
    cellar_status status = CELLAR_IO;
    for (const struct addrinfo *its = all; its != NULL && status == CELLAR_IO; its = its->ai_next) {
        status = connect_to(its, wait, out, error);
    }
    freeaddrinfo(all);
    return status;
}

cellar_status shared_socket_open(const char *host, unsigned port, const shared_tls *tls,
                                 const shared_wait *wait, shared_socket **out, cellar_error *error)
{
    *out = NULL;
    shared_socket *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a connection");
    }
    s->descriptor = -1;
    cellar_status status = connect_any(host, port, wait, &s->descriptor, error);
    if (status == CELLAR_OK && tls != NULL) {
        status = shared_session_open(tls, s->descriptor, host, wait, &s->session, error);
    }
    if (status != CELLAR_OK) {
        shared_socket_close(s);
        return status;
    }
    *out = s;
    return CELLAR_OK;
}

void shared_socket_close(shared_socket *s)
{
    if (s != NULL) {
        shared_session_close(s->session);
        if (s->descriptor >= 0) {
            close(s->descriptor);
        }
        free(s);
    }
}

/* ---- bytes ---------------------------------------------------------------------------------- */

cellar_status shared_socket_send(shared_socket *s, const void *bytes, size_t n,
                                 const shared_wait *wait, cellar_error *error)
{
    if (s->session != NULL) {
        return shared_session_send(s->session, bytes, n, wait, error);
    }
    for (const char *at = bytes; n > 0;) {
        const ssize_t sent = send(s->descriptor, at, n, MSG_NOSIGNAL);
        if (sent >= 0) {
            at += sent;
            n -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            const cellar_status status = shared_socket_poll(s->descriptor, true, wait, error);
            if (status != CELLAR_OK) {
                return status;
            }
        } else if (errno != EINTR) {
            return report(error, CELLAR_IO, -1, "the connection is lost: %s", strerror(errno));
        }
    }
    return CELLAR_OK;
}

cellar_status shared_socket_receive(shared_socket *s, void *to, size_t most, size_t *n,
                                    const shared_wait *wait, cellar_error *error)
{
    if (s->session != NULL) {
        return shared_session_receive(s->session, to, most, n, wait, error);
    }
    for (;;) {
        const ssize_t got = recv(s->descriptor, to, most, 0);
        if (got > 0) {
            *n = (size_t)got;
            return CELLAR_OK;
        }
        if (got == 0) {
            return report(error, CELLAR_IO, -1, "the connection was closed");
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            const cellar_status status = shared_socket_poll(s->descriptor, false, wait, error);
            if (status != CELLAR_OK) {
                return status;
            }
        } else if (errno != EINTR) {
            return report(error, CELLAR_IO, -1, "the connection is lost: %s", strerror(errno));
        }
    }
}
