/*
 * support_moving.c: random operations, and a look that forgets where cells lie. See support_moving.h.
 *
 * A look holds, for each sequence, what cellar_get_sequence says (but for the number of runs), its
 * tokens and shifts position by position in every group, its checkpoints, and what a probe computes.
 */
#include "support_moving.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void moving_open(moving *m, uint64_t seed, uint32_t n_cells, uint32_t n_pools,
                 const cellar_allocator *allocator, uint64_t budget_bytes)
{
    memset(m, 0, sizeof *m);
    m->random = seed;
    m->next_token = 1;
    m->d.seed = 17;
    m->d.n_layers = 3;
    for (uint32_t l = 0; l < 3; l++) {
        m->d.layers[l] = drive_layer(2, 1, 32, 32);
        m->d.layers[l].rope.kind = l == 1 ? CELLAR_ROPE_NEOX : CELLAR_ROPE_NORMAL;
    }
    m->d.layers[1].k_type = m->d.layers[1].v_type = CELLAR_F16;
    m->d.layers[2].k_type = CELLAR_Q8_0;
    m->d.layers[2].window = (cellar_window){CELLAR_WINDOW_STANDARD, 16, 2};
    cellar_config config = cellar_config_init();
    config.n_cells = n_cells;
    config.n_pools = n_pools;
    config.n_ubatch = 8;
    config.n_sequences = 3;
    config.checkpoint_bytes = 8192;
    config.max_shifts = 0; /* settling changes results */
    config.budget_bytes = budget_bytes;
    if (allocator) config.allocator = *allocator;
    cellar_error error = {0};
    if (drive_open(&m->d, &config, &error) == CELLAR_OK) return;
    fprintf(stderr, "moving: %s\n", error.message);
    exit(2);
}

void moving_close(moving *m)
{
    drive_close(&m->d);
}

void moving_change(moving *m)
{
    cellar_memory *memory = m->d.memory;
    cellar_seq seq = (cellar_seq)random_below(&m->random, MOVING_SEQUENCES);
    cellar_seq other = (cellar_seq)random_below(&m->random, MOVING_SEQUENCES);
    cellar_pos p0 = (cellar_pos)random_below(&m->random, 60), at;
    cellar_pos p1 = random_one_in(&m->random, 3) ? -1 : p0 + random_between(&m->random, 0, 20);
    uint32_t n = 1 + random_below(&m->random, 10);
    cellar_status status = CELLAR_OK;
    switch (random_below(&m->random, 9)) {
    case 0:
        status = cellar_remove(memory, seq, p0, p1, NULL);
        break;
    case 1:
        status = cellar_copy(memory, seq, other, 0, p1, NULL);
        break;
    case 2:
        status = cellar_shift(memory, seq, p0, p1, random_between(&m->random, -4, 4), NULL);
        break;
    case 3:
        status = cellar_checkpoint(memory, seq, NULL);
        break;
    case 4:
        if (random_one_in(&m->random, 3)) status = cellar_rewind(memory, seq, p0, &at, NULL);
        break;
    default:
        status = drive_append(&m->d, seq, m->next_token, n, NULL);
        m->next_token += (cellar_token)n;
    }
    (void)status;
}

/* ---- looking --------------------------------------------------------------------------------- */

typedef struct look {
    unsigned char *bytes;
    size_t n, capacity;
    int32_t *tokens; /* [group][cell] */
    uint32_t n_cells;
} look;

static void add(look *l, const void *from, size_t size)
{
    if (l->n + size > l->capacity) {
        l->capacity = 2 * (l->n + size);
        l->bytes = realloc(l->bytes, l->capacity);
        if (!l->bytes) exit(2);
    }
    memcpy(l->bytes + l->n, from, size);
    l->n += size;
}

static bool note_cell(void *context, const cellar_cell *cell)
{
    look *l = context;
    l->tokens[cell->group * l->n_cells + cell->cell] = cell->token;
    return true;
}

static bool add_run(void *context, const cellar_run *run)
{
    look *l = context;
    for (uint32_t i = 0; i < run->len; i++) {
        int32_t entry[] = {(int32_t)run->group, run->pos + (int32_t)(i * run->step), run->shift,
                           l->tokens[run->group * l->n_cells + run->cell + i]};
        add(l, entry, sizeof entry);
    }
    return true;
}

static bool add_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    int32_t entry[] = {info->position, (int32_t)info->n_holders, (int32_t)info->n_cells};
    add(context, entry, sizeof entry);
    return true;
}

static void look_at(look *l, moving *m, cellar_seq seq)
{
    cellar_sequence_info info;
    if (cellar_get_sequence(m->d.memory, seq, &info, NULL) != CELLAR_OK ||
        cellar_visit_runs(m->d.memory, seq, add_run, l, NULL) != CELLAR_OK ||
        cellar_visit_checkpoints(m->d.memory, seq, add_checkpoint, l, NULL) != CELLAR_OK)
        exit(2);
    int32_t entry[] = {info.pos_min,           info.pos_max,
                       info.pos_next,          info.rewind_min,
                       (int32_t)info.n_cells,  (int32_t)info.n_shared,
                       (int32_t)info.n_shifts, (int32_t)info.n_checkpoints};
    add(l, entry, sizeof entry);
}

static void probe(look *l, moving *m, cellar_seq seq)
{
    float *out = drive_grab(m->d.out_size, sizeof *out);
    cellar_status status = drive_probe(&m->d, seq, 1000000, out);
    add(l, &status, sizeof status);
    if (status == CELLAR_OK) add(l, out, m->d.out_size * sizeof *out);
    free(out);
}

unsigned char *moving_look(moving *m, size_t *size)
{
    look l = {.n_cells = 4096};
    /* A probe may give up a cell behind a window; then there is a free one for all that follow. */
    for (cellar_seq seq = 0; seq < MOVING_SEQUENCES; seq++)
        probe(&l, m, seq);
    l.n = 0;
    uint32_t n_groups = cellar_count_groups(m->d.memory);
    l.tokens = drive_grab((size_t)n_groups * l.n_cells, sizeof *l.tokens);
    if (cellar_visit_cells(m->d.memory, note_cell, &l, NULL) != CELLAR_OK) exit(2);
    for (cellar_seq seq = 0; seq < MOVING_SEQUENCES; seq++)
        look_at(&l, m, seq);
    for (cellar_seq seq = 0; seq < MOVING_SEQUENCES; seq++)
        probe(&l, m, seq);
    free(l.tokens);
    *size = l.n;
    return l.bytes;
}
