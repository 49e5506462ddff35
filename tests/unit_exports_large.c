/*
 * unit_exports_large.c: masks that are larger than caches.
 *
 * Those are written past the caches, and a row with few stretches is written once from its beginning to
 * its end; with many of them it is cleared first. The f16 mask of the same step is half as large and
 * goes the ordinary way; unit_exports.c holds that to a model. Here both must say the same of each cell,
 * and each row must show as many cells as its token has a past.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "model/drive.h"

enum { CELLS = 50000, TOKENS = 100, MOST = 512 };

/* Read n tokens, in turns of the first n_seqs sequences. */
static void append(cellar_memory *memory, uint32_t n, uint32_t n_seqs)
{
    cellar_seq seqs[MOST];
    cellar_error error = {0};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.seqs = seqs;
    for (uint32_t i = 0; i < n; i++)
        seqs[i] = (cellar_seq)(i % n_seqs);
    if (cellar_begin(memory, &batch, &error) != CELLAR_OK) fail_msg("%s", error.message);
    for (uint32_t u = 0; u < cellar_count_ubatches(memory); u++)
        assert_int_equal(cellar_confirm(memory, u, 0, NULL), CELLAR_OK);
    assert_int_equal(cellar_commit(memory, NULL), CELLAR_OK);
}

/* Both masks of a step that reads TOKENS more of sequence 0, which held `past`. */
static void compare_masks(cellar_memory *memory, uint32_t past)
{
    const size_t n = (size_t)CELLS * TOKENS;
    float *f32 = malloc(n * sizeof *f32 + 4);
    uint16_t *f16 = malloc(n * sizeof *f16 + 2);
    assert_true(f32 != NULL && f16 != NULL);
    f32[n] = 42;
    f16[n] = 42;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = TOKENS;
    assert_int_equal(cellar_begin(memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_mask(memory, 0, 0, CELLS, CELLAR_F32, f32, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_mask(memory, 0, 0, CELLS, CELLAR_F16, f16, NULL), CELLAR_OK);
    for (uint32_t token = 0; token < TOKENS; token++) {
        uint32_t n_seen = 0;
        for (size_t cell = 0; cell < CELLS; cell++) {
            const float value = f32[(size_t)token * CELLS + cell];
            const uint16_t half = f16[(size_t)token * CELLS + cell];
            const bool is_seen = value == 0 && !signbit(value);
            if (!is_seen && !(isinf(value) && value < 0)) fail_msg("cell %zu: %f", cell, value);
            if (half != (is_seen ? 0 : 0xfc00)) fail_msg("cell %zu: half %04x", cell, half);
            n_seen += is_seen;
        }
        assert_int_equal(n_seen, past + token + 1);
    }
    assert_true(f32[n] == 42 && f16[n] == 42);
    free(f32);
    free(f16);
    cellar_abort(memory);
}

static void large_masks_say_what_small_ones_say(void **state)
{
    (void)state;
    cellar_layer layer = drive_layer(2, 1, 8, 4);
    layer.is_external = true;
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = CELLS;
    config.n_ubatch = MOST;
    cellar_memory *memory;
    cellar_error error = {0};
    if (cellar_create(&config, &memory, &error) != CELLAR_OK) fail_msg("%s", error.message);
    uint32_t past = 0;
    append(memory, MOST, 1); /* one stretch */
    compare_masks(memory, past += MOST);
    append(memory, 120, 2); /* 60 more, each alone */
    compare_masks(memory, past += 60);
    append(memory, MOST, 2); /* more than are noted */
    compare_masks(memory, past += MOST / 2);
    append(memory, MOST, 1);
    compare_masks(memory, past += MOST);
    cellar_destroy(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_masks_say_what_small_ones_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
