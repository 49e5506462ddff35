/*
 * support_session_worlds.h: small memories of several kinds, for sessions to be saved from and loaded into.
 *
 * The kind decides about the model, the variant about everything a session must not depend on: row
 * types, cells, pools. So a session of one variant loads into every other of its kind. What is read
 * into a world depends on the kind alone.
 */
#ifndef SUPPORT_SESSION_WORLDS_H
#define SUPPORT_SESSION_WORLDS_H

#include "model/drive.h"

typedef enum world_kind {
    WORLD_PLAIN,     /* two layers that see everything */
    WORLD_WINDOW,    /* one that sees everything, one with a window and a sink */
    WORLD_RECURRENT, /* states alone */
    WORLD_HYBRID,    /* a state, a window, everything */
    WORLD_POINTS,    /* positions in images */
    WORLD_KINDS
} world_kind;

enum { WORLD_VARIANTS = 4 };

/* An empty memory. False: it cannot be made (allocator: may be NULL). */
bool world_open(drive *d, world_kind kind, uint32_t variant, const cellar_allocator *allocator);

/*
 * Four sequences: one that was read, a part of it that went on alone, one that was shifted, one that
 * lost its middle; where the kind can do it. Checkpoints of two.
 */
void world_fill(drive *d, world_kind kind);

#endif /* SUPPORT_SESSION_WORLDS_H */
