/*
 * resize.c: give a pool more or fewer cells while sequences live in it.
 *
 * Blocks lie in chunks (storage.h), so growing asks for new chunks and touches no row. Shrinking moves
 * what is held beyond the new end into free cells below it (relocate.h) and gives back what is empty then.
 *
 * Window groups follow by the rule of the configuration, and all groups change in the same direction. All
 * that can fail is done in all groups before any change can be seen: for more cells, the memory; for
 * fewer, the copies. If it fails in one, the earlier ones go back, which only gives memory back.
 */
#include "bitmap.h"
#include "error.h"
#include "memory.h"
#include "relocate.h"

/* What a group comes to. */
typedef struct change {
    cl_group *group;
    uint32_t old_n, new_n; /* cells of the pool */
    cl_relocations moves;
} change;

typedef struct resizing {
    cellar_memory *memory;
    uint32_t pool;
    uint32_t n;
    change changes[CL_MAX_GROUPS];
} resizing;

/* ---- more ------------------------------------------------------------------------------------ */

/* As many blocks of rows as there are blocks of cells. */
static cellar_status fit_storage(cl_group *group, uint32_t n_blocks, cellar_error *error)
{
    if (group->is_external) return CELLAR_OK;
    return cl_storage_resize(&group->storage, n_blocks, error);
}

static cellar_status grow_group(const resizing *r, const change *its, cellar_error *error)
{
    cl_cells *cells = &its->group->sequences.cells;
    uint32_t has = cells->pools[r->pool].n_blocks, wanted = cl_cells_blocks(its->new_n);
    uint32_t more = wanted > has ? wanted - has : 0;
    if (more > UINT32_MAX / CL_BLOCK - cells->n_blocks)
        CL_FAIL(error, CELLAR_INVALID, r->pool, "pool %u: %u cells are more than can be numbered",
                r->pool, its->new_n);
    CL_TRY(fit_storage(its->group, cells->n_blocks + more, error));
    if (cl_cells_resize(cells, r->pool, its->new_n, &r->memory->alloc)) return CELLAR_OK;
    (void)fit_storage(its->group, cells->n_blocks, NULL);
    size_t bytes = 0;
    (void)cl_cells_measure(cells->n_blocks + more, cl_cells_kind_of(cells), &bytes);
    return cl_error_no_memory(error, "cells", bytes);
}

static void shrink_group(const resizing *r, change *its, uint32_t n)
{
    cl_cells *cells = &its->group->sequences.cells;
    (void)cl_cells_resize(cells, r->pool, n, &r->memory->alloc); /* fewer: cannot fail */
    (void)fit_storage(its->group, cells->n_blocks, NULL);
}

static cellar_status grow(resizing *r, cellar_error *error)
{
    for (uint32_t i = 0; i < r->n; i++) {
        cellar_status status = grow_group(r, &r->changes[i], error);
        if (status == CELLAR_OK) continue;
        while (i-- > 0)
            shrink_group(r, &r->changes[i], r->changes[i].old_n);
        return status;
    }
    return CELLAR_OK;
}

/* ---- fewer ----------------------------------------------------------------------------------- */

static bool is_of_pool(const cl_cells *cells, uint32_t cell, uint32_t pool)
{
    return cells->pool_of[cell / CL_BLOCK] == pool;
}

static bool is_free(const cl_cells *cells, uint32_t cell)
{
    return cl_bitmap_get(cells->free_map, cell);
}

/* The next stretch of cells in [*at, end) of a pool that are free, or held; len 0: none. Moves *at. */
static cl_stretch next_stretch(const cl_cells *cells, uint32_t pool, bool wants_free, uint32_t end,
                               uint32_t *at)
{
    cl_stretch found = {0, 0};
    for (; *at < end; (*at)++) {
        bool fits = is_of_pool(cells, *at, pool) &&
                    (wants_free ? is_free(cells, *at) : cells->refs[*at] > 0);
        if (fits && found.len++ == 0) found.cell = *at;
        if (!fits && found.len > 0) break;
    }
    return found;
}

/*
 * What is held from `beyond` on goes, in order, to the lowest free cells. Pieces are cut where holes end:
 * making room comes before keeping runs long, and compaction can mend it.
 */
static cellar_status plan_moves(const resizing *r, change *its, uint32_t beyond,
                                cellar_error *error)
{
    const cl_cells *cells = &its->group->sequences.cells;
    uint32_t end = cells->pools[r->pool].end_block * CL_BLOCK, free_at = 0;
    for (uint32_t at = beyond;;) {
        cl_stretch held = next_stretch(cells, r->pool, false, end, &at);
        if (held.len == 0) return CELLAR_OK;
        while (held.len > 0) {
            cl_stretch target = next_stretch(cells, r->pool, true, beyond, &free_at);
            if (target.len > held.len) target.len = held.len;
            if (!cl_relocations_add(&its->moves, &r->memory->alloc, held.cell, target.cell,
                                    target.len))
                return cl_error_no_memory(error, "moves", sizeof(cl_relocation));
            free_at = target.cell + target.len;
            held.cell += target.len;
            held.len -= target.len;
        }
    }
}

static cellar_status prepare_shrink(const resizing *r, change *its, cellar_error *error)
{
    const cl_pool *pool = &its->group->sequences.cells.pools[r->pool];
    uint32_t n_held = pool->n - pool->n_free;
    if (n_held > its->new_n)
        CL_FAIL(error, CELLAR_FULL, n_held,
                "pool %u cannot shrink to %u cells: %u are held in group %u", r->pool, its->new_n,
                n_held, its->group->index);
    uint32_t beyond = cl_cells_first_beyond(&its->group->sequences.cells, r->pool, its->new_n);
    CL_TRY(plan_moves(r, its, beyond, error));
    return cl_relocate_prepare(its->group, &its->moves, error);
}

/* Nobody may claim what goes. */
static void drop_claims(const resizing *r, const change *its)
{
    cl_sequences *sequences = &its->group->sequences;
    uint32_t beyond = cl_cells_first_beyond(&sequences->cells, r->pool, its->new_n);
    for (uint32_t slot = 0; slot < sequences->table.n_slots; slot++) {
        const cl_sequence *sequence = &sequences->table.items[slot];
        if (sequence->id < 0 || sequence->claim == CL_NO_BLOCK || sequence->pool != r->pool)
            continue;
        if ((sequence->claim + 1) * CL_BLOCK > beyond)
            cl_sequences_set_claim(sequences, slot, CL_NO_BLOCK);
    }
}

/* Each group has room for its own moves; the engine's list takes those of all. */
static cellar_status reserve_moves(const resizing *r, cellar_error *error)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->n; i++)
        n += r->changes[i].group->is_external ? r->changes[i].moves.n : 0;
    return n > 0 ? cl_relocate_reserve_moves(r->changes[0].group, n, error) : CELLAR_OK;
}

static cellar_status shrink(resizing *r, cellar_error *error)
{
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < r->n && status == CELLAR_OK; i++)
        status = prepare_shrink(r, &r->changes[i], error);
    if (status == CELLAR_OK) status = reserve_moves(r, error);
    for (uint32_t i = 0; i < r->n; i++) {
        change *its = &r->changes[i];
        if (status == CELLAR_OK) {
            cl_relocate_do(its->group, &its->moves);
            drop_claims(r, its);
            shrink_group(r, its, its->new_n);
        }
        cl_relocations_free(&its->moves, &r->memory->alloc);
    }
    return status;
}

/* ---- resize ---------------------------------------------------------------------------------- */

/* All pools together with the new size of one. */
static uint64_t sum_of_pools(const cellar_memory *memory, uint32_t pool, uint32_t n_cells)
{
    uint64_t sum = 0;
    for (uint32_t p = 0; p < memory->config.n_pools; p++)
        sum += p == pool ? n_cells : memory->pool_cells[p];
    return sum;
}

/* The sizes that all attention groups get. */
static void plan_changes(resizing *r, uint32_t n_cells)
{
    cellar_config config = r->memory->config;
    config.n_cells = (uint32_t)sum_of_pools(r->memory, r->pool, n_cells);
    for (uint32_t g = 0; g < r->memory->n_groups; g++) {
        cl_group *group = &r->memory->groups[g];
        if (group->kind != CELLAR_LAYER_ATTENTION) continue;
        r->changes[r->n++] = (change){
            .group = group,
            .old_n = group->sequences.cells.pools[r->pool].n,
            .new_n = cl_plan_pool_cells(&config, &group->plan, r->pool, n_cells),
        };
    }
}

cellar_status cellar_resize(cellar_memory *memory, uint32_t pool, uint32_t n_cells,
                            cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    if (pool >= memory->config.n_pools)
        CL_FAIL(error, CELLAR_INVALID, pool, "pool %u: the memory has %u", pool,
                memory->config.n_pools);
    uint64_t sum = sum_of_pools(memory, pool, n_cells);
    if (n_cells == 0 || sum > 1u << 30)
        CL_FAIL(error, CELLAR_INVALID, n_cells,
                "pool %u cannot have %u cells: at least 1, and %u over all pools", pool, n_cells,
                1u << 30);
    CL_TRY(cl_memory_check_moves(memory, error));
    resizing r = {.memory = memory, .pool = pool};
    plan_changes(&r, n_cells);
    bool is_growing = n_cells > memory->pool_cells[pool];
    CL_TRY(is_growing ? grow(&r, error) : shrink(&r, error));
    memory->pool_cells[pool] = n_cells;
    memory->config.n_cells = (uint32_t)sum;
    return CELLAR_OK;
}
