/*
 * unit_gguf_bad.c: every way in which a GGUF file can lie is refused: with the right status, at the
 * right byte, naming the field, in little time and little memory.
 *
 * Most bad files are one valid file with one or two numbers overwritten; the table below says
 * which. The reader must stop at the place the table names, and the message must contain the word.
 * Files that need another structure have functions of their own. Model-level nonsense (0 heads, NaN
 * bases ...) is the model loader's to refuse.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/gguf.h"
#include "gguf_writer.h"
#include "support_gguf.h"

/* ---- the valid file ------------------------------------------------------------------------- */

/* A line is a record of the file. */
/* clang-format off */
enum place {
    MAGIC, VERSION, N_TENSORS, N_KV,
    ARCH_LENGTH, ARCH_KEY, ARCH_TYPE, ARCH_STRING,
    ALIGN_LENGTH, ALIGN_TYPE, ALIGN_VALUE,
    NUMBERS_TYPE, NUMBERS_ELEMENT, NUMBERS_COUNT,
    WORDS_COUNT, WORDS_FIRST,
    FLAG_LENGTH, FLAG_KEY, FLAG_TYPE, FLAG_VALUE,
    A_LENGTH, A_NAME, A_N_DIMS, A_DIM0, A_DIM1, A_TYPE, A_OFFSET,
    B_LENGTH, B_NAME, B_N_DIMS, B_DIM0, B_DIM1, B_TYPE, B_OFFSET,
    C_LENGTH, C_NAME, C_OFFSET,
    PADDING, N_PLACES,
};
/* clang-format on */

typedef struct fixture {
    unsigned char *bytes;
    size_t size;
    size_t place[N_PLACES];
} fixture;

/* Where the parts of a record stand, from its first byte and the length of its name. */
static void mark_key(fixture *file, size_t at, size_t length, enum place key_length,
                     enum place type)
{
    file->place[key_length] = at;
    file->place[type] = at + 8 + length;
}

static void mark_tensor(fixture *file, size_t at, uint32_t n_dims, enum place first)
{
    const size_t n_dims_at = at + 8 + 1; /* names of one byte */
    const size_t places[] = {at,
                             at + 8,
                             n_dims_at,
                             n_dims_at + 4,
                             n_dims_at + 12,
                             n_dims_at + 4 + 8 * n_dims,
                             n_dims_at + 8 + 8 * n_dims};
    memcpy(&file->place[first], places, sizeof places);
}

static fixture make_fixture(void)
{
    fixture file;
    memset(&file, 0, sizeof file);
    file.place[VERSION] = 4;
    file.place[N_TENSORS] = 8;
    file.place[N_KV] = 16;
    gguf_writer *writer = gguf_writer_create(3);
    mark_key(&file, gguf_writer_add_string(writer, "general.architecture", "test"), 20, ARCH_LENGTH,
             ARCH_TYPE);
    file.place[ARCH_KEY] = file.place[ARCH_LENGTH] + 8;
    file.place[ARCH_STRING] = file.place[ARCH_TYPE] + 4;
    mark_key(&file, gguf_writer_set_alignment(writer, 32), 17, ALIGN_LENGTH, ALIGN_TYPE);
    file.place[ALIGN_VALUE] = file.place[ALIGN_TYPE] + 4;
    const size_t numbers = gguf_writer_add_array(writer, "numbers", GGUF_UINT32, 3,
                                                 (uint32_t[]){1, 2, 3}, 12);
    file.place[NUMBERS_TYPE] = numbers + 8 + 7;
    file.place[NUMBERS_ELEMENT] = numbers + 8 + 7 + 4;
    file.place[NUMBERS_COUNT] = numbers + 8 + 7 + 8;
    const size_t words = gguf_writer_add_strings(writer, "words", 2,
                                                 (const char *const[]){"one", "two"});
    file.place[WORDS_COUNT] = words + 8 + 5 + 8;
    file.place[WORDS_FIRST] = words + 8 + 5 + 16;
    gguf_writer_add_bool(writer, "flaw", false);
    mark_key(&file, gguf_writer_add_bool(writer, "flag", true), 4, FLAG_LENGTH, FLAG_TYPE);
    file.place[FLAG_KEY] = file.place[FLAG_LENGTH] + 8;
    file.place[FLAG_VALUE] = file.place[FLAG_TYPE] + 4;

    mark_tensor(&file, gguf_writer_add_tensor(writer, "a", 0, 2, (uint64_t[]){4, 2}, NULL, 32), 2,
                A_LENGTH);
    mark_tensor(&file, gguf_writer_add_tensor(writer, "b", 8, 2, (uint64_t[]){32, 2}, NULL, 68), 2,
                B_LENGTH);
    const size_t c = gguf_writer_add_tensor(writer, "c", 1, 1, (uint64_t[]){16}, NULL, 32);
    file.place[C_LENGTH] = c;
    file.place[C_NAME] = c + 8;
    file.place[C_OFFSET] = c + 8 + 1 + 4 + 8 + 4;
    file.place[PADDING] = file.place[C_OFFSET] + 8;
    file.bytes = gguf_writer_finish(writer, &file.size);
    gguf_writer_destroy(writer);
    return file;
}

/* ---- the table ------------------------------------------------------------------------------ */

typedef struct patch {
    enum place place;
    unsigned width; /* bytes, perhaps with PLUS_REMAINING; 0: no patch */
    uint64_t value;
} patch;

/* Add to the value the number of bytes that follow the field in the file. */
#define PLUS_REMAINING 0x100u

typedef struct bad_file {
    const char *what;
    patch patches[2];
    cellar_status status;
    enum place stop;
    size_t stop_plus;
    const char *word; /* in the message */
} bad_file;

#define BAD CELLAR_CORRUPT
#define UNS CELLAR_UNSUPPORTED
#define P62 (1ull << 62)
#define P63 (1ull << 63)

/* A row is a file. */
/* clang-format off */
static const bad_file bad_files[] = {
    {"another magic", {{MAGIC, 4, 0x46554746}}, BAD, MAGIC, 0, "magic"},
    {"the magic backwards", {{MAGIC, 4, 0x47475546}}, BAD, MAGIC, 0, "magic"},
    {"version 0", {{VERSION, 4, 0}}, UNS, VERSION, 0, "version"},
    {"version 1", {{VERSION, 4, 1}}, UNS, VERSION, 0, "version: 1"},
    {"version 4", {{VERSION, 4, 4}}, UNS, VERSION, 0, "version: 4"},
    {"version 3, byte-swapped", {{VERSION, 4, 0x03000000}}, UNS, VERSION, 0, "big-endian"},

    {"n_tensors -1", {{N_TENSORS, 8, UINT64_MAX}}, BAD, N_TENSORS, 0, "n_tensors"},
    {"n_tensors 2^31", {{N_TENSORS, 8, 1ull << 31}}, BAD, N_TENSORS, 0, "n_tensors"},
    {"n_tensors 2^62", {{N_TENSORS, 8, P62}}, BAD, N_TENSORS, 0, "n_tensors"},
    {"n_tensors 2^64 / record", {{N_TENSORS, 8, UINT64_MAX / 33}}, BAD, N_TENSORS, 0, "n_tensors"},
    {"n_tensors 2^64 / record + 1", {{N_TENSORS, 8, UINT64_MAX / 33 + 1}},
     BAD, N_TENSORS, 0, "n_tensors"},
    {"n_tensors 2^64 / struct + 1", {{N_TENSORS, 8, UINT64_MAX / sizeof(gguf_tensor) + 1}},
     BAD, N_TENSORS, 0, "n_tensors"},
    {"n_tensors one too few", {{N_TENSORS, 8, 2}}, BAD, C_LENGTH, 0, "n_tensors"},
    {"n_tensors one too many", {{N_TENSORS, 8, 4}}, BAD, PADDING, 0, "name"},
    {"n_kv -1", {{N_KV, 8, UINT64_MAX}}, BAD, N_KV, 0, "n_kv"},
    {"n_kv 2^31", {{N_KV, 8, 1ull << 31}}, BAD, N_KV, 0, "n_kv"},
    {"n_kv 2^62", {{N_KV, 8, P62}}, BAD, N_KV, 0, "n_kv"},
    {"n_kv 2^64 / record", {{N_KV, 8, UINT64_MAX / 14}}, BAD, N_KV, 0, "n_kv"},
    {"n_kv 2^64 / record + 1", {{N_KV, 8, UINT64_MAX / 14 + 1}}, BAD, N_KV, 0, "n_kv"},
    {"n_kv 2^64 / struct + 1", {{N_KV, 8, UINT64_MAX / sizeof(gguf_value) + 1}},
     BAD, N_KV, 0, "n_kv"},
    {"keys and tensors together too many", {{N_TENSORS, 8, 12}, {N_KV, 8, 32}},
     BAD, N_KV, 0, "n_kv"},
    /* the last key is taken for a tensor, its type for a number of dimensions */
    {"n_kv one too few", {{N_KV, 8, 5}}, BAD, FLAG_TYPE, 0, "n_dims"},
    /* tensor "a" is taken for a uint16 "a"; the next name begins in the middle of a dimension */
    {"n_kv one too many", {{N_KV, 8, 7}}, BAD, A_DIM0, 2, "tensor name"},

    {"key of length 0", {{ARCH_LENGTH, 8, 0}}, BAD, ARCH_LENGTH, 0, "key 0"},
    {"key of length 2^64 - 1", {{ARCH_LENGTH, 8, UINT64_MAX}}, BAD, ARCH_LENGTH, 0, "key"},
    {"key of length 2^63", {{ARCH_LENGTH, 8, P63}}, BAD, ARCH_LENGTH, 0, "key"},
    {"key one longer than the file", {{ARCH_LENGTH, 8 | PLUS_REMAINING, 1}},
     BAD, ARCH_LENGTH, 0, "key"},
    {"key with a NUL", {{ARCH_KEY, 1, 0}}, BAD, ARCH_LENGTH, 0, "NUL"},
    {"key that is not UTF-8", {{ARCH_KEY, 1, 0xff}}, BAD, ARCH_LENGTH, 0, "UTF-8"},
    {"key with a lone surrogate", {{ARCH_KEY, 3, 0x80a0ed}}, BAD, ARCH_LENGTH, 0, "UTF-8"},
    {"key with an overlong slash", {{ARCH_KEY, 2, 0xafc0}}, BAD, ARCH_LENGTH, 0, "UTF-8"},
    {"the same key twice", {{FLAG_KEY, 4, 0x77616c66}}, BAD, FLAG_LENGTH, 0, "duplicate"},

    {"value type 13", {{ARCH_TYPE, 4, 13}}, BAD, ARCH_TYPE, 0, "value type"},
    {"value type 255", {{ARCH_TYPE, 4, 255}}, BAD, ARCH_TYPE, 0, "value type"},
    {"value type -1", {{ARCH_TYPE, 4, UINT32_MAX}}, BAD, ARCH_TYPE, 0, "value type"},
    {"bool 2", {{FLAG_VALUE, 1, 2}}, BAD, FLAG_VALUE, 0, "bool"},

    {"array of arrays", {{NUMBERS_ELEMENT, 4, GGUF_ARRAY}},
     UNS, NUMBERS_ELEMENT, 0, "array of arrays"},
    {"array of type 13", {{NUMBERS_ELEMENT, 4, 13}}, BAD, NUMBERS_ELEMENT, 0, "array element type"},
    {"array of type -1", {{NUMBERS_ELEMENT, 4, UINT32_MAX}},
     BAD, NUMBERS_ELEMENT, 0, "array element type"},
    {"array count 2^62: times size wraps to 0", {{NUMBERS_COUNT, 8, P62}},
     BAD, NUMBERS_COUNT, 0, "array count"},
    {"array count 2^62 + 1: wraps to 4", {{NUMBERS_COUNT, 8, P62 + 1}},
     BAD, NUMBERS_COUNT, 0, "array count"},
    {"array count -1", {{NUMBERS_COUNT, 8, UINT64_MAX}}, BAD, NUMBERS_COUNT, 0, "array count"},
    {"array count = remaining bytes", {{NUMBERS_COUNT, 8 | PLUS_REMAINING, 0}},
     BAD, NUMBERS_COUNT, 0, "array count"},
    {"strings count 2^62", {{WORDS_COUNT, 8, P62}}, BAD, WORDS_COUNT, 0, "array count"},
    {"strings count 2^60: times struct wraps", {{WORDS_COUNT, 8, 1ull << 60}},
     BAD, WORDS_COUNT, 0, "array count"},
    {"strings count 2^24", {{WORDS_COUNT, 8, 1ull << 24}}, BAD, WORDS_COUNT, 0, "array count"},

    {"string one longer than the file", {{ARCH_STRING, 8 | PLUS_REMAINING, 1}},
     BAD, ARCH_STRING, 0, "general.architecture"},
    {"string of 2^31", {{ARCH_STRING, 8, 1ull << 31}}, BAD, ARCH_STRING, 0, "length"},
    {"string of 2^32", {{ARCH_STRING, 8, 1ull << 32}}, BAD, ARCH_STRING, 0, "length"},
    {"string of 2^63", {{ARCH_STRING, 8, P63}}, BAD, ARCH_STRING, 0, "length"},
    {"string of 2^64 - 1", {{ARCH_STRING, 8, UINT64_MAX}}, BAD, ARCH_STRING, 0, "length"},
    {"string of 2^64 - 8", {{ARCH_STRING, 8, UINT64_MAX - 7}}, BAD, ARCH_STRING, 0, "length"},
    {"string in an array, one too long", {{WORDS_FIRST, 8 | PLUS_REMAINING, 1}},
     BAD, WORDS_FIRST, 0, "words"},
    {"string in an array of 2^64 - 1", {{WORDS_FIRST, 8, UINT64_MAX}},
     BAD, WORDS_FIRST, 0, "words"},

    {"alignment 0", {{ALIGN_VALUE, 4, 0}}, BAD, ALIGN_VALUE, 0, "general.alignment"},
    {"alignment 1", {{ALIGN_VALUE, 4, 1}}, BAD, ALIGN_VALUE, 0, "general.alignment"},
    {"alignment 3", {{ALIGN_VALUE, 4, 3}}, BAD, ALIGN_VALUE, 0, "general.alignment"},
    {"alignment 4", {{ALIGN_VALUE, 4, 4}}, BAD, ALIGN_VALUE, 0, "general.alignment"},
    {"alignment 24", {{ALIGN_VALUE, 4, 24}}, BAD, ALIGN_VALUE, 0, "general.alignment"},
    {"alignment 2^16 + 1", {{ALIGN_VALUE, 4, 65537}}, BAD, ALIGN_VALUE, 0, "general.alignment"},
    {"alignment 2^17", {{ALIGN_VALUE, 4, 1u << 17}}, BAD, ALIGN_VALUE, 0, "general.alignment"},
    {"alignment 2^30", {{ALIGN_VALUE, 4, 1u << 30}}, BAD, ALIGN_VALUE, 0, "general.alignment"},
    {"alignment 2^31", {{ALIGN_VALUE, 4, 1u << 31}}, BAD, ALIGN_VALUE, 0, "general.alignment"},
    {"alignment as int32", {{ALIGN_TYPE, 4, GGUF_INT32}}, BAD, ALIGN_VALUE, 0, "uint32"},
    {"alignment as float32", {{ALIGN_TYPE, 4, GGUF_FLOAT32}}, BAD, ALIGN_VALUE, 0, "uint32"},

    {"name of length 0", {{B_LENGTH, 8, 0}}, BAD, B_LENGTH, 0, "name"},
    {"name of length 2^64 - 1", {{B_LENGTH, 8, UINT64_MAX}}, BAD, B_LENGTH, 0, "name"},
    {"name of length 65", {{B_LENGTH, 8, 65}}, BAD, B_LENGTH, 0, "name"},
    {"name with a NUL", {{B_NAME, 1, 0}}, BAD, B_LENGTH, 0, "NUL"},
    {"the same name twice", {{C_NAME, 1, 'a'}}, BAD, C_LENGTH, 0, "duplicate"},

    {"n_dims 0", {{B_N_DIMS, 4, 0}}, BAD, B_N_DIMS, 0, "n_dims"},
    {"n_dims 5", {{B_N_DIMS, 4, 5}}, BAD, B_N_DIMS, 0, "n_dims"},
    {"n_dims 8", {{B_N_DIMS, 4, 8}}, BAD, B_N_DIMS, 0, "n_dims"},
    {"n_dims 2^32 - 1", {{B_N_DIMS, 4, UINT32_MAX}}, BAD, B_N_DIMS, 0, "n_dims"},
    {"first dimension 0", {{B_DIM0, 8, 0}}, BAD, B_DIM0, 0, "dims[0]"},
    {"second dimension 0", {{B_DIM1, 8, 0}}, BAD, B_DIM1, 0, "dims[1]"},
    {"a dimension of -1", {{A_DIM0, 8, UINT64_MAX}}, BAD, A_DIM1, 0, "dims"},
    {"a dimension of 2^63 - 1", {{A_DIM0, 8, P63 - 1}}, BAD, A_DIM0, 0, "dims"},
    {"dimensions whose product wraps to 0", {{A_DIM0, 8, 1ull << 32}, {A_DIM1, 8, 1ull << 32}},
     BAD, A_DIM1, 0, "dims"},
    {"dimensions whose product wraps to 2", {{A_DIM0, 8, 3}, {A_DIM1, 8, 0x5555555555555556}},
     BAD, A_DIM1, 0, "dims"},
    {"row whose size in bytes wraps to 0", {{A_DIM0, 8, P62}, {A_DIM1, 8, 1}},
     BAD, A_DIM0, 0, "size in bytes"},
    {"row whose size wraps to 32", {{A_DIM0, 8, P62 + 8}, {A_DIM1, 8, 1}},
     BAD, A_DIM0, 0, "size in bytes"},
    {"blocks whose size in bytes wraps", {{B_DIM0, 8, UINT64_MAX - 31}, {B_DIM1, 8, 1}},
     BAD, B_DIM0, 0, "size in bytes"},
    {"row that is no multiple of the block", {{B_DIM0, 8, 33}}, BAD, B_DIM0, 0, "block"},
    {"row shorter than a block", {{B_DIM0, 8, 1}, {B_DIM1, 8, 64}}, BAD, B_DIM0, 0, "block"},

    {"removed type 4", {{B_TYPE, 4, 4}}, UNS, B_TYPE, 0, "removed"},
    {"removed type 5", {{B_TYPE, 4, 5}}, UNS, B_TYPE, 0, "removed"},
    {"removed type 31", {{B_TYPE, 4, 31}}, UNS, B_TYPE, 0, "removed"},
    {"removed type 32", {{B_TYPE, 4, 32}}, UNS, B_TYPE, 0, "removed"},
    {"removed type 33", {{B_TYPE, 4, 33}}, UNS, B_TYPE, 0, "removed"},
    {"removed type 36", {{B_TYPE, 4, 36}}, UNS, B_TYPE, 0, "removed"},
    {"removed type 37", {{B_TYPE, 4, 37}}, UNS, B_TYPE, 0, "removed"},
    {"removed type 38", {{B_TYPE, 4, 38}}, UNS, B_TYPE, 0, "removed"},
    {"type after the last", {{B_TYPE, 4, 40}}, UNS, B_TYPE, 0, "not known"},
    {"type -1", {{B_TYPE, 4, UINT32_MAX}}, UNS, B_TYPE, 0, "not known"},

    {"offset not aligned", {{C_OFFSET, 8, 129}}, BAD, C_OFFSET, 0, "alignment"},
    {"offset of another tensor", {{C_OFFSET, 8, 32}}, BAD, C_OFFSET, 0, "overlap"},
    {"offset inside another tensor", {{C_OFFSET, 8, 96}}, BAD, C_OFFSET, 0, "overlap"},
    {"tensor grown into the next", {{A_DIM1, 8, 4}}, BAD, B_OFFSET, 0, "overlap"},
    {"offset past the end", {{C_OFFSET, 8, 160}}, BAD, C_OFFSET, 0, "end of the file"},
    {"offset far past the end", {{C_OFFSET, 8, 1ull << 40}}, BAD, C_OFFSET, 0, "end of the file"},
    {"size past the end", {{B_DIM1, 8, 1u << 20}}, BAD, B_OFFSET, 0, "end of the file"},
    {"offset plus start wraps", {{C_OFFSET, 8, UINT64_MAX - 31}},
     BAD, C_OFFSET, 0, "end of the file"},
    {"offset plus size wraps", {{C_OFFSET, 8, UINT64_MAX - 1023}},
     BAD, C_OFFSET, 0, "end of the file"},
    {"size that wraps when padded", {{A_TYPE, 4, 24}, {A_DIM0, 8, P63 - 1}},
     BAD, A_OFFSET, 0, "end of the file"},
    {"padding that is not zero", {{PADDING, 1, 1}}, BAD, PADDING, 0, "padding"},
};
/* clang-format on */

/* ---- checking ------------------------------------------------------------------------------- */

static int count_wrong_answers(void)
{
    fixture file = make_fixture();
    int n_wrong = 0;
    unsigned char *changed = malloc(file.size);
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files && changed != NULL; i++) {
        const bad_file *bad = &bad_files[i];
        memcpy(changed, file.bytes, file.size);
        for (int p = 0; p < 2 && bad->patches[p].width > 0; p++) {
            const patch *change = &bad->patches[p];
            const size_t at = file.place[change->place];
            const unsigned width = change->width & ~PLUS_REMAINING;
            const uint64_t remaining = change->width != width ? file.size - at - width : 0;
            gguf_writer_patch(changed, at, width, change->value + remaining);
        }
        n_wrong += !support_gguf_is_refused(bad->what, changed, file.size, bad->status,
                                            file.place[bad->stop] + bad->stop_plus, bad->word);
    }
    n_wrong += changed == NULL;
    free(changed);
    free(file.bytes);
    return n_wrong;
}

static void the_file_before_it_is_damaged_is_good(void **state)
{
    (void)state;
    fixture good = make_fixture();
    gguf_file *file = NULL;
    cellar_error error;
    const cellar_status status = gguf_open_memory(good.bytes, good.size, &file, &error);
    if (status != CELLAR_OK) print_error("%s\n", error.message);
    assert_int_equal(status, CELLAR_OK);
    assert_int_not_equal(support_gguf_read_all(file), 0);
    gguf_close(file);
    free(good.bytes);
}

static void every_damaged_field_is_refused_where_it_stands(void **state)
{
    (void)state;
    assert_int_equal(count_wrong_answers(), 0);
}

static int has_wrong_answers(void)
{
    return count_wrong_answers() != 0;
}

/* A length that was believed would need more and give CELLAR_NO_MEMORY, not what the table says. */
static void refusing_takes_no_more_memory_than_a_fixed_sum(void **state)
{
    (void)state;
    const int code = support_gguf_in_little_memory(8u << 20, has_wrong_answers);
    if (code < 0) {
        print_message("skipped: sanitizers and valgrind take address space of their own\n");
        skip();
    }
    assert_int_equal(code, 0);
}

static void every_prefix_of_a_valid_file_is_refused(void **state)
{
    (void)state;
    fixture file = make_fixture();
    for (size_t size = 0; size < file.size; size++) {
        unsigned char *prefix = malloc(size + 1);
        assert_non_null(prefix);
        memcpy(prefix, file.bytes, size);
        prefix = realloc(prefix, size > 0 ? size : 1);
        cellar_error error = {.status = CELLAR_OK, .at = -1};
        gguf_file *opened = NULL;
        const clock_t before = clock();
        assert_int_equal(gguf_open_memory(prefix, size, &opened, &error), CELLAR_CORRUPT);
        assert_true((double)(clock() - before) / CLOCKS_PER_SEC < 0.1);
        assert_null(opened);
        assert_in_range(error.at, 0, size);
        assert_true(strlen(error.message) > 10);
        free(prefix);
    }
    free(file.bytes);
}

static void short_files_name_the_field_that_is_missing(void **state)
{
    (void)state;
    fixture file = make_fixture();
    assert_true(support_gguf_is_refused("empty", file.bytes, 0, CELLAR_CORRUPT, 0, "magic"));
    assert_true(support_gguf_is_refused("1 byte", file.bytes, 1, CELLAR_CORRUPT, 0, "magic"));
    assert_true(support_gguf_is_refused("3 bytes", file.bytes, 3, CELLAR_CORRUPT, 0, "magic"));
    assert_true(
        support_gguf_is_refused("the magic only", file.bytes, 4, CELLAR_CORRUPT, 4, "version"));
    assert_true(support_gguf_is_refused("8 bytes", file.bytes, 8, CELLAR_CORRUPT, 8, "n_tensors"));
    assert_true(support_gguf_is_refused("23 bytes", file.bytes, 23, CELLAR_CORRUPT, 16, "n_kv"));
    free(file.bytes);
}

/* Whatever a single byte becomes, the file is refused or all that it shows can be read. */
static void no_single_byte_makes_the_reader_leave_the_file(void **state)
{
    (void)state;
    static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    fixture good = make_fixture();
    unsigned n_refused = 0;
    for (size_t at = 0; at < good.size; at++)
        for (size_t i = 0; i < sizeof values; i++) {
            const unsigned char before = good.bytes[at];
            good.bytes[at] = values[i];
            gguf_file *file = NULL;
            if (gguf_open_memory(good.bytes, good.size, &file, NULL) == CELLAR_OK)
                (void)support_gguf_read_all(file);
            else
                n_refused++;
            gguf_close(file);
            good.bytes[at] = before;
        }
    assert_true(n_refused > 400);
    free(good.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_before_it_is_damaged_is_good),
        cmocka_unit_test(every_damaged_field_is_refused_where_it_stands),
        cmocka_unit_test(refusing_takes_no_more_memory_than_a_fixed_sum),
        cmocka_unit_test(every_prefix_of_a_valid_file_is_refused),
        cmocka_unit_test(short_files_name_the_field_that_is_missing),
        cmocka_unit_test(no_single_byte_makes_the_reader_leave_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
