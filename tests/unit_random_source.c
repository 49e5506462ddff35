/*
 * unit_random_source.c: the random generator is the published one.
 *
 * The expected numbers are those that other implementations of splitmix64 and xoshiro256** publish
 * as their test vectors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/random_source.h"

/* First numbers of splitmix64 from 1234567, and of xoshiro256** from the words 1, 2, 3, 4. */
static void the_generator_is_the_published_one(void **state)
{
    (void)state;
    static const uint64_t split[] = {6457827717110365317u, 3203168211198807973u,
                                     9817491932198370423u, 4593380528125082431u};
    static const uint64_t xoshiro[] = {11520u,
                                       0u,
                                       1509978240u,
                                       1215971899390074240u,
                                       1216172134540287360u,
                                       607988272756665600u,
                                       16172922978634559625u,
                                       8476171486693032832u};
    uint64_t seed = 1234567;
    random_source g = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof split / sizeof split[0]; i++) {
        assert_true(random_source_split(&seed) == split[i]);
    }
    for (size_t i = 0; i < sizeof xoshiro / sizeof xoshiro[0]; i++) {
        assert_true(random_source_next(&g) == xoshiro[i]);
    }
}

static void units_lie_below_one_and_spread_evenly(void **state)
{
    (void)state;
    random_source g;
    random_source_seed(&g, 1);
    uint32_t counts[10] = {0};
    for (int i = 0; i < 100000; i++) {
        double unit = random_source_unit(&g);
        assert_true(unit >= 0.0 && unit < 1.0);
        counts[(int)(unit * 10.0)]++;
    }
    for (int i = 0; i < 10; i++) { /* 10,000 each, standard deviation 95 */
        assert_in_range(counts[i], 9600, 10400);
    }
}

static void every_seed_gives_a_stream_of_its_own(void **state)
{
    (void)state;
    uint64_t first[1000];
    for (uint64_t seed = 0; seed < 1000; seed++) {
        random_source g;
        random_source_seed(&g, seed);
        first[seed] = random_source_next(&g);
        for (uint64_t other = 0; other < seed; other++) {
            assert_true(first[other] != first[seed]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generator_is_the_published_one),
        cmocka_unit_test(units_lie_below_one_and_spread_evenly),
        cmocka_unit_test(every_seed_gives_a_stream_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
