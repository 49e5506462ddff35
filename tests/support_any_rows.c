/*
 * support_any_rows.c: what rows hold, those of the library and those of an engine.
 *
 * The library's are read back and become one number. External groups have an engine whose rows hold
 * a token each: it writes where exports say and moves what the list of moves says, and outside of steps, once
 * no move is pending, each held cell must be the token that the engine has there.
 */
#include <math.h>
#include <string.h>

#include "model/random.h"
#include "support_any_play.h"

typedef struct summing {
    const any_player *p;
    uint64_t sum;
    cellar_run last; /* the run before, with its last position */
    bool is_recurrent[ANY_GROUPS];
} summing;

/* Any NaN is the same. */
static uint64_t hash_numbers(const float *numbers, size_t n)
{
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = UINT32_MAX;
        if (!isnan(numbers[i])) memcpy(&bits, &numbers[i], sizeof bits);
        hash = random_mix(hash, bits);
    }
    return hash;
}

static void sum_row(summing *s, const cellar_run *run, uint32_t l, cellar_pos pos)
{
    float k[ANY_HEADS * ANY_HEAD], v[ANY_HEADS * ANY_HEAD];
    const cellar_layer *layer = &s->p->any.layers[l];
    DEMAND(cellar_read_rows(s->p->any.memory, run->seq, l, pos, 1, k, v, NULL) == CELLAR_OK);
    uint64_t hash = hash_numbers(k, (size_t)layer->n_kv_heads * layer->k_size);
    hash = random_mix(hash, hash_numbers(v, (size_t)layer->n_kv_heads * layer->v_size));
    s->sum += random_mix(hash, (uint64_t)run->seq << 40 ^ (uint64_t)l << 32 ^ (uint32_t)pos);
}

/* One row for each position: where one run ends and the next begins may change. */
static bool sum_run(void *context, const cellar_run *run)
{
    summing *s = context;
    bool goes_on = run->seq == s->last.seq && run->group == s->last.group;
    cellar_pos seen = goes_on ? s->last.pos : -1;
    s->last = *run;
    s->last.pos += (cellar_pos)((run->len - 1) * run->step);
    for (uint32_t l = 0; l < s->p->any.config.n_layers; l++) {
        const cellar_layer *layer = &s->p->any.layers[l];
        bool is_its = cellar_group_of_layer(s->p->any.memory, l) == (int32_t)run->group;
        if (!is_its || layer->kind != CELLAR_LAYER_ATTENTION || layer->is_external) continue;
        for (cellar_pos pos = run->pos; pos <= s->last.pos; pos++)
            if (pos > seen) sum_row(s, run, l, pos);
    }
    return true;
}

static bool sum_state(void *context, const cellar_cell *cell)
{
    summing *s = context;
    if (!s->is_recurrent[cell->group]) return true;
    for (uint32_t l = 0; l < s->p->any.config.n_layers; l++) {
        const cellar_layer *layer = &s->p->any.layers[l];
        for (uint32_t t = 0; layer->kind == CELLAR_LAYER_RECURRENT && t < layer->n_states; t++) {
            const float *state = cellar_state_data(s->p->any.memory, cell->cell, l, t);
            DEMAND((state == NULL) == layer->is_external);
            if (state)
                s->sum += random_mix(hash_numbers(state, layer->state_sizes[t]),
                                     (uint64_t)cell->token << 32 ^ (uint32_t)cell->stored_pos);
        }
    }
    return true;
}

uint64_t any_rows(const any_player *p)
{
    if (!p->is_deep) return 0;
    summing s = {.p = p, .last.seq = -1};
    for (uint32_t g = 0; g < cellar_count_groups(p->any.memory); g++) {
        cellar_group_info info;
        DEMAND(cellar_get_group(p->any.memory, g, &info, NULL) == CELLAR_OK);
        s.is_recurrent[g] = info.kind == CELLAR_LAYER_RECURRENT;
    }
    for (cellar_seq seq = 0; seq < LOOK_SEQUENCES; seq++)
        DEMAND(cellar_visit_runs(p->any.memory, seq, sum_run, &s, NULL) == CELLAR_OK);
    DEMAND(cellar_visit_cells(p->any.memory, sum_state, &s, NULL) == CELLAR_OK);
    return s.sum;
}

/* ---- an engine's rows ------------------------------------------------------------------------ */

void any_engine_take(any_player *p, uint32_t ubatch, uint32_t layer, const cellar_token *tokens)
{
    cellar_ubatch its;
    int64_t rows[ANY_UBATCH];
    cellar_token *engine = p->engine[cellar_group_of_layer(p->any.memory, layer)];
    DEMAND(cellar_get_ubatch(p->any.memory, ubatch, &its, NULL) == CELLAR_OK);
    DEMAND(cellar_export_rows(p->any.memory, ubatch, layer, rows, NULL) == CELLAR_OK);
    for (uint32_t i = 0; i < its.n_tokens; i++) {
        DEMAND(rows[i] < ANY_ROWS);
        engine[rows[i]] = tokens[its.indices[i]];
    }
}

/* All rows of a move at once, as a copy on a device would be. */
static bool move_rows(void *context, const cellar_move *move)
{
    any_player *p = context;
    cellar_token *engine = p->engine[move->group];
    DEMAND(move->n > 0 && move->from + move->n <= ANY_ROWS && move->to + move->n <= ANY_ROWS);
    memmove(engine + move->to, engine + move->from, move->n * sizeof *engine);
    return true;
}

void any_engine_move(any_player *p)
{
    DEMAND(cellar_visit_moves(p->any.memory, move_rows, p, NULL) == CELLAR_OK);
}

typedef struct checking {
    const any_player *p;
    bool is_external[ANY_GROUPS]; /* and attends */
} checking;

static bool check_row(void *context, const cellar_cell *cell)
{
    const checking *c = context;
    if (c->is_external[cell->group]) DEMAND(c->p->engine[cell->group][cell->cell] == cell->token);
    return true;
}

void any_engine_check(const any_player *p)
{
    cellar_statistics stats;
    checking c = {.p = p};
    DEMAND(cellar_stats(p->any.memory, &stats, NULL) == CELLAR_OK);
    if (!p->any.has_external || stats.n_moves > 0) return;
    for (uint32_t g = 0; g < cellar_count_groups(p->any.memory); g++) {
        cellar_group_info info;
        DEMAND(cellar_get_group(p->any.memory, g, &info, NULL) == CELLAR_OK);
        c.is_external[g] = info.kind == CELLAR_LAYER_ATTENTION && info.is_external;
    }
    DEMAND(cellar_visit_cells(p->any.memory, check_row, &c, NULL) == CELLAR_OK);
}
