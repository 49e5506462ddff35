/*
 * http_listen.h: a socket that listens on a host and a port.
 *
 * The library that serves HTTP could open one itself, but would say no more than that it failed. The caller
 * of listening_open closes the socket, or gives it to somebody who does.
 */
#ifndef APP_HTTP_LISTEN_H
#define APP_HTTP_LISTEN_H

#include <stdint.h>

#include "cellar.h"

typedef struct listening {
    int socket;
    uint16_t port;    /* the one it got, if any would do */
    char address[64]; /* as a URL has it */
} listening;

/* CELLAR_INVALID: no such host; CELLAR_IO: the message says why and what to do. */
cellar_status listening_open(const char *host, uint16_t port, listening *out, cellar_error *error);

#endif /* APP_HTTP_LISTEN_H */
