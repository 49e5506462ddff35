/*
 * settle.c: turn keys by the shifts of their runs, so that none is left.
 *
 * The runs of a sequence that are shifted are cut into pieces of two kinds. Cells that nobody else holds
 * are turned where they lie. Cells that somebody else holds too must not change: their rows are copied
 * to free cells, turned there, and the sequence leads to those instead. So are cells whose rows can only
 * be reached through a caller's store, because turning in place could fail half-way there.
 *
 * That gives an order in which nothing can go half-way: decide and reserve; write into free cells (the
 * last thing that can fail, and nobody reads those yet); only then turn in place, edit lists and counts.
 *
 * In a group where no layer rotates its keys a shift is only a number. Cells held once get the new one;
 * shared ones keep theirs, since copying rows would change nothing but the number.
 */
#include "settle.h"

#include <string.h>

#include "error.h"
#include "relocate.h"
#include "sort.h"

enum kind { KEPT, IN_PLACE, FRESH };

typedef struct piece {
    cl_run run;  /* as it is now */
    uint32_t to; /* FRESH: its new cells */
    enum kind kind;
} piece;

/* The work in one group. */
typedef struct settlement {
    cellar_memory *memory;
    cl_group *group;
    uint32_t slot;
    bool is_turning;    /* some layer rotates its keys */
    bool is_fallible;   /* some keys can only be reached through a caller's store */
    uint32_t max_fresh; /* cells; what is not covered stays shifted */
    uint32_t n_fresh;
    cl_stretch *stretches; /* in room for n_wanted; used up from `stretch` on */
    uint32_t n_wanted, stretch;
    piece *pieces;
    uint32_t n_pieces, piece_capacity, n_changed;
    cl_runs runs; /* the list as it will be */
} settlement;

/* ---- turning --------------------------------------------------------------------------------- */

/* The layers whose keys a group stores and has to turn. */
static bool is_turned(const cellar_memory *memory, const cl_group *group, uint32_t index)
{
    const cl_layer *layer = &memory->layers[index];
    return layer->kind == CELLAR_LAYER_ATTENTION && layer->group == (int32_t)group->index &&
           layer->source == index && memory->ropes[layer->rope].n_pairs > 0;
}

/* The cosines and sines of a shift for every rotation, in the room for a micro-batch's angles. */
static void prepare_angles(cellar_memory *memory, int32_t shift)
{
    memory->angles_ubatch = UINT32_MAX;
    for (uint32_t r = 0; r < memory->n_ropes; r++) {
        float *angles = memory->angles + memory->angle_offsets[r];
        cl_rope_angles(&memory->ropes[r], shift, 1.0, angles, angles + memory->ropes[r].n_pairs);
    }
}

static void transform(const cl_kernels *kernels, float *head, uint32_t size, uint32_t at_once)
{
    for (uint32_t i = 0; at_once > 0 && i < size; i += at_once)
        kernels->hadamard(head + i, at_once);
}

/* Turn the keys of one layer in n cells by the prepared angles. False: a store failed. */
static bool turn_layer(const cellar_memory *memory, const cl_group *group, const cl_layer *layer,
                       uint32_t cell, uint32_t n)
{
    const cl_rope *rope = &memory->ropes[layer->rope];
    const cl_kernels *kernels = &memory->kernels;
    const float *angles = memory->angles + memory->angle_offsets[layer->rope];
    float *head = memory->scratch + memory->scratch_layout.query;
    unsigned char *raw = (unsigned char *)(memory->scratch + memory->scratch_layout.raw);
    for (uint32_t h = 0; h < layer->n_kv_heads; h++)
        for (uint32_t i = 0; i < n; i++) {
            const float *row = cl_storage_read(&group->storage, layer->k, kernels, h, cell + i, 1,
                                               head, raw);
            if (!row) return false;
            if (row != head) memcpy(head, row, layer->k_size * sizeof *head);
            transform(kernels, head, layer->k_size, layer->hadamard_k);
            cl_rope_turn(rope, kernels, head, angles, angles + rope->n_pairs);
            transform(kernels, head, layer->k_size, layer->hadamard_k);
            if (!cl_storage_write(&group->storage, layer->k, kernels, h, cell + i, head, raw))
                return false;
        }
    return true;
}

static bool turn_cells(cellar_memory *memory, const cl_group *group, uint32_t cell, uint32_t n,
                       int32_t shift)
{
    prepare_angles(memory, shift);
    for (uint32_t l = 0; l < memory->n_layers; l++)
        if (is_turned(memory, group, l) && !turn_layer(memory, group, &memory->layers[l], cell, n))
            return false;
    return true;
}

/* ---- deciding -------------------------------------------------------------------------------- */

static const cl_sequence *sequence_of(const settlement *s)
{
    return &s->group->sequences.table.items[s->slot];
}

static bool has_address(const cl_storage *storage, const cl_rows *rows)
{
    for (uint32_t chunk = 0; chunk < storage->n_chunks; chunk++)
        if (!storage->buffers[(size_t)chunk * storage->n_stores + rows->store].address)
            return false;
    return true;
}

static void look_at_layers(settlement *s)
{
    for (uint32_t l = 0; l < s->memory->n_layers; l++) {
        if (!is_turned(s->memory, s->group, l)) continue;
        s->is_turning = true;
        if (s->group->is_external) continue;
        if (!has_address(&s->group->storage, s->memory->layers[l].k)) s->is_fallible = true;
    }
}

static enum kind kind_of(const settlement *s, uint32_t cell)
{
    bool is_shared = s->group->sequences.cells.refs[cell] >= 2;
    if (!s->is_turning) return is_shared ? KEPT : IN_PLACE;
    return is_shared || s->is_fallible ? FRESH : IN_PLACE;
}

static cl_run part_of(const cl_run *run, uint32_t first, uint32_t n)
{
    cl_run part = *run;
    part.cell += first;
    if (run->step) part.pos += (int32_t)first;
    part.step = run->step || n == 1;
    cl_run_set_len(&part, n);
    return part;
}

static cellar_status add_piece(settlement *s, cl_run run, enum kind kind, uint32_t to,
                               cellar_error *error)
{
    void *items = s->pieces;
    bool ok = cl_alloc_reserve(&s->memory->alloc, CELLAR_BYTES_STEP, &items, &s->piece_capacity,
                               (uint64_t)s->n_pieces + 1, sizeof *s->pieces);
    s->pieces = items;
    if (!ok)
        return cl_error_no_memory(error, "settling", ((size_t)s->n_pieces + 1) * sizeof(piece));
    s->pieces[s->n_pieces++] = (piece){run, to, kind};
    s->n_changed += kind != KEPT;
    return CELLAR_OK;
}

/* Spread cells over the stretches that were chosen. */
static cellar_status add_fresh(settlement *s, const cl_run *run, cellar_error *error)
{
    for (uint32_t first = 0, n; first < run->len; first += n) {
        cl_stretch *stretch = &s->stretches[s->stretch];
        n = run->len - first < stretch->len ? run->len - first : stretch->len;
        CL_TRY(add_piece(s, part_of(run, first, n), FRESH, stretch->cell, error));
        stretch->cell += n;
        stretch->len -= n;
        if (stretch->len == 0) s->stretch++;
    }
    return CELLAR_OK;
}

/* Cut a run where the kind of its cells changes; while counting, only n_fresh is wanted. */
static cellar_status cut_run(settlement *s, const cl_run *run, bool is_counting,
                             cellar_error *error)
{
    for (uint32_t first = 0, n = 1; first < run->len; first += n) {
        enum kind kind = run->shift == 0 ? KEPT : kind_of(s, run->cell + first);
        n = run->shift == 0 ? run->len : 1;
        while (first + n < run->len && kind_of(s, run->cell + first + n) == kind)
            n++;
        if (kind == FRESH && n > s->max_fresh - s->n_fresh) kind = KEPT;
        if (kind == FRESH) s->n_fresh += n;
        if (is_counting) continue;
        cl_run part = part_of(run, first, n);
        CL_TRY(kind == FRESH ? add_fresh(s, &part, error) : add_piece(s, part, kind, 0, error));
    }
    return CELLAR_OK;
}

static cellar_status cut_runs(settlement *s, bool is_counting, cellar_error *error)
{
    const cl_runs *runs = &sequence_of(s)->runs;
    s->n_fresh = 0;
    for (uint32_t i = 0; i < runs->n; i++)
        CL_TRY(cut_run(s, &runs->items[i], is_counting, error));
    return CELLAR_OK;
}

static cellar_status place(settlement *s, cellar_error *error)
{
    cl_cells *cells = &s->group->sequences.cells;
    const cl_pool *pool = &cells->pools[sequence_of(s)->pool];
    if (s->n_fresh > pool->n_free)
        CL_FAIL(error, CELLAR_FULL, s->n_fresh - pool->n_free,
                "settling sequence %d takes %u cells, %u are free: %u missing",
                (int)sequence_of(s)->id, s->n_fresh, pool->n_free, s->n_fresh - pool->n_free);
    if (s->n_fresh == 0) return CELLAR_OK;
    s->n_wanted = s->n_fresh;
    size_t bytes = s->n_wanted * sizeof *s->stretches;
    s->stretches = cl_alloc_get(&s->memory->alloc, CELLAR_BYTES_STEP, bytes);
    if (!s->stretches) return cl_error_no_memory(error, "settling", bytes);
    cl_request request = {s->slot + 1, sequence_of(s)->pool, CL_NO_CELL, s->n_wanted};
    (void)cl_placement_choose(cells, &request, s->stretches);
    return CELLAR_OK;
}

/* The list as it will be. */
static cellar_status write_list(settlement *s, cellar_error *error)
{
    if (!cl_runs_reserve(&s->runs, &s->memory->alloc, s->n_pieces))
        return cl_error_no_memory(error, "runs", s->n_pieces * sizeof(cl_run));
    for (uint32_t i = 0; i < s->n_pieces; i++) {
        cl_run run = s->pieces[i].run;
        if (s->pieces[i].kind != KEPT) run.shift = 0;
        if (s->pieces[i].kind == FRESH) run.cell = s->pieces[i].to;
        cl_runs_append(&s->runs, run);
    }
    return CELLAR_OK;
}

/* Decide what happens to each cell and reserve all that takes. */
static cellar_status decide(settlement *s, cellar_error *error)
{
    look_at_layers(s);
    CL_TRY(cut_runs(s, true, error));
    CL_TRY(place(s, error));
    CL_TRY(cut_runs(s, false, error));
    return write_list(s, error);
}

/* ---- doing ----------------------------------------------------------------------------------- */

/* The rows of fresh pieces, into cells that are still free. */
static cellar_status write_fresh(const settlement *s, cellar_error *error)
{
    if (s->group->is_external) return CELLAR_OK;
    for (uint32_t i = 0; i < s->n_pieces; i++) {
        const piece *its = &s->pieces[i];
        if (its->kind != FRESH) continue;
        if (cl_storage_copy(&s->group->storage, its->to, its->run.cell, its->run.len) &&
            turn_cells(s->memory, s->group, its->to, its->run.len, its->run.shift))
            continue;
        CL_FAIL_BECAUSE(error, CELLAR_IO, CELLAR_REASON_STORE, its->run.pos,
                        "a store failed while sequence %d was settled; nothing was changed",
                        (int)sequence_of(s)->id);
    }
    return CELLAR_OK;
}

/* The engine does it: first what is copied, so that copies read what is not turned yet. */
static void leave_to_engine(const settlement *s)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < s->n_pieces; i++) {
            const piece *its = &s->pieces[i];
            if (its->kind != (pass == 0 ? FRESH : IN_PLACE)) continue;
            cl_relocate_add_move(s->group, its->run.cell,
                                 its->kind == FRESH ? its->to : its->run.cell, its->run.len,
                                 its->run.shift);
        }
}

static void turn_in_place(const settlement *s)
{
    for (uint32_t i = 0; i < s->n_pieces; i++) {
        const piece *its = &s->pieces[i];
        if (its->kind == IN_PLACE)
            (void)turn_cells(s->memory, s->group, its->run.cell, its->run.len, its->run.shift);
    }
}

static void take_fresh(cl_cells *cells, const piece *its)
{
    uint32_t from = its->run.cell, to = its->to, n = its->run.len;
    cl_cells_take(cells, to, n, 1);
    memcpy(cells->stored_pos + to, cells->stored_pos + from, n * sizeof *cells->stored_pos);
    memcpy(cells->token + to, cells->token + from, n * sizeof *cells->token);
    if (cells->points) memcpy(cells->points + to, cells->points + from, n * sizeof *cells->points);
}

static void edit_cells(const settlement *s)
{
    cl_cells *cells = &s->group->sequences.cells;
    for (uint32_t i = 0; i < s->n_pieces; i++) {
        const piece *its = &s->pieces[i];
        if (its->kind == KEPT) continue;
        if (its->kind == FRESH) take_fresh(cells, its);
        uint32_t cell = its->kind == FRESH ? its->to : its->run.cell;
        for (uint32_t k = 0; k < its->run.len; k++)
            cells->stored_pos[cell + k] += its->run.shift;
        if (its->kind == IN_PLACE) cl_cells_restamp(cells, cell, its->run.len);
    }
    /* Last, because a sequence can hold a cell twice. */
    for (uint32_t i = 0; i < s->n_pieces; i++)
        if (s->pieces[i].kind == FRESH)
            cl_cells_release(cells, s->pieces[i].run.cell, s->pieces[i].run.len);
}

static void finish(settlement *s)
{
    cl_sequences *sequences = &s->group->sequences;
    cl_sequence *sequence = &sequences->table.items[s->slot];
    if (s->group->is_external && s->is_turning) leave_to_engine(s);
    if (!s->group->is_external && s->is_turning) turn_in_place(s);
    edit_cells(s);
    s->group->n_moved += s->n_fresh;
    const cl_run *old_end = &sequence->runs.items[sequence->runs.n - 1];
    const cl_run *end = &s->runs.items[s->runs.n - 1];
    uint32_t tail = end->cell + end->len - 1;
    bool is_tail_moved = tail != old_end->cell + old_end->len - 1;
    cl_runs old = sequence->runs;
    sequence->runs = s->runs;
    s->runs = old; /* given back with the settlement */
    if (!is_tail_moved || sequence->claim == CL_NO_BLOCK) return;
    cl_sequences_set_claim(sequences, s->slot, CL_NO_BLOCK);
    cl_sequences_set_claim(sequences, s->slot,
                           cl_placement_claim(&sequences->cells, s->slot + 1, tail));
}

static void put_back(settlement *s)
{
    cl_alloc *alloc = &s->memory->alloc;
    cl_alloc_put(alloc, CELLAR_BYTES_STEP, s->stretches, s->n_wanted * sizeof *s->stretches);
    cl_alloc_put(alloc, CELLAR_BYTES_STEP, s->pieces, s->piece_capacity * sizeof *s->pieces);
    cl_runs_free(&s->runs, alloc);
}

/* ---- one sequence ---------------------------------------------------------------------------- */

static bool is_shifted(const cl_runs *runs)
{
    for (uint32_t i = 0; i < runs->n; i++)
        if (runs->items[i].shift != 0) return true;
    return false;
}

cellar_status cellar_settle(cellar_memory *memory, cellar_seq seq, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    settlement all[CL_MAX_GROUPS];
    uint32_t n = 0;
    uint64_t n_moves = 0;
    cellar_status status = CELLAR_OK;
    for (uint32_t g = 0; g < memory->n_groups && status == CELLAR_OK; g++) {
        cl_group *group = &memory->groups[g];
        if (group->kind != CELLAR_LAYER_ATTENTION || !is_shifted(cl_group_runs(group, seq)))
            continue;
        if (group->is_external) status = cl_memory_check_moves(memory, error);
        all[n] = (settlement){.memory = memory, .group = group, .max_fresh = UINT32_MAX};
        all[n].slot = cl_sequence_table_find(&group->sequences.table, seq);
        if (status == CELLAR_OK) status = decide(&all[n], error);
        n_moves += group->is_external ? all[n].n_changed : 0;
        n++;
    }
    if (n_moves > 0 && status == CELLAR_OK)
        status = cl_relocate_reserve_moves(&memory->groups[0], n_moves, error);
    for (uint32_t i = 0; i < n && status == CELLAR_OK; i++)
        status = write_fresh(&all[i], error);
    for (uint32_t i = 0; i < n; i++) {
        if (status == CELLAR_OK) finish(&all[i]);
        put_back(&all[i]);
    }
    return status;
}

/* ---- before a step --------------------------------------------------------------------------- */

/* Has a list more than `max` different shifts other than 0? `room` has room for all its runs. */
static bool has_many_shifts(const cl_runs *runs, uint32_t max, int64_t *room)
{
    for (uint32_t i = 0; i < runs->n; i++)
        room[i] = runs->items[i].shift;
    cl_sort(room, runs->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < runs->n; i++)
        n += room[i] != 0 && (i == 0 || room[i] != room[i - 1]);
    return n > max;
}

static bool is_due(cellar_memory *memory, const cl_runs *runs)
{
    uint32_t max = memory->config.max_shifts;
    if (max == 0 || runs->n <= max) return false;
    size_t bytes = runs->n * sizeof(int64_t);
    int64_t *room = cl_alloc_get(&memory->alloc, CELLAR_BYTES_STEP, bytes);
    if (!room) return false;
    bool is_many = has_many_shifts(runs, max, room);
    cl_alloc_put(&memory->alloc, CELLAR_BYTES_STEP, room, bytes);
    return is_many;
}

/* Free cells of a pool that the step will not need. */
static uint32_t spare_cells(const cl_group *group, const cl_step *step, uint32_t pool)
{
    uint32_t n_free = group->sequences.cells.pools[pool].n_free, needed = 0;
    for (uint32_t i = 0; i < step->n_tokens; i++)
        needed += step->members[step->member_of[step->member_begin[i]]].pool == pool;
    return n_free > needed ? n_free - needed : 0;
}

void cl_settle_many(cellar_memory *memory, const cl_step *step)
{
    /* Tokens of several sequences need these to hold the same cells: settling would part them. */
    if (step->member_begin[step->n_tokens] > step->n_tokens) return;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        cl_group *group = &memory->groups[g];
        if (group->kind != CELLAR_LAYER_ATTENTION || group->is_external) continue;
        for (uint32_t m = 0; m < step->n_members; m++) {
            uint32_t slot = cl_sequence_table_find(&group->sequences.table, step->members[m].id);
            if (slot == CL_NO_SLOT || !is_due(memory, &group->sequences.table.items[slot].runs))
                continue;
            settlement s = {.memory = memory, .group = group, .slot = slot};
            s.max_fresh = spare_cells(group, step, step->members[m].pool);
            if (decide(&s, NULL) == CELLAR_OK && write_fresh(&s, NULL) == CELLAR_OK) finish(&s);
            put_back(&s);
        }
    }
}
