/*
 * support_play.h: steps of any shape on a memory of any kind, chosen by an input.
 *
 * Batches of several sequences, coupled tokens, points and wishes for checkpoints; micro-batches that are
 * stored, attended to and exported, all or a part; then a commit or an abort. Sequences can be poisoned:
 * what they read is NaN. All others must go on computing finite numbers, whoever held their cells before.
 */
#ifndef SUPPORT_PLAY_H
#define SUPPORT_PLAY_H

#include "support_any_memory.h"
#include "support_look.h"

typedef struct player {
    any_memory any;
    input in;
    bool is_poisoned[LOOK_SEQUENCES]; /* may hold NaN */
    cellar_token next_token;          /* every token is another */
} player;

/* Check every invariant; allocations succeed meanwhile. */
void play_check(player *p);

/* A sequence: mostly 0..LOOK_SEQUENCES-1. */
cellar_seq play_sequence(player *p);

/* Open a step, play it, end it. Failures may be armed; they are disarmed when it returns. */
void play_step(player *p);

/* Exports of a layer in a micro-batch, into blocks of exactly the size they need. */
void play_exports(player *p, uint32_t ubatch, uint32_t layer);

#endif /* SUPPORT_PLAY_H */
