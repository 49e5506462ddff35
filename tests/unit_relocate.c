/*
 * unit_relocate.c: cells move, and nobody who holds them notices.
 *
 * A group is put together by hand: two pools, sequences that were appended to wherever the test liked,
 * forks, shifts, shared positions, checkpoints, and one kind of row that carries the number of its
 * token. All lists are written out token by token before and after a relocation or a compaction; they
 * must be the same, every row must have come along, and all counts must be what a recount gives. The
 * public functions on whole memories are tried in unit_compaction.c and unit_resize.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bitmap.h"
#include "compaction.h"
#include "model/random.h"
#include "relocate.h"

#define N_SEQUENCES 6
#define N_PINS 3
#define MAX_ENTRIES 4096

typedef struct world {
    cellar_memory memory;
    cl_group group;
    cl_pool pools[2];
    cl_checkpoints checkpoints;
    cl_pin pins[N_PINS];
    bool is_live[N_PINS];
    cl_rows rows;
    cellar_row_store stores[2];
    cellar_token next_token;
    uint64_t random;
    int n_until_failure; /* of the store; < 0: never */
} world;

/* ---- a store that can fail, and the allocator ------------------------------------------------ */

static int allocations_left = -1; /* < 0: no limit */

static void *give(void *context, size_t size, size_t align)
{
    (void)context;
    if (allocations_left == 0) return NULL;
    if (allocations_left > 0) allocations_left--;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void take_back(void *context, void *block, size_t size)
{
    (void)context;
    (void)size;
    free(block);
}

static void *store_allocate(void *context, size_t size)
{
    (void)context;
    return calloc(1, size);
}

static void store_release(void *context, void *buffer, size_t size)
{
    (void)context;
    (void)size;
    free(buffer);
}

static bool goes_well(world *w)
{
    if (w->n_until_failure == 0) return false;
    if (w->n_until_failure > 0) w->n_until_failure--;
    return true;
}

static bool store_read(void *context, void *buffer, size_t offset, void *to, size_t size)
{
    if (!goes_well(context)) return false;
    memcpy(to, (char *)buffer + offset, size);
    return true;
}

static bool store_write(void *context, void *buffer, size_t offset, const void *from, size_t size)
{
    if (!goes_well(context)) return false;
    memcpy((char *)buffer + offset, from, size);
    return true;
}

static bool store_copy(void *context, void *to, size_t to_offset, void *from, size_t from_offset,
                       size_t size)
{
    if (!goes_well(context)) return false;
    memmove((char *)to + to_offset, (char *)from + from_offset, size);
    return true;
}

/* ---- building a world ------------------------------------------------------------------------ */

static cl_cells *cells_of(world *w)
{
    return &w->group.sequences.cells;
}

static void open_world(world *w, uint64_t seed, uint32_t n0, uint32_t n1)
{
    const cellar_allocator user = {give, NULL, take_back, NULL};
    memset(w, 0, sizeof *w);
    w->random = seed;
    w->n_until_failure = -1;
    cl_alloc_init(&w->memory.alloc, &user, 0);
    cl_alloc *alloc = &w->memory.alloc;
    w->pools[0].n = n0;
    w->pools[1].n = n1;
    w->group.kind = CELLAR_LAYER_ATTENTION;
    w->group.sequences.alloc = alloc;
    w->group.sequences.rule.n_pools = 2;
    w->group.moves = &w->memory.moves;
    w->group.checkpoints = &w->checkpoints;
    w->checkpoints.n = N_PINS;
    w->checkpoints.n_groups = 1;
    w->checkpoints.pins = w->pins;
    w->checkpoints.is_live = w->is_live;
    cl_sequence_table_init(&w->group.sequences.table);
    assert_true(cl_cells_create(cells_of(w), w->pools, 2, true, alloc));
    w->stores[1] = (cellar_row_store){store_allocate, store_release, NULL, store_read,
                                      store_write,    store_copy,    NULL, w};
    cl_storage_layout layout = {.cells_a_block = CL_BLOCK, .kind = CELLAR_BYTES_ROWS};
    assert_true(cl_storage_add(&layout, &w->rows, 2, 4, CELLAR_F32, 1));
    assert_int_equal(cl_storage_create(&w->group.storage, &layout, &w->rows, 1, w->stores, 2,
                                       cells_of(w)->n_blocks, alloc, NULL),
                     CELLAR_OK);
    w->memory.groups = &w->group;
    w->memory.n_groups = 1;
}

static void close_world(world *w)
{
    for (uint32_t i = 0; i < N_PINS; i++)
        cl_runs_free(&w->pins[i].runs, &w->memory.alloc);
    cl_alloc_put(&w->memory.alloc, CELLAR_BYTES_STEP, w->memory.moves.items,
                 w->memory.moves.capacity * sizeof *w->memory.moves.items);
    cl_storage_destroy(&w->group.storage);
    cl_sequence_table_free(&w->group.sequences.table, &w->memory.alloc);
    cl_cells_destroy(cells_of(w), &w->memory.alloc);
    for (int kind = 0; kind < CELLAR_BYTES_KINDS; kind++)
        assert_int_equal(w->memory.alloc.bytes[kind], 0);
}

static void write_row(world *w, uint32_t cell, cellar_token token)
{
    unsigned char raw[64];
    const cl_kernels kernels = {0}; /* numbers are stored as they are */
    for (uint32_t h = 0; h < 2; h++) {
        float row[4] = {(float)token, (float)h, 1, 2};
        assert_true(cl_storage_write(&w->group.storage, &w->rows, &kernels, h, cell, row, raw));
    }
}

static void check_row(world *w, uint32_t cell, cellar_token token)
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
static uint32_t choose_cell(world *w, uint32_t pool, uint32_t tail)
{
    cl_cells *cells = cells_of(w);
    if (tail + 1 < cells->n && !random_one_in(&w->random, 6) &&
        cl_bitmap_get(cells->free_map, tail + 1) && cells->pool_of[(tail + 1) / CL_BLOCK] == pool)
        return tail + 1;
    uint32_t cell = random_below(&w->random, cells->n);
    while (!cl_bitmap_get(cells->free_map, cell) || cells->pool_of[cell / CL_BLOCK] != pool)
        cell = (cell + 1) % cells->n;
    return cell;
}

static void append(world *w, cellar_seq seq, uint32_t n)
{
    uint32_t slot, pool = (uint32_t)seq % 2;
    cl_cells *cells = cells_of(w);
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

static void pin(world *w, uint32_t p, cellar_seq seq)
{
    const cl_runs *runs = cl_group_runs(&w->group, seq);
    for (uint32_t i = 0; i < w->pins[p].runs.n; i++)
        cl_cells_release(cells_of(w), w->pins[p].runs.items[i].cell, w->pins[p].runs.items[i].len);
    w->pins[p].runs.n = 0;
    w->is_live[p] = runs->n > 0;
    if (runs->n == 0) return;
    uint32_t first = random_below(&w->random, runs->n);
    assert_true(cl_runs_reserve(&w->pins[p].runs, &w->memory.alloc, runs->n));
    for (uint32_t i = first; i < runs->n; i++) {
        cl_cells_hold(cells_of(w), runs->items[i].cell, runs->items[i].len);
        cl_runs_append(&w->pins[p].runs, runs->items[i]);
    }
}

static void change(world *w)
{
    cl_sequences *sequences = &w->group.sequences;
    cellar_seq seq = (cellar_seq)random_below(&w->random, N_SEQUENCES);
    cellar_seq other = (seq + 2) % N_SEQUENCES; /* of the same pool */
    int64_t p0 = random_below(&w->random, 60);
    cl_range range = {p0, p0 + random_below(&w->random, 40)};
    if (random_one_in(&w->random, 3)) range.p1 = INT64_MAX;
    switch (random_below(&w->random, 9)) {
    case 0:
    case 1:
        if (random_one_in(&w->random, 2) && cells_of(w)->n_free > 60) break;
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
        pin(w, random_below(&w->random, N_PINS), seq);
        break;
    default:
        if (cells_of(w)->n_free > 40) append(w, seq, 1 + random_below(&w->random, 12));
    }
}

/* ---- what must stay -------------------------------------------------------------------------- */

typedef struct entry {
    uint32_t list;
    int32_t pos, shift;
    cellar_token token;
} entry;

/* All lists, token by token; checks rows and stored positions on the way. */
static uint32_t write_out(world *w, entry *out)
{
    uint32_t n = 0;
    for (uint32_t list = 0; list < cl_relocate_count_lists(&w->group); list++) {
        const cl_runs *runs = cl_relocate_list(&w->group, list);
        for (uint32_t i = 0; runs && i < runs->n; i++)
            for (uint32_t k = 0; k < runs->items[i].len; k++) {
                const cl_run *run = &runs->items[i];
                uint32_t cell = run->cell + k;
                int32_t pos = run->pos + (int32_t)(run->step ? k : 0);
                assert_int_equal(cells_of(w)->stored_pos[cell] + run->shift, pos);
                assert_int_equal(cells_of(w)->points[cell].y, cells_of(w)->token[cell] % 100);
                check_row(w, cell, cells_of(w)->token[cell]);
                assert_true(n < MAX_ENTRIES);
                out[n++] = (entry){list, pos, run->shift, cells_of(w)->token[cell]};
            }
    }
    return n;
}

static void check_counts(world *w)
{
    cl_cells *cells = cells_of(w);
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

static void assert_same(world *w, uint32_t n)
{
    check_counts(w);
    assert_int_equal(write_out(w, after), n);
    assert_memory_equal(before, after, n * sizeof *before);
}

/* ---- the primitive --------------------------------------------------------------------------- */

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

/* ---- compaction ------------------------------------------------------------------------------ */

/* Do two runs of a list follow each other, rotated alike? */
static bool goes_on(const cl_run *a, const cl_run *b)
{
    int32_t distance = b->pos - cl_run_last(a);
    return a->shift == b->shift && (distance == 0 || distance == 1);
}

/* Does some list hold a cell and the one behind it, one after the other? */
static bool is_joined(world *w, uint32_t cell)
{
    for (uint32_t list = 0; list < cl_relocate_count_lists(&w->group); list++) {
        const cl_runs *runs = cl_relocate_list(&w->group, list);
        for (uint32_t i = 0; runs && i < runs->n; i++) {
            const cl_run *run = &runs->items[i];
            uint32_t end = run->cell + run->len - 1;
            if (cell >= run->cell && cell < end) return true;
            if (cell == end && i + 1 < runs->n && goes_on(run, run + 1) && run[1].cell == end + 1)
                return true;
        }
    }
    return false;
}

#define MAX_PLACES 512

/* Different places (end, beginning) where some list goes on elsewhere, and none goes on in place. */
static uint32_t find_places(world *w, uint32_t (*seen)[2])
{
    uint32_t n = 0;
    for (uint32_t list = 0; list < cl_relocate_count_lists(&w->group); list++) {
        const cl_runs *runs = cl_relocate_list(&w->group, list);
        for (uint32_t i = 1; runs && i < runs->n; i++) {
            const cl_run *a = &runs->items[i - 1], *b = &runs->items[i];
            uint32_t end = a->cell + a->len - 1, k = 0;
            if (!goes_on(a, b) || is_joined(w, end)) continue;
            while (k < n && (seen[k][0] != end || seen[k][1] != b->cell))
                k++;
            assert_true(n < MAX_PLACES);
            seen[n][0] = end;
            seen[n][1] = b->cell;
            n += k == n;
        }
    }
    return n;
}

static uint32_t count_places(world *w)
{
    static uint32_t seen[MAX_PLACES][2];
    return find_places(w, seen);
}

/* Where only one list of cells comes to a place and only one leaves it, no room may be left unused. */
static void assert_nothing_fits(world *w)
{
    static uint32_t seen[MAX_PLACES][2];
    uint32_t n = find_places(w, seen);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t end = seen[i][0], begin = seen[i][1], len = 1, room = 0, n_same = 0;
        for (uint32_t k = 0; k < n; k++)
            n_same += seen[k][0] == end || seen[k][1] == begin;
        if (n_same > 1 || (begin > 0 && is_joined(w, begin - 1))) continue;
        while (is_joined(w, begin + len - 1))
            len++;
        while (end + room + 1 < cells_of(w)->n &&
               cl_bitmap_get(cells_of(w)->free_map, end + room + 1) &&
               cells_of(w)->pool_of[(end + room + 1) / CL_BLOCK] ==
                   cells_of(w)->pool_of[end / CL_BLOCK])
            room++;
        assert_true(room < len);
    }
}

static uint32_t largest_held(world *w, uint32_t pool)
{
    cl_cells *cells = cells_of(w);
    uint32_t largest = 0;
    for (uint32_t c = 0; c < cells->n; c++)
        if (cells->refs[c] > 0 && cells->pool_of[c / CL_BLOCK] == pool) largest = c;
    return largest;
}

static void compact_to_the_end(world *w, uint32_t budget)
{
    uint32_t n = write_out(w, before), n_calls = 0, n_moved = 1;
    uint32_t n_held = cells_of(w)->n - cells_of(w)->n_free;
    while (n_moved > 0) {
        assert_int_equal(cellar_compact(&w->memory, budget, &n_moved, NULL), CELLAR_OK);
        assert_true(n_moved <= budget);
        assert_same(w, n);
        assert_true(++n_calls < 40 * (n_held + 10));
    }
    assert_int_equal(cellar_compact(&w->memory, budget, NULL, NULL), CELLAR_OK);
    assert_same(w, n);
}

static void compaction_comes_to_an_end_and_keeps_everything(void **state)
{
    (void)state;
    static world w;
    const uint32_t budgets[] = {1, 2, 3, 7, 31, 64, 100000};
    uint32_t sum_before = 0, sum_after = 0;
    for (uint64_t seed = 0; seed < 140; seed++) {
        open_world(&w, seed, 90, 150);
        uint32_t budget = budgets[seed % 7];
        for (int phase = 0; phase < 3; phase++) {
            for (int round = 0; round < 40; round++)
                change(&w);
            uint32_t at_first = count_places(&w);
            compact_to_the_end(&w, budget);
            sum_before += at_first;
            sum_after += count_places(&w);
            if (budget > 30) assert_nothing_fits(&w);
        }
        close_world(&w);
    }
    print_message("places where lists break: %u before, %u after\n", sum_before, sum_after);
    assert_true(sum_before > 1000 && sum_after < sum_before / 2);
}

static void budgets_may_change_from_call_to_call(void **state)
{
    (void)state;
    static world w;
    for (uint64_t seed = 0; seed < 60; seed++) {
        open_world(&w, seed + 1000, 90, 150);
        for (int round = 0; round < 60; round++)
            change(&w);
        uint32_t n = write_out(&w, before), n_moved;
        for (int call = 0; call < 40; call++) {
            uint32_t budget = random_below(&w.random, 9);
            assert_int_equal(cellar_compact(&w.memory, budget, &n_moved, NULL), CELLAR_OK);
            assert_true(n_moved <= budget);
            assert_same(&w, n);
            if (random_one_in(&w.random, 4)) change(&w);
            n = write_out(&w, before);
        }
        compact_to_the_end(&w, 5);
        close_world(&w);
    }
}

/* Sequence 0 lies in pieces of 3, sequence 2 between them. */
static void interleave(world *w)
{
    for (int i = 0; i < 6; i++) {
        for (cellar_seq seq = 0; seq <= 2; seq += 2) {
            uint32_t slot;
            assert_int_equal(cl_sequences_add(&w->group.sequences, seq, &slot, NULL), CELLAR_OK);
            assert_int_equal(cl_sequences_reserve(&w->group.sequences, slot, 3, NULL), CELLAR_OK);
            cl_runs *runs = &w->group.sequences.table.items[slot].runs;
            for (int k = 0; k < 3; k++) {
                uint32_t cell = (uint32_t)(i * 6 + seq / 2 * 3 + k);
                cl_cells_take(cells_of(w), cell, 1, 1);
                cells_of(w)->stored_pos[cell] = 3 * i + k;
                cells_of(w)->token[cell] = w->next_token;
                cells_of(w)->points[cell].y = (int16_t)(w->next_token % 100);
                write_row(w, cell, w->next_token++);
                cl_runs_append(runs, (cl_run){.pos = 3 * i + k, .cell = cell, .len = 1, .step = 1});
            }
        }
    }
}

static void interleaved_sequences_become_one_run_each_at_the_bottom(void **state)
{
    (void)state;
    static world w;
    for (uint32_t budget = 1; budget < 40; budget++) {
        open_world(&w, 1, 64, 32);
        interleave(&w);
        assert_int_equal(count_places(&w), 10);
        compact_to_the_end(&w, budget);
        assert_int_equal(cl_group_runs(&w.group, 0)->n, 1);
        assert_int_equal(cl_group_runs(&w.group, 2)->n, 1);
        assert_int_equal(count_places(&w), 0);
        assert_true(cl_compaction_fragmentation(&w.memory) == 0);
        assert_true(largest_held(&w, 0) < 36 + 18);
        close_world(&w);
    }
}

static void a_shared_prefix_stays_shared_and_whole(void **state)
{
    (void)state;
    static world w;
    open_world(&w, 1, 96, 32);
    interleave(&w);
    cl_range all = {0, INT64_MAX};
    assert_int_equal(cl_sequences_prepare_copy(&w.group.sequences, 0, 4, all, NULL), CELLAR_OK);
    cl_sequences_copy(&w.group.sequences, 0, 4, all);
    append(&w, 4, 5);
    append(&w, 0, 5);
    pin(&w, 1, 0);
    uint32_t n_shared = cells_of(&w)->n_shared;
    compact_to_the_end(&w, 4);
    assert_int_equal(cells_of(&w)->n_shared, n_shared);
    uint32_t n_runs = cl_group_runs(&w.group, 0)->n + cl_group_runs(&w.group, 4)->n;
    assert_true(n_runs <= 3); /* one of them goes on elsewhere */
    assert_int_equal(cl_group_runs(&w.group, 0)->items[0].cell,
                     cl_group_runs(&w.group, 4)->items[0].cell);
    close_world(&w);
}

static void compaction_without_memory_moves_nothing_half(void **state)
{
    (void)state;
    static world w;
    for (int fail = 0; fail < 12; fail++) {
        open_world(&w, 3, 90, 150);
        for (int round = 0; round < 90; round++)
            change(&w);
        uint32_t n = write_out(&w, before), n_moved;
        allocations_left = fail;
        cellar_error error = {0};
        cellar_status status = cellar_compact(&w.memory, 1000, &n_moved, &error);
        allocations_left = -1;
        assert_true(status == CELLAR_OK || status == CELLAR_NO_MEMORY);
        if (fail == 0) assert_int_equal(status, CELLAR_NO_MEMORY);
        assert_same(&w, n);
        w.n_until_failure = fail;
        status = cellar_compact(&w.memory, 1000, &n_moved, &error);
        w.n_until_failure = -1;
        assert_true(status == CELLAR_OK || status == CELLAR_IO);
        assert_same(&w, n);
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_relocation_keeps_what_everybody_holds),
        cmocka_unit_test(a_failed_relocation_leaves_no_trace),
        cmocka_unit_test(an_engine_is_told_every_move),
        cmocka_unit_test(compaction_comes_to_an_end_and_keeps_everything),
        cmocka_unit_test(budgets_may_change_from_call_to_call),
        cmocka_unit_test(interleaved_sequences_become_one_run_each_at_the_bottom),
        cmocka_unit_test(a_shared_prefix_stays_shared_and_whole),
        cmocka_unit_test(compaction_without_memory_moves_nothing_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
