/*
 * relocate.c: rows first, then lists, then counts.
 *
 * All moves of a relocation are applied in one pass over the lists, however many they are: a run is
 * looked up among the moves, cut where a move begins or ends, and its pieces are appended to the same
 * list again, which joins those that touch in their new place. To make room for the cuts the list is
 * pushed up by as many entries as it can grow; reading then always stays ahead of writing.
 *
 * Until the lists change, everything that was written lies in free cells, which nobody reads. That is
 * why a failed prepare needs no undoing, also where the store of a caller failed half-way.
 */
#include "relocate.h"

#include <string.h>

#include "checkpoints.h"
#include "error.h"

/* ---- lists of moves -------------------------------------------------------------------------- */

bool cl_relocations_add(cl_relocations *moves, cl_alloc *alloc, uint32_t from, uint32_t to,
                        uint32_t n)
{
    void *items = moves->items;
    bool ok = cl_alloc_reserve(alloc, CELLAR_BYTES_STEP, &items, &moves->capacity,
                               (uint64_t)moves->n + 1, sizeof *moves->items);
    moves->items = items;
    if (!ok) return false;
    moves->items[moves->n++] = (cl_relocation){from, to, n};
    moves->n_cells += n;
    return true;
}

void cl_relocations_free(cl_relocations *moves, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_STEP, moves->items, moves->capacity * sizeof *moves->items);
    *moves = (cl_relocations){NULL, 0, 0, 0};
}

static void sink(cl_relocation *items, uint32_t root, uint32_t n)
{
    cl_relocation item = items[root];
    for (;;) {
        uint64_t child = 2 * (uint64_t)root + 1;
        if (child >= n) break;
        if (child + 1 < n && items[child + 1].from > items[child].from) child++;
        if (items[child].from <= item.from) break;
        items[root] = items[child];
        root = (uint32_t)child;
    }
    items[root] = item;
}

/* By `from`, rising. Heapsort, like sort.h: no memory, no bad inputs. */
static void sort_moves(cl_relocations *moves)
{
    cl_relocation *items = moves->items;
    uint32_t n = moves->n;
    for (uint32_t i = n / 2; i-- > 0;)
        sink(items, i, n);
    while (n > 1) {
        cl_relocation last = items[0];
        items[0] = items[--n];
        items[n] = last;
        sink(items, 0, n);
    }
}

/* The first move that ends behind `cell`; moves->n if there is none. */
static uint32_t find_move(const cl_relocations *moves, uint32_t cell)
{
    uint32_t low = 0, high = moves->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (moves->items[middle].from + moves->items[middle].n <= cell)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- moves that the engine makes ------------------------------------------------------------- */

cellar_status cl_relocate_reserve_moves(cl_group *group, uint64_t n, cellar_error *error)
{
    cl_moves *moves = group->moves;
    void *items = moves->items;
    bool ok = cl_alloc_reserve(group->sequences.alloc, CELLAR_BYTES_STEP, &items, &moves->capacity,
                               moves->n + n, sizeof *moves->items);
    moves->items = items;
    if (!ok)
        return cl_error_no_memory(error, "moves for the engine",
                                  (size_t)(moves->n + n) * sizeof *moves->items);
    return CELLAR_OK;
}

void cl_relocate_add_move(cl_group *group, uint32_t from, uint32_t to, uint32_t n, cellar_pos turn)
{
    cl_moves *moves = group->moves;
    moves->items[moves->n++] = (cellar_move){group->index, from, to, n, turn};
}

/* ---- lists of runs --------------------------------------------------------------------------- */

uint32_t cl_relocate_count_lists(const cl_group *group)
{
    return group->sequences.table.n_slots + (group->checkpoints ? group->checkpoints->n : 0);
}

cl_runs *cl_relocate_list(const cl_group *group, uint32_t list)
{
    const cl_sequence_table *table = &group->sequences.table;
    if (list < table->n_slots) {
        cl_sequence *sequence = &table->items[list];
        return sequence->id >= 0 ? &sequence->runs : NULL;
    }
    const cl_checkpoints *checkpoints = group->checkpoints;
    uint32_t checkpoint = list - table->n_slots;
    if (!checkpoints->is_live[checkpoint]) return NULL;
    return &checkpoints->pins[(size_t)checkpoint * checkpoints->n_groups + group->index].runs;
}

/* How many cuts the moves make in a list; UINT64_MAX: they do not touch it at all. */
static uint64_t count_cuts(const cl_runs *runs, const cl_relocations *moves)
{
    uint64_t n_cuts = 0;
    bool is_touched = false;
    for (uint32_t i = 0; i < runs->n; i++) {
        const cl_run *run = &runs->items[i];
        uint32_t end = run->cell + run->len;
        for (uint32_t m = find_move(moves, run->cell); m < moves->n; m++) {
            const cl_relocation *move = &moves->items[m];
            if (move->from >= end) break;
            is_touched = true;
            n_cuts += (move->from > run->cell) + (move->from + move->n < end);
        }
    }
    return is_touched ? n_cuts : UINT64_MAX;
}

/* Append a run that is about to move, piece by piece. */
static void append_moved(cl_runs *runs, const cl_run *run, const cl_relocations *moves)
{
    uint32_t m = find_move(moves, run->cell);
    for (uint32_t done = 0, take; done < run->len; done += take) {
        uint32_t cell = run->cell + done, left = run->len - done;
        const cl_relocation *move = m < moves->n ? &moves->items[m] : NULL;
        bool is_moving = move && move->from <= cell;
        take = is_moving ? move->from + move->n - cell : move ? move->from - cell : left;
        if (take > left) take = left;
        cl_run piece = {.pos = run->step ? run->pos + (int32_t)done : run->pos,
                        .cell = is_moving ? move->to + (cell - move->from) : cell,
                        .step = run->step || take == 1,
                        .shift = run->shift};
        cl_run_set_len(&piece, take);
        cl_runs_append(runs, piece);
        if (is_moving) m++;
    }
}

static void redirect(cl_runs *runs, const cl_relocations *moves)
{
    uint64_t n_cuts = count_cuts(runs, moves);
    if (n_cuts == UINT64_MAX) return;
    uint32_t n = runs->n;
    cl_run *ahead = runs->items + n_cuts;
    memmove(ahead, runs->items, n * sizeof *ahead);
    runs->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        cl_run run = ahead[i];
        append_moved(runs, &run, moves);
    }
}

/* ---- prepare, do ----------------------------------------------------------------------------- */

static cellar_status reserve_lists(cl_group *group, const cl_relocations *moves,
                                   cellar_error *error)
{
    for (uint32_t i = 0; i < cl_relocate_count_lists(group); i++) {
        cl_runs *runs = cl_relocate_list(group, i);
        uint64_t n_cuts = runs ? count_cuts(runs, moves) : UINT64_MAX;
        if (n_cuts == UINT64_MAX || n_cuts == 0) continue;
        if (!cl_runs_reserve(runs, group->sequences.alloc, runs->n + n_cuts))
            return cl_error_no_memory(error, "runs", (size_t)(runs->n + n_cuts) * sizeof(cl_run));
    }
    return CELLAR_OK;
}

cellar_status cl_relocate_prepare(cl_group *group, cl_relocations *moves, cellar_error *error)
{
    sort_moves(moves);
    CL_TRY(reserve_lists(group, moves, error));
    if (group->is_external) return cl_relocate_reserve_moves(group, moves->n, error);
    for (uint32_t i = 0; i < moves->n; i++) {
        const cl_relocation *move = &moves->items[i];
        if (cl_storage_copy(&group->storage, move->to, move->from, move->n)) continue;
        CL_FAIL_BECAUSE(error, CELLAR_IO, CELLAR_REASON_STORE, move->from,
                        "a store failed to copy the rows of cells %u + %u; nothing was moved",
                        move->from, move->n);
    }
    return CELLAR_OK;
}

/* A sequence's end has moved: so does its claim. */
static void follow_claim(cl_group *group, uint32_t slot)
{
    cl_sequences *sequences = &group->sequences;
    const cl_runs *runs = &sequences->table.items[slot].runs;
    const cl_run *end = &runs->items[runs->n - 1];
    cl_sequences_set_claim(sequences, slot, CL_NO_BLOCK);
    uint32_t block = cl_placement_claim(&sequences->cells, slot + 1, end->cell + end->len - 1);
    cl_sequences_set_claim(sequences, slot, block);
}

static void redirect_sequence(cl_group *group, uint32_t slot, const cl_relocations *moves)
{
    cl_sequence *sequence = &group->sequences.table.items[slot];
    if (sequence->id < 0 || sequence->runs.n == 0) return;
    const cl_run *end = &sequence->runs.items[sequence->runs.n - 1];
    uint32_t tail = end->cell + end->len - 1, m = find_move(moves, tail);
    bool is_tail_moving = m < moves->n && moves->items[m].from <= tail;
    redirect(&sequence->runs, moves);
    if (is_tail_moving && sequence->claim != CL_NO_BLOCK) follow_claim(group, slot);
}

void cl_relocate_do(cl_group *group, const cl_relocations *moves)
{
    for (uint32_t i = 0; i < moves->n; i++) {
        const cl_relocation *move = &moves->items[i];
        cl_cells_move(&group->sequences.cells, move->to, move->from, move->n);
        if (group->is_external) cl_relocate_add_move(group, move->from, move->to, move->n, 0);
    }
    uint32_t n_slots = group->sequences.table.n_slots;
    for (uint32_t slot = 0; slot < n_slots; slot++)
        redirect_sequence(group, slot, moves);
    for (uint32_t list = n_slots; list < cl_relocate_count_lists(group); list++) {
        cl_runs *runs = cl_relocate_list(group, list);
        if (runs) redirect(runs, moves);
    }
    group->n_moved += moves->n_cells;
}
