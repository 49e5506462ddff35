/*
 * differential_learn.c: learn from the library's runs what it was free to choose, and judge it.
 *
 * The runs of every sequence in every group must spell the model's entries that the group holds.
 * Groups that keep everything have no choice, nor have states but for those that a step can do without
 * when they are too few. A window group may lack entries: then
 * they must have been given up for want of cells, in an operation that asked for more than there
 * were, the oldest first, nothing that a next token sees, and not more cells than were missing. It
 * may have entries again only when the sequence went back to a checkpoint. Which cell a token got
 * is learned when it is first seen and must not change afterwards.
 */
#include "differential.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is held ---------------------------------------------------------------------------- */

/*
 * Can the library's cell be the one of this entry? Not if it has been another's since, nor if the entry
 * was given up before anybody saw where it lay.
 */
static bool could_be(const diff_round *r, uint32_t g, const model_entry *entry, cellar_pos pos,
                     uint32_t cell)
{
    uint32_t known = r->model.groups[g].slots[entry->slot[g]].real;
    bool is_its = known == cell && r->slot_of_real[g][cell] == entry->slot[g];
    bool is_new = known == MODEL_REAL_UNKNOWN && (entry->held >> g & 1);
    return entry->pos == pos && (is_new || is_its);
}

/* Which entries of a sequence a group holds: bit g of now[i]; *cells: where. */
static bool spell(diff_round *r, const model_sequence *sequence, uint32_t g, uint32_t *now,
                  uint32_t *cells)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < r->after.n_runs; i++) {
        const cellar_run *run = &r->after.runs[i];
        if (run->seq != sequence->name || (int32_t)run->group != r->model.groups[g].real) continue;
        if (run->len == 0 || run->step > 1)
            return round_fail(r, "sequence %d: a run of %u cells, step %u", run->seq, run->len,
                              run->step);
        if (run->shift != 0) r->out->tally[TALLY_SHIFTED]++;
        for (uint32_t k = 0; k < run->len; k++, at++) {
            cellar_pos pos = run->pos + (cellar_pos)(k * run->step);
            while (at < sequence->n && !could_be(r, g, &sequence->entries[at], pos, run->cell + k))
                at++;
            if (at == sequence->n)
                return round_fail(r,
                                  "sequence %d group %u holds position %d in cell %u, where the "
                                  "model has nothing or something else",
                                  run->seq, g, pos, run->cell + k);
            const model_cell *cell = &r->model.cells[sequence->entries[at].cell];
            if (r->model.groups[g].kind == CELLAR_LAYER_ATTENTION &&
                run->shift != pos - cell->stored_pos)
                return round_fail(r, "sequence %d position %d: shift %d, expected %d", run->seq,
                                  pos, run->shift, pos - cell->stored_pos);
            now[at] |= 1u << g;
            cells[at * MODEL_GROUPS + g] = run->cell + k;
        }
    }
    return true;
}

/* ---- what a window gave up ------------------------------------------------------------------- */

static uint32_t shortage(const diff_round *r, uint32_t g, uint32_t pool)
{
    uint32_t used = r->permit.used[g][pool], capacity = r->model.groups[g].most[pool];
    uint32_t n_free = used < capacity ? capacity - used : 0;
    /* What checkpoint_bytes adds is not said, nor how pools share it. */
    if (r->checkpoint_bytes > 0) n_free = 0;
    return r->permit.wanted[g][pool] > n_free ? r->permit.wanted[g][pool] - n_free : 0;
}

/* The entry is gone from group g: may it be? */
static bool judge_loss(diff_round *r, const model_sequence *sequence, uint32_t g,
                       const uint32_t *now, uint32_t i, uint32_t index)
{
    const model_group *group = &r->model.groups[g];
    const model_entry *entry = &sequence->entries[i];
    cellar_seq name = sequence->name;
    uint32_t pool = memory_model_pool(&r->model, name);
    int64_t last = sequence->entries[sequence->n - 1].pos;
    if (shortage(r, g, pool) == 0)
        return round_fail(r, "sequence %d group %u gave up position %d though there was room", name,
                          g, entry->pos);
    if (memory_model_sees(group, last + 1, entry))
        return round_fail(r, "sequence %d group %u gave up position %d, which position %lld sees",
                          name, g, entry->pos, (long long)last + 1);
    /* A step keeps what an abort needs, until its own tokens have pushed that out too. */
    uint32_t n_before = r->permit.n_before[index];
    bool is_own = r->permit.is_commit && i >= n_before;
    bool is_overrun = false;
    for (uint32_t j = i + 1; j < sequence->n && r->permit.is_commit; j++)
        is_overrun |= j >= n_before && !(now[j] >> g & 1);
    /* A copy between pools goes on elsewhere than its sequence did before. */
    bool is_copy = r->permit.copied_to == name;
    if (!is_own && !is_overrun && !is_copy &&
        memory_model_sees(group, r->permit.next_before[index], entry))
        return round_fail(r, "sequence %d group %u gave up position %d, which an abort needs", name,
                          g, entry->pos);
    for (uint32_t j = 0; j < i; j++)
        if ((now[j] >> g & 1) && sequence->entries[j].pos >= (int64_t)group->window.n_sinks)
            return round_fail(r, "sequence %d group %u gave up position %d before %d", name, g,
                              entry->pos, sequence->entries[j].pos);
    bool is_beside = (i > 0 && entry[-1].pos == entry->pos) ||
                     (i + 1 < sequence->n && entry[1].pos == entry->pos);
    r->permit.gave_up_together |= is_beside;
    r->out->tally[TALLY_RECLAIMED]++;
    r->out->tally[TALLY_REUSED] += is_own;
    return true;
}

/* The entry is back in group g: did a checkpoint bring it? */
static bool judge_return(diff_round *r, const model_sequence *sequence, uint32_t g, uint32_t i)
{
    const model_entry *entry = &sequence->entries[i];
    int64_t end = (int64_t)sequence->entries[sequence->n - 1].pos + 1;
    bool had_one = false;
    for (uint32_t c = 0; c < r->before.n_checkpoints; c++)
        had_one |= r->before.checkpoints[c].info.position == end;
    if (sequence->name != r->permit.returned || !had_one)
        return round_fail(r, "sequence %d group %u holds position %d again, which it gave up",
                          sequence->name, g, entry->pos);
    return true;
}

static bool judge_group(diff_round *r, const model_sequence *sequence, uint32_t g,
                        const uint32_t *now, uint32_t index)
{
    const model_group *group = &r->model.groups[g];
    bool is_window = group->window.kind != CELLAR_WINDOW_NONE;
    for (uint32_t i = 0; i < sequence->n; i++) {
        bool was = (sequence->entries[i].held & 1u << g) != 0, is = (now[i] & 1u << g) != 0;
        if (was == is) continue;
        bool is_state = group->kind == CELLAR_LAYER_RECURRENT;
        if (is_state && was && r->permit.is_commit && r->permit.is_short_of_states &&
            i + 1 < sequence->n && i >= r->permit.n_before[index])
            continue;
        if (!is_window)
            return round_fail(r, "sequence %d group %u %s position %d", sequence->name, g,
                              is ? "holds" : "does not hold", sequence->entries[i].pos);
        if (!(is ? judge_return(r, sequence, g, i) : judge_loss(r, sequence, g, now, i, index)))
            return false;
    }
    return true;
}

/* ---- which cells ----------------------------------------------------------------------------- */

static bool learn_cell(diff_round *r, uint32_t g, model_entry *entry, uint32_t real)
{
    model_group *group = &r->model.groups[g];
    uint32_t at = entry->slot[g];
    if (real >= r->n_real[g]) return round_fail(r, "a run names cell %u of %u", real, r->n_real[g]);
    uint32_t old = r->slot_of_real[g][real];
    bool is_known = old != MODEL_NO_SLOT && old != at && group->slots[old].real == real;
    if (is_known && group->kind == CELLAR_LAYER_RECURRENT && group->slots[old].names > 0 &&
        group->slots[old].cell == entry->cell) {
        /* The same state, not copied: states need not live in a pool. Perhaps only a checkpoint held it. */
        entry->slot[g] = old;
        return true;
    }
    if (is_known && group->slots[old].refs > 0)
        return round_fail(r, "a token was put into cell %u, which is held", real);
    group->slots[at].real = real;
    r->slot_of_real[g][real] = at;
    return true;
}

static bool learn_sequence(diff_round *r, cellar_seq name, uint32_t index, bool is_second)
{
    model_sequence *sequence = memory_model_sequence(&r->model, name);
    uint32_t *now = drive_grab(sequence->n, sizeof *now);
    uint32_t *cells = drive_grab((size_t)sequence->n * MODEL_GROUPS, sizeof *cells);
    bool is_good = true;
    for (uint32_t g = 0; g < r->model.n_groups && is_good; g++) {
        is_good = spell(r, sequence, g, now, cells) &&
                  (is_second || judge_group(r, sequence, g, now, index));
        for (uint32_t i = 0; i < sequence->n && is_good && is_second; i++)
            if (now[i] >> g & 1)
                is_good = learn_cell(r, g, &sequence->entries[i], cells[i * MODEL_GROUPS + g]);
    }
    for (uint32_t i = 0; i < sequence->n && is_good && !is_second; i++)
        sequence->entries[i].held = now[i];
    free(now);
    free(cells);
    return is_good;
}

/* ---- how much was given up ------------------------------------------------------------------- */

/* Cells that were in use before and are free or another's now, in one pool. */
static uint32_t count_freed(const diff_round *r, uint32_t g, uint32_t pool, const uint32_t *refs)
{
    const model_group *group = &r->model.groups[g];
    uint32_t n = 0;
    for (uint32_t s = 0; s < group->n_slots; s++)
        n += refs[s] > 0 && group->slots[s].refs == 0 && group->slots[s].pool == pool &&
             group->slots[s].real != MODEL_REAL_UNKNOWN;
    return n;
}

static bool judge_amounts(diff_round *r, uint32_t *refs[MODEL_GROUPS], bool has_reused)
{
    /* Tokens that share a position may go together. */
    bool is_step = r->permit.is_step && !has_reused && !r->permit.gave_up_together &&
                   r->before.n_checkpoints == 0 && r->after.n_checkpoints == 0;
    for (uint32_t g = 0; g < r->model.n_groups && is_step; g++)
        for (uint32_t p = 0; p < r->model.n_pools; p++) {
            uint32_t n = count_freed(r, g, p, refs[g]);
            if (r->model.groups[g].kind == CELLAR_LAYER_ATTENTION && n > shortage(r, g, p))
                return round_fail(r, "group %u gave up %u cells of pool %u, %u were missing", g, n,
                                  p, shortage(r, g, p));
        }
    return true;
}

/* A return to somewhere is worth something only if the sequence can go on there. */
static bool match_return(diff_round *r)
{
    if (!r->permit.must_continue) return true;
    const model_sequence *sequence = memory_model_sequence(&r->model, r->permit.returned);
    if (sequence->n == 0) return true;
    int64_t next = (int64_t)sequence->entries[sequence->n - 1].pos + 1;
    if (!memory_model_has_all(&r->model, sequence, next))
        return round_fail(r, "sequence %d went back to %lld and cannot go on there", sequence->name,
                          (long long)next);
    return true;
}

bool round_learn(diff_round *r)
{
    uint64_t reclaimed = r->out->tally[TALLY_RECLAIMED], reused = r->out->tally[TALLY_REUSED];
    uint32_t *refs[MODEL_GROUPS];
    bool is_good = true;
    for (uint32_t g = 0; g < r->model.n_groups; g++) {
        const model_group *group = &r->model.groups[g];
        refs[g] = drive_grab(group->n_slots, sizeof *refs[g]);
        for (uint32_t s = 0; s < group->n_slots; s++)
            refs[g][s] = group->slots[s].refs;
    }
    for (uint32_t s = 0; s < r->n_names && is_good; s++)
        is_good = learn_sequence(r, r->names[s], s, false);
    if (is_good && reclaimed != r->out->tally[TALLY_RECLAIMED]) memory_model_recount(&r->model);
    for (uint32_t s = 0; s < r->n_names && is_good; s++)
        is_good = learn_sequence(r, r->names[s], s, true);
    is_good = is_good && match_return(r) &&
              judge_amounts(r, refs, reused != r->out->tally[TALLY_REUSED]);
    memory_model_recount(&r->model);
    uint64_t expected = r->reclaimed_before + r->out->tally[TALLY_RECLAIMED] - reclaimed;
    if (is_good && r->after.stats.cells_reclaimed != expected)
        is_good = round_fail(r, "cells_reclaimed was %llu and is %llu, expected %llu",
                             (unsigned long long)r->reclaimed_before,
                             (unsigned long long)r->after.stats.cells_reclaimed,
                             (unsigned long long)expected);
    for (uint32_t g = 0; g < r->model.n_groups; g++)
        free(refs[g]);
    return is_good;
}

/* ---- states and checkpoints ------------------------------------------------------------------ */

bool round_match_state(diff_round *r, const model_sequence *sequence, uint32_t entry,
                       uint32_t state)
{
    const model_cell *cell = &r->model.cells[sequence->entries[entry].cell];
    float got[MODEL_STATE_FLOATS], again[MODEL_STATE_FLOATS];
    for (uint32_t l = 0; l < r->d.n_layers; l++) {
        const cellar_layer *layer = &r->d.layers[l];
        if (layer->kind != CELLAR_LAYER_RECURRENT) continue;
        if (!drive_read_state(&r->d, state, l, got))
            return round_fail(r, "state %u cannot be read", state);
        if (memcmp(got, cell->state + r->model.state_at[l], recurrence_size(layer) * sizeof *got))
            return round_fail(r, "sequence %d position %d: state %u of layer %u is %g, expected %g",
                              sequence->name, sequence->entries[entry].pos, state, l,
                              (double)got[0], (double)cell->state[r->model.state_at[l]]);
    }
    r->out->tally[TALLY_STATES]++;
    if (!random_one_in(&r->random, 16)) return true;
    /* What the model has noted behind each token is what reading all of them again gives. */
    memory_model_recompute_state(&r->model, sequence, entry + 1, again);
    r->out->tally[TALLY_RECOMPUTED]++;
    if (memcmp(again, cell->state, sizeof again))
        return round_fail(r, "sequence %d position %d: reading all again gives another state",
                          sequence->name, sequence->entries[entry].pos);
    return true;
}

static bool match_checkpoint(diff_round *r, const model_sequence *sequence,
                             const cellar_checkpoint_info *info)
{
    uint32_t end = 0, n_holders = 0;
    if (!memory_model_has_checkpoint(sequence, info->position))
        return round_fail(r, "sequence %d has a checkpoint at %d that nobody made", sequence->name,
                          info->position);
    for (uint32_t c = 0; c < r->after.n_checkpoints; c++)
        n_holders += r->after.checkpoints[c].info.position == info->position;
    if (info->n_holders == 0 || info->n_holders > n_holders)
        return round_fail(r, "a checkpoint at %d has %u holders, %u sequences have one there",
                          info->position, info->n_holders, n_holders);
    r->out->tally[TALLY_CHECKPOINTS_SHARED] += info->n_holders > 1;
    while (end < sequence->n && sequence->entries[end].pos < info->position)
        end++;
    bool has_states = memory_model_recurrent_group(&r->model) != MODEL_NONE;
    if (has_states == (info->state == CELLAR_NO_STATE))
        return round_fail(r, "a checkpoint at %d holds state %u", info->position, info->state);
    return !has_states || end == 0 || round_match_state(r, sequence, end - 1, info->state);
}

/* Does what is there agree with what has to be there? */
static bool match_places(diff_round *r, model_sequence *sequence)
{
    cellar_pos last = -1;
    uint32_t n = 0;
    for (uint32_t c = 0; c < r->after.n_checkpoints; c++) {
        const cellar_checkpoint_info *info = &r->after.checkpoints[c].info;
        if (r->after.checkpoints[c].seq != sequence->name) continue;
        if (info->position <= last)
            return round_fail(r, "checkpoints are not in order: %d after %d", info->position, last);
        if (!match_checkpoint(r, sequence, info)) return false;
        last = info->position;
        n++;
    }
    for (uint32_t i = 0, m = 0; i < sequence->n_checkpoints; i++, m = 0) {
        for (uint32_t c = 0; c < r->after.n_checkpoints; c++)
            m += r->after.checkpoints[c].seq == sequence->name &&
                 r->after.checkpoints[c].info.position == sequence->checkpoints[i].position;
        if (m == 0 && sequence->checkpoints[i].must)
            return round_fail(r, "sequence %d has lost its checkpoint at %d", sequence->name,
                              sequence->checkpoints[i].position);
    }
    sequence->n_checkpoints = 0;
    for (uint32_t c = 0; c < r->after.n_checkpoints; c++)
        if (r->after.checkpoints[c].seq == sequence->name)
            memory_model_add_checkpoint(sequence, r->after.checkpoints[c].info.position, true);
    cellar_sequence_info info;
    if (cellar_get_sequence(r->d.memory, sequence->name, &info, NULL) != CELLAR_OK ||
        info.n_checkpoints != n)
        return round_fail(r, "sequence %d has %u checkpoints, visited %u", sequence->name,
                          info.n_checkpoints, n);
    return true;
}

bool round_match_checkpoints(diff_round *r)
{
    const cellar_statistics *was = &r->before.stats, *is = &r->after.stats;
    for (uint32_t s = 0; s < r->n_names; s++)
        if (!match_places(r, memory_model_sequence(&r->model, r->names[s]))) return false;
    if (is->n_checkpoints > r->after.n_checkpoints ||
        is->checkpoints_dropped < was->checkpoints_dropped)
        return round_fail(r, "%u checkpoints, %u seen; %llu dropped, %llu before",
                          is->n_checkpoints, r->after.n_checkpoints,
                          (unsigned long long)is->checkpoints_dropped,
                          (unsigned long long)was->checkpoints_dropped);
    r->out->tally[TALLY_CHECKPOINTS_DROPPED] += is->checkpoints_dropped - was->checkpoints_dropped;
    if (r->permit.is_commit && is->n_checkpoints > was->n_checkpoints)
        r->out->tally[TALLY_CHECKPOINTS_MARKED] += is->n_checkpoints - was->n_checkpoints;
    return true;
}
