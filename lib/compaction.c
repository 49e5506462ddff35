/*
 * compaction.c: bring together what belongs together, then let it sink.
 *
 * All lists of a group are read as one picture. Cells that follow each other in some list and lie side by
 * side are joined; a maximal stretch of joined cells is a piece, and pieces only move whole. Where a
 * list goes on from the end of one piece to the beginning of another, there is a link. Each piece has at
 * most one link out and one in (where sequences part, the first in the order of lists wins), so linked
 * pieces form threads. A shared prefix is in one thread, however many sequences read it.
 *
 * A round plans moves into cells that are free now, and makes them:
 *   1. where the cells behind a piece have room for the next piece of its thread, that moves there;
 *   2. if nothing can: parts of threads move to the lowest free stretch that holds them;
 *   3. if nothing can: pieces sink into the lowest free stretch that holds them, the highest first.
 * Cells that others claim are no target of 2 and 3.
 *
 * WHY IT ENDS. Call a state closed when 1 finds nothing. Look at N, the number of links, and H, the sum
 * of the numbers of held cells, in closed states. Moving whole pieces never parts joined cells, so it
 * makes no link; 1 and 2 join at least two pieces, which removes one. It may happen that a piece comes to
 * lie behind one whose link to it had lost: then that place is joined and up to two links go, whose
 * other ends may take up links that had lost before, never more than went. So 1 and 2 lower N, and 3
 * keeps or lowers it and lowers H: no state comes back, and rounds end.
 *
 * Under a budget the last piece of a round may be cut: its beginning moves, and the group notes where (cl_group.
 * unfinished). The next round or call goes on there before it does anything else, and there is room, since
 * the target was chosen for all of it. So any budget gets there, and between two calls at most one
 * link is open that was not before. Cuts avoid cells where lists part or meet, because there the link of
 * another list could win; a piece that cannot be cut finely enough for the budget of a call stays.
 */
#include "compaction.h"

#include <string.h>

#include "bitmap.h"
#include "error.h"
#include "relocate.h"
#include "sort.h"

/* ---- the figure ------------------------------------------------------------------------------ */

/* Does b stand where a ends, rotated alike? */
static bool goes_on(const cl_run *a, const cl_run *b)
{
    int64_t distance = (int64_t)b->pos - cl_run_last(a);
    return a->shift == b->shift && (distance == 0 || distance == 1);
}

/*
 * Does another list go on right behind a cell? Told from the cells alone: several hold it, and what lies
 * behind was stored for the next position. (It could belong to a stranger; the figure may err there.)
 */
static bool is_continued(const cl_cells *cells, uint32_t cell)
{
    uint32_t next = cell + 1;
    if (cells->refs[cell] < 2 || next >= cells->n || cells->refs[next] == 0) return false;
    int64_t distance = (int64_t)cells->stored_pos[next] - cells->stored_pos[cell];
    return distance == 0 || distance == 1;
}

static double count_places(const cl_group *group)
{
    const cl_cells *cells = &group->sequences.cells;
    double n = 0;
    for (uint32_t list = 0; list < cl_relocate_count_lists(group); list++) {
        const cl_runs *runs = cl_relocate_list(group, list);
        for (uint32_t i = 1; runs && i < runs->n; i++) {
            const cl_run *a = &runs->items[i - 1], *b = &runs->items[i];
            uint32_t end = a->cell + a->len - 1;
            if (goes_on(a, b) && b->cell != end + 1 && !is_continued(cells, end))
                n += 1.0 / cells->refs[b->cell];
        }
    }
    return n;
}

float cl_compaction_fragmentation(const cellar_memory *memory)
{
    double n_places = 0, n_held = 0;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        if (group->kind != CELLAR_LAYER_ATTENTION) continue;
        const cl_cells *cells = &group->sequences.cells;
        for (uint32_t p = 0; p < cells->n_pools; p++)
            n_held += cells->pools[p].n - cells->pools[p].n_free;
        n_places += count_places(group);
    }
    if (n_held == 0) return 0;
    double figure = n_places * CL_BLOCK / n_held;
    return figure < 1 ? (float)figure : 1.0f;
}

/* ---- the picture of a group ------------------------------------------------------------------ */

typedef struct picture {
    cl_group *group;
    cl_cells *cells;
    cl_alloc *alloc;
    uint64_t *memory; /* the six bitmaps, one behind the other */
    size_t memory_size;
    uint64_t *joined;   /* cell and the one behind it follow each other in some list */
    uint64_t *is_left;  /* some list goes on elsewhere after this cell */
    uint64_t *is_met;   /* some list comes to this cell from elsewhere */
    uint64_t *has_next; /* end of a piece with a link to another */
    uint64_t *has_prev; /* beginning of a piece with a link from another */
    uint64_t *targets;  /* free cells that 2 and 3 may fill: claimed by nobody, not chosen yet */
    int64_t *links;     /* [n_links] end << 32 | beginning, rising */
    uint32_t n_links, link_capacity;
} picture;

static void free_picture(picture *p)
{
    cl_alloc_put(p->alloc, CELLAR_BYTES_STEP, p->memory, p->memory_size);
    cl_alloc_put(p->alloc, CELLAR_BYTES_STEP, p->links, p->link_capacity * sizeof *p->links);
}

static cellar_status reserve_picture(picture *p, cl_group *group, cellar_error *error)
{
    *p = (picture){.group = group, .cells = &group->sequences.cells};
    p->alloc = group->sequences.alloc;
    uint32_t n_words = p->cells->n_words;
    p->memory_size = 6 * (size_t)n_words * sizeof *p->memory;
    p->memory = cl_alloc_get(p->alloc, CELLAR_BYTES_STEP, p->memory_size);
    if (!p->memory) return cl_error_no_memory(error, "compacting", p->memory_size);
    uint64_t **maps[] = {&p->joined,   &p->is_left,  &p->is_met,
                         &p->has_next, &p->has_prev, &p->targets};
    for (size_t i = 0; i < 6; i++)
        *maps[i] = p->memory + i * n_words;
    return CELLAR_OK;
}

static void note_joined(picture *p, const cl_runs *runs)
{
    for (uint32_t i = 0; i < runs->n; i++) {
        const cl_run *run = &runs->items[i];
        cl_bitmap_set(p->joined, run->cell, run->len - 1);
        uint32_t end = run->cell + run->len;
        if (i + 1 < runs->n && goes_on(run, run + 1) && run[1].cell == end)
            cl_bitmap_set(p->joined, end - 1, 1);
    }
}

static bool starts_piece(const picture *p, uint32_t cell)
{
    return cell == 0 || !cl_bitmap_get(p->joined, cell - 1);
}

static cellar_status note_links(picture *p, const cl_runs *runs, cellar_error *error)
{
    for (uint32_t i = 1; i < runs->n; i++) {
        const cl_run *a = &runs->items[i - 1], *b = &runs->items[i];
        uint32_t from = a->cell + a->len - 1, to = b->cell;
        if (!goes_on(a, b) || to == from + 1) continue;
        cl_bitmap_set(p->is_left, from, 1);
        cl_bitmap_set(p->is_met, to, 1);
        if (cl_bitmap_get(p->joined, from) || !starts_piece(p, to) ||
            cl_bitmap_get(p->has_next, from) || cl_bitmap_get(p->has_prev, to))
            continue;
        void *items = p->links;
        bool ok = cl_alloc_reserve(p->alloc, CELLAR_BYTES_STEP, &items, &p->link_capacity,
                                   (uint64_t)p->n_links + 1, sizeof *p->links);
        p->links = items;
        if (!ok)
            return cl_error_no_memory(error, "compacting",
                                      ((size_t)p->n_links + 1) * sizeof *p->links);
        p->links[p->n_links++] = (int64_t)from << 32 | to;
        cl_bitmap_set(p->has_next, from, 1);
        cl_bitmap_set(p->has_prev, to, 1);
    }
    return CELLAR_OK;
}

static cellar_status draw(picture *p, cellar_error *error)
{
    uint32_t n_lists = cl_relocate_count_lists(p->group);
    memset(p->memory, 0, p->memory_size);
    memcpy(p->targets, p->cells->free_map, p->cells->n_words * sizeof *p->targets);
    for (uint32_t block = 0; block < p->cells->n_blocks; block++)
        if (p->cells->claims[block] != 0) cl_bitmap_clear(p->targets, block * CL_BLOCK, CL_BLOCK);
    p->n_links = 0;
    for (uint32_t list = 0; list < n_lists; list++) {
        const cl_runs *runs = cl_relocate_list(p->group, list);
        if (runs) note_joined(p, runs);
    }
    for (uint32_t list = 0; list < n_lists; list++) {
        const cl_runs *runs = cl_relocate_list(p->group, list);
        if (runs) CL_TRY(note_links(p, runs, error));
    }
    cl_sort(p->links, p->n_links);
    return CELLAR_OK;
}

/* ---- pieces and threads ---------------------------------------------------------------------- */

/* How long the piece that begins at a cell is. */
static uint32_t piece_len(const picture *p, uint32_t cell)
{
    uint32_t end = cell;
    while (cl_bitmap_get(p->joined, end))
        end++;
    return end - cell + 1;
}

/* The beginning of the piece that follows the one that ends at `end`; CL_NO_CELL: none. */
static uint32_t next_piece(const picture *p, uint32_t end)
{
    if (!cl_bitmap_get(p->has_next, end)) return CL_NO_CELL;
    uint32_t low = 0, high = p->n_links;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((uint32_t)(p->links[middle] >> 32) < end)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)(p->links[low] & 0xffffffff);
}

/* The beginning of the next thread of several pieces at or behind `cell`; CL_NO_CELL: none. */
static uint32_t next_thread(const picture *p, uint32_t cell)
{
    while (cell < p->cells->n) {
        if (p->cells->refs[cell] == 0) {
            cell++;
            continue;
        }
        uint32_t len = piece_len(p, cell);
        if (!cl_bitmap_get(p->has_prev, cell) && cl_bitmap_get(p->has_next, cell + len - 1))
            return cell;
        cell += len;
    }
    return CL_NO_CELL;
}

static uint32_t pool_of(const picture *p, uint32_t cell)
{
    return p->cells->pool_of[cell / CL_BLOCK];
}

/* Free cells of its pool right behind `cell`, as many as `enough` at most. */
static uint32_t room_behind(const picture *p, uint32_t cell, uint32_t enough)
{
    uint32_t n = 0, pool = pool_of(p, cell);
    while (n < enough && cell + n + 1 < p->cells->n &&
           cl_bitmap_get(p->cells->free_map, cell + n + 1) && pool_of(p, cell + n + 1) == pool)
        n++;
    return n;
}

/* The lowest stretch of at least n targets in a pool, or (n UINT32_MAX) the longest. */
static cl_stretch find_target(const picture *p, uint32_t pool, uint32_t n)
{
    const cl_pool *its = &p->cells->pools[pool];
    cl_stretch best = {0, 0}, now = {0, 0};
    for (uint32_t block = its->first_block; block < its->end_block && best.len < n; block++) {
        uint32_t first = block * CL_BLOCK;
        uint64_t word = p->targets[block / 2] >> (block % 2 * CL_BLOCK) & 0xffffffffu;
        if (p->cells->pool_of[block] != pool) word = 0;
        if (word == 0xffffffffu && now.len > 0 && now.len + CL_BLOCK <= n) {
            now.len += CL_BLOCK; /* the common case of a large hole */
            if (now.len > best.len) best = now;
            continue;
        }
        for (uint32_t i = 0; i < CL_BLOCK; i++) {
            if (!(word >> i & 1)) {
                now.len = 0;
                if (word >> i == 0) break;
                continue;
            }
            if (now.len++ == 0) now.cell = first + i;
            if (now.len > best.len) best = now;
            if (best.len >= n) break;
        }
    }
    return best;
}

/* ---- planning a round ------------------------------------------------------------------------ */

typedef struct plan {
    cl_relocations moves;
    uint32_t max;        /* cells that a call may move */
    uint32_t budget;     /* that this one still may */
    uint32_t unfinished; /* the cell where a cut piece goes on; 0: none was cut */
    bool is_over;        /* the budget is used up */
} plan;

/* How much of a piece can move within `budget`: all, or up to a place where a cut harms nobody. */
static uint32_t movable(const picture *p, uint32_t cell, uint32_t len, uint32_t budget)
{
    if (len <= budget) return len;
    uint32_t n = budget;
    while (n > 0 && (cl_bitmap_get(p->is_left, cell + n - 1) || cl_bitmap_get(p->is_met, cell + n)))
        n--;
    return n;
}

/* Can a piece be moved by calls of this size? */
static bool is_movable(const picture *p, const plan *round, uint32_t cell, uint32_t len)
{
    while (len > round->max) {
        uint32_t n = movable(p, cell, len, round->max);
        if (n == 0) return false;
        cell += n;
        len -= n;
    }
    return true;
}

/* Move a piece, or its beginning if the budget ends there. */
static cellar_status move_piece(const picture *p, plan *round, uint32_t from, uint32_t len,
                                uint32_t to, cellar_error *error)
{
    uint32_t n = movable(p, from, len, round->budget);
    if (n < len) round->is_over = true;
    if (n == 0) return CELLAR_OK;
    if (!cl_relocations_add(&round->moves, p->alloc, from, to, n))
        return cl_error_no_memory(error, "compacting",
                                  ((size_t)round->moves.n + 1) * sizeof(cl_relocation));
    round->budget -= n;
    if (round->budget == 0) round->is_over = true;
    round->unfinished = n < len ? to + n : 0;
    return CELLAR_OK;
}

/* 1. From the piece that ends at `end` on, pieces of a thread move up behind those before them. */
static cellar_status extend(const picture *p, plan *round, uint32_t end, cellar_error *error)
{
    uint32_t n_moved = 0; /* cells that will lie behind `end` */
    for (uint32_t next = next_piece(p, end); next != CL_NO_CELL && !round->is_over;) {
        uint32_t len = piece_len(p, next), next_end = next + len - 1, wanted = n_moved + len;
        if (room_behind(p, end, wanted) >= wanted && is_movable(p, round, next, len)) {
            CL_TRY(move_piece(p, round, next, len, end + 1 + n_moved, error));
            n_moved = wanted;
        } else {
            end = next_end;
            n_moved = 0;
        }
        next = next_piece(p, next_end);
    }
    return CELLAR_OK;
}

static cellar_status plan_extensions(const picture *p, plan *round, cellar_error *error)
{
    uint32_t thread = next_thread(p, 0);
    while (thread != CL_NO_CELL && !round->is_over) {
        uint32_t len = piece_len(p, thread);
        CL_TRY(extend(p, round, thread + len - 1, error));
        thread = next_thread(p, thread + len);
    }
    return CELLAR_OK;
}

/* What an earlier round has cut, and what was to follow it. */
static cellar_status plan_rest(const picture *p, plan *round, cellar_error *error)
{
    uint32_t end = p->group->unfinished - 1; /* if it is 0, beyond all cells */
    if (end >= p->cells->n || p->cells->refs[end] == 0) return CELLAR_OK;
    uint32_t n_moved = 0;
    for (uint32_t next = next_piece(p, end); next != CL_NO_CELL && !round->is_over;) {
        uint32_t len = piece_len(p, next);
        if (room_behind(p, end, n_moved + len) < n_moved + len) break;
        if (!is_movable(p, round, next, len)) break;
        CL_TRY(move_piece(p, round, next, len, end + 1 + n_moved, error));
        n_moved += len;
        next = next_piece(p, next + len - 1);
    }
    return CELLAR_OK;
}

/* 2. A part of a thread that could lie together. */
typedef struct chain {
    uint32_t first, end; /* beginnings of its first piece and of the one behind its last */
    uint32_t n_cells, n_pieces;
    bool is_movable;
} chain;

/* The longest part from `first` on that has at most n_cells cells. */
static chain find_chain(const picture *p, const plan *round, uint32_t first, uint32_t n_cells)
{
    chain found = {first, first, 0, 0, true};
    while (found.end != CL_NO_CELL) {
        uint32_t len = piece_len(p, found.end);
        if (len > n_cells - found.n_cells) break;
        found.is_movable = found.is_movable && is_movable(p, round, found.end, len);
        found.n_cells += len;
        found.n_pieces++;
        found.end = next_piece(p, found.end + len - 1);
    }
    return found;
}

static cellar_status move_chain(const picture *p, plan *round, const chain *moving, uint32_t to,
                                cellar_error *error)
{
    cl_bitmap_clear(p->targets, to, moving->n_cells);
    for (uint32_t first = moving->first; first != moving->end && !round->is_over;) {
        uint32_t len = piece_len(p, first);
        CL_TRY(move_piece(p, round, first, len, to, error));
        to += len;
        first = next_piece(p, first + len - 1);
    }
    return CELLAR_OK;
}

static cellar_status move_chains(const picture *p, plan *round, uint32_t thread,
                                 cellar_error *error)
{
    uint32_t pool = pool_of(p, thread), longest = find_target(p, pool, UINT32_MAX).len;
    for (uint32_t first = thread; first != CL_NO_CELL && !round->is_over;) {
        chain found = find_chain(p, round, first, longest);
        if (found.n_pieces < 2 || !found.is_movable) {
            first = next_piece(p, first + piece_len(p, first) - 1);
            continue;
        }
        uint32_t to = find_target(p, pool, found.n_cells).cell;
        CL_TRY(move_chain(p, round, &found, to, error));
        longest = find_target(p, pool, UINT32_MAX).len;
        first = found.end;
    }
    return CELLAR_OK;
}

static cellar_status plan_chains(const picture *p, plan *round, cellar_error *error)
{
    uint32_t thread = next_thread(p, 0);
    while (thread != CL_NO_CELL && !round->is_over) {
        CL_TRY(move_chains(p, round, thread, error));
        thread = next_thread(p, thread + piece_len(p, thread));
    }
    return CELLAR_OK;
}

/* 3. The pieces of a pool into lower holes, the highest first. */
static cellar_status plan_sinks(const picture *p, plan *round, uint32_t pool, cellar_error *error)
{
    uint32_t n_failed = UINT32_MAX; /* no hole is this long */
    for (uint32_t end = p->cells->pools[pool].end_block * CL_BLOCK; end > 0 && !round->is_over;) {
        uint32_t last = end - 1, first = last;
        if (p->cells->refs[last] == 0 || pool_of(p, last) != pool) {
            end--;
            continue;
        }
        while (!starts_piece(p, first))
            first--;
        end = first;
        uint32_t len = last - first + 1;
        if (len >= n_failed || !is_movable(p, round, first, len)) continue;
        cl_stretch target = find_target(p, pool, len);
        if (target.len < len) n_failed = len;
        if (target.len < len || target.cell > first) continue;
        CL_TRY(move_piece(p, round, first, len, target.cell, error));
        cl_bitmap_clear(p->targets, target.cell, len);
    }
    return CELLAR_OK;
}

static cellar_status plan_round(picture *p, plan *round, cellar_error *error)
{
    CL_TRY(draw(p, error));
    CL_TRY(plan_rest(p, round, error));
    if (round->moves.n > 0 || round->is_over) return CELLAR_OK;
    CL_TRY(plan_extensions(p, round, error));
    if (round->moves.n > 0 || round->is_over) return CELLAR_OK;
    CL_TRY(plan_chains(p, round, error));
    if (round->moves.n > 0 || round->is_over) return CELLAR_OK;
    for (uint32_t pool = 0; pool < p->cells->n_pools && !round->is_over; pool++)
        CL_TRY(plan_sinks(p, round, pool, error));
    return CELLAR_OK;
}

/* ---- compacting ------------------------------------------------------------------------------ */

/* Rounds, until there is nothing left to do or *left is used up. */
static cellar_status compact_group(cl_group *group, uint32_t max_rows, uint32_t *left,
                                   cellar_error *error)
{
    picture p;
    CL_TRY(reserve_picture(&p, group, error));
    cellar_status status = CELLAR_OK;
    bool is_done = false;
    while (!is_done && *left > 0 && status == CELLAR_OK) {
        plan round = {.max = max_rows, .budget = *left};
        status = plan_round(&p, &round, error);
        if (status == CELLAR_OK) status = cl_relocate_prepare(group, &round.moves, error);
        if (status == CELLAR_OK) {
            /* An engine makes all moves of a call at once: none may depend on another. */
            is_done = round.moves.n == 0 || group->is_external;
            cl_relocate_do(group, &round.moves);
            group->unfinished = round.unfinished;
            *left -= round.moves.n_cells;
        }
        cl_relocations_free(&round.moves, group->sequences.alloc);
    }
    free_picture(&p);
    return status;
}

cellar_status cellar_compact(cellar_memory *memory, uint32_t max_rows, uint32_t *n_moved,
                             cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_moves(memory, error));
    uint32_t left = max_rows;
    cellar_status status = CELLAR_OK;
    for (uint32_t g = 0; g < memory->n_groups && left > 0 && status == CELLAR_OK; g++)
        if (memory->groups[g].kind == CELLAR_LAYER_ATTENTION)
            status = compact_group(&memory->groups[g], max_rows, &left, error);
    if (n_moved) *n_moved = max_rows - left;
    return status;
}
