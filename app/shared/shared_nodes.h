/*
 * shared_nodes.h: a store of one node or of many: commands go to the node that has their keys.
 *
 * All commands of one call have keys with the same hash tag, so they are one pipeline to one node. Which node that is
 * the store says itself, by redirections: a slot that was moved is noted, one that is moving is asked once.
 * One thread uses a shared_nodes.
 */
#ifndef APP_SHARED_NODES_H
#define APP_SHARED_NODES_H

#include "shared/shared_link.h"

#define SHARED_MOST_NODES 64u

typedef struct shared_nodes shared_nodes;

/* No connection is made yet. CELLAR_NO_MEMORY. */
cellar_status shared_nodes_create(const shared_login *login, shared_nodes **out,
                                  cellar_error *error);
void shared_nodes_destroy(shared_nodes *nodes); /* NULL is allowed */

/* Close all connections, and forget who has what. */
void shared_nodes_reset(shared_nodes *nodes);

/* How often a connection to the first node was made. */
uint64_t shared_nodes_connected(const shared_nodes *nodes);

/*
 * Send n commands whose keys have a tag, and wait for their replies [n], whose bytes are the caller's. Connecting may take
 * `connect_seconds` of its own. CELLAR_IO: no connection, or the node cannot be used (it loads, refuses the
 * login, ...); CELLAR_BUSY: no time is left; both close all connections. CELLAR_NOT_FOUND: redirected too often, or the slot is on its way: try
 * later. CELLAR_NO_MEMORY. Replies are all empty then. What a node refuses otherwise is a reply.
 */
cellar_status shared_nodes_run(shared_nodes *nodes, const char *tag, size_t n_tag,
                               const shared_command *commands, size_t n, const shared_wait *wait,
                               double connect_seconds, shared_reply *replies, cellar_error *error);

/* The slot of a tag, as clusters count them: CRC-16 (XMODEM) modulo 16384. */
unsigned shared_nodes_slot(const char *tag, size_t n);

#endif /* APP_SHARED_NODES_H */
