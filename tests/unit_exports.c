/*
 * unit_exports.c: what engines with tensors of their own are told, against brute force.
 *
 * Masks and buckets are compared cell by cell with what the header's words say: for every token and
 * every cell of its stream, does the token's first sequence hold the cell (before the step, or
 * through the step's tokens up to this micro-batch), and does the token see its position? What the
 * sequences hold comes from cellar_visit_runs and cellar_export_rows alone. Row moves are played on
 * an array that remembers what each row of an engine would hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"
#include "model/drive.h"

enum { MAX_CELLS = 1024, MAX_HELD = 4096, MAX_BATCH = 64, N_SEQS = 4 };

/* One token as a sequence holds it; points are distances from its position. */
typedef struct held {
    cellar_seq seq;
    cellar_pos pos;
    uint32_t cell;
    int32_t y, x;
} held;

typedef struct world {
    cellar_memory *memory;
    cellar_config config;
    cellar_layer layers[3];
    bool is_2d;
    /* the batch being computed */
    cellar_batch batch;
    cellar_pos positions[MAX_BATCH];
    cellar_seq seqs[2 * MAX_BATCH];
    uint32_t seq_begin[MAX_BATCH + 1];
    cellar_point points[MAX_BATCH];
    /* what is held in the group that is looked at */
    held held[MAX_HELD];
    uint32_t n_held;
    uint32_t group;
    int32_t cell_y[MAX_CELLS], cell_x[MAX_CELLS];
    uint64_t random;
    uint32_t n_masks, n_seen, n_scattered, n_whole;
} world;

static cellar_layer external(cellar_window window, bool is_causal)
{
    cellar_layer layer = drive_layer(2, 1, 8, 4);
    layer.is_external = true;
    layer.window = window;
    layer.is_causal = is_causal;
    return layer;
}

static void open_world(world *w, uint32_t n_layers)
{
    cellar_error error = {0};
    w->config.n_layers = n_layers;
    w->config.layers = w->layers;
    if (cellar_create(&w->config, &w->memory, &error) != CELLAR_OK) fail_msg("%s", error.message);
    w->random = 11;
}

static void check_memory(const world *w)
{
    cellar_error error = {0};
    if (cellar_check(w->memory, &error) != CELLAR_OK) fail_msg("cellar_check: %s", error.message);
}

static void close_world(world *w)
{
    check_memory(w);
    cellar_destroy(w->memory);
    free(w);
}

static world *new_world(uint32_t n_cells, uint32_t n_ubatch)
{
    world *w = drive_grab(1, sizeof *w);
    w->config = cellar_config_init();
    w->config.n_cells = n_cells;
    w->config.n_ubatch = n_ubatch;
    w->config.max_shifts = 0;
    w->config.n_sequences = N_SEQS;
    return w;
}

/* ---- the oracle ------------------------------------------------------------------------------ */

static bool note_point(void *context, const cellar_cell *cell)
{
    world *w = context;
    if (cell->group != w->group) return true;
    w->cell_y[cell->cell] = cell->point.y - cell->stored_pos;
    w->cell_x[cell->cell] = cell->point.x - cell->stored_pos;
    return true;
}

static bool note_run(void *context, const cellar_run *run)
{
    world *w = context;
    if (run->group != w->group) return true;
    for (uint32_t i = 0; i < run->len; i++) {
        uint32_t cell = run->cell + i;
        assert_true(w->n_held < MAX_HELD);
        w->held[w->n_held++] = (held){run->seq, run->pos + (cellar_pos)(i * run->step), cell,
                                      w->cell_y[cell], w->cell_x[cell]};
    }
    return true;
}

static uint32_t first_seq_at(const world *w, uint32_t token)
{
    return w->batch.seq_begin ? w->seq_begin[token] : token;
}

/* Add the tokens of one micro-batch, first..last of it. */
static void note_pending(world *w, uint32_t ubatch, uint32_t layer, uint32_t first, uint32_t last)
{
    int64_t rows[MAX_BATCH];
    cellar_ubatch its;
    assert_int_equal(cellar_get_ubatch(w->memory, ubatch, &its, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_rows(w->memory, ubatch, layer, rows, NULL), CELLAR_OK);
    for (uint32_t i = first; i <= last && i < its.n_tokens; i++) {
        uint32_t token = its.indices[i], begin = first_seq_at(w, token);
        uint32_t end = w->batch.seq_begin ? w->seq_begin[token + 1] : token + 1;
        for (uint32_t k = begin; k < end; k++) {
            held one = {w->seqs[k], its.positions[i], (uint32_t)rows[i], 0, 0};
            if (w->batch.points) {
                one.y = w->points[token].y - its.positions[i];
                one.x = w->points[token].x - its.positions[i];
            }
            assert_true(w->n_held < MAX_HELD);
            w->held[w->n_held++] = one;
        }
    }
}

/* Everything held, the step's tokens up to token `last` of a micro-batch included. */
static void collect(world *w, uint32_t ubatch, uint32_t layer, uint32_t last)
{
    w->n_held = 0;
    w->group = (uint32_t)cellar_group_of_layer(w->memory, layer);
    assert_int_equal(cellar_visit_cells(w->memory, note_point, w, NULL), CELLAR_OK);
    assert_int_equal(cellar_visit_runs(w->memory, -1, note_run, w, NULL), CELLAR_OK);
    for (uint32_t u = 0; u < ubatch; u++)
        note_pending(w, u, layer, 0, UINT32_MAX - 1);
    note_pending(w, ubatch, layer, 0, last);
}

static bool window_shows(const cellar_window *window, int64_t k, int64_t q)
{
    int64_t size = window->size;
    if (window->kind != CELLAR_WINDOW_NONE && k < window->n_sinks) return true;
    switch (window->kind) {
    case CELLAR_WINDOW_STANDARD:
        return k > q - size;
    case CELLAR_WINDOW_CHUNKED:
        return k >= q / size * size;
    case CELLAR_WINDOW_SYMMETRIC:
        return llabs(k - q) <= size / 2;
    default:
        return true;
    }
}

static bool sees(const cellar_layer *layer, const held *key, const held *query)
{
    if (layer->is_causal && key->pos > query->pos) return false;
    if (key->pos == query->pos && (key->y > query->y || (key->y == query->y && key->x > query->x)))
        return false;
    return window_shows(&layer->window, key->pos, query->pos);
}

/* T5's buckets as the header describes them. */
static int32_t bucket_of(const cellar_buckets *b, int64_t r)
{
    int64_t n = b->n, base = 0, distance = r < 0 ? -r : 0;
    if (b->is_bidirectional) {
        n /= 2;
        if (r > 0) base = n;
        distance = llabs(r);
    }
    int64_t exact = n / 2;
    if (distance < exact) return (int32_t)(base + distance);
    double steps = log((double)distance / (double)exact) /
                   log((double)b->max_distance / (double)exact) * (double)(n - exact);
    int64_t far = exact + (int64_t)(steps + 1e-9);
    return (int32_t)(base + (far < n ? far : n - 1));
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* For each cell the key in it that a query sees; NULL: none. */
static void find_seen(const world *w, const cellar_layer *layer, const held *query,
                      const held *seen[MAX_CELLS])
{
    memset(seen, 0, MAX_CELLS * sizeof *seen);
    for (uint32_t i = 0; i < w->n_held; i++) {
        const held *key = &w->held[i];
        if (key->seq == query->seq && sees(layer, key, query)) seen[key->cell] = key;
    }
}

static const cellar_stream *stream_of(const cellar_stream *streams, uint32_t n, uint32_t token)
{
    for (uint32_t s = 0; s < n; s++)
        if (token >= streams[s].first && token - streams[s].first < streams[s].n_tokens)
            return &streams[s];
    fail_msg("token %u is in no stream", token);
    return NULL;
}

typedef struct dense {
    float f32[MAX_BATCH * MAX_CELLS];
    uint16_t f16[MAX_BATCH * MAX_CELLS];
    int32_t buckets[MAX_BATCH * MAX_CELLS];
} dense;

static void compare_pair(world *w, const cellar_layer *layer, const held *query, const held *key,
                         const dense *d, size_t at)
{
    bool has_buckets = layer->buckets.n > 0;
    if (!key) {
        assert_true(isinf(d->f32[at]) && d->f32[at] < 0);
        assert_int_equal(d->f16[at], 0xfc00);
        if (has_buckets) assert_int_equal(d->buckets[at], 0);
        return;
    }
    int64_t distance = (int64_t)key->pos - query->pos;
    float wanted = layer->alibi_max_bias > 0 && distance ? -(float)llabs(distance) : 0.0f;
    assert_int_equal(bits_from_float(d->f32[at]), bits_from_float(wanted));
    if (wanted < -65504) wanted = -65504;
    assert_int_equal(d->f16[at], half_from_float_bits(bits_from_float(wanted)));
    if (has_buckets) assert_int_equal(d->buckets[at], bucket_of(&layer->buckets, distance));
    w->n_seen++;
}

static void check_mask(world *w, uint32_t ubatch, uint32_t l, uint32_t pad)
{
    const cellar_layer *layer = &w->layers[l];
    cellar_ubatch its;
    cellar_extent extent, largest;
    cellar_stream streams[N_SEQS];
    dense *d = drive_grab(1, sizeof *d);
    assert_int_equal(cellar_get_ubatch(w->memory, ubatch, &its, NULL), CELLAR_OK);
    cellar_error error = {0};
    if (cellar_export_extent(w->memory, ubatch, l, pad, &extent, streams, N_SEQS, &error))
        fail_msg("%s", error.message);
    assert_int_equal(cellar_export_largest(w->memory, l, pad, &largest, NULL), CELLAR_OK);
    assert_true(extent.n_kv <= largest.n_kv && extent.n_streams <= largest.n_streams);
    cellar_group_info info;
    assert_int_equal(
        cellar_get_group(w->memory, (uint32_t)cellar_group_of_layer(w->memory, l), &info, NULL),
        CELLAR_OK);
    if (cellar_export_mask(w->memory, ubatch, l, extent.n_kv, CELLAR_F32, d->f32, &error))
        fail_msg("%s", error.message);
    assert_int_equal(
        cellar_export_mask(w->memory, ubatch, l, extent.n_kv, CELLAR_F16, d->f16, NULL), CELLAR_OK);
    if (layer->buckets.n > 0)
        assert_int_equal(cellar_export_buckets(w->memory, ubatch, l, extent.n_kv, d->buckets, NULL),
                         CELLAR_OK);
    collect(w, ubatch, l, UINT32_MAX - 1);
    for (uint32_t i = 0; i < its.n_tokens; i++) {
        const cellar_stream *stream = stream_of(streams, extent.n_streams, i);
        held query = {w->seqs[first_seq_at(w, its.indices[i])], its.positions[i], 0, 0, 0};
        if (w->batch.points) {
            query.y = w->points[its.indices[i]].y - query.pos;
            query.x = w->points[its.indices[i]].x - query.pos;
        }
        assert_true(stream->first_cell + extent.n_kv <= info.n_cells);
        uint32_t before = w->n_seen;
        const held *seen[MAX_CELLS];
        find_seen(w, layer, &query, seen);
        for (uint32_t j = 0; j < extent.n_kv; j++)
            compare_pair(w, layer, &query, seen[stream->first_cell + j], d,
                         (size_t)i * extent.n_kv + j);
        assert_true(w->n_seen > before); /* itself */
    }
    w->n_masks++;
    free(d);
}

/* ---- pages ----------------------------------------------------------------------------------- */

/*
 * What the sequence of a segment holds, in order of position, as pages; false: not whole ones. A
 * page is a longest piece of the list whose i-th cell is the page's i-th.
 */
static bool page_list(const world *w, const cellar_layer *layer, const held *query, uint32_t size,
                      uint32_t *pages, uint32_t *n_pages, uint32_t *last_length)
{
    held list[MAX_HELD];
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_held; i++) {
        if (w->held[i].seq != query->seq) continue;
        uint32_t at = n++;
        for (; at > 0 && list[at - 1].pos > w->held[i].pos; at--)
            list[at] = list[at - 1];
        list[at] = w->held[i];
    }
    *n_pages = 0;
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        bool is_seen = false, is_whole = list[begin].cell % size == 0;
        for (end = begin; end < n; end++) {
            bool is_next = end == begin ||
                           (list[end].cell == list[end - 1].cell + 1 && list[end].cell % size != 0);
            if (!is_next) break;
            is_seen = is_seen || list[end].pos > query->pos ||
                      window_shows(&layer->window, list[end].pos, query->pos);
        }
        is_whole = is_whole && (end - begin == size || end == n);
        if (is_seen && !is_whole) return false;
        if (is_seen) pages[(*n_pages)++] = list[begin].cell / size;
        *last_length = end - begin;
    }
    return true;
}

static void check_pages(world *w, uint32_t ubatch, uint32_t l, uint32_t size)
{
    const cellar_layer *layer = &w->layers[l];
    cellar_ubatch its;
    uint32_t indptr[MAX_BATCH + 1], last[MAX_BATCH], indices[MAX_HELD], n = 0;
    uint32_t wanted[MAX_HELD], n_wanted, last_wanted = 0;
    cellar_error error = {0};
    assert_int_equal(cellar_get_ubatch(w->memory, ubatch, &its, NULL), CELLAR_OK);
    cellar_status status = cellar_export_pages(w->memory, ubatch, l, size, indptr, indices,
                                               MAX_HELD, last, &error);
    bool is_whole = true;
    for (uint32_t s = 0; s < its.n_segments && is_whole; s++) {
        const cellar_segment *segment = &its.segments[s];
        held query = {segment->seq, its.positions[segment->first], 0, 0, 0};
        collect(w, ubatch, l,
                layer->is_causal ? segment->first + segment->n_tokens - 1 : UINT32_MAX - 1);
        is_whole = page_list(w, layer, &query, size, wanted, &n_wanted, &last_wanted);
        if (!is_whole || status != CELLAR_OK) continue;
        assert_int_equal(indptr[s], n);
        assert_int_equal(indptr[s + 1] - indptr[s], n_wanted);
        assert_memory_equal(indices + n, wanted, n_wanted * sizeof *wanted);
        assert_int_equal(last[s], last_wanted);
        n += n_wanted;
    }
    if (is_whole != (status == CELLAR_OK))
        fail_msg("pages of %u: %s, %s", size, is_whole ? "whole" : "not whole", error.message);
    if (size > 1) *(is_whole ? &w->n_whole : &w->n_scattered) += 1;
    if (is_whole) {
        assert_int_equal(
            cellar_export_pages(w->memory, ubatch, l, size, indptr, indices, n - 1, last, &error),
            CELLAR_INVALID);
        assert_int_equal(error.at, n);
        return;
    }
    assert_int_equal(status, CELLAR_REFUSED);
    assert_int_equal(error.reason, CELLAR_REASON_SCATTERED);
}

/* ---- a life ---------------------------------------------------------------------------------- */

static void add_token(world *w, cellar_seq seq, cellar_pos pos, int32_t y, int32_t x)
{
    uint32_t i = w->batch.n_tokens++;
    w->seqs[i] = seq;
    w->positions[i] = pos;
    w->points[i] = (cellar_point){pos + y, pos + x};
}

/* Some tokens for some sequences, mixed; in 2-D memories also small images. */
static void fill_batch(world *w)
{
    cellar_pos next[N_SEQS];
    w->batch = cellar_batch_init();
    w->batch.positions = w->positions;
    w->batch.seqs = w->seqs;
    if (w->is_2d) w->batch.points = w->points;
    for (cellar_seq s = 0; s < N_SEQS; s++) {
        cellar_sequence_info info;
        assert_int_equal(cellar_get_sequence(w->memory, s, &info, NULL), CELLAR_OK);
        next[s] = info.pos_next;
    }
    uint32_t n_pieces = 1 + random_below(&w->random, 5);
    for (uint32_t p = 0; p < n_pieces; p++) {
        cellar_seq s = (cellar_seq)random_below(&w->random, N_SEQS);
        if (w->is_2d && random_one_in(&w->random, 3)) {
            int32_t height = random_between(&w->random, 1, 3);
            for (int32_t i = 0; i < height * 2; i++)
                add_token(w, s, next[s], i / 2, i % 2);
            next[s] += height > 2 ? height : 2;
            continue;
        }
        for (uint32_t i = 0, n = 1 + random_below(&w->random, 10); i < n; i++)
            add_token(w, s, next[s]++, 0, 0);
    }
}

static void check_exports(world *w)
{
    static const uint32_t pads[] = {1, 32, 256, 100};
    for (uint32_t u = 0; u < cellar_count_ubatches(w->memory); u++)
        for (uint32_t l = 0; l < w->config.n_layers; l++) {
            check_mask(w, u, l, pads[random_below(&w->random, 4)]);
            check_pages(w, u, l, 1);
            check_pages(w, u, l, random_one_in(&w->random, 2) ? 32 : 4);
        }
}

static void confirm_all(world *w)
{
    for (uint32_t u = 0; u < cellar_count_ubatches(w->memory); u++)
        for (uint32_t l = 0; l < w->config.n_layers; l++)
            assert_int_equal(cellar_confirm(w->memory, u, l, NULL), CELLAR_OK);
}

/* One step with its exports checked. A memory that cannot take it forgets a sequence. */
static void step(world *w)
{
    fill_batch(w);
    cellar_error error = {0};
    cellar_status status = cellar_begin(w->memory, &w->batch, &error);
    check_memory(w);
    if (status == CELLAR_FULL || status == CELLAR_REPLAY || status == CELLAR_INVALID) {
        cellar_seq victim = (cellar_seq)random_below(&w->random, N_SEQS);
        assert_int_equal(cellar_remove(w->memory, victim, 0, -1, NULL), CELLAR_OK);
        return;
    }
    if (status != CELLAR_OK) fail_msg("%s", error.message);
    check_exports(w);
    if (random_one_in(&w->random, 8)) {
        cellar_abort(w->memory);
        check_memory(w);
        return;
    }
    confirm_all(w);
    assert_int_equal(cellar_commit(w->memory, NULL), CELLAR_OK);
}

static void edit(world *w, bool may_shift)
{
    cellar_seq a = (cellar_seq)random_below(&w->random, N_SEQS);
    cellar_seq b = (cellar_seq)random_below(&w->random, N_SEQS);
    cellar_pos p = random_between(&w->random, 0, 40);
    cellar_status status = CELLAR_OK; /* refusals are part of life here */
    switch (random_below(&w->random, 5)) {
    case 0:
        status = cellar_copy(w->memory, a, b, 0, -1, NULL);
        break;
    case 1:
        status = cellar_remove(w->memory, a, p, p + 5, NULL);
        break;
    case 2:
        status = cellar_remove(w->memory, a, p, -1, NULL);
        break;
    case 3:
        if (may_shift) status = cellar_shift_context(w->memory, a, 2, 3, NULL, NULL);
        break;
    default:
        if (may_shift) status = cellar_divide(w->memory, a, p, p + 9, 2, NULL);
    }
    (void)status;
    assert_int_equal(cellar_confirm_moves(w->memory, NULL), CELLAR_OK);
}

static void live(world *w, uint32_t n_layers, uint32_t n_steps)
{
    bool may_shift = true;
    for (uint32_t l = 0; l < n_layers; l++)
        may_shift = may_shift && w->layers[l].rope.kind == CELLAR_ROPE_NONE;
    open_world(w, n_layers);
    for (uint32_t i = 0; i < n_steps; i++) {
        step(w);
        if (random_one_in(&w->random, 2)) edit(w, may_shift);
        check_memory(w);
    }
    assert_true(w->n_masks > n_steps * n_layers / 2);
    assert_true(w->n_seen > w->n_masks && w->n_whole > 0 && w->n_scattered > 0);
    close_world(w);
}

/* ---- tests of masks and pages ---------------------------------------------------------------- */

static const cellar_window windows[] = {
    {CELLAR_WINDOW_NONE, 0, 0},     {CELLAR_WINDOW_STANDARD, 12, 0},
    {CELLAR_WINDOW_STANDARD, 9, 3}, {CELLAR_WINDOW_CHUNKED, 16, 0},
    {CELLAR_WINDOW_CHUNKED, 8, 2},  {CELLAR_WINDOW_SYMMETRIC, 11, 0},
    {CELLAR_WINDOW_SYMMETRIC, 6, 2}};

static void masks_show_what_every_window_shows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (int is_full = 0; is_full < 2; is_full++) {
            world *w = new_world(192, 16);
            w->config.is_window_full = is_full;
            w->layers[0] = external(windows[i], true);
            w->layers[1] = external(windows[i], false);
            w->layers[2] = external(windows[0], true);
            live(w, 3, 40);
        }
}

static void masks_carry_distances_and_buckets(void **state)
{
    (void)state;
    const float bias[2 * 32] = {0};
    for (int is_bidirectional = 0; is_bidirectional < 2; is_bidirectional++) {
        world *w = new_world(256, 24);
        w->layers[0] = external(windows[0], true);
        w->layers[0].alibi_max_bias = 8;
        w->layers[1] = external(windows[0], false);
        w->layers[1].buckets = (cellar_buckets){32, 40, is_bidirectional, bias};
        w->layers[2] = external(windows[2], true);
        w->layers[2].buckets = (cellar_buckets){8, 16, !is_bidirectional, bias};
        w->layers[2].alibi_max_bias = 8;
        live(w, 3, 60);
    }
}

static void images_are_read_in_reading_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        world *w = new_world(256, 10);
        w->is_2d = true;
        for (int l = 0; l < 2; l++) {
            w->layers[l] = external(windows[i], l == 0);
            w->layers[l].rope.kind = CELLAR_ROPE_MROPE;
            memcpy(w->layers[l].rope.sections, (uint32_t[]){2, 1, 1, 0}, 4 * sizeof(uint32_t));
        }
        live(w, 2, 50);
    }
}

static void streams_keep_pools_apart(void **state)
{
    (void)state;
    static const uint32_t unequal[] = {96, 40, 100, 33};
    for (int split = CELLAR_SPLIT_AUTO; split <= CELLAR_SPLIT_BY_SEQUENCE; split++)
        for (uint32_t n_pools = 2; n_pools <= 4; n_pools += 2) {
            world *w = new_world(n_pools == 2 ? 136 : 269, 12);
            w->config.n_pools = n_pools;
            w->config.pool_cells = unequal;
            w->config.split = (cellar_split)split;
            w->layers[0] = external(windows[0], true);
            w->layers[1] = external(windows[1], true);
            w->layers[2] = external(windows[0], false);
            live(w, 3, 50);
        }
}

/* A fork, tokens in both sequences at once, then each its own way, in one batch. */
static void forks_see_their_own_branch(void **state)
{
    (void)state;
    world *w = new_world(64, 64);
    w->layers[0] = external(windows[0], true);
    w->layers[1] = external(windows[0], false);
    open_world(w, 2);
    for (int round = 0; round < 2; round++) {
        w->batch = cellar_batch_init();
        w->batch.seqs = w->seqs;
        w->batch.seq_begin = w->seq_begin;
        static const cellar_seq members[2][9][2] = {
            {{0, -1}, {0, -1}, {0, -1}},
            {{1, 0}, {0, 1}, {0, -1}, {1, -1}, {1, -1}, {0, -1}, {1, -1}, {2, -1}, {0, -1}}};
        uint32_t n = 0;
        w->batch.n_tokens = round == 0 ? 3 : 9;
        for (uint32_t i = 0; i < w->batch.n_tokens; i++) {
            w->seq_begin[i] = n;
            for (int k = 0; k < 2 && members[round][i][k] >= 0; k++)
                w->seqs[n++] = members[round][i][k];
        }
        w->seq_begin[w->batch.n_tokens] = n;
        assert_int_equal(cellar_begin(w->memory, &w->batch, NULL), CELLAR_OK);
        check_exports(w);
        confirm_all(w);
        assert_int_equal(cellar_commit(w->memory, NULL), CELLAR_OK);
        if (round == 0) assert_int_equal(cellar_copy(w->memory, 0, 1, 0, -1, NULL), CELLAR_OK);
    }
    close_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_show_what_every_window_shows),
        cmocka_unit_test(masks_carry_distances_and_buckets),
        cmocka_unit_test(images_are_read_in_reading_order),
        cmocka_unit_test(streams_keep_pools_apart),
        cmocka_unit_test(forks_see_their_own_branch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
