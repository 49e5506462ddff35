/*
 * memory_map.c: one look at cells, sequences and the last prompts, for memory_map.h.
 *
 * Sequences of the owner are listed first, those in the cells before those in stores. Then each group is walked twice: its
 * cells say what is held, and the runs of all sequences say by how many and by whom. How many hold a cell is
 * counted in a byte for each cell of the largest group, asked for and given back here.
 *
 * Cost: a visit of every entry, cell and run; some microseconds for each thousand cells.
 */
#define _POSIX_C_SOURCE 200809L

#include "serve/memory_map.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report.h"

#define FEW_STATES 256u /* of a recurrent group, which may have room for very many */

typedef struct filling {
    memory_map *map;
    const cellar_memory *memory;
    const reuse *reuse;
    bool wants_cells; /* this time those in the cells, else the others */
    uint32_t group;   /* that is being walked */
    uint8_t *holders; /* [cells of the largest group] sequences that hold each cell */
    memory_map_sequence *of;
} filling;

/* ---- sequences ------------------------------------------------------------------------------ */

static bool add_run(void *context, const cellar_run *run)
{
    filling *f = context;
    memory_map *map = f->map;
    cellar_group_info group;
    if (cellar_get_group(f->memory, run->group, &group, NULL) == CELLAR_OK) {
        f->of->bytes += run->len * group.row_bytes;
    }
    if (map->n_runs < MEMORY_MAP_RUNS && run->group < map->n_groups) {
        map->runs[map->n_runs++] = (memory_map_run){
            .group = run->group, .cell = run->cell, .len = run->len, .pos = run->pos};
        f->of->n_runs++;
    }
    return true;
}

static bool add_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    filling *f = context;
    f->of->checkpoints[f->of->n_checkpoints++] = info->position;
    return f->of->n_checkpoints < MEMORY_MAP_CHECKPOINTS;
}

static bool add_sequence(void *context, const cellar_entry *entry, const reuse_note *note)
{
    filling *f = context;
    memory_map *map = f->map;
    if ((map->owner != NULL && !reuse_is_owners(f->reuse, entry, map->owner)) ||
        (entry->seq >= 0) != f->wants_cells) {
        return true;
    }
    map->n_own++;
    if (map->n_sequences == MEMORY_MAP_SEQUENCES) {
        return true;
    }
    memory_map_sequence *its = &map->sequences[map->n_sequences++];
    *its = (memory_map_sequence){.entry = *entry, .note = *note, .first_run = map->n_runs};
    its->entry.tokens = NULL; /* nothing of it leaves this thread */
    its->entry.domain = NULL;
    its->for_seconds = note->since > 0 ? job_now() - note->since : -1;
    if (entry->seq >= 0) {
        f->of = its;
        (void)!cellar_get_sequence(f->memory, entry->seq, &its->info, NULL);
        (void)!cellar_visit_runs(f->memory, entry->seq, add_run, f, NULL);
        (void)!cellar_visit_checkpoints(f->memory, entry->seq, add_checkpoint, f, NULL);
    }
    return true;
}

/* The listed sequence of that name; MEMORY_MAP_OTHERS: it is none of them. */
static int32_t find_sequence(const memory_map *map, cellar_seq seq)
{
    for (uint32_t i = 0; i < map->n_sequences; i++) {
        if (map->sequences[i].entry.seq == seq) {
            return (int32_t)i;
        }
    }
    return MEMORY_MAP_OTHERS;
}

/* ---- cells ---------------------------------------------------------------------------------- */

static memory_tile *tile_of(filling *f, uint32_t cell)
{
    const memory_map_group *group = &f->map->groups[f->group];
    return &f->map->tiles[group->first + cell / group->per_tile];
}

static bool count_holder(void *context, const cellar_run *run)
{
    filling *f = context;
    if (run->group != f->group) {
        return true;
    }
    const int32_t sequence = find_sequence(f->map, run->seq);
    for (uint32_t i = 0; i < run->len; i++) {
        uint8_t *holders = &f->holders[run->cell + i];
        if (*holders < UINT8_MAX) {
            (*holders)++;
        }
        memory_tile *tile = tile_of(f, run->cell + i);
        /* Which of those that hold a tile it is shown for: the first in the list, before others. */
        if (sequence >= 0 && (tile->sequence < 0 || sequence < tile->sequence)) {
            tile->sequence = sequence;
            tile->pos = run->pos + (cellar_pos)(i * run->step);
        } else if (sequence == MEMORY_MAP_OTHERS && tile->sequence == MEMORY_MAP_FREE) {
            tile->sequence = MEMORY_MAP_OTHERS;
        }
    }
    return true;
}

static bool count_cell(void *context, const cellar_cell *cell)
{
    filling *f = context;
    if (cell->group == f->group) {
        const uint32_t n = f->holders[cell->cell];
        memory_tile *tile = tile_of(f, cell->cell);
        tile->n_used++;
        tile->n_shared += n > 1;
        tile->n_kept += n == 0;
        if (tile->n_holders < n) {
            tile->n_holders = n;
        }
        if (n == 0 && tile->sequence == MEMORY_MAP_FREE) {
            tile->sequence = MEMORY_MAP_KEPT;
        }
    }
    return true;
}

static void walk_group(filling *f, uint32_t g)
{
    const memory_map_group *group = &f->map->groups[g];
    f->group = g;
    memset(f->holders, 0, group->info.n_cells);
    for (uint32_t i = 0; i < group->n_tiles; i++) {
        f->map->tiles[group->first + i] = (memory_tile){.sequence = MEMORY_MAP_FREE, .pos = -1};
    }
    (void)!cellar_visit_runs(f->memory, -1, count_holder, f, NULL);
    (void)!cellar_visit_cells(f->memory, count_cell, f, NULL);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool reach(void *context, const cellar_cell *cell)
{
    uint32_t *n = context; /* for each group */
    if (cell->group < MEMORY_MAP_GROUPS && n[cell->group] <= cell->cell) {
        n[cell->group] = cell->cell + 1;
    }
    return true;
}

/*
 * Of a group with more cells than tiles those are shown up to the last that is held, rounded up to a power of two:
 * what is hardly used yet is not drawn as a few specks in a large nothing.
 */
static uint32_t count_shown(const cellar_group_info *info, uint32_t n_reached, uint32_t most)
{
    uint32_t n = info->kind == CELLAR_LAYER_RECURRENT && most > FEW_STATES ? FEW_STATES : most;
    while (n < n_reached && n < info->n_cells) {
        n *= 2;
    }
    return n < info->n_cells ? n : info->n_cells;
}

/* How many groups there are, and how finely each is drawn; the cells of the largest. */
static uint32_t lay_out_groups(memory_map *map, const cellar_memory *memory)
{
    const uint32_t n = cellar_count_groups(memory);
    map->n_groups = n < MEMORY_MAP_GROUPS ? n : MEMORY_MAP_GROUPS;
    const uint32_t most = MEMORY_MAP_TILES / (map->n_groups > 2 ? map->n_groups : 2);
    uint32_t largest = 1, reached[MEMORY_MAP_GROUPS] = {0};
    (void)!cellar_visit_cells(memory, reach, reached, NULL);
    size_t first = 0;
    for (uint32_t g = 0; g < map->n_groups; g++) {
        memory_map_group *its = &map->groups[g];
        (void)!cellar_get_group(memory, g, &its->info, NULL);
        its->n_shown = count_shown(&its->info, reached[g], most);
        const uint32_t n_cells = its->n_shown;
        its->per_tile = n_cells > most ? n_cells / most + (n_cells % most != 0) : 1;
        its->n_tiles = n_cells / its->per_tile + (n_cells % its->per_tile != 0);
        its->first = first;
        first += its->n_tiles;
        largest = its->info.n_cells > largest ? its->info.n_cells : largest;
    }
    return largest;
}

cellar_status memory_map_fill(memory_map *map, scheduler *s, cellar_error *error)
{
    const char *owner = map->owner;
    const reuse *r = scheduler_reuse(s);
    *map = (memory_map){.owner = owner};
    filling f = {.map = map, .memory = engine_memory(scheduler_engine(s)), .reuse = r};
    f.holders = malloc(lay_out_groups(map, f.memory));
    if (f.holders == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory to look at the cells");
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    map->time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    (void)!cellar_stats(f.memory, &map->memory, NULL);
    map->library = reuse_statistics(r);
    f.wants_cells = true;
    reuse_visit(r, add_sequence, &f);
    f.wants_cells = false;
    reuse_visit(r, add_sequence, &f);
    for (uint32_t g = 0; g < map->n_groups; g++) {
        walk_group(&f, g);
    }
    map->n_events = timeline_copy(scheduler_timeline(s), owner, map->events, MEMORY_MAP_EVENTS);
    free(f.holders);
    return CELLAR_OK;
}
