/*
 * unit_sweep.c: what a micro-batch sees, cut into key blocks.
 *
 * Against a plain list of (position, cell): each view's blocks, written out one behind the other,
 * are that list; cuts lie where positions say; and what several views hold alike is there once,
 * whatever stands before it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cells.h"
#include "model/random.h"
#include "sort.h"
#include "sweep.h"

#define MAX_VIEWS 8
#define MAX_RUNS 400

typedef struct fixture {
    cl_alloc alloc;
    cl_sweep sweep;
    cl_runs runs[MAX_VIEWS];
    cl_run items[MAX_VIEWS][MAX_RUNS];
    const cellar_window *window; /* NULL: none */
    int32_t first_queries[MAX_VIEWS];
    uint32_t n_views;
} fixture;

static cl_runs nothing = {NULL, 0, 0};

static void start(fixture *f, uint32_t n_views)
{
    cellar_allocator none = {NULL, NULL, NULL, NULL};
    *f = (fixture){.n_views = n_views};
    cl_alloc_init(&f->alloc, &none, 0);
    for (uint32_t v = 0; v < n_views; v++)
        f->runs[v] = (cl_runs){f->items[v], 0, MAX_RUNS};
}

static void add(fixture *f, uint32_t view, int32_t pos, uint32_t cell, uint32_t len, int32_t shift)
{
    cl_run run = {.pos = pos, .cell = cell, .step = 1, .shift = shift};
    cl_run_set_len(&run, len);
    cl_runs_append(&f->runs[view], run);
}

/* One token for each view. */
static void build(fixture *f)
{
    cl_past pasts[MAX_VIEWS];
    for (uint32_t v = 0; v < f->n_views; v++)
        pasts[v] = (cl_past){&f->runs[v], &nothing, f->window, f->first_queries[v]};
    assert_int_equal(
        cl_sweep_prepare(&f->sweep, pasts, f->n_views, f->n_views, NULL, 0, &f->alloc, NULL),
        CELLAR_OK);
    cl_sweep_begin(&f->sweep, 0);
    for (uint32_t v = 0; v < f->n_views; v++)
        cl_sweep_add_view(&f->sweep, v, &pasts[v], 0, &v, 1);
    cl_sweep_finish(&f->sweep);
}

static void finish(fixture *f)
{
    cl_sweep_free(&f->sweep, &f->alloc);
    assert_int_equal(f->alloc.bytes[CELLAR_BYTES_STEP], 0);
}

/* The blocks of a view are its runs, in order, cut every 32 positions and at blocks of storage. */
static void check_view(const fixture *f, uint32_t v)
{
    const cl_view *view = &f->sweep.views[v];
    const cl_runs *runs = &f->runs[v];
    uint32_t r = 0, done = 0;
    int32_t last_stretch = -1;
    for (uint32_t i = 0; i < view->n_blocks; i++) {
        const cl_key_block *block = &f->sweep.blocks[f->sweep.view_blocks[view->first_block + i]];
        assert_true(block->first_pos / 32 > last_stretch);
        last_stretch = block->first_pos / 32;
        assert_int_equal(block->last_pos / 32, last_stretch);
        uint32_t n_keys = 0;
        for (uint32_t p = 0; p < block->n_pieces; p++) {
            const cl_piece *piece = &f->sweep.pieces[block->first_piece + p];
            assert_int_equal(piece->cell / CL_BLOCK, (piece->cell + piece->len - 1) / CL_BLOCK);
            assert_int_equal(f->sweep.shifts[piece->shift], runs->items[r].shift);
            assert_int_equal(piece->pos, runs->items[r].pos + (int32_t)done);
            assert_int_equal(piece->cell, runs->items[r].cell + done);
            done += piece->len;
            n_keys += piece->len;
            if (done == runs->items[r].len) {
                r++;
                done = 0;
            }
        }
        assert_int_equal(n_keys, block->n_keys);
    }
    assert_int_equal(r, runs->n);
}

static void blocks_of_a_view_are_its_runs_cut_by_position(void **state)
{
    (void)state;
    fixture f;
    for (uint32_t seed = 1; seed < 300; seed++) {
        uint32_t x = seed * 2654435761u;
        start(&f, 1 + seed % MAX_VIEWS);
        for (uint32_t v = 0; v < f.n_views; v++) {
            int32_t pos = 0;
            for (uint32_t i = 0; i < 20; i++) {
                x = x * 1664525u + 1013904223u;
                uint32_t len = 1 + (x >> 24) % 90;
                pos += (int32_t)(x >> 8 & 7);
                add(&f, v, pos, v * 10000 + (x >> 12) % 5000, len, (int32_t)(x >> 16 & 3));
                pos += (int32_t)len;
            }
        }
        build(&f);
        for (uint32_t v = 0; v < f.n_views; v++)
            check_view(&f, v);
        finish(&f);
    }
}

static void a_shared_prefix_is_there_once(void **state)
{
    (void)state;
    fixture f;
    start(&f, 5);
    for (uint32_t v = 0; v < 5; v++) {
        add(&f, v, 0, 0, 320, 0);
        add(&f, v, 320, 1000 + 64 * v, 10, 0);
    }
    build(&f);
    assert_int_equal(f.sweep.n_blocks, 10 + 5);
    for (uint32_t b = 0; b < f.sweep.n_blocks; b++)
        assert_int_equal(f.sweep.blocks[b].n_viewers, b < 10 ? 5 : 1);
    finish(&f);
}

static void a_shared_rest_is_there_once_behind_different_beginnings(void **state)
{
    (void)state;
    fixture f;
    start(&f, 6);
    for (uint32_t v = 0; v < 6; v++) {
        add(&f, v, 0, 2048 + 32 * v, 32, 0);
        add(&f, v, 32, 32, 320, 0);
    }
    build(&f);
    assert_int_equal(f.sweep.n_blocks, 6 + 10);
    /* All blocks in order of position, so that a walk over them serves every view. */
    for (uint32_t i = 1; i < f.sweep.n_blocks; i++)
        assert_true(f.sweep.blocks[f.sweep.order[i - 1]].first_pos <=
                    f.sweep.blocks[f.sweep.order[i]].first_pos);
    for (uint32_t v = 0; v < 6; v++)
        check_view(&f, v);
    finish(&f);
}

static void the_same_cells_at_other_positions_are_not_the_same_block(void **state)
{
    (void)state;
    fixture f;
    start(&f, 2);
    add(&f, 0, 0, 0, 32, 0);
    add(&f, 1, 1, 0, 31, 1);
    build(&f);
    assert_int_equal(f.sweep.n_blocks, 2);
    finish(&f);
}

static void room_is_taken_for_distinct_shifts_only(void **state)
{
    (void)state;
    fixture f;
    start(&f, MAX_VIEWS);
    for (uint32_t v = 0; v < MAX_VIEWS; v++)
        for (int32_t i = 0; i < 40; i++)
            add(&f, v, 10 * i, 100 * (uint32_t)i, 5, i % 3);
    build(&f);
    assert_int_equal(f.sweep.n_shifts, 3);
    build(&f); /* a step later the same ones are copied */
    assert_int_equal(f.sweep.n_shifts, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(f.sweep.shifts[i], i);
    finish(&f);
}

/* ---- windows --------------------------------------------------------------------------------- */

typedef struct seen_cell {
    int32_t pos;
    uint32_t cell, block; /* block: how many of the view's blocks come before its own */
} seen_cell;

/* Every cell of a view, in order. */
static uint32_t list_cells(const fixture *f, uint32_t v, seen_cell *cells)
{
    const cl_view *view = &f->sweep.views[v];
    uint32_t n = 0;
    for (uint32_t i = 0; i < view->n_blocks; i++) {
        const cl_key_block *block = &f->sweep.blocks[f->sweep.view_blocks[view->first_block + i]];
        assert_true(block->n_keys >= 1 && block->n_keys <= CL_KEYS);
        for (uint32_t p = 0; p < block->n_pieces; p++) {
            const cl_piece *piece = &f->sweep.pieces[block->first_piece + p];
            for (uint32_t j = 0; j < piece->len; j++)
                cells[n++] = (seen_cell){piece->pos + (int32_t)(piece->step ? j : 0),
                                         piece->cell + j, i};
        }
    }
    return n;
}

/* A sequence with gaps and, sometimes, cells that share a position; cells at `missing` are left out. */
static void fill(fixture *f, uint64_t seed, bool is_shared, int32_t missing_from,
                 int32_t missing_to)
{
    int32_t pos = 0;
    for (uint32_t cell = 0; cell < 300; cell++) {
        if (cell > 0 && !(is_shared && random_one_in(&seed, 2)))
            pos += random_one_in(&seed, 9) ? random_between(&seed, 1, 9) : 1;
        uint32_t jump = random_one_in(&seed, 12) ? 7 : 0; /* the next run elsewhere */
        if (pos >= missing_from && pos < missing_to) continue;
        add(f, 0, pos, 2 * cell + jump, 1, 0);
    }
}

static void a_view_starts_where_its_window_does(void **state)
{
    (void)state;
    static const cellar_window_kind kinds[] = {CELLAR_WINDOW_STANDARD, CELLAR_WINDOW_CHUNKED,
                                               CELLAR_WINDOW_SYMMETRIC};
    fixture f;
    for (uint64_t seed = 1; seed < 400; seed++) {
        cellar_window window = {kinds[seed % 3], 1 + (uint32_t)(seed * 7) % 90,
                                seed % 2 ? (uint32_t)seed % 45 : 0};
        static seen_cell all[400], seen[400];
        start(&f, 1);
        fill(&f, seed, seed % 5 < 2, 0, 0);
        build(&f);
        uint32_t n_all = list_cells(&f, 0, all);
        assert_int_equal(n_all, 300);
        f.window = &window;
        f.first_queries[0] = (int32_t)(seed * 13) % 350;
        build(&f);
        uint32_t n = list_cells(&f, 0, seen), at = 0;
        int64_t first = cl_window_first(&window, f.first_queries[0]) / 32 * 32;
        for (uint32_t i = 0; i < n_all; i++) {
            if (all[i].pos < first && all[i].pos >= (int32_t)window.n_sinks) continue;
            assert_true(at < n);
            assert_int_equal(seen[at].pos, all[i].pos);
            assert_int_equal(seen[at].cell, all[i].cell);
            at++;
        }
        assert_int_equal(at, n);
        finish(&f);
    }
}

/* What was given up before the window moves no cut behind its beginning. */
static void cuts_do_not_depend_on_what_is_gone(void **state)
{
    (void)state;
    fixture f;
    for (uint64_t seed = 1; seed < 400; seed++) {
        cellar_window window = {CELLAR_WINDOW_STANDARD, 40 + (uint32_t)seed % 50, 0};
        static seen_cell whole[400], rest[400];
        uint32_t n[2];
        int32_t query = 90 + (int32_t)(seed * 13) % 100, first = query - (int32_t)window.size + 1;
        for (uint32_t round = 0; round < 2; round++) {
            start(&f, 1);
            f.window = &window;
            f.first_queries[0] = query;
            fill(&f, seed, seed % 3 != 0, 0, round ? first - (int32_t)seed % 3 : 0);
            build(&f);
            n[round] = list_cells(&f, 0, round ? rest : whole);
            finish(&f);
        }
        uint32_t i = n[0], j = n[1];
        assert_true(n[0] > 0 && n[1] <= n[0]);
        for (; i > 0 && j > 0 && whole[i - 1].pos >= first; i--, j--) {
            assert_int_equal(whole[i - 1].cell, rest[j - 1].cell);
            bool is_last = i == n[0] || whole[i].pos < first;
            if (is_last) continue;
            assert_int_equal(whole[i - 1].block == whole[i].block,
                             rest[j - 1].block == rest[j].block);
        }
    }
}

/* Sinks stay while what lies between them and the window goes: the cuts of the rest stay too. */
static void cuts_behind_sinks_do_not_depend_on_what_is_gone(void **state)
{
    (void)state;
    fixture f;
    for (uint64_t seed = 1; seed < 400; seed++) {
        cellar_window window = {CELLAR_WINDOW_STANDARD, 2 + (uint32_t)seed % 9,
                                1 + (uint32_t)seed % 5};
        static seen_cell seen[2][400];
        uint32_t n[2] = {0};
        int32_t query = 18 + (int32_t)seed % 12, first = query - (int32_t)window.size + 1;
        int32_t n_sinks = (int32_t)window.n_sinks;
        for (uint32_t round = 0; round < 2; round++) {
            static seen_cell cells[400];
            start(&f, 1);
            f.window = &window;
            f.first_queries[0] = query;
            fill(&f, seed, seed % 3 != 0, n_sinks, round ? first - (int32_t)seed % 3 : 0);
            build(&f);
            for (uint32_t i = 0, n_all = list_cells(&f, 0, cells); i < n_all; i++)
                if (cells[i].pos < n_sinks || cells[i].pos >= first)
                    seen[round][n[round]++] = cells[i];
            finish(&f);
        }
        assert_true(n[0] > 0);
        assert_int_equal(n[0], n[1]);
        for (uint32_t i = 1; i < n[0]; i++) {
            assert_int_equal(seen[0][i].cell, seen[1][i].cell);
            assert_int_equal(seen[0][i - 1].block == seen[0][i].block,
                             seen[1][i - 1].block == seen[1][i].block);
        }
    }
}

static void the_room_of_a_short_window_is_small(void **state)
{
    (void)state;
    fixture f;
    size_t room[2];
    cellar_window window = {CELLAR_WINDOW_STANDARD, 64, 4};
    for (uint32_t round = 0; round < 2; round++) {
        start(&f, 1);
        add(&f, 0, 0, 0, 1000000, 0);
        f.window = round ? &window : NULL;
        f.first_queries[0] = 1000000;
        build(&f);
        room[round] = f.alloc.bytes[CELLAR_BYTES_STEP];
        finish(&f);
    }
    assert_true(room[1] < 10000 && room[0] > 1000000);
}

static void pending_cells_before_the_window_are_not_read(void **state)
{
    (void)state;
    fixture f;
    cellar_window window = {CELLAR_WINDOW_STANDARD, 32, 2};
    cl_run items[2] = {{.pos = 0, .cell = 0, .len = 100, .step = 1, .shift = 0},
                       {.pos = 100, .cell = 10, .len = 60, .step = 1, .shift = 0}};
    cl_runs pending = {items, 2, 2};
    uint32_t token = 0;
    seen_cell cells[200];
    start(&f, 1);
    cl_past past = {&f.runs[0], &pending, &window, 0};
    assert_int_equal(cl_sweep_prepare(&f.sweep, &past, 1, 20, NULL, 0, &f.alloc, NULL), CELLAR_OK);
    for (uint32_t n = 1; n <= 160; n++) { /* the query stands at n - 1 */
        past.first_query = (int32_t)n - 1;
        cl_sweep_begin(&f.sweep, n);
        cl_sweep_add_view(&f.sweep, 0, &past, n, &token, 1);
        cl_sweep_finish(&f.sweep);
        uint32_t n_cells = list_cells(&f, 0, cells);
        int32_t first = n > 32 ? ((int32_t)n - 32) / 32 * 32 : 0;
        assert_int_equal(n_cells, first > 2 ? 2 + n - (uint32_t)first : n);
        for (uint32_t i = 0; i < n_cells; i++)
            assert_true(cells[i].pos < 2 || cells[i].pos >= first);
        assert_int_equal(cells[n_cells - 1].pos, n - 1);
    }
    finish(&f);
}

static void cells_at_one_position_are_cut_every_32(void **state)
{
    (void)state;
    fixture f;
    cellar_window window = {CELLAR_WINDOW_STANDARD, 1000, 0};
    for (uint32_t round = 0; round < 2; round++) {
        seen_cell cells[200];
        start(&f, 1);
        f.window = round ? &window : NULL;
        add(&f, 0, 0, 0, 10, 0);
        for (uint32_t i = 0; i < 100; i++)
            add(&f, 0, 10, 10 + i, 1, 0);
        add(&f, 0, 11, 110, 5, 0);
        build(&f);
        uint32_t n = list_cells(&f, 0, cells);
        assert_int_equal(n, 115);
        for (uint32_t i = 0; i < n; i++) {
            /* With a window: 0..10, the 99 others at 10, 11..15. */
            uint32_t block = i < 11 ? 0 : i < 110 ? 1 + (i - 11) / 32 : 5;
            assert_int_equal(cells[i].block, round ? block : i / 32);
            assert_int_equal(cells[i].cell, i);
        }
        finish(&f);
    }
}

static void numbers_are_sorted_whatever_their_order(void **state)
{
    (void)state;
    int64_t items[100];
    for (uint32_t n = 0; n <= 100; n++) {
        int64_t sum = 0, sorted_sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            items[i] = (int64_t)(i * 2654435761u % 97) - 48;
            sum += items[i] * items[i];
        }
        cl_sort(items, n);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(i == 0 || items[i - 1] <= items[i]);
            sorted_sum += items[i] * items[i];
        }
        assert_true(sum == sorted_sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_a_view_are_its_runs_cut_by_position),
        cmocka_unit_test(a_shared_prefix_is_there_once),
        cmocka_unit_test(a_shared_rest_is_there_once_behind_different_beginnings),
        cmocka_unit_test(the_same_cells_at_other_positions_are_not_the_same_block),
        cmocka_unit_test(room_is_taken_for_distinct_shifts_only),
        cmocka_unit_test(a_view_starts_where_its_window_does),
        cmocka_unit_test(cuts_do_not_depend_on_what_is_gone),
        cmocka_unit_test(cuts_behind_sinks_do_not_depend_on_what_is_gone),
        cmocka_unit_test(the_room_of_a_short_window_is_small),
        cmocka_unit_test(pending_cells_before_the_window_are_not_read),
        cmocka_unit_test(cells_at_one_position_are_cut_every_32),
        cmocka_unit_test(numbers_are_sorted_whatever_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
