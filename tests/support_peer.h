/*
 * support_peer.h: a store that speaks as Redis does, and does what a test wants it to: well, badly, or not at all.
 *
 * It listens on a free port of the loopback address, knows AUTH, SELECT, EXISTS, GET, SET, EXPIRE, DEL and ASKING, and
 * reads commands by itself: nothing of hiredis or of the program is in it, so that both ends are not wrong in the same way.
 */
#ifndef TESTS_SUPPORT_PEER_H
#define TESTS_SUPPORT_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum peer_mood {
    PEER_GOOD,
    PEER_LOADING,    /* every command: -LOADING */
    PEER_SILENT,     /* takes commands, never answers */
    PEER_GARBAGE,    /* answers with bytes that are no reply */
    PEER_ARRAY,      /* GET: an array of two thousand million elements */
    PEER_HUGE,       /* GET: a value that never ends */
    PEER_TIRED,      /* GET: two values, since it was set so; no more */
    PEER_SLOW,       /* GET: each value takes half a second */
    PEER_CUT,        /* GET: half of a value, then it hangs up */
    PEER_CLOSED,     /* hangs up at the first command */
    PEER_MOVED,      /* every key is at the other one */
    PEER_ASKS,       /* every key is to be asked for at the other one */
    PEER_WRONG_MOVE, /* redirects to what is no address */
    PEER_LATER,      /* -TRYAGAIN */
    PEER_FULL,       /* SET: -OOM */
    PEER_LIST        /* every key holds a list: -WRONGTYPE */
} peer_mood;

typedef struct peer peer;

/* Start one. password NULL: none is needed. */
peer *peer_start(const char *password);
void peer_stop(peer *p);

/* redis://127.0.0.1:PORT, valid as long as the peer. */
const char *peer_address(const peer *p);

void peer_set(peer *p, peer_mood mood, const peer *other); /* other: for redirections; NULL */

/* What it holds. */
size_t peer_count(peer *p);
const char *peer_key(peer *p, size_t i);        /* valid until a key is added or goes */
void peer_damage(peer *p, size_t i, size_t at); /* change a byte of a value */
void peer_forget(peer *p, size_t i);
unsigned peer_commands(peer *p); /* that it has read */
unsigned peer_asked(peer *p);    /* ASKING that it has read */

#endif /* TESTS_SUPPORT_PEER_H */
