/*
 * shared_link.h: commands to one node of the store, and its replies: pipelined, in order.
 *
 * hiredis writes commands and takes replies apart (its own sockets are not used, see shared_socket.h). A reply is kept
 * as a plain value of ours. Arrays are refused as no reply that was asked for, and a reply that is longer than
 * allowed ends the connection before it is all here.
 */
#ifndef APP_SHARED_LINK_H
#define APP_SHARED_LINK_H

#include <stdint.h>

#include "shared/shared_address.h"
#include "shared/shared_socket.h"

typedef struct shared_link shared_link;

/* What all connections of a store have in common. */
typedef struct shared_login {
    shared_address address; /* of the first node; user, password, database */
    const shared_tls *tls;  /* NULL: plain */
    size_t most_bytes;      /* of a reply */
} shared_login;

typedef enum shared_kind {
    SHARED_NOTHING, /* no such key */
    SHARED_NUMBER,
    SHARED_WORD,  /* a status: OK */
    SHARED_BYTES, /* a value */
    SHARED_REFUSAL
} shared_kind;

typedef struct shared_reply {
    shared_kind kind;
    int64_t number;
    char *bytes; /* [size], a NUL behind it; to be freed. NULL: none */
    size_t size;
} shared_reply;

#define SHARED_MOST_PARTS 5u

typedef struct shared_command {
    unsigned n;
    const char *parts[SHARED_MOST_PARTS];
    size_t sizes[SHARED_MOST_PARTS];
} shared_command;

/* CELLAR_OK: this build can speak to a store. CELLAR_UNSUPPORTED: the message says why not. */
cellar_status shared_link_check_build(cellar_error *error);

/* Connect, log in, choose the database. Statuses of shared_socket_open; CELLAR_IO: the login was refused. */
cellar_status shared_link_open(const shared_login *login, const shared_address *address,
                               const shared_wait *wait, shared_link **out, cellar_error *error);
void shared_link_close(shared_link *l); /* NULL is allowed */

/* Put a command into what will be sent. CELLAR_NO_MEMORY. */
cellar_status shared_link_add(shared_link *l, const shared_command *command, cellar_error *error);

/* Send what was put in. */
cellar_status shared_link_send(shared_link *l, const shared_wait *wait, cellar_error *error);

/* The next reply. CELLAR_IO also: these are no replies. */
cellar_status shared_link_read(shared_link *l, const shared_wait *wait, shared_reply *out,
                               cellar_error *error);

#endif /* APP_SHARED_LINK_H */
