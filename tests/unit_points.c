/*
 * unit_points.c: tokens of an image, as cellar.h describes them.
 *
 * Which points are refused, where a sequence goes on behind an image, and what tokens that share a position
 * see of each other, also where a layer is not causal. Keys and queries are zeros and value i is 1 in
 * its element i only, so a result names the keys that were seen, each with the same weight. The
 * mask export must say the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cellar.h"

enum { SIZE = 16, MOST = 8, N_CELLS = 32 };

static cellar_memory *open_memory(bool is_causal)
{
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = layer.n_kv_heads = 1;
    layer.k_size = layer.v_size = SIZE;
    layer.k_type = layer.v_type = CELLAR_F32;
    layer.rope.kind = CELLAR_ROPE_MROPE;
    layer.rope.sections[0] = 4;
    layer.rope.sections[1] = layer.rope.sections[2] = 2;
    layer.is_causal = is_causal;
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = N_CELLS;
    cellar_memory *memory = NULL;
    assert_int_equal(cellar_create(&config, &memory, NULL), CELLAR_OK);
    return memory;
}

static cellar_batch batch_of(uint32_t n, const cellar_pos *positions, const cellar_point *points)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.positions = positions;
    batch.points = points;
    return batch;
}

/*
 * The keys of the batch that each token sees, as bits: by attention and by the mask. `first`: the
 * element of its first value, so that batches can be told apart.
 */
static void read_batch(cellar_memory *memory, const cellar_batch *batch, uint32_t first,
                       uint32_t seen[MOST])
{
    float zeros[MOST * SIZE] = {0}, v[MOST * SIZE] = {0}, out[MOST * SIZE], mask[MOST * N_CELLS];
    int64_t rows[MOST];
    cellar_extent extent;
    uint32_t n = batch->n_tokens;
    for (uint32_t i = 0; i < n; i++) {
        v[i * SIZE + first + i] = 1;
    }
    assert_int_equal(cellar_begin(memory, batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_store(memory, 0, 0, zeros, v, NULL), CELLAR_OK);
    assert_int_equal(cellar_attend(memory, 0, 0, zeros, out, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_rows(memory, 0, 0, rows, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_extent(memory, 0, 0, 1, &extent, NULL, 0, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_mask(memory, 0, 0, extent.n_kv, CELLAR_F32, mask, NULL),
                     CELLAR_OK);
    for (uint32_t i = 0; i < n; i++) {
        seen[i] = 0;
        for (uint32_t j = 0; j < n; j++) {
            bool is_seen = out[i * SIZE + first + j] > 0;
            assert_true((mask[i * extent.n_kv + rows[j]] == 0) == is_seen);
            seen[i] |= (uint32_t)is_seen << j;
        }
    }
    assert_int_equal(cellar_commit(memory, NULL), CELLAR_OK);
    assert_int_equal(cellar_check(memory, NULL), CELLAR_OK);
}

static cellar_pos next_of(const cellar_memory *memory)
{
    cellar_sequence_info info;
    assert_int_equal(cellar_get_sequence(memory, 0, &info, NULL), CELLAR_OK);
    return info.pos_next;
}

static void points_below_zero_and_far_away_are_refused(void **state)
{
    static const cellar_point bad[] = {{-1, 0},    {0, -1},    {INT32_MIN, 0},
                                       {32768, 0}, {0, 32768}, {INT32_MAX, INT32_MAX}};
    (void)state;
    cellar_memory *memory = open_memory(true);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const cellar_pos positions[] = {0, 0};
        const cellar_point points[] = {{0, 0}, bad[i]};
        const cellar_batch batch = batch_of(2, positions, points);
        cellar_error error;
        assert_int_equal(cellar_begin(memory, &batch, &error), CELLAR_INVALID);
        assert_int_equal(error.at, 1);
        assert_int_equal(error.reason, CELLAR_REASON_POSITION_RANGE);
    }
    const cellar_pos positions[] = {40000, 40000};
    const cellar_point points[] = {{7233, 7233}, {72767, 40000}}; /* as far as it goes */
    const cellar_batch batch = batch_of(2, positions, points);
    uint32_t seen[MOST];
    read_batch(memory, &batch, 0, seen);
    assert_int_equal(next_of(memory), 72768);
    cellar_destroy(memory);
}

/* Text at 0 and 1, an image of two rows and three columns at 2. */
static const cellar_pos image_positions[] = {0, 1, 2, 2, 2, 2, 2, 2};
static const cellar_point image_points[] = {{0, 0}, {1, 1}, {2, 2}, {2, 3},
                                            {2, 4}, {3, 2}, {3, 3}, {3, 4}};

static void a_sequence_goes_on_behind_the_largest_coordinate(void **state)
{
    (void)state;
    cellar_memory *memory = open_memory(true);
    const cellar_batch image = batch_of(8, image_positions, image_points);
    uint32_t seen[MOST];
    read_batch(memory, &image, 0, seen);
    assert_int_equal(cellar_position_max(memory, 0), 2);
    assert_int_equal(next_of(memory), 5); /* column 4 is the farthest */

    /* Text without positions goes there, and then on as text does. */
    const cellar_batch text = batch_of(3, NULL, NULL);
    read_batch(memory, &text, 8, seen);
    assert_int_equal(cellar_position_max(memory, 0), 7);
    assert_int_equal(next_of(memory), 8);

    /* Without the text the image counts again; without the image nothing of it does. */
    assert_int_equal(cellar_remove(memory, 0, 5, -1, NULL), CELLAR_OK);
    assert_int_equal(next_of(memory), 5);
    assert_int_equal(cellar_remove(memory, 0, 2, -1, NULL), CELLAR_OK);
    assert_int_equal(next_of(memory), 2);
    cellar_destroy(memory);
}

static void tokens_of_an_image_see_those_not_behind_them(void **state)
{
    (void)state;
    for (int is_causal = 0; is_causal < 2; is_causal++) {
        cellar_memory *memory = open_memory(is_causal);
        const cellar_batch image = batch_of(8, image_positions, image_points);
        uint32_t seen[MOST];
        read_batch(memory, &image, 0, seen);
        for (uint32_t i = 2; i < 8; i++) {
            assert_int_equal(seen[i], (1u << (i + 1)) - 1); /* in reading order, itself the last */
        }
        /* Text before it sees all of the image if its layer is not causal. */
        assert_int_equal(seen[0], is_causal ? 1 : 0xff);
        assert_int_equal(seen[1], is_causal ? 3 : 0xff);
        cellar_destroy(memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_below_zero_and_far_away_are_refused),
        cmocka_unit_test(a_sequence_goes_on_behind_the_largest_coordinate),
        cmocka_unit_test(tokens_of_an_image_see_those_not_behind_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
