/*
 * unit_attend.c: the walk over key blocks, one layer at a time.
 *
 * What must hold bit for bit: a row's value does not change with the cells its keys lie in, with
 * what else is computed, with workers, nor with anything that stands in rows it does not see, be
 * they NaN, infinite or gone. Which keys are seen is tested by values that name their keys. Formulas of
 * slopes, buckets and sinks are compared with numbers worked out by hand. Accuracy against double
 * precision is the business of unit_attention.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/random.h"
#include "support_attend.h"

enum { MAX_KEYS = 160, MAX_QUERIES = 40, CELLS = 512 };

/* Keys of a sequence, their rows, and queries. */
typedef struct scene {
    walk_key keys[MAX_KEYS];
    uint32_t n_keys;
    walk_query queries[MAX_QUERIES];
    uint32_t n_queries;
    float *k, *v, *q;
} scene;

static float *random_floats(uint64_t *seed, size_t n)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float(seed);
    return x;
}

/* Runs of different shifts, gaps, shared positions; queries that rise by one around the end. */
static void make_scene(scene *s, const cellar_layer *layer, uint64_t seed)
{
    int32_t pos = 0, shift = 0;
    bool is_shared = random_one_in(&seed, 2);
    s->n_keys = 1 + random_below(&seed, MAX_KEYS);
    s->n_queries = 1 + random_below(&seed, MAX_QUERIES);
    for (uint32_t i = 0; i < s->n_keys; i++) {
        if (random_one_in(&seed, 20)) shift = random_between(&seed, -10, 10);
        if (!(is_shared && random_one_in(&seed, 2))) pos += random_one_in(&seed, 15) ? 12 : 1;
        s->keys[i] = (walk_key){.pos = pos, .stored_pos = pos - shift > 0 ? pos - shift : 0};
        if (layer->rope.kind == CELLAR_ROPE_MROPE)
            s->keys[i].point = (cl_point){(int16_t)random_below(&seed, 4),
                                          (int16_t)random_below(&seed, 4)};
    }
    int32_t first = random_between(&seed, pos - 60 > 0 ? pos - 60 : 0, pos);
    for (uint32_t i = 0; i < s->n_queries; i++) {
        s->queries[i] = (walk_query){.pos = first + (int32_t)(is_shared ? i / 3 : i)};
        if (layer->rope.kind == CELLAR_ROPE_MROPE)
            s->queries[i].point = (cl_point){(int16_t)random_below(&seed, 4),
                                             (int16_t)random_below(&seed, 4)};
    }
    s->k = random_floats(&seed, (size_t)s->n_keys * layer->n_kv_heads * layer->k_size);
    s->v = random_floats(&seed, (size_t)s->n_keys * layer->n_kv_heads * layer->v_size);
    s->q = random_floats(&seed, (size_t)s->n_queries * layer->n_heads * layer->k_size);
}

static void free_scene(scene *s)
{
    free(s->k);
    free(s->v);
    free(s->q);
}

/* The cell of key i: one behind the other, or all over the memory. No cell is used twice. */
static uint32_t place(uint32_t i, uint64_t seed)
{
    return seed == 0 ? i : (uint32_t)((i * 37 + seed * 5) % CELLS);
}

static bool sees(const cellar_layer *layer, const walk_key *key, const walk_query *query)
{
    if (!cl_window_sees(&layer->window, key->pos, query->pos)) return false;
    if (key->pos != query->pos) return !layer->is_causal || key->pos < query->pos;
    return layer->rope.kind != CELLAR_ROPE_MROPE || !cl_attend_is_behind(key->point, query->point);
}

static bool is_seen_by_any(const cellar_layer *layer, const scene *s, uint32_t i)
{
    for (uint32_t a = 0; a < s->n_queries; a++)
        if (sees(layer, &s->keys[i], &s->queries[a])) return true;
    return false;
}

/* What stands in the rows that no query sees. */
typedef enum unseen { AS_IT_IS, NOT_A_NUMBER, INFINITE, GONE } unseen;

/* Store a scene (cells chosen by `placement`) and attend by queries [first, first + n). */
static void run_scene(const cellar_layer *layer, const scene *s, uint32_t first, uint32_t n,
                      uint64_t placement, uint32_t n_workers, unseen what, float *out)
{
    walk w = {.description = *layer, .n_cells = CELLS, .cpu_mask = UINT32_MAX};
    w.n_workers = n_workers;
    walk_open(&w);
    walk_key held[MAX_KEYS];
    uint32_t n_held = 0;
    size_t k_size = (size_t)layer->n_kv_heads * layer->k_size;
    size_t v_size = (size_t)layer->n_kv_heads * layer->v_size;
    float *k = malloc(k_size * sizeof *k), *v = malloc(v_size * sizeof *v);
    assert_true(k && v);
    for (uint32_t i = 0; i < s->n_keys; i++) {
        bool is_seen = is_seen_by_any(layer, s, i);
        if (!is_seen && what == GONE) continue;
        float bad = what == NOT_A_NUMBER ? NAN : INFINITY;
        bool is_bad = !is_seen && what != AS_IT_IS;
        for (size_t j = 0; j < k_size; j++)
            k[j] = is_bad ? bad : s->k[i * k_size + j];
        for (size_t j = 0; j < v_size; j++)
            v[j] = is_bad ? bad : s->v[i * v_size + j];
        walk_key *key = &held[n_held++];
        *key = s->keys[i];
        key->cell = place(i, placement);
        assert_true(walk_store(&w, key, 1, k, layer->v_in_k ? NULL : v));
    }
    assert_true(walk_attend(&w, held, n_held, s->queries + first, n,
                            s->q + (size_t)first * layer->n_heads * layer->k_size, out));
    free(k);
    free(v);
    walk_close(&w);
}

/* A layer with some of everything. */
static cellar_layer make_layer(uint64_t seed)
{
    static const uint32_t heads[][2] = {{1, 1}, {4, 2}, {9, 3}, {70, 1}};
    static const uint32_t sizes[][2] = {{32, 32}, {64, 32}, {10, 6}, {96, 64}};
    static const cellar_type types[] = {CELLAR_F32, CELLAR_F16, CELLAR_BF16, CELLAR_Q8_0};
    static const float sinks[70] = {0.5f, -1, 2, 0.25f};
    cellar_layer layer = cellar_layer_init();
    uint32_t h = random_below(&seed, 4), size = random_below(&seed, 4);
    layer.n_heads = heads[h][0];
    layer.n_kv_heads = heads[h][1];
    layer.k_size = sizes[size][0];
    layer.v_size = sizes[size][1];
    layer.k_type = types[random_below(&seed, layer.k_size % 32 ? 3 : 4)];
    layer.v_type = types[random_below(&seed, layer.v_size % 32 ? 3 : 4)];
    layer.is_causal = !random_one_in(&seed, 3);
    layer.rope.kind = (cellar_rope_kind)random_below(&seed, 4);
    if (layer.rope.kind == CELLAR_ROPE_MROPE) layer.rope.sections[0] = layer.k_size / 2;
    layer.window.kind = (cellar_window_kind)random_below(&seed, 4);
    layer.window.size = 1 + random_below(&seed, 50);
    layer.window.n_sinks = random_one_in(&seed, 2) ? random_below(&seed, 40) : 0;
    if (layer.window.kind == CELLAR_WINDOW_NONE) layer.window = (cellar_window){0};
    layer.rotate_k = random_one_in(&seed, 3);
    layer.rotate_v = random_one_in(&seed, 3);
    if (random_one_in(&seed, 3)) layer.softcap = 5;
    if (random_one_in(&seed, 3)) layer.alibi_max_bias = 8;
    if (random_one_in(&seed, 3)) layer.sinks = sinks;
    if (random_one_in(&seed, 4) && layer.rope.kind == CELLAR_ROPE_NONE) {
        layer.v_in_k = true;
        layer.v_size = layer.k_size / 2;
        layer.rotate_k = layer.rotate_v = false;
    }
    return layer;
}

/* Run `variant` on many scenes; it fills the same results in another way. */
typedef void variant(const cellar_layer *layer, const scene *s, uint64_t seed, float *out);

static void compare(variant *variant_of)
{
    for (uint64_t seed = 1; seed <= 120; seed++) {
        cellar_layer layer = make_layer(seed);
        scene s;
        make_scene(&s, &layer, seed);
        size_t n = (size_t)s.n_queries * layer.n_heads * layer.v_size;
        float *plain = malloc(n * sizeof *plain), *other = malloc(n * sizeof *other);
        assert_true(plain && other);
        run_scene(&layer, &s, 0, s.n_queries, 0, 1, AS_IT_IS, plain);
        variant_of(&layer, &s, seed, other);
        for (size_t i = 0; i < n; i++)
            assert_true(isfinite(plain[i]));
        if (memcmp(plain, other, n * sizeof *plain) != 0)
            fail_msg("seed %llu: results differ", (unsigned long long)seed);
        free(plain);
        free(other);
        free_scene(&s);
    }
}

static void poisoned(const cellar_layer *layer, const scene *s, uint64_t seed, float *out)
{
    run_scene(layer, s, 0, s->n_queries, 0, 1, seed % 2 ? NOT_A_NUMBER : INFINITE, out);
}

static void rows_that_nobody_sees_do_not_matter(void **state)
{
    (void)state;
    compare(poisoned);
}

/*
 * Given up before the window, and behind the last query. (Not in images, where one that stands behind
 * all queries may lie between others; no group gives up those.)
 */
static void given_up(const cellar_layer *layer, const scene *s, uint64_t seed, float *out)
{
    (void)seed;
    bool has_window = layer->window.kind != CELLAR_WINDOW_NONE && layer->is_causal &&
                      layer->rope.kind != CELLAR_ROPE_MROPE;
    run_scene(layer, s, 0, s->n_queries, 0, 1, has_window ? GONE : AS_IT_IS, out);
}

static void rows_that_were_given_up_do_not_matter(void **state)
{
    (void)state;
    compare(given_up);
}

static void elsewhere(const cellar_layer *layer, const scene *s, uint64_t seed, float *out)
{
    run_scene(layer, s, 0, s->n_queries, seed, 1, AS_IT_IS, out);
}

static void it_does_not_matter_where_cells_lie(void **state)
{
    (void)state;
    compare(elsewhere);
}

static void one_by_one(const cellar_layer *layer, const scene *s, uint64_t seed, float *out)
{
    (void)seed;
    for (uint32_t i = 0; i < s->n_queries; i++) {
        scene alone = *s;
        run_scene(layer, &alone, i, 1, 0, 1, AS_IT_IS,
                  out + (size_t)i * layer->n_heads * layer->v_size);
    }
}

static void a_query_alone_has_the_same_result(void **state)
{
    (void)state;
    compare(one_by_one);
}

static void in_parts(const cellar_layer *layer, const scene *s, uint64_t seed, float *out)
{
    run_scene(layer, s, 0, s->n_queries, 0, 2 + (uint32_t)seed % 5, AS_IT_IS, out);
}

static void workers_change_nothing(void **state)
{
    (void)state;
    compare(in_parts);
}

/* Equal scores, and values that name their keys: a result is 1/n for each of n seen keys. */
static void a_query_sees_what_its_layer_says(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        cellar_layer layer = make_layer(seed);
        scene s;
        float out[MAX_QUERIES * MAX_KEYS];
        layer.n_heads = layer.n_kv_heads = 1;
        layer.v_size = MAX_KEYS;
        layer.v_type = CELLAR_F32;
        layer.v_in_k = layer.rotate_v = false;
        layer.alibi_max_bias = 0;
        layer.sinks = NULL;
        make_scene(&s, &layer, seed);
        memset(s.q, 0, (size_t)s.n_queries * layer.k_size * sizeof(float));
        memset(s.v, 0, (size_t)s.n_keys * MAX_KEYS * sizeof(float));
        for (uint32_t i = 0; i < s.n_keys; i++)
            s.v[(size_t)i * MAX_KEYS + i] = 1;
        run_scene(&layer, &s, 0, s.n_queries, 0, 1, AS_IT_IS, out);
        for (uint32_t a = 0; a < s.n_queries; a++) {
            uint32_t n_seen = 0;
            for (uint32_t i = 0; i < s.n_keys; i++)
                n_seen += sees(&layer, &s.keys[i], &s.queries[a]);
            for (uint32_t i = 0; i < MAX_KEYS; i++) {
                bool is_seen = i < s.n_keys && sees(&layer, &s.keys[i], &s.queries[a]);
                double wanted = is_seen ? 1.0 / n_seen : 0;
                assert_true(fabs(out[a * MAX_KEYS + i] - wanted) < 1e-5);
                assert_true(is_seen || out[a * MAX_KEYS + i] == 0);
            }
        }
        free_scene(&s);
    }
}

/* ---- formulas by hand ------------------------------------------------------------------------ */

static void a_sink_takes_its_share(void **state)
{
    (void)state;
    static const float sinks[] = {0, 3, -2};
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = 3;
    layer.n_kv_heads = layer.k_size = layer.v_size = 1;
    layer.k_type = layer.v_type = CELLAR_F32;
    layer.sinks = sinks;
    walk w = {.description = layer, .n_cells = 32};
    walk_open(&w);
    walk_key key = {.pos = 5, .stored_pos = 5, .cell = 7};
    walk_query query = {.pos = 5};
    float k = 1, v = 2, q[] = {1, 1, 1}, out[3];
    assert_true(walk_store(&w, &key, 1, &k, &v));
    assert_true(walk_attend(&w, &key, 1, &query, 1, q, out));
    for (uint32_t h = 0; h < 3; h++)
        assert_true(fabs(out[h] - 2 * exp(1) / (exp(1) + exp(sinks[h]))) < 1e-6);
    query.pos = 4; /* before the only key: nothing is seen, with a sink and without */
    for (int round = 0; round < 2; round++) {
        memset(out, 0xff, sizeof out);
        assert_true(walk_attend(&w, &key, 1, &query, 1, q, out));
        for (uint32_t h = 0; h < 3; h++)
            assert_true(out[h] == 0);
        w.layer.sinks = NULL;
    }
    walk_close(&w);
}

static void scores_are_capped_before_biases_are_added(void **state)
{
    (void)state;
    static const float bias[] = {0, 0.5f, 0, 0};
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = layer.n_kv_heads = layer.k_size = 1;
    layer.v_size = 2;
    layer.k_type = layer.v_type = CELLAR_F32;
    layer.scale = 3;
    layer.softcap = 2;
    layer.alibi_max_bias = 8;
    layer.buckets = (cellar_buckets){4, 8, false, bias};
    walk w = {.description = layer, .n_cells = 32};
    walk_open(&w);
    walk_key keys[] = {{.pos = 1, .stored_pos = 1, .cell = 1},
                       {.pos = 2, .stored_pos = 2, .cell = 2}};
    walk_query query = {.pos = 2};
    float k[] = {4, 1}, v[] = {1, 0, 0, 1}, q = 0.5f, out[2];
    assert_true(walk_store(&w, keys, 2, k, v));
    assert_true(walk_attend(&w, keys, 2, &query, 1, &q, out));
    double slope = 1.0 / 256; /* one head: 2^-8 */
    double a = 2 * tanh(3 * 4 * 0.5 / 2) - slope + 0.5, b = 2 * tanh(3 * 0.5 / 2);
    assert_true(fabs(out[0] - exp(a) / (exp(a) + exp(b))) < 1e-6);
    assert_true(fabs(out[1] - exp(b) / (exp(a) + exp(b))) < 1e-6);
    walk_close(&w);
}

static void slopes_are_those_of_the_paper(void **state)
{
    (void)state;
    float slopes[12];
    cl_attend_slopes(slopes, 8, 8);
    for (int h = 0; h < 8; h++)
        assert_true(slopes[h] == ldexpf(1, -h - 1));
    cl_attend_slopes(slopes, 12, 8); /* eight, and every other one of sixteen */
    for (int h = 0; h < 8; h++)
        assert_true(slopes[h] == ldexpf(1, -h - 1));
    for (int h = 8; h < 12; h++)
        assert_true(fabs(slopes[h] - exp2(-0.5 * (2 * (h - 8) + 1))) < 1e-7);
    cl_attend_slopes(slopes, 1, 16);
    assert_true(slopes[0] == ldexpf(1, -16));
}

static void buckets_are_those_of_the_paper(void **state)
{
    /* distance, bucket of 32 in both directions, bucket of 32 backwards; at most 128 */
    static const int32_t rows[][3] = {
        {0, 0, 0},      {-1, 1, 1},     {1, 17, 0},   {-7, 7, 7},        {7, 23, 0},
        {-8, 8, 8},     {8, 24, 0},     {-15, 9, 15}, {-16, 10, 16},     {-17, 10, 16},
        {-31, 11, 21},  {-32, 12, 21},  {32, 28, 0},  {-63, 13, 26},     {-64, 14, 26},
        {-127, 15, 31}, {-128, 15, 31}, {128, 31, 0}, {-100000, 15, 31},
    };
    (void)state;
    cl_layer layer = {.n_buckets = 32, .max_distance = 128};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        layer.is_bidirectional = true;
        assert_int_equal(cl_attend_bucket(&layer, rows[i][0]), rows[i][1]);
        layer.is_bidirectional = false;
        assert_int_equal(cl_attend_bucket(&layer, rows[i][0]), rows[i][2]);
    }
    /* halves of an odd number: one bucket of the three has one distance, as the paper's code rounds */
    static const uint32_t six[] = {0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2};
    for (int32_t r = 0; r <= 10; r++) {
        layer = (cl_layer){.n_buckets = 6, .max_distance = 16, .is_bidirectional = true};
        assert_int_equal(cl_attend_bucket(&layer, -r), six[r]);
        assert_int_equal(cl_attend_bucket(&layer, r), r == 0 ? 0 : 3 + six[r]);
    }
    for (uint32_t n = 2; n <= 64; n += 2)
        for (int both = 0; both < 2; both++)
            for (int64_t r = -300; r <= 300; r++) {
                layer = (cl_layer){.n_buckets = n, .max_distance = n / 2 + 1 + n};
                layer.is_bidirectional = both;
                uint32_t bucket = cl_attend_bucket(&layer, r);
                assert_true(bucket < n);
                if (both) assert_int_equal(bucket >= n / 2, r > 0);
                if (r < 0) assert_true(bucket >= cl_attend_bucket(&layer, r + 1));
            }
}

/* ---- stores that fail ------------------------------------------------------------------------- */

typedef struct failing_store {
    uint32_t calls, fail_at;
} failing_store;

static void *store_allocate(void *context, size_t size)
{
    (void)context;
    return malloc(size);
}

static void store_release(void *context, void *buffer, size_t size)
{
    (void)context;
    (void)size;
    free(buffer);
}

static bool store_read(void *context, void *buffer, size_t offset, void *to, size_t size)
{
    failing_store *s = context;
    memcpy(to, (unsigned char *)buffer + offset, size);
    return ++s->calls != s->fail_at;
}

static bool store_write(void *context, void *buffer, size_t offset, const void *from, size_t size)
{
    failing_store *s = context;
    memcpy((unsigned char *)buffer + offset, from, size);
    return ++s->calls != s->fail_at;
}

static void rows_behind_calls_give_the_same_bits_or_a_failure(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        cellar_layer layer = make_layer(seed);
        failing_store f = {0, 0};
        scene s;
        make_scene(&s, &layer, seed);
        walk w = {.description = layer, .n_cells = CELLS, .cpu_mask = UINT32_MAX, .n_workers = 3};
        w.store = (cellar_row_store){.allocate = store_allocate,
                                     .release = store_release,
                                     .read = store_read,
                                     .write = store_write,
                                     .context = &f};
        for (uint32_t i = 0; i < s.n_keys; i++)
            s.keys[i].cell = place(i, 0);
        size_t n = (size_t)s.n_queries * layer.n_heads * layer.v_size;
        float *plain = malloc(n * sizeof *plain), *out = malloc(n * sizeof *out);
        assert_true(plain && out);
        run_scene(&layer, &s, 0, s.n_queries, 0, 1, AS_IT_IS, plain);
        walk_open(&w);
        const float *v = layer.v_in_k ? NULL : s.v;
        assert_true(walk_store(&w, s.keys, s.n_keys, s.k, v));
        uint32_t n_writes = f.calls;
        assert_int_equal(n_writes, s.n_keys * layer.n_kv_heads * (layer.v_in_k ? 1 : 2));
        f.calls = 0;
        assert_true(walk_attend(&w, s.keys, s.n_keys, s.queries, s.n_queries, s.q, out));
        assert_memory_equal(plain, out, n * sizeof *plain);
        uint32_t n_reads = f.calls;
        for (uint32_t at = 1; at <= n_reads; at += 1 + n_reads / 17) {
            f = (failing_store){0, at};
            assert_false(walk_attend(&w, s.keys, s.n_keys, s.queries, s.n_queries, s.q, out));
        }
        for (uint32_t at = 1; at <= n_writes; at += 1 + n_writes / 17) {
            f = (failing_store){0, at};
            assert_false(walk_store(&w, s.keys, s.n_keys, s.k, v));
            assert_int_equal(f.calls, at); /* nobody goes on */
        }
        walk_close(&w);
        free(plain);
        free(out);
        free_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_nobody_sees_do_not_matter),
        cmocka_unit_test(rows_that_were_given_up_do_not_matter),
        cmocka_unit_test(it_does_not_matter_where_cells_lie),
        cmocka_unit_test(a_query_alone_has_the_same_result),
        cmocka_unit_test(workers_change_nothing),
        cmocka_unit_test(a_query_sees_what_its_layer_says),
        cmocka_unit_test(a_sink_takes_its_share),
        cmocka_unit_test(scores_are_capped_before_biases_are_added),
        cmocka_unit_test(slopes_are_those_of_the_paper),
        cmocka_unit_test(buckets_are_those_of_the_paper),
        cmocka_unit_test(rows_behind_calls_give_the_same_bits_or_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
