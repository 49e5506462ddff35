/*
 * unit_session_reload.c: whatever a memory has become, it can be saved, loaded and saved again.
 *
 * Random memories of every kind (support_story.h) are saved; the file is loaded into a memory of other
 * cells, pools and room, which must be sound and, saved again, give the same bytes: rows, states, positions,
 * shifts and checkpoints all came back, because a file does not depend on where they lie. (In several pools
 * a file may have to store shared cells for each, and then only soundness is asked.) Loaded into the
 * crowded memory it came from, under the names in use, it replaces them or is refused as CELLAR_FULL.
 *
 *   unit_session_reload SEED [N]     N memories from that seed on
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_session.h"
#include "support_story.h"

enum { OPERATIONS = 300, SAVE_EVERY = 15 };

static uint64_t first_seed = 1;
static uint32_t n_memories = 60;

/* The same layers, with room for everything, in one pool or several. */
static void open_twin(const story *s, uint32_t n_pools, small_memory *twin)
{
    *twin = s->small;
    twin->config.layers = twin->layers;
    twin->config.n_cells = 3000;
    twin->config.n_pools = n_pools;
    twin->config.n_sequences = 40;
    twin->config.is_window_full = true;
    twin->config.rollback_bytes = s->small.config.rollback_bytes * 40;
    twin->config.checkpoint_bytes = s->small.config.checkpoint_bytes * 40;
    twin->memory = NULL;
    small_open(twin);
}

static void load(const story *s, cellar_memory *memory, const parcel *file, cellar_status also)
{
    unsigned long long seed = s->seed;
    cellar_session *session;
    cellar_load_options options = cellar_load_options_init();
    cellar_error error = {0};
    if (cellar_open_session_bytes(file->bytes, file->size, NULL, &session, &error) != CELLAR_OK)
        fail_msg("seed %llu: opening: %s", seed, error.message);
    cellar_status status = cellar_load_session(memory, session, &options, &error);
    if (status != CELLAR_OK && status != also)
        fail_msg("seed %llu: loading: %s", seed, error.message);
    cellar_close_session(session);
    if (cellar_check(memory, &error) != CELLAR_OK)
        fail_msg("seed %llu: after loading: %s", seed, error.message);
}

/* Returns whether all of it came back, which is compared then. */
static bool load_elsewhere(const story *s, const parcel *file, uint32_t n_pools)
{
    parcel again = {0};
    small_memory twin;
    cellar_statistics statistics;
    open_twin(s, n_pools, &twin);
    load(s, twin.memory, file, CELLAR_OK);
    assert_int_equal(parcel_write(&again, twin.memory, NULL, NULL), CELLAR_OK);
    assert_int_equal(cellar_stats(twin.memory, &statistics, NULL), CELLAR_OK);
    bool is_all = n_pools == 1 && statistics.checkpoints_dropped == 0;
    if (is_all && !parcel_equal(file, &again))
        fail_msg("seed %llu: saved, loaded and saved again: another file",
                 (unsigned long long)s->seed);
    small_close(&twin);
    parcel_free(&again);
    return is_all;
}

static void a_memory_comes_back_from_its_file(void **state)
{
    (void)state;
    uint32_t n_compared = 0;
    for (uint32_t i = 0; i < n_memories; i++) {
        story s;
        story_plan(&s, first_seed + i);
        story_open(&s);
        for (uint32_t k = 0; k < OPERATIONS; k++) {
            story_change(&s);
            if (k % SAVE_EVERY != 0) continue;
            parcel file = {0};
            assert_int_equal(parcel_write(&file, s.small.memory, NULL, NULL), CELLAR_OK);
            n_compared += load_elsewhere(&s, &file, 1);
            (void)load_elsewhere(&s, &file, 5);
            load(&s, s.small.memory, &file, CELLAR_FULL);
            parcel_free(&file);
        }
        story_close(&s);
    }
    assert_true(n_compared > n_memories);
}

/* A state does not tell where its sequence began; what may be moved and removed depends on it. */
static void a_recurrent_sequence_knows_where_it_began(void **state)
{
    (void)state;
    enum { BEGIN = 5, N = 4 };
    small_memory small, twin;
    parcel file = {0};
    cellar_batch batch = cellar_batch_init();
    const story nobody = {.seed = 0};
    cellar_error error = {.message = ""};
    small_init(&small, 64);
    small_add_recurrent(&small);
    small_open(&small);
    batch.n_tokens = N;
    batch.positions = (cellar_pos[N]){BEGIN, BEGIN + 1, BEGIN + 2, BEGIN + 3};
    assert_int_equal(cellar_begin(small.memory, &batch, NULL), CELLAR_OK);
    small_store(&small);
    assert_int_equal(cellar_commit(small.memory, NULL), CELLAR_OK);
    assert_int_equal(parcel_write(&file, small.memory, NULL, NULL), CELLAR_OK);

    twin = small;
    twin.config.layers = twin.layers;
    small_open(&twin);
    load(&nobody, twin.memory, &file, CELLAR_OK);
    assert_int_equal(cellar_shift(twin.memory, 0, 0, -1, -BEGIN - 1, &error), CELLAR_REFUSED);
    assert_int_equal(cellar_shift(twin.memory, 0, 0, -1, -BEGIN, &error), CELLAR_OK);
    assert_int_equal(cellar_position_max(twin.memory, 0), N - 1);
    parcel_free(&file);
    small_close(&twin);
    small_close(&small);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_memory_comes_back_from_its_file),
        cmocka_unit_test(a_recurrent_sequence_knows_where_it_began),
    };
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 1) n_memories = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
