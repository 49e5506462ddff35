/*
 * memory_model.c: the arrays that the library is compared with: making them, counting in them,
 * looking things up. See memory_model.h.
 *
 * Slow and plain on purpose: what it promises is to be obviously right, not to be fast.
 */
#include "memory_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *memory_model_grab(size_t n, size_t size)
{
    void *block = calloc(n ? n : 1, size);
    if (!block) {
        fprintf(stderr, "memory_model: out of memory\n");
        exit(2);
    }
    return block;
}

static void *grow(void *old, uint32_t n, uint32_t capacity, size_t size)
{
    void *block = memory_model_grab(capacity, size);
    if (n > 0) memcpy(block, old, n * size);
    free(old);
    return block;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool same_window(const cellar_window *a, const cellar_window *b)
{
    return a->kind == b->kind &&
           (a->kind == CELLAR_WINDOW_NONE || (a->size == b->size && a->n_sinks == b->n_sinks));
}

/* The group that a layer belongs to, made if it is the first. */
static uint32_t find_group(memory_model *model, const cellar_layer *layer)
{
    for (uint32_t g = 0; g < model->n_groups; g++) {
        const model_group *group = &model->groups[g];
        if (group->kind == layer->kind &&
            (group->kind == CELLAR_LAYER_RECURRENT || same_window(&group->window, &layer->window)))
            return g;
    }
    model->groups[model->n_groups] =
        (model_group){.kind = layer->kind, .window = layer->window, .real = -1, .n_kept = 1};
    return model->n_groups++;
}

/* Cells of a window group in a pool, as cellar_config says. */
static uint32_t window_cells(const cellar_config *config, const cellar_window *window,
                             uint32_t pool_cells)
{
    uint64_t share = (config->n_sequences + config->n_pools - 1) / config->n_pools;
    uint64_t n = share * ((uint64_t)window->size + window->n_sinks) + config->n_ubatch;
    return config->is_window_full || n > pool_cells ? pool_cells : (uint32_t)n;
}

/* n_cells cut into n_pools: the first ones get what is left over. */
static uint32_t share_of(const cellar_config *config, uint32_t pool)
{
    if (config->pool_cells) return config->pool_cells[pool];
    return config->n_cells / config->n_pools + (pool < config->n_cells % config->n_pools);
}

void memory_model_open_config(memory_model *model, const cellar_config *config)
{
    uint32_t floats = 0;
    memset(model, 0, sizeof *model);
    model->n_cells = config->n_cells;
    model->n_pools = config->n_pools;
    model->pool_of = config->pool_of;
    model->n_layers = config->n_layers;
    model->checkpoint_interval = config->checkpoint_interval;
    model->next_id = 1;
    for (uint32_t l = 0; l < config->n_layers; l++) {
        model->layers[l] = config->layers[l];
        model->group_of[l] = find_group(model, &config->layers[l]);
        model->state_at[l] = floats;
        floats += recurrence_size(&config->layers[l]);
        model->has_points |= config->layers[l].kind == CELLAR_LAYER_ATTENTION &&
                             config->layers[l].rope.kind == CELLAR_ROPE_MROPE;
    }
    for (uint32_t g = 0; g < model->n_groups; g++)
        for (uint32_t p = 0; p < model->n_pools; p++) {
            model_group *group = &model->groups[g];
            uint32_t n = share_of(config, p);
            if (group->window.kind != CELLAR_WINDOW_NONE)
                n = window_cells(config, &group->window, n);
            group->capacity[p] = group->most[p] = n;
        }
}

void memory_model_open(memory_model *model, uint32_t n_cells)
{
    cellar_layer layer = cellar_layer_init();
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = n_cells;
    memory_model_open_config(model, &config);
}

void memory_model_close(memory_model *model)
{
    for (uint32_t s = 0; s < model->n_sequences; s++) {
        free(model->sequences[s].entries);
        free(model->sequences[s].checkpoints);
    }
    for (uint32_t g = 0; g < model->n_groups; g++)
        free(model->groups[g].slots);
    free(model->sequences);
    free(model->cells);
    memset(model, 0, sizeof *model);
}

/* ---- sequences and entries ------------------------------------------------------------------- */

model_sequence *memory_model_sequence(memory_model *model, cellar_seq name)
{
    for (uint32_t s = 0; s < model->n_sequences; s++)
        if (model->sequences[s].name == name) return &model->sequences[s];
    model->sequences = grow(model->sequences, model->n_sequences, model->n_sequences + 1,
                            sizeof *model->sequences);
    model->sequences[model->n_sequences].name = name;
    return &model->sequences[model->n_sequences++];
}

uint32_t memory_model_pool(const memory_model *model, cellar_seq seq)
{
    if (model->pool_of) return model->pool_of(NULL, seq);
    return (uint32_t)seq % model->n_pools;
}

void memory_model_push(model_sequence *sequence, const model_entry *entry)
{
    if (sequence->n == sequence->capacity) {
        sequence->capacity = sequence->capacity * 2 + 16;
        sequence->entries = grow(sequence->entries, sequence->n, sequence->capacity,
                                 sizeof *sequence->entries);
    }
    sequence->entries[sequence->n++] = *entry;
}

/* By position; what stands at one position keeps its order. */
void memory_model_sort(model_sequence *sequence)
{
    model_entry *e = sequence->entries;
    for (uint32_t i = 1; i < sequence->n; i++) {
        model_entry moved = e[i];
        uint32_t to = i;
        for (; to > 0 && e[to - 1].pos > moved.pos; to--)
            e[to] = e[to - 1];
        e[to] = moved;
    }
}

uint32_t memory_model_new_slot(memory_model *model, uint32_t group, uint32_t cell, uint32_t pool)
{
    model_group *g = &model->groups[group];
    uint32_t s = 0;
    while (s < g->n_slots && g->slots[s].names > 0)
        s++;
    if (s == g->n_slots) {
        uint32_t capacity = g->n_slots * 2 + 16;
        g->slots = grow(g->slots, g->n_slots, capacity, sizeof *g->slots);
        g->n_slots = capacity;
    }
    g->slots[s] = (model_slot){cell, pool, 0, 1, MODEL_REAL_UNKNOWN};
    return s;
}

void memory_model_recount(memory_model *model)
{
    for (uint32_t c = 0; c < model->n_known; c++)
        model->cells[c].names = 0;
    for (uint32_t g = 0; g < model->n_groups; g++)
        for (uint32_t s = 0; s < model->groups[g].n_slots; s++)
            model->groups[g].slots[s].refs = model->groups[g].slots[s].names = 0;
    for (uint32_t s = 0; s < model->n_sequences; s++)
        for (uint32_t i = 0; i < model->sequences[s].n; i++) {
            const model_entry *entry = &model->sequences[s].entries[i];
            model->cells[entry->cell].names++;
            for (uint32_t g = 0; g < model->n_groups; g++) {
                if (entry->slot[g] == MODEL_NO_SLOT) continue;
                model->groups[g].slots[entry->slot[g]].names++;
                model->groups[g].slots[entry->slot[g]].refs += entry->held >> g & 1;
            }
        }
}

/* ---- counting and looking -------------------------------------------------------------------- */

uint32_t memory_model_count_used(const memory_model *model, uint32_t group, uint32_t pool)
{
    uint32_t n = 0;
    const model_group *g = &model->groups[group];
    for (uint32_t s = 0; s < g->n_slots; s++)
        n += g->slots[s].refs > 0 && g->slots[s].pool == pool;
    return n;
}

uint32_t memory_model_count_shared(const memory_model *model, uint32_t group)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < model->groups[group].n_slots; s++)
        n += model->groups[group].slots[s].refs > 1;
    return n;
}

cellar_pos memory_model_pos_min(memory_model *model, cellar_seq seq)
{
    const model_sequence *sequence = memory_model_sequence(model, seq);
    for (uint32_t i = 0; i < sequence->n; i++)
        if (sequence->entries[i].held) return sequence->entries[i].pos;
    return -1;
}

cellar_pos memory_model_pos_max(memory_model *model, cellar_seq seq)
{
    const model_sequence *sequence = memory_model_sequence(model, seq);
    for (uint32_t i = sequence->n; i-- > 0;)
        if (sequence->entries[i].held) return sequence->entries[i].pos;
    return -1;
}

cellar_point memory_model_point(const model_cell *cell, cellar_pos pos)
{
    int64_t move = (int64_t)pos - cell->stored_pos, y = cell->point.y + move,
            x = cell->point.x + move;
    return (cellar_point){y < INT32_MAX ? (cellar_pos)y : INT32_MAX,
                          x < INT32_MAX ? (cellar_pos)x : INT32_MAX};
}

int64_t memory_model_next(const memory_model *model, const model_sequence *sequence)
{
    int64_t largest = -1;
    for (uint32_t i = sequence->n; i-- > 0;) {
        const model_entry *entry = &sequence->entries[i];
        if (entry->pos < sequence->entries[sequence->n - 1].pos) break;
        cellar_point point = memory_model_point(&model->cells[entry->cell], entry->pos);
        if (entry->pos > largest) largest = entry->pos;
        if (point.y > largest) largest = point.y;
        if (point.x > largest) largest = point.x;
    }
    /* A shift may take the points of an image out of the range; nothing can follow then. */
    return largest < INT32_MAX ? largest + 1 : INT32_MAX;
}

const model_entry *memory_model_find(memory_model *model, cellar_seq seq, cellar_pos pos)
{
    const model_sequence *sequence = memory_model_sequence(model, seq);
    for (uint32_t i = 0; i < sequence->n; i++)
        if (sequence->entries[i].pos == pos) return &sequence->entries[i];
    return NULL;
}

uint32_t memory_model_recurrent_group(const memory_model *model)
{
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (model->groups[g].kind == CELLAR_LAYER_RECURRENT) return g;
    return MODEL_NONE;
}

bool memory_model_has_windows(const memory_model *model)
{
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (model->groups[g].window.kind != CELLAR_WINDOW_NONE) return true;
    return false;
}

bool memory_model_plain_range(cellar_pos p0, cellar_pos p1, int64_t *from, int64_t *to)
{
    *from = p0 < 0 ? 0 : p0;
    *to = p1 < 0 ? (int64_t)INT32_MAX + 1 : p1;
    return *from <= *to;
}
