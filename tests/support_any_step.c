/*
 * support_any_step.c: steps from bytes. See support_any_play.h.
 *
 * A batch is put together first (always with arrays of the lengths it claims), then begun; the look before
 * tells what must be there again if it is refused or aborted. Between begin and the end nothing may be
 * allocated.
 */
#include "support_any_play.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 24, MOST_ROWS = ANY_UBATCH * ANY_HEADS * ANY_HEAD };

typedef struct step {
    cellar_batch batch;
    cellar_token tokens[MOST_TOKENS];
    cellar_pos positions[MOST_TOKENS];
    cellar_point points[MOST_TOKENS];
    uint32_t seq_begin[MOST_TOKENS + 1];
    cellar_seq seqs[3 * MOST_TOKENS];
    bool checkpoints[MOST_TOKENS];
    bool is_poison;  /* rows of this step are NaN */
    bool was_stored; /* something has been written */
    bool is_whole;   /* all has been stored without failure */
} step;

void any_check(any_player *p)
{
    int left = p->any.allocations_left;
    p->any.allocations_left = -1;
    cellar_error error = {0};
    cellar_status status = cellar_check(p->any.memory, &error);
    input_demand(status == CELLAR_OK, error.message, "cellar_check", 0);
    p->any.allocations_left = left;
}

cellar_seq any_sequence(any_player *p)
{
    uint8_t byte = input_byte(&p->in);
    if (byte == 255) return -1;
    return byte == 254 ? INT32_MAX : byte % LOOK_SEQUENCES;
}

static bool is_ours(cellar_seq seq)
{
    return seq >= 0 && seq < LOOK_SEQUENCES;
}

/* ---- batches --------------------------------------------------------------------------------- */

static void choose_sequences(any_player *p, step *s)
{
    cellar_seq some[3];
    for (uint32_t i = 0; i < 3; i++)
        some[i] = any_sequence(p); /* in this order with every compiler */
    uint32_t how = input_below(&p->in, 6), n = 0;
    for (uint32_t i = 0; i < s->batch.n_tokens; i++) {
        uint8_t byte = how < 2 ? (uint8_t)how : input_byte(&p->in);
        if (how < 4) s->seqs[n++] = some[how < 2 ? 0 : byte % 3];
        if (how == 4) s->seqs[n++] = some[i % 2];
        if (how == 5) s->seqs[n++] = some[0];
        if (how == 1 || (how == 5 && byte % 4 == 0)) s->seqs[n++] = some[1];
        if (how == 3 && byte % 8 == 7) s->seqs[n++] = some[(byte + 1) % 3];
        s->seq_begin[i + 1] = n;
    }
    s->batch.seqs = s->seqs;
    s->batch.seq_begin = s->seq_begin;
}

static cellar_pos far_from(cellar_pos pos, int32_t distance)
{
    return pos > INT32_MAX - distance ? INT32_MAX : pos + distance;
}

/* Where each token would stand, and now and then somewhere else. */
static void choose_positions(any_player *p, step *s)
{
    cellar_pos next[LOOK_SEQUENCES];
    bool has_points = p->any.is_2d && input_one_in(&p->in, 2);
    for (cellar_seq seq = 0; seq < LOOK_SEQUENCES; seq++) {
        cellar_sequence_info info;
        DEMAND(cellar_get_sequence(p->any.memory, seq, &info, NULL) == CELLAR_OK);
        next[seq] = info.pos_next;
    }
    for (uint32_t i = 0; i < s->batch.n_tokens; i++) {
        cellar_seq seq = s->seqs[s->seq_begin[i]];
        uint8_t byte = input_byte(&p->in);
        cellar_pos pos = is_ours(seq) ? next[seq] : 0;
        if (has_points && i > 0 && byte % 3 == 0 && s->seqs[s->seq_begin[i - 1]] == seq)
            pos = s->positions[i - 1];
        else if (has_points && byte % 16 == 5 && is_ours(seq) && pos > 0)
            pos = pos - 1; /* beside what is held already, where that is allowed */
        else if (p->any.is_2d && byte % 8 == 1)
            pos = far_from(pos, byte / 8);
        if (byte == 255) pos = input_number(&p->in, 40);
        s->positions[i] = pos;
        s->points[i] = (cellar_point){far_from(pos, byte % 5), far_from(pos, byte / 16)};
        if (byte == 254) s->points[i].x = input_number(&p->in, 40);
        for (uint32_t k = s->seq_begin[i]; k < s->seq_begin[i + 1]; k++)
            if (is_ours(s->seqs[k]) && pos >= 0 && pos < INT32_MAX) next[s->seqs[k]] = pos + 1;
    }
    s->batch.positions = s->positions;
    if (has_points) s->batch.points = s->points;
}

static void choose_batch_mistake(any_player *p, step *s)
{
    uint8_t which = input_byte(&p->in);
    if (which == 255) s->batch.struct_size++;
    if (which == 254) s->batch.n_tokens = 0;
    if (which == 253) s->seq_begin[s->batch.n_tokens] = 0;
    if (which == 252) s->seq_begin[0] = 1;
    if (which == 251) s->batch.points = s->points;
    if (which == 250) s->batch.seq_begin = NULL;
    if (which == 249) s->batch.seqs = NULL;
}

static void choose_batch(any_player *p, step *s)
{
    uint8_t shape = input_byte(&p->in);
    memset(s, 0, sizeof *s);
    s->batch = cellar_batch_init();
    s->batch.n_tokens = 1 + shape % MOST_TOKENS;
    choose_sequences(p, s);
    if (shape & 32 || p->any.is_2d) choose_positions(p, s);
    for (uint32_t i = 0; i < s->batch.n_tokens; i++)
        s->tokens[i] = p->next_token++;
    s->batch.tokens = s->tokens;
    for (uint32_t i = 0; shape & 64 && i < s->batch.n_tokens; i++)
        s->checkpoints[i] = input_one_in(&p->in, 4);
    if (shape & 64) s->batch.checkpoints = s->checkpoints;
    s->is_poison = input_one_in(&p->in, 6);
    choose_batch_mistake(p, s);
}

/* ---- computing ------------------------------------------------------------------------------- */

static void fill(float *to, uint32_t n, uint32_t salt, bool is_poison)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = is_poison ? NAN : (float)((i * 7 + salt * 5) % 13) / 4 - 1.5f;
}

static bool all_finite(const float *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(numbers[i])) return false;
    return true;
}

/* May this token of a micro-batch see NaN? */
static bool sees_poison(const any_player *p, const step *s, uint32_t token)
{
    if (s->is_poison) return true;
    uint32_t first = s->batch.seq_begin ? s->seq_begin[token] : token;
    uint32_t end = s->batch.seq_begin ? s->seq_begin[token + 1] : token + 1;
    for (uint32_t k = first; k < end; k++) {
        cellar_seq seq = s->batch.seqs ? s->seqs[k] : 0;
        if (!is_ours(seq) || p->is_poisoned[seq]) return true;
    }
    return false;
}

/* What was refused: a failing store says so, nothing else fails. */
static bool went_well(const any_player *p, cellar_status status)
{
    DEMAND(status == CELLAR_OK || (status == CELLAR_IO && p->any.n_failures > 0));
    return status == CELLAR_OK;
}

static bool write_states(any_player *p, step *s, uint32_t u, uint32_t l)
{
    cellar_ubatch ubatch;
    DEMAND(cellar_get_ubatch(p->any.memory, u, &ubatch, NULL) == CELLAR_OK);
    const cellar_layer *layer = &p->any.layers[l];
    for (uint32_t segment = 0; segment < ubatch.n_segments; segment++) {
        cellar_states states;
        DEMAND(cellar_get_states(p->any.memory, u, segment, &states, NULL) == CELLAR_OK);
        DEMAND(states.n_targets >= 1);
        DEMAND(states.after[states.n_targets - 1] == ubatch.segments[segment].n_tokens);
        bool is_poison = sees_poison(p, s, ubatch.indices[ubatch.segments[segment].first]);
        for (uint32_t t = 0; t < layer->n_states; t++) {
            uint32_t n = layer->state_sizes[t];
            const float *source = cellar_state_data(p->any.memory, states.source, l, t);
            DEMAND(layer->is_external || states.source == CELLAR_NO_STATE || source != NULL);
            if (source && !is_poison) DEMAND(all_finite(source, n));
            for (uint32_t i = 0; i < states.n_targets; i++) {
                float *to = cellar_state_data(p->any.memory, states.targets[i], l, t);
                DEMAND(layer->is_external ? to == NULL : to != NULL);
                if (to) fill(to, n, i, s->is_poison);
            }
        }
    }
    DEMAND(cellar_get_states(p->any.memory, u, ubatch.n_segments, &(cellar_states){0}, NULL) ==
           CELLAR_INVALID);
    s->was_stored = true;
    return went_well(p, cellar_confirm(p->any.memory, u, l, NULL));
}

static bool store_layer(any_player *p, step *s, uint32_t u, uint32_t l)
{
    static float k[MOST_ROWS], v[MOST_ROWS];
    const cellar_layer *layer = &p->any.layers[l];
    if (layer->kind == CELLAR_LAYER_NONE) return true;
    if (layer->kind == CELLAR_LAYER_RECURRENT) return write_states(p, s, u, l);
    if (layer->reads_layer >= 0) return true;
    s->was_stored = true;
    if (layer->is_external) {
        any_engine_take(p, u, l, s->tokens);
        return went_well(p, cellar_confirm(p->any.memory, u, l, NULL));
    }
    fill(k, MOST_ROWS, u + l, s->is_poison);
    fill(v, MOST_ROWS, u + l + 1, s->is_poison);
    cellar_status status = cellar_store(p->any.memory, u, l, k, layer->v_in_k ? NULL : v, NULL);
    if (status == CELLAR_OK)
        DEMAND(cellar_store(p->any.memory, u, l, k, layer->v_in_k ? NULL : v, NULL) ==
               CELLAR_INVALID);
    return went_well(p, status);
}

static bool attend_layer(any_player *p, const step *s, uint32_t u, uint32_t l)
{
    static float q[MOST_ROWS], out[MOST_ROWS];
    const cellar_layer *layer = &p->any.layers[l];
    if (layer->kind != CELLAR_LAYER_ATTENTION || layer->is_external) {
        DEMAND(cellar_attend(p->any.memory, u, l, q, out, NULL) == CELLAR_INVALID);
        return true;
    }
    cellar_ubatch ubatch;
    DEMAND(cellar_get_ubatch(p->any.memory, u, &ubatch, NULL) == CELLAR_OK);
    fill(q, MOST_ROWS, u + 3, false);
    fill(out, MOST_ROWS, 0, true);
    if (!went_well(p, cellar_attend(p->any.memory, u, l, q, out, NULL))) return false;
    uint32_t size = layer->n_heads * layer->v_size;
    for (uint32_t i = 0; i < ubatch.n_tokens; i++)
        if (!sees_poison(p, s, ubatch.indices[i])) DEMAND(all_finite(out + (size_t)i * size, size));
    return true;
}

/* Store every layer of a micro-batch, then attend; false: a store failed, or the input wants no more. */
static bool play_ubatch(any_player *p, step *s, uint32_t u, uint32_t first, uint32_t *left)
{
    uint32_t n = p->any.config.n_layers;
    cellar_ubatch ubatch;
    DEMAND(cellar_get_ubatch(p->any.memory, u, &ubatch, NULL) == CELLAR_OK);
    DEMAND(ubatch.n_tokens >= 1 && ubatch.n_tokens <= p->any.config.n_ubatch);
    DEMAND(ubatch.n_segments >= 1 && ubatch.n_segments <= ubatch.n_tokens);
    for (uint32_t i = 0; i < n; i++) {
        if ((*left)-- == 0) return false;
        if (!store_layer(p, s, u, (first + i) % n)) return false;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!attend_layer(p, s, u, (first + i) % n)) return false;
    return true;
}

static bool see_line(void *context, const char *line)
{
    DEMAND(line[0] != '\0');
    ++*(uint32_t *)context;
    return true;
}

/* Calls that would change the memory are refused while a step is open; looking is not. */
static void play_busy(any_player *p, const step *s)
{
    cellar_memory *memory = p->any.memory;
    cellar_pos from;
    cellar_status status = CELLAR_BUSY;
    uint32_t n_lines = 0;
    switch (input_below(&p->in, 15)) {
    case 14:
        DEMAND(cellar_dump(memory, see_line, &n_lines, NULL) == CELLAR_OK && n_lines > 0);
        break;
    case 0:
        status = cellar_remove(memory, 0, 0, -1, NULL);
        break;
    case 1:
        status = cellar_copy(memory, 0, 1, 0, -1, NULL);
        break;
    case 2:
        status = cellar_keep(memory, 0, NULL);
        break;
    case 3:
        status = cellar_shift(memory, 0, 0, -1, 1, NULL);
        break;
    case 4:
        status = cellar_divide(memory, 0, 0, -1, 2, NULL);
        break;
    case 5:
        status = cellar_settle(memory, 0, NULL);
        break;
    case 6:
        status = cellar_clear(memory, NULL);
        break;
    case 7:
        status = cellar_compact(memory, 1, NULL, NULL);
        break;
    case 8:
        status = cellar_resize(memory, 0, 50, NULL);
        break;
    case 9:
        status = cellar_checkpoint(memory, 0, NULL);
        break;
    case 10:
        status = cellar_drop_checkpoints(memory, 0, 0, -1, NULL);
        break;
    case 11:
        status = cellar_rewind(memory, 0, 0, &from, NULL);
        break;
    case 12:
        status = cellar_begin(memory, &s->batch, NULL);
        break;
    default:
        break;
    }
    DEMAND(status == CELLAR_BUSY);
}

static void play_open_step(any_player *p, step *s)
{
    uint32_t first = input_below(&p->in, p->any.config.n_layers), n = p->any.config.n_layers;
    uint32_t left = UINT32_MAX, n_allocations = p->any.n_allocations;
    if (input_one_in(&p->in, 4)) left = input_below(&p->in, 2 * n + 1);
    uint32_t u = 0, n_ubatches = cellar_count_ubatches(p->any.memory);
    DEMAND(n_ubatches >= 1);
    while (u < n_ubatches && play_ubatch(p, s, u, first, &left))
        u++;
    s->is_whole = u == n_ubatches;
    DEMAND(p->any.n_allocations == n_allocations);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* What an abort gives back always, and what it may have lost. */
static void expect_aborted(const any_player *p, const step *s, const look *before, bool settles)
{
    look after = look_at(p->any.memory);
    bool wrote = s->was_stored || p->any.has_states || p->any.has_external;
    if (!wrote && !settles) DEMAND(after.everything == before->everything);
    if (!wrote) DEMAND(after.tokens == before->tokens);
    if (!settles && !p->any.config.checkpoint_bytes) DEMAND(after.whole == before->whole);
    DEMAND(after.n_checkpoints <= before->n_checkpoints);
    for (cellar_seq seq = 0; seq < LOOK_SEQUENCES; seq++) {
        const cellar_sequence_info *old = &before->sequences[seq], *now = &after.sequences[seq];
        /* where a chunk ends, the next token may see nothing of what was given up */
        bool is_lost = p->any.has_window && now->pos_max < old->pos_max;
        DEMAND(now->pos_next == old->pos_next && (now->pos_max == old->pos_max || is_lost));
        /* it can fall where the places that it was about are given up themselves */
        DEMAND(now->rewind_min >= old->rewind_min || now->n_cells < old->n_cells);
        DEMAND(now->n_checkpoints <= old->n_checkpoints);
    }
}

static void expect_committed(any_player *p, const step *s)
{
    for (uint32_t i = 0; i < s->batch.n_tokens; i++)
        for (uint32_t k = s->batch.seq_begin ? s->seq_begin[i] : i;
             k < (s->batch.seq_begin ? s->seq_begin[i + 1] : i + 1); k++) {
            cellar_seq seq = s->batch.seqs ? s->seqs[k] : 0;
            if (!is_ours(seq)) continue;
            if (s->is_poison) p->is_poisoned[seq] = true;
            cellar_sequence_info info;
            DEMAND(cellar_get_sequence(p->any.memory, seq, &info, NULL) == CELLAR_OK);
            if (s->batch.positions) DEMAND(info.pos_next > s->positions[i]);
        }
}

void any_step(any_player *p)
{
    static step s;
    choose_batch(p, &s);
    look before = look_at(p->any.memory);
    uint32_t max_shifts = p->any.config.max_shifts;
    bool settles = max_shifts > 0 && before.most_shifts > max_shifts;
    uint64_t rows = any_rows(p);
    cellar_status status = cellar_begin(p->any.memory, &s.batch, &p->error);
    p->any.allocations_left = -1;
    any_check(p);
    if (status != CELLAR_OK) {
        p->any.store_calls_left = -1;
        look after = look_at(p->any.memory);
        DEMAND(after.tokens == before.tokens);
        if (!settles) DEMAND(after.everything == before.everything && any_rows(p) == rows);
        DEMAND(status == p->error.status && p->error.message[0] != '\0');
        DEMAND(status != CELLAR_CORRUPT && status != CELLAR_REFUSED &&
               status != CELLAR_UNSUPPORTED);
        DEMAND(status != CELLAR_IO || settles);
        bool is_poor = p->any.n_failures > 0 || p->any.config.budget_bytes > 0;
        DEMAND(status != CELLAR_NO_MEMORY || is_poor);
        return;
    }
    play_busy(p, &s);
    bool wants_abort = input_one_in(&p->in, 4);
    if (!wants_abort || input_one_in(&p->in, 2)) play_open_step(p, &s);
    any_check(p);
    if (input_one_in(&p->in, 3)) {
        uint32_t u = input_below(&p->in, cellar_count_ubatches(p->any.memory));
        any_exports(p, u, input_below(&p->in, p->any.config.n_layers));
    }
    p->any.store_calls_left = -1;
    uint32_t n_allocations = p->any.n_allocations;
    /* a part is enough where the layers that were left out store nothing */
    cellar_status ended = wants_abort ? CELLAR_INVALID : cellar_commit(p->any.memory, NULL);
    DEMAND(ended == CELLAR_OK || (ended == CELLAR_INVALID && (wants_abort || !s.is_whole)));
    if (ended == CELLAR_OK)
        expect_committed(p, &s);
    else
        cellar_abort(p->any.memory);
    DEMAND(p->any.n_allocations == n_allocations);
    DEMAND(cellar_commit(p->any.memory, NULL) == CELLAR_INVALID);
    any_check(p);
    if (ended != CELLAR_OK) expect_aborted(p, &s, &before, settles);
    if (ended != CELLAR_OK && !s.was_stored && !settles && !p->any.has_states)
        DEMAND(any_rows(p) == rows);
}
