/*
 * sweep.c: cutting runs into key blocks, and finding those that several sequences share.
 *
 * A past is first clipped to what its window lets anybody see, the same way for counting, for
 * collecting shifts and for cutting. A view's blocks are built one after the other at the end of two arrays. A finished block is looked
 * up in a hash of all blocks by its pieces; if an earlier view has the same one, the new one is taken
 * back and the old one gets one viewer more. Room for the worst case is reserved when the step begins,
 * so building a sweep cannot fail.
 */
#include "sweep.h"

#include <assert.h>
#include <string.h>

#include "cells.h"
#include "error.h"
#include "sort.h"

#define NONE UINT32_MAX

/* ---- room and shifts ------------------------------------------------------------------------- */

/* Which positions of a past are seen: below `sinks`, and from `first` on. */
typedef struct extent {
    int64_t sinks, first;
} extent;

/* `first` begins a stretch; nothing is counted twice. */
static extent extent_of(const cl_past *past)
{
    if (!past->window || past->window->kind == CELLAR_WINDOW_NONE) return (extent){0, 0};
    int64_t first = cl_window_first(past->window, past->first_query) / CL_KEYS * CL_KEYS;
    int64_t sinks = past->window->n_sinks;
    return sinks < first ? (extent){sinks, first} : (extent){0, 0};
}

/* Takes the runs of a past that are seen, clipped. */
typedef void run_taker(void *context, cl_run run);

static void take_range(const cl_runs *runs, int64_t p0, int64_t p1, run_taker *take, void *context)
{
    if (p0 >= p1) return;
    for (uint32_t i = cl_runs_find(runs, p0); i < runs->n && runs->items[i].pos < p1; i++) {
        cl_run part;
        if (cl_run_clip(&runs->items[i], p0, p1, &part)) take(context, part);
    }
}

/* Every committed run that is seen, in order. */
static void take_runs(const cl_past *past, run_taker *take, void *context)
{
    extent seen = extent_of(past);
    take_range(past->runs, 0, seen.sinks, take, context);
    take_range(past->runs, seen.first, INT64_MAX, take, context);
}

/* Upper bounds for the key blocks and pieces that runs can be cut into. */
typedef struct cuts {
    uint64_t blocks, pieces, runs;
} cuts;

static void count_cuts(void *context, cl_run run)
{
    cuts *c = context;
    c->blocks += run.len / CL_KEYS + 4;
    c->pieces += run.len / CL_KEYS + 4 + run.len / CL_BLOCK + 1;
    c->runs++;
}

typedef struct shift_list {
    int64_t *shifts;
    uint32_t n;
} shift_list;

static void note_shift(void *context, cl_run run)
{
    shift_list *list = context;
    if (run.shift != list->shifts[list->n - 1]) list->shifts[list->n++] = run.shift;
}

/* Every shift that is seen, and 0, sorted and once each; `shifts` has room for 1 + all runs. */
static uint32_t collect_shifts(int64_t *shifts, const cl_past *pasts, uint32_t n_pasts)
{
    shift_list list = {shifts, 1};
    shifts[0] = 0;
    for (uint32_t p = 0; p < n_pasts; p++)
        take_runs(&pasts[p], note_shift, &list);
    uint32_t n = list.n;
    cl_sort(shifts, n);
    uint32_t n_distinct = 1;
    for (uint32_t i = 1; i < n; i++)
        if (shifts[i] != shifts[n_distinct - 1]) shifts[n_distinct++] = shifts[i];
    return n_distinct;
}

static uint32_t index_of_shift(const cl_sweep *sweep, int64_t shift)
{
    uint32_t low = 0, high = sweep->n_shifts - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sweep->shifts[middle] < shift)
            low = middle + 1;
        else
            high = middle;
    }
    assert(sweep->shifts[low] == shift);
    return low;
}

/* The turn back by one shift, for every rotation. */
static void compute_turn(float *to, int64_t shift, const cl_rope *ropes, uint32_t n_ropes)
{
    for (uint32_t r = 0; r < n_ropes; r++) {
        uint32_t n = ropes[r].n_pairs;
        cl_rope_angles(&ropes[r], -shift, 1.0, to, to + n);
        to += 2 * (size_t)n;
    }
}

/*
 * The shifts of this step and their turns. Cosines are dear and most shifts were there in the step
 * before, so what is known is copied: both lists are sorted.
 */
static cellar_status prepare_turns(cl_sweep *sweep, const int64_t *shifts, uint32_t n,
                                   const cl_rope *ropes, uint32_t n_ropes, cl_alloc *alloc,
                                   cellar_error *error)
{
    cl_arena *arena = &sweep->turn_arenas[1 - sweep->current];
    size_t n_angles = sweep->n_angles, total = 0;
    if (!cl_arena_add(&total, n, sizeof(int64_t)) ||
        !cl_arena_add(&total, n * n_angles, sizeof(float)) || !cl_arena_reset(arena, alloc, total))
        return cl_error_no_memory(error, "the turns of a step", total);
    int64_t *kept = cl_arena_take(arena, n, sizeof(int64_t));
    float *turns = cl_arena_take(arena, n * n_angles, sizeof(float));
    for (uint32_t i = 0, old = 0; i < n; i++) {
        kept[i] = shifts[i];
        while (old < sweep->n_shifts && sweep->shifts[old] < shifts[i])
            old++;
        if (old < sweep->n_shifts && sweep->shifts[old] == shifts[i])
            memcpy(turns + i * n_angles, sweep->turns + old * n_angles, n_angles * sizeof(float));
        else
            compute_turn(turns + i * n_angles, shifts[i], ropes, n_ropes);
    }
    sweep->shifts = kept;
    sweep->turns = turns;
    sweep->n_shifts = n;
    sweep->current = 1 - sweep->current;
    return CELLAR_OK;
}

/* Find the shifts of the pasts (n_runs runs in all) and prepare their turns; uses the arena. */
static cellar_status prepare_shifts(cl_sweep *sweep, const cl_past *pasts, uint32_t n_pasts,
                                    size_t n_runs, const cl_rope *ropes, uint32_t n_ropes,
                                    cl_alloc *alloc, cellar_error *error)
{
    sweep->n_angles = 0;
    for (uint32_t r = 0; r < n_ropes; r++)
        sweep->n_angles += 2 * ropes[r].n_pairs;
    size_t total = 0;
    if (!cl_arena_add(&total, n_runs + 1, sizeof(int64_t)) ||
        !cl_arena_reset(&sweep->arena, alloc, total))
        return cl_error_no_memory(error, "the shifts of a step", total);
    int64_t *shifts = cl_arena_take(&sweep->arena, n_runs + 1, sizeof(int64_t));
    uint32_t n = collect_shifts(shifts, pasts, n_pasts);
    return prepare_turns(sweep, shifts, n, ropes, n_ropes, alloc, error);
}

cellar_status cl_sweep_prepare(cl_sweep *sweep, const cl_past *pasts, uint32_t n_pasts,
                               uint32_t n_tokens, const cl_rope *ropes, uint32_t n_ropes,
                               cl_alloc *alloc, cellar_error *error)
{
    cuts c = {0, 0, 0};
    for (uint32_t p = 0; p < n_pasts; p++) {
        take_runs(&pasts[p], count_cuts, &c);
        take_range(pasts[p].pending, 0, INT64_MAX, count_cuts, &c);
    }
    uint64_t blocks = c.blocks, pieces = c.pieces;
    sweep->ubatch = NONE;
    CL_TRY(prepare_shifts(sweep, pasts, n_pasts, (size_t)c.runs, ropes, n_ropes, alloc, error));
    uint64_t map_size = 16;
    while (map_size < 2 * blocks)
        map_size *= 2;
    size_t total = 0, n_views = n_pasts < n_tokens ? n_pasts : n_tokens;
    bool fits = pieces < UINT32_MAX && map_size <= UINT32_MAX &&
                cl_arena_add(&total, n_tokens, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_tokens, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_views, sizeof(cl_view)) &&
                cl_arena_add(&total, (size_t)pieces, sizeof(cl_piece)) &&
                cl_arena_add(&total, (size_t)blocks, sizeof(cl_key_block)) &&
                cl_arena_add(&total, (size_t)blocks, sizeof(uint32_t)) &&
                cl_arena_add(&total, (size_t)blocks, sizeof(uint32_t)) &&
                cl_arena_add(&total, (size_t)map_size, sizeof(uint32_t));
    cl_arena *arena = &sweep->arena;
    if (!fits || !cl_arena_reset(arena, alloc, total))
        return cl_error_no_memory(error, "the sweep of a step", total);
    sweep->tokens = cl_arena_take(arena, n_tokens, sizeof(uint32_t));
    sweep->view_of = cl_arena_take(arena, n_tokens, sizeof(uint32_t));
    sweep->views = cl_arena_take(arena, n_views, sizeof(cl_view));
    sweep->pieces = cl_arena_take(arena, (size_t)pieces, sizeof(cl_piece));
    sweep->blocks = cl_arena_take(arena, (size_t)blocks, sizeof(cl_key_block));
    sweep->view_blocks = cl_arena_take(arena, (size_t)blocks, sizeof(uint32_t));
    sweep->viewers = cl_arena_take(arena, (size_t)blocks, sizeof(uint32_t));
    sweep->map = cl_arena_take(arena, (size_t)map_size, sizeof(uint32_t));
    sweep->map_size = (uint32_t)map_size;
    sweep->max_pieces = (uint32_t)pieces;
    sweep->max_blocks = (uint32_t)blocks;
    return CELLAR_OK;
}

void cl_sweep_free(cl_sweep *sweep, cl_alloc *alloc)
{
    cl_arena_free(&sweep->arena, alloc);
    cl_arena_free(&sweep->turn_arenas[0], alloc);
    cl_arena_free(&sweep->turn_arenas[1], alloc);
    memset(sweep, 0, sizeof *sweep);
    sweep->ubatch = NONE;
}

/* ---- key blocks ------------------------------------------------------------------------------ */

void cl_sweep_begin(cl_sweep *sweep, uint32_t ubatch)
{
    sweep->ubatch = ubatch;
    sweep->n_tokens = sweep->n_views = sweep->n_pieces = sweep->n_blocks = 0;
    sweep->n_view_blocks = 0;
    memset(sweep->map, 0xff, sweep->map_size * sizeof *sweep->map);
}

static bool same_pieces(const cl_sweep *sweep, const cl_key_block *a, const cl_key_block *b)
{
    if (a->n_pieces != b->n_pieces) return false;
    for (uint32_t i = 0; i < a->n_pieces; i++) {
        const cl_piece *x = &sweep->pieces[a->first_piece + i];
        const cl_piece *y = &sweep->pieces[b->first_piece + i];
        if (x->cell != y->cell || x->pos != y->pos || x->len != y->len || x->step != y->step)
            return false;
    }
    return true;
}

static uint32_t hash_pieces(const cl_sweep *sweep, const cl_key_block *block)
{
    uint64_t h = block->n_pieces;
    for (uint32_t i = 0; i < block->n_pieces; i++) {
        const cl_piece *piece = &sweep->pieces[block->first_piece + i];
        h = (h ^ piece->cell) * 0x9e3779b97f4a7c15ull;
        h = (h ^ (h >> 29) ^ (uint32_t)piece->pos) * 0xbf58476d1ce4e5b9ull;
        h = (h ^ (h >> 32) ^ piece->len) * 0x94d049bb133111ebull;
    }
    return (uint32_t)(h >> 32);
}

static int32_t stretch_of(int32_t pos)
{
    return pos / (int32_t)CL_KEYS;
}

/*
 * The block being built (the last one) is complete. If an earlier view has the same, use that one.
 * (Where tokens share positions, and behind sinks, a view can have two blocks in one stretch of positions;
 * those must also be found in their order.)
 */
static void close_block(cl_sweep *sweep, cl_view *view)
{
    uint32_t built = sweep->n_blocks - 1, index = built, at_least = 0;
    const cl_key_block *block = &sweep->blocks[built];
    if (view->n_blocks > 0) {
        uint32_t previous = sweep->view_blocks[sweep->n_view_blocks - 1];
        if (stretch_of(sweep->blocks[previous].first_pos) == stretch_of(block->first_pos))
            at_least = previous + 1;
    }
    uint32_t at = hash_pieces(sweep, block) & (sweep->map_size - 1);
    for (; sweep->map[at] != NONE; at = (at + 1) & (sweep->map_size - 1)) {
        uint32_t other = sweep->map[at];
        if (other < at_least || !same_pieces(sweep, &sweep->blocks[other], block)) continue;
        index = other;
        break;
    }
    if (index == built) {
        sweep->map[at] = built;
    } else { /* take the new one back */
        sweep->n_pieces = block->first_piece;
        sweep->n_blocks = built;
    }
    sweep->blocks[index].n_viewers++;
    sweep->view_blocks[sweep->n_view_blocks++] = index;
    view->n_blocks++;
}

static cl_key_block *open_block(cl_sweep *sweep, int32_t pos)
{
    assert(sweep->n_blocks < sweep->max_blocks);
    cl_key_block *block = &sweep->blocks[sweep->n_blocks++];
    *block = (cl_key_block){.first_piece = sweep->n_pieces, .first_pos = pos};
    return block;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* A view that is being cut. */
typedef struct cutting {
    cl_sweep *sweep;
    cl_view *view;
    cl_key_block *open; /* the block being filled, or NULL */
    bool has_window;
    int32_t n_sinks;  /* of the window */
    bool is_shared;   /* `open` began with a cell at the position of the cell before it */
    int32_t last_pos; /* of the cell before; -1: none */
} cutting;

/* Does a cell at `pos` belong into another block than the one before it? */
static bool must_cut(const cutting *c, int32_t pos)
{
    if (stretch_of(c->open->first_pos) != stretch_of(pos) || c->open->n_keys == CL_KEYS)
        return true;
    if (c->last_pos < c->n_sinks && pos >= c->n_sinks) return true;
    return c->has_window && c->is_shared != (pos == c->last_pos);
}

/* How many of the `left` cells of a run, of which the next is `cell` at `pos`, make one piece. */
static uint32_t piece_length(const cutting *c, const cl_run *run, uint32_t cell, int32_t pos,
                             uint32_t left)
{
    uint32_t len = smaller(left, CL_KEYS - c->open->n_keys);
    len = smaller(len, CL_BLOCK - cell % CL_BLOCK);
    if (run->step) len = smaller(len, CL_KEYS - (uint32_t)pos % CL_KEYS);
    if (run->step && pos < c->n_sinks) len = smaller(len, (uint32_t)(c->n_sinks - pos));
    /* The second cell of a run at one position is shared, the second of any other is not. */
    if (c->has_window && c->is_shared == (run->step == 1)) len = 1;
    return len;
}

/* Cut one run into pieces. */
static void cut_run(void *context, cl_run run)
{
    cutting *c = context;
    cl_sweep *sweep = c->sweep;
    uint32_t shift = index_of_shift(sweep, run.shift);
    for (uint32_t done = 0; done < run.len;) {
        int32_t pos = run.pos + (int32_t)(run.step ? done : 0);
        uint32_t cell = run.cell + done;
        if (c->open && must_cut(c, pos)) {
            close_block(sweep, c->view);
            c->open = NULL;
        }
        if (!c->open) {
            c->open = open_block(sweep, pos);
            c->is_shared = pos == c->last_pos;
        }
        uint32_t len = piece_length(c, &run, cell, pos, run.len - done);
        assert(sweep->n_pieces < sweep->max_pieces);
        sweep->pieces[sweep->n_pieces++] = (cl_piece){cell, pos, len, len == 1 ? 1 : run.step,
                                                      shift};
        c->open->n_pieces++;
        c->open->n_keys += len;
        c->last_pos = run.step ? pos + (int32_t)(len - 1) : pos;
        c->open->last_pos = c->last_pos;
        done += len;
    }
}

/* What is seen of a pending run. */
static void cut_pending(cutting *c, const extent *seen, const cl_run *run)
{
    cl_run part;
    if (seen->sinks > 0 && cl_run_clip(run, 0, seen->sinks, &part)) cut_run(c, part);
    if (cl_run_clip(run, seen->first, INT64_MAX, &part)) cut_run(c, part);
}

void cl_sweep_add_view(cl_sweep *sweep, uint32_t member, const cl_past *past, uint32_t n_pending,
                       const uint32_t *tokens, uint32_t n)
{
    uint32_t index = sweep->n_views++;
    cl_view *view = &sweep->views[index];
    *view = (cl_view){member, sweep->n_tokens, n, sweep->n_view_blocks, 0};
    for (uint32_t i = 0; i < n; i++) {
        sweep->tokens[sweep->n_tokens] = tokens[i];
        sweep->view_of[sweep->n_tokens++] = index;
    }
    cutting c = {.sweep = sweep, .view = view, .last_pos = -1};
    c.has_window = past->window && past->window->kind != CELLAR_WINDOW_NONE;
    if (c.has_window) c.n_sinks = (int32_t)smaller(past->window->n_sinks, INT32_MAX);
    take_runs(past, cut_run, &c);
    extent seen = extent_of(past);
    for (uint32_t i = 0; i < past->pending->n && n_pending > 0; i++) {
        cl_run run = past->pending->items[i];
        cl_run_set_len(&run, smaller(run.len, n_pending));
        n_pending -= run.len;
        cut_pending(&c, &seen, &run);
    }
    if (c.open) close_block(sweep, view);
}

/* The hash is no longer needed; its memory, at least 8 bytes a block, takes the order of the blocks. */
static void order_blocks(cl_sweep *sweep)
{
    int64_t *keys = (int64_t *)(void *)sweep->map;
    bool is_ordered = true;
    for (uint32_t b = 0; b < sweep->n_blocks; b++) {
        keys[b] = ((int64_t)stretch_of(sweep->blocks[b].first_pos) << 32) | b;
        is_ordered = is_ordered && (b == 0 || keys[b - 1] < keys[b]);
    }
    if (!is_ordered) cl_sort(keys, sweep->n_blocks);
    sweep->order = sweep->map;
    for (uint32_t b = 0; b < sweep->n_blocks; b++) {
        int64_t key;
        memcpy(&key, &keys[b], sizeof key); /* order[b] lies at or before keys[b] */
        sweep->order[b] = (uint32_t)key;
    }
}

void cl_sweep_finish(cl_sweep *sweep)
{
    order_blocks(sweep);
    uint32_t at = 0;
    for (uint32_t b = 0; b < sweep->n_blocks; b++) {
        sweep->blocks[b].first_viewer = at;
        at += sweep->blocks[b].n_viewers;
        sweep->blocks[b].n_viewers = 0;
    }
    for (uint32_t v = 0; v < sweep->n_views; v++) {
        const cl_view *view = &sweep->views[v];
        for (uint32_t i = 0; i < view->n_blocks; i++) {
            cl_key_block *block = &sweep->blocks[sweep->view_blocks[view->first_block + i]];
            sweep->viewers[block->first_viewer + block->n_viewers++] = v;
        }
    }
}
