/*
 * support_session_worlds.c: see the header.
 *
 * Heads have 32 elements, the least that all row types can hold. A refusal while filling is as good
 * as any: the kinds differ in what they can do.
 */
#include "support_session_worlds.h"

#include <string.h>

enum { SIZE = 32, CELLS = 48 };

static const uint32_t state_sizes[2] = {5, 3};

static void add_attention(drive *d, uint32_t variant, uint32_t window)
{
    static const cellar_type types[WORLD_VARIANTS] = {CELLAR_F16, CELLAR_F32, CELLAR_Q8_0,
                                                      CELLAR_F16};
    cellar_layer *layer = &d->layers[d->n_layers++];
    *layer = drive_layer(1, 1, SIZE, SIZE);
    layer->k_type = types[variant];
    layer->v_type = variant == 3 ? CELLAR_Q4_0 : types[variant];
    layer->rope.kind = CELLAR_ROPE_NEOX;
    layer->rotate_k = variant == 2;
    if (window) layer->window = (cellar_window){CELLAR_WINDOW_STANDARD, window, 1};
}

static void add_recurrent(drive *d)
{
    cellar_layer *layer = &d->layers[d->n_layers++];
    *layer = cellar_layer_init();
    layer->kind = CELLAR_LAYER_RECURRENT;
    layer->n_states = 2;
    layer->state_sizes = state_sizes;
}

static void add_layers(drive *d, world_kind kind, uint32_t variant)
{
    switch (kind) {
    case WORLD_WINDOW:
        add_attention(d, variant, 0);
        add_attention(d, variant, 8);
        break;
    case WORLD_RECURRENT:
        add_recurrent(d);
        break;
    case WORLD_HYBRID:
        add_recurrent(d);
        add_attention(d, variant, 8);
        add_attention(d, variant, 0);
        break;
    case WORLD_POINTS:
        add_attention(d, variant, 0);
        d->layers[0].rope.kind = CELLAR_ROPE_MROPE;
        for (uint32_t i = 0; i < 4; i++)
            d->layers[0].rope.sections[i] = SIZE / 8;
        break;
    default:
        add_attention(d, variant, 0);
        add_attention(d, variant, 0);
        break;
    }
}

bool world_open(drive *d, world_kind kind, uint32_t variant, const cellar_allocator *allocator)
{
    cellar_config config = cellar_config_init();
    memset(d, 0, sizeof *d);
    d->seed = 3;
    add_layers(d, kind, variant);
    config.n_pools = variant == 1 ? 2 : 1;
    config.n_cells = CELLS * (1 + variant % 3);
    config.n_ubatch = 8;
    config.n_sequences = 6;
    config.max_shifts = 0; /* settling changes rows */
    config.checkpoint_bytes = 4096;
    if (allocator) config.allocator = *allocator;
    return drive_open(d, &config, NULL) == CELLAR_OK;
}

/* A small image between two words. */
static void read_image(drive *d)
{
    enum { SIDE = 2, N = SIDE * SIDE };
    cellar_token tokens[N];
    cellar_pos positions[N];
    cellar_point points[N];
    cellar_sequence_info info;
    if (cellar_get_sequence(d->memory, 0, &info, NULL) != CELLAR_OK) return;
    for (int i = 0; i < N; i++) {
        tokens[i] = 500 + i;
        positions[i] = info.pos_max + 1;
        points[i] = (cellar_point){.y = (int16_t)(i / SIDE), .x = (int16_t)(i % SIDE)};
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = N;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.points = points;
    const cellar_status status = drive_step(d, &batch, NULL, NULL);
    (void)status;
}

void world_fill(drive *d, world_kind kind)
{
    cellar_memory *memory = d->memory;
    cellar_status s[9] = {drive_append(d, 0, 100, 5, NULL), cellar_checkpoint(memory, 0, NULL)};
    if (kind == WORLD_POINTS) read_image(d);
    s[2] = drive_append(d, 0, 105, 6, NULL);
    s[3] = cellar_copy(memory, 0, 3, 0, -1, NULL);
    s[4] = drive_append(d, 3, 200, 4, NULL);
    s[5] = cellar_checkpoint(memory, 3, NULL);
    s[6] = cellar_copy(memory, 0, 40, 0, -1, NULL);
    s[7] = cellar_shift(memory, 40, 6, -1, 7, NULL);
    s[8] = drive_append(d, 1000, 300, 9, NULL);
    (void)s;
    const cellar_status cut = cellar_remove(memory, 1000, 3, 5, NULL);
    (void)cut;
}
