/*
 * unit_quantize_file.c: the file that quantising a model gives, byte by byte, and that there is none
 * where it fails.
 *
 * A tiny model is written in each type. Its keys must be those of the original but for two, its tensors
 * those that the rules say, and its logits the bits of a model that is made here: the original's bytes with
 * every matrix replaced by the numbers that were decoded from the new file. Failures (numbers that do not
 * fit, a stop, a disk that takes no more) leave the folder as it was.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "engine/engine.h"
#include "engine/quantize.h"
#include "kernels.h"
#include "support_folder.h"
#include "support_model.h"

#define VOCABULARY FIXTURE_VOCABULARY
#define MOST_TENSORS 64u

static quantize_options options_for(const char *name)
{
    quantize_options options = {
        .type = quantize_find_type(name), .n_threads = 1, .cpu_mask = CELLAR_CPU_ALL};
    assert_non_null(options.type);
    return options;
}

static cellar_status quantise(const gguf_file *file, const quantize_options *options,
                              const char *name, quantize_choice *choices, cellar_error *error)
{
    gguf_write *w = NULL;
    uint64_t size = 0;
    cellar_status status = quantize_choose(file, options, choices, error);
    if (status == CELLAR_OK) {
        status = gguf_write_open(folder_path(name), false, &w, error);
    }
    if (status == CELLAR_OK) {
        status = quantize_write(file, options, choices, w, &size, error);
    }
    if (status == CELLAR_OK) {
        status = gguf_write_commit(w, error);
    }
    gguf_write_close(w);
    return status;
}

static gguf_file *must_quantise(const gguf_file *file, const quantize_options *options,
                                const char *name, quantize_choice *choices)
{
    cellar_error error;
    gguf_file *written = NULL;
    if (quantise(file, options, name, choices, &error) != CELLAR_OK ||
        gguf_open(folder_path(name), &written, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return written;
}

/* Wide enough for K types. */
static fixture_shape wide_shape(void)
{
    fixture_shape shape = fixture_default();
    shape.n_layers = 1;
    shape.n_embd = 256;
    shape.n_ff = 256;
    shape.n_heads = 4;
    shape.n_kv_heads = 4;
    shape.k_size = shape.v_size = 64;
    shape.n_rot = 0;
    shape.has_output = true;
    return shape;
}

/* ---- what is in the file -------------------------------------------------------------------- */

static bool is_name(gguf_string name, const char *text)
{
    return name.length == strlen(text) && memcmp(name.data, text, name.length) == 0;
}

static void assert_same_keys(const gguf_file *before, const gguf_file *after, uint32_t file_type,
                             bool is_packed)
{
    uint32_t number = 0, n_seen = 0;
    for (uint32_t i = 0; i < gguf_count_values(before); i++) {
        const gguf_value *a = gguf_value_at(before, i), *b = gguf_value_at(after, i);
        assert_int_equal(a->key.length, b->key.length);
        assert_memory_equal(a->key.data, b->key.data, a->key.length);
        if (is_name(a->key, "general.file_type") ||
            is_name(a->key, "general.quantization_version")) {
            continue;
        }
        n_seen++;
        assert_int_equal(a->type, b->type);
        assert_int_equal(a->count, b->count);
        for (uint64_t k = 0; a->strings != NULL && k < a->count; k++) {
            assert_int_equal(a->strings[k].length, b->strings[k].length);
            assert_memory_equal(a->strings[k].data, b->strings[k].data, a->strings[k].length);
        }
        for (uint64_t k = 0; a->strings == NULL && k < a->count; k++) {
            assert_true(gguf_number_at(a, k) == gguf_number_at(b, k));
        }
    }
    assert_true(n_seen > 5);
    assert_int_equal(gguf_get_u32(after, "general.file_type", &number, NULL), CELLAR_OK);
    assert_int_equal(number, file_type);
    assert_int_equal(gguf_get_u32(after, "general.quantization_version", &number, NULL),
                     is_packed ? CELLAR_OK : CELLAR_NOT_FOUND);
    assert_true(!is_packed || number == 2);
    assert_int_equal(gguf_version(after), gguf_version(before));
    assert_int_equal(gguf_alignment(after), gguf_alignment(before));
}

/* Logits after a few tokens. Rounded activations would not give the bits of another type. */
static void read_tokens(const gguf_file *file, float *logits)
{
    model *m = NULL;
    engine *e = NULL;
    cellar_error error;
    engine_options options = engine_defaults();
    options.n_cells = 16;
    options.is_exact = true;
    if (model_load(file, &m, &error) != CELLAR_OK ||
        engine_create(m, &options, &e, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    const cellar_token tokens[5] = {1, 70, 200, 3, 263};
    const cellar_seq seqs[5] = {0};
    const uint32_t last = 4;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 5;
    batch.tokens = tokens;
    batch.seqs = seqs;
    assert_int_equal(engine_decode(e, &batch, &last, 1, logits, &error), CELLAR_OK);
    engine_destroy(e);
    model_free(m);
}

/* The fixture with the numbers of `after` in its F32 tensors. */
static fixture decode_by_hand(const fixture_shape *shape, const gguf_file *after)
{
    cl_matmul_table table;
    cl_matmul_fill(&table, CELLAR_CPU_SCALAR);
    fixture made = fixture_create(shape);
    for (uint32_t i = 0; i < gguf_count_tensors(made.file); i++) {
        const gguf_tensor *to = gguf_tensor_at(made.file, i), *from = gguf_tensor_at(after, i);
        assert_int_equal(to->type, CL_WEIGHT_F32);
        assert_int_equal(to->n_elements, from->n_elements);
        float *numbers = malloc(to->n_bytes);
        table.weight[from->type].decode(numbers, from->data, to->n_elements);
        memcpy(made.bytes + to->offset, numbers, to->n_bytes);
        free(numbers);
    }
    return made;
}

static const char *const all_types[] = {"F32",  "F16",  "BF16", "Q8_0",   "Q6_K",
                                        "Q5_K", "Q4_K", "Q3_K", "Q2_K",   "Q5_1",
                                        "Q5_0", "Q4_1", "Q4_0", "IQ4_NL", "MXFP4"};

static void logits_are_those_of_the_decoded_weights(void **state)
{
    (void)state;
    const fixture_shape shape = wide_shape();
    fixture original = fixture_create(&shape);
    quantize_choice choices[MOST_TENSORS];
    assert_true(gguf_count_tensors(original.file) <= MOST_TENSORS);
    for (size_t i = 0; i < sizeof all_types / sizeof *all_types; i++) {
        const quantize_options options = options_for(all_types[i]);
        gguf_file *after = must_quantise(original.file, &options, all_types[i], choices);
        const bool is_packed = i > 2;
        assert_same_keys(original.file, after, options.type->file_type, is_packed);
        for (uint32_t k = 0; k < gguf_count_tensors(after); k++) {
            assert_int_equal(gguf_tensor_at(after, k)->type, choices[k].type);
        }
        const gguf_tensor *q = gguf_find_tensor(after, "blk.0.attn_q.weight");
        assert_int_equal(q->type, options.type->type);
        const gguf_tensor *output = gguf_find_tensor(after, "output.weight");
        assert_int_equal(output->type, options.type->is_coarse ? CL_WEIGHT_Q6_K : q->type);
        assert_int_equal(gguf_find_tensor(after, "blk.0.attn_norm.weight")->type, CL_WEIGHT_F32);
        float logits[VOCABULARY], expected[VOCABULARY];
        read_tokens(after, logits);
        fixture by_hand = decode_by_hand(&shape, after);
        read_tokens(by_hand.file, expected);
        assert_memory_equal(logits, expected, sizeof logits);
        fixture_destroy(&by_hand);
        gguf_close(after);
    }
    fixture_destroy(&original);
}

/* Byte for byte: what is F32 already, and what is rounded for the second time. */
static void what_has_its_type_is_copied(void **state)
{
    (void)state;
    const fixture_shape shape = wide_shape();
    fixture original = fixture_create(&shape);
    quantize_choice choices[MOST_TENSORS];
    const quantize_options same = options_for("F32"), packed = options_for("Q4_K");
    gguf_close(must_quantise(original.file, &same, "same", choices));
    gguf_file *once = must_quantise(original.file, &packed, "once", choices);
    gguf_file *twice = must_quantise(once, &packed, "twice", choices);
    for (uint32_t i = 0; i < gguf_count_tensors(once); i++) {
        const gguf_tensor *a = gguf_tensor_at(once, i), *b = gguf_tensor_at(twice, i);
        assert_int_equal(a->type, b->type);
        assert_memory_equal(a->data, b->data, a->n_bytes);
    }
    assert_int_equal(gguf_size(once), gguf_size(twice));
    gguf_close(once);
    gguf_close(twice);
    fixture_destroy(&original);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    const fixture_shape shape = wide_shape();
    fixture original = fixture_create(&shape);
    quantize_choice choices[MOST_TENSORS];
    quantize_options options = options_for("Q3_K");
    gguf_close(must_quantise(original.file, &options, "one", choices));
    options.n_threads = 3;
    gguf_close(must_quantise(original.file, &options, "three", choices));
    size_t size = 0;
    unsigned char *bytes = folder_read("one", &size);
    folder_expect_bytes("three", bytes, size);
    free(bytes);
    fixture_destroy(&original);
}

/* ---- which tensors -------------------------------------------------------------------------- */

static const quantize_choice *choice_of(const gguf_file *file, const quantize_choice *choices,
                                        const char *name)
{
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        if (is_name(gguf_tensor_at(file, i)->name, name)) {
            return &choices[i];
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

static void assert_choice(const gguf_file *file, const quantize_choice *choices, const char *name,
                          uint32_t type, quantize_reason reason)
{
    const quantize_choice *choice = choice_of(file, choices, name);
    if (choice->type != type || choice->reason != reason) {
        fail_msg("%s: type %u, reason %d", name, choice->type, (int)choice->reason);
    }
}

/* A file of tensors that no model has together. */
static gguf_file *odd_file(unsigned char **bytes)
{
    static const struct {
        const char *name;
        uint32_t type, n_dims;
        uint64_t dims[3];
        size_t n_bytes;
    } tensors[] = {{"token_embd.weight", 0, 2, {64, 4}, 1024},
                   {"output.weight", 0, 2, {512, 2}, 4096},
                   {"blk.0.attn_q.weight", 0, 2, {512, 2}, 4096},
                   {"blk.0.attn_k.weight", 0, 2, {40, 2}, 320},
                   {"blk.0.attn_q.bias", 0, 2, {256, 2}, 2048},
                   {"blk.0.attn_norm.weight", 0, 2, {256, 2}, 2048},
                   {"blk.0.ffn_gate_inp.weight", 0, 2, {256, 2}, 2048},
                   {"blk.0.ffn_up_exps.weight", 0, 3, {256, 2, 2}, 4096},
                   {"blk.0.ffn_down.weight", 26, 2, {256, 2}, 2048},
                   {"blk.0.row.weight", 0, 2, {256, 1}, 1024},
                   {"blk.0.vector.weight", 0, 1, {256}, 1024}};
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_set_alignment(writer, 64);
    gguf_writer_add_string(writer, "general.architecture", "none");
    gguf_writer_add_u32(writer, "general.quantization_version", 1);
    gguf_writer_add_u32(writer, "general.file_type", 0);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        gguf_writer_add_tensor(writer, tensors[i].name, tensors[i].type, tensors[i].n_dims,
                               tensors[i].dims, NULL, tensors[i].n_bytes);
    }
    size_t size = 0;
    *bytes = gguf_writer_finish(writer, &size);
    gguf_writer_destroy(writer);
    gguf_file *file = NULL;
    cellar_error error;
    if (gguf_open_memory(*bytes, size, &file, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return file;
}

static void the_rules_choose_types(void **state)
{
    (void)state;
    unsigned char *bytes = NULL;
    gguf_file *f = odd_file(&bytes);
    quantize_choice c[MOST_TENSORS];
    quantize_options options = options_for("Q4_K");
    gguf_file *after = must_quantise(f, &options, "odd", c);
    assert_choice(f, c, "token_embd.weight", CL_WEIGHT_Q5_0, QUANTIZE_FALLBACK);
    assert_choice(f, c, "output.weight", CL_WEIGHT_Q6_K, QUANTIZE_OUTPUT);
    assert_choice(f, c, "blk.0.attn_q.weight", CL_WEIGHT_Q4_K, QUANTIZE_ASKED);
    assert_choice(f, c, "blk.0.attn_k.weight", CL_WEIGHT_F32, QUANTIZE_ROWS);
    assert_choice(f, c, "blk.0.attn_q.bias", CL_WEIGHT_F32, QUANTIZE_SMALL);
    assert_choice(f, c, "blk.0.attn_norm.weight", CL_WEIGHT_F32, QUANTIZE_SMALL);
    assert_choice(f, c, "blk.0.ffn_gate_inp.weight", CL_WEIGHT_F32, QUANTIZE_SMALL);
    assert_choice(f, c, "blk.0.ffn_up_exps.weight", CL_WEIGHT_Q4_K, QUANTIZE_ASKED);
    assert_choice(f, c, "blk.0.ffn_down.weight", 26, QUANTIZE_SOURCE);
    assert_choice(f, c, "blk.0.row.weight", CL_WEIGHT_F32, QUANTIZE_SMALL);
    assert_choice(f, c, "blk.0.vector.weight", CL_WEIGHT_F32, QUANTIZE_SMALL);
    uint32_t number = 0;
    assert_int_equal(gguf_get_u32(after, "general.quantization_version", &number, NULL), CELLAR_OK);
    assert_int_equal(number, 2);
    assert_int_equal(gguf_count_values(after), gguf_count_values(f)); /* written where they stood */
    for (uint32_t i = 0; i < gguf_count_tensors(after); i++) {
        assert_int_equal(gguf_tensor_at(after, i)->offset % 64, 0);
    }
    gguf_close(after);
    options.output_type = quantize_find_type("Q8_0");
    options.keep = "blk.0.attn_*,token_embd.weight";
    assert_int_equal(quantize_choose(f, &options, c, NULL), CELLAR_OK);
    assert_choice(f, c, "output.weight", CL_WEIGHT_Q8_0, QUANTIZE_OUTPUT);
    assert_choice(f, c, "token_embd.weight", CL_WEIGHT_F32, QUANTIZE_NAMED);
    assert_choice(f, c, "blk.0.attn_q.weight", CL_WEIGHT_F32, QUANTIZE_NAMED);
    cellar_error error;
    options.keep = "blk.0.attn_*,blk.9.*";
    folder_expect_failure(&error, quantize_choose(f, &options, c, &error), CELLAR_INVALID,
                          "blk.9.*");
    gguf_close(f);
    free(bytes);
}

/* ---- failures leave nothing ----------------------------------------------------------------- */

static void numbers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        float number;
        const char *type;
        cellar_status status;
        const char *text;
    } cases[] = {{NAN, "Q4_0", CELLAR_CORRUPT, "nan"},
                 {INFINITY, "Q4_K", CELLAR_CORRUPT, "inf"},
                 {-INFINITY, "F16", CELLAR_CORRUPT, "inf"},
                 {7e4f, "F16", CELLAR_INVALID, "BF16"},
                 {7e4f, "BF16", CELLAR_OK, ""},
                 {NAN, "BF16", CELLAR_OK, ""},
                 {65519, "F16", CELLAR_OK, ""},
                 {7e4f, "Q8_0", CELLAR_OK, ""}};
    const fixture_shape shape = wide_shape();
    quantize_choice choices[MOST_TENSORS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture made = fixture_create(&shape);
        const gguf_tensor *tensor = gguf_find_tensor(made.file, "blk.0.ffn_up.weight");
        memcpy(made.bytes + tensor->offset + 4 * 300, &cases[i].number, 4);
        const quantize_options options = options_for(cases[i].type);
        cellar_error error = {.status = CELLAR_OK};
        const cellar_status status = quantise(made.file, &options, "out", choices, &error);
        assert_int_equal(status, cases[i].status);
        if (status != CELLAR_OK) {
            folder_expect_failure(&error, status, cases[i].status, cases[i].text);
            folder_expect_failure(&error, status, cases[i].status, "blk.0.ffn_up.weight");
            assert_int_equal(error.at, 300);
        }
        folder_expect_names(status == CELLAR_OK ? 1 : 0);
        if (status == CELLAR_OK) {
            folder_remove("out", NULL);
        }
        fixture_destroy(&made);
    }
}

static bool stop_at_once(void *context, uint64_t n_done, uint64_t n_all)
{
    (void)context;
    assert_true(n_done > 0 && n_done <= n_all);
    return false;
}

static void a_stop_leaves_nothing(void **state)
{
    (void)state;
    const fixture_shape shape = wide_shape();
    fixture made = fixture_create(&shape);
    quantize_choice choices[MOST_TENSORS];
    quantize_options options = options_for("Q8_0");
    options.progress = stop_at_once;
    cellar_error error;
    const cellar_status status = quantise(made.file, &options, "out", choices, &error);
    folder_expect_failure(&error, status, CELLAR_REFUSED, "stopped");
    folder_expect_names(0);
    fixture_destroy(&made);
}

/* A limit on the size of files stands for a disk that is full. */
static void a_full_disk_leaves_nothing(void **state)
{
    (void)state;
    const fixture_shape shape = wide_shape();
    fixture made = fixture_create(&shape);
    quantize_choice choices[MOST_TENSORS];
    const quantize_options options = options_for("Q8_0");
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    static const rlim_t sizes[] = {0, 100, 5000, 70000, 200000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        small = before;
        small.rlim_cur = sizes[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        cellar_error error;
        const cellar_status status = quantise(made.file, &options, "out", choices, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        folder_expect_failure(&error, status, CELLAR_IO, "cannot write");
        folder_expect_names(0);
    }
    signal(SIGXFSZ, SIG_DFL);
    fixture_destroy(&made);
}

static void a_file_that_is_there_is_replaced_only_when_asked(void **state)
{
    (void)state;
    gguf_write *w = NULL;
    cellar_error error;
    folder_make_file("out", "old", 3);
    folder_expect_failure(&error, gguf_write_open(folder_path("out"), false, &w, &error),
                          CELLAR_INVALID, "--replace");
    assert_null(w);
    /* Given up: the old one stays. */
    assert_int_equal(gguf_write_open(folder_path("out"), true, &w, &error), CELLAR_OK);
    assert_int_equal(gguf_write_bytes(w, "new", 3, &error), CELLAR_OK);
    folder_expect_names(2);
    gguf_write_close(w);
    folder_expect_bytes("out", "old", 3);
    folder_expect_names(1);
    /* Carried out. */
    assert_int_equal(gguf_write_open(folder_path("out"), true, &w, &error), CELLAR_OK);
    assert_int_equal(gguf_write_bytes(w, "new", 3, &error), CELLAR_OK);
    assert_int_equal(gguf_write_commit(w, &error), CELLAR_OK);
    gguf_write_close(w);
    folder_expect_bytes("out", "new", 3);
    folder_expect_names(1);
    /* Somebody else made it meanwhile. */
    assert_int_equal(gguf_write_open(folder_path("other"), false, &w, &error), CELLAR_OK);
    folder_make_file("other", "theirs", 6);
    folder_expect_failure(&error, gguf_write_commit(w, &error), CELLAR_IO, "exists");
    gguf_write_close(w);
    folder_expect_bytes("other", "theirs", 6);
    folder_expect_names(2);
    folder_expect_failure(&error, gguf_write_open(folder_name, true, &w, &error), CELLAR_INVALID,
                          "regular");
    folder_expect_failure(&error, gguf_write_open(folder_path("no/out"), false, &w, &error),
                          CELLAR_IO, "folder");
}

static void the_mode_is_that_of_a_new_file(void **state)
{
    (void)state;
    static const mode_t masks[] = {022, 077, 0};
    for (size_t i = 0; i < 3; i++) {
        gguf_write *w = NULL;
        const mode_t before = umask(masks[i]);
        assert_int_equal(gguf_write_open(folder_path("out"), true, &w, NULL), CELLAR_OK);
        assert_int_equal(gguf_write_commit(w, NULL), CELLAR_OK);
        gguf_write_close(w);
        assert_int_equal(umask(before), masks[i]);
        struct stat about;
        assert_int_equal(stat(folder_path("out"), &about), 0);
        assert_int_equal(about.st_mode & 0777, 0644 & ~masks[i]);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_set_up, folder_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(logits_are_those_of_the_decoded_weights),
        IN_FOLDER(what_has_its_type_is_copied),
        IN_FOLDER(threads_do_not_matter),
        IN_FOLDER(the_rules_choose_types),
        IN_FOLDER(numbers_that_do_not_fit_are_refused),
        IN_FOLDER(a_stop_leaves_nothing),
        IN_FOLDER(a_full_disk_leaves_nothing),
        IN_FOLDER(a_file_that_is_there_is_replaced_only_when_asked),
        IN_FOLDER(the_mode_is_that_of_a_new_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
