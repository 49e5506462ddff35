/*
 * support_any_memory.c: configurations from bytes. See support_any_memory.h.
 *
 * Most choices lead to something allowed: refusals of configurations have tests of their own, and a
 * refused memory plays no operations. Sizes are small, so that thousands of memories a minute can live.
 */
#define _POSIX_C_SOURCE 200809L

#include "support_any_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the allocator and the store ------------------------------------------------------------- */

static bool goes_well(any_memory *m, int *left)
{
    if (*left == 0) m->n_failures++;
    if (*left == 0) return false;
    if (*left > 0) --*left;
    return true;
}

/* Sizes stand before the block, far enough for any alignment that is asked for. */
enum { HEAD = 64 };

static void *give(void *context, size_t size, size_t align)
{
    any_memory *m = context;
    DEMAND(size > 0 && align <= HEAD);
    m->n_allocations++;
    if (!goes_well(m, &m->allocations_left)) return NULL;
    DEMAND(size <= ANY_BYTES && m->bytes + size <= ANY_BYTES);
    /* not rounded up, so that a sanitizer sees the exact end */
    void *whole;
    if (posix_memalign(&whole, HEAD, HEAD + size) != 0) return NULL;
    *(size_t *)whole = size;
    m->bytes += size;
    return memset((char *)whole + HEAD, 0xff, size);
}

static void take_back(void *context, void *block, size_t size)
{
    any_memory *m = context;
    DEMAND(block != NULL);
    char *whole = (char *)block - HEAD;
    DEMAND(*(size_t *)(void *)whole == size);
    m->bytes -= size;
    memset(block, 0xff, size);
    free(whole);
}

static void *give_more(void *context, void *block, size_t old_size, size_t new_size, size_t align)
{
    void *moved = give(context, new_size, align);
    if (!moved) return NULL;
    memcpy(moved, block, old_size < new_size ? old_size : new_size);
    take_back(context, block, old_size);
    return moved;
}

static void *store_allocate(void *context, size_t size)
{
    return give(context, size, HEAD);
}

static void *store_address(void *context, void *buffer)
{
    (void)context;
    return buffer;
}

/* Is [offset, offset + size) inside the buffer? */
static bool is_inside(const void *buffer, size_t offset, size_t size)
{
    size_t whole = *(const size_t *)(const void *)((const char *)buffer - HEAD);
    return offset <= whole && size <= whole - offset;
}

static bool store_read(void *context, void *buffer, size_t offset, void *to, size_t size)
{
    any_memory *m = context;
    DEMAND(is_inside(buffer, offset, size));
    if (!goes_well(m, &m->store_calls_left)) return false;
    memcpy(to, (char *)buffer + offset, size);
    return true;
}

static bool store_write(void *context, void *buffer, size_t offset, const void *from, size_t size)
{
    any_memory *m = context;
    DEMAND(is_inside(buffer, offset, size));
    if (!goes_well(m, &m->store_calls_left)) return false;
    memcpy((char *)buffer + offset, from, size);
    return true;
}

static bool store_copy(void *context, void *to, size_t to_offset, void *from, size_t from_offset,
                       size_t size)
{
    any_memory *m = context;
    DEMAND(is_inside(to, to_offset, size) && is_inside(from, from_offset, size));
    if (!goes_well(m, &m->store_calls_left)) return false;
    memmove((char *)to + to_offset, (char *)from + from_offset, size);
    return true;
}

static bool store_clear(void *context, void *buffer, size_t offset, size_t size)
{
    any_memory *m = context;
    DEMAND(is_inside(buffer, offset, size));
    if (!goes_well(m, &m->store_calls_left)) return false;
    memset((char *)buffer + offset, 0, size);
    return true;
}

/* Workers, one after the other, the last first. */
static void run_parts(void *context, cellar_task task, void *argument)
{
    uint32_t n = *(const uint32_t *)context;
    for (uint32_t part = n; part-- > 0;)
        task(argument, part, n);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Only M-RoPE may have sections. */
static void choose_sections(cellar_rope *rope, uint32_t n_rot)
{
    memset(rope->sections, 0, sizeof rope->sections);
    if (rope->kind != CELLAR_ROPE_MROPE) return;
    rope->sections[0] = n_rot / 4;
    rope->sections[3] = n_rot / 16;
    rope->sections[1] = n_rot / 2 - n_rot / 4 - n_rot / 16;
}

static void choose_rope(any_memory *m, input *in, cellar_layer *layer)
{
    static const float factors[ANY_HEAD / 2] = {1, 2, 0.5f, 4,        1, 1, 3, 8,
                                                1, 2, 1,    INFINITY, 1, 1, 1, 9};
    cellar_rope *rope = &layer->rope;
    rope->kind = (cellar_rope_kind)input_below(in, 3);
    if (m->is_2d) rope->kind = CELLAR_ROPE_MROPE;
    if (input_one_in(in, 4)) rope->n_rot = layer->k_size / 4 * 2;
    uint32_t n_rot = rope->n_rot ? rope->n_rot : layer->k_size;
    if (input_one_in(in, 4)) rope->first = layer->k_size - n_rot;
    choose_sections(rope, n_rot);
    if (input_one_in(in, 4)) rope->factors = factors;
    if (!input_one_in(in, 4)) return;
    rope->scale = 0.25;
    rope->yarn_ext = 1;
    rope->yarn_context = 64;
}

static void choose_types(input *in, cellar_layer *layer)
{
    static const cellar_type types[] = {CELLAR_F32,  CELLAR_F16,  CELLAR_BF16,
                                        CELLAR_Q8_0, CELLAR_Q5_1, CELLAR_Q5_0,
                                        CELLAR_Q4_1, CELLAR_Q4_0, CELLAR_IQ4_NL};
    layer->k_type = types[input_below(in, layer->k_size % 32 ? 3 : 9)];
    layer->v_type = types[input_below(in, layer->v_size % 32 ? 3 : 9)];
}

static void choose_features(input *in, cellar_layer *layer)
{
    static const float sinks[ANY_HEADS] = {0.5f, -1, 2, 0};
    static const float bias[ANY_BUCKETS * ANY_HEADS] = {1, -1, 0.5f, 0.25f};
    uint8_t bits = input_byte(in);
    if (bits & 1) layer->softcap = 20;
    if (bits & 2) layer->alibi_max_bias = 8;
    if (bits & 4) layer->sinks = sinks;
    if (bits & 8) layer->buckets = (cellar_buckets){ANY_BUCKETS, 32, bits & 128, bias};
    layer->rotate_k = bits & 16;
    layer->rotate_v = bits & 32;
    if (bits & 64) layer->scale = 0.5f;
    layer->is_causal = !input_one_in(in, 6);
    if (!input_one_in(in, 6)) return;
    layer->v_in_k = true;
    layer->rotate_k = layer->rotate_v = false;
    layer->k_size = layer->k_size < 8 ? 8 : layer->k_size;
    layer->v_size = layer->rope.first = layer->k_size / 2;
    layer->rope.n_rot = layer->k_size / 2;
    choose_sections(&layer->rope, layer->rope.n_rot);
    if (layer->k_size != 32) layer->k_type = CELLAR_F16;
}

static void choose_attention(any_memory *m, input *in, cellar_layer *layer)
{
    static const uint32_t sizes[] = {32, 4, 8, 16, 32, 32, 20, 6};
    layer->n_kv_heads = 1 + input_below(in, 2);
    layer->n_heads = layer->n_kv_heads * (1 + input_below(in, 2));
    layer->k_size = sizes[input_below(in, 8)];
    layer->v_size = sizes[input_below(in, 8)];
    choose_types(in, layer);
    choose_rope(m, in, layer);
    choose_features(in, layer);
    if (input_one_in(in, 3)) layer->store = &m->store;
}

static void choose_window(input *in, cellar_layer *layer)
{
    layer->window.kind = (cellar_window_kind)(1 + input_below(in, 3));
    layer->window.size = 1 + input_below(in, 20);
    if (input_one_in(in, 3)) layer->window.n_sinks = input_below(in, 5);
}

static void choose_recurrent(any_memory *m, input *in, cellar_layer *layer)
{
    static const uint32_t sizes[] = {5, 16, 24};
    layer->kind = CELLAR_LAYER_RECURRENT;
    layer->n_states = 1 + input_below(in, 3);
    layer->state_sizes = sizes;
    m->has_states = true;
}

/* A layer that reads the rows of the one before it, where that has some. */
static void choose_reader(any_memory *m, uint32_t i)
{
    const cellar_layer *source = i > 0 ? &m->layers[i - 1] : NULL;
    if (!source || source->kind != CELLAR_LAYER_ATTENTION) return;
    m->layers[i] = *source;
    if (source->reads_layer < 0) m->layers[i].reads_layer = (int32_t)i - 1;
}

static void choose_layer(any_memory *m, input *in, uint32_t i)
{
    cellar_layer *layer = &m->layers[i];
    *layer = cellar_layer_init();
    uint32_t kind = input_below(in, 10);
    if (kind == 9) layer->kind = CELLAR_LAYER_NONE;
    if (kind == 8) choose_recurrent(m, in, layer);
    if (kind < 7) choose_attention(m, in, layer);
    if (kind >= 3 && kind < 7) choose_window(in, layer);
    if (kind == 7) choose_attention(m, in, layer);
    if (kind == 7) choose_reader(m, i);
}

/* All layers of a group are external, or none. */
static void choose_externals(any_memory *m, input *in)
{
    uint8_t bits = input_byte(in);
    if (bits % 4 != 3) return;
    for (uint32_t i = 0; i < m->config.n_layers; i++) {
        cellar_layer *layer = &m->layers[i];
        uint32_t bit = layer->kind == CELLAR_LAYER_RECURRENT ? 4u
                                                             : 2u + (uint32_t)layer->window.kind;
        layer->is_external = bits >> (bit + 2) & 1;
        if (layer->is_external) layer->store = NULL;
    }
}

/* ---- the rest of the configuration ----------------------------------------------------------- */

static uint32_t some_pool(void *context, cellar_seq seq)
{
    return ((uint32_t)seq / 2 + 1) % *(const uint32_t *)context;
}

static void choose_pools(any_memory *m, input *in)
{
    cellar_config *config = &m->config;
    config->n_pools = 1 + input_below(in, ANY_POOLS);
    if (input_one_in(in, 3)) {
        config->pool_of = some_pool;
        config->pool_context = &config->n_pools;
    }
    if (!input_one_in(in, 3) || config->n_cells < 2 * ANY_POOLS) return;
    uint32_t left = config->n_cells;
    for (uint32_t p = 0; p < config->n_pools; p++) {
        m->pool_cells[p] = p + 1 == config->n_pools ? left : left / 2;
        left -= m->pool_cells[p];
    }
    config->pool_cells = m->pool_cells;
}

static void choose_policies(any_memory *m, input *in)
{
    static const uint32_t shifts[] = {256, 0, 1, 2, 5};
    cellar_config *config = &m->config;
    config->split = (cellar_split)input_below(in, 4);
    if (m->has_states && config->split == CELLAR_SPLIT_SIMPLE) config->split = CELLAR_SPLIT_EQUAL;
    config->n_sequences = 1 + input_below(in, 6);
    config->is_window_full = input_one_in(in, 4);
    config->rollback_bytes = input_below(in, 4) * 400;
    config->checkpoint_bytes = input_below(in, 4) * 4000;
    if (input_one_in(in, 2)) config->checkpoint_interval = 1 + input_below(in, 9);
    config->max_shifts = shifts[input_below(in, 5)];
    config->is_contiguous = input_one_in(in, 6);
    config->compaction_threshold = (float)input_below(in, 3) / 4;
    config->workers.n = input_below(in, 4);
    config->workers.run = run_parts;
    config->workers.context = &config->workers.n;
    if (input_one_in(in, 4)) config->cpu_mask = CELLAR_CPU_SCALAR;
}

/* What no layer may say, or only some; never more than the arrays here have room for. */
static void choose_layer_mistake(input *in, cellar_layer *layer)
{
    static const float numbers[] = {-1, NAN, INFINITY, 1e30f};
    float number = numbers[input_below(in, 4)];
    uint8_t byte = input_byte(in);
    switch (input_below(in, 20)) {
    case 0:
        layer->struct_size--;
        break;
    case 1:
        layer->reads_layer = (int32_t)byte - 2;
        break;
    case 2:
        layer->is_external = !layer->is_external;
        break;
    case 3:
        layer->k_size = byte % (ANY_HEAD + 1);
        break;
    case 4:
        layer->scale = number;
        break;
    case 5:
        layer->softcap = number;
        break;
    case 6:
        layer->alibi_max_bias = number;
        break;
    case 7:
        layer->rope.base = (double)number;
        break;
    case 8:
        layer->rope.scale = (double)number;
        break;
    case 9:
        layer->rope.yarn_ext = (double)number;
        break;
    case 10:
        layer->rope.sections[byte % 4] = byte;
        break;
    case 11:
        layer->rope.kind = (cellar_rope_kind)byte;
        break;
    case 12:
        layer->rope.first = byte;
        break;
    case 13:
        layer->window.kind = (cellar_window_kind)byte;
        break;
    case 14:
        layer->window.size = byte % 2 ? 0 : UINT32_MAX;
        break;
    case 15:
        layer->v_in_k = layer->rotate_k = true;
        break;
    case 16:
        layer->buckets.n = byte % (ANY_BUCKETS + 1);
        break;
    case 17:
        layer->k_type = (cellar_type)byte;
        break;
    case 18:
        layer->n_states = byte % 4;
        break;
    default:
        layer->n_heads = byte % (ANY_HEADS + 1);
        break;
    }
}

static void choose_mistake(any_memory *m, input *in)
{
    cellar_config *config = &m->config;
    uint32_t which = input_below(in, 12);
    if (which == 0) config->n_pools = config->n_cells + 1;
    if (which == 1) config->n_sequences = 0;
    if (which == 2) config->n_ubatch = 0;
    if (which == 3) config->split = CELLAR_SPLIT_SIMPLE;
    if (which == 4) config->compaction_threshold = -1;
    if (which == 5) config->struct_size--;
    if (which == 6) config->workers.run = NULL;
    if (which == 7) config->n_cells = 0;
    if (which >= 8) choose_layer_mistake(in, &m->layers[input_below(in, config->n_layers)]);
}

static void note_kinds(any_memory *m)
{
    m->has_states = false;
    for (uint32_t i = 0; i < m->config.n_layers; i++) {
        const cellar_layer *layer = &m->layers[i];
        m->has_states = m->has_states || layer->kind == CELLAR_LAYER_RECURRENT;
        m->has_window = m->has_window || layer->window.kind != CELLAR_WINDOW_NONE;
        m->has_external = m->has_external || layer->is_external;
    }
}

static void choose(any_memory *m, input *in)
{
    cellar_config *config = &m->config;
    *config = cellar_config_init();
    m->store = (cellar_row_store){store_allocate, take_back,  NULL,        store_read,
                                  store_write,    store_copy, store_clear, m};
    uint8_t bits = input_byte(in);
    m->is_2d = bits % 4 == 3;
    if (bits & 16) m->store.address = store_address;
    config->n_layers = 1 + (bits >> 5) % (ANY_LAYERS - 1);
    config->layers = m->layers;
    config->n_cells = 1 + input_below(in, 200);
    config->n_ubatch = 1 + input_below(in, ANY_UBATCH);
    for (uint32_t i = 0; i < config->n_layers; i++)
        choose_layer(m, in, i);
    choose_externals(m, in);
    choose_pools(m, in);
    choose_policies(m, in);
    config->allocator = (cellar_allocator){give, bits & 8 ? give_more : NULL, take_back, m};
    if (input_one_in(in, 32)) choose_mistake(m, in);
    note_kinds(m);
}

/* The plan adds up to what creating takes, and a budget below it is refused. */
static bool add_bytes(void *context, const cellar_bytes *bytes)
{
    *(uint64_t *)context += bytes->bytes;
    return true;
}

bool any_open(any_memory *m, input *in)
{
    memset(m, 0, sizeof *m);
    m->allocations_left = m->store_calls_left = -1;
    choose(m, in);
    cellar_sizes sizes;
    uint64_t planned = 0;
    cellar_status measured = cellar_measure(&m->config, &sizes, NULL);
    DEMAND(cellar_visit_plan(&m->config, add_bytes, &planned, NULL) == measured);
    if (measured == CELLAR_OK) DEMAND(planned == sizes.total);
    bool is_poor = input_one_in(in, 6);
    int32_t slack = (int32_t)input_byte(in) * 32 - 64;
    if (measured == CELLAR_OK && is_poor)
        m->config.budget_bytes = (uint64_t)((int64_t)sizes.total + slack);
    uint8_t fails = input_byte(in);
    if (fails % 8 == 7) m->allocations_left = fails / 8 % 16;
    cellar_status status = cellar_create(&m->config, &m->memory, NULL);
    if (m->n_failures > 0) DEMAND(status == CELLAR_NO_MEMORY);
    if (measured != CELLAR_OK || (is_poor && slack < 0)) DEMAND(status == CELLAR_INVALID);
    if (m->n_failures == 0 && measured == CELLAR_OK && !(is_poor && slack < 0))
        DEMAND(status == CELLAR_OK);
    m->allocations_left = -1;
    if (status == CELLAR_OK) DEMAND(m->bytes == sizes.total);
    if (status != CELLAR_OK) DEMAND(m->memory == NULL && m->bytes == 0);
    return status == CELLAR_OK;
}

void any_close(any_memory *m)
{
    cellar_destroy(m->memory);
    m->memory = NULL;
    DEMAND(m->bytes == 0);
}
