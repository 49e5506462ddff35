/*
 * unit_gguf.c: the GGUF reader reads what is in a file: values of every type, tensors, both
 * versions, large tables, the files that this project is tested with; and files whose owner does
 * something to them meanwhile.
 *
 * What it refuses is unit_gguf_bad.c's.
 */
#define _XOPEN_SOURCE 700

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/gguf.h"
#include "gguf_writer.h"
#include "support_gguf.h"

/* ---- helpers -------------------------------------------------------------------------------- */

/* A file that was opened from memory, with its bytes. */
typedef struct opened {
    gguf_file *file;
    unsigned char *bytes;
} opened;

/* Finish and free the writer; the file must open. */
static opened open_written(gguf_writer *writer)
{
    opened result;
    size_t size = 0;
    result.bytes = gguf_writer_finish(writer, &size);
    gguf_writer_destroy(writer);
    cellar_error error = {.status = CELLAR_OK, .at = -1};
    if (gguf_open_memory(result.bytes, size, &result.file, &error) != CELLAR_OK)
        print_error("%s\n", error.message);
    assert_non_null(result.file);
    return result;
}

static void close_written(opened it)
{
    gguf_close(it.file);
    free(it.bytes);
}

static bool is_text(gguf_string string, const char *text)
{
    return string.length == strlen(text) && memcmp(string.data, text, string.length) == 0;
}

/* A folder for a test's files, removed with remove_folder. */
static char folder[512];

static int make_folder(void **state)
{
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/gguf.XXXXXX", parent != NULL ? parent : P_tmpdir);
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *path_of(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* ---- values --------------------------------------------------------------------------------- */

static opened open_values(void)
{
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_raw(writer, "uint8", 5, GGUF_UINT8, "\xff", 1);
    gguf_writer_add_raw(writer, "int8", 4, GGUF_INT8, "\xff", 1);
    gguf_writer_add_raw(writer, "uint16", 6, GGUF_UINT16, "\xfe\xff", 2);
    gguf_writer_add_raw(writer, "int16", 5, GGUF_INT16, "\xfe\xff", 2);
    gguf_writer_add_u32(writer, "uint32", UINT32_MAX);
    gguf_writer_add_raw(writer, "int32", 5, GGUF_INT32, "\x15\xcd\x5b\x07", 4);
    gguf_writer_add_raw(writer, "uint64", 6, GGUF_UINT64, "\x07\0\0\0\0\0\0\0", 8);
    gguf_writer_add_raw(writer, "large", 5, GGUF_UINT64, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    gguf_writer_add_raw(writer, "int64", 5, GGUF_INT64, "\0\0\0\0\x01\0\0\0", 8);
    gguf_writer_add_float(writer, "float32", -0.5F);
    gguf_writer_add_raw(writer, "float64", 7, GGUF_FLOAT64, "\0\0\0\0\0\0\xf4\x3f", 8);
    gguf_writer_add_bool(writer, "bool", true);
    gguf_writer_add_string(writer, "string", "a \xff b");
    gguf_writer_add_string(writer, "empty", "");
    gguf_writer_add_strings(writer, "strings", 3, (const char *const[]){"x", "", "zz"});
    gguf_writer_add_array(writer, "none", GGUF_FLOAT32, 0, NULL, 0);
    gguf_writer_add_strings(writer, "no strings", 0, NULL);
    gguf_writer_add_array(writer, "int16s", GGUF_INT16, 2, "\x01\x00\xff\xff", 4);
    gguf_writer_add_array(writer, "one", GGUF_UINT32, 1, "\x01\0\0\0", 4);
    gguf_writer_add_array(writer, "bools", GGUF_BOOL, 2, "\0\x01", 2);
    return open_written(writer);
}

static void integers_of_every_type_are_read_if_they_fit(void **state)
{
    (void)state;
    const opened it = open_values();
    static const struct {
        const char *key;
        uint32_t value;
    } fits[] = {{"uint8", 255},
                {"uint16", 65534},
                {"uint32", UINT32_MAX},
                {"int32", 123456789},
                {"uint64", 7}};
    cellar_error error;
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++) {
        uint32_t number = 0;
        assert_int_equal(gguf_get_u32(it.file, fits[i].key, &number, &error), CELLAR_OK);
        assert_int_equal(number, fits[i].value);
    }
    static const char *const does_not_fit[] = {"int8", "int16", "large", "int64"};
    for (size_t i = 0; i < sizeof does_not_fit / sizeof *does_not_fit; i++) {
        uint32_t number = 42;
        assert_int_equal(gguf_get_u32(it.file, does_not_fit[i], &number, &error), CELLAR_CORRUPT);
        assert_int_equal(number, 42);
        assert_non_null(strstr(error.message, does_not_fit[i]));
        assert_int_equal(error.at, gguf_find_value(it.file, does_not_fit[i])->offset);
    }
    assert_int_equal(gguf_integer_at(gguf_find_value(it.file, "int8"), 0), -1);
    assert_int_equal(gguf_integer_at(gguf_find_value(it.file, "int16"), 0), -2);
    assert_true(gguf_integer_at(gguf_find_value(it.file, "int64"), 0) == 1ll << 32);
    assert_true(gguf_integer_at(gguf_find_value(it.file, "large"), 0) == INT64_MAX);
    close_written(it);
}

static void floats_bools_and_strings_are_read(void **state)
{
    (void)state;
    const opened it = open_values();
    double number = 0;
    bool flag = false;
    gguf_string text;
    assert_int_equal(gguf_get_float(it.file, "float32", &number, NULL), CELLAR_OK);
    assert_true(number == -0.5);
    assert_int_equal(gguf_get_float(it.file, "float64", &number, NULL), CELLAR_OK);
    assert_true(number == 1.25);
    assert_int_equal(gguf_get_bool(it.file, "bool", &flag, NULL), CELLAR_OK);
    assert_true(flag);
    assert_int_equal(gguf_get_string(it.file, "string", &text, NULL), CELLAR_OK);
    assert_true(is_text(text, "a \xff b"));
    assert_int_equal(gguf_get_string(it.file, "empty", &text, NULL), CELLAR_OK);
    assert_int_equal(text.length, 0);
    close_written(it);
}

static void arrays_are_read_element_by_element(void **state)
{
    (void)state;
    const opened it = open_values();
    const gguf_value *value = NULL;
    assert_int_equal(gguf_get_array(it.file, "strings", GGUF_STRING, 3, &value, NULL), CELLAR_OK);
    assert_true(is_text(value->strings[0], "x"));
    assert_true(is_text(value->strings[1], ""));
    assert_true(is_text(value->strings[2], "zz"));
    assert_int_equal(gguf_get_array(it.file, "none", GGUF_FLOAT32, 0, &value, NULL), CELLAR_OK);
    assert_int_equal(value->count, 0);
    assert_int_equal(gguf_get_array(it.file, "no strings", GGUF_STRING, 0, &value, NULL),
                     CELLAR_OK);
    assert_int_equal(value->count, 0);
    assert_int_equal(gguf_get_array(it.file, "int16s", GGUF_INT16, 2, &value, NULL), CELLAR_OK);
    assert_int_equal(gguf_integer_at(value, 0), 1);
    assert_int_equal(gguf_integer_at(value, 1), -1);
    assert_true(gguf_number_at(value, 1) == -1.0);
    close_written(it);
}

static void a_value_of_another_type_is_refused_by_name(void **state)
{
    (void)state;
    const opened it = open_values();
    static const char *const no_integers[] = {"float32", "float64", "string",
                                              "one",     "bool",    "strings"};
    cellar_error error;
    for (size_t i = 0; i < sizeof no_integers / sizeof *no_integers; i++) {
        uint32_t number = 0;
        assert_int_equal(gguf_get_u32(it.file, no_integers[i], &number, &error), CELLAR_CORRUPT);
        assert_non_null(strstr(error.message, no_integers[i]));
        assert_non_null(strstr(error.message, "expected an integer"));
    }
    double number = 0;
    bool flag = false;
    gguf_string text;
    const gguf_value *value = NULL;
    assert_int_equal(gguf_get_float(it.file, "uint32", &number, &error), CELLAR_CORRUPT);
    assert_int_equal(gguf_get_bool(it.file, "uint8", &flag, &error), CELLAR_CORRUPT);
    assert_int_equal(gguf_get_bool(it.file, "bools", &flag, &error), CELLAR_CORRUPT);
    assert_int_equal(gguf_get_string(it.file, "strings", &text, &error), CELLAR_CORRUPT);
    assert_non_null(strstr(error.message, "array of string"));
    /* The right count in elements of another size must not pass for the real thing. */
    assert_int_equal(gguf_get_array(it.file, "bools", GGUF_FLOAT32, 2, &value, &error),
                     CELLAR_CORRUPT);
    assert_int_equal(gguf_get_array(it.file, "int16s", GGUF_INT32, 2, &value, &error),
                     CELLAR_CORRUPT);
    assert_int_equal(gguf_get_array(it.file, "int16s", GGUF_INT16, 3, &value, &error),
                     CELLAR_CORRUPT);
    assert_non_null(strstr(error.message, "3"));
    assert_int_equal(gguf_get_array(it.file, "uint32", GGUF_UINT32, 1, &value, &error),
                     CELLAR_CORRUPT);
    assert_int_equal(gguf_get_array(it.file, "none", GGUF_FLOAT32, 2, &value, &error),
                     CELLAR_CORRUPT);
    assert_null(value);
    close_written(it);
}

static void a_missing_key_is_not_found_and_changes_nothing(void **state)
{
    (void)state;
    const opened it = open_values();
    uint32_t number = 17;
    double real = 17;
    cellar_error error;
    assert_int_equal(gguf_get_u32(it.file, "nothing", &number, &error), CELLAR_NOT_FOUND);
    assert_non_null(strstr(error.message, "no key nothing"));
    assert_int_equal(number, 17);
    assert_int_equal(gguf_get_float(it.file, "nothing", &real, &error), CELLAR_NOT_FOUND);
    assert_true(real == 17);
    assert_null(gguf_find_value(it.file, ""));
    assert_null(gguf_find_value(it.file, "uint"));
    assert_null(gguf_find_value(it.file, "uint8 "));
    assert_null(gguf_value_at(it.file, gguf_count_values(it.file)));
    assert_null(gguf_tensor_at(it.file, 0));
    close_written(it);
}

static void messages_never_carry_control_characters(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create(3);
    const char *key = "k\x1b[2J\n\xe2\x80\xae\xc3\xa9";
    gguf_writer_add_u32(writer, key, 1);
    const opened it = open_written(writer);
    gguf_string text;
    cellar_error error;
    assert_int_equal(gguf_get_string(it.file, key, &text, &error), CELLAR_CORRUPT);
    assert_non_null(strstr(error.message, "k?[2J????\xc3\xa9: expected string"));
    close_written(it);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static void tensors_have_the_shapes_sizes_and_bytes_of_the_file(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_writer *writer = gguf_writer_create(version);
        gguf_writer_set_alignment(writer, 64);
        const float numbers[6] = {1, 2, 3, 4, 5, 6};
        const unsigned char blocks[68] = {0x11};
        gguf_writer_add_tensor(writer, "matrix", 0, 2, (uint64_t[]){3, 2}, numbers, sizeof numbers);
        gguf_writer_add_tensor(writer, "blocks", 8, 4, (uint64_t[]){32, 1, 2, 1}, blocks,
                               sizeof blocks);
        const opened it = open_written(writer);
        assert_int_equal(gguf_version(it.file), version);
        assert_int_equal(gguf_alignment(it.file), 64);
        const gguf_tensor *matrix = gguf_find_tensor(it.file, "matrix");
        assert_non_null(matrix);
        assert_int_equal(matrix->n_dims, 2);
        assert_int_equal(matrix->dims[0], 3);
        assert_int_equal(matrix->dims[1], 2);
        assert_int_equal(matrix->dims[2], 1);
        assert_int_equal(matrix->n_elements, 6);
        assert_int_equal(matrix->n_bytes, sizeof numbers);
        assert_int_equal(matrix->offset % 64, 0);
        assert_memory_equal(matrix->data, numbers, sizeof numbers);
        const gguf_tensor *other = gguf_tensor_at(it.file, 1);
        assert_true(is_text(other->name, "blocks"));
        assert_int_equal(other->n_elements, 64);
        assert_int_equal(other->n_bytes, 68);
        assert_memory_equal(other->data, blocks, sizeof blocks);
        assert_null(gguf_find_tensor(it.file, "matri"));
        close_written(it);
    }
}

static void tensors_may_lie_in_any_order_and_with_gaps(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_description(writer, "last", 4, 24, 1, (uint64_t[]){40}, 128);
    gguf_writer_add_description(writer, "first", 5, 24, 1, (uint64_t[]){64}, 0);
    gguf_writer_add_data(writer, 168);
    const opened it = open_written(writer);
    assert_int_equal(gguf_find_tensor(it.file, "last")->offset -
                         gguf_find_tensor(it.file, "first")->offset,
                     128);
    close_written(it);
}

static void every_known_type_has_a_block_and_removed_ones_have_none(void **state)
{
    (void)state;
    /* bits a weight = 8 * bytes / elements, as the formats are advertised */
    static const struct {
        uint32_t type;
        const char *name;
        double bits;
    } types[] = {{0, "F32", 32},         {1, "F16", 16},          {2, "Q4_0", 4.5},
                 {3, "Q4_1", 5},         {6, "Q5_0", 5.5},        {7, "Q5_1", 6},
                 {8, "Q8_0", 8.5},       {9, "Q8_1", 9},          {10, "Q2_K", 2.625},
                 {11, "Q3_K", 3.4375},   {12, "Q4_K", 4.5},       {13, "Q5_K", 5.5},
                 {14, "Q6_K", 6.5625},   {15, "Q8_K", 9.125},     {16, "IQ2_XXS", 2.0625},
                 {17, "IQ2_XS", 2.3125}, {18, "IQ3_XXS", 3.0625}, {19, "IQ1_S", 1.5625},
                 {20, "IQ4_NL", 4.5},    {21, "IQ3_S", 3.4375},   {22, "IQ2_S", 2.5625},
                 {23, "IQ4_XS", 4.25},   {24, "I8", 8},           {25, "I16", 16},
                 {26, "I32", 32},        {27, "I64", 64},         {28, "F64", 64},
                 {29, "IQ1_M", 1.75},    {30, "BF16", 16},        {34, "TQ1_0", 1.6875},
                 {35, "TQ2_0", 2.0625},  {39, "MXFP4", 4.25}};
    uint32_t next = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const char *name = NULL;
        uint32_t block = 0, bytes = 0;
        for (; next < types[i].type; next++)
            assert_false(gguf_type_block(next, &name, &block, &bytes));
        assert_true(gguf_type_block(next++, &name, &block, &bytes));
        assert_string_equal(name, types[i].name);
        assert_true(8.0 * bytes / block == types[i].bits);
    }
    assert_false(gguf_type_block(40, NULL, NULL, NULL));
    assert_false(gguf_type_block(UINT32_MAX, NULL, NULL, NULL));
    assert_string_equal(gguf_type_name(GGUF_UINT32), "uint32");
    assert_string_equal(gguf_type_name(GGUF_FLOAT64), "float64");
    assert_string_equal(gguf_type_name((gguf_type)13), "unknown");
}

static void a_file_without_keys_and_tensors_is_read(void **state)
{
    (void)state;
    const opened it = open_written(gguf_writer_create(2));
    assert_int_equal(gguf_size(it.file), 24);
    assert_int_equal(gguf_alignment(it.file), 32);
    assert_int_equal(gguf_count_values(it.file) + gguf_count_tensors(it.file), 0);
    assert_null(gguf_find_value(it.file, "x"));
    assert_null(gguf_find_tensor(it.file, "x"));
    close_written(it);
}

static void the_largest_tables_are_read(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_set_alignment(writer, 8);
    char name[32];
    for (uint32_t i = 1; i < 65536; i++) {
        snprintf(name, sizeof name, "key.%u", i);
        gguf_writer_add_u32(writer, name, i);
    }
    for (uint32_t i = 0; i < 65536; i++) {
        snprintf(name, sizeof name, "blk.%u.weight", i);
        gguf_writer_add_tensor(writer, name, 26, 1, (uint64_t[]){1}, &i, sizeof i);
    }
    const opened it = open_written(writer);
    assert_int_equal(gguf_count_values(it.file), 65536);
    assert_int_equal(gguf_count_tensors(it.file), 65536);
    for (uint32_t i = 1; i < 65536; i += 997) {
        uint32_t number = 0, data;
        snprintf(name, sizeof name, "key.%u", i);
        assert_int_equal(gguf_get_u32(it.file, name, &number, NULL), CELLAR_OK);
        assert_int_equal(number, i);
        snprintf(name, sizeof name, "blk.%u.weight", i);
        memcpy(&data, gguf_find_tensor(it.file, name)->data, sizeof data);
        assert_int_equal(data, i);
    }
    (void)support_gguf_read_all(it.file);
    close_written(it);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Metadata of several MB: read in parts that grow. */
static gguf_writer *write_large_metadata(uint32_t n_words)
{
    char(*texts)[40] = malloc(n_words * sizeof *texts);
    const char **words = malloc(n_words * sizeof *words);
    assert_true(texts != NULL && words != NULL);
    for (uint32_t i = 0; i < n_words; i++) {
        snprintf(texts[i], sizeof *texts, "word number %u", i);
        words[i] = texts[i];
    }
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_strings(writer, "words", n_words, words);
    gguf_writer_add_u32(writer, "last", 99);
    gguf_writer_add_tensor(writer, "numbers", 26, 1, (uint64_t[]){2}, (uint32_t[]){7, 8}, 8);
    free(words);
    free(texts);
    return writer;
}

typedef cellar_status (*opener)(const char *path, gguf_file **file, cellar_error *error);
static const opener openers[] = {gguf_open, gguf_load};

static void metadata_of_any_length_are_read_from_a_file(void **state)
{
    (void)state;
    const uint32_t lengths[] = {1, 40000, 300000};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        gguf_writer *writer = write_large_metadata(lengths[n]);
        const char *path = path_of("large.gguf");
        gguf_writer_save(writer, path);
        gguf_writer_destroy(writer);
        for (size_t i = 0; i < 2; i++) {
            gguf_file *file = NULL;
            cellar_error error = {.status = CELLAR_OK, .at = -1};
            assert_int_equal(openers[i](path, &file, &error), CELLAR_OK);
            const gguf_value *words = gguf_find_value(file, "words");
            char text[40];
            snprintf(text, sizeof text, "word number %u", lengths[n] - 1);
            assert_true(is_text(words->strings[lengths[n] - 1], text));
            uint32_t numbers[2];
            const gguf_tensor *tensor = gguf_find_tensor(file, "numbers");
            memcpy(numbers, tensor->data, sizeof numbers);
            assert_int_equal(numbers[0], 7);
            assert_int_equal(numbers[1], 8);
            (void)support_gguf_read_all(file);
            gguf_close(file);
        }
        assert_int_equal(unlink(path), 0);
    }
}

static void only_regular_files_are_opened_and_nothing_waits(void **state)
{
    (void)state;
    cellar_error error;
    for (size_t i = 0; i < 2; i++) {
        gguf_file *file = NULL;
        const char *path = path_of("pipe");
        assert_int_equal(mkfifo(path, 0600), 0);
        assert_int_equal(openers[i](path, &file, &error), CELLAR_IO);
        assert_non_null(strstr(error.message, "regular"));
        assert_int_equal(unlink(path), 0);
        assert_int_equal(openers[i](folder, &file, &error), CELLAR_IO);
        assert_non_null(strstr(error.message, "directory"));
        assert_int_equal(openers[i](path_of("nothing"), &file, &error), CELLAR_IO);
        assert_non_null(strstr(error.message, "No such file"));
        assert_int_equal(openers[i]("", &file, &error), CELLAR_IO);
        assert_null(file);
    }
}

static void short_files_on_disk_are_refused(void **state)
{
    (void)state;
    static const off_t lengths[] = {0, 1, 3, 4, 23};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const char *path = path_of("short.gguf");
        gguf_writer *writer = gguf_writer_create(3);
        gguf_writer_save(writer, path);
        gguf_writer_destroy(writer);
        assert_int_equal(truncate(path, lengths[i]), 0);
        gguf_file *file = NULL;
        cellar_error error = {.status = CELLAR_OK, .at = -1};
        assert_int_equal(gguf_open(path, &file, &error), CELLAR_CORRUPT);
        assert_non_null(strstr(error.message, "the file ends"));
        assert_null(file);
        assert_int_equal(unlink(path), 0);
    }
}

/*
 * In a child: open, truncate, read. 0: everything was there; 3: it was not; a signal: a page was
 * gone.
 */
static int read_truncated(opener open_it, const char *path, bool read_tensors)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        gguf_file *file = NULL;
        if (open_it(path, &file, NULL) != CELLAR_OK || truncate(path, 10) != 0) _exit(2);
        const gguf_value *words = gguf_find_value(file, "words");
        bool is_right = words != NULL && is_text(words->strings[299999], "word number 299999") &&
                        is_text(gguf_tensor_at(file, 0)->name, "numbers");
        if (read_tensors) {
            uint32_t numbers[2];
            memcpy(numbers, gguf_tensor_at(file, 0)->data, sizeof numbers);
            is_right = is_right && numbers[0] == 7 && numbers[1] == 8;
        }
        gguf_close(file);
        _exit(is_right ? 0 : 3);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 100 + WTERMSIG(result);
}

static void truncating_an_open_file_takes_away_tensor_data_at_most(void **state)
{
    (void)state;
    gguf_writer *writer = write_large_metadata(300000);
    const char *path = path_of("cut.gguf");
    gguf_writer_save(writer, path);
    assert_int_equal(read_truncated(gguf_open, path, false), 0);
    gguf_writer_save(writer, path);
    assert_int_equal(read_truncated(gguf_load, path, true), 0);
    gguf_writer_destroy(writer);
    assert_int_equal(unlink(path), 0);
}

/* ---- the files of the tests ----------------------------------------------------------------- */

/* Open every .gguf of a folder both ways; both must show the same. Returns how many. */
static unsigned read_folder(const char *shared, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", shared, name);
    DIR *directory = opendir(path);
    if (directory == NULL) return 0;
    unsigned n = 0;
    for (const struct dirent *entry = readdir(directory); entry != NULL;
         entry = readdir(directory)) {
        const char *ending = strrchr(entry->d_name, '.');
        if (ending == NULL || strcmp(ending, ".gguf") != 0) continue;
        snprintf(path, sizeof path, "%s/%s/%s", shared, name, entry->d_name);
        uint64_t sums[2];
        for (size_t i = 0; i < 2; i++) {
            gguf_file *file = NULL;
            cellar_error error = {.status = CELLAR_OK, .at = -1};
            if (openers[i](path, &file, &error) != CELLAR_OK)
                print_error("%s: %s\n", path, error.message);
            assert_non_null(file);
            gguf_string architecture;
            assert_int_equal(gguf_get_string(file, "general.architecture", &architecture, &error),
                             CELLAR_OK);
            sums[i] = support_gguf_read_all(file);
            gguf_close(file);
        }
        assert_true(sums[0] == sums[1]);
        n++;
    }
    closedir(directory);
    return n;
}

static void every_shared_model_and_vocabulary_is_read(void **state)
{
    (void)state;
    const char *shared = getenv("CELLAR_SHARED");
    if (shared == NULL) shared = "../shared";
    struct stat about;
    if (stat(shared, &about) != 0) {
        print_message("skipped: no folder %s (set CELLAR_SHARED)\n", shared);
        skip();
    }
    assert_true(read_folder(shared, "models") >= 1);
    assert_true(read_folder(shared, "models/random") >= 20);
    assert_true(read_folder(shared, "tokenizers") >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_of_every_type_are_read_if_they_fit),
        cmocka_unit_test(floats_bools_and_strings_are_read),
        cmocka_unit_test(arrays_are_read_element_by_element),
        cmocka_unit_test(a_value_of_another_type_is_refused_by_name),
        cmocka_unit_test(a_missing_key_is_not_found_and_changes_nothing),
        cmocka_unit_test(messages_never_carry_control_characters),
        cmocka_unit_test(tensors_have_the_shapes_sizes_and_bytes_of_the_file),
        cmocka_unit_test(tensors_may_lie_in_any_order_and_with_gaps),
        cmocka_unit_test(every_known_type_has_a_block_and_removed_ones_have_none),
        cmocka_unit_test(a_file_without_keys_and_tensors_is_read),
        cmocka_unit_test(the_largest_tables_are_read),
        cmocka_unit_test(metadata_of_any_length_are_read_from_a_file),
        cmocka_unit_test(only_regular_files_are_opened_and_nothing_waits),
        cmocka_unit_test(short_files_on_disk_are_refused),
        cmocka_unit_test(truncating_an_open_file_takes_away_tensor_data_at_most),
        cmocka_unit_test(every_shared_model_and_vocabulary_is_read),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
