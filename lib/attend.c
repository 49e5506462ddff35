/*
 * attend.c: the walk over key blocks.
 *
 * The unit of work is a tile: the query heads of one K/V head, times a handful of tokens, at most
 * CL_ROWS rows. Workers take tiles from a counter, each in scratch room of its own, so they share
 * nothing they write. For every key block that the tile sees: find the rows that look at it and which of
 * its keys each sees (attend_features.h), score them against those keys, update their running maxima
 * and sums, add the values. A row's softmax runs over the keys it sees and no others, moved together
 * if they are not one stretch, so its bits do not depend on what else the block holds.
 *
 * Where a layer turns its rows by a Hadamard matrix H, keys are stored as H R(p) k and met by
 * H R(-d) R(p) q; values are stored as H v and the result is turned back once.
 *
 * Nothing allocates: what is needed was reserved when the step began. Only a caller's store can fail;
 * then a flag makes every worker stop early.
 */
#include "attend.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "attend_features.h"

bool cl_scratch_measure(cl_scratch_layout *layout, uint32_t largest_k, uint32_t largest_v,
                        size_t largest_row)
{
    size_t at = 0, raw_floats = largest_row / sizeof(float) + 1;
    struct {
        size_t *offset;
        size_t n, size;
    } parts[] = {
        {&layout->query, CL_ROWS, largest_k},       {&layout->turned, CL_ROWS, largest_k},
        {&layout->accumulator, CL_ROWS, largest_v}, {&layout->scores, CL_ROWS, CL_KEYS},
        {&layout->keys, CL_KEYS, largest_k},        {&layout->values, CL_KEYS, largest_v},
        {&layout->raw, CL_KEYS, raw_floats},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t floats;
        *parts[i].offset = at;
        if (!cl_checked_mul(parts[i].n, parts[i].size, &floats) ||
            !cl_checked_align(floats, CL_ALIGN / sizeof(float), &floats) ||
            !cl_checked_add(at, floats, &at))
            return false;
    }
    layout->floats = at;
    return true;
}

static void run_workers(const cellar_workers *workers, cellar_task task, void *argument)
{
    if (workers->n > 1)
        workers->run(workers->context, task, argument);
    else
        task(argument, 0, 1);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Turn each stretch of `stretch` elements of a head; 0: not at all. */
static void turn_stretches(const cl_kernels *kernels, float *head, uint32_t size, uint32_t stretch)
{
    for (uint32_t i = 0; stretch > 0 && i + stretch <= size; i += stretch)
        kernels->hadamard(head + i, stretch);
}

/* ---- store ----------------------------------------------------------------------------------- */

typedef struct store_job {
    const cl_attention *a;
    const float *k, *v;
    atomic_bool has_failed;
} store_job;

static bool store_key(const store_job *job, uint32_t token, uint32_t head, float *scratch)
{
    const cl_attention *a = job->a;
    const cl_layer *layer = a->layer;
    uint32_t n_pairs = a->rope->n_pairs;
    const float *c = a->angles + (size_t)token * 2 * n_pairs;
    const float *k = job->k + ((size_t)token * layer->n_kv_heads + head) * layer->k_size;
    float *key = scratch + a->layout->query;
    memcpy(key, k, layer->k_size * sizeof(float));
    cl_rope_turn(a->rope, a->kernels, key, c, c + n_pairs);
    turn_stretches(a->kernels, key, layer->k_size, layer->hadamard_k);
    return cl_storage_write(&a->group->storage, layer->k, a->kernels, head, a->cells[token], key,
                            (unsigned char *)(scratch + a->layout->raw));
}

static bool store_value(const store_job *job, uint32_t token, uint32_t head, float *scratch)
{
    const cl_attention *a = job->a;
    const cl_layer *layer = a->layer;
    if (!layer->v) return true; /* part of the key */
    const float *v = job->v + ((size_t)token * layer->n_kv_heads + head) * layer->v_size;
    if (layer->hadamard_v > 0) {
        float *value = scratch + a->layout->values;
        memcpy(value, v, layer->v_size * sizeof(float));
        turn_stretches(a->kernels, value, layer->v_size, layer->hadamard_v);
        v = value;
    }
    return cl_storage_write(&a->group->storage, layer->v, a->kernels, head, a->cells[token], v,
                            (unsigned char *)(scratch + a->layout->raw));
}

static void store_part(void *argument, uint32_t part, uint32_t n_parts)
{
    store_job *job = argument;
    const cl_attention *a = job->a;
    float *scratch = a->scratch + part * a->layout->floats;
    for (uint32_t token = part; token < a->n_tokens; token += n_parts)
        for (uint32_t h = 0; h < a->layer->n_kv_heads; h++) {
            if (atomic_load_explicit(&job->has_failed, memory_order_relaxed)) return;
            if (!store_key(job, token, h, scratch) || !store_value(job, token, h, scratch))
                atomic_store_explicit(&job->has_failed, true, memory_order_relaxed);
        }
}

/* Does some row of the micro-batch go through a store's write? */
static bool is_written_by_calls(const cl_attention *a, const cl_rows *rows)
{
    if (!rows || rows->store == 0) return false;
    for (uint32_t token = 0; token < a->n_tokens; token++)
        if (!cl_storage_row(&a->group->storage, rows, 0, a->cells[token])) return true;
    return false;
}

bool cl_attend_store(const cl_attention *attention, const float *k, const float *v)
{
    const cl_layer *layer = attention->layer;
    store_job job = {.a = attention, .k = k, .v = v};
    atomic_init(&job.has_failed, false);
    /* Stores promise that read may run on several workers at once, not that write may. */
    if (is_written_by_calls(attention, layer->k) || is_written_by_calls(attention, layer->v))
        store_part(&job, 0, 1);
    else
        run_workers(&attention->workers, store_part, &job);
    return !atomic_load(&job.has_failed);
}

/* ---- attend: a tile -------------------------------------------------------------------------- */

typedef struct attend_job {
    const cl_attention *a;
    const float *q;
    float *out;
    uint32_t heads_a_tile;  /* query heads of one K/V head that are computed together */
    uint32_t tokens_a_tile; /* tokens that are: heads_a_tile * tokens_a_tile <= CL_ROWS */
    uint32_t n_head_tiles, n_token_tiles;
    atomic_uint_fast64_t next_tile;
    atomic_bool has_failed;
} attend_job;

#define NOT_TURNED UINT32_MAX        /* `turned` holds nothing */
#define TURNED_BY_0 (UINT32_MAX - 1) /* or queries that no shift turns back */

/* One worker's state for one tile: tokens [first, first + n) of the sweep's order, some heads. */
typedef struct tile {
    attend_job *job;
    uint32_t kv_head, first_head, n_heads; /* query heads first_head..first_head + n_heads - 1 */
    uint32_t first_token, n_tokens;
    uint32_t shift; /* the shift that `turned` holds: an index, or one of the two above */
    float *query, *turned, *accumulator, *scores, *keys, *values;
    unsigned char *raw;
    float maximum[CL_ROWS], sum[CL_ROWS];
    cl_looker lookers[CL_ROWS]; /* by token of the tile */
    /* rows that look at the current key block */
    uint32_t n_rows;
    uint32_t rows[CL_ROWS], seen[CL_ROWS]; /* row, and which of the block's keys it sees */
    uint32_t seen_by_any;
    bool is_stretch[CL_ROWS]; /* the keys it sees are one stretch */
    const float *row_queries[CL_ROWS];
    float *row_scores[CL_ROWS], *row_accumulators[CL_ROWS];
} tile;

static const float *turn_angles(const tile *t, uint32_t shift)
{
    const cl_attention *a = t->job->a;
    return a->group->sweep.turns + (size_t)shift * a->group->sweep.n_angles + a->turn_offset;
}

/* Copy the tile's queries and rotate them to their positions. */
static void load_queries(tile *t)
{
    const cl_attention *a = t->job->a;
    const cl_layer *layer = a->layer;
    uint32_t n_pairs = a->rope->n_pairs, row = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        uint32_t token = a->group->sweep.tokens[t->first_token + i];
        const float *c = a->angles + (size_t)token * 2 * n_pairs;
        t->lookers[i] = cl_attend_looker(a, token);
        for (uint32_t h = 0; h < t->n_heads; h++, row++) {
            float *query = t->query + (size_t)row * layer->k_size;
            const float *from = t->job->q + ((size_t)token * layer->n_heads + t->first_head + h) *
                                                layer->k_size;
            memcpy(query, from, layer->k_size * sizeof(float));
            cl_rope_turn(a->rope, a->kernels, query, c, c + n_pairs);
            t->maximum[row] = -INFINITY;
            t->sum[row] = 0;
        }
    }
    memset(t->accumulator, 0, (size_t)row * layer->v_size * sizeof(float));
    t->shift = NOT_TURNED;
}

/* Note the rows of one token if it sees something of the block. */
static void look(tile *t, const cl_key_block *block, uint32_t i)
{
    const cl_attention *a = t->job->a;
    uint32_t seen = cl_attend_visible(a, block, &t->lookers[i]);
    if (seen == 0) return;
    t->seen_by_any |= seen;
    bool is_stretch = cl_mask_is_stretch(seen);
    for (uint32_t h = 0; h < t->n_heads; h++) {
        uint32_t row = i * t->n_heads + h;
        t->rows[t->n_rows] = row;
        t->seen[t->n_rows] = seen;
        t->is_stretch[t->n_rows] = is_stretch;
        t->row_scores[t->n_rows] = t->scores + (size_t)row * CL_KEYS;
        t->row_accumulators[t->n_rows] = t->accumulator + (size_t)row * a->layer->v_size;
        t->n_rows++;
    }
}

/* The rows of the tile that look at a block: those of tokens whose view is among its viewers. */
static void find_rows(tile *t, const cl_key_block *block)
{
    const cl_sweep *sweep = &t->job->a->group->sweep;
    const uint32_t *viewer = sweep->viewers + block->first_viewer;
    const uint32_t *end = viewer + block->n_viewers;
    t->n_rows = t->seen_by_any = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        uint32_t view = sweep->view_of[t->first_token + i];
        while (viewer < end && *viewer < view)
            viewer++;
        if (viewer == end) break;
        if (*viewer == view) look(t, block, i);
    }
}

/* ---- attend: a key block --------------------------------------------------------------------- */

/* Keys of a block that are read together: of one piece, from the first to the last that is seen. */
typedef struct span {
    uint32_t first, n; /* keys of the block */
    uint32_t cell;     /* of the first */
} span;

/* What of a piece, whose first key is `before`, somebody sees; false: nothing. */
static bool find_span(const tile *t, const cl_piece *piece, uint32_t before, span *out)
{
    uint32_t seen = (t->seen_by_any >> before) & cl_mask_first(piece->len);
    if (seen == 0) return false;
    uint32_t first = cl_mask_lowest(seen);
    *out = (span){before + first, cl_mask_end(seen) - first, piece->cell + first};
    return true;
}

static const float *read_rows(const tile *t, const cl_rows *rows, const span *keys, float *scratch)
{
    const cl_attention *a = t->job->a;
    return cl_storage_read(&a->group->storage, rows, a->kernels, t->kv_head, keys->cell, keys->n,
                           scratch, t->raw);
}

/* All queries of the tile as they meet keys of one shift. */
static void turn_queries(tile *t, uint32_t shift)
{
    const cl_attention *a = t->job->a;
    uint32_t k_size = a->layer->k_size, n = t->n_tokens * t->n_heads;
    memcpy(t->turned, t->query, (size_t)n * k_size * sizeof(float));
    for (uint32_t row = 0; row < n; row++) {
        float *query = t->turned + (size_t)row * k_size;
        if (shift != TURNED_BY_0) {
            const float *c = turn_angles(t, shift);
            cl_rope_turn(a->rope, a->kernels, query, c, c + a->rope->n_pairs);
        }
        turn_stretches(a->kernels, query, k_size, a->layer->hadamard_k);
    }
    t->shift = shift;
}

/* Point the looking rows at queries that are turned back by the shift of a piece. */
static void aim_queries(tile *t, uint32_t shift)
{
    const cl_attention *a = t->job->a;
    uint32_t k_size = a->layer->k_size;
    if (a->rope->n_pairs == 0 || a->group->sweep.shifts[shift] == 0) shift = TURNED_BY_0;
    bool is_plain = shift == TURNED_BY_0 && a->layer->hadamard_k == 0;
    if (!is_plain && t->shift != shift) turn_queries(t, shift);
    const float *queries = is_plain ? t->query : t->turned;
    for (uint32_t r = 0; r < t->n_rows; r++)
        t->row_queries[r] = queries + (size_t)t->rows[r] * k_size;
}

/* V is the beginning of each key: keep it, for the keys of the next piece will take their place. */
static void keep_values(tile *t, const float *keys, const span *some)
{
    uint32_t k_size = t->job->a->layer->k_size, v_size = t->job->a->layer->v_size;
    for (uint32_t i = 0; i < some->n; i++)
        memcpy(t->values + (size_t)(some->first + i) * v_size, keys + (size_t)i * k_size,
               v_size * sizeof(float));
}

static bool score_block(tile *t, const cl_key_block *block)
{
    const cl_attention *a = t->job->a;
    const cl_layer *layer = a->layer;
    uint32_t before = 0;
    for (uint32_t i = 0; i < block->n_pieces; i++) {
        const cl_piece *piece = &a->group->sweep.pieces[block->first_piece + i];
        float *scores[CL_ROWS];
        span some;
        bool is_seen = find_span(t, piece, before, &some);
        before += piece->len;
        if (!is_seen) continue;
        aim_queries(t, piece->shift);
        const float *keys = read_rows(t, layer->k, &some, t->keys);
        if (!keys) return false;
        for (uint32_t r = 0; r < t->n_rows; r++)
            scores[r] = t->row_scores[r] + some.first;
        a->kernels->attend_scores(t->row_queries, t->n_rows, keys, some.n, layer->k_size,
                                  layer->scale, scores);
        if (layer->v_in_k) keep_values(t, keys, &some);
    }
    return true;
}

/* From here on row_scores begin with the score of the first key that the row sees; returns of how many. */
static uint32_t gather_scores(tile *t, uint32_t r)
{
    uint32_t seen = t->seen[r], lowest = cl_mask_lowest(seen), n = 0;
    float *scores = t->row_scores[r];
    if (t->is_stretch[r]) {
        t->row_scores[r] = scores + lowest;
        return cl_mask_end(seen) - lowest;
    }
    for (; seen; seen &= seen - 1)
        scores[n++] = scores[cl_mask_lowest(seen)];
    return n;
}

static void soften_block(tile *t, const cl_key_block *block)
{
    const cl_attention *a = t->job->a;
    bool is_adjusted = cl_attend_is_adjusted(a->layer);
    uint32_t measured = UINT32_MAX; /* the token that `distances` are of */
    cl_distances distances;
    for (uint32_t r = 0; r < t->n_rows; r++) {
        uint32_t row = t->rows[r], n = gather_scores(t, r);
        if (is_adjusted) {
            uint32_t token = row / t->n_heads;
            if (token != measured)
                cl_attend_measure(a, block, &t->lookers[token], t->seen[r], &distances);
            measured = token;
            cl_attend_adjust(a->layer, t->first_head + row % t->n_heads, &distances,
                             t->row_scores[r]);
        }
        float correction = a->kernels->attend_softmax(t->row_scores[r], n, &t->maximum[row],
                                                      &t->sum[row]);
        if (correction != 1.0f)
            a->kernels->attend_scale(t->row_accumulators[r], a->layer->v_size, correction);
    }
}

/* Values of the keys `some`, to rows [r, end), which see the same. */
static void add_values_to(tile *t, const float *values, const span *some, uint32_t r, uint32_t end)
{
    const cl_attention *a = t->job->a;
    uint32_t v_size = a->layer->v_size;
    const float *weights[CL_ROWS];
    uint32_t rest = (t->seen[r] >> some->first) & cl_mask_first(some->n);
    while (rest) {
        uint32_t first = cl_mask_lowest(rest);
        uint32_t gaps = ~(rest >> first); /* the first gap ends a stretch of seen keys */
        uint32_t n = gaps ? cl_mask_lowest(gaps) : 32;
        uint32_t bit = some->first + first;
        uint32_t rank = t->is_stretch[r] ? bit - cl_mask_lowest(t->seen[r])
                                         : cl_mask_rank(t->seen[r], bit);
        for (uint32_t i = r; i < end; i++)
            weights[i] = t->row_scores[i] + rank;
        a->kernels->attend_accumulate(weights + r, end - r, values + (size_t)first * v_size, n,
                                      v_size, t->row_accumulators + r);
        rest &= ~cl_mask_first(first + n);
    }
}

static bool accumulate_block(tile *t, const cl_key_block *block)
{
    const cl_attention *a = t->job->a;
    uint32_t before = 0;
    for (uint32_t i = 0; i < block->n_pieces; i++) {
        const cl_piece *piece = &a->group->sweep.pieces[block->first_piece + i];
        span some;
        bool is_seen = find_span(t, piece, before, &some);
        before += piece->len;
        if (!is_seen) continue;
        const float *values = a->layer->v_in_k ? t->values + (size_t)some.first * a->layer->v_size
                                               : read_rows(t, a->layer->v, &some, t->values);
        if (!values) return false;
        for (uint32_t r = 0, end; r < t->n_rows; r = end) {
            for (end = r + 1; end < t->n_rows && t->seen[end] == t->seen[r]; end++)
                continue;
            add_values_to(t, values, &some, r, end);
        }
    }
    return true;
}

static bool attend_block(tile *t, const cl_key_block *block)
{
    find_rows(t, block);
    if (t->n_rows == 0) return true;
    if (!score_block(t, block)) return false;
    soften_block(t, block);
    return accumulate_block(t, block);
}

/* ---- attend: the walk ------------------------------------------------------------------------ */

/* The key blocks of a tile, in order: those of its one view, or of all that some token may see. */
typedef struct block_walk {
    uint32_t first_view, last_view; /* of the tile's tokens */
    uint32_t at, end; /* into the sweep's view_blocks or, of several views, its order */
} block_walk;

static block_walk begin_walk(const tile *t)
{
    const cl_sweep *sweep = &t->job->a->group->sweep;
    block_walk walk = {.first_view = sweep->view_of[t->first_token],
                       .last_view = sweep->view_of[t->first_token + t->n_tokens - 1],
                       .end = sweep->n_blocks};
    if (walk.first_view == walk.last_view) {
        const cl_view *view = &sweep->views[walk.first_view];
        walk.at = view->first_block;
        walk.end = view->first_block + view->n_blocks;
    }
    return walk;
}

/* NULL: that was the last one. */
static const cl_key_block *next_block(const tile *t, block_walk *walk)
{
    const cl_sweep *sweep = &t->job->a->group->sweep;
    if (walk->first_view == walk->last_view)
        return walk->at < walk->end ? &sweep->blocks[sweep->view_blocks[walk->at++]] : NULL;
    while (walk->at < walk->end) {
        const cl_key_block *block = &sweep->blocks[sweep->order[walk->at++]];
        const uint32_t *viewers = sweep->viewers + block->first_viewer;
        if (viewers[0] <= walk->last_view && viewers[block->n_viewers - 1] >= walk->first_view)
            return block;
    }
    return NULL;
}

/* Rows of a block come from memory while the one before it is computed. */
static void prefetch_block(const tile *t, const cl_key_block *block)
{
    const cl_attention *a = t->job->a;
    const cl_layer *layer = a->layer;
    for (uint32_t i = 0; i < block->n_pieces; i++) {
        const cl_piece *piece = &a->group->sweep.pieces[block->first_piece + i];
        cl_storage_prefetch(&a->group->storage, layer->k, t->kv_head, piece->cell, piece->len);
        if (!layer->v_in_k)
            cl_storage_prefetch(&a->group->storage, layer->v, t->kv_head, piece->cell, piece->len);
    }
}

/* Every key block that some token of the tile sees, in order. False: a store failed. */
static bool walk_blocks(tile *t)
{
    block_walk walk = begin_walk(t);
    const cl_key_block *next, *block = next_block(t, &walk);
    for (; block; block = next) {
        next = next_block(t, &walk);
        if (next) prefetch_block(t, next);
        if (!attend_block(t, block)) return false;
    }
    return true;
}

/* The end of one row: a sink takes its share, then the weights are made to sum to one. */
static void write_row(const tile *t, uint32_t row, uint32_t head, float *out)
{
    const cl_layer *layer = t->job->a->layer;
    const float *accumulator = t->accumulator + (size_t)row * layer->v_size;
    float sum = t->sum[row], factor = 1;
    if (layer->sinks) {
        float sink = layer->sinks[head], maximum = t->maximum[row];
        if (sink > maximum) {
            factor = expf(maximum - sink);
            sum = sum * factor + 1;
        } else {
            sum += expf(sink - maximum);
        }
    }
    if (sum == 0) { /* nothing was seen */
        memset(out, 0, layer->v_size * sizeof(float));
        return;
    }
    for (uint32_t j = 0; j < layer->v_size; j++)
        out[j] = accumulator[j] * factor / sum;
    turn_stretches(t->job->a->kernels, out, layer->v_size, layer->hadamard_v);
}

static void write_results(const tile *t)
{
    const cl_attention *a = t->job->a;
    uint32_t row = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        uint32_t token = a->group->sweep.tokens[t->first_token + i];
        for (uint32_t h = t->first_head; h < t->first_head + t->n_heads; h++, row++)
            write_row(t, row, h,
                      t->job->out + ((size_t)token * a->layer->n_heads + h) * a->layer->v_size);
    }
}

/* Which heads and tokens the tile with this number is about. */
static void place_tile(tile *t, uint64_t index)
{
    const attend_job *job = t->job;
    const cl_layer *layer = job->a->layer;
    uint32_t group_size = layer->n_heads / layer->n_kv_heads;
    /* Late tokens see the most keys: long tiles first, so that workers finish together. */
    uint32_t token_tile = job->n_token_tiles - 1 - (uint32_t)(index % job->n_token_tiles);
    uint64_t heads = index / job->n_token_tiles;
    t->kv_head = (uint32_t)(heads / job->n_head_tiles);
    uint32_t first = (uint32_t)(heads % job->n_head_tiles) * job->heads_a_tile;
    t->first_head = t->kv_head * group_size + first;
    t->n_heads = smaller(job->heads_a_tile, group_size - first);
    t->first_token = token_tile * job->tokens_a_tile;
    t->n_tokens = smaller(job->tokens_a_tile, job->a->n_tokens - t->first_token);
}

static void attend_part(void *argument, uint32_t part, uint32_t n_parts)
{
    (void)n_parts;
    attend_job *job = argument;
    const cl_attention *a = job->a;
    float *scratch = a->scratch + part * a->layout->floats;
    tile t;
    t.job = job;
    t.query = scratch + a->layout->query;
    t.turned = scratch + a->layout->turned;
    t.accumulator = scratch + a->layout->accumulator;
    t.scores = scratch + a->layout->scores;
    t.keys = scratch + a->layout->keys;
    t.values = scratch + a->layout->values;
    t.raw = (unsigned char *)(scratch + a->layout->raw);
    uint64_t n_tiles = (uint64_t)a->layer->n_kv_heads * job->n_head_tiles * job->n_token_tiles;
    while (!atomic_load_explicit(&job->has_failed, memory_order_relaxed)) {
        uint64_t index = atomic_fetch_add_explicit(&job->next_tile, 1, memory_order_relaxed);
        if (index >= n_tiles) return;
        place_tile(&t, index);
        load_queries(&t);
        if (walk_blocks(&t))
            write_results(&t);
        else
            atomic_store_explicit(&job->has_failed, true, memory_order_relaxed);
    }
}

bool cl_attend_attend(const cl_attention *attention, const float *q, float *out)
{
    const cl_layer *layer = attention->layer;
    uint32_t group_size = layer->n_heads / layer->n_kv_heads;
    attend_job job = {.a = attention, .q = q, .out = out};
    job.heads_a_tile = smaller(group_size, CL_ROWS);
    job.tokens_a_tile = CL_ROWS / job.heads_a_tile;
    job.n_head_tiles = (group_size - 1) / job.heads_a_tile + 1;
    job.n_token_tiles = (attention->n_tokens - 1) / job.tokens_a_tile + 1;
    atomic_init(&job.next_tile, 0);
    atomic_init(&job.has_failed, false);
    run_workers(&attention->workers, attend_part, &job);
    return !atomic_load(&job.has_failed);
}
