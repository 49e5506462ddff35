/*
 * unit_soundness.c: random operations on memories of every kind, each followed by cellar_check.
 *
 * Nothing is compared with a model here; promises are (support_any_play.h): every state, inside a step
 * too, is sound; a call that fails has changed nothing that can be seen; a step that is aborted before
 * anything was stored has changed nothing either; numbers stay finite. The memories are small and crowded, so
 * room is always short. fuzz/fuzz_operations.c plays the same game with chosen bytes instead of
 * random ones. A demand that does not hold ends the process and names the seed:
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
    };
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 1) n_memories = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    if (argc > 2 && n_memories == 0) return write_seed(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
