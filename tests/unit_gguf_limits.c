/*
 * unit_gguf_limits.c: the GGUF reader's limits: what is just too long, too many or given twice is
 * refused where it stands, and the largest that is allowed is read.
 *
 * These are bad files of a structure of their own; single fields with bad values are
 * unit_gguf_bad.c's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf.h"
#include "gguf_writer.h"
#include "support_gguf.h"

/* Finish the writer's file and expect a refusal. */
static void expect_refused(gguf_writer *writer, cellar_status status, size_t at, const char *word)
{
    size_t size = 0;
    unsigned char *bytes = gguf_writer_finish(writer, &size);
    assert_true(support_gguf_is_refused(word, bytes, size, status, at, word));
    free(bytes);
    gguf_writer_destroy(writer);
}

static void an_alignment_given_twice_support_gguf_is_refused(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_set_alignment(writer, 32);
    expect_refused(writer, CELLAR_CORRUPT, gguf_writer_set_alignment(writer, 64),
                   "general.alignment");
}

static void an_alignment_of_another_size_of_type_support_gguf_is_refused(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create(3);
    const size_t value = 8 + 17 + 4;
    size_t at = gguf_writer_add_raw(writer, "general.alignment", 17, GGUF_UINT64, (uint64_t[]){32},
                                    8);
    expect_refused(writer, CELLAR_CORRUPT, at + value, "uint64");
    writer = gguf_writer_create(3);
    at = gguf_writer_add_string(writer, "general.alignment", "32");
    expect_refused(writer, CELLAR_CORRUPT, at + value, "string");
    writer = gguf_writer_create(3);
    at = gguf_writer_add_array(writer, "general.alignment", GGUF_UINT32, 1, (uint32_t[]){32}, 4);
    expect_refused(writer, CELLAR_CORRUPT, at + value, "array");
}

static void names_that_are_too_long_are_refused_and_the_longest_is_read(void **state)
{
    (void)state;
    char *name = malloc(65537);
    assert_non_null(name);
    memset(name, 'k', 65536);
    name[65536] = '\0';
    gguf_writer *writer = gguf_writer_create(3);
    size_t at = gguf_writer_add_raw(writer, name, 65536, GGUF_UINT8, "1", 1);
    expect_refused(writer, CELLAR_CORRUPT, at, "65536 bytes");
    writer = gguf_writer_create(3);
    at = gguf_writer_add_description(writer, name, 65, 0, 1, (uint64_t[]){1}, 0);
    gguf_writer_add_data(writer, 4);
    expect_refused(writer, CELLAR_CORRUPT, at, "65 bytes");

    writer = gguf_writer_create(3);
    gguf_writer_add_raw(writer, name, 65535, GGUF_UINT8, "1", 1);
    gguf_writer_add_description(writer, name, 64, 0, 1, (uint64_t[]){1}, 0);
    gguf_writer_add_data(writer, 4);
    size_t size = 0;
    unsigned char *bytes = gguf_writer_finish(writer, &size);
    gguf_file *file = NULL;
    assert_int_equal(gguf_open_memory(bytes, size, &file, NULL), CELLAR_OK);
    name[65535] = '\0';
    assert_non_null(gguf_find_value(file, name));
    name[64] = '\0';
    assert_non_null(gguf_find_tensor(file, name));
    gguf_close(file);
    gguf_writer_destroy(writer);
    free(bytes);
    free(name);
}

/* A header that promises n keys or tensors, and `size` zero bytes behind it. */
static void expect_many_refused(uint64_t n_tensors, uint64_t n_values, size_t size,
                                cellar_status status, size_t at, const char *word)
{
    unsigned char *bytes = calloc(1, size);
    assert_non_null(bytes);
    memcpy(bytes, "GGUF", 4);
    gguf_writer_patch(bytes, 4, 4, 3);
    gguf_writer_patch(bytes, 8, 8, n_tensors);
    gguf_writer_patch(bytes, 16, 8, n_values);
    assert_true(support_gguf_is_refused(word, bytes, size, status, at, word));
    free(bytes);
}

static void a_million_keys_or_tensors_are_refused_at_once(void **state)
{
    (void)state;
    const uint64_t million = 1000000;
    /* an empty key with a uint8 takes 13 bytes: less than any real key */
    expect_many_refused(0, million, 24 + 13 * million, CELLAR_CORRUPT, 16, "n_kv");
    expect_many_refused(0, million, 24 + 16 * million, CELLAR_UNSUPPORTED, 16, "at most 65536");
    expect_many_refused(million, 0, 24 + 40 * million, CELLAR_UNSUPPORTED, 8, "at most 65536");
    expect_many_refused(0, 65536, 24 + 16 * 65536, CELLAR_CORRUPT, 24, "key 0");
    expect_many_refused(0, 65537, 24 + 16 * 65537, CELLAR_UNSUPPORTED, 16, "n_kv");
    expect_many_refused(65537, 0, 24 + 40 * 65537, CELLAR_UNSUPPORTED, 8, "n_tensors");
}

static void arrays_beyond_the_limits_are_refused_before_anything_is_made_for_them(void **state)
{
    (void)state;
    const size_t most = 16u << 20, most_strings = 4u << 20;
    unsigned char *zeros = calloc(most_strings + 1, 8);
    assert_non_null(zeros);
    gguf_writer *writer = gguf_writer_create(3);
    size_t at = gguf_writer_add_array(writer, "numbers", GGUF_INT8, most + 1, zeros, most + 1);
    expect_refused(writer, CELLAR_UNSUPPORTED, at + 8 + 7 + 8, "array count");
    writer = gguf_writer_create(3);
    at = gguf_writer_add_array(writer, "words", GGUF_STRING, most_strings + 1, zeros,
                               8 * (most_strings + 1));
    expect_refused(writer, CELLAR_UNSUPPORTED, at + 8 + 5 + 4, "strings");
    free(zeros);
}

/* A file that is as large as the tables can get: keys, tensors, and strings in one array. */
static unsigned char *largest_file;
static size_t largest_size;

static int open_largest_file(void)
{
    gguf_file *file = NULL;
    if (gguf_open_memory(largest_file, largest_size, &file, NULL) != CELLAR_OK) return 1;
    const gguf_value *words = gguf_find_value(file, "words");
    const bool is_whole = words != NULL && words->count == 4u << 20 &&
                          gguf_count_values(file) == 65536 && gguf_count_tensors(file) == 65536;
    gguf_close(file);
    return is_whole ? 0 : 2;
}

static void the_largest_file_that_is_allowed_needs_less_than_96_mib(void **state)
{
    (void)state;
    const size_t most_strings = 4u << 20;
    unsigned char *zeros = calloc(most_strings, 8);
    assert_non_null(zeros);
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_set_alignment(writer, 8);
    gguf_writer_add_array(writer, "words", GGUF_STRING, most_strings, zeros, 8 * most_strings);
    char name[32];
    for (unsigned i = 2; i < 65536; i++) {
        snprintf(name, sizeof name, "key %u", i);
        gguf_writer_add_u32(writer, name, i);
    }
    for (unsigned i = 0; i < 65536; i++) {
        snprintf(name, sizeof name, "tensor %u", i);
        gguf_writer_add_tensor(writer, name, 24, 1, (uint64_t[]){1}, NULL, 1);
    }
    largest_file = gguf_writer_finish(writer, &largest_size);
    gguf_writer_destroy(writer);
    free(zeros);
    assert_int_equal(open_largest_file(), 0);
    const int code = support_gguf_in_little_memory(96u << 20, open_largest_file);
    free(largest_file);
    if (code < 0) {
        print_message("skipped: sanitizers and valgrind take address space of their own\n");
        skip();
    }
    assert_int_equal(code, 0);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    gguf_file *file = NULL;
    cellar_error error;
    assert_int_equal(gguf_open(NULL, &file, &error), CELLAR_INVALID);
    assert_int_equal(gguf_open("x", NULL, &error), CELLAR_INVALID);
    assert_int_equal(gguf_load(NULL, &file, NULL), CELLAR_INVALID);
    assert_int_equal(gguf_open_memory(NULL, 100, &file, &error), CELLAR_INVALID);
    assert_int_equal(gguf_open_memory(&error, sizeof error, NULL, &error), CELLAR_INVALID);
    /* Tensors are read in place, so the bytes have to be aligned for every element. */
    uint64_t words[8] = {0};
    const char *misaligned = (const char *)words + 1;
    assert_int_equal(gguf_open_memory(misaligned, 24, &file, &error), CELLAR_INVALID);
    assert_null(file);
    gguf_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_alignment_given_twice_support_gguf_is_refused),
        cmocka_unit_test(an_alignment_of_another_size_of_type_support_gguf_is_refused),
        cmocka_unit_test(names_that_are_too_long_are_refused_and_the_longest_is_read),
        cmocka_unit_test(a_million_keys_or_tensors_are_refused_at_once),
        cmocka_unit_test(arrays_beyond_the_limits_are_refused_before_anything_is_made_for_them),
        cmocka_unit_test(the_largest_file_that_is_allowed_needs_less_than_96_mib),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
