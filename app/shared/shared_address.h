/*
 * shared_address.h: redis://[user:password@]host[:port][/db], taken apart.
 *
 * What comes from a command line or the environment is checked here, once. Messages name the part that is wrong and
 * never repeat the address, which may hold a password.
 */
#ifndef APP_SHARED_ADDRESS_H
#define APP_SHARED_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "cellar.h"

enum { SHARED_HOST_BYTES = 256, SHARED_SECRET_BYTES = 512 };

typedef struct shared_address {
    char host[SHARED_HOST_BYTES]; /* without the brackets of an IPv6 address */
    char user[SHARED_SECRET_BYTES], password[SHARED_SECRET_BYTES]; /* "": none */
    uint16_t port;
    uint32_t database;
    bool has_tls;
} shared_address;

/* CELLAR_INVALID: the message says which part is wrong. */
cellar_status shared_address_read(const char *text, shared_address *out, cellar_error *error);

/* host:port of a redirection; an empty host leaves the one that is there. false: it is none. */
bool shared_address_move(shared_address *address, const char *text, size_t n);

#endif /* APP_SHARED_ADDRESS_H */
