/*
 * unit_checkpoint_slots.c: more checkpoints than there is room for.
 *
 * A memory that asks for none has a few dozen of them. Each one more costs another, perhaps the only one of the
 * very sequence that is to have it; that one's list must not go with it, and a call that fails then must
 * not have cost anything. Sequences are more than checkpoints here, each with one or two.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/random.h"
#include "support_faulty.h"
#include "support_look.h"
#include "support_small_memory.h"

enum { MOST = 32, WINDOW = 4 };

static void make(small_memory *small)
{
    small_init(small, 4096);
    small->config.n_sequences = 2 * MOST;
    small->config.allocator = faulty_allocator();
    small_add_attention(small, WINDOW);
    small_add_recurrent(small);
    small_open(small);
}

static void sound(const small_memory *small)
{
    cellar_error error;
    if (cellar_check(small->memory, &error) != CELLAR_OK) fail_msg("%s", error.message);
}

static cellar_statistics count(const small_memory *small)
{
    cellar_statistics stats;
    assert_int_equal(cellar_stats(small->memory, &stats, NULL), CELLAR_OK);
    return stats;
}

static uint32_t count_of(const small_memory *small, cellar_seq seq)
{
    cellar_sequence_info info;
    assert_int_equal(cellar_get_sequence(small->memory, seq, &info, NULL), CELLAR_OK);
    return info.n_checkpoints;
}

/* Sequences 0..MOST-1 have one each; the cheapest is the last one's, which has read most. */
static void fill(small_memory *small)
{
    for (cellar_seq seq = 0; seq < MOST; seq++) {
        small_read(small, seq, seq == MOST - 1 ? 8 : 5);
        assert_int_equal(cellar_checkpoint(small->memory, seq, NULL), CELLAR_OK);
    }
    assert_int_equal(count(small).n_checkpoints, MOST);
    assert_int_equal(count(small).checkpoints_dropped, 0);
}

static void a_sequence_can_replace_its_only_one(void **state)
{
    small_memory small;
    (void)state;
    make(&small);
    fill(&small);
    small_read(&small, MOST - 1, 1);
    assert_int_equal(cellar_checkpoint(small.memory, MOST - 1, NULL), CELLAR_OK);
    sound(&small);
    assert_int_equal(count(&small).checkpoints_dropped, 1);
    assert_int_equal(count(&small).n_checkpoints, MOST);
    assert_int_equal(count_of(&small, MOST - 1), 1);
    small_close(&small);
}

static void a_step_can_replace_it_too(void **state)
{
    small_memory small;
    static const cellar_seq seqs[1] = {MOST - 1};
    static const bool marks[1] = {true};
    cellar_batch batch = cellar_batch_init();
    (void)state;
    make(&small);
    fill(&small);
    batch.n_tokens = 1;
    batch.seqs = seqs;
    batch.checkpoints = marks;
    assert_int_equal(cellar_begin(small.memory, &batch, NULL), CELLAR_OK);
    small_store(&small);
    assert_int_equal(cellar_commit(small.memory, NULL), CELLAR_OK);
    sound(&small);
    assert_int_equal(count(&small).n_checkpoints, MOST);
    assert_int_equal(count_of(&small, MOST - 1), 1);
    cellar_pos from = -1;
    assert_int_equal(cellar_rewind(small.memory, MOST - 1, 9, &from, NULL), CELLAR_OK);
    assert_int_equal(from, 9);
    small_close(&small);
}

static void a_failed_allocation_costs_none(void **state)
{
    (void)state;
    int n = 0, n_failed = 0;
    for (cellar_status status = CELLAR_NO_MEMORY; status != CELLAR_OK; n++) {
        small_memory small;
        make(&small);
        fill(&small);
        small_read(&small, 90, 7);
        look before = look_at(small.memory);
        faulty_allocations_left = n;
        status = cellar_checkpoint(small.memory, 90, NULL);
        faulty_allocations_left = -1;
        n_failed += status != CELLAR_OK;
        if (status != CELLAR_OK) {
            assert_int_equal(status, CELLAR_NO_MEMORY);
            assert_int_equal(count(&small).checkpoints_dropped, 0);
            assert_true(look_at(small.memory).everything == before.everything);
        }
        small_close(&small);
    }
    assert_true(n_failed > 1);
}

static void whatever_happens_they_stay_sound(void **state)
{
    (void)state;
    uint64_t dropped = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        small_memory small;
        uint64_t random = seed;
        make(&small);
        for (int i = 0; i < 500; i++) {
            cellar_seq seq = (cellar_seq)random_below(&random, MOST + MOST / 2);
            cellar_pos from;
            switch (random_below(&random, 8)) {
            case 0:
                assert_int_equal(cellar_remove(small.memory, seq, 0, -1, NULL), CELLAR_OK);
                break;
            case 1:
                assert_int_equal(cellar_copy(small.memory, seq, (seq + 7) % MOST, 0, -1, NULL),
                                 CELLAR_OK);
                break;
            case 2:
                assert_int_equal(cellar_rewind(small.memory, seq, 3, &from, NULL), CELLAR_OK);
                break;
            default:
                small_read(&small, seq, 1 + random_below(&random, 3));
                assert_int_equal(cellar_checkpoint(small.memory, seq, NULL), CELLAR_OK);
            }
            sound(&small);
        }
        dropped += count(&small).checkpoints_dropped;
        small_close(&small);
    }
    assert_true(dropped > 100); /* or there was always room */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_can_replace_its_only_one),
        cmocka_unit_test(a_step_can_replace_it_too),
        cmocka_unit_test(a_failed_allocation_costs_none),
        cmocka_unit_test(whatever_happens_they_stay_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
