/*
 * support_parsed_compare.c: see the header.
 *
 * Lists are compared cell by cell, since tokens at one position can stand in two lists that mean the same.
 */
#include "support_parsed_compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/memory.h"

enum { MOST_CELLS = 1 << 14 };

/* One comparison: which cells of the file are which of the memory. */
typedef struct comparison {
    const cellar_memory *memory;
    const parsed_session *parsed;
    bool is_whole;
    uint32_t group;
    int64_t cell_of[PARSED_GROUPS][MOST_CELLS]; /* by file cell; -1: not seen yet */
    uint32_t n_seen[PARSED_GROUPS];
    /* the list that is being compared, cell by cell */
    const parsed_list *list;
    uint32_t run, in_run;
} comparison;

static void compare_rows(const comparison *c, uint32_t file_cell, uint32_t cell)
{
    for (uint32_t i = 0; i < c->memory->n_layers; i++) {
        const cl_layer *layer = &c->memory->layers[i];
        if (layer->group != (int32_t)c->group || layer->source != i) continue;
        const cl_storage *storage = &c->memory->groups[c->group].storage;
        uint32_t n = layer->kind == CELLAR_LAYER_RECURRENT ? layer->n_states : layer->v ? 2 : 1;
        for (uint32_t t = 0; t < n; t++) {
            const cl_rows *rows = layer->kind == CELLAR_LAYER_RECURRENT ? &layer->states[t]
                                  : t == 0                              ? layer->k
                                                                        : layer->v;
            for (uint32_t head = 0; head < rows->n_heads; head++) {
                const cl_buffer *buffer = cl_storage_buffer(storage, rows->store,
                                                            cell >> storage->cell_shift);
                const unsigned char *ours = buffer->buffer;
                ours += cl_storage_offset(storage, rows, head, cell);
                assert_memory_equal(parsed_row(c->parsed, i, t, head, file_cell), ours,
                                    rows->row_bytes);
            }
        }
    }
}

static void compare_cell(const comparison *c, uint32_t file_cell, uint32_t cell)
{
    const cl_cells *cells = &c->memory->groups[c->group].sequences.cells;
    parsed_cell its;
    assert_true(parsed_get_cell(c->parsed, c->group, file_cell, &its));
    assert_int_equal(its.stored_pos, cells->stored_pos[cell]);
    assert_int_equal(its.token, cells->token[cell]);
    if (cells->points) {
        assert_int_equal(its.y, cells->points[cell].y);
        assert_int_equal(its.x, cells->points[cell].x);
    }
    compare_rows(c, file_cell, cell);
}

/*
 * A cell of the file is met in a list: always the same one (in a journal, once for each pool). In a whole
 * file it is numbered by its first appearance.
 */
static void meet_cell(comparison *c, uint32_t file_cell, uint32_t cell)
{
    assert_true(file_cell < MOST_CELLS);
    int64_t *known = &c->cell_of[c->group][file_cell];
    const cl_cells *cells = &c->memory->groups[c->group].sequences.cells;
    if (*known == (int64_t)cell) return;
    if (*known >= 0) {
        assert_false(c->is_whole);
        assert_int_not_equal(cells->pool_of[*known / CL_BLOCK], cells->pool_of[cell / CL_BLOCK]);
    } else {
        if (c->is_whole) assert_int_equal(file_cell, c->n_seen[c->group]);
        for (uint32_t f = 0; c->is_whole && f < file_cell; f++)
            assert_int_not_equal(c->cell_of[c->group][f], cell);
        c->n_seen[c->group]++;
        *known = cell;
    }
    compare_cell(c, file_cell, cell);
}

/* The next cell of the list stands so in the memory. */
static void meet_next(comparison *c, int64_t pos, uint32_t cell, int32_t shift)
{
    assert_true(c->run < c->list->n);
    const parsed_run *run = &c->list->runs[c->run];
    assert_int_equal(run->pos + (int64_t)(run->step ? c->in_run : 0), pos);
    assert_int_equal(run->shift, shift);
    meet_cell(c, run->cell + c->in_run, cell);
    if (++c->in_run == run->len) {
        c->run++;
        c->in_run = 0;
    }
}

static bool meet_run(void *context, const cellar_run *run)
{
    comparison *c = context;
    if (run->group != c->group) return true;
    for (uint32_t i = 0; i < run->len; i++)
        meet_next(c, run->pos + (int64_t)(run->step ? i : 0), run->cell + i, run->shift);
    return true;
}

/* As few runs as there can be: two neighbours that could be one are one. */
static void expect_joined(const parsed_list *list)
{
    for (uint32_t r = 0; r < list->n; r++) {
        const parsed_run *a = &list->runs[r];
        assert_true(a->len > 1 || a->step == 1);
        if (r + 1 == list->n) break;
        const parsed_run *b = a + 1;
        if (a->cell + a->len != b->cell || a->shift != b->shift) continue;
        bool can_rise = (a->step || a->len == 1) && (b->step || b->len == 1);
        bool can_stay = (!a->step || a->len == 1) && (!b->step || b->len == 1);
        int64_t last = a->pos + (int64_t)(a->step ? a->len - 1 : 0);
        assert_false(can_rise && b->pos == last + 1);
        assert_false(can_stay && b->pos == a->pos);
    }
}

/* Up to where a sequence has lost something, and whether sinks are among it; or where its states begin. */
static uint32_t lost_by(const cl_group *group, cellar_seq seq)
{
    const cl_sequence_table *table = &group->sequences.table;
    uint32_t slot = cl_sequence_table_find(table, seq);
    if (slot == CL_NO_SLOT) return 0;
    if (group->kind == CELLAR_LAYER_RECURRENT) return (uint32_t)table->items[slot].begin;
    const cl_runs *lost = &table->items[slot].lost;
    if (lost->n == 0) return 0;
    bool has_gaps = lost->items[0].pos < (int64_t)group->window.n_sinks;
    return ((uint32_t)cl_run_last(&lost->items[lost->n - 1]) + 1) | (has_gaps ? 0x80000000u : 0);
}

static void compare_list(comparison *c, uint32_t group, const parsed_list *list, cellar_seq seq)
{
    c->group = group;
    c->list = list;
    c->run = c->in_run = 0;
    assert_int_equal(cellar_visit_runs(c->memory, seq, meet_run, c, NULL), CELLAR_OK);
    assert_int_equal(c->run, list->n);
    expect_joined(list);
    assert_int_equal(list->lost, lost_by(&c->memory->groups[group], seq));
}

/* What a checkpoint holds is asked of the inside: the public calls only count it. */
static void compare_pin(comparison *c, uint32_t group, const parsed_list *list, const cl_pin *pin,
                        int32_t position)
{
    c->group = group;
    c->list = list;
    c->run = c->in_run = 0;
    for (uint32_t r = 0; r < pin->runs.n; r++) {
        const cl_run *run = &pin->runs.items[r];
        for (uint32_t i = 0; i < run->len; i++)
            meet_next(c, run->pos + (int64_t)(run->step ? i : 0), run->cell + i, run->shift);
    }
    assert_int_equal(c->run, list->n);
    expect_joined(list);
    /* Nothing at or behind the place is out of sight there, nor are sinks. */
    const cellar_window *window = &c->memory->groups[group].window;
    int64_t first = window->kind == CELLAR_WINDOW_NONE ? 0 : cl_window_first(window, position);
    assert_int_equal(list->lost, first > (int64_t)window->n_sinks ? first : 0);
}

/* The marks of a sequence, as cellar_visit_checkpoints shows them. */
typedef struct mark_walk {
    comparison *c;
    const parsed_sequence *sequence;
    uint32_t mark;
    uint32_t *n_named; /* checkpoints that were named so far */
} mark_walk;

static bool meet_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    mark_walk *w = context;
    comparison *c = w->c;
    assert_true(w->mark < w->sequence->n_marks);
    const parsed_mark *mark = &w->sequence->marks[w->mark++];
    assert_int_equal(mark->position, info->position);
    assert_true(mark->checkpoint <= *w->n_named);
    cellar_pos at;
    uint32_t slot = cl_checkpoints_find(&c->memory->checkpoints, w->sequence->name, mark->position,
                                        &at);
    if (mark->checkpoint < *w->n_named) return true;
    ++*w->n_named;
    const parsed_checkpoint *its = &c->parsed->checkpoints[mark->checkpoint];
    assert_int_equal(its->position, c->memory->checkpoints.sequences.cells.stored_pos[slot] + 1);
    for (uint32_t g = 0; g < c->memory->n_groups; g++)
        compare_pin(c, g, &its->lists[g], cl_checkpoints_pin(&c->memory->checkpoints, slot, g),
                    its->position);
    return true;
}

/* The file's cells are those that its lists name, no more. */
static void expect_no_more_cells(const comparison *c)
{
    uint64_t n[PARSED_GROUPS] = {0};
    for (uint32_t i = 0; i < c->parsed->n_sections; i++)
        if (c->parsed->sections[i].kind == 4)
            n[c->parsed->sections[i].part] += c->parsed->sections[i].count;
    for (uint32_t g = 0; g < c->parsed->n_groups; g++)
        assert_int_equal(n[g], c->n_seen[g]);
}

void parsed_compare(const cellar_memory *memory, const parsed_session *parsed, bool is_whole)
{
    static comparison c;
    uint32_t n_named = 0;
    memset(&c, 0, sizeof c);
    memset(c.cell_of, 0xff, sizeof c.cell_of); /* -1 */
    c.memory = memory;
    c.parsed = parsed;
    c.is_whole = is_whole;
    assert_int_equal(parsed->n_groups, memory->n_groups);
    assert_int_equal(parsed->n_layers, memory->n_layers);
    for (uint32_t i = 0; i < parsed->n_sequences; i++) {
        const parsed_sequence *q = &parsed->sequences[i];
        /* numbering passes over a sequence's lists, then over those of its new checkpoints */
        for (uint32_t g = 0; g < parsed->n_groups; g++)
            compare_list(&c, g, &q->lists[g], q->name);
        mark_walk w = {&c, q, 0, &n_named};
        assert_int_equal(cellar_visit_checkpoints(memory, q->name, meet_checkpoint, &w, NULL),
                         CELLAR_OK);
        assert_int_equal(w.mark, q->n_marks);
    }
    assert_int_equal(n_named, parsed->n_checkpoints);
    if (is_whole) expect_no_more_cells(&c);
}
