/*
 * unit_breakdown.c: the items of a memory's bytes add up to what the other calls say.
 *
 * For memories of every kind: kind by kind, the plan's items are cellar_measure's sizes, a new
 * memory's are the plan's, and a used memory's are those of cellar_stats.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_small_memory.h"

enum { MOST_ITEMS = 128 };

typedef struct items {
    cellar_bytes item[MOST_ITEMS];
    uint32_t n, most;
    cellar_sizes sizes;
} items;

static bool take_item(void *context, const cellar_bytes *item)
{
    items *all = context;
    assert_true(all->n < MOST_ITEMS);
    assert_true(item->bytes > 0);
    assert_non_null(item->what);
    assert_in_range(item->kind, 0, CELLAR_BYTES_KINDS - 1);
    all->item[all->n++] = *item;
    all->sizes.bytes[item->kind] += item->bytes;
    all->sizes.total += item->bytes;
    return all->n < all->most;
}

static void assert_same_sizes(const cellar_sizes *a, const cellar_sizes *b)
{
    for (int kind = 0; kind < CELLAR_BYTES_KINDS; kind++)
        if (a->bytes[kind] != b->bytes[kind])
            fail_msg("kind %d: %llu bytes in items, %llu in all", kind,
                     (unsigned long long)a->bytes[kind], (unsigned long long)b->bytes[kind]);
    assert_int_equal(a->total, b->total);
}

static items plan_of(const small_memory *small)
{
    items all = {.most = MOST_ITEMS};
    cellar_error error = {0};
    if (cellar_visit_plan(&small->config, take_item, &all, &error) != CELLAR_OK)
        fail_msg("%s", error.message);
    return all;
}

static items bytes_of(const small_memory *small)
{
    items all = {.most = MOST_ITEMS};
    assert_int_equal(cellar_visit_bytes(small->memory, take_item, &all, NULL), CELLAR_OK);
    return all;
}

static bool is_same_item(const cellar_bytes *a, const cellar_bytes *b)
{
    return a->kind == b->kind && a->group == b->group && a->layer == b->layer &&
           !strcmp(a->what, b->what) && a->type == b->type && a->is_callers == b->is_callers &&
           a->bytes == b->bytes;
}

/* Plan, measure, create and statistics agree; then again after some use. */
static void check_agreement(small_memory *small)
{
    cellar_sizes measured;
    cellar_statistics statistics;
    items planned = plan_of(small);
    assert_int_equal(cellar_measure(&small->config, &measured, NULL), CELLAR_OK);
    assert_same_sizes(&planned.sizes, &measured);
    small_open(small);
    items made = bytes_of(small);
    assert_int_equal(cellar_stats(small->memory, &statistics, NULL), CELLAR_OK);
    assert_same_sizes(&statistics.sizes, &measured);
    assert_int_equal(made.n, planned.n);
    for (uint32_t i = 0; i < made.n; i++)
        if (!is_same_item(&made.item[i], &planned.item[i]))
            fail_msg("item %u is \"%s\" of %llu bytes, planned was \"%s\" of %llu", i,
                     made.item[i].what, (unsigned long long)made.item[i].bytes,
                     planned.item[i].what, (unsigned long long)planned.item[i].bytes);
    small_read(small, 1, 12);
    small_read(small, 2, 5);
    items used = bytes_of(small);
    assert_int_equal(cellar_stats(small->memory, &statistics, NULL), CELLAR_OK);
    assert_same_sizes(&used.sizes, &statistics.sizes);
    assert_true(used.sizes.bytes[CELLAR_BYTES_RUNS] > 0);
    assert_true(used.sizes.bytes[CELLAR_BYTES_STEP] > 0);
    small_close(small);
}

/* The item of a layer by its name; NULL: none. */
static const cellar_bytes *find(const items *all, int32_t layer, const char *what)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->item[i].layer == layer && !strcmp(all->item[i].what, what)) return &all->item[i];
    return NULL;
}

/* ---- kinds of memories ----------------------------------------------------------------------- */

static void a_plain_memory_adds_up(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 100);
    small_add_attention(&small, 0);
    small_add_attention(&small, 0);
    items planned = plan_of(&small);
    /* 100 cells are 4 blocks of 32; 32 f16 numbers a row; nothing is rounded up here. */
    assert_int_equal(find(&planned, 0, "K")->bytes % (4 * 32 * 32 * 2), 0);
    assert_int_equal(find(&planned, 0, "K")->bytes, find(&planned, 1, "V")->bytes);
    assert_int_equal(find(&planned, 0, "K")->group, 0);
    assert_int_equal(find(&planned, 0, "K")->type, CELLAR_F16);
    assert_false(find(&planned, 0, "K")->is_callers);
    assert_int_equal(find(&planned, -1, "object")->group, -1);
    assert_int_equal(find(&planned, -1, "cells")->group, 0);
    check_agreement(&small);
}

static void row_types_show_and_cost_what_they_are(void **state)
{
    static const cellar_type types[] = {CELLAR_F32,  CELLAR_F16,  CELLAR_BF16,
                                        CELLAR_Q8_0, CELLAR_Q5_1, CELLAR_Q5_0,
                                        CELLAR_Q4_1, CELLAR_Q4_0, CELLAR_IQ4_NL};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        small_memory small;
        small_init(&small, 64);
        cellar_layer *layer = small_add_attention(&small, 0);
        layer->k_type = types[i];
        layer->v_type = CELLAR_F32;
        items planned = plan_of(&small);
        const cellar_bytes *k = find(&planned, 0, "K"), *v = find(&planned, 0, "V");
        assert_int_equal(k->type, types[i]);
        assert_int_equal(v->type, CELLAR_F32);
        /* Both have the same rows, so their sizes are as those of one row. */
        assert_int_equal(k->bytes * cellar_type_bytes(CELLAR_F32, SMALL_HEAD),
                         v->bytes * cellar_type_bytes(types[i], SMALL_HEAD));
        check_agreement(&small);
    }
}

static void windows_states_and_silent_layers_add_up(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 300);
    small_add_attention(&small, 0);
    small_add_attention(&small, 16);
    small_add_recurrent(&small);
    small_add_attention(&small, 16)->v_in_k = true;
    small_add_attention(&small, 0)->kind = CELLAR_LAYER_NONE;
    small_add_attention(&small, 0)->reads_layer = 0;
    small.layers[3].rope.kind = CELLAR_ROPE_NONE;
    small.config.n_sequences = 4;
    small.config.rollback_bytes = 1000;
    small.config.checkpoint_bytes = 20000;
    items planned = plan_of(&small);
    assert_int_equal(find(&planned, 1, "K")->group, 1);
    assert_int_equal(find(&planned, 2, "state")->group, 2);
    assert_int_equal(find(&planned, 2, "state")->kind, CELLAR_BYTES_STATES);
    assert_non_null(find(&planned, 3, "K"));
    assert_null(find(&planned, 3, "V")); /* it is part of K */
    for (uint32_t i = 0; i < planned.n; i++)
        assert_true(planned.item[i].layer < 4); /* silent, or reading another's rows */
    check_agreement(&small);
}

/* Tensors of 16 and 24 floats: 64 and 96 bytes, which take 64 and 128. The engine's count alike. */
static void states_are_counted_with_their_padding(void **state)
{
    const struct {
        uint64_t rollback_bytes;
        uint32_t n_kept; /* beside the last one */
    } cases[] = {{0, 0}, {160, 0}, {191, 0}, {192, 1}, {383, 1}, {384, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int is_external = 0; is_external < 2; is_external++) {
            small_memory small;
            cellar_group_info info;
            small_init(&small, 64);
            small_add_recurrent(&small)->is_external = is_external;
            small.config.n_sequences = 3;
            small.config.rollback_bytes = cases[i].rollback_bytes;
            small_open(&small);
            assert_int_equal(cellar_get_group(small.memory, 0, &info, NULL), CELLAR_OK);
            assert_int_equal(info.row_bytes, is_external ? 0 : 160);
            assert_int_equal(info.n_free, 3 * 2 * (1 + cases[i].n_kept));
            small_close(&small);
        }
    }
}

/* What checkpoint_bytes adds does not depend on who keeps the rows; the bytes that are asked for do. */
static void an_engines_rows_make_room_for_checkpoints(void **state)
{
    uint32_t n_cells[2], n_states[2];
    uint64_t rows[2];
    (void)state;
    for (int is_external = 0; is_external < 2; is_external++) {
        small_memory small;
        cellar_group_info info;
        small_init(&small, 4096);
        small_add_attention(&small, 8)->is_external = is_external;
        small_add_recurrent(&small)->is_external = is_external;
        small.config.checkpoint_bytes = 65536;
        small_open(&small);
        assert_int_equal(cellar_get_group(small.memory, 0, &info, NULL), CELLAR_OK);
        n_cells[is_external] = info.n_free;
        assert_int_equal(cellar_get_group(small.memory, 1, &info, NULL), CELLAR_OK);
        n_states[is_external] = info.n_free;
        cellar_statistics stats;
        assert_int_equal(cellar_stats(small.memory, &stats, NULL), CELLAR_OK);
        rows[is_external] = stats.sizes.bytes[CELLAR_BYTES_ROWS];
        small_close(&small);
    }
    assert_int_equal(n_cells[0], n_cells[1]);
    assert_int_equal(n_states[0], n_states[1]);
    assert_true(n_cells[1] > 8 + 8 && n_states[1] > 2); /* more than without */
    assert_true(rows[1] < rows[0]);
}

/* As large as a configuration allows, and many of them: no byte of it is asked for. */
static void rows_of_an_engine_have_no_limit(void **state)
{
    enum { LAYERS = 4096 };
    static cellar_layer layers[LAYERS];
    cellar_sizes sizes;
    (void)state;
    for (uint32_t i = 0; i < LAYERS; i++) {
        layers[i] = cellar_layer_init();
        layers[i].n_heads = layers[i].n_kv_heads = layers[i].k_size = layers[i].v_size = 65536;
        layers[i].k_type = layers[i].v_type = CELLAR_F32;
        layers[i].window = (cellar_window){CELLAR_WINDOW_STANDARD, 1u << 30, 0};
        layers[i].is_external = true;
    }
    cellar_config config = cellar_config_init();
    config.n_layers = LAYERS;
    config.layers = layers;
    config.n_cells = 1u << 30;
    config.n_ubatch = 1;
    config.checkpoint_bytes = config.rollback_bytes = UINT64_MAX;
    assert_int_equal(cellar_measure(&config, &sizes, NULL), CELLAR_OK);
    assert_true(sizes.bytes[CELLAR_BYTES_ROWS] < 1u << 30);
}

static void pools_and_points_add_up(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 200);
    cellar_layer *layer = small_add_attention(&small, 0);
    layer->rope.kind = CELLAR_ROPE_MROPE;
    layer->rope.sections[0] = layer->rope.sections[1] = 8;
    small_add_attention(&small, 8);
    small.config.n_pools = 3;
    check_agreement(&small);
}

/* ---- stores of the caller -------------------------------------------------------------------- */

static void *store_allocate(void *context, size_t size)
{
    *(uint64_t *)context += size;
    return aligned_alloc(64, (size + 63) / 64 * 64);
}

static void store_release(void *context, void *buffer, size_t size)
{
    *(uint64_t *)context -= size;
    free(buffer);
}

static void *store_address(void *context, void *buffer)
{
    (void)context;
    return buffer;
}

static bool store_read(void *context, void *buffer, size_t offset, void *to, size_t size)
{
    (void)context;
    memcpy(to, (unsigned char *)buffer + offset, size);
    return true;
}

static bool store_write(void *context, void *buffer, size_t offset, const void *from, size_t size)
{
    (void)context;
    memcpy((unsigned char *)buffer + offset, from, size);
    return true;
}

static bool store_copy(void *context, void *to, size_t to_offset, void *from, size_t from_offset,
                       size_t size)
{
    (void)context;
    memmove((unsigned char *)to + to_offset, (unsigned char *)from + from_offset, size);
    return true;
}

static bool store_clear(void *context, void *buffer, size_t offset, size_t size)
{
    (void)context;
    memset((unsigned char *)buffer + offset, 0, size);
    return true;
}

static void rows_in_a_callers_store_are_counted_apart(void **state)
{
    small_memory small;
    uint64_t in_store = 0;
    cellar_row_store store = {.allocate = store_allocate,
                              .release = store_release,
                              .address = store_address,
                              .read = store_read,
                              .write = store_write,
                              .copy = store_copy,
                              .clear = store_clear,
                              .context = &in_store};
    (void)state;
    small_init(&small, 128);
    small_add_attention(&small, 0);
    small_add_attention(&small, 0)->store = &store;
    items planned = plan_of(&small);
    uint64_t callers = 0;
    for (uint32_t i = 0; i < planned.n; i++)
        if (planned.item[i].is_callers) callers += planned.item[i].bytes;
    assert_int_equal(callers, find(&planned, 1, "K")->bytes + find(&planned, 1, "V")->bytes);
    small_open(&small);
    assert_int_equal(in_store, callers);
    cellar_destroy(small.memory);
    assert_int_equal(in_store, 0);
    check_agreement(&small);
}

static void rows_of_the_engine_take_nothing(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 128);
    small_add_attention(&small, 0)->is_external = true;
    items planned = plan_of(&small);
    assert_null(find(&planned, 0, "K"));
    check_agreement(&small);
}

static void a_grown_memory_adds_up(void **state)
{
    small_memory small;
    cellar_statistics statistics;
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 0);
    small_open(&small);
    small_read(&small, 1, 40);
    assert_int_equal(cellar_resize(small.memory, 0, 5000, NULL), CELLAR_OK);
    items grown = bytes_of(&small);
    assert_int_equal(cellar_stats(small.memory, &statistics, NULL), CELLAR_OK);
    assert_same_sizes(&grown.sizes, &statistics.sizes);
    assert_int_equal(statistics.n_cells, 5000);
    assert_true(find(&grown, 0, "K")->bytes >= 5000 * SMALL_HEAD * 2);
    assert_int_equal(cellar_resize(small.memory, 0, 41, NULL), CELLAR_OK);
    items shrunk = bytes_of(&small);
    assert_int_equal(cellar_stats(small.memory, &statistics, NULL), CELLAR_OK);
    assert_same_sizes(&shrunk.sizes, &statistics.sizes);
    assert_true(find(&shrunk, 0, "K")->bytes < find(&grown, 0, "K")->bytes);
    small_close(&small);
}

static void cells_cost_sixteen_bytes_at_most(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 1 << 20);
    small_add_attention(&small, 0);
    items planned = plan_of(&small);
    assert_true(planned.sizes.bytes[CELLAR_BYTES_CELLS] <= 16ull << 20);
    assert_true(planned.sizes.bytes[CELLAR_BYTES_CELLS] >= 8ull << 20);
}

/* ---- stopping and refusing ------------------------------------------------------------------- */

static void a_visitor_that_has_enough_is_called_no_more(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 0);
    small_add_recurrent(&small);
    uint32_t n = plan_of(&small).n;
    small_open(&small);
    for (uint32_t most = 1; most <= n; most++) {
        items planned = {.most = most}, made = {.most = most};
        assert_int_equal(cellar_visit_plan(&small.config, take_item, &planned, NULL), CELLAR_OK);
        assert_int_equal(planned.n, most);
        assert_int_equal(cellar_visit_bytes(small.memory, take_item, &made, NULL), CELLAR_OK);
        assert_int_equal(made.n, most);
    }
    small_close(&small);
}

static void bad_arguments_are_refused(void **state)
{
    small_memory small;
    items all = {.most = MOST_ITEMS};
    cellar_error error = {0};
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 0);
    assert_int_equal(cellar_visit_plan(&small.config, NULL, NULL, &error), CELLAR_INVALID);
    assert_string_equal(error.message, "visitor is NULL");
    assert_int_equal(cellar_visit_plan(NULL, take_item, &all, &error), CELLAR_INVALID);
    small.config.n_cells = 0;
    assert_int_equal(cellar_visit_plan(&small.config, take_item, &all, &error), CELLAR_INVALID);
    assert_int_equal(cellar_visit_bytes(NULL, take_item, &all, &error), CELLAR_INVALID);
    small.config.n_cells = 64;
    small_open(&small);
    assert_int_equal(cellar_visit_bytes(small.memory, NULL, NULL, &error), CELLAR_INVALID);
    assert_int_equal(all.n, 0);
    small_close(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_memory_adds_up),
        cmocka_unit_test(row_types_show_and_cost_what_they_are),
        cmocka_unit_test(windows_states_and_silent_layers_add_up),
        cmocka_unit_test(states_are_counted_with_their_padding),
        cmocka_unit_test(an_engines_rows_make_room_for_checkpoints),
        cmocka_unit_test(rows_of_an_engine_have_no_limit),
        cmocka_unit_test(pools_and_points_add_up),
        cmocka_unit_test(rows_in_a_callers_store_are_counted_apart),
        cmocka_unit_test(rows_of_the_engine_take_nothing),
        cmocka_unit_test(a_grown_memory_adds_up),
        cmocka_unit_test(cells_cost_sixteen_bytes_at_most),
        cmocka_unit_test(a_visitor_that_has_enough_is_called_no_more),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
