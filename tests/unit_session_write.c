/*
 * unit_session_write.c: what is written is what the memory holds, by the reader that was written from the
 * page alone (support_parsed_session.h).
 *
 * Random memories of every kind are written and compared with what the public calls show of them, cell by
 * cell, and rows byte by byte. The bytes follow from the content: moving cells changes none of them. What
 * measures tells what is written. Writers and allocators that fail leave nothing behind.
 *
 *   unit_session_write SEED [N]     N memories from that seed on
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/memory.h"
#include "model/random.h"
#include "support_faulty.h"
#include "support_parsed_session.h"
#include "support_story.h"

static uint64_t first_seed = 1;
static uint32_t n_memories = 120;

/* ---- writing into memory ----------------------------------------------------------------------- */

typedef struct target {
    unsigned char *bytes;
    size_t size, capacity;
    size_t limit; /* fails when it would pass this */
} target;

static bool append(void *context, const void *bytes, size_t n)
{
    target *t = context;
    if (n > t->limit - t->size) return false;
    if (t->size + n > t->capacity) {
        t->capacity = 2 * (t->size + n);
        t->bytes = realloc(t->bytes, t->capacity);
        assert_non_null(t->bytes);
    }
    memcpy(t->bytes + t->size, bytes, n);
    t->size += n;
    return true;
}

static target written(const cellar_memory *memory, const cellar_save_options *options)
{
    target t = {.limit = SIZE_MAX};
    cellar_writer writer = {append, &t};
    cellar_error error = {0};
    uint64_t measured = 0;
    if (cellar_write_session(memory, options, &writer, &error) != CELLAR_OK)
        fail_msg("writing: %s", error.message);
    assert_int_equal(cellar_measure_session(memory, options, &measured, &error), CELLAR_OK);
    assert_int_equal(measured, t.size);
    return t;
}

/* ---- comparing ----------------------------------------------------------------------------------- */

enum { MOST_CELLS = 4096 };

/* One comparison: which cells of the file are which of the memory. */
typedef struct comparison {
    const cellar_memory *memory;
    const parsed_session *parsed;
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

/* A cell of the file is met in a list: numbered by first appearance, and always the same one. */
static void meet_cell(comparison *c, uint32_t file_cell, uint32_t cell)
{
    assert_true(file_cell < MOST_CELLS && file_cell <= c->n_seen[c->group]);
    if (file_cell < c->n_seen[c->group]) {
        assert_int_equal(c->cell_of[c->group][file_cell], cell);
        return;
    }
    for (uint32_t f = 0; f < file_cell; f++)
        assert_int_not_equal(c->cell_of[c->group][f], cell);
    c->cell_of[c->group][c->n_seen[c->group]++] = cell;
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

static void compare_list(comparison *c, uint32_t group, const parsed_list *list, cellar_seq seq)
{
    c->group = group;
    c->list = list;
    c->run = c->in_run = 0;
    assert_int_equal(cellar_visit_runs(c->memory, seq, meet_run, c, NULL), CELLAR_OK);
    assert_int_equal(c->run, list->n);
    expect_joined(list);
    const cl_sequence_table *table = &c->memory->groups[group].sequences.table;
    uint32_t slot = cl_sequence_table_find(table, seq);
    assert_int_equal(list->lost, slot == CL_NO_SLOT ? 0 : table->items[slot].lost);
}

/* What a checkpoint holds is asked of the inside: the public calls only count it. */
static void compare_pin(comparison *c, uint32_t group, const parsed_list *list, const cl_pin *pin)
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
    assert_int_equal(list->lost, pin->lost);
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
        compare_pin(c, g, &its->lists[g], cl_checkpoints_pin(&c->memory->checkpoints, slot, g));
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

static void compare(const cellar_memory *memory, const parsed_session *parsed)
{
    static comparison c;
    uint32_t n_named = 0;
    memset(&c, 0, sizeof c);
    c.memory = memory;
    c.parsed = parsed;
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
    expect_no_more_cells(&c);
}

/* Sequences that hold something; those that only lost something behind a window are in the file too. */
static uint32_t count_holding(const parsed_session *parsed)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < parsed->n_sequences; i++) {
        uint32_t n_runs = 0;
        for (uint32_t g = 0; g < parsed->n_groups; g++)
            n_runs += parsed->sequences[i].lists[g].n;
        n += n_runs > 0;
    }
    return n;
}

static void compare_with_file(const cellar_memory *memory, const target *file)
{
    parsed_session parsed;
    cellar_statistics statistics;
    parsed_read(&parsed, file->bytes, file->size);
    compare(memory, &parsed);
    assert_int_equal(cellar_stats(memory, &statistics, NULL), CELLAR_OK);
    assert_int_equal(count_holding(&parsed), statistics.n_sequences);
    assert_int_equal(parsed.n_checkpoints, statistics.n_checkpoints);
    parsed_free(&parsed);
}

/* ---- random memories ------------------------------------------------------------------------------ */

static void a_file_holds_what_the_memory_holds(void **state)
{
    (void)state;
    cellar_save_options options = cellar_save_options_init();
    for (uint32_t i = 0; i < n_memories; i++) {
        story s;
        story_plan(&s, first_seed + i);
        story_open(&s);
        print_message(i % 20 == 0 ? "seed %llu\n" : "", (unsigned long long)s.seed);
        for (uint32_t k = 0; k < 200; k++) {
            story_change(&s);
            if (k % 10 != 0) continue;
            target file = written(s.small.memory, &options);
            compare_with_file(s.small.memory, &file);
            free(file.bytes);
        }
        story_close(&s);
    }
}

static void where_cells_lie_changes_no_byte(void **state)
{
    (void)state;
    cellar_save_options options = cellar_save_options_init();
    uint32_t n_moved_in_all = 0;
    for (uint32_t i = 0; i < n_memories; i++) {
        story s;
        story_plan(&s, first_seed + i);
        story_open(&s);
        for (uint32_t k = 0; k < 150; k++) {
            story_change(&s);
            if (k % 10 != 0) continue;
            target before = written(s.small.memory, &options);
            uint32_t n_moved = 0;
            assert_int_equal(cellar_compact(s.small.memory, 1 + k, &n_moved, NULL), CELLAR_OK);
            n_moved_in_all += n_moved;
            target after = written(s.small.memory, &options);
            assert_int_equal(before.size, after.size);
            assert_memory_equal(before.bytes, after.bytes, after.size);
            free(before.bytes);
            free(after.bytes);
        }
        story_close(&s);
    }
    assert_true(n_moved_in_all > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_holds_what_the_memory_holds),
        cmocka_unit_test(where_cells_lie_changes_no_byte),
    };
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 1) n_memories = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
