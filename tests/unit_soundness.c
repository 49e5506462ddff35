/*
 * unit_soundness.c: random operations on memories of every kind, each followed by cellar_check.
 *
 * Nothing is compared with a model here; promises are (support_any_play.h): every state, inside a step
 * too, is sound; a call that fails has changed nothing that can be seen; a step that is aborted before
 * anything was stored has changed nothing either; numbers stay finite. The memories are small and
 * crowded, so room is always short. fuzz/fuzz_operations.c plays the same game with chosen bytes instead
 * of random ones; what that found has tests here. A demand that does not hold ends the process and
 * names the seed:
 *
 *   unit_soundness SEED [N]      N memories from that seed on
 *   unit_soundness SEED FILE     writes the bytes of a seed, for the fuzz target
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
#include "support_any_play.h"
#include "support_small_memory.h"

enum { LONGEST = 6000 }; /* bytes: some two hundred operations */

static uint64_t first_seed = 1;
static uint32_t n_memories = 300;

/* The bytes of a seed, and how many. */
static uint32_t draw(uint64_t seed, uint8_t bytes[LONGEST])
{
    uint64_t random = seed * 77;
    uint32_t n = 500 + random_below(&random, LONGEST - 500);
    for (uint32_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)random_below(&random, 256);
    return n;
}

static void whatever_is_done_leaves_a_sound_memory(void **state)
{
    (void)state;
    static uint8_t bytes[LONGEST];
    for (uint32_t i = 0; i < n_memories; i++) {
        uint32_t n = draw(first_seed + i, bytes);
        input_name("unit_soundness, seed", first_seed + i);
        any_play(bytes, n);
    }
}

/*
 * Positions 1, 1, 2, 3...: the second 1 is a sink and begins a run. When the window gives up what
 * follows it, it stands alone beside the first 1 and must be one run with it (lib/group_window.c,
 * cut_sequence).
 */
static void a_sink_left_alone_joins_those_at_its_position(void **state)
{
    (void)state;
    enum { N = 8 };
    static const cellar_pos positions[N] = {0, 1, 1, 2, 3, 4, 5, 6};
    cellar_point points[N];
    small_memory small;
    small_init(&small, 64);
    cellar_layer *layer = small_add_attention(&small, 4);
    layer->window.n_sinks = 2;
    layer->rope.kind = CELLAR_ROPE_MROPE;
    layer->rope.sections[0] = layer->rope.sections[1] = SMALL_HEAD / 4;
    small.config.n_ubatch = N;
    small_open(&small);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = N;
    batch.positions = positions;
    batch.points = points;
    for (uint32_t i = 0; i < N; i++)
        points[i] = (cellar_point){positions[i], positions[i] + (cellar_pos)(i == 2)};
    assert_int_equal(cellar_begin(small.memory, &batch, NULL), CELLAR_OK);
    small_store(&small);
    assert_int_equal(cellar_commit(small.memory, NULL), CELLAR_OK);
    assert_int_equal(cellar_remove(small.memory, 0, 0, 1, NULL), CELLAR_OK);
    for (uint32_t i = 0; i < 64; i++) {
        small_read(&small, 0, 1);
        assert_int_equal(cellar_check(small.memory, NULL), CELLAR_OK);
    }
    cellar_statistics stats;
    assert_int_equal(cellar_stats(small.memory, &stats, NULL), CELLAR_OK);
    assert_true(stats.cells_reclaimed > 0);
    small_close(&small);
}

static int write_seed(const char *path)
{
    static uint8_t bytes[LONGEST];
    uint32_t n = draw(first_seed, bytes);
    FILE *file = fopen(path, "wb");
    bool is_written = file && fwrite(bytes, 1, n, file) == n;
    if (file && fclose(file) != 0) is_written = false;
    if (!is_written) perror(path);
    return is_written ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_is_done_leaves_a_sound_memory),
        cmocka_unit_test(a_sink_left_alone_joins_those_at_its_position),
    };
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 1) n_memories = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    if (argc > 2 && n_memories == 0) return write_seed(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
