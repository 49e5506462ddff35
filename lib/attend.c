/*
 * attend.c: the walk over key blocks.
 *
 * The unit of work is a tile: the query heads of one K/V head, times a handful of tokens, at most
 * CL_ROWS rows. Workers take tiles from a counter, each in scratch room of its own, so they share
 * nothing they write. For every key block that the tile sees: find the rows that look at it, score them
 * against its keys, update their running maxima and sums, add its values.
 *
 * Nothing here can fail and nothing allocates: what it needs was reserved when the step began.
 */
#include "attend.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

bool cl_scratch_measure(cl_scratch_layout *layout, uint32_t largest_k, uint32_t largest_v)
{
    size_t at = 0;
    struct {
        size_t *offset;
        size_t rows, size;
    } parts[] = {
        {&layout->query, CL_ROWS, largest_k},       {&layout->turned, CL_ROWS, largest_k},
        {&layout->accumulator, CL_ROWS, largest_v}, {&layout->scores, CL_ROWS, CL_KEYS},
        {&layout->keys, CL_KEYS, largest_k},        {&layout->values, CL_KEYS, largest_v},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t floats;
        *parts[i].offset = at;
        if (!cl_checked_mul(parts[i].rows, parts[i].size, &floats) ||
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

/* ---- store ----------------------------------------------------------------------------------- */

typedef struct store_job {
    const cl_attention *a;
    const float *k, *v;
} store_job;

static void store_token(const store_job *job, uint32_t token, float *head_scratch)
{
    const cl_attention *a = job->a;
    const cl_layer *layer = a->layer;
    uint32_t n_pairs = a->rope->n_pairs;
    const float *c = a->angles + (size_t)token * 2 * n_pairs;
    for (uint32_t h = 0; h < layer->n_kv_heads; h++) {
        size_t row = (size_t)token * layer->n_kv_heads + h;
        memcpy(head_scratch, job->k + row * layer->k_size, layer->k_size * sizeof(float));
        cl_rope_turn(a->rope, a->kernels, head_scratch, c, c + n_pairs);
        cl_storage_write(&a->group->storage, &layer->k, a->kernels, h, a->cells[token],
                         head_scratch);
        cl_storage_write(&a->group->storage, &layer->v, a->kernels, h, a->cells[token],
                         job->v + row * layer->v_size);
    }
}

static void store_part(void *argument, uint32_t part, uint32_t n_parts)
{
    const store_job *job = argument;
    const cl_attention *a = job->a;
    float *head_scratch = a->scratch + part * a->layout->floats + a->layout->query;
    for (uint32_t token = part; token < a->n_tokens; token += n_parts)
        store_token(job, token, head_scratch);
}

void cl_attention_store(const cl_attention *attention, const float *k, const float *v)
{
    store_job job = {attention, k, v};
    run_workers(&attention->workers, store_part, &job);
}

/* ---- attend ---------------------------------------------------------------------------------- */

typedef struct attend_job {
    const cl_attention *a;
    const float *q;
    float *out;
    uint32_t heads_a_tile;  /* query heads of one K/V head that are computed together */
    uint32_t tokens_a_tile; /* tokens that are: heads_a_tile * tokens_a_tile <= CL_ROWS */
    uint32_t n_head_tiles, n_token_tiles;
    atomic_uint_fast64_t next_tile;
} attend_job;

/* One worker's state for one tile: tokens [first, first + n) of the sweep's order, some heads. */
typedef struct tile {
    const attend_job *job;
    uint32_t kv_head, first_head, n_heads; /* query heads first_head..first_head + n_heads - 1 */
    uint32_t first_token, n_tokens;
    uint32_t shift; /* the shift that `turned` holds: an index; UINT32_MAX: none */
    float *query, *turned, *accumulator, *scores, *keys, *values;
    float maximum[CL_ROWS], sum[CL_ROWS];
    /* rows that look at the current key block */
    uint32_t n_rows;
    uint32_t rows[CL_ROWS], n_seen[CL_ROWS]; /* row, and how many of the block's keys it sees */
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
    t->shift = UINT32_MAX;
}

/*
 * How many keys of a block a query at `pos` sees: all, or (causal) those at its position and
 * before, which are the first so many because keys are in order of position.
 */
static uint32_t count_seen(const cl_sweep *sweep, const cl_key_block *block, bool is_causal,
                           cellar_pos pos)
{
    if (!is_causal || block->last_pos <= pos) return block->n_keys;
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->n_pieces; i++) {
        const cl_piece *piece = &sweep->pieces[block->first_piece + i];
        if (piece->pos > pos) break;
        n += piece->step ? smaller(piece->len, (uint32_t)(pos - piece->pos) + 1) : piece->len;
    }
    return n;
}

/* Note the rows of one token if it sees something of the block. */
static void look(tile *t, const cl_key_block *block, uint32_t i)
{
    const cl_attention *a = t->job->a;
    uint32_t token = a->group->sweep.tokens[t->first_token + i];
    uint32_t n = count_seen(&a->group->sweep, block, a->layer->is_causal, a->positions[token]);
    if (n == 0) return;
    for (uint32_t h = 0; h < t->n_heads; h++) {
        uint32_t row = i * t->n_heads + h;
        t->rows[t->n_rows] = row;
        t->n_seen[t->n_rows] = n;
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
    t->n_rows = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        uint32_t view = sweep->view_of[t->first_token + i];
        while (viewer < end && *viewer < view)
            viewer++;
        if (viewer == end) break;
        if (*viewer == view) look(t, block, i);
    }
}

/* Point the looking rows at queries that are turned back by the shift of a piece. */
static void aim_queries(tile *t, uint32_t shift)
{
    const cl_attention *a = t->job->a;
    uint32_t k_size = a->layer->k_size, n_pairs = a->rope->n_pairs;
    bool is_plain = n_pairs == 0 || a->group->sweep.shifts[shift] == 0;
    if (!is_plain && t->shift != shift) {
        const float *c = turn_angles(t, shift);
        uint32_t n = t->n_tokens * t->n_heads;
        memcpy(t->turned, t->query, (size_t)n * k_size * sizeof(float));
        for (uint32_t row = 0; row < n; row++)
            cl_rope_turn(a->rope, a->kernels, t->turned + (size_t)row * k_size, c, c + n_pairs);
        t->shift = shift;
    }
    const float *queries = is_plain ? t->query : t->turned;
    for (uint32_t r = 0; r < t->n_rows; r++)
        t->row_queries[r] = queries + (size_t)t->rows[r] * k_size;
}

static void score_block(tile *t, const cl_key_block *block)
{
    const cl_attention *a = t->job->a;
    const cl_layer *layer = a->layer;
    float *scores[CL_ROWS];
    memcpy(scores, t->row_scores, t->n_rows * sizeof *scores);
    for (uint32_t i = 0; i < block->n_pieces; i++) {
        const cl_piece *piece = &a->group->sweep.pieces[block->first_piece + i];
        aim_queries(t, piece->shift);
        const float *keys = cl_storage_read(&a->group->storage, &layer->k, a->kernels, t->kv_head,
                                            piece->cell, piece->len, t->keys);
        a->kernels->attend_scores(t->row_queries, t->n_rows, keys, piece->len, layer->k_size,
                                  layer->scale, scores);
        for (uint32_t r = 0; r < t->n_rows; r++)
            scores[r] += piece->len;
    }
}

static void soften_block(tile *t)
{
    const cl_attention *a = t->job->a;
    for (uint32_t r = 0; r < t->n_rows; r++) {
        uint32_t row = t->rows[r];
        float correction = a->kernels->attend_softmax(t->row_scores[r], t->n_seen[r],
                                                      &t->maximum[row], &t->sum[row]);
        if (correction != 1.0f)
            a->kernels->attend_scale(t->row_accumulators[r], a->layer->v_size, correction);
    }
}

/* Keys [before, before + n) of the block: add their values to every row that sees them. */
static void add_values(tile *t, const float *values, uint32_t before, uint32_t n)
{
    const cl_attention *a = t->job->a;
    uint32_t v_size = a->layer->v_size;
    const float *weights[CL_ROWS];
    for (uint32_t r = 0; r < t->n_rows;) {
        uint32_t seen = t->n_seen[r] > before ? smaller(t->n_seen[r] - before, n) : 0;
        /* Rows that see the same number of keys go together. */
        uint32_t end = r;
        for (; end < t->n_rows; end++) {
            uint32_t its = t->n_seen[end] > before ? smaller(t->n_seen[end] - before, n) : 0;
            if (its != seen) break;
            weights[end] = t->row_scores[end] + before;
        }
        if (seen > 0)
            a->kernels->attend_accumulate(weights + r, end - r, values, seen, v_size,
                                          t->row_accumulators + r);
        r = end;
    }
}

static void accumulate_block(tile *t, const cl_key_block *block)
{
    const cl_attention *a = t->job->a;
    uint32_t before = 0;
    for (uint32_t i = 0; i < block->n_pieces; i++) {
        const cl_piece *piece = &a->group->sweep.pieces[block->first_piece + i];
        const float *values = cl_storage_read(&a->group->storage, &a->layer->v, a->kernels,
                                              t->kv_head, piece->cell, piece->len, t->values);
        add_values(t, values, before, piece->len);
        before += piece->len;
    }
}

static void attend_block(tile *t, const cl_key_block *block)
{
    find_rows(t, block);
    if (t->n_rows == 0) return;
    score_block(t, block);
    soften_block(t);
    accumulate_block(t, block);
}

/* Every key block that some token of the tile sees, in order. */
static void walk_blocks(tile *t)
{
    const cl_sweep *sweep = &t->job->a->group->sweep;
    uint32_t first_view = sweep->view_of[t->first_token];
    uint32_t last_view = sweep->view_of[t->first_token + t->n_tokens - 1];
    if (first_view == last_view) {
        const cl_view *view = &sweep->views[first_view];
        for (uint32_t i = 0; i < view->n_blocks; i++)
            attend_block(t, &sweep->blocks[sweep->view_blocks[view->first_block + i]]);
        return;
    }
    for (uint32_t b = 0; b < sweep->n_blocks; b++) {
        const cl_key_block *block = &sweep->blocks[sweep->order[b]];
        const uint32_t *viewers = sweep->viewers + block->first_viewer;
        if (viewers[0] > last_view || viewers[block->n_viewers - 1] < first_view) continue;
        attend_block(t, block);
    }
}

static void write_results(const tile *t)
{
    const cl_attention *a = t->job->a;
    uint32_t v_size = a->layer->v_size, row = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        uint32_t token = a->group->sweep.tokens[t->first_token + i];
        for (uint32_t h = 0; h < t->n_heads; h++, row++) {
            float *out = t->job->out +
                         ((size_t)token * a->layer->n_heads + t->first_head + h) * v_size;
            const float *accumulator = t->accumulator + (size_t)row * v_size;
            for (uint32_t j = 0; j < v_size; j++)
                out[j] = accumulator[j] / t->sum[row];
        }
    }
}

static void attend_part(void *argument, uint32_t part, uint32_t n_parts)
{
    (void)n_parts;
    attend_job *job = argument;
    const cl_attention *a = job->a;
    const cl_layer *layer = a->layer;
    uint32_t group_size = layer->n_heads / layer->n_kv_heads;
    float *scratch = a->scratch + part * a->layout->floats;
    tile t;
    t.job = job;
    t.query = scratch + a->layout->query;
    t.turned = scratch + a->layout->turned;
    t.accumulator = scratch + a->layout->accumulator;
    t.scores = scratch + a->layout->scores;
    t.keys = scratch + a->layout->keys;
    t.values = scratch + a->layout->values;
    uint64_t n_tiles = (uint64_t)layer->n_kv_heads * job->n_head_tiles * job->n_token_tiles;
    for (;;) {
        uint64_t index = atomic_fetch_add_explicit(&job->next_tile, 1, memory_order_relaxed);
        if (index >= n_tiles) return;
        /* Late tokens see the most keys: long tiles first, so that workers finish together. */
        uint32_t token_tile = job->n_token_tiles - 1 - (uint32_t)(index % job->n_token_tiles);
        uint64_t heads = index / job->n_token_tiles;
        t.kv_head = (uint32_t)(heads / job->n_head_tiles);
        uint32_t first = (uint32_t)(heads % job->n_head_tiles) * job->heads_a_tile;
        t.first_head = t.kv_head * group_size + first;
        t.n_heads = smaller(job->heads_a_tile, group_size - first);
        t.first_token = token_tile * job->tokens_a_tile;
        t.n_tokens = smaller(job->tokens_a_tile, a->n_tokens - t.first_token);
        load_queries(&t);
        walk_blocks(&t);
        write_results(&t);
    }
}

void cl_attention_attend(const cl_attention *attention, const float *q, float *out)
{
    const cl_layer *layer = attention->layer;
    uint32_t group_size = layer->n_heads / layer->n_kv_heads;
    attend_job job = {.a = attention, .q = q, .out = out};
    job.heads_a_tile = smaller(group_size, CL_ROWS);
    job.tokens_a_tile = CL_ROWS / job.heads_a_tile;
    job.n_head_tiles = (group_size - 1) / job.heads_a_tile + 1;
    job.n_token_tiles = (attention->n_tokens - 1) / job.tokens_a_tile + 1;
    atomic_init(&job.next_tile, 0);
    run_workers(&attention->workers, attend_part, &job);
}
