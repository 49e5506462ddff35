/*
 * unit_prefix_keys.c: what belongs to the key of a prefix, and what the prefix library refuses.
 *
 * Equal tokens are reused under an equal key only: S24 as a table. Wrong arguments and configurations
 * are refused with a message that says which, and change nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_prefix.h"

static cellar_prefix_key plain;
static cellar_error error;

static void expect(cellar_status got, cellar_status expected, const char *text)
{
    assert_int_equal(got, expected);
    if (!strstr(error.message, text)) fail_msg("\"%s\" does not say \"%s\"", error.message, text);
}

/* ---- keys -------------------------------------------------------------------------------------- */

static cellar_note note(const char *name, const char *value)
{
    return (cellar_note){name, value, strlen(value)};
}

static void everything_that_rows_depend_on_belongs_to_the_key(void **state) /* S24 */
{
    (void)state;
    world w;
    cellar_token text[65];
    world_init(&w, WORLD_FULL, 2048);
    prefix_world_open(&w);
    world_text(text, 65, 1);
    cellar_note a1[] = {note("adapter", "a@hash1"), note("scale", "1.0")};
    cellar_note a2[] = {note("adapter", "a@hash1"), note("scale", "0.5")};
    cellar_note a3[] = {note("adapter", "a@hash2"), note("scale", "1.0")};
    cellar_note turned[] = {note("scale", "1.0"), note("adapter", "a@hash1")};
    cellar_note named[] = {note("adapter", "t1")};
    cellar_note image[] = {note("image", "hash1")};
    cellar_note other_image[] = {note("image", "hash2")};
    cellar_note tenant_fact[] = {note("domain", "t1")};
    struct {
        cellar_note *facts;
        uint32_t n_facts;
        const char *domain, *salt;
        bool is_shared;
    } keys[] = {
        {NULL, 0, "t0", "", false},  {a1, 2, "t0", "", false},
        {a2, 2, "t0", "", false},    {a3, 2, "t0", "", false},
        {NULL, 0, "t1", "", false},  {named, 1, "", "", false},
        {image, 1, "t0", "", false}, {other_image, 1, "t0", "", false},
        {NULL, 0, "", "t1", false},  {NULL, 0, "t1", "t1", false},
        {NULL, 0, "", "", false},    {tenant_fact, 1, "", "", false},
        {NULL, 0, "t0", "", true},   {NULL, 0, "", "t1", true},
    };
    cellar_prefix_key made[sizeof keys / sizeof *keys];
    for (uint32_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        made[i] = cellar_prefix_key_init();
        made[i].facts = keys[i].facts;
        made[i].n_facts = keys[i].n_facts;
        made[i].domain = keys[i].domain;
        made[i].domain_size = strlen(keys[i].domain);
        made[i].salt = keys[i].salt;
        made[i].salt_size = strlen(keys[i].salt);
        made[i].is_shared = keys[i].is_shared;
        cellar_prefix told = world_serve(&w, &made[i], 0, text, 65);
        assert_int_equal(told.reused, 0);
        assert_int_equal(told.reason,
                         CELLAR_PREFIX_COLD); /* also that others have it is not told */
    }
    for (uint32_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        cellar_prefix told = world_attach(&w, &made[i], 0, text, 65);
        assert_int_equal(told.reused, 64);
        expect(cellar_library_release(w.library, 0, &error), CELLAR_OK, "");
        expect(cellar_remove(w.small.memory, 0, 0, -1, &error), CELLAR_OK, "");
    }
    made[1].facts = turned; /* the order of facts does not count */
    assert_int_equal(world_attach(&w, &made[1], 0, text, 65).reused, 64);
    made[12].domain = "somebody"; /* nor does the domain of what is shared */
    made[12].domain_size = 8;
    assert_int_equal(world_attach(&w, &made[12], 1, text, 65).reused, 64);
    prefix_world_close(&w);
}

static void other_domains_are_told_of_only_if_asked_for(void **state)
{
    (void)state;
    world w;
    cellar_token text[30];
    world_init(&w, WORLD_FULL, 256);
    w.config.does_tell_domains = true;
    prefix_world_open(&w);
    world_text(text, 30, 1);
    cellar_prefix_key mine = plain, theirs = plain;
    mine.domain = "a";
    theirs.domain = "b";
    mine.domain_size = theirs.domain_size = 1;
    (void)world_serve(&w, &theirs, 0, text, 30);
    cellar_prefix told = world_attach(&w, &mine, 0, text, 30);
    assert_int_equal(told.matched, 0);
    assert_int_equal(told.reused, 0);
    assert_int_equal(told.entry, 0);
    assert_int_equal(told.reason, CELLAR_PREFIX_OTHER_DOMAIN);
    assert_int_equal(world_stats(&w).by_reason[CELLAR_PREFIX_OTHER_DOMAIN], 1);
    prefix_world_close(&w);
}

/* ---- refusals ---------------------------------------------------------------------------------- */

static void wrong_arguments_are_refused_and_change_nothing(void **state)
{
    (void)state;
    world w;
    cellar_token text[10], unknown[2] = {5, -1};
    cellar_prefix told;
    world_init(&w, WORLD_FULL, 64);
    prefix_world_open(&w);
    world_text(text, 10, 1);
    cellar_library *l = w.library;
    cellar_prefix_key key = plain;
    expect(cellar_library_attach(NULL, &key, 0, text, 10, 9, &told, &error), CELLAR_INVALID,
           "NULL");
    expect(cellar_library_attach(l, NULL, 0, text, 10, 9, &told, &error), CELLAR_INVALID, "key");
    expect(cellar_library_attach(l, &key, -1, text, 10, 9, &told, &error), CELLAR_INVALID, "names");
    expect(cellar_library_attach(l, &key, 1 << 30, text, 10, 9, &told, &error), CELLAR_INVALID,
           "names");
    expect(cellar_library_attach(l, &key, 0, NULL, 10, 9, &told, &error), CELLAR_INVALID, "tokens");
    expect(cellar_library_attach(l, &key, 0, unknown, 2, 1, &told, &error), CELLAR_INVALID,
           "unknown");
    assert_int_equal(error.at, 1);
    expect(cellar_library_attach(l, &key, 0, text, 10, 9, NULL, &error), CELLAR_INVALID, "out");
    key.struct_size = 1;
    expect(cellar_library_find(l, &key, text, 10, 9, &told, &error), CELLAR_INVALID, "struct_size");
    key = plain;
    key.salt_size = 5000;
    expect(cellar_library_find(l, &key, text, 10, 9, &told, &error), CELLAR_INVALID, "salt");
    cellar_note reserved[] = {note("prefix.salt", "x")};
    key = plain;
    key.facts = reserved;
    key.n_facts = 1;
    expect(cellar_library_find(l, &key, text, 10, 9, &told, &error), CELLAR_INVALID, "prefix.salt");
    expect(cellar_library_extend(l, 0, text, 1, &error), CELLAR_INVALID, "not running");
    expect(cellar_library_cut(l, 0, 0, &error), CELLAR_INVALID, "not running");
    expect(cellar_library_retain(l, 0, NULL, &error), CELLAR_INVALID, "not running");
    expect(cellar_library_release(l, 0, &error), CELLAR_INVALID, "not running");
    expect(cellar_library_pin(l, 9, true, &error), CELLAR_NOT_FOUND, "entry 9");
    expect(cellar_library_drop(l, 9, &error), CELLAR_NOT_FOUND, "entry 9");
    expect(cellar_library_persist(l, 1, NULL, &error), CELLAR_UNSUPPORTED, "folder");
    expect(cellar_library_make_room(l, 1, 1, &error), CELLAR_INVALID, "pool 1");
    assert_int_equal(world_stats(&w).n_entries, 0);

    told = world_attach(&w, &plain, 0, text, 10);
    expect(cellar_library_attach(l, &plain, 0, text, 10, 9, &told, &error), CELLAR_INVALID,
           "running already");
    expect(cellar_library_extend(l, 0, NULL, 5, &error), CELLAR_INVALID, "goes on at position 0");
    expect(cellar_library_extend(l, 0, NULL, 11, &error), CELLAR_INVALID, "say which");
    world_read(&w, 0, text, 0, 5, false);
    expect(cellar_library_cut(l, 0, 6, &error), CELLAR_INVALID, "has read 5");
    expect(cellar_remove(w.small.memory, 0, 3, -1, &error), CELLAR_OK, "");
    expect(cellar_library_retain(l, 0, NULL, &error), CELLAR_INVALID, "cut it");
    expect(cellar_library_cut(l, 0, 3, &error), CELLAR_OK, "");
    small_read(&w.small, 5, 1);
    expect(cellar_library_attach(l, &plain, 5, text, 10, 9, &told, &error), CELLAR_INVALID,
           "holds something");
    small_begin(&w.small, 6, 1);
    expect(cellar_library_attach(l, &plain, 7, text, 10, 9, &told, &error), CELLAR_BUSY, "");
    expect(cellar_library_retain(l, 0, NULL, &error), CELLAR_BUSY, "");
    expect(cellar_library_find(l, &plain, text, 10, 9, &told, &error), CELLAR_OK, "");
    assert_int_equal(told.reusable, 3);
    cellar_abort(w.small.memory);
    world_retain(&w, 0);
    prefix_world_close(&w);
}

static void configurations_are_checked(void **state)
{
    (void)state;
    small_memory small;
    cellar_library *library = (cellar_library *)&small;
    small_init(&small, 64);
    small_add_attention(&small, 0)->is_external = true;
    small_open(&small);
    cellar_library_config config = cellar_library_config_init();
    expect(cellar_library_create(NULL, &config, &library, &error), CELLAR_INVALID, "NULL");
    assert_null(library);
    expect(cellar_library_create(small.memory, NULL, &library, &error), CELLAR_INVALID, "config");
    config.struct_size = 0;
    expect(cellar_library_create(small.memory, &config, &library, &error), CELLAR_INVALID, "init");
    config = cellar_library_config_init();
    config.n_entries = 0;
    expect(cellar_library_create(small.memory, &config, &library, &error), CELLAR_INVALID,
           "n_entries");
    config = cellar_library_config_init();
    config.index_bytes = 100;
    expect(cellar_library_create(small.memory, &config, &library, &error), CELLAR_INVALID,
           "index_bytes");
    config = cellar_library_config_init();
    config.ram_bytes = 1;
    expect(cellar_library_create(small.memory, &config, &library, &error), CELLAR_UNSUPPORTED,
           "external");
    config = cellar_library_config_init();
    cellar_note twice[] = {note("a", "1"), note("a", "2")};
    config.facts = twice;
    config.n_facts = 2;
    expect(cellar_library_create(small.memory, &config, &library, &error), CELLAR_INVALID, "twice");
    assert_null(library);
    cellar_library_destroy(NULL);
    small_close(&small);
}

static void everything_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(cellar_prefix_source_text(CELLAR_PREFIX_FROM_RAM), "ram");
    assert_string_equal(cellar_prefix_reason_text(CELLAR_PREFIX_WINDOW_LOST), "window-lost");
    for (int i = 0; i < CELLAR_PREFIX_N_REASONS; i++)
        assert_string_not_equal(cellar_prefix_reason_text((cellar_prefix_reason)i), "unknown");
    for (int i = 0; i < CELLAR_PREFIX_N_SOURCES; i++)
        assert_string_not_equal(cellar_prefix_source_text((cellar_prefix_source)i), "unknown");
    assert_string_equal(cellar_prefix_reason_text(CELLAR_PREFIX_N_REASONS), "unknown");
    assert_string_equal(cellar_prefix_source_text(CELLAR_PREFIX_N_SOURCES), "unknown");
}

int main(void)
{
    plain = cellar_prefix_key_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_that_rows_depend_on_belongs_to_the_key),
        cmocka_unit_test(other_domains_are_told_of_only_if_asked_for),
        cmocka_unit_test(wrong_arguments_are_refused_and_change_nothing),
        cmocka_unit_test(configurations_are_checked),
        cmocka_unit_test(everything_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
