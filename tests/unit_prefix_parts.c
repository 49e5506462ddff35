/*
 * unit_prefix_parts.c: parts of sequences, carried from one library into another.
 *
 * Two worlds of one kind, of which one reads and the other is supplied. What that then holds is compared with what its
 * tokens say (support_prefix.h), in every kind of memory. Parts that are damaged, of another key, text or
 * place are refused, and leave the sequence as it was; so does want of memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_faulty.h"
#include "support_prefix.h"

enum { TEXT = 100, BLOCK = 32, PART_BYTES = 1 << 20 };

static cellar_prefix_key plain;
static cellar_error error;
static cellar_token text[TEXT];

/* A part, or a key. */
typedef struct bytes {
    unsigned char at[PART_BYTES];
    size_t n, most;
} bytes;

static bytes parts[4];

static bool add_bytes(void *context, const void *from, size_t size)
{
    bytes *to = context;
    if (size > to->most - to->n) return false;
    memcpy(to->at + to->n, from, size);
    to->n += size;
    return true;
}

static void must(cellar_status status)
{
    if (status != CELLAR_OK) fail_msg("%s: %s", cellar_status_text(status), error.message);
}

static void expect(cellar_status got, cellar_status expected, const char *says)
{
    assert_int_equal(got, expected);
    if (!strstr(error.message, says)) fail_msg("\"%s\" does not say \"%s\"", error.message, says);
}

static cellar_writer writer_to(bytes *to)
{
    to->n = 0;
    to->most = PART_BYTES;
    return (cellar_writer){add_bytes, to};
}

static cellar_status export_part(world *w, uint64_t entry, uint32_t from, uint32_t to, bytes *out)
{
    const cellar_writer writer = writer_to(out);
    return cellar_library_export(w->library, entry, from, to, &writer, &error);
}

static cellar_status supply(world *w, const bytes *part, uint32_t *n)
{
    return cellar_library_supply(w->library, 0, part->at, part->n, n, &error);
}

/* A world that has read the text, with checkpoints after 32, 64 and 96 tokens: its entry. */
static uint64_t read_text(world *w, world_kind kind, const cellar_prefix_key *key)
{
    world_init(w, kind, 512);
    prefix_world_open(w);
    world_text(text, TEXT, 1);
    (void)world_attach(w, key, 0, text, TEXT);
    for (uint32_t n = 0; n < 96; n += BLOCK)
        world_read(w, 0, text, n, n + BLOCK, true);
    world_read(w, 0, text, 96, TEXT, false);
    return world_retain(w, 0);
}

/* One that is about to read it. */
static void await_text(world *w, world_kind kind, const cellar_prefix_key *key)
{
    world_init(w, kind, 512);
    prefix_world_open(w);
    assert_int_equal(world_attach(w, key, 0, text, TEXT).reused, 0);
}

static void forget_it(world *w)
{
    must(cellar_library_release(w->library, 0, &error));
    must(cellar_remove(w->small.memory, 0, 0, -1, &error));
}

/* All parts of a text that was read: of blocks, or the one beginning. Returns how many. */
static uint32_t make_parts(world *w, uint64_t entry)
{
    if (!cellar_library_divides(w->library)) {
        must(export_part(w, entry, 0, 96, &parts[0]));
        return 1;
    }
    for (uint32_t i = 0; i < 3; i++)
        must(export_part(w, entry, i * BLOCK, (i + 1) * BLOCK, &parts[i]));
    return 3;
}

static void what_one_has_read_another_goes_on_from(void **state)
{
    (void)state;
    for (world_kind kind = WORLD_FULL; kind < WORLD_KINDS; kind++) {
        world a, b;
        uint64_t entry = read_text(&a, kind, &plain);
        const uint32_t n_parts = make_parts(&a, entry);
        assert_int_equal(n_parts, kind == WORLD_FULL ? 3 : 1);
        world_check(&a);
        await_text(&b, kind, &plain);
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_parts; i++)
            must(supply(&b, &parts[i], &n));
        assert_int_equal(n, 96);
        world_expect(&b, 0, text, 96);
        world_read(&b, 0, text, 96, TEXT, false);
        world_expect(&b, 0, text, TEXT);
        world_check(&b);
        /* It is found by others like any other. */
        cellar_prefix told;
        must(cellar_library_find(b.library, &plain, text, TEXT, TEXT, &told, &error));
        assert_int_equal(told.reusable, TEXT);
        assert_true(world_retain(&b, 0) > 0);
        prefix_world_close(&a);
        prefix_world_close(&b);
    }
}

static void a_part_that_overlaps_adds_what_is_new(void **state)
{
    (void)state;
    world a, b;
    uint64_t entry = read_text(&a, WORLD_FULL, &plain);
    (void)make_parts(&a, entry);
    await_text(&b, WORLD_FULL, &plain);
    world_read(&b, 0, text, 0, 40, false);
    uint32_t n = 0;
    must(supply(&b, &parts[0], &n)); /* nothing new in it */
    assert_int_equal(n, 40);
    must(supply(&b, &parts[1], &n));
    assert_int_equal(n, 64);
    world_expect(&b, 0, text, 64);
    prefix_world_close(&a);
    forget_it(&b);
    prefix_world_close(&b);
}

static void a_part_behind_a_gap_is_refused(void **state)
{
    (void)state;
    world a, b;
    uint64_t entry = read_text(&a, WORLD_FULL, &plain);
    (void)make_parts(&a, entry);
    await_text(&b, WORLD_FULL, &plain);
    uint32_t n = 7;
    expect(supply(&b, &parts[1], &n), CELLAR_INVALID, "what is between is missing");
    assert_int_equal(n, 0);
    must(supply(&b, &parts[0], &n));
    world_expect(&b, 0, text, 32);
    prefix_world_close(&a);
    forget_it(&b);
    prefix_world_close(&b);
}

static void another_key_or_text_is_refused(void **state)
{
    (void)state;
    cellar_prefix_key others[2] = {plain, plain};
    others[0].domain = "bob";
    others[0].domain_size = 3;
    others[1].salt = "s";
    others[1].salt_size = 1;
    for (world_kind kind = WORLD_FULL; kind < WORLD_KINDS; kind++) {
        world a, b;
        uint64_t entry = read_text(&a, kind, &plain);
        (void)make_parts(&a, entry);
        for (uint32_t i = 0; i < 2; i++) {
            await_text(&b, kind, &others[i]);
            expect(supply(&b, &parts[0], NULL), CELLAR_MISMATCH, "");
            world_read(&b, 0, text, 0, TEXT, false);
            forget_it(&b);
            prefix_world_close(&b);
        }
        text[20]++;
        await_text(&b, kind, &plain);
        expect(supply(&b, &parts[0], NULL), CELLAR_MISMATCH, "other tokens");
        forget_it(&b);
        prefix_world_close(&b);
        text[20]--;
        await_text(&b, (world_kind)((kind + 1) % WORLD_KINDS), &plain);
        expect(supply(&b, &parts[0], NULL), CELLAR_MISMATCH, "");
        forget_it(&b);
        prefix_world_close(&b);
        prefix_world_close(&a);
    }
}

/* Every 7th byte is changed, and the part cut short there: nothing of it may be believed. */
static void a_damaged_part_changes_nothing(void **state)
{
    (void)state;
    for (world_kind kind = WORLD_FULL; kind < WORLD_KINDS; kind += WORLD_EVERYTHING) {
        world a, b;
        uint64_t entry = read_text(&a, kind, &plain);
        (void)make_parts(&a, entry);
        await_text(&b, kind, &plain);
        bytes *part = &parts[0];
        const size_t size = part->n;
        uint32_t n_harmless = 0;
        for (size_t i = 0; i < size; i += 7) {
            part->at[i] ^= 0x40;
            uint32_t n = 1;
            const cellar_status status = supply(&b, part, &n);
            if (status == CELLAR_OK) { /* the zeros between sections belong to none */
                world_expect(&b, 0, text, n);
                n_harmless++;
                forget_it(&b);
                assert_int_equal(world_attach(&b, &plain, 0, text, TEXT).reused, 0);
            } else {
                assert_true(status == CELLAR_CORRUPT || status == CELLAR_UNSUPPORTED ||
                            status == CELLAR_MISMATCH);
                assert_int_equal(n, 0);
            }
            part->at[i] ^= 0x40;
            part->n = i;
            assert_int_equal(supply(&b, part, &n), CELLAR_CORRUPT);
            part->n = size;
        }
        world_check(&b);
        assert_true(n_harmless * 7 < 64 * 8);
        uint32_t n;
        must(supply(&b, part, &n));
        world_expect(&b, 0, text, n);
        forget_it(&b);
        prefix_world_close(&b);
        prefix_world_close(&a);
    }
}

static void what_cannot_be_exported_is_said(void **state)
{
    (void)state;
    world a;
    uint64_t entry = read_text(&a, WORLD_HYBRID, &plain);
    bytes *to = &parts[0];
    expect(export_part(&a, entry + 9, 0, 32, to), CELLAR_NOT_FOUND, "no entry");
    expect(export_part(&a, entry, 0, TEXT + 1, to), CELLAR_INVALID, "has read 100");
    expect(export_part(&a, entry, 32, 32, to), CELLAR_INVALID, "");
    expect(export_part(&a, entry, 32, 64, to), CELLAR_INVALID, "begins at 0");
    expect(export_part(&a, entry, 0, 70, to), CELLAR_REFUSED, "but after 64");
    assert_int_equal(error.at, 64);
    const cellar_writer writer = writer_to(to);
    to->most = 1000; /* its store is full */
    expect(cellar_library_export(a.library, entry, 0, 64, &writer, &error), CELLAR_IO, "");
    world_check(&a);
    must(export_part(&a, entry, 0, 64, to));
    must(cellar_library_evict(a.library, entry, &error)); /* there is no store: it is gone */
    expect(export_part(&a, entry, 0, 64, to), CELLAR_NOT_FOUND, "");
    expect(supply(&a, to, NULL), CELLAR_INVALID, "not running");
    prefix_world_close(&a);
}

static void keys_are_equal_when_their_bytes_are(void **state)
{
    (void)state;
    world a;
    world_init(&a, WORLD_FULL, 64);
    prefix_world_open(&a);
    cellar_prefix_key keys[6] = {plain, plain, plain, plain, plain, plain};
    keys[1].domain = keys[2].salt = keys[3].domain = "ab";
    keys[1].domain_size = keys[2].salt_size = 2;
    keys[3].domain_size = 1;
    keys[3].salt = "b";
    keys[3].salt_size = 1;
    keys[4].is_shared = true;
    const cellar_note fact = {"adapter", "ab", 2};
    keys[5].facts = &fact;
    keys[5].n_facts = 1;
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t j = 0; j < 6; j++) {
            cellar_writer writer = writer_to(&parts[0]);
            must(cellar_library_write_key(a.library, &keys[i], &writer, &error));
            writer = writer_to(&parts[1]);
            must(cellar_library_write_key(a.library, &keys[j], &writer, &error));
            const bool is_same = parts[0].n == parts[1].n &&
                                 memcmp(parts[0].at, parts[1].at, parts[0].n) == 0;
            assert_int_equal(is_same, i == j);
        }
    prefix_world_close(&a);
}

static void a_part_makes_room_for_itself(void **state)
{
    (void)state;
    world a, b;
    uint64_t entry = read_text(&a, WORLD_FULL, &plain);
    (void)make_parts(&a, entry);
    world_init(&b, WORLD_FULL, 128);
    prefix_world_open(&b);
    static cellar_token other[TEXT];
    world_text(other, TEXT, 900);
    (void)world_serve(&b, &plain, 0, other, TEXT); /* 100 of 128 cells */
    (void)world_attach(&b, &plain, 0, text, TEXT);
    uint32_t n = 0;
    must(supply(&b, &parts[0], &n));
    assert_int_equal(n, 32);
    assert_int_equal(world_stats(&b).n_evicted, 1);
    world_expect(&b, 0, text, 32);
    forget_it(&b);
    prefix_world_close(&b);
    prefix_world_close(&a);
}

static void without_memory_nothing_changes(void **state)
{
    (void)state;
    for (world_kind kind = WORLD_FULL; kind < WORLD_KINDS; kind += WORLD_EVERYTHING) {
        world a, b;
        uint64_t entry = read_text(&a, kind, &plain);
        (void)make_parts(&a, entry);
        faulty_allocations_left = -1;
        world_init(&b, kind, 512);
        b.small.config.allocator = b.config.allocator = faulty_allocator();
        prefix_world_open(&b);
        (void)world_attach(&b, &plain, 0, text, TEXT);
        uint32_t n = 0;
        cellar_status status = CELLAR_NO_MEMORY;
        for (int64_t left = 0; status != CELLAR_OK; left++) {
            faulty_allocations_left = left;
            status = supply(&b, &parts[0], &n);
            faulty_allocations_left = -1;
            assert_true(status == CELLAR_OK || status == CELLAR_NO_MEMORY);
            assert_true(status == CELLAR_OK || n == 0);
            world_check(&b);
        }
        world_expect(&b, 0, text, n);
        entry = world_retain(&b, 0);
        status = CELLAR_NO_MEMORY;
        for (int64_t left = 0; status != CELLAR_OK; left++) {
            faulty_allocations_left = left;
            status = export_part(&b, entry, 0, n, &parts[1]);
            faulty_allocations_left = -1;
            assert_true(status == CELLAR_OK || status == CELLAR_NO_MEMORY);
            world_check(&b);
        }
        prefix_world_close(&b);
        prefix_world_close(&a);
    }
}

int main(void)
{
    plain = cellar_prefix_key_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_has_read_another_goes_on_from),
        cmocka_unit_test(a_part_that_overlaps_adds_what_is_new),
        cmocka_unit_test(a_part_behind_a_gap_is_refused),
        cmocka_unit_test(another_key_or_text_is_refused),
        cmocka_unit_test(a_damaged_part_changes_nothing),
        cmocka_unit_test(what_cannot_be_exported_is_said),
        cmocka_unit_test(keys_are_equal_when_their_bytes_are),
        cmocka_unit_test(a_part_makes_room_for_itself),
        cmocka_unit_test(without_memory_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
