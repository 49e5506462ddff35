/*
 * unit_prefix_index.c: texts in the order of their tokens, beside a plain list of them.
 *
 * Random texts over two or three different tokens, so that most of them begin alike, are put in, taken out, grown and
 * shrunk. After each operation the whole index is compared with what it must be: sorted, with the
 * right numbers in common; and a walk from a random prompt must show all texts that begin like it, most in
 * common first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "prefix_index.h"

enum { TEXTS = 40, LONGEST = 12, OPERATIONS = 20000 };

typedef struct plain {
    cl_prefix_text text;
    cellar_token tokens[LONGEST];
    bool is_in;
} plain;

static uint32_t seed;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static void make_tokens(cellar_token *to, uint32_t from, uint32_t n, uint32_t n_kinds)
{
    for (uint32_t i = from; i < n; i++)
        to[i] = (cellar_token)random_below(n_kinds) - 1;
}

static uint32_t count_common(const cellar_token *a, uint32_t n_a, const cellar_token *b,
                             uint32_t n_b)
{
    uint32_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n])
        n++;
    return n;
}

static void check_order(const cl_prefix_index *index, const plain *texts)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < TEXTS; i++)
        n += texts[i].is_in;
    assert_int_equal(index->n, n);
    for (uint32_t i = 0; i < n; i++) {
        const cl_prefix_text *text = index->items[i];
        assert_int_equal(text->at, i);
        assert_true(((const plain *)(const void *)text)->is_in);
        if (i == 0) {
            assert_int_equal(text->common, 0);
            continue;
        }
        const cl_prefix_text *before = index->items[i - 1];
        uint32_t common = count_common(before->tokens, before->n, text->tokens, text->n);
        assert_int_equal(text->common, common);
        assert_true(common == before->n ||
                    (common < text->n && before->tokens[common] < text->tokens[common]));
    }
}

static void check_walk(const cl_prefix_index *index, plain *texts, const cellar_token *prompt,
                       uint32_t n)
{
    bool is_shown[TEXTS] = {false};
    uint32_t last = UINT32_MAX, common;
    cl_prefix_walk walk = cl_prefix_walk_begin(index, prompt, n);
    for (cl_prefix_text *text; (text = cl_prefix_walk_next(&walk, &common));) {
        size_t i = (size_t)((plain *)(void *)text - texts);
        assert_true(texts[i].is_in && !is_shown[i]);
        is_shown[i] = true;
        assert_int_equal(common, count_common(text->tokens, text->n, prompt, n));
        assert_true(common > 0 && common <= last);
        last = common;
    }
    for (uint32_t i = 0; i < TEXTS; i++)
        assert_int_equal(is_shown[i],
                         texts[i].is_in &&
                             count_common(texts[i].tokens, texts[i].text.n, prompt, n) > 0);
}

static void change(cl_prefix_index *index, plain *p, uint32_t n_kinds, cl_alloc *alloc)
{
    uint32_t n = random_below(LONGEST + 1);
    if (!p->is_in) {
        make_tokens(p->tokens, 0, n, n_kinds);
        p->text = (cl_prefix_text){.tokens = p->tokens, .n = n};
        assert_true(cl_prefix_index_reserve(index, alloc));
        p->is_in = true;
        cl_prefix_index_put(index, &p->text);
    } else if (random_below(4) == 0) {
        cl_prefix_index_take(index, &p->text);
        p->is_in = false;
    } else if (n >= p->text.n) {
        make_tokens(p->tokens, p->text.n, n, n_kinds);
        cl_prefix_index_grow(index, &p->text, n);
    } else {
        cl_prefix_index_shrink(index, &p->text, n);
    }
}

static void is_always_sorted_and_walks_from_the_longest_agreement(void **state)
{
    (void)state;
    static plain texts[TEXTS];
    cellar_allocator none = {0};
    cl_alloc alloc;
    cl_alloc_init(&alloc, &none, 0);
    for (uint32_t round = 0; round < 3; round++) {
        cl_prefix_index index = {0};
        memset(texts, 0, sizeof texts);
        seed = 11 + round;
        for (uint32_t i = 0; i < OPERATIONS; i++) {
            cellar_token prompt[LONGEST];
            change(&index, &texts[random_below(TEXTS)], 2 + round, &alloc);
            check_order(&index, texts);
            uint32_t n = random_below(LONGEST + 1);
            make_tokens(prompt, 0, n, 2 + round);
            check_walk(&index, texts, prompt, n);
        }
        cl_prefix_index_free(&index, &alloc);
    }
    assert_int_equal(alloc.total, 0);
}

static void growing_behind_the_next_one_moves_one_place(void **state)
{
    (void)state;
    cellar_token a[4] = {1, 2, 9, 9}, b[3] = {1, 2, 5}, c[3] = {1, 3, 0};
    cl_prefix_text first = {.tokens = a, .n = 2}, second = {.tokens = b, .n = 3},
                   third = {.tokens = c, .n = 3};
    cl_prefix_text *places[3];
    cl_prefix_index index = {.items = places, .capacity = 3};
    cl_prefix_index_put(&index, &second);
    cl_prefix_index_put(&index, &first);
    cl_prefix_index_put(&index, &third);
    assert_ptr_equal(places[0], &first);
    assert_int_equal(second.common, 2);
    cl_prefix_index_grow(&index, &first, 4);
    assert_ptr_equal(places[0], &second);
    assert_ptr_equal(places[1], &first);
    assert_int_equal(first.common, 2);
    assert_int_equal(third.common, 1);
    cl_prefix_index_shrink(&index, &first, 1);
    assert_ptr_equal(places[0], &first);
    assert_int_equal(second.common, 1);
    assert_int_equal(third.common, 1);
}

static void without_memory_nothing_changes(void **state)
{
    (void)state;
    cellar_allocator none = {0};
    cl_alloc alloc;
    cl_alloc_init(&alloc, &none, 8);
    cl_prefix_index index = {0};
    assert_false(cl_prefix_index_reserve(&index, &alloc));
    assert_null(index.items);
    assert_int_equal(alloc.total, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_always_sorted_and_walks_from_the_longest_agreement),
        cmocka_unit_test(growing_behind_the_next_one_moves_one_place),
        cmocka_unit_test(without_memory_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
