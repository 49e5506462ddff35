/*
 * support_session_view.c: see the header.
 *
 * A sequence in a group is told token by token: position, shift, and what its cell says. Rows are asked
 * for by position, states by their number.
 */
#include "support_session_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_TOKENS = 4096, MOST_GROUPS = 16, MOST_FLOATS = 3 * SMALL_HEAD };

/* ---- tokens ----------------------------------------------------------------------------------------- */

typedef struct token {
    cellar_pos pos, shift, stored_pos;
    cellar_token id;
    cellar_point point; /* as distances: they move along with shifts */
    uint32_t cell;
} token;

typedef struct tokens {
    token items[MOST_TOKENS];
    uint32_t n, group;
} tokens;

static bool add_run(void *context, const cellar_run *run)
{
    tokens *to = context;
    for (uint32_t i = 0; run->group == to->group && i < run->len; i++) {
        assert_true(to->n < MOST_TOKENS);
        to->items[to->n++] = (token){.pos = run->pos + (cellar_pos)(run->step ? i : 0),
                                     .shift = run->shift,
                                     .cell = run->cell + i};
    }
    return true;
}

static bool add_cell(void *context, const cellar_cell *cell)
{
    tokens *to = context;
    for (uint32_t i = 0; cell->group == to->group && i < to->n; i++)
        if (to->items[i].cell == cell->cell) {
            to->items[i].stored_pos = cell->stored_pos;
            to->items[i].id = cell->token;
            to->items[i].point = (cellar_point){cell->point.y - cell->stored_pos,
                                                cell->point.x - cell->stored_pos};
        }
    return true;
}

static void tell(view v, uint32_t group, tokens *to)
{
    to->n = 0;
    to->group = group;
    assert_int_equal(cellar_visit_runs(v.small->memory, v.seq, add_run, to, NULL), CELLAR_OK);
    assert_int_equal(cellar_visit_cells(v.small->memory, add_cell, to, NULL), CELLAR_OK);
}

static bool same_token(const token *a, const token *b)
{
    return a->pos == b->pos && a->shift == b->shift && a->stored_pos == b->stored_pos &&
           a->id == b->id && a->point.y == b->point.y && a->point.x == b->point.x;
}

/* Where in a the tokens of b begin to be the same; b may lack some at the beginning. */
static void compare_tokens(const tokens *a, const tokens *b, bool is_whole, const char *what)
{
    if (is_whole ? a->n != b->n : a->n < b->n)
        fail_msg("%s: group %u: %u tokens, not %u", what, a->group, b->n, a->n);
    for (uint32_t i = 0, k = 0; k < b->n; k++, i++) {
        while (!is_whole && i < a->n && !same_token(&a->items[i], &b->items[k]))
            i++;
        if (i >= a->n || !same_token(&a->items[i], &b->items[k]))
            fail_msg("%s: group %u: another token at %d", what, a->group, (int)b->items[k].pos);
    }
}

/* ---- rows and states ---------------------------------------------------------------------------------- */

static void compare_rows(view a, view b, uint32_t layer, const tokens *of_b, const char *what)
{
    static float k[2][MOST_FLOATS], v[2][MOST_FLOATS];
    const cellar_layer *its = &a.small->layers[layer];
    size_t k_bytes = its->n_kv_heads * its->k_size * sizeof(float);
    size_t v_bytes = its->n_kv_heads * its->v_size * sizeof(float);
    for (uint32_t i = 0; i < of_b->n; i++) {
        cellar_pos pos = of_b->items[i].pos;
        if (i > 0 && pos == of_b->items[i - 1].pos) continue;
        /* Of tokens that share a position the first is read: b must have it. */
        assert_int_equal(cellar_read_rows(a.small->memory, a.seq, layer, pos, 1, k[0], v[0], NULL),
                         CELLAR_OK);
        assert_int_equal(cellar_read_rows(b.small->memory, b.seq, layer, pos, 1, k[1], v[1], NULL),
                         CELLAR_OK);
        if (memcmp(k[0], k[1], k_bytes) != 0 || memcmp(v[0], v[1], v_bytes) != 0)
            fail_msg("%s: layer %u: other rows at %d", what, layer, (int)pos);
    }
}

static void compare_states(view a, view b, uint32_t layer, const tokens *of_a, const tokens *of_b,
                           const char *what)
{
    const cellar_layer *its = &a.small->layers[layer];
    for (uint32_t k = 0; k < of_b->n; k++) {
        uint32_t i = of_a->n - of_b->n + k; /* both end with the present one */
        for (uint32_t t = 0; t < its->n_states; t++) {
            const float *x = cellar_state_data(a.small->memory, of_a->items[i].cell, layer, t);
            const float *y = cellar_state_data(b.small->memory, of_b->items[k].cell, layer, t);
            assert_non_null(x);
            assert_non_null(y);
            if (memcmp(x, y, its->state_sizes[t] * sizeof *x) != 0)
                fail_msg("%s: layer %u: another state at %d", what, layer, (int)of_b->items[k].pos);
        }
    }
}

/* ---- checkpoints ------------------------------------------------------------------------------------------ */

typedef struct places {
    cellar_pos items[MOST_TOKENS];
    uint32_t n_cells, n;
} places;

static bool add_place(void *context, const cellar_checkpoint_info *info)
{
    places *to = context;
    assert_true(to->n < MOST_TOKENS);
    to->items[to->n++] = info->position;
    to->n_cells += info->n_cells;
    return true;
}

static void compare_checkpoints(view a, view b, const char *what)
{
    static places of_a, of_b;
    of_a.n = of_a.n_cells = of_b.n = of_b.n_cells = 0;
    assert_int_equal(cellar_visit_checkpoints(a.small->memory, a.seq, add_place, &of_a, NULL),
                     CELLAR_OK);
    assert_int_equal(cellar_visit_checkpoints(b.small->memory, b.seq, add_place, &of_b, NULL),
                     CELLAR_OK);
    if (of_a.n != of_b.n || of_a.n_cells != of_b.n_cells ||
        memcmp(of_a.items, of_b.items, of_a.n * sizeof *of_a.items) != 0)
        fail_msg("%s: %u checkpoints of %u cells, not %u of %u", what, of_b.n, of_b.n_cells, of_a.n,
                 of_a.n_cells);
}

static void compare_positions(view a, view b, bool is_whole, const char *what)
{
    cellar_sequence_info of_a, of_b;
    assert_int_equal(cellar_get_sequence(a.small->memory, a.seq, &of_a, NULL), CELLAR_OK);
    assert_int_equal(cellar_get_sequence(b.small->memory, b.seq, &of_b, NULL), CELLAR_OK);
    if (of_a.pos_next != of_b.pos_next || (is_whole && of_a.pos_max != of_b.pos_max))
        fail_msg("%s: goes on at %d, not %d", what, (int)of_b.pos_next, (int)of_a.pos_next);
    if (is_whole && (of_a.pos_min != of_b.pos_min || of_a.rewind_min != of_b.rewind_min))
        fail_msg("%s: can be cut from %d on, not %d", what, (int)of_b.rewind_min,
                 (int)of_a.rewind_min);
}

void view_compare(view a, view b, bool is_whole, const char *what)
{
    static tokens of_a, of_b;
    compare_positions(a, b, is_whole, what);
    for (uint32_t g = 0; g < cellar_count_groups(a.small->memory); g++) {
        cellar_group_info info;
        assert_int_equal(cellar_get_group(a.small->memory, g, &info, NULL), CELLAR_OK);
        tell(a, g, &of_a);
        tell(b, g, &of_b);
        bool is_all = is_whole || (info.kind == CELLAR_LAYER_ATTENTION &&
                                   info.window.kind == CELLAR_WINDOW_NONE);
        compare_tokens(&of_a, &of_b, is_all, what);
        for (uint32_t l = 0; l < a.small->config.n_layers; l++) {
            if (cellar_group_of_layer(a.small->memory, l) != (int32_t)g) continue;
            if (info.kind == CELLAR_LAYER_RECURRENT)
                compare_states(a, b, l, &of_a, &of_b, what);
            else
                compare_rows(a, b, l, &of_b, what);
        }
    }
    if (is_whole) compare_checkpoints(a, b, what);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

static void attend_one(const small_memory *small, uint32_t layer, float *out)
{
    static float numbers[MOST_FLOATS];
    const cellar_layer *its = &small->layers[layer];
    for (uint32_t i = 0; i < MOST_FLOATS; i++)
        numbers[i] = (float)((i * 37 + layer * 11) % 101) / 50.0f - 1.0f;
    assert_int_equal(
        cellar_store(small->memory, 0, layer, numbers, its->v_in_k ? NULL : numbers, NULL),
        CELLAR_OK);
    assert_int_equal(cellar_attend(small->memory, 0, layer, numbers, out, NULL), CELLAR_OK);
}

/* out [n_layers][MOST_FLOATS], zeros where a layer does not attend. False: no room. */
static cellar_status probe(view v, float *out)
{
    cellar_batch batch = cellar_batch_init();
    cellar_token id = 77;
    batch.n_tokens = 1;
    batch.tokens = &id;
    batch.seqs = &v.seq;
    cellar_status status = cellar_begin(v.small->memory, &batch, NULL);
    for (uint32_t l = 0; status == CELLAR_OK && l < v.small->config.n_layers; l++)
        if (v.small->layers[l].kind == CELLAR_LAYER_ATTENTION)
            attend_one(v.small, l, out + (size_t)l * MOST_FLOATS);
    cellar_abort(v.small->memory);
    return status;
}

bool view_probe(view a, view b, const char *what)
{
    static float of_a[SMALL_LAYERS * MOST_FLOATS], of_b[SMALL_LAYERS * MOST_FLOATS];
    memset(of_a, 0, sizeof of_a);
    memset(of_b, 0, sizeof of_b);
    cellar_status status_a = probe(a, of_a), status_b = probe(b, of_b);
    if (status_a == CELLAR_FULL || status_b == CELLAR_FULL) return false;
    if (status_a != status_b)
        fail_msg("%s: one more token: %s, not %s", what, cellar_status_text(status_b),
                 cellar_status_text(status_a));
    if (memcmp(of_a, of_b, sizeof of_a) != 0) fail_msg("%s: attention is another", what);
    return status_a == CELLAR_OK;
}

/* ---- names -------------------------------------------------------------------------------------------------------- */

typedef struct names {
    cellar_seq *items;
    uint32_t n, most;
} names;

static bool add_name(void *context, const cellar_run *run)
{
    names *to = context;
    uint32_t at = 0;
    while (at < to->n && to->items[at] < run->seq)
        at++;
    if (at < to->n && to->items[at] == run->seq) return true;
    assert_true(to->n < to->most);
    memmove(to->items + at + 1, to->items + at, (to->n - at) * sizeof *to->items);
    to->items[at] = run->seq;
    to->n++;
    return true;
}

uint32_t view_names(const cellar_memory *memory, cellar_seq *items, uint32_t most)
{
    names to = {items, 0, most};
    assert_int_equal(cellar_visit_runs(memory, -1, add_name, &to, NULL), CELLAR_OK);
    return to.n;
}
