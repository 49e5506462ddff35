/*
 * unit_gguf_inspect.c: `cellar inspect` tells what is in a file, to people and to programs, and
 * nothing that a hostile file contains reaches the terminal as it is.
 *
 * The command runs in this process with both output streams led into files.
 */
#define _XOPEN_SOURCE 700

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "cli/commands.h"
#include "cli/inspect.h"
#include "gguf_writer.h"

static char path[600]; /* of the model file of a test */

/* ---- running the command -------------------------------------------------------------------- */

typedef struct outcome {
    int code;
    char *out, *err; /* NUL-terminated; freed by forget */
    size_t out_length;
} outcome;

static char *read_all(FILE *file, size_t *length)
{
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long end = ftell(file);
    assert_true(end >= 0);
    rewind(file);
    char *text = calloc(1, (size_t)end + 1);
    assert_non_null(text);
    *length = fread(text, 1, (size_t)end, file);
    return text;
}

/* Lead a stream into a file; returns the descriptor that leads it back. */
static int divert(FILE *stream, FILE *to)
{
    fflush(stream);
    const int before = dup(fileno(stream));
    assert_true(before >= 0 && dup2(fileno(to), fileno(stream)) >= 0);
    return before;
}

static void restore(FILE *stream, int before)
{
    fflush(stream);
    assert_true(dup2(before, fileno(stream)) >= 0);
    close(before);
}

static outcome run(int argc, const char *const *arguments)
{
    char *argv[8] = {NULL};
    for (int i = 0; i < argc; i++) {
        argv[i] = strdup(arguments[i]);
        assert_non_null(argv[i]);
    }
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(out != NULL && err != NULL);
    const int before_out = divert(stdout, out), before_err = divert(stderr, err);
    outcome result = {.code = command_inspect(argc, argv)};
    restore(stdout, before_out);
    restore(stderr, before_err);
    size_t err_length = 0;
    result.out = read_all(out, &result.out_length);
    result.err = read_all(err, &err_length);
    fclose(out);
    fclose(err);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    return result;
}

#define RUN(...)                                                                                   \
    run((int)(sizeof((const char *const[]){"inspect", __VA_ARGS__}) / sizeof(char *)),             \
        (const char *const[]){"inspect", __VA_ARGS__})

static void forget(outcome result)
{
    free(result.out);
    free(result.err);
}

static void contains(const char *text, const char *part)
{
    if (text != NULL && strstr(text, part) != NULL) return;
    print_error("missing: %s\nin:\n%s\n", part, text != NULL ? text : "(nothing)");
    fail();
}

/* No control character but the newline, no C1 control, no change of direction. */
static void is_harmless(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)text[i];
        assert_true(byte == '\n' || (byte >= 0x20 && byte != 0x7f));
        assert_false(byte == 0xc2 && (unsigned char)text[i + 1] < 0xa0);
        assert_false(byte == 0xe2 && (unsigned char)text[i + 1] == 0x80 &&
                     (unsigned char)text[i + 2] == 0xae);
    }
}

/* ---- files ---------------------------------------------------------------------------------- */

static int choose_path(void **state)
{
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/inspect.XXXXXX", parent != NULL ? parent : P_tmpdir);
    const int descriptor = mkstemp(path);
    return descriptor < 0 || close(descriptor) != 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void save(gguf_writer *writer)
{
    gguf_writer_save(writer, path);
    gguf_writer_destroy(writer);
}

static void save_model(void)
{
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "general.architecture", "llama");
    gguf_writer_add_string(writer, "general.name", "A small one");
    gguf_writer_add_float(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    gguf_writer_add_raw(writer, "big", 3, GGUF_UINT64, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    gguf_writer_add_bool(writer, "flag", true);
    gguf_writer_add_array(writer, "odd", GGUF_FLOAT32, 3, (float[]){NAN, INFINITY, -INFINITY}, 12);
    uint32_t numbers[200];
    for (uint32_t i = 0; i < 200; i++)
        numbers[i] = i;
    gguf_writer_add_array(writer, "numbers", GGUF_UINT32, 200, numbers, sizeof numbers);
    gguf_writer_add_tensor(writer, "token_embd.weight", 8, 2, (uint64_t[]){32, 50}, NULL, 34 * 50);
    gguf_writer_add_tensor(writer, "output_norm.weight", 0, 1, (uint64_t[]){32}, NULL, 128);
    save(writer);
}

#define HOSTILE                                                                                    \
    "\x1b[2Jx\x7f\xc2\x9b"                                                                         \
    "31m\n\xe2\x80\xae\xff\"\\"

static void save_hostile(void)
{
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "general.architecture", HOSTILE);
    gguf_writer_add_string(writer, "general.name", HOSTILE);
    gguf_writer_add_strings(writer, "k\x1b[31m\x7f", 2, (const char *const[]){HOSTILE, HOSTILE});
    gguf_writer_add_raw(writer, "nul", 3, GGUF_STRING, "\3\0\0\0\0\0\0\0a\0b", 11);
    gguf_writer_add_tensor(writer, HOSTILE, 0, 1, (uint64_t[]){1}, NULL, 4);
    save(writer);
}

/* ---- for people ----------------------------------------------------------------------------- */

static void the_text_names_what_the_file_holds(void **state)
{
    (void)state;
    save_model();
    const outcome result = RUN(path);
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    contains(result.out, "GGUF version 3");
    contains(result.out, "architecture  llama\n");
    contains(result.out, "name          A small one\n");
    contains(result.out, "parameters    1.6 thousand (1632)\n");
    contains(result.out, "Metadata (7 keys)\n");
    contains(result.out, "1e-05\n");
    contains(result.out, "18446744073709551615\n");
    contains(result.out, "uint32[200]");
    contains(result.out, "0, 1, 2, 3, ");
    contains(result.out, ", ...\n");
    contains(result.out, "Tensors (2)\n");
    contains(result.out, "32 x 50");
    forget(result);
}

static void one_table_can_be_asked_for(void **state)
{
    (void)state;
    save_model();
    outcome result = RUN("--tensors", path);
    assert_int_equal(result.code, 0);
    contains(result.out, "Tensors (2)");
    assert_null(strstr(result.out, "Metadata"));
    forget(result);
    result = RUN(path, "--metadata");
    contains(result.out, "Metadata (7 keys)");
    assert_null(strstr(result.out, "Tensors (2)"));
    forget(result);
}

static void long_texts_are_cut_at_a_whole_character(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(inspect_put_text(file, (gguf_string){"abc\xc3\xa9\xc3\xa9\xc3\xa9", 9}, 6), 6);
    assert_int_equal(inspect_put_text(file, (gguf_string){"abc\xc3\xa9\xc3\xa9\xc3\xa9", 9}, 5), 5);
    assert_int_equal(inspect_put_text(file, (gguf_string){"a\n\n\n", 4}, 5), 4);
    size_t length = 0;
    char *text = read_all(file, &length);
    assert_string_equal(text, "abc\xc3\xa9\xc3\xa9\xc3\xa9"
                              "ab..."
                              "a...");
    free(text);
    fclose(file);
}

/* ---- for programs --------------------------------------------------------------------------- */

static json_t *parse(outcome result)
{
    json_error_t error;
    json_t *document = json_loadb(result.out, result.out_length, JSON_ALLOW_NUL, &error);
    if (document == NULL) print_error("line %d: %s\n%s\n", error.line, error.text, result.out);
    assert_non_null(document);
    return document;
}

static void the_json_is_complete_and_keeps_its_names(void **state)
{
    (void)state;
    save_model();
    /* 2^64 - 1 is beyond jansson's own integers, so it is looked for in the text. */
    outcome result = RUN("--json", path);
    assert_int_equal(result.code, 0);
    contains(result.out, "\"big\": {\"type\": \"uint64\", \"value\": 18446744073709551615}");
    char *big = strstr(result.out, "18446744073709551615");
    memset(big, ' ', 20);
    big[0] = '1';
    json_t *document = parse(result);
    const char *architecture, *name, *type, *epsilon_type, *odd0, *odd1, *odd2, *shape_type;
    int version, alignment, parameters, count, flag, rows;
    double epsilon;
    json_t *values, *tensors;
    assert_int_equal(json_unpack(document, "{s:s, s:s, s:i, s:i, s:i, s:[{s:s}, {}]}",
                                 "architecture", &architecture, "name", &name, "version", &version,
                                 "alignment", &alignment, "parameters", &parameters, "types",
                                 "type", &type),
                     0);
    assert_string_equal(architecture, "llama");
    assert_string_equal(name, "A small one");
    assert_int_equal(version, 3);
    assert_int_equal(alignment, 32);
    assert_int_equal(parameters, 1632);
    assert_string_equal(type, "Q8_0");
    assert_int_equal(
        json_unpack(document, "{s:{s:{s:s, s:f}, s:{s:b}, s:{s:[s,s,s]}, s:{s:i, s:o}}, s:o}",
                    "metadata", "llama.attention.layer_norm_rms_epsilon", "type", &epsilon_type,
                    "value", &epsilon, "flag", "value", &flag, "odd", "value", &odd0, &odd1, &odd2,
                    "numbers", "count", &count, "value", &values, "tensors", &tensors),
        0);
    assert_string_equal(epsilon_type, "float32");
    assert_true(epsilon == 1e-5);
    assert_true(flag);
    assert_string_equal(odd0, "NaN");
    assert_string_equal(odd1, "Infinity");
    assert_string_equal(odd2, "-Infinity");
    assert_int_equal(count, 200);
    assert_int_equal(json_array_size(values), 200);
    assert_int_equal(json_integer_value(json_array_get(values, 199)), 199);
    assert_int_equal(json_array_size(tensors), 2);
    assert_int_equal(json_array_size(json_object_get(json_array_get(tensors, 0), "shape")), 2);
    assert_int_equal(json_unpack(json_array_get(tensors, 1), "{s:s, s:[i!], s:i, s:i}", "type",
                                 &shape_type, "shape", &rows, "bytes", &count, "offset", &version),
                     0);
    assert_string_equal(shape_type, "F32");
    assert_int_equal(rows, 32);
    assert_int_equal(count, 128);
    json_decref(document);
    forget(result);
}

static void hostile_texts_do_not_reach_the_terminal(void **state)
{
    (void)state;
    save_hostile();
    outcome result = RUN(path);
    assert_int_equal(result.code, 0);
    is_harmless(result.out, result.out_length);
    contains(result.out, "\\x1b[2Jx\\x7f\\u{9b}31m\\n\\u{202e}\\xff\\\"\\\\");
    contains(result.out, "k\\x1b[31m\\x7f");
    forget(result);

    result = RUN("--json", path);
    assert_int_equal(result.code, 0);
    is_harmless(result.out, result.out_length);
    json_t *document = parse(result);
    const char *name = NULL;
    json_t *nul = NULL;
    int is_lossy = 0;
    assert_int_equal(json_unpack(document, "{s:{s:{s:s, s:b}, s:{s:o}}}", "metadata",
                                 "general.name", "value", &name, "lossy", &is_lossy, "nul", "value",
                                 &nul),
                     0);
    assert_string_equal(name, "\x1b[2Jx\x7f\xc2\x9b"
                              "31m\n\xe2\x80\xae\xef\xbf\xbd\"\\");
    assert_true(is_lossy);
    assert_int_equal(json_string_length(nul), 3);
    json_decref(document);
    forget(result);
}

/* ---- mistakes ------------------------------------------------------------------------------- */

static void a_bad_file_fails_with_field_and_byte_on_standard_error(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_u32(writer, "a\x1b[31m", 1);
    gguf_writer_add_u32(writer, "a\x1b[31m", 1);
    save(writer);
    outcome result = RUN(path);
    assert_int_equal(result.code, 1);
    assert_string_equal(result.out, "");
    contains(result.err, "cellar inspect: ");
    contains(result.err, path);
    contains(result.err, "key 1: duplicate of a?[31m (byte 46)\n");
    forget(result);
    result = RUN("\x1b[31m/no such file");
    assert_int_equal(result.code, 1);
    is_harmless(result.err, strlen(result.err));
    contains(result.err, "cannot open");
    forget(result);
}

static void a_senseless_command_line_is_a_usage_error(void **state)
{
    (void)state;
    const outcome results[] = {RUN("--nonsense", path), RUN(path, path), RUN("-"), RUN("--json")};
    static const char *const words[] = {"--nonsense", "unexpected", "standard input", "which file"};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        assert_int_equal(results[i].code, 2);
        assert_string_equal(results[i].out, "");
        contains(results[i].err, words[i]);
        contains(results[i].err, "See 'cellar help inspect'.\n");
        forget(results[i]);
    }
}

static void help_shows_examples(void **state)
{
    (void)state;
    const outcome result = RUN("--help");
    assert_int_equal(result.code, 0);
    contains(result.out, "Examples\n");
    contains(result.out, "cellar inspect --json");
    forget(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_names_what_the_file_holds),
        cmocka_unit_test(one_table_can_be_asked_for),
        cmocka_unit_test(long_texts_are_cut_at_a_whole_character),
        cmocka_unit_test(the_json_is_complete_and_keeps_its_names),
        cmocka_unit_test(hostile_texts_do_not_reach_the_terminal),
        cmocka_unit_test(a_bad_file_fails_with_field_and_byte_on_standard_error),
        cmocka_unit_test(a_senseless_command_line_is_a_usage_error),
        cmocka_unit_test(help_shows_examples),
    };
    return cmocka_run_group_tests(tests, choose_path, remove_path);
}
