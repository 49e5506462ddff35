/*
 * support_pieces.c: the group itself, random operations on it, and what must stay. See support_pieces.h.
 *
 * Operations use the library's own functions on sequences, which are tested elsewhere; only placement is
 * replaced, because real placement would not scatter cells nearly enough.
 */
#include "support_pieces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bitmap.h"
#include "support_faulty.h"

#define MAX_ENTRIES 4096

/* ---- building a group ------------------------------------------------------------------------ */

cl_cells *pieces_cells(pieces *w)
{
    return &w->group.sequences.cells;
}

void pieces_open(pieces *w, uint64_t seed, uint32_t n0, uint32_t n1)
{
    const cellar_allocator user = faulty_allocator();
    memset(w, 0, sizeof *w);
    w->random = seed;
    cl_alloc_init(&w->memory.alloc, &user, 0);
    cl_alloc *alloc = &w->memory.alloc;
    w->pools[0].n = n0;
    w->pools[1].n = n1;
    w->group.kind = CELLAR_LAYER_ATTENTION;
    w->group.sequences.alloc = alloc;
    w->group.sequences.rule.n_pools = 2;
    w->group.moves = &w->memory.moves;
    w->group.checkpoints = &w->checkpoints;
    w->checkpoints.n = PIECES_PINS;
    w->checkpoints.n_groups = 1;
    w->checkpoints.pins = w->pins;
    w->checkpoints.is_live = w->is_live;
    cl_sequence_table_init(&w->group.sequences.table);
    assert_true(cl_cells_create(pieces_cells(w), w->pools, 2, (cl_cells_kind){true, false}, alloc));
    w->stores[1] = faulty_store();
    cl_storage_layout layout = {.cells_a_block = CL_BLOCK, .kind = CELLAR_BYTES_ROWS};
    assert_true(cl_storage_add(&layout, &w->rows, 2, 4, CELLAR_F32, 1));
    assert_int_equal(cl_storage_create(&w->group.storage, &layout, &w->rows, 1, w->stores, 2,
                                       pieces_cells(w)->n_blocks, alloc, NULL),
                     CELLAR_OK);
    w->memory.groups = &w->group;
    w->memory.n_groups = 1;
}

void pieces_close(pieces *w)
{
    for (uint32_t i = 0; i < PIECES_PINS; i++)
        cl_runs_free(&w->pins[i].runs, &w->memory.alloc);
    cl_alloc_put(&w->memory.alloc, CELLAR_BYTES_STEP, w->memory.moves.items,
                 w->memory.moves.capacity * sizeof *w->memory.moves.items);
    cl_storage_destroy(&w->group.storage);
    cl_sequence_table_free(&w->group.sequences.table, &w->memory.alloc);
    cl_cells_destroy(pieces_cells(w), &w->memory.alloc);
    for (int kind = 0; kind < CELLAR_BYTES_KINDS; kind++)
        assert_int_equal(w->memory.alloc.bytes[kind], 0);
}

static void write_row(pieces *w, uint32_t cell, cellar_token token)
{
    unsigned char raw[64];
    const cl_kernels kernels = {0}; /* numbers are stored as they are */
    for (uint32_t h = 0; h < 2; h++) {
        float row[4] = {(float)token, (float)h, 1, 2};
        assert_true(cl_storage_write(&w->group.storage, &w->rows, &kernels, h, cell, row, raw));
    }
}

static void check_row(pieces *w, uint32_t cell, cellar_token token)
{
    unsigned char raw[64];
    float room[4];
    const cl_kernels kernels = {0}; /* numbers are stored as they are */
    for (uint32_t h = 0; h < 2; h++) {
        const float *row = cl_storage_read(&w->group.storage, &w->rows, &kernels, h, cell, 1, room,
                                           raw);
        assert_non_null(row);
        assert_true(row[0] == (float)token && row[1] == (float)h);
    }
}

/* A free cell of a pool: right behind `tail` mostly, else any. */
static uint32_t choose_cell(pieces *w, uint32_t pool, uint32_t tail)
{
    cl_cells *cells = pieces_cells(w);
    if (tail + 1 < cells->n && !random_one_in(&w->random, 6) &&
        cl_bitmap_get(cells->free_map, tail + 1) && cells->pool_of[(tail + 1) / CL_BLOCK] == pool)
        return tail + 1;
    uint32_t cell = random_below(&w->random, cells->n);
    while (!cl_bitmap_get(cells->free_map, cell) || cells->pool_of[cell / CL_BLOCK] != pool)
        cell = (cell + 1) % cells->n;
    return cell;
}

void pieces_append(pieces *w, cellar_seq seq, uint32_t n)
{
    uint32_t slot, pool = (uint32_t)seq % 2;
    cl_cells *cells = pieces_cells(w);
    if (cells->pools[pool].n_free < n) return;
    assert_int_equal(cl_sequences_add(&w->group.sequences, seq, &slot, NULL), CELLAR_OK);
    assert_int_equal(cl_sequences_reserve(&w->group.sequences, slot, n, NULL), CELLAR_OK);
    cl_runs *runs = &w->group.sequences.table.items[slot].runs;
    int32_t pos = runs->n ? cl_run_last(&runs->items[runs->n - 1]) : -1;
    uint32_t tail = runs->n ? runs->items[runs->n - 1].cell + runs->items[runs->n - 1].len - 1 : 0;
    for (uint32_t i = 0; i < n; i++) {
        pos += !random_one_in(&w->random, 12) || pos < 0;
        tail = choose_cell(w, pool, tail);
        cl_cells_take(cells, tail, 1, 1);
        cells->stored_pos[tail] = pos;
        cells->token[tail] = w->next_token;
        cells->points[tail] = (cl_point){(int16_t)(w->next_token % 100), 7};
        write_row(w, tail, w->next_token++);
        cl_runs_append(runs, (cl_run){.pos = pos, .cell = tail, .len = 1, .step = 1, .shift = 0});
    }
    cl_sequences_set_claim(&w->group.sequences, slot, CL_NO_BLOCK);
    uint32_t block = cl_placement_claim(cells, slot + 1, tail);
    if (random_one_in(&w->random, 2)) cl_sequences_set_claim(&w->group.sequences, slot, block);
}

void pieces_pin(pieces *w, uint32_t p, cellar_seq seq)
{
    const cl_runs *runs = cl_group_runs(&w->group, seq);
    for (uint32_t i = 0; i < w->pins[p].runs.n; i++)
        cl_cells_release(pieces_cells(w), w->pins[p].runs.items[i].cell,
                         w->pins[p].runs.items[i].len);
    w->pins[p].runs.n = 0;
    w->is_live[p] = runs->n > 0;
    if (runs->n == 0) return;
    uint32_t first = random_below(&w->random, runs->n);
    assert_true(cl_runs_reserve(&w->pins[p].runs, &w->memory.alloc, runs->n));
    for (uint32_t i = first; i < runs->n; i++) {
        cl_cells_hold(pieces_cells(w), runs->items[i].cell, runs->items[i].len);
        cl_runs_append(&w->pins[p].runs, runs->items[i]);
    }
}

void pieces_change(pieces *w)
{
    cl_sequences *sequences = &w->group.sequences;
    cellar_seq seq = (cellar_seq)random_below(&w->random, PIECES_SEQUENCES);
    cellar_seq other = (seq + 2) % PIECES_SEQUENCES; /* of the same pool */
    int64_t p0 = random_below(&w->random, 60);
    cl_range range = {p0, p0 + random_below(&w->random, 40)};
    if (random_one_in(&w->random, 3)) range.p1 = INT64_MAX;
    switch (random_below(&w->random, 9)) {
    case 0:
    case 1:
        if (random_one_in(&w->random, 2) && pieces_cells(w)->n_free > 60) break;
        assert_int_equal(cl_sequences_prepare_remove(sequences, seq, range, NULL), CELLAR_OK);
        cl_sequences_remove(sequences, seq, range);
        break;
    case 2:
        assert_int_equal(cl_sequences_prepare_copy(sequences, seq, other, range, NULL), CELLAR_OK);
        cl_sequences_copy(sequences, seq, other, range);
        break;
    case 3: {
        int64_t delta = (int64_t)random_below(&w->random, 5) - 2;
        if (cl_sequences_prepare_shift(sequences, seq, range, delta, NULL) == CELLAR_OK)
            cl_sequences_shift(sequences, seq, range, delta);
        break;
    }
    case 4:
        pieces_pin(w, random_below(&w->random, PIECES_PINS), seq);
        break;
    default:
        if (pieces_cells(w)->n_free > 40) pieces_append(w, seq, 1 + random_below(&w->random, 12));
    }
}

/* ---- what must stay -------------------------------------------------------------------------- */

typedef struct entry {
    uint32_t list;
    int32_t pos, shift;
    cellar_token token;
} entry;

/* All lists, token by token; checks rows and stored positions on the way. */
static uint32_t write_out(pieces *w, entry *out)
{
    uint32_t n = 0;
    for (uint32_t list = 0; list < cl_relocate_count_lists(&w->group); list++) {
        const cl_runs *runs = cl_relocate_list(&w->group, list);
        for (uint32_t i = 0; runs && i < runs->n; i++)
            for (uint32_t k = 0; k < runs->items[i].len; k++) {
                const cl_run *run = &runs->items[i];
                uint32_t cell = run->cell + k;
                int32_t pos = run->pos + (int32_t)(run->step ? k : 0);
                assert_int_equal(pieces_cells(w)->stored_pos[cell] + run->shift, pos);
                assert_int_equal(pieces_cells(w)->points[cell].y,
                                 pieces_cells(w)->token[cell] % 100);
                check_row(w, cell, pieces_cells(w)->token[cell]);
                assert_true(n < MAX_ENTRIES);
                out[n++] = (entry){list, pos, run->shift, pieces_cells(w)->token[cell]};
            }
    }
    return n;
}

void pieces_check_counts(pieces *w)
{
    cl_cells *cells = pieces_cells(w);
    uint32_t *counted = calloc(cells->n, sizeof *counted), n_free = 0, n_shared = 0;
    assert_non_null(counted);
    for (uint32_t list = 0; list < cl_relocate_count_lists(&w->group); list++) {
        const cl_runs *runs = cl_relocate_list(&w->group, list);
        for (uint32_t i = 0; runs && i < runs->n; i++) {
            const cl_run *run = &runs->items[i];
            assert_true(run->len > 1 || run->step);
            assert_true(i == 0 || !cl_run_touches(run - 1, run));
            for (uint32_t k = 0; k < run->len; k++)
                counted[run->cell + k]++;
        }
    }
    for (uint32_t p = 0; p < 2; p++) {
        uint32_t end = cl_cells_first_beyond(cells, p, cells->pools[p].n), its_free = 0;
        for (uint32_t c = cells->pools[p].first_block * CL_BLOCK; c < end; c++) {
            assert_int_equal(cells->refs[c], counted[c]);
            assert_int_equal(cl_bitmap_get(cells->free_map, c), counted[c] == 0);
            assert_true(counted[c] > 0 || c >= cells->pools[p].first_free);
            its_free += counted[c] == 0;
            n_shared += counted[c] >= 2;
        }
        assert_int_equal(cells->pools[p].n_free, its_free);
        n_free += its_free;
    }
    assert_int_equal(cells->n_free, n_free);
    assert_int_equal(cells->n_shared, n_shared);
    for (uint32_t slot = 0; slot < w->group.sequences.table.n_slots; slot++) {
        const cl_sequence *sequence = &w->group.sequences.table.items[slot];
        if (sequence->id >= 0 && sequence->claim != CL_NO_BLOCK)
            assert_int_equal(cells->claims[sequence->claim], slot + 1);
    }
    free(counted);
}

static entry before[MAX_ENTRIES], after[MAX_ENTRIES];
static uint32_t n_before;

void pieces_note(pieces *w)
{
    n_before = write_out(w, before);
}

void pieces_assert_same(pieces *w)
{
    pieces_check_counts(w);
    assert_int_equal(write_out(w, after), n_before);
    assert_memory_equal(before, after, n_before * sizeof *before);
}

/* The next n tokens of a sequence of pool 0 lie in cells from `cell` on. */
void pieces_put(pieces *w, cellar_seq seq, uint32_t cell, uint32_t n)
{
    uint32_t slot;
    assert_int_equal(cl_sequences_add(&w->group.sequences, seq, &slot, NULL), CELLAR_OK);
    assert_int_equal(cl_sequences_reserve(&w->group.sequences, slot, n, NULL), CELLAR_OK);
    cl_runs *runs = &w->group.sequences.table.items[slot].runs;
    int32_t pos = runs->n ? cl_run_last(&runs->items[runs->n - 1]) + 1 : 0;
    for (uint32_t i = 0; i < n; i++, cell++, pos++) {
        cl_cells_take(pieces_cells(w), cell, 1, 1);
        pieces_cells(w)->stored_pos[cell] = pos;
        pieces_cells(w)->token[cell] = w->next_token;
        pieces_cells(w)->points[cell].y = (int16_t)(w->next_token % 100);
        write_row(w, cell, w->next_token++);
        cl_runs_append(runs, (cl_run){.pos = pos, .cell = cell, .len = 1, .step = 1});
    }
}

void pieces_share(pieces *w, cellar_seq from, cellar_seq to, int64_t p1)
{
    cl_range range = {0, p1};
    assert_int_equal(cl_sequences_prepare_copy(&w->group.sequences, from, to, range, NULL),
                     CELLAR_OK);
    cl_sequences_copy(&w->group.sequences, from, to, range);
}
