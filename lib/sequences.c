/*
 * sequences.c: operations on sequences as edits of run lists.
 *
 * All of them work the same way: cut the list at the two ends of the range (so that the range is a
 * whole number of runs), edit those runs, and join the neighbours that now touch.
 */
#include "sequences.h"

#include <assert.h>
#include <string.h>

#include "error.h"

uint32_t cl_pool_rule_apply(const cl_pool_rule *rule, cellar_seq seq)
{
    if (rule->n_pools <= 1) return 0;
    if (!rule->pool_of) return (uint32_t)seq % rule->n_pools;
    uint32_t pool = rule->pool_of(rule->context, seq);
    return pool < rule->n_pools ? pool : rule->n_pools - 1;
}

/* ---- helpers --------------------------------------------------------------------------------- */

void cl_sequences_set_claim(cl_sequences *sequences, uint32_t slot, uint32_t block)
{
    cl_sequence *sequence = &sequences->table.items[slot];
    if (sequence->claim != CL_NO_BLOCK) cl_cells_claim(&sequences->cells, sequence->claim, 0);
    if (block != CL_NO_BLOCK) cl_cells_claim(&sequences->cells, block, slot + 1);
    sequence->claim = block;
}

void cl_sequences_drop_if_empty(cl_sequences *sequences, uint32_t slot)
{
    if (slot == CL_NO_SLOT) return;
    const cl_sequence *sequence = &sequences->table.items[slot];
    if (sequence->runs.n > 0 || sequence->lost.n > 0) return;
    cl_sequences_set_claim(sequences, slot, CL_NO_BLOCK);
    cl_sequence_table_drop(&sequences->table, sequences->alloc, slot);
}

cellar_status cl_sequences_add(cl_sequences *sequences, cellar_seq id, uint32_t *slot,
                               cellar_error *error)
{
    uint32_t pool = cl_pool_rule_apply(&sequences->rule, id);
    *slot = cl_sequence_table_add(&sequences->table, sequences->alloc, id, pool);
    if (*slot == CL_NO_SLOT) return cl_error_no_memory(error, "a sequence", sizeof(cl_sequence));
    return CELLAR_OK;
}

cellar_status cl_sequences_reserve(cl_sequences *sequences, uint32_t slot, uint64_t n,
                                   cellar_error *error)
{
    cl_runs *runs = &sequences->table.items[slot].runs;
    if (!cl_runs_reserve(runs, sequences->alloc, runs->n + n))
        return cl_error_no_memory(error, "runs", (size_t)(runs->n + n) * sizeof(cl_run));
    return CELLAR_OK;
}

cellar_status cl_sequences_reserve_lost(cl_sequences *sequences, uint32_t slot, uint64_t n,
                                        cellar_error *error)
{
    cl_runs *lost = &sequences->table.items[slot].lost;
    uint64_t room = n + cl_lost_room(lost);
    if (room > 0 && !cl_runs_reserve(lost, sequences->alloc, room))
        return cl_error_no_memory(error, "lost positions", (size_t)room * sizeof(cl_run));
    return CELLAR_OK;
}

static cl_runs *runs_of(cl_sequences *sequences, uint32_t slot)
{
    return &sequences->table.items[slot].runs;
}

void cl_sequences_hold_runs(cl_sequences *sequences, const cl_run *runs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        cl_cells_hold(&sequences->cells, runs[i].cell, runs[i].len);
}

void cl_sequences_release_runs(cl_sequences *sequences, const cl_run *runs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        cl_cells_release(&sequences->cells, runs[i].cell, runs[i].len);
}

void cl_sequences_find_range(const cl_runs *runs, cl_range range, uint32_t *first, uint32_t *last)
{
    *first = cl_runs_find(runs, range.p0);
    *last = *first;
    if (range.p1 == INT64_MAX) {
        *last = runs->n;
        return;
    }
    /* Runs are sorted: the first that begins at or after p1 ends the range. */
    uint32_t low = *first, high = runs->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (runs->items[middle].pos < range.p1)
            low = middle + 1;
        else
            high = middle;
    }
    *last = low;
}

/* The cut at the end of a range that is not empty; call it after the one at its beginning. */
static uint32_t cut_end(cl_runs *runs, cl_range range)
{
    return range.p1 == INT64_MAX ? runs->n : cl_runs_cut(runs, range.p1);
}

/* ---- remove ---------------------------------------------------------------------------------- */

cellar_status cl_sequences_prepare_remove(cl_sequences *sequences, cellar_seq id, cl_range range,
                                          cellar_error *error)
{
    uint32_t slot = cl_sequence_table_find(&sequences->table, id);
    if (slot == CL_NO_SLOT || range.p0 >= range.p1) return CELLAR_OK;
    /* A cut at each end; what lies between goes afterwards. */
    CL_TRY(cl_sequences_reserve_lost(sequences, slot, 0, error));
    return cl_sequences_reserve(sequences, slot, 2, error);
}

/* Cut the range out of a list; cells are released. */
static void remove_range(cl_sequences *sequences, cl_runs *runs, cl_range range)
{
    if (runs->n == 0) return; /* such a list may have no items at all, and nothing to point into */
    uint32_t first = cl_runs_cut(runs, range.p0);
    uint32_t last = cut_end(runs, range);
    cl_sequences_release_runs(sequences, runs->items + first, last - first);
    cl_runs_erase(runs, first, last);
    cl_runs_mend(runs, first);
}

void cl_sequences_empty(cl_sequences *sequences, uint32_t slot, cl_range range)
{
    cl_sequence *sequence = &sequences->table.items[slot];
    cl_lost_remove(&sequence->lost, range.p0, range.p1);
    remove_range(sequences, &sequence->runs, range);
}

void cl_sequences_remove(cl_sequences *sequences, cellar_seq id, cl_range range)
{
    uint32_t slot = cl_sequence_table_find(&sequences->table, id);
    if (slot == CL_NO_SLOT || range.p0 >= range.p1) return;
    cl_sequences_empty(sequences, slot, range);
    cl_sequences_drop_if_empty(sequences, slot);
}

/* ---- copy ------------------------------------------------------------------------------------ */

cellar_status cl_sequences_prepare_copy(cl_sequences *sequences, cellar_seq from, cellar_seq to,
                                        cl_range range, cellar_error *error)
{
    if (from == to || range.p0 >= range.p1) return CELLAR_OK;
    uint32_t first, last;
    cl_sequences_find_range(cl_sequence_table_runs(&sequences->table, from), range, &first, &last);
    uint32_t n_copied = last > first ? last - first : 0;
    const cl_runs *lost = cl_sequence_table_lost(&sequences->table, from);
    uint32_t n_lost = lost->n;
    uint32_t slot = cl_sequence_table_find(&sequences->table, to);
    if (slot == CL_NO_SLOT) {
        if (n_copied == 0 && !cl_lost_any(lost, range.p0, range.p1)) return CELLAR_OK;
        CL_TRY(cl_sequences_add(sequences, to, &slot, error));
    }
    cellar_status status = cl_sequences_reserve(sequences, slot, (uint64_t)n_copied + 2, error);
    if (status == CELLAR_OK)
        status = cl_sequences_reserve_lost(sequences, slot, n_lost ? n_lost + 1ull : 0, error);
    if (status != CELLAR_OK) cl_sequences_drop_if_empty(sequences, slot);
    return status;
}

void cl_sequences_cancel_copy(cl_sequences *sequences, cellar_seq to)
{
    cl_sequences_drop_if_empty(sequences, cl_sequence_table_find(&sequences->table, to));
}

void cl_sequences_replace(cl_sequences *sequences, uint32_t slot, cl_range range,
                          const cl_run *from, uint32_t n)
{
    cl_runs *runs = runs_of(sequences, slot);
    uint32_t begin = cl_runs_cut(runs, range.p0);
    uint32_t end = cut_end(runs, range);
    if (begin < end) cl_sequences_release_runs(sequences, runs->items + begin, end - begin);
    cl_runs_erase(runs, begin, end);
    if (n > 0) {
        cl_runs_insert(runs, begin, from, n);
        (void)cl_run_clip(&runs->items[begin], range.p0, range.p1, &runs->items[begin]);
        (void)cl_run_clip(&runs->items[begin + n - 1], range.p0, range.p1,
                          &runs->items[begin + n - 1]);
        cl_runs_mend(runs, begin + n);
    }
    cl_runs_mend(runs, begin);
}

void cl_sequences_copy(cl_sequences *sequences, cellar_seq from, cellar_seq to, cl_range range)
{
    uint32_t slot = cl_sequence_table_find(&sequences->table, to);
    if (from == to || range.p0 >= range.p1 || slot == CL_NO_SLOT) return;
    const cl_runs *source = cl_sequence_table_runs(&sequences->table, from);
    uint32_t first, last;
    cl_sequences_find_range(source, range, &first, &last);
    cl_lost_copy(&sequences->table.items[slot].lost,
                 cl_sequence_table_lost(&sequences->table, from), range.p0, range.p1);

    /* Hold before releasing: a cell that both have must not become free in between. */
    cl_run clipped;
    for (uint32_t i = first; i < last; i++)
        if (cl_run_clip(&source->items[i], range.p0, range.p1, &clipped))
            cl_cells_hold(&sequences->cells, clipped.cell, clipped.len);
    uint32_t n = last > first ? last - first : 0; /* an empty list has no array */
    cl_sequences_replace(sequences, slot, range, n > 0 ? source->items + first : NULL, n);
    cl_sequences_drop_if_empty(sequences, slot);
}

/* ---- keep, clear ----------------------------------------------------------------------------- */

void cl_sequences_keep(cl_sequences *sequences, cellar_seq id)
{
    for (uint32_t slot = 0; slot < sequences->table.n_slots; slot++) {
        const cl_sequence *sequence = &sequences->table.items[slot];
        if (sequence->id < 0 || sequence->id == id) continue;
        cl_sequences_remove(sequences, sequence->id, (cl_range){0, INT64_MAX});
    }
}

void cl_sequences_clear(cl_sequences *sequences)
{
    cl_sequence_table_free(&sequences->table, sequences->alloc);
    cl_cells_clear(&sequences->cells);
}

/* ---- shift ----------------------------------------------------------------------------------- */

/* The part of the range that stays at or above 0 when moved by delta. */
static cl_range surviving(cl_range range, int64_t delta)
{
    if (range.p0 + delta < 0) range.p0 = -delta;
    return range;
}

/*
 * A range that is about to move, cut out of its list: runs [dropped, first) would come to stand
 * below 0 and are forgotten, runs [first, last) move.
 */
typedef struct move {
    uint32_t dropped, first, last;
    int64_t delta;
} move;

/* The first position of a list that is at least `pos` and outside the range; INT64_MAX: there is none. */
static int64_t next_outside(const cl_runs *runs, int64_t pos, cl_range range)
{
    for (;;) {
        uint32_t i = cl_runs_find(runs, pos);
        if (i == runs->n) return INT64_MAX;
        if (runs->items[i].pos > pos) pos = runs->items[i].pos;
        if (pos < range.p0 || pos >= range.p1) return pos;
        pos = range.p1;
    }
}

/* What of a list lies in `kept` moves by delta: the first position of `others` that it would hit. */
static int64_t find_hit(const cl_runs *runs, const cl_runs *others, cl_range range, cl_range kept,
                        int64_t delta)
{
    cl_run part;
    for (uint32_t i = cl_runs_find(runs, kept.p0); i < runs->n; i++) {
        if (!cl_run_clip(&runs->items[i], kept.p0, kept.p1, &part)) break;
        int64_t hit = next_outside(others, part.pos + delta, range);
        if (hit <= cl_run_last(&part) + delta) return hit;
    }
    return INT64_MAX;
}

/* Would what moves land on what stays, held or lost? The first such position, or INT64_MAX. */
static int64_t find_collision(const cl_sequence *sequence, cl_range range, cl_range kept,
                              int64_t delta)
{
    const cl_runs *lists[] = {&sequence->runs, &sequence->lost};
    int64_t first = INT64_MAX;
    uint32_t n = sequence->lost.n > 0 ? 4
                                      : 1; /* pairs of lists; most sequences have lost nothing */
    for (uint32_t i = 0; i < n; i++) {
        int64_t hit = find_hit(lists[i / 2], lists[i % 2], range, kept, delta);
        if (hit < first) first = hit;
    }
    return first;
}

/* The largest position below p1 that is held or lost; -1: there is none. */
static int64_t last_before(const cl_sequence *sequence, int64_t p1)
{
    const cl_runs *lists[] = {&sequence->runs, &sequence->lost};
    int64_t last = -1;
    for (uint32_t l = 0; l < 2; l++) {
        uint32_t i = p1 == INT64_MAX ? lists[l]->n : cl_runs_find(lists[l], p1);
        int64_t its = i > 0 ? cl_run_last(&lists[l]->items[i - 1]) : -1;
        if (i < lists[l]->n && lists[l]->items[i].pos < p1) its = p1 - 1;
        if (its > last) last = its;
    }
    return last;
}

/* Do the moved runs stay between the same neighbours? */
static bool keeps_order(const cl_runs *runs, move m)
{
    const cl_run *items = runs->items;
    return (m.dropped == 0 || items[m.dropped - 1].pos < items[m.first].pos + m.delta) &&
           (m.last == runs->n || items[m.last - 1].pos + m.delta < items[m.last].pos);
}

/* Can what lies in `kept` move? */
static cellar_status check_move(const cl_sequence *sequence, cl_range range, cl_range kept,
                                int64_t delta, cellar_error *error)
{
    int id = (int)sequence->id;
    int64_t end = last_before(sequence, kept.p1);
    if (end >= kept.p0 && end + delta > INT32_MAX - 1)
        CL_FAIL(
            error, CELLAR_INVALID, end,
            "shift of sequence %d by %lld: position %lld would become %lld, above the largest, %d",
            id, (long long)delta, (long long)end, (long long)(end + delta), INT32_MAX - 1);
    int64_t collision = find_collision(sequence, range, kept, delta);
    if (collision < INT64_MAX)
        CL_FAIL(error, CELLAR_REFUSED, collision,
                "shift of sequence %d by %lld: it already holds position %lld, or has given it up "
                "behind a window; remove that first",
                id, (long long)delta, (long long)collision);
    return CELLAR_OK;
}

cellar_status cl_sequences_prepare_shift(cl_sequences *sequences, cellar_seq id, cl_range range,
                                         int64_t delta, cellar_error *error)
{
    uint32_t slot = cl_sequence_table_find(&sequences->table, id);
    if (slot == CL_NO_SLOT || range.p0 >= range.p1 || delta == 0) return CELLAR_OK;
    CL_TRY(cl_sequences_reserve(sequences, slot, 3, error)); /* one for each cut */
    CL_TRY(cl_sequences_reserve_lost(sequences, slot, 0, error));
    cl_range kept = surviving(range, delta);
    if (kept.p0 >= kept.p1) return CELLAR_OK;
    CL_TRY(check_move(&sequences->table.items[slot], range, kept, delta, error));
    cl_runs *runs = runs_of(sequences, slot);
    move m = {.dropped = cl_runs_cut(runs, range.p0), .delta = delta};
    m.first = cl_runs_cut(runs, kept.p0);
    m.last = cut_end(runs, kept);
    cellar_status status = CELLAR_OK;
    if (m.first < m.last && !keeps_order(runs, m))
        status = cl_sequences_reserve(sequences, slot, runs->n + 3ull, error); /* see reorder */
    cl_runs_join(runs, m.last);                                                /* undo the cuts */
    cl_runs_join(runs, m.first);
    cl_runs_join(runs, m.dropped);
    return status;
}

/*
 * Sort the moved runs [first, last) in among the others: a merge through the spare room behind the
 * list, joining what touches on the way.
 */
static void reorder(cl_runs *runs, uint32_t first, uint32_t last)
{
    cl_runs merged = {runs->items + runs->n, 0, runs->capacity - runs->n};
    assert(merged.capacity >= runs->n);
    uint32_t moved = first, other = first == 0 ? last : 0;
    while (moved < last || other < runs->n) {
        bool take_moved = moved < last &&
                          (other >= runs->n || runs->items[moved].pos < runs->items[other].pos);
        cl_runs_append(&merged, runs->items[take_moved ? moved++ : other++]);
        if (other == first) other = last;
    }
    memcpy(runs->items, merged.items, merged.n * sizeof(cl_run));
    runs->n = merged.n;
}

/* Add delta to every run of the range, and put them where they now belong. */
static void move_range(cl_runs *runs, cl_range range, int64_t delta)
{
    uint32_t first = cl_runs_cut(runs, range.p0), last = cut_end(runs, range);
    if (first == last) return;
    bool is_sorted = keeps_order(runs, (move){first, first, last, delta});
    for (uint32_t i = first; i < last; i++) {
        runs->items[i].pos += (int32_t)delta;
        runs->items[i].shift += (int32_t)delta;
    }
    if (!is_sorted) {
        reorder(runs, first, last);
        return;
    }
    cl_runs_mend(runs, last);
    cl_runs_mend(runs, first);
}

void cl_sequences_shift(cl_sequences *sequences, cellar_seq id, cl_range range, int64_t delta)
{
    uint32_t slot = cl_sequence_table_find(&sequences->table, id);
    if (slot == CL_NO_SLOT || range.p0 >= range.p1 || delta == 0) return;
    cl_runs *runs = runs_of(sequences, slot);
    cl_range kept = surviving(range, delta);
    if (kept.p0 > range.p0) {
        int64_t end = kept.p0 < range.p1 ? kept.p0 : range.p1;
        remove_range(sequences, runs, (cl_range){range.p0, end});
    }
    if (kept.p0 < kept.p1) move_range(runs, kept, delta);
    cl_sequence *sequence = &sequences->table.items[slot];
    cl_lost_remove(&sequence->lost, range.p0, kept.p0 < range.p1 ? kept.p0 : range.p1);
    cl_lost_shift(&sequence->lost, kept.p0, kept.p1, delta);
    cl_sequences_drop_if_empty(sequences, slot);
}

/* ---- divide ---------------------------------------------------------------------------------- */

/* Runs that [first, last) of the list come to when every token has its own shift. */
static uint64_t count_divided(const cl_runs *runs, uint32_t first, uint32_t last)
{
    uint64_t n = 0;
    for (uint32_t i = first; i < last; i++)
        n += runs->items[i].step ? runs->items[i].len : 1;
    return n;
}

cellar_status cl_sequences_prepare_divide(cl_sequences *sequences, cellar_seq id, cl_range range,
                                          int64_t divisor, cellar_error *error)
{
    uint32_t slot = cl_sequence_table_find(&sequences->table, id);
    if (slot == CL_NO_SLOT || range.p0 >= range.p1 || divisor == 1) return CELLAR_OK;
    cl_runs *runs = runs_of(sequences, slot);
    uint32_t first, last;
    cl_sequences_find_range(runs, range, &first, &last);
    /* The range moves down as one, so only what stands right before it can be in its way. */
    const cl_sequence *sequence = &sequences->table.items[slot];
    int64_t begin = first < last ? runs->items[first].pos : INT64_MAX;
    if (begin < range.p0) begin = range.p0;
    int64_t lost = cl_lost_next(&sequence->lost, range.p0);
    if (lost < begin) begin = lost;
    if (begin >= range.p1) return CELLAR_OK;
    int64_t end = last_before(sequence, range.p0);
    if (end >= begin / divisor)
        CL_FAIL(error, CELLAR_REFUSED, begin / divisor,
                "position %lld of sequence %d divided by %lld lands at or before position %lld, "
                "which is not divided",
                (long long)begin, (int)id, (long long)divisor, (long long)end);
    CL_TRY(cl_sequences_reserve_lost(sequences, slot, 0, error));
    return cl_sequences_reserve(sequences, slot, count_divided(runs, first, last) + 2, error);
}

/* The divided pieces of one run, written in front of items[end]; returns where they begin. */
static uint32_t divide_run(cl_run *items, uint32_t end, cl_run run, int64_t divisor)
{
    uint32_t n_pieces = run.step ? run.len : 1;
    for (uint32_t i = n_pieces; i-- > 0;) {
        cl_run piece = run;
        if (run.step) {
            piece.pos += (int32_t)i;
            piece.cell += i;
            cl_run_set_len(&piece, 1);
        }
        int32_t divided = (int32_t)(piece.pos / divisor);
        piece.shift += divided - piece.pos;
        piece.pos = divided;
        items[--end] = piece;
    }
    return end;
}

void cl_sequences_divide(cl_sequences *sequences, cellar_seq id, cl_range range, int64_t divisor)
{
    uint32_t slot = cl_sequence_table_find(&sequences->table, id);
    if (slot == CL_NO_SLOT || range.p0 >= range.p1 || divisor == 1) return;
    cl_sequence *sequence = &sequences->table.items[slot];
    cl_runs *runs = &sequence->runs;
    cl_lost_divide(&sequence->lost, range.p0, range.p1, divisor);
    uint32_t first = cl_runs_cut(runs, range.p0), last = cut_end(runs, range);
    if (first >= last) return;
    /* From the back, so that no run is written over before it is read. */
    uint32_t n = (uint32_t)count_divided(runs, first, last), end = first + n;
    memmove(runs->items + end, runs->items + last, (runs->n - last) * sizeof(cl_run));
    runs->n += end - last;
    for (uint32_t i = last, at = end; i-- > first;)
        at = divide_run(runs->items, at, runs->items[i], divisor);
    cl_runs_mend(runs, end);
    for (uint32_t i = end; i-- > first;)
        cl_runs_join(runs, i);
    cl_runs_mend(runs, first);
}
