/*
 * unit_relocate.c: cells move, and nobody who holds them notices.
 *
 * A group is put together by hand: two pools, sequences that were appended to wherever the test liked,
 * forks, shifts, shared positions, checkpoints, and one kind of row that carries the number of its
 * token. All lists are written out token by token before and after a relocation or a compaction; they
 * must be the same, every row must have come along, and all counts must be what a recount gives. The
 * public functions on whole memories are tried in unit_compaction.c and unit_resize.c.
 */
#include "support_world.h"

/* Random held stretches to random free ones of their pool. */
static void choose_moves(world *w, cl_relocations *moves)
{
    cl_cells *cells = cells_of(w);
    bool *is_used = calloc(cells->n, sizeof *is_used);
    assert_non_null(is_used);
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t from = random_below(&w->random, cells->n), to = random_below(&w->random, cells->n);
        uint32_t wanted = 1 + random_below(&w->random, 8), n = 0;
        while (n < wanted && from + n < cells->n && to + n < cells->n &&
               cells->refs[from + n] > 0 && cl_bitmap_get(cells->free_map, to + n) &&
               !is_used[from + n] && !is_used[to + n] &&
               cells->pool_of[(from + n) / CL_BLOCK] == cells->pool_of[(to + n) / CL_BLOCK])
            n++;
        for (uint32_t k = 0; k < n; k++)
            is_used[from + k] = is_used[to + k] = true;
        if (n > 0) assert_true(cl_relocations_add(moves, &w->memory.alloc, from, to, n));
    }
    free(is_used);
}

static void a_relocation_keeps_what_everybody_holds(void **state)
{
    (void)state;
    static world w;
    for (uint64_t seed = 0; seed < 150; seed++) {
        open_world(&w, seed, 90, 130);
        for (int round = 0; round < 60; round++) {
            change(&w);
            uint32_t n = write_out(&w, before);
            cl_relocations moves = {NULL, 0, 0, 0};
            choose_moves(&w, &moves);
            assert_int_equal(cl_relocate_prepare(&w.group, &moves, NULL), CELLAR_OK);
            uint64_t n_moved = w.group.n_moved;
            cl_relocate_do(&w.group, &moves);
            assert_int_equal(w.group.n_moved - n_moved, moves.n_cells);
            for (uint32_t i = 0; i < moves.n; i++)
                assert_true(cells_of(&w)->refs[moves.items[i].to] > 0);
            assert_same(&w, n);
            cl_relocations_free(&moves, &w.memory.alloc);
        }
        close_world(&w);
    }
}

static void a_failed_relocation_leaves_no_trace(void **state)
{
    (void)state;
    static world w;
    uint32_t n_failed = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        open_world(&w, seed, 90, 130);
        for (int round = 0; round < 80; round++)
            change(&w);
        uint32_t n = write_out(&w, before);
        cl_relocations moves = {NULL, 0, 0, 0};
        choose_moves(&w, &moves);
        w.n_until_failure = (int)random_below(&w.random, 10);
        cellar_error error = {0};
        cellar_status status = cl_relocate_prepare(&w.group, &moves, &error);
        if (status != CELLAR_OK) {
            n_failed++;
            assert_int_equal(status, CELLAR_IO);
            assert_int_equal(error.reason, CELLAR_REASON_STORE);
        }
        w.n_until_failure = -1;
        assert_same(&w, n);
        cl_relocations_free(&moves, &w.memory.alloc);
        close_world(&w);
    }
    assert_true(n_failed > 20);
}

static void an_engine_is_told_every_move(void **state)
{
    (void)state;
    static world w;
    open_world(&w, 5, 90, 130);
    for (int round = 0; round < 80; round++)
        change(&w);
    w.group.is_external = true;
    w.group.index = 0;
    cl_relocations moves = {NULL, 0, 0, 0};
    choose_moves(&w, &moves);
    assert_true(moves.n > 0);
    assert_int_equal(cl_relocate_prepare(&w.group, &moves, NULL), CELLAR_OK);
    cl_relocate_do(&w.group, &moves);
    assert_int_equal(w.memory.moves.n, moves.n);
    for (uint32_t i = 0; i < moves.n; i++) {
        const cellar_move *told = &w.memory.moves.items[i];
        assert_int_equal(told->from, moves.items[i].from);
        assert_int_equal(told->to, moves.items[i].to);
        assert_int_equal(told->n, moves.items[i].n);
        assert_int_equal(told->turn, 0);
    }
    check_counts(&w);
    cl_relocations_free(&moves, &w.memory.alloc);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_relocation_keeps_what_everybody_holds),
        cmocka_unit_test(a_failed_relocation_leaves_no_trace),
        cmocka_unit_test(an_engine_is_told_every_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
