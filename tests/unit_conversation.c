/*
 * unit_conversation.c: the text of a session and the stretches of it that are held.
 *
 * Beside the list of stretches goes the plainest model there is: an array with, for each position,
 * which token of the text stands there. Random edits drive both.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/conversation.h"
#include "engine/random_source.h"

#define MOST 400u

/* Which token stands at each position, and which are only written. */
typedef struct plain {
    uint32_t held[MOST], n_held, n_tokens;
} plain;

static void add(conversation *c, uint32_t n)
{
    cellar_error error;
    for (uint32_t i = 0; i < n; i++) {
        const cellar_token token = (cellar_token)(c->n_tokens + 1000); /* says its own place */
        if (conversation_add(c, &token, 1, &error) != CELLAR_OK) {
            fail_msg("%s", error.message);
        }
    }
}

static void hold(conversation *c, uint32_t n)
{
    cellar_error error;
    if (conversation_hold(c, n, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
}

static uint32_t end_of(const plain *p)
{
    return p->n_held > 0 ? p->held[p->n_held - 1] + 1 : 0;
}

static void assert_same(const conversation *c, const plain *p)
{
    assert_int_equal(c->n_held, p->n_held);
    assert_int_equal(c->n_tokens, p->n_tokens);
    assert_int_equal(conversation_length(c), p->n_held + (p->n_tokens - end_of(p)));
    for (uint32_t i = 0; i < conversation_length(c); i++) {
        const uint32_t place = i < p->n_held ? p->held[i] : end_of(p) + (i - p->n_held);
        assert_int_equal(conversation_at(c, i), place + 1000);
    }
}

static void random_edit(conversation *c, plain *p, random_source *random)
{
    const uint32_t waiting = p->n_tokens - end_of(p);
    const uint32_t r = (uint32_t)(random_source_next(random) >> 40);
    switch (r % 4) {
    case 0:
        if (p->n_tokens + r % 20 < MOST) {
            add(c, r % 20);
            p->n_tokens += r % 20;
        }
        break;
    case 1: /* some of what waits is read */
        for (uint32_t i = 0, n = waiting > 0 ? (r >> 8) % (waiting + 1) : 0; i < n; i++) {
            const uint32_t next = end_of(p);
            p->held[p->n_held++] = next;
        }
        hold(c, p->n_held);
        break;
    case 2: { /* a shift */
        if (p->n_held < 3) break;
        const uint32_t at = (r >> 8) % (p->n_held - 2), n = 1 + r % (p->n_held - at - 1);
        assert_int_equal(conversation_forget(c, at, n, NULL), CELLAR_OK);
        memmove(p->held + at, p->held + at + n, (p->n_held - at - n) * sizeof *p->held);
        p->n_held -= n;
        break;
    }
    default:
        if (r % 5 == 0) { /* back */
            const uint32_t n = (r >> 8) % (conversation_length(c) + 1);
            conversation_cut(c, n);
            p->n_tokens = n <= p->n_held ? (n > 0 ? p->held[n - 1] + 1 : 0)
                                         : end_of(p) + (n - p->n_held);
            p->n_held = n < p->n_held ? n : p->n_held;
        }
    }
}

static void random_edits_agree_with_the_plain_model(void **state)
{
    (void)state;
    uint32_t most_parts = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        random_source random;
        random_source_seed(&random, seed);
        conversation c = {.n_tokens = 0};
        plain p = {.n_held = 0};
        for (int i = 0; i < 200; i++) {
            random_edit(&c, &p, &random);
            assert_same(&c, &p);
            most_parts = c.n_parts > most_parts ? c.n_parts : most_parts;
        }
        conversation_free(&c);
    }
    assert_in_range(most_parts, 4, MOST); /* it was a test of more than one stretch */
}

static void the_drawing_in_the_header_is_right(void **state)
{
    (void)state;
    conversation c = {.n_tokens = 0};
    add(&c, 13);
    hold(&c, 12);
    assert_int_equal(conversation_forget(&c, 3, 4, NULL), CELLAR_OK);
    size_t n;
    char *text = conversation_format(&c, &n);
    assert_string_equal(text, "0+3 7+5");
    assert_int_equal(n, strlen(text));
    assert_int_equal(conversation_length(&c), 9);
    assert_int_equal(conversation_at(&c, 3), 1007);
    assert_int_equal(conversation_at(&c, 8), 1012);
    free(text);
    conversation_free(&c);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    conversation c = {.n_tokens = 0};
    cellar_error error;
    add(&c, 5);
    hold(&c, 3);
    assert_int_equal(conversation_hold(&c, 6, &error), CELLAR_INVALID);
    assert_int_equal(conversation_forget(&c, 1, 2, &error), CELLAR_INVALID);
    assert_int_equal(conversation_forget(&c, 3, 1, &error), CELLAR_INVALID);
    assert_int_equal(conversation_forget(&c, 0, 0, &error), CELLAR_INVALID);
    assert_int_equal(conversation_add(&c, NULL, SIZE_MAX, &error), CELLAR_FULL);
    assert_int_equal(c.n_held, 3);
    assert_int_equal(c.n_tokens, 5);
    conversation_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_edits_agree_with_the_plain_model),
        cmocka_unit_test(the_drawing_in_the_header_is_right),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
