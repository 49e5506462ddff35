/*
 * support_any_play.h: any calls on a memory of any kind, chosen by an input.
 *
 * The input says which memory, and then operation by operation what is done to it, with sensible,
 * extreme and wrong arguments, failing allocations and failing stores (support_any_calls.c). The
 * largest of the operations is a step (support_any_step.c, support_any_exports.c): batches of several
 * sequences, coupled tokens, points and wishes for checkpoints; micro-batches that are stored, attended
 * to and exported, all or a part; then a commit or an abort. Sequences can be poisoned: what they read
 * is NaN. All others must go on computing finite numbers, whoever held their cells before.
 */
#ifndef SUPPORT_ANY_PLAY_H
#define SUPPORT_ANY_PLAY_H

#include "support_any_memory.h"
#include "support_look.h"

enum { ANY_GROUPS = 16, ANY_ROWS = 2048 };

typedef struct any_player {
    any_memory any;
    input in;
    bool is_poisoned[LOOK_SEQUENCES]; /* may hold NaN */
    cellar_token next_token;          /* every token is another */
    bool is_deep;                     /* compare rows as well, this time */
    cellar_error error;
    cellar_token engine[ANY_GROUPS][ANY_ROWS]; /* what an engine has in its own rows */
} any_player;

/* A memory from its creation to its end. */
void any_play(const uint8_t *data, size_t size);

/* Check every invariant; allocations succeed meanwhile. */
void any_check(any_player *p);

/* A sequence: mostly 0..LOOK_SEQUENCES-1. */
cellar_seq any_sequence(any_player *p);

/* Open a step, play it, end it. Failures may be armed; they are disarmed when it returns. */
void any_step(any_player *p);

/* A question, or a call with wrong arguments: nothing may change. Its status may be a failure. */
cellar_status any_ask(any_player *p, cellar_seq seq, cellar_pos p0);

/* A number for all rows and states that are held, where that was asked for (is_deep); else 0. */
uint64_t any_rows(const any_player *p);

/* The engine of external layers: takes tokens of a micro-batch, moves its rows, has what is held. */
void any_engine_take(any_player *p, uint32_t ubatch, uint32_t layer, const cellar_token *tokens);
void any_engine_move(any_player *p);
void any_engine_check(const any_player *p);

/* Exports of a layer in a micro-batch, into blocks of exactly the size they need. */
void any_exports(any_player *p, uint32_t ubatch, uint32_t layer);

#endif /* SUPPORT_ANY_PLAY_H */
