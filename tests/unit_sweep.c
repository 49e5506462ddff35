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
#include "sort.h"
#include "sweep.h"

#define MAX_VIEWS 8
#define MAX_RUNS 64

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
    cl_alloc_init(&f->alloc, &none);
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
        cmocka_unit_test(numbers_are_sorted_whatever_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
