/*
 * support_settling.h: memories with shifted sequences, for the tests of settling.
 *
 * The library and its plain models side by side (model/twin.h), a layer that rotates, and the questions that
 * the tests ask again and again. Included by one test program each; everything is static.
 */
#ifndef SUPPORT_SETTLING_H
#define SUPPORT_SETTLING_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/twin.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static inline void assert_sound(const drive *d)
{
    cellar_error error = {0};
    if (cellar_check(d->memory, &error) != CELLAR_OK) fail_msg("%s", error.message);
}

static inline cellar_sequence_info info_of(const drive *d, cellar_seq seq)
{
    cellar_sequence_info info;
    assert_int_equal(cellar_get_sequence(d->memory, seq, &info, NULL), CELLAR_OK);
    return info;
}

static inline cellar_statistics stats_of(const drive *d)
{
    cellar_statistics stats;
    assert_int_equal(cellar_stats(d->memory, &stats, NULL), CELLAR_OK);
    return stats;
}

static inline void assert_twin(const twin *t)
{
    if (t->n_wrong > 0) fail_msg("%u wrong, first: %s", t->n_wrong, t->message);
    assert_sound(&t->d);
}

static inline cellar_layer rotated(uint32_t k_size, cellar_rope_kind kind, cellar_type type)
{
    cellar_layer layer = drive_layer(4, 2, k_size, 32);
    layer.rope.kind = kind;
    layer.k_type = layer.v_type = type;
    return layer;
}

/* Two layers that rotate differently, and one that does not. */
static inline void open_twin(twin *t, uint32_t n_cells)
{
    memset(t, 0, sizeof *t);
    t->d.seed = 11;
    t->d.n_layers = 3;
    t->d.layers[0] = rotated(32, CELLAR_ROPE_NORMAL, CELLAR_F32);
    t->d.layers[1] = rotated(64, CELLAR_ROPE_NEOX, CELLAR_F32);
    t->d.layers[1].rope.n_rot = 48;
    t->d.layers[1].rope.scale = 0.25;
    t->d.layers[1].rope.yarn_ext = 1;
    t->d.layers[1].rope.yarn_context = 512;
    t->d.layers[2] = rotated(32, CELLAR_ROPE_NONE, CELLAR_F32);
    cellar_config config = cellar_config_init();
    config.n_cells = n_cells;
    config.n_ubatch = 16;
    config.max_shifts = 0;
    twin_open(t, &config);
}

static inline void settle(const drive *d, cellar_seq seq)
{
    cellar_error error = {0};
    if (cellar_settle(d->memory, seq, &error) != CELLAR_OK) fail_msg("%s", error.message);
    assert_int_equal(info_of(d, seq).n_shifts, 0);
}

static inline double largest_difference(const float *a, const float *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)a[i] - b[i]));
    return largest;
}

static inline void open_sliding(drive *d, uint32_t max_shifts, uint32_t n_cells)
{
    *d = (drive){.n_layers = 1, .seed = 5};
    d->layers[0] = rotated(32, CELLAR_ROPE_NORMAL, CELLAR_F32);
    cellar_config config = cellar_config_init();
    config.n_cells = n_cells;
    config.max_shifts = max_shifts;
    assert_int_equal(drive_open(d, &config, NULL), CELLAR_OK);
    assert_int_equal(drive_append(d, 0, 1, 32, NULL), CELLAR_OK);
}

#endif /* SUPPORT_SETTLING_H */
