/*
 * http_listen.c: a socket that listens, made by hand so that its errors can be told.
 *
 * A host may be a name or an address of either family; the first address of it that can be had is taken.
 */
#define _POSIX_C_SOURCE 200809L

#include "serve/http_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "report.h"

#define WAITING 512 /* connections that the system holds until they are accepted */

static int try_address(const struct addrinfo *its)
{
    const int on = 1;
    const int socket_ = socket(its->ai_family, its->ai_socktype | SOCK_CLOEXEC, its->ai_protocol);
    if (socket_ < 0) {
        return -1;
    }
    if (setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(socket_, its->ai_addr, its->ai_addrlen) != 0 || listen(socket_, WAITING) != 0) {
        const int reason = errno;
        close(socket_);
        errno = reason;
        return -1;
    }
    return socket_;
}

static void describe(int socket_, listening *out)
{
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    char name[INET6_ADDRSTRLEN] = "";
    if (getsockname(socket_, (struct sockaddr *)&address, &n) != 0) {
        return;
    }
    if (address.ss_family == AF_INET6) {
        struct sockaddr_in6 six;
        memcpy(&six, &address, sizeof six);
        inet_ntop(AF_INET6, &six.sin6_addr, name, sizeof name);
        out->port = ntohs(six.sin6_port);
        snprintf(out->address, sizeof out->address, "[%s]", name);
    } else {
        struct sockaddr_in four;
        memcpy(&four, &address, sizeof four);
        inet_ntop(AF_INET, &four.sin_addr, name, sizeof name);
        out->port = ntohs(four.sin_port);
        snprintf(out->address, sizeof out->address, "%s", name);
    }
}

cellar_status listening_open(const char *host, uint16_t port, listening *out, cellar_error *error)
{
    *out = (listening){.socket = -1};
    char service[8];
    snprintf(service, sizeof service, "%u", (unsigned)port);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    const int wrong = getaddrinfo(host, service, &hints, &list);
    if (wrong != 0) {
        return report(error, CELLAR_INVALID, -1, "option --host: '%.60s': %s", host,
                      gai_strerror(wrong));
    }
    int reason = 0;
    for (const struct addrinfo *its = list; its != NULL && out->socket < 0; its = its->ai_next) {
        out->socket = try_address(its);
        reason = out->socket < 0 ? errno : 0;
    }
    freeaddrinfo(list);
    if (out->socket < 0) {
        return report(error, CELLAR_IO, -1, "cannot listen on %.60s, port %u: %s%s", host,
                      (unsigned)port, strerror(reason),
                      reason == EADDRINUSE ? "; --port gives another, 0 any that is free" : "");
    }
    describe(out->socket, out);
    return CELLAR_OK;
}
