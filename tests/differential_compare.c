/*
 * differential_compare.c: hold everything that can be seen of the library against the plain model.
 *
 * First what the library was free to choose is learned and judged (differential_learn.c). Then the
 * cells must have the model's counts, tokens and stored positions; states must be what reading
 * their tokens gives; the counts of cellar_stats, cellar_get_group and cellar_get_sequence must
 * agree; runs must be maximal; cellar_check must find nothing. The first difference is noted and
 * ends the round.
 */
#include "differential.h"

#include <stdlib.h>

/* ---- runs ------------------------------------------------------------------------------------ */

static bool could_be_one(const cellar_run *a, const cellar_run *b)
{
    if (a->seq != b->seq || a->group != b->group || a->shift != b->shift ||
        b->cell != a->cell + a->len)
        return false;
    bool rising = (a->step == 1 || a->len == 1) && (b->step == 1 || b->len == 1);
    bool level = (a->step == 0 || a->len == 1) && (b->step == 0 || b->len == 1);
    int64_t end = (int64_t)a->pos + (a->step ? a->len - 1 : 0);
    return (rising && b->pos == end + 1) || (level && b->pos == end);
}

static bool match_runs(diff_round *r)
{
    for (uint32_t i = 0; i < r->after.n_runs; i++) {
        bool is_known = false;
        for (uint32_t s = 0; s < r->n_names; s++)
            is_known |= r->names[s] == r->after.runs[i].seq;
        if (!is_known || r->after.runs[i].group >= r->model.n_groups)
            return round_fail(r, "an unknown sequence %d holds cells of group %u",
                              r->after.runs[i].seq, r->after.runs[i].group);
        const cellar_run *run = &r->after.runs[i];
        if (i > 0 && could_be_one(run - 1, run) &&
            r->model.groups[r->model_group[run->group]].kind == CELLAR_LAYER_ATTENTION)
            return round_fail(r, "sequence %d: two runs at %d could be one", run->seq, run->pos);
    }
    return true;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static bool match_cell(diff_round *r, const cellar_cell *cell)
{
    uint32_t g = r->model_group[cell->group];
    model_group *group = &r->model.groups[g];
    bool may_be_more = r->after.n_checkpoints > 0 && (group->kind == CELLAR_LAYER_RECURRENT ||
                                                      group->window.kind != CELLAR_WINDOW_NONE);
    uint32_t at = r->slot_of_real[g][cell->cell];
    const model_slot *slot = at == MODEL_NO_SLOT ? NULL : &group->slots[at];
    if (!slot || slot->refs == 0 || slot->real != cell->cell) {
        if (may_be_more) return true; /* a checkpoint alone */
        return round_fail(r, "group %u cell %u is held by nobody, refs %u", g, cell->cell,
                          cell->refs);
    }
    if (cell->refs < slot->refs || (cell->refs > slot->refs && !may_be_more))
        return round_fail(r, "group %u cell %u: refs %u, expected %u", g, cell->cell, cell->refs,
                          slot->refs);
    if (group->kind == CELLAR_LAYER_RECURRENT) return true;
    const model_cell *c = &r->model.cells[slot->cell];
    if (cell->stored_pos != c->stored_pos || cell->token != c->token || cell->pool != slot->pool)
        return round_fail(r, "cell %u: stored at %d token %d pool %u, expected %d %d %u",
                          cell->cell, cell->stored_pos, cell->token, cell->pool, c->stored_pos,
                          c->token, slot->pool);
    if (cell->point.y != c->point.y || cell->point.x != c->point.x)
        return round_fail(r, "cell %u: point %d %d, expected %d %d", cell->cell, cell->point.y,
                          cell->point.x, c->point.y, c->point.x);
    return true;
}

static bool match_cells(diff_round *r)
{
    int64_t last = -1, group = 0;
    for (uint32_t i = 0; i < r->after.n_cells; i++) {
        const cellar_cell *cell = &r->after.cells[i];
        if (cell->group >= r->model.n_groups || cell->group < group)
            return round_fail(r, "a cell of group %u after group %lld", cell->group,
                              (long long)group);
        if (cell->group > group) last = -1;
        group = cell->group;
        if (cell->cell <= last || cell->cell >= r->n_real[r->model_group[group]])
            return round_fail(r, "cells are not visited in order: %u", cell->cell);
        last = cell->cell;
        if (!match_cell(r, cell)) return false;
    }
    return true;
}

/* The states that sequences hold are what reading their tokens gives. */
static bool match_states(diff_round *r, cellar_seq name)
{
    uint32_t g = memory_model_recurrent_group(&r->model);
    const model_sequence *sequence = memory_model_sequence(&r->model, name);
    for (uint32_t i = 0; g != MODEL_NONE && i < sequence->n; i++) {
        const model_entry *entry = &sequence->entries[i];
        if ((entry->held >> g & 1) &&
            !round_match_state(r, sequence, i, r->model.groups[g].slots[entry->slot[g]].real))
            return false;
    }
    return true;
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* Cells of a group that are visited; *n_shared of them held more than once. */
static uint32_t count_visited(const drive_snapshot *snapshot, int32_t group, uint32_t *n_shared)
{
    uint32_t n = 0;
    *n_shared = 0;
    for (uint32_t i = 0; i < snapshot->n_cells; i++) {
        if ((int32_t)snapshot->cells[i].group != group) continue;
        n++;
        *n_shared += snapshot->cells[i].refs > 1;
    }
    return n;
}

static bool match_group(diff_round *r, uint32_t g, uint32_t *used, uint32_t *shared)
{
    const model_group *group = &r->model.groups[g];
    const cellar_group_info *info = &r->after.groups[group->real];
    uint32_t expected = 0;
    *used = count_visited(&r->after, group->real, shared);
    for (uint32_t p = 0; p < r->model.n_pools; p++) {
        uint32_t n = memory_model_count_used(&r->model, g, p);
        r->out->tally[TALLY_FILLED] += n == group->capacity[p];
        expected += n;
    }
    bool may_be_more = r->after.n_checkpoints > 0;
    if (*used < expected || (*used > expected && !may_be_more) || info->n_used != *used)
        return round_fail(r, "group %u: %u used, %u visited, expected %u", g, info->n_used, *used,
                          expected);
    const cellar_group_info *was = &r->before.groups[group->real];
    if (r->before.n_groups > 0 && info->n_free + info->n_used != was->n_free + was->n_used)
        return round_fail(r, "group %u: %u free and %u used, before %u and %u", g, info->n_free,
                          info->n_used, was->n_free, was->n_used);
    return true;
}

static bool match_counts(diff_round *r)
{
    const cellar_statistics *s = &r->after.stats;
    uint32_t n_sequences = 0, used, shared;
    uint64_t bytes = 0;
    bool is_a_group = false;
    for (uint32_t i = 0; i < r->model.n_sequences; i++)
        n_sequences += memory_model_pos_max(&r->model, r->model.sequences[i].name) >= 0;
    for (uint32_t k = 0; k < CELLAR_BYTES_KINDS; k++)
        bytes += s->sizes.bytes[k];
    for (uint32_t g = 0; g < r->model.n_groups; g++) {
        if (!match_group(r, g, &used, &shared)) return false;
        is_a_group |= s->n_used == used && s->n_shared == shared;
        r->out->tally[TALLY_SHARED] += shared > 0;
    }
    if (!is_a_group || s->n_free + s->n_used > s->n_cells)
        return round_fail(r, "%u cells, %u used, %u free, %u shared: no group is like that",
                          s->n_cells, s->n_used, s->n_free, s->n_shared);
    if (s->n_sequences != n_sequences || s->n_runs != r->after.n_runs)
        return round_fail(r, "%u sequences, %llu runs; expected %u, %u", s->n_sequences,
                          (unsigned long long)s->n_runs, n_sequences, r->after.n_runs);
    if (s->sizes.total != bytes || s->rows_written != r->rows_written || s->n_moves != 0)
        return round_fail(r, "total bytes %llu of %llu; rows written %llu, expected %llu",
                          (unsigned long long)s->sizes.total, (unsigned long long)bytes,
                          (unsigned long long)s->rows_written, (unsigned long long)r->rows_written);
    return true;
}

/* In a memory of one group and one pool the free stretches can be counted from outside. */
static bool match_longest_free(diff_round *r)
{
    uint32_t next = 0, longest = 0, n = r->model.n_cells;
    if (r->shape != SHAPE_PLAIN) return true;
    for (uint32_t i = 0; i < r->after.n_cells; i++) {
        uint32_t cell = r->after.cells[i].cell;
        longest = cell - next > longest ? cell - next : longest;
        next = cell + 1;
    }
    if (n > next && n - next > longest) longest = n - next;
    if (r->after.stats.longest_free != longest)
        return round_fail(r, "longest_free is %u, expected %u", r->after.stats.longest_free,
                          longest);
    return true;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Runs of a sequence, and how many shifts other than 0 they have. */
static uint32_t count_runs(const drive_snapshot *snapshot, cellar_seq name, uint32_t *n_shifts)
{
    uint32_t n = 0;
    *n_shifts = 0;
    for (uint32_t i = 0; i < snapshot->n_runs; i++) {
        if (snapshot->runs[i].seq != name) continue;
        bool is_new = snapshot->runs[i].shift != 0;
        for (uint32_t j = 0; j < i && is_new; j++)
            is_new = snapshot->runs[j].seq != name ||
                     snapshot->runs[j].shift != snapshot->runs[i].shift;
        *n_shifts += is_new;
        n++;
    }
    return n;
}

/*
 * What a sequence holds, and how much of it somebody else holds too; false when that cannot be told
 * from outside: the sequence holds a cell twice, or checkpoints hold cells.
 */
static bool count_held(const diff_round *r, const model_sequence *sequence, uint32_t *n,
                       uint32_t *n_shared)
{
    *n = *n_shared = 0;
    bool is_plain = r->after.n_checkpoints == 0;
    for (uint32_t i = 0; i < sequence->n; i++)
        for (uint32_t g = 0; g < r->model.n_groups; g++) {
            if (!(sequence->entries[i].held >> g & 1)) continue;
            ++*n;
            if (r->model.groups[g].slots[sequence->entries[i].slot[g]].refs < 2) continue;
            ++*n_shared;
            for (uint32_t j = 0; j < i; j++)
                is_plain &= sequence->entries[j].slot[g] != sequence->entries[i].slot[g];
        }
    return is_plain;
}

/* Looks at one place to go on: the last that is impossible, the first possible one behind it. */
static void look_at(const diff_round *r, const model_sequence *sequence, int64_t n, int64_t *worst,
                    int64_t *next)
{
    if (memory_model_continues(&r->model, sequence, n)) {
        if (*next > n) *next = n;
    } else {
        *worst = n;
        *next = INT64_MAX;
    }
}

/*
 * rewind_min: from there on the sequence can be cut behind every held position; and it is not further on
 * than it has to be.
 */
static bool match_bound(diff_round *r, const model_sequence *sequence, cellar_pos bound)
{
    int64_t worst = -1, next = INT64_MAX, last_worst = -1, most = 0;
    if (sequence->n > 120 && !random_one_in(&r->random, 16)) return true;
    for (uint32_t i = 0; i < sequence->n; i++) {
        if (!sequence->entries[i].held) continue;
        int64_t pos = sequence->entries[i].pos;
        look_at(r, sequence, pos, &last_worst, &next);
        look_at(r, sequence, pos + 1, &last_worst, &next);
        if (!memory_model_continues(&r->model, sequence, pos + 1)) worst = pos + 1;
    }
    if (worst >= bound && worst > 0 && bound < INT32_MAX)
        return round_fail(r, "sequence %d: rewind_min is %d, but it cannot go on at %lld",
                          sequence->name, bound, (long long)worst);
    if (last_worst >= 0) most = next;
    r->out->tally[TALLY_EXACT_BOUNDS] += worst >= 0;
    if (bound > most)
        return round_fail(r, "sequence %d: rewind_min is %d, but it can go on from %lld on",
                          sequence->name, bound, (long long)most);
    return true;
}

static bool match_answers(diff_round *r, cellar_seq name)
{
    const model_sequence *sequence = memory_model_sequence(&r->model, name);
    cellar_pos min = memory_model_pos_min(&r->model, name),
               max = memory_model_pos_max(&r->model, name);
    cellar_sequence_info info;
    cellar_error error;
    if (!round_judge(r, "cellar_get_sequence",
                     cellar_get_sequence(r->d.memory, name, &info, &error), CELLAR_OK, &error, -1))
        return false;
    int64_t next = memory_model_next(&r->model, sequence);
    if (cellar_position_min(r->d.memory, name) != min ||
        cellar_position_max(r->d.memory, name) != max || info.pos_min != min ||
        info.pos_max != max || info.pos_next != next)
        return round_fail(r, "sequence %d: positions %d..%d next %d, expected %d..%d next %lld",
                          name, info.pos_min, info.pos_max, info.pos_next, min, max,
                          (long long)next);
    uint32_t n, n_shared, n_shifts, n_runs = count_runs(&r->after, name, &n_shifts);
    bool is_plain = count_held(r, sequence, &n, &n_shared);
    if (info.n_runs != n_runs || info.n_shifts != n_shifts ||
        info.pool != memory_model_pool(&r->model, name) ||
        (is_plain && (info.n_cells != n || info.n_shared != n_shared)))
        return round_fail(r,
                          "sequence %d: %u cells, %u shared, %u runs, %u shifts, pool %u; expected "
                          "%u, %u, %u, %u, %u",
                          name, info.n_cells, info.n_shared, info.n_runs, info.n_shifts, info.pool,
                          n, n_shared, n_runs, n_shifts, memory_model_pool(&r->model, name));
    return match_bound(r, sequence, info.rewind_min);
}

bool round_compare(diff_round *r)
{
    if (!drive_snapshot_take(&r->after, r->d.memory))
        return round_fail(r, "the memory cannot be visited");
    if (!match_runs(r) || !round_learn(r)) return false;
    for (uint32_t s = 0; s < r->n_names; s++)
        if (!match_states(r, r->names[s])) return false;
    if (!match_cells(r) || !match_counts(r) || !match_longest_free(r) ||
        !round_match_checkpoints(r))
        return false;
    for (uint32_t s = 0; s < r->n_names; s++)
        if (!match_answers(r, r->names[s])) return false;
    cellar_error error;
    return round_judge(r, "cellar_check", cellar_check(r->d.memory, &error), CELLAR_OK, &error, -1);
}

bool round_unchanged(diff_round *r, const char *call)
{
    char why[200];
    if (!drive_snapshot_take(&r->after, r->d.memory))
        return round_fail(r, "the memory cannot be visited");
    if (!drive_snapshot_equal(&r->before, &r->after, why))
        return round_fail(r, "%s failed or was aborted and changed something: %s", call, why);
    return true;
}
