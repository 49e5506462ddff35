/*
 * differential_config.c: choose the memory of a round: which groups, how many pools and cells, how
 * batches are split, what room checkpoints and old states have.
 *
 * Everything follows from the seed and the shape. Pools are small, so that they fill up and windows
 * pass on within a round; sizes that belong to the interesting edges are drawn more often. What the
 * header leaves to the library (how many states there are, what checkpoint_bytes adds) is asked of
 * the new memory and held against what it must be at least.
 */
#include "differential.h"

#include <stdlib.h>
#include <string.h>

const char *const operation_names[OPERATION_KINDS] = {
    "step",     "remove", "copy",   "keep",   "shift",      "shift_context",    "clear",
    "continue", "read",   "divide", "rewind", "checkpoint", "drop_checkpoints",
};

const char *const tally_names[TALLY_KINDS] = {
#define TALLY_TEXT(name, text) text,
    TALLIES(TALLY_TEXT)
#undef TALLY_TEXT
};

const char *const shape_names[SHAPE_KINDS] = {
    "plain", "pools", "window", "windows", "recurrent", "hybrid", "points", "everything",
};

static uint32_t pick_cells(uint64_t *random)
{
    static const uint32_t pools[] = {1,  7,  7,  7,  32, 32, 32,  32,  32,  32,
                                     64, 64, 64, 64, 64, 64, 200, 200, 200, 1000};
    return pools[random_below(random, sizeof pools / sizeof *pools)];
}

static round_shape pick_shape(uint64_t *random)
{
    static const round_shape shapes[] = {
        SHAPE_PLAIN,      SHAPE_PLAIN,      SHAPE_PLAIN,     SHAPE_POOLS,   SHAPE_POOLS,
        SHAPE_WINDOW,     SHAPE_WINDOW,     SHAPE_WINDOW,    SHAPE_WINDOWS, SHAPE_WINDOWS,
        SHAPE_RECURRENT,  SHAPE_HYBRID,     SHAPE_HYBRID,    SHAPE_POINTS,  SHAPE_POINTS,
        SHAPE_EVERYTHING, SHAPE_EVERYTHING, SHAPE_EVERYTHING};
    return shapes[random_below(random, sizeof shapes / sizeof *shapes)];
}

/* ---- layers ---------------------------------------------------------------------------------- */

static cellar_window pick_window(uint64_t *random)
{
    static const cellar_window_kind kinds[] = {CELLAR_WINDOW_STANDARD, CELLAR_WINDOW_STANDARD,
                                               CELLAR_WINDOW_CHUNKED, CELLAR_WINDOW_SYMMETRIC};
    static const uint32_t sizes[] = {1, 2, 3, 4, 4, 8, 8, 16};
    return (cellar_window){.kind = kinds[random_below(random, 4)],
                           .size = sizes[random_below(random, 8)],
                           .n_sinks = random_one_in(random, 3) ? 1 + random_below(random, 3) : 0};
}

/* How layer l rotates, and in what its rows are stored. */
static void pick_rows(diff_round *r, cellar_layer *layer, uint64_t *random)
{
    static const cellar_rope_kind kinds[] = {CELLAR_ROPE_NONE, CELLAR_ROPE_NORMAL,
                                             CELLAR_ROPE_NEOX};
    bool is_mask = layer->k_size == 2;
    layer->rope.kind = kinds[random_below(random, 3)];
    if (r->shape == SHAPE_POINTS) {
        uint32_t first = is_mask ? 1 : random_below(random, 3);
        layer->rope.kind = CELLAR_ROPE_MROPE;
        layer->rope.sections[0] = first;
        layer->rope.sections[1] = is_mask ? 0 : 2 - first;
        return;
    }
    if (is_mask) return;
    layer->rope.n_rot = random_one_in(random, 2) ? 0 : 2;
    layer->rope.yarn_attn = random_one_in(random, 2) ? 1.25 : 1;
    layer->k_type = random_one_in(random, 2) ? CELLAR_F16 : CELLAR_F32;
    layer->v_type = random_one_in(random, 2) ? CELLAR_F16 : CELLAR_F32;
}

static cellar_layer *add_attention(diff_round *r, bool is_mask, bool has_window, uint64_t *random)
{
    cellar_layer *layer = &r->d.layers[r->d.n_layers++];
    *layer = is_mask ? drive_layer(1, 1, 2, 32) : drive_layer(2, 1, 4, 4);
    if (is_mask) r->mask_layer = r->d.n_layers - 1;
    if (has_window) layer->window = pick_window(random);
    pick_rows(r, layer, random);
    return layer;
}

static void add_recurrent(diff_round *r, uint64_t *random)
{
    cellar_layer *layer = &r->d.layers[r->d.n_layers++];
    *layer = cellar_layer_init();
    layer->kind = CELLAR_LAYER_RECURRENT;
    r->state_sizes[0] = 3;
    r->state_sizes[1] = 2;
    layer->n_states = 1 + random_below(random, 2);
    layer->state_sizes = r->state_sizes;
}

static void pick_layers(diff_round *r, uint64_t *random)
{
    bool is_mask_window = random_one_in(random, 2);
    r->mask_layer = UINT32_MAX;
    switch (r->shape) {
    case SHAPE_WINDOW:
        add_attention(r, is_mask_window, true, random);
        add_attention(r, !is_mask_window, false, random);
        if (random_one_in(random, 2)) add_attention(r, false, true, random);
        break;
    case SHAPE_WINDOWS:
        add_attention(r, true, true, random);
        if (random_one_in(random, 2)) add_attention(r, false, true, random);
        break;
    case SHAPE_RECURRENT:
        add_recurrent(r, random);
        if (random_one_in(random, 2)) add_recurrent(r, random);
        break;
    case SHAPE_HYBRID:
        add_attention(r, true, false, random);
        add_recurrent(r, random);
        if (random_one_in(random, 2)) add_recurrent(r, random);
        break;
    case SHAPE_POINTS:
        add_attention(r, true, random_one_in(random, 2), random);
        add_attention(r, false, false, random);
        break;
    case SHAPE_EVERYTHING:
        add_recurrent(r, random);
        add_attention(r, is_mask_window, true, random);
        add_attention(r, !is_mask_window, false, random);
        if (random_one_in(random, 2)) add_attention(r, false, true, random);
        break;
    default:
        add_attention(r, true, false, random);
        add_attention(r, false, false, random);
        break;
    }
    bool is_causal = r->shape == SHAPE_POINTS || !random_one_in(random, 5);
    for (uint32_t l = 0; l < r->d.n_layers; l++)
        r->d.layers[l].is_causal = is_causal;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static uint32_t halves(void *context, cellar_seq seq)
{
    (void)context;
    return seq > 1000;
}

static void pick_pools(diff_round *r, cellar_config *config, uint32_t *shares, uint64_t *random)
{
    bool many = r->shape == SHAPE_POOLS ||
                ((r->shape == SHAPE_EVERYTHING || r->shape == SHAPE_WINDOWS) &&
                 random_one_in(random, 2));
    if (!many) return;
    config->n_pools = r->shape == SHAPE_POOLS ? 2 + random_below(random, 2) : 2;
    if (config->n_cells < 2 * config->n_pools) config->n_cells = 2 * config->n_pools;
    if (config->n_pools == 2 && random_one_in(random, 2)) config->pool_of = halves;
    if (random_one_in(random, 3)) { /* equal shares */
        config->n_cells -= config->n_cells % config->n_pools;
        return;
    }
    uint32_t left = config->n_cells;
    for (uint32_t p = 0; p + 1 < config->n_pools; p++) {
        shares[p] = 1 + random_below(random, left - (config->n_pools - p - 1));
        left -= shares[p];
    }
    shares[config->n_pools - 1] = left;
    config->pool_cells = shares;
}

/* Of one state: each tensor is aligned to 64 bytes. */
static uint64_t state_bytes(const diff_round *r)
{
    uint64_t n = 0;
    for (uint32_t l = 0; l < r->d.n_layers; l++)
        for (uint32_t t = 0; t < r->d.layers[l].n_states; t++)
            n += (r->d.layers[l].state_sizes[t] * sizeof(float) + 63) / 64 * 64;
    return n;
}

static void pick_room(diff_round *r, cellar_config *config, uint64_t *random)
{
    static const cellar_split splits[] = {CELLAR_SPLIT_AUTO, CELLAR_SPLIT_AUTO, CELLAR_SPLIT_EQUAL,
                                          CELLAR_SPLIT_BY_SEQUENCE, CELLAR_SPLIT_SIMPLE};
    bool has_states = state_bytes(r) > 0;
    bool is_plain = r->shape == SHAPE_PLAIN || r->shape == SHAPE_POOLS;
    config->split = splits[random_below(random, has_states ? 4 : 5)];
    config->max_shifts = 0; /* settling rewrites rows: it has tests of its own */
    if (is_plain) return;
    config->n_sequences = 1 + random_below(random, r->n_names);
    config->is_window_full = random_one_in(random, 5);
    if (has_states && random_one_in(random, 2))
        config->rollback_bytes = state_bytes(r) * random_below(random, 4) +
                                 random_below(random, 100);
    if (random_one_in(random, 2)) config->checkpoint_bytes = 64 + random_below(random, 4096);
    if (random_one_in(random, 3)) config->checkpoint_interval = 1 + random_below(random, 12);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Match the library's groups with the model's, and take over what the header leaves open. */
static bool learn_groups(diff_round *r, const cellar_config *config)
{
    if (cellar_count_groups(r->d.memory) != r->model.n_groups)
        return round_fail(r, "%u groups, expected %u", cellar_count_groups(r->d.memory),
                          r->model.n_groups);
    for (uint32_t l = 0; l < r->d.n_layers; l++) {
        uint32_t g = r->model.group_of[l];
        model_group *group = &r->model.groups[g];
        int32_t real = cellar_group_of_layer(r->d.memory, l);
        if (real < 0 || real >= DRIVE_GROUPS || (group->real >= 0 && group->real != real))
            return round_fail(r, "layer %u is in group %d", l, real);
        group->real = real;
        r->model_group[real] = g;
    }
    for (uint32_t g = 0; g < r->model.n_groups; g++) {
        model_group *group = &r->model.groups[g];
        cellar_group_info info;
        if (cellar_get_group(r->d.memory, (uint32_t)group->real, &info, NULL) != CELLAR_OK)
            return round_fail(r, "group %d cannot be described", group->real);
        if (info.kind != group->kind || info.window.kind != group->window.kind || info.n_used != 0)
            return round_fail(r, "group %d is of another kind than its layers", group->real);
        uint32_t least = 0;
        for (uint32_t p = 0; p < r->model.n_pools; p++)
            least += group->capacity[p];
        if (group->kind == CELLAR_LAYER_RECURRENT) {
            group->n_kept = 1 + (uint32_t)(config->rollback_bytes / state_bytes(r));
            least = config->n_sequences * 2 * group->n_kept;
            for (uint32_t p = 0; p < MODEL_POOLS; p++)
                group->capacity[p] = group->most[p] = p == 0 ? info.n_free : 0;
        }
        bool may_be_more = config->checkpoint_bytes > 0 &&
                           (group->kind == CELLAR_LAYER_RECURRENT ||
                            group->window.kind != CELLAR_WINDOW_NONE);
        if (info.n_free < least || (info.n_free > least && !may_be_more))
            return round_fail(r, "group %d has room for %u, expected %s%u", group->real,
                              info.n_free, may_be_more ? "at least " : "", least);
        for (uint32_t p = 0; p < r->model.n_pools && may_be_more; p++)
            if (group->kind == CELLAR_LAYER_ATTENTION)
                group->most[p] = group->capacity[p] + info.n_free - least;
        r->n_real[g] = info.n_cells;
        r->slot_of_real[g] = drive_grab(info.n_cells, sizeof **r->slot_of_real);
        memset(r->slot_of_real[g], 0xff, info.n_cells * sizeof **r->slot_of_real);
    }
    return true;
}

static void log_config(diff_round *r, const cellar_config *config)
{
    round_log(r,
              "%s: %u cells in %u pools, %u sequences (%u side by side), micro-batches of %u, "
              "split %d, %s",
              shape_names[r->shape], config->n_cells, config->n_pools, r->n_names,
              config->n_sequences, config->n_ubatch, (int)config->split,
              r->d.layers[0].is_causal ? "causal" : "not causal");
    for (uint32_t p = 0; p < config->n_pools && config->pool_cells; p++)
        round_log(r, "pool %u: %u cells", p, config->pool_cells[p]);
    for (uint32_t l = 0; l < r->d.n_layers; l++) {
        const cellar_layer *layer = &r->d.layers[l];
        round_log(r, "layer %u: %s, window kind %d size %u sinks %u", l,
                  layer->kind == CELLAR_LAYER_RECURRENT ? "recurrent" : "attention",
                  (int)layer->window.kind, layer->window.size, layer->window.n_sinks);
    }
    round_log(r, "rollback %llu bytes, checkpoints %llu bytes every %u, %s windows",
              (unsigned long long)config->rollback_bytes,
              (unsigned long long)config->checkpoint_bytes, config->checkpoint_interval,
              config->is_window_full ? "full" : "small");
}

bool round_open(diff_round *r)
{
    static const cellar_seq names[ROUND_SEQUENCES] = {0, 1, 7, INT32_MAX, 1000000, 2, 300, 65536};
    uint64_t random = r->options.seed;
    uint32_t shares[MODEL_POOLS] = {0};
    cellar_config config = cellar_config_init();
    round_shape drawn = pick_shape(&random);
    r->shape = r->options.shape == SHAPE_ANY ? drawn : r->options.shape;
    config.n_cells = pick_cells(&random);
    config.n_ubatch = 1 + random_below(&random, 8);
    config.cpu_mask = random_one_in(&random, 4) ? CELLAR_CPU_SCALAR : CELLAR_CPU_ALL;
    r->n_names = 1 + random_below(&random, ROUND_SEQUENCES);
    if (r->options.n_cells) config.n_cells = r->options.n_cells;
    if (r->options.n_sequences) r->n_names = r->options.n_sequences;
    memcpy(r->names, names, sizeof names);
    pick_layers(r, &random);
    pick_pools(r, &config, shares, &random);
    pick_room(r, &config, &random);
    r->split = config.split;
    r->checkpoint_bytes = config.checkpoint_bytes;
    r->d.seed = random;
    config.n_layers = r->d.n_layers;
    config.layers = r->d.layers;
    memory_model_open_config(&r->model, &config);
    log_config(r, &config);
    cellar_error error = {0};
    if (drive_open(&r->d, &config, &error) != CELLAR_OK)
        return round_fail(r, "cellar_create: %s", error.message);
    r->before.names = r->after.names = r->names;
    r->before.n_names = r->after.n_names = r->n_names;
    return learn_groups(r, &config) && drive_snapshot_take(&r->before, r->d.memory);
}
