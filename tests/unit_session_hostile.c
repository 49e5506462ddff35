/*
 * unit_session_hostile.c: session files that are cut short or changed in a byte.
 *
 * Each is opened and loaded with little memory left, from a block that ends where the file ends. It has to
 * be refused, or to do no harm: a refusal has changed nothing that can be seen, and what was loaded is
 * sound. Bytes are changed twice: as they are, which a checksum has to notice, and with all checksums
 * made right again, so that the checks behind them are reached. The good file still loads afterwards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_session_case.h"

static void expect_good_file(session_case *c)
{
    cellar_status status = case_try(c, c->file.bytes, c->file.size);
    if (status != CELLAR_OK) fail_msg("%s: %s", case_names[c->shape], c->error.message);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (case_shape shape = 0; shape < CASE_SHAPES; shape++) {
        session_case c;
        case_open(&c, shape);
        expect_good_file(&c);
        for (size_t n = 0; n < c.file.size; n++)
            if (case_try(&c, c.file.bytes, n) != CELLAR_CORRUPT)
                fail_msg("%s: %zu of %zu bytes: %s", case_names[shape], n, c.file.size,
                         c.error.message);
        case_expect_unchanged(&c, "prefixes");
        expect_good_file(&c);
        case_close(&c);
    }
}

/* What a byte becomes. */
static const unsigned char changes[] = {0x01, 0x80, 0xff, 0x10};
enum { CHANGES = sizeof changes };

static void every_changed_byte_is_noticed(void **state)
{
    (void)state;
    for (case_shape shape = 0; shape < CASE_SHAPES; shape++) {
        session_case c;
        case_open(&c, shape);
        unsigned char *bytes = c.file.bytes;
        uint32_t n_padding = 0;
        for (size_t at = 0; at < c.file.size; at++) {
            bytes[at] ^= changes[at % CHANGES];
            n_padding += case_try(&c, bytes, c.file.size) == CELLAR_OK;
            bytes[at] ^= changes[at % CHANGES];
        }
        case_expect_unchanged(&c, "single bytes");
        /* Only what fills up to the next section is nobody's. */
        uint32_t n_nobodys = 0;
        uint64_t end = 256;
        for (uint32_t i = 0; i < parcel_entries(&c.file); i++) {
            cl_session_entry entry = parcel_entry(&c.file, i, NULL);
            n_nobodys += (uint32_t)(entry.offset - end);
            end = entry.offset + entry.length;
        }
        n_nobodys += (uint32_t)(cl_get_u64(c.file.bytes + 80) - end);
        assert_int_equal(n_padding, n_nobodys);
        expect_good_file(&c);
        case_close(&c);
    }
}

/* All checksums are right: whatever stands there has to be refused for what it says, or be harmless. */
static void change_and_seal(session_case *c, size_t at, unsigned char with)
{
    parcel copy = {parcel_exact(c->file.bytes, c->file.size), c->file.size, c->file.size};
    copy.bytes[at] ^= with;
    if (at >= 256 && at < cl_get_u64(copy.bytes + 80))
        parcel_seal(&copy);
    else
        parcel_seal_outside(&copy);
    if (case_try(c, copy.bytes, copy.size) != CELLAR_OK && at % 16 == 0) {
        char what[40];
        snprintf(what, sizeof what, "byte %zu ^ %u", at, with);
        case_expect_unchanged(c, what);
    }
    parcel_free(&copy);
}

static bool is_row(const parcel *file, size_t at)
{
    for (uint32_t i = 0; i < parcel_entries(file); i++) {
        cl_session_entry entry = parcel_entry(file, i, NULL);
        if (entry.kind == CL_SESSION_ROWS && at >= entry.offset && at < entry.offset + entry.length)
            return true;
    }
    return false;
}

static void changed_bytes_with_right_checksums_do_no_harm(void **state)
{
    (void)state;
    for (case_shape shape = 0; shape < CASE_SHAPES; shape++) {
        session_case c;
        case_open(&c, shape);
        uint64_t index = cl_get_u64(c.file.bytes + 80);
        for (size_t at = 0; at < c.file.size; at++) {
            /* What says where the index is, or is a checksum itself, is not sealed but damaged: done above. */
            bool is_commit = at >= 64 && at < 128;
            if (is_commit || at >= c.file.size - 8 || is_row(&c.file, at)) continue;
            if (at >= index + 8 && (at - index - 8) % 40 >= 16 && (at - index - 8) % 40 < 32)
                continue; /* where a section lies: unit_session_fields.c */
            for (uint32_t i = 0; i < CHANGES; i++)
                change_and_seal(&c, at, changes[i]);
        }
        case_expect_unchanged(&c, "sealed bytes");
        assert_true(c.n_refused > 1000 && c.n_loaded > 10);
        expect_good_file(&c);
        case_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_changed_byte_is_noticed),
        cmocka_unit_test(changed_bytes_with_right_checksums_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
