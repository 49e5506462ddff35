/*
 * drive_snapshot.c: pictures of everything that can be seen of a memory, and whether two are equal.
 *
 * Runs, cells, checkpoints and counts are copied out through the public visitors, so a picture shows what
 * any caller could see and nothing else. The first difference is described in words. See drive.h.
 */
#include "drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool keep_run(void *context, const cellar_run *run)
{
    drive_snapshot *s = context;
    if (s->n_runs == s->run_capacity) {
        s->run_capacity = s->run_capacity * 2 + 64;
        cellar_run *runs = drive_grab(s->run_capacity, sizeof *runs);
        if (s->n_runs > 0) memcpy(runs, s->runs, s->n_runs * sizeof *runs);
        free(s->runs);
        s->runs = runs;
    }
    s->runs[s->n_runs++] = *run;
    return true;
}

static bool keep_cell(void *context, const cellar_cell *cell)
{
    drive_snapshot *s = context;
    if (s->n_cells == s->cell_capacity) {
        s->cell_capacity = s->cell_capacity * 2 + 64;
        cellar_cell *cells = drive_grab(s->cell_capacity, sizeof *cells);
        if (s->n_cells > 0) memcpy(cells, s->cells, s->n_cells * sizeof *cells);
        free(s->cells);
        s->cells = cells;
    }
    s->cells[s->n_cells++] = *cell;
    return true;
}

typedef struct checkpoint_visit {
    drive_snapshot *snapshot;
    cellar_seq seq;
} checkpoint_visit;

static bool keep_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    checkpoint_visit *visit = context;
    drive_snapshot *s = visit->snapshot;
    if (s->n_checkpoints == s->checkpoint_capacity) {
        s->checkpoint_capacity = s->checkpoint_capacity * 2 + 16;
        drive_checkpoint *checkpoints = drive_grab(s->checkpoint_capacity, sizeof *checkpoints);
        if (s->n_checkpoints > 0)
            memcpy(checkpoints, s->checkpoints, s->n_checkpoints * sizeof *checkpoints);
        free(s->checkpoints);
        s->checkpoints = checkpoints;
    }
    s->checkpoints[s->n_checkpoints++] = (drive_checkpoint){visit->seq, *info};
    return true;
}

static bool comes_before(const cellar_run *a, const cellar_run *b)
{
    return a->seq < b->seq;
}

/* Sort by sequence, leaving the order inside each (a merge sort, bottom up). */
static void sort_runs(cellar_run *runs, uint32_t n)
{
    uint32_t width = 1;
    cellar_run *other = drive_grab(n, sizeof *other);
    bool is_sorted = true;
    for (uint32_t i = 1; i < n; i++)
        is_sorted &= !comes_before(&runs[i], &runs[i - 1]);
    for (; width < n && !is_sorted; width *= 2) {
        for (uint32_t first = 0; first < n; first += 2 * width) {
            uint32_t a = first, middle = first + width < n ? first + width : n, b = middle;
            uint32_t end = first + 2 * width < n ? first + 2 * width : n;
            for (uint32_t i = first; i < end; i++)
                other[i] = b < end && (a >= middle || comes_before(&runs[b], &runs[a])) ? runs[b++]
                                                                                        : runs[a++];
        }
        memcpy(runs, other, n * sizeof *runs);
    }
    free(other);
}

/* The runs are sorted by sequence: each is asked once. */
static bool take_checkpoints(drive_snapshot *snapshot, const cellar_memory *memory)
{
    uint32_t n = snapshot->names ? snapshot->n_names : snapshot->n_runs;
    for (uint32_t i = 0; i < n && snapshot->stats.n_checkpoints > 0; i++) {
        cellar_seq seq = snapshot->names ? snapshot->names[i] : snapshot->runs[i].seq;
        checkpoint_visit visit = {snapshot, seq};
        if (!snapshot->names && i > 0 && snapshot->runs[i - 1].seq == seq) continue;
        if (cellar_visit_checkpoints(memory, visit.seq, keep_checkpoint, &visit, NULL) != CELLAR_OK)
            return false;
    }
    return true;
}

static bool take_groups(drive_snapshot *snapshot, const cellar_memory *memory)
{
    if (snapshot->n_groups > DRIVE_GROUPS) snapshot->n_groups = DRIVE_GROUPS;
    for (uint32_t g = 0; g < snapshot->n_groups; g++)
        if (cellar_get_group(memory, g, &snapshot->groups[g], NULL) != CELLAR_OK) return false;
    return true;
}

bool drive_snapshot_take(drive_snapshot *snapshot, const cellar_memory *memory)
{
    cellar_error error = {0};
    snapshot->n_runs = snapshot->n_cells = snapshot->n_checkpoints = 0;
    snapshot->n_groups = cellar_count_groups(memory);
    memset(&snapshot->stats, 0, sizeof snapshot->stats);
    if (cellar_visit_runs(memory, -1, keep_run, snapshot, &error) != CELLAR_OK ||
        cellar_visit_cells(memory, keep_cell, snapshot, &error) != CELLAR_OK ||
        cellar_stats(memory, &snapshot->stats, &error) != CELLAR_OK) {
        fprintf(stderr, "snapshot: %s\n", error.message);
        return false;
    }
    sort_runs(snapshot->runs, snapshot->n_runs);
    return take_checkpoints(snapshot, memory) && take_groups(snapshot, memory);
}

void drive_snapshot_free(drive_snapshot *snapshot)
{
    free(snapshot->runs);
    free(snapshot->cells);
    free(snapshot->checkpoints);
    memset(snapshot, 0, sizeof *snapshot);
}

static bool same_run(const cellar_run *a, const cellar_run *b)
{
    return a->seq == b->seq && a->pos == b->pos && a->cell == b->cell && a->len == b->len &&
           a->step == b->step && a->shift == b->shift && a->group == b->group;
}

static bool same_cell(const cellar_cell *a, const cellar_cell *b)
{
    return a->cell == b->cell && a->refs == b->refs && a->stored_pos == b->stored_pos &&
           a->token == b->token && a->group == b->group && a->pool == b->pool &&
           a->point.y == b->point.y && a->point.x == b->point.x;
}

static bool same_counts(const cellar_statistics *a, const cellar_statistics *b)
{
    return a->n_cells == b->n_cells && a->n_used == b->n_used && a->n_free == b->n_free &&
           a->n_shared == b->n_shared && a->longest_free == b->longest_free &&
           a->n_sequences == b->n_sequences && a->n_runs == b->n_runs &&
           a->n_checkpoints == b->n_checkpoints && a->n_moves == b->n_moves &&
           a->fragmentation == b->fragmentation && a->wants_compaction == b->wants_compaction;
}

static bool same_checkpoint(const drive_checkpoint *a, const drive_checkpoint *b)
{
    return a->seq == b->seq && a->info.position == b->info.position &&
           a->info.n_holders == b->info.n_holders && a->info.n_cells == b->info.n_cells &&
           a->info.state == b->info.state;
}

static bool same_group(const cellar_group_info *a, const cellar_group_info *b)
{
    return a->n_cells == b->n_cells && a->n_used == b->n_used && a->n_free == b->n_free;
}

bool drive_snapshot_equal(const drive_snapshot *a, const drive_snapshot *b, char *why)
{
    for (uint32_t i = 0; i < a->n_runs && i < b->n_runs; i++)
        if (!same_run(&a->runs[i], &b->runs[i])) {
            snprintf(why, 200, "run %u: sequence %d position %d cell %u len %u became %d %d %u %u",
                     i, a->runs[i].seq, a->runs[i].pos, a->runs[i].cell, a->runs[i].len,
                     b->runs[i].seq, b->runs[i].pos, b->runs[i].cell, b->runs[i].len);
            return false;
        }
    for (uint32_t i = 0; i < a->n_cells && i < b->n_cells; i++)
        if (!same_cell(&a->cells[i], &b->cells[i])) {
            snprintf(why, 200, "cell %u refs %u stored at %d became %u %u %d", a->cells[i].cell,
                     a->cells[i].refs, a->cells[i].stored_pos, b->cells[i].cell, b->cells[i].refs,
                     b->cells[i].stored_pos);
            return false;
        }
    for (uint32_t i = 0; i < a->n_checkpoints && i < b->n_checkpoints; i++)
        if (!same_checkpoint(&a->checkpoints[i], &b->checkpoints[i])) {
            snprintf(why, 200, "checkpoint %u: sequence %d position %d became %d %d", i,
                     a->checkpoints[i].seq, a->checkpoints[i].info.position, b->checkpoints[i].seq,
                     b->checkpoints[i].info.position);
            return false;
        }
    for (uint32_t g = 0; g < a->n_groups && g < b->n_groups; g++)
        if (!same_group(&a->groups[g], &b->groups[g])) {
            snprintf(why, 200, "group %u: %u cells, %u used became %u, %u", g, a->groups[g].n_cells,
                     a->groups[g].n_used, b->groups[g].n_cells, b->groups[g].n_used);
            return false;
        }
    if (a->n_checkpoints != b->n_checkpoints) {
        snprintf(why, 200, "%u checkpoints became %u", a->n_checkpoints, b->n_checkpoints);
        return false;
    }
    if (a->n_runs != b->n_runs || a->n_cells != b->n_cells || !same_counts(&a->stats, &b->stats)) {
        snprintf(why, 200, "%u runs, %u cells became %u, %u; used %u became %u", a->n_runs,
                 a->n_cells, b->n_runs, b->n_cells, a->stats.n_used, b->stats.n_used);
        return false;
    }
    return true;
}

/* Cells in the order of groups and numbers: those of b must be in a; others only in `group`. */
static bool cells_within(const drive_snapshot *a, const drive_snapshot *b, uint32_t group,
                         uint32_t n_cells, char *why)
{
    uint32_t n_gone = 0, k = 0;
    for (uint32_t i = 0; i < a->n_cells; i++) {
        const cellar_cell *was = &a->cells[i];
        bool may_change = was->group == group;
        if (k < b->n_cells && b->cells[k].group == was->group && b->cells[k].cell == was->cell) {
            cellar_cell is = b->cells[k++];
            if (may_change && is.refs < was->refs) is.refs = was->refs;
            may_change = same_cell(was, &is);
        } else {
            may_change = may_change && ++n_gone <= n_cells;
        }
        if (!may_change) {
            snprintf(why, 200, "cell %u of group %u, refs %u, changed or is gone, as are %u others",
                     was->cell, was->group, was->refs, n_gone);
            return false;
        }
    }
    if (k < b->n_cells) snprintf(why, 200, "cell %u is new", b->cells[k].cell);
    return k == b->n_cells;
}

bool drive_snapshot_within(const drive_snapshot *a, const drive_snapshot *b, uint32_t group,
                           uint32_t n_cells, char *why)
{
    if (a->n_runs != b->n_runs) {
        snprintf(why, 200, "%u runs became %u", a->n_runs, b->n_runs);
        return false;
    }
    for (uint32_t i = 0; i < a->n_runs; i++)
        if (!same_run(&a->runs[i], &b->runs[i])) {
            snprintf(why, 200, "run %u: sequence %d position %d is another", i, a->runs[i].seq,
                     a->runs[i].pos);
            return false;
        }
    uint32_t k = 0;
    for (uint32_t i = 0; i < a->n_checkpoints && k < b->n_checkpoints; i++)
        k += same_checkpoint(&a->checkpoints[i], &b->checkpoints[k]);
    if (k < b->n_checkpoints) {
        snprintf(why, 200, "sequence %d has a checkpoint at %d that it had not",
                 b->checkpoints[k].seq, b->checkpoints[k].info.position);
        return false;
    }
    return cells_within(a, b, group, n_cells, why);
}
