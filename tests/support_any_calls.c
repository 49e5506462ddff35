/*
 * support_any_calls.c: any sequence of calls on any kind of memory, chosen by an input.
 *
 * An input is a configuration and a list of operations: a byte that says which, a byte that may order
 * failures (of an allocation, of a call of the caller's store), then arguments, mostly sensible and
 * sometimes extreme. After each operation every invariant is checked; a failed one must have changed
 * nothing that can be seen; calls that only move rows must not change what is held. Now and then the
 * rows and states themselves are compared as well.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support_any_play.h"

enum { MOST_OPERATIONS = 400, MOST_READ = 16 };

/* What an operation keeps even when it succeeds. */
typedef enum keeps { KEEPS_NOTHING, KEEPS_TOKENS, KEEPS_HELD, KEEPS_EVERYTHING } keeps;

static cellar_pos some_position(any_player *p, cellar_seq seq)
{
    cellar_pos end = seq >= 0 ? cellar_position_max(p->any.memory, seq) + 1 : 0;
    return input_number(&p->in, (uint32_t)(end < 0 || end > 200 ? 200 : end) + 2);
}

/* ---- poison ---------------------------------------------------------------------------------- */

static bool is_ours(cellar_seq seq)
{
    return seq >= 0 && seq < LOOK_SEQUENCES;
}

/* A sequence that exists no more holds no NaN either, nor do its checkpoints. */
static void forget_poison(any_player *p)
{
    for (cellar_seq seq = 0; seq < LOOK_SEQUENCES; seq++) {
        cellar_sequence_info info;
        DEMAND(cellar_get_sequence(p->any.memory, seq, &info, NULL) == CELLAR_OK);
        if (info.n_cells == 0 && info.pos_next == 0 && info.n_checkpoints == 0)
            p->is_poisoned[seq] = false;
    }
}

static cellar_status copy(any_player *p, cellar_seq from, cellar_seq to, cellar_pos p0,
                          cellar_pos p1)
{
    cellar_status status = cellar_copy(p->any.memory, from, to, p0, p1, &p->error);
    if (status == CELLAR_OK && is_ours(to) && (!is_ours(from) || p->is_poisoned[from]))
        p->is_poisoned[to] = true;
    return status;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Goes where cellar_can_continue said. */
static cellar_status rewind_to(any_player *p, cellar_seq seq, cellar_pos n)
{
    cellar_pos expected = -1, from = -1;
    cellar_status can = cellar_can_continue(p->any.memory, seq, n, &expected, NULL);
    cellar_status status = cellar_rewind(p->any.memory, seq, n, &from, &p->error);
    DEMAND((can == CELLAR_INVALID) <= (status == CELLAR_INVALID));
    if (status != CELLAR_OK) return status;
    DEMAND(from == (can == CELLAR_OK ? n : expected));
    DEMAND(from >= 0 && from <= n);
    DEMAND(cellar_position_max(p->any.memory, seq) < n);
    return status;
}

static cellar_status read_rows(any_player *p, cellar_seq seq, cellar_pos p0)
{
    uint32_t l = input_below(&p->in, p->any.config.n_layers), n = input_below(&p->in, MOST_READ);
    const cellar_layer *layer = &p->any.layers[l];
    size_t n_k = (size_t)n * layer->n_kv_heads * layer->k_size;
    size_t n_v = (size_t)n * layer->n_kv_heads * layer->v_size;
    float *k = malloc(n_k * sizeof *k + 1), *v = malloc(n_v * sizeof *v + 1);
    DEMAND(k != NULL && v != NULL);
    cellar_status status = cellar_read_rows(p->any.memory, seq, l, p0, n, k, v, &p->error);
    if (status == CELLAR_OK && is_ours(seq) && !p->is_poisoned[seq]) {
        for (size_t i = 0; i < n_k; i++)
            DEMAND(isfinite(k[i]));
        for (size_t i = 0; i < n_v; i++)
            DEMAND(isfinite(v[i]));
    }
    free(k);
    free(v);
    return status;
}

static cellar_status change_places(any_player *p, cellar_seq seq, keeps *kept)
{
    cellar_memory *memory = p->any.memory;
    uint32_t n = input_byte(&p->in), n_moved;
    switch (input_below(&p->in, 4)) {
    case 0:
        *kept = KEEPS_TOKENS;
        return cellar_settle(memory, seq, &p->error);
    case 1:
        *kept = KEEPS_HELD;
        return cellar_compact(memory, n == 255 ? UINT32_MAX : n, &n_moved, &p->error);
    case 2:
        return cellar_resize(memory, n % (ANY_POOLS + 1), input_below(&p->in, 220), &p->error);
    default:
        *kept = KEEPS_HELD;
        any_engine_move(p);
        return cellar_confirm_moves(memory, &p->error);
    }
}

static cellar_status edit(any_player *p, uint32_t kind, cellar_seq seq, cellar_pos p0,
                          cellar_pos p1)
{
    cellar_memory *memory = p->any.memory;
    cellar_pos delta = input_number(&p->in, 24), discarded;
    cellar_seq other;
    if (input_byte(&p->in) & 1 && delta != INT32_MIN) delta = -delta;
    switch (kind) {
    case 0:
        return cellar_remove(memory, seq, p0, p1, &p->error);
    case 1:
        return copy(p, seq, any_sequence(p), 0, -1);
    case 2:
        other = any_sequence(p);
        return copy(p, seq, other, input_one_in(&p->in, 2) ? p0 : 0, p1);
    case 3:
        return cellar_shift(memory, seq, p0, p1, delta, &p->error);
    case 4:
        return cellar_shift_context(memory, seq, p0, delta, &discarded, &p->error);
    case 5:
        return cellar_divide(memory, seq, p0, p1, 1 + delta % 5, &p->error);
    case 6:
        return rewind_to(p, seq, p0);
    case 7:
        return cellar_drop_checkpoints(memory, seq, p0, p1, &p->error);
    case 8:
        return cellar_remove(memory, seq, 0, -1, &p->error);
    default:
        if (p0 % 8 == 7) return cellar_clear(memory, &p->error);
        return p0 % 4 == 3 ? cellar_keep(memory, seq, &p->error)
                           : cellar_checkpoint(memory, seq, &p->error);
    }
}

/* Failures to come, or a look at all rows afterwards. */
static void order_failures(any_player *p)
{
    uint8_t byte = input_byte(&p->in);
    p->any.n_failures = 0;
    p->is_deep = byte % 8 == 5;
    if (byte % 8 == 7) p->any.allocations_left = byte / 8 % 6;
    if (byte % 8 == 6) p->any.store_calls_left = byte / 8;
    p->error = (cellar_error){.status = CELLAR_OK, .at = -7};
}

/* A failure says what it is, a success says nothing. */
static void expect_error(const any_player *p, cellar_status status)
{
    const cellar_error *error = &p->error;
    if (error->at == -7 && error->message[0] == '\0') {
        DEMAND(status == CELLAR_OK);
        return;
    }
    DEMAND(status == error->status && status != CELLAR_OK);
    DEMAND(error->message[0] != '\0' && memchr(error->message, '\0', sizeof error->message));
    DEMAND(error->reason >= CELLAR_REASON_NONE && error->reason <= CELLAR_REASON_INVARIANT);
}

static void expect_status(const any_player *p, cellar_status status)
{
    bool is_poor = p->any.n_failures > 0 || p->any.config.budget_bytes > 0;
    DEMAND(status != CELLAR_CORRUPT && status != CELLAR_UNSUPPORTED && status != CELLAR_MISMATCH);
    DEMAND(status != CELLAR_IO || p->any.n_failures > 0);
    DEMAND(status != CELLAR_NO_MEMORY || is_poor);
    expect_error(p, status);
}

static void do_operation(any_player *p, uint8_t kind)
{
    cellar_seq seq = any_sequence(p);
    cellar_pos p0 = some_position(p, seq), p1 = some_position(p, seq);
    if (input_one_in(&p->in, 2)) p1 = -1;
    keeps kept = KEEPS_NOTHING;
    look before = look_at(p->any.memory);
    order_failures(p);
    uint64_t rows = any_rows(p);
    cellar_status status;
    if (kind < 20) {
        status = edit(p, kind / 2, seq, p0, p1);
    } else if (kind < 26) {
        status = change_places(p, seq, &kept);
    } else if (kind < 28) {
        kept = KEEPS_EVERYTHING;
        status = read_rows(p, seq, p0);
    } else {
        kept = KEEPS_EVERYTHING;
        status = any_ask(p, seq, p0);
    }
    expect_status(p, status);
    p->any.allocations_left = p->any.store_calls_left = -1;
    any_check(p);
    look after = look_at(p->any.memory);
    bool may_move = kept == KEEPS_HELD; /* what was moved before a failure stays moved */
    if (status != CELLAR_OK && !may_move) DEMAND(after.everything == before.everything);
    if (kept == KEEPS_EVERYTHING) DEMAND(after.everything == before.everything);
    if (kept == KEEPS_HELD) DEMAND(after.held == before.held);
    if (kept == KEEPS_TOKENS) DEMAND(after.tokens == before.tokens);
    if (status != CELLAR_OK || kept >= KEEPS_HELD) DEMAND(any_rows(p) == rows);
    any_engine_check(p);
    forget_poison(p);
}

static void play(any_player *p)
{
    for (uint32_t i = 0; i < MOST_OPERATIONS && p->in.at < p->in.size; i++) {
        uint8_t kind = input_byte(&p->in);
        if (kind % 5 >= 2) {
            do_operation(p, kind / 5 % 30);
            continue;
        }
        order_failures(p);
        any_step(p);
        any_engine_check(p);
        forget_poison(p);
    }
}

void any_play(const uint8_t *data, size_t size)
{
    static any_player p;
    uint8_t *copied = malloc(size ? size : 1); /* exactly sized, so that a read beyond it shows */
    DEMAND(copied != NULL);
    if (size) memcpy(copied, data, size);
    memset(&p, 0, sizeof p);
    p.in = (input){copied, size, 0};
    p.next_token = 1;
    if (any_open(&p.any, &p.in)) {
        play(&p);
        any_close(&p.any);
    }
    free(copied);
}
