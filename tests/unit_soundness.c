/*
 * unit_soundness.c: random operations on memories of every kind, each followed by cellar_check.
 *
 * Nothing is compared with a model here; three promises are. Every state, inside a step too, is sound. A
 * call that fails has changed nothing that can be seen. A step that is aborted before anything was stored
 * has changed nothing either (states and what checkpoints of states hold excepted: an engine may have
 * written into them at once). The memories are small and crowded, with windows, sinks, pools, states,
 * checkpoints and tokens at shared positions, so room is always short. A failure names its seed:
 *
 *   unit_soundness SEED [N]     N memories from that seed on
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/random.h"
#include "support_session.h"
#include "support_small_memory.h"

enum { N_SEQUENCES = 6, MOST_TOKENS = 12, N_OPERATIONS = 300 };

typedef struct story {
    small_memory small;
    uint64_t random, seed;
    uint32_t at; /* operation */
    const char *what;
    bool has_states;
    cellar_error error;
} story;

static uint64_t first_seed = 1;
static uint32_t n_memories = 150;

/* ---- what can be seen, as one number --------------------------------------------------------- */

static void mix(uint64_t *hash, int64_t a, int64_t b)
{
    *hash = random_mix(*hash, (uint64_t)a << 32 ^ (uint64_t)b);
}

/* Cell by cell: tokens at one position can stand in two lists that mean the same. */
static bool mix_run(void *context, const cellar_run *run)
{
    for (uint32_t i = 0; i < run->len; i++) {
        mix(context, run->seq, run->pos + (int64_t)(run->step ? i : 0));
        mix(context, run->cell + i, run->shift);
    }
    return true;
}

static bool mix_cell(void *context, const cellar_cell *cell)
{
    mix(context, cell->cell, cell->refs);
    mix(context, cell->stored_pos, cell->token);
    mix(context, cell->point.y, cell->point.x);
    return true;
}

static bool mix_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    mix(context, info->position, info->n_holders);
    mix(context, info->n_cells, info->state);
    return true;
}

static uint64_t see(const cellar_memory *memory)
{
    uint64_t hash = 1;
    cellar_statistics statistics;
    for (cellar_seq seq = 0; seq < N_SEQUENCES; seq++) {
        cellar_sequence_info info;
        assert_int_equal(cellar_visit_runs(memory, seq, mix_run, &hash, NULL), CELLAR_OK);
        assert_int_equal(cellar_visit_checkpoints(memory, seq, mix_checkpoint, &hash, NULL),
                         CELLAR_OK);
        assert_int_equal(cellar_get_sequence(memory, seq, &info, NULL), CELLAR_OK);
        mix(&hash, info.rewind_min, info.pos_next);
    }
    assert_int_equal(cellar_visit_cells(memory, mix_cell, &hash, NULL), CELLAR_OK);
    assert_int_equal(cellar_stats(memory, &statistics, NULL), CELLAR_OK);
    mix(&hash, statistics.n_free, statistics.n_shared);
    mix(&hash, statistics.n_checkpoints, statistics.n_sequences);
    return hash;
}

/* ---- promises -------------------------------------------------------------------------------- */

static void expect_sound(const story *s)
{
    cellar_error error = {0};
    if (cellar_check(s->small.memory, &error) != CELLAR_OK)
        fail_msg("seed %llu, operation %u, after %s: %s", (unsigned long long)s->seed, s->at,
                 s->what, error.message);
}

static void expect_unchanged(const story *s, uint64_t before)
{
    if (see(s->small.memory) != before)
        fail_msg("seed %llu, operation %u: %s changed something (%s)", (unsigned long long)s->seed,
                 s->at, s->what, s->error.message);
}

/* ---- memories -------------------------------------------------------------------------------- */

static void add_layers(story *s)
{
    small_memory *small = &s->small;
    uint32_t kinds = 1 + random_below(&s->random, 7);
    s->has_states = kinds & 4;
    if (kinds & 1) small_add_attention(small, 0);
    if (kinds & 2) {
        cellar_layer *layer = small_add_attention(small, 1 + random_below(&s->random, 12));
        layer->window.kind = (cellar_window_kind)(1 + random_below(&s->random, 3));
        if (random_one_in(&s->random, 3)) layer->window.n_sinks = random_below(&s->random, 4);
    }
    bool is_2d = random_one_in(&s->random, 3);
    for (uint32_t i = 0; is_2d && i < small->config.n_layers; i++) {
        small->layers[i].rope.kind = CELLAR_ROPE_MROPE;
        small->layers[i].rope.sections[0] = small->layers[i].rope.sections[1] = 8;
    }
    if (s->has_states) small_add_recurrent(small);
}

static void open_story(story *s, uint64_t seed)
{
    *s = (story){.random = seed * 77, .seed = seed, .what = "creating"};
    small_init(&s->small, 40 + random_below(&s->random, 120));
    add_layers(s);
    cellar_config *config = &s->small.config;
    config->n_pools = 1 + random_below(&s->random, 3);
    config->n_sequences = config->n_pools + random_below(&s->random, 4);
    config->n_ubatch = 1 + random_below(&s->random, 8);
    config->is_window_full = random_one_in(&s->random, 4);
    config->rollback_bytes = random_below(&s->random, 3) * 400;
    config->checkpoint_bytes = random_below(&s->random, 3) * 4000;
    if (random_one_in(&s->random, 2)) config->checkpoint_interval = 1 + random_below(&s->random, 9);
    small_open(&s->small);
}

/* ---- operations ------------------------------------------------------------------------------ */

static cellar_status begin(story *s, cellar_seq a, cellar_seq b)
{
    cellar_token tokens[MOST_TOKENS];
    cellar_seq seqs[2 * MOST_TOKENS];
    uint32_t seq_begin[MOST_TOKENS + 1] = {0}, n = 1 + random_below(&s->random, MOST_TOKENS);
    bool checkpoints[MOST_TOKENS], is_shared = a != b && random_one_in(&s->random, 4);
    for (uint32_t i = 0, at = 0; i < n; i++) {
        tokens[i] = (cellar_token)random_below(&s->random, 1000);
        checkpoints[i] = random_one_in(&s->random, 4);
        seqs[at++] = is_shared || random_one_in(&s->random, 2) ? a : b;
        if (is_shared) seqs[at++] = b;
        seq_begin[i + 1] = at;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    batch.seq_begin = seq_begin;
    if (random_one_in(&s->random, 2)) batch.checkpoints = checkpoints;
    s->what = "begin";
    return cellar_begin(s->small.memory, &batch, &s->error);
}

/* A step that goes through, or is given up before or after its rows are stored. */
static cellar_status read_some(story *s, cellar_seq a, cellar_seq b, uint64_t before)
{
    cellar_status status = begin(s, a, b);
    if (status != CELLAR_OK) return status;
    expect_sound(s);
    uint32_t how = random_below(&s->random, 4);
    if (how > 0) small_store(&s->small);
    s->what = "store";
    expect_sound(s);
    if (how >= 2) {
        s->what = "commit";
        assert_int_equal(cellar_commit(s->small.memory, &s->error), CELLAR_OK);
        return CELLAR_OK;
    }
    s->what = "abort";
    cellar_abort(s->small.memory);
    if (how == 0 && !s->has_states) expect_unchanged(s, before);
    return CELLAR_OK;
}

static cellar_status reshape(story *s, cellar_seq a)
{
    cellar_memory *memory = s->small.memory;
    uint32_t n = random_below(&s->random, 80), pool = n % s->small.config.n_pools;
    switch (random_below(&s->random, 5)) {
    case 0:
        s->what = "keep";
        return cellar_keep(memory, a, &s->error);
    case 1:
        s->what = "compact";
        return cellar_compact(memory, n, NULL, &s->error);
    case 2:
        s->what = "resize";
        return cellar_resize(memory, pool, 20 + n, &s->error);
    case 3:
        s->what = "settle";
        return cellar_settle(memory, a, &s->error);
    default:
        s->what = "remove all";
        return cellar_remove(memory, a, 0, -1, &s->error);
    }
}

static cellar_status edit(story *s, cellar_seq a, cellar_seq b, cellar_pos p0, cellar_pos p1)
{
    cellar_memory *memory = s->small.memory;
    cellar_pos from, begin_at = random_one_in(&s->random, 2) ? 0 : p0;
    switch (random_below(&s->random, 9)) {
    case 0:
    case 1:
        s->what = "copy";
        return cellar_copy(memory, a, b, begin_at, p1, &s->error);
    case 2:
    case 3:
        s->what = "remove";
        return cellar_remove(memory, a, p0, p1, &s->error);
    case 4:
        s->what = "shift";
        return cellar_shift(memory, a, begin_at, p1, random_between(&s->random, -5, 5), &s->error);
    case 5:
        s->what = "rewind";
        return cellar_rewind(memory, a, p0, &from, &s->error);
    case 6:
        s->what = "checkpoint";
        return cellar_checkpoint(memory, a, &s->error);
    case 7:
        s->what = "drop";
        return cellar_drop_checkpoints(memory, a, p0, p1, &s->error);
    default:
        s->what = "divide";
        return cellar_divide(memory, a, p0, p1, 2, &s->error);
    }
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* The same layers, with room for everything, in one pool or several. */
static void open_twin(const story *s, small_memory *twin)
{
    *twin = s->small;
    twin->config.layers = twin->layers;
    twin->config.n_cells = 3000;
    twin->config.n_pools = 1 + (uint32_t)(s->at % 2) * 4;
    twin->config.n_sequences = 40;
    twin->config.is_window_full = true;
    twin->config.rollback_bytes = s->small.config.rollback_bytes * 40;
    twin->config.checkpoint_bytes = s->small.config.checkpoint_bytes * 40;
    twin->memory = NULL;
    small_open(twin);
}

static void load(const story *s, cellar_memory *memory, const parcel *file, cellar_status also)
{
    cellar_session *session;
    cellar_load_options options = cellar_load_options_init();
    cellar_error error = {0};
    if (cellar_open_session_bytes(file->bytes, file->size, NULL, &session, &error) != CELLAR_OK)
        fail_msg("seed %llu, operation %u: opening: %s", (unsigned long long)s->seed, s->at,
                 error.message);
    cellar_status status = cellar_load_session(memory, session, &options, &error);
    if (status != CELLAR_OK && status != also)
        fail_msg("seed %llu, operation %u: loading: %s", (unsigned long long)s->seed, s->at,
                 error.message);
    cellar_close_session(session);
    if (cellar_check(memory, &error) != CELLAR_OK)
        fail_msg("seed %llu, operation %u: loaded: %s", (unsigned long long)s->seed, s->at,
                 error.message);
}

static void save_and_load(story *s)
{
    parcel file = {0}, again = {0};
    cellar_statistics statistics;
    small_memory twin;
    s->what = "session";
    assert_int_equal(parcel_write(&file, s->small.memory, NULL, &s->error), CELLAR_OK);
    open_twin(s, &twin);
    load(s, twin.memory, &file, CELLAR_OK);
    assert_int_equal(parcel_write(&again, twin.memory, NULL, &s->error), CELLAR_OK);
    assert_int_equal(cellar_stats(twin.memory, &statistics, &s->error), CELLAR_OK);
    bool is_all = twin.config.n_pools == 1 && statistics.checkpoints_dropped == 0;
    if (is_all && !parcel_equal(&file, &again))
        fail_msg("seed %llu, operation %u: saved, loaded and saved again: another file",
                 (unsigned long long)s->seed, s->at);
    small_close(&twin);
    load(s, s->small.memory, &file, CELLAR_FULL);
    parcel_free(&file);
    parcel_free(&again);
}

static void do_something(story *s)
{
    if (random_one_in(&s->random, 20)) save_and_load(s);
    cellar_seq a = (cellar_seq)random_below(&s->random, N_SEQUENCES);
    cellar_seq b = (cellar_seq)random_below(&s->random, N_SEQUENCES);
    cellar_pos end = cellar_position_max(s->small.memory, a) + 1;
    cellar_pos p0 = random_between(&s->random, 0, end + 1);
    cellar_pos p1 = random_one_in(&s->random, 2) ? -1 : p0 + (int32_t)random_below(&s->random, 10);
    uint64_t before = see(s->small.memory);
    uint32_t kind = random_below(&s->random, 20);
    cellar_status status = kind < 9    ? read_some(s, a, b, before)
                           : kind < 18 ? edit(s, a, b, p0, p1)
                                       : reshape(s, a);
    expect_sound(s);
    if (status == CELLAR_OK) return;
    expect_unchanged(s, before);
    if (status == CELLAR_CORRUPT || status == CELLAR_IO || status == CELLAR_NO_MEMORY)
        fail_msg("seed %llu, operation %u: %s: %s", (unsigned long long)s->seed, s->at, s->what,
                 s->error.message);
}

static void whatever_is_done_leaves_a_sound_memory(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_memories; i++) {
        story s;
        open_story(&s, first_seed + i);
        for (s.at = 0; s.at < N_OPERATIONS; s.at++)
            do_something(&s);
        small_close(&s.small);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_is_done_leaves_a_sound_memory),
    };
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 1) n_memories = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
