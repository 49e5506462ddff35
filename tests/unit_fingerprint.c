/*
 * unit_fingerprint.c: the facts by which a session knows its model.
 *
 * Tiny models that differ in one thing: the facts that have to differ do, and no others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "engine/fingerprint.h"
#include "support_model.h"

/* A model and its facts. */
typedef struct person {
    fixture made;
    model *model;
    fingerprint facts;
} person;

static void load(person *p)
{
    cellar_error error;
    if (model_load(p->made.file, &p->model, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    fingerprint_make(p->model, &p->facts);
}

static person *make(const fixture_shape *shape)
{
    person *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->made = fixture_create(shape);
    load(p);
    return p;
}

static void forget(person *p)
{
    model_free(p->model);
    fixture_destroy(&p->made);
    free(p);
}

static const cellar_note *fact(const person *p, const char *name)
{
    for (uint32_t i = 0; i < FINGERPRINT_FACTS; i++) {
        if (strcmp(p->facts.facts[i].name, name) == 0) {
            return &p->facts.facts[i];
        }
    }
    fail_msg("there is no fact %s", name);
    return NULL;
}

static bool is_same(const person *a, const person *b, const char *name)
{
    const cellar_note *x = fact(a, name), *y = fact(b, name);
    return x->size == y->size && memcmp(x->value, y->value, x->size) == 0;
}

static void the_same_file_has_the_same_facts(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    person *a = make(&shape), *b = make(&shape);
    for (uint32_t i = 0; i < FINGERPRINT_FACTS; i++) {
        assert_true(is_same(a, b, a->facts.facts[i].name));
        assert_string_equal(a->facts.facts[i].name, b->facts.facts[i].name);
    }
    assert_int_equal(fact(a, "architecture")->size, 5);
    assert_memory_equal(fact(a, "architecture")->value, "llama", 5);
    assert_int_equal(fact(a, "metadata")->size, 16);
    assert_int_equal(fact(a, "weights")->size, 16);
    forget(a);
    forget(b);
}

static void other_weights_change_their_hash_alone(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    person *a = make(&shape);
    shape.seed++;
    person *b = make(&shape);
    assert_false(is_same(a, b, "weights"));
    assert_true(is_same(a, b, "metadata"));
    forget(a);
    forget(b);
}

static void another_key_changes_the_metadata_alone(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    person *a = make(&shape);
    const fixture_key key = {.key = "general.description", .kind = FIXTURE_TEXT, .text = "other"};
    shape.keys = &key;
    shape.n_keys = 1;
    person *b = make(&shape);
    assert_true(is_same(a, b, "weights"));
    assert_false(is_same(a, b, "metadata"));
    assert_true(is_same(a, b, "name"));
    forget(a);
    forget(b);
}

static void a_name_is_a_fact(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    const fixture_key key = {.key = "general.name", .kind = FIXTURE_TEXT, .text = "Ada"};
    shape.keys = &key;
    shape.n_keys = 1;
    person *a = make(&shape);
    assert_int_equal(fact(a, "name")->size, 3);
    assert_memory_equal(fact(a, "name")->value, "Ada", 3);
    forget(a);
}

/* A small model is hashed whole: every byte of its weights counts. */
static void every_byte_of_a_small_model_counts(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    person *a = make(&shape), *b = make(&shape);
    for (uint32_t i = 0; i < gguf_count_tensors(b->made.file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(b->made.file, i);
        const uint64_t places[] = {0, tensor->n_bytes / 2, tensor->n_bytes - 1};
        for (size_t j = 0; j < 3; j++) {
            unsigned char *byte = b->made.bytes + tensor->offset + places[j];
            *byte ^= 1;
            fingerprint_make(b->model, &b->facts);
            assert_false(is_same(a, b, "weights"));
            *byte ^= 1;
        }
    }
    fingerprint_make(b->model, &b->facts);
    assert_true(is_same(a, b, "weights"));
    forget(a);
    forget(b);
}

/* Of a large one each tensor of some size is looked at: training changes them all. */
static void a_large_model_is_sampled_in_every_tensor(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    shape.n_ff = 8192;
    person *a = make(&shape), *b = make(&shape);
    for (uint32_t i = 0; i < gguf_count_tensors(b->made.file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(b->made.file, i);
        if (tensor->n_bytes < 65536) continue;
        unsigned char *bytes = b->made.bytes + tensor->offset;
        for (uint64_t j = 0; j < tensor->n_bytes; j += 64)
            bytes[j] ^= 1;
        fingerprint_make(b->model, &b->facts);
        assert_false(is_same(a, b, "weights"));
        for (uint64_t j = 0; j < tensor->n_bytes; j += 64)
            bytes[j] ^= 1;
    }
    forget(a);
    forget(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_file_has_the_same_facts),
        cmocka_unit_test(other_weights_change_their_hash_alone),
        cmocka_unit_test(another_key_changes_the_metadata_alone),
        cmocka_unit_test(a_name_is_a_fact),
        cmocka_unit_test(every_byte_of_a_small_model_counts),
        cmocka_unit_test(a_large_model_is_sampled_in_every_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
