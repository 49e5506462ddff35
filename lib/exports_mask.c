/*
 * exports_mask.c: what each token of a micro-batch sees, as dense arrays: masks and buckets.
 *
 * The runs of the token's sequence are clipped to what the token sees, which is at most three ranges
 * of positions (sinks, the window, and for layers that look ahead the sinks in front of it). The few
 * stretches of cells that are left are noted, and the row is written once, from its beginning to its
 * end. Those for which there is no note left are written over that when they are found. Where more than
 * zeros is written the row is first filled with "not seen", and each stretch is written at once:
 *
 *     seen        positions 6 .. 9          runs  {pos 0, cell 40, len 8} {pos 8, cell 3, len 2}
 *     row         . . . 0 0 . . .  . . . . . . 0 0 . . .
 *     cell        0     3 4                    46 47
 *
 * So a row costs its length and the runs seen, never a test for each cell. The exception is memories
 * with 2-D positions: there what stands at the query's own position is left out of the stretches,
 * and asked one by one whether it stands behind the query.
 */
#include <assert.h>
#include <string.h>

#include "error.h"
#include "exports.h"
#include "half.h"

/* What is written where something is seen. */
typedef enum mask_content {
    CONTENT_ZEROS,     /* and -infinity where nothing is */
    CONTENT_DISTANCES, /* -|k - q|, likewise */
    CONTENT_BUCKETS    /* and 0 where nothing is seen */
} mask_content;

/*
 * The first stretches of a row of zeros, by cell: with these the row is written once, from its first
 * byte to its last, instead of being cleared first.
 */
enum { MOST_STRETCHES = 64 };
typedef struct mask_stretches {
    uint32_t n;
    bool is_open; /* what is seen is noted; false: it is written at once */
    struct {
        uint32_t begin, end;
    } items[MOST_STRETCHES];
} mask_stretches;

typedef struct mask_row {
    const cl_export *export;
    mask_stretches *stretches;
    bool is_past_caches; /* the mask is larger than they are */
    mask_content content;
    cellar_type type; /* of a mask */
    bool is_2d;
    uint32_t first_cell, n_kv;
    uint32_t member; /* whose past the token reads */
    cellar_pos q;
    cl_point point;
    unsigned char *row;
} mask_row;

/* The bits of -infinity, and of the largest distance that a half can hold. */
#define F32_NOT_SEEN 0xff800000u
#define F16_NOT_SEEN 0xfc00u
#define F16_FARTHEST 65504

/* Bytes of a mask that is not written into caches: they hold less, or hold it at the cost of all else. */
#define PAST_CACHES ((uint64_t)16 << 20)

static size_t element_size(mask_content content, cellar_type type)
{
    return content != CONTENT_BUCKETS && type == CELLAR_F16 ? sizeof(uint16_t) : sizeof(uint32_t);
}

/* ---- the values ------------------------------------------------------------------------------ */

/* Repeat the first `size` bytes until there are n times as many. */
static void repeat(unsigned char *to, size_t size, size_t n)
{
    for (size_t done = size, total = size * n; done < total;) {
        size_t more = done < total - done ? done : total - done;
        memcpy(to + done, to, more);
        done += more;
    }
}

/* The bits of two or one elements that are not seen, as words. */
static uint32_t word_not_seen(const mask_row *r)
{
    if (r->content == CONTENT_BUCKETS) return 0;
    return r->type == CELLAR_F16 ? F16_NOT_SEEN << 16 | F16_NOT_SEEN : F32_NOT_SEEN;
}

/*
 * Elements [begin, end), with a word that holds two of them if they are halves. Past the caches only
 * what is written once: what is written over had better be in them.
 */
static void fill(const mask_row *r, uint32_t begin, uint32_t end, uint32_t word)
{
    size_t size = element_size(r->content, r->type);
    unsigned char *to = r->row + begin * size;
    if (begin >= end) return;
    if (r->is_past_caches && r->stretches->is_open) {
        r->export->memory->kernels.rows_fill_past(to, word, (end - begin) * size);
    } else if (word == 0) {
        memset(to, 0, (end - begin) * size);
    } else {
        memcpy(to, &word, size);
        repeat(to, size, end - begin);
    }
}

/*
 * -|distance|, negated while it is whole: zero stays without a sign. One that a half cannot hold must
 * not become -infinity, which would hide the key.
 */
static void write_distance(const mask_row *r, size_t at, int64_t distance)
{
    if (distance > 0) distance = -distance;
    if (r->type == CELLAR_F16) {
        float value = (float)(distance > -F16_FARTHEST ? distance : -F16_FARTHEST);
        uint16_t half = half_from_float_bits(bits_from_float(value));
        memcpy(r->row + at * sizeof half, &half, sizeof half);
    } else {
        float value = (float)distance;
        memcpy(r->row + at * sizeof value, &value, sizeof value);
    }
}

static void write_distances(const mask_row *r, size_t at, const cl_run *seen)
{
    for (uint32_t i = 0; i < seen->len; i++)
        write_distance(r, at + i, (int64_t)seen->pos + (seen->step ? i : 0) - r->q);
}

/*
 * A bucket holds consecutive distances on one side of the query, so what begins and ends in one
 * bucket lies in it: look for the end of each bucket instead of asking for every key.
 */
static void write_buckets(const mask_row *r, size_t at, const cl_run *seen)
{
    const cl_layer *layer = r->export->layer;
    int32_t *to = (int32_t *)(void *)r->row + at;
    for (uint32_t i = 0; i < seen->len;) {
        int64_t distance = (int64_t)seen->pos + (seen->step ? i : 0) - r->q;
        uint32_t bucket = cl_attend_bucket(layer, distance), end = seen->len;
        if (seen->step && distance <= 0 && distance + (end - i) > 1)
            end = i + (uint32_t)(1 - distance); /* the keys in front of the query: another side */
        uint32_t low = i + 1; /* keys [i, low) are in the bucket, those from `end` on are not */
        if (!seen->step) low = end;
        while (low < end) {
            uint32_t middle = low + (end - low) / 2;
            if (cl_attend_bucket(layer, distance + (middle - i)) == bucket)
                low = middle + 1;
            else
                end = middle;
        }
        for (; i < low; i++)
            to[i] = (int32_t)bucket;
    }
}

/* The row is written: what was noted, and between that what is not seen. Stretches may overlap. */
static void write_noted(const mask_row *r)
{
    const mask_stretches *s = r->stretches;
    uint32_t done = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        fill(r, done, s->items[i].begin, word_not_seen(r));
        if (s->items[i].begin > done) done = s->items[i].begin;
        fill(r, done, s->items[i].end, 0);
        if (s->items[i].end > done) done = s->items[i].end;
    }
    fill(r, done, r->n_kv, word_not_seen(r));
}

/* false: there are too many. Then the row is written with those that were noted, and each more at once. */
static bool note_stretch(const mask_row *r, uint32_t begin, uint32_t end)
{
    mask_stretches *s = r->stretches;
    if (s->n == MOST_STRETCHES) {
        s->is_open = false;
        fill(r, 0, r->n_kv, word_not_seen(r)); /* in one piece, which is aligned */
        for (uint32_t i = 0; i < s->n; i++)
            fill(r, s->items[i].begin, s->items[i].end, 0);
        return false;
    }
    uint32_t i = s->n++;
    for (; i > 0 && s->items[i - 1].begin > begin; i--)
        s->items[i] = s->items[i - 1];
    s->items[i].begin = begin;
    s->items[i].end = end;
    return true;
}

static void write_stretch(const mask_row *r, const cl_run *seen)
{
    size_t at = seen->cell - r->first_cell, size = element_size(r->content, r->type);
    assert(seen->cell >= r->first_cell && at + seen->len <= r->n_kv);
    if (r->stretches->is_open && note_stretch(r, (uint32_t)at, (uint32_t)(at + seen->len))) return;
    if (r->content == CONTENT_ZEROS)
        memset(r->row + at * size, 0, seen->len * size);
    else if (r->content == CONTENT_DISTANCES)
        write_distances(r, at, seen);
    else
        write_buckets(r, at, seen);
}

/* ---- what is seen ---------------------------------------------------------------------------- */

static void write_cell(const mask_row *r, uint32_t cell)
{
    cl_run one = {.pos = r->q, .cell = cell, .step = 1};
    cl_run_set_len(&one, 1);
    write_stretch(r, &one);
}

/* Committed keys at the query's own position: only those that are not behind it. */
static void write_held_neighbours(const mask_row *r, const cl_run *run)
{
    const cl_point *points = r->export->group->sequences.cells.points;
    for (uint32_t i = 0; i < run->len; i++)
        if (!cl_attend_is_behind(points[run->cell + i], r->point)) write_cell(r, run->cell + i);
}

/* A token of the step; false: of this member, but not at the query's position. */
static bool write_neighbour(const mask_row *r, uint32_t token)
{
    const cl_step *step = r->export->step;
    if (!cl_exports_has_member(step, token, r->member)) return true;
    if (step->positions[token] != r->q) return false;
    if (!cl_attend_is_behind(cl_step_point(step, token), r->point))
        write_cell(r, r->export->group->cells_of[token]);
    return true;
}

/*
 * The same for the step's keys, from the step's own points: a window group may have given the cell of
 * one token to another of a later micro-batch. They stand beside the query in its sequence.
 */
static void write_pending_neighbours(const mask_row *r, uint32_t token)
{
    uint32_t end = r->export->first + r->export->n_tokens, before = token;
    while (before-- > 0 && write_neighbour(r, before)) {}
    while (token < end && write_neighbour(r, token))
        token++;
}

/* The part of a run that lies in [p0, p1); in 2-D without the query's own position. */
static void write_run(const mask_row *r, const cl_run *run, int64_t p0, int64_t p1)
{
    cl_run seen, part;
    if (!cl_run_clip(run, p0, p1, &seen)) return;
    if (!r->is_2d || seen.pos > r->q || cl_run_last(&seen) < r->q) {
        write_stretch(r, &seen);
        return;
    }
    if (cl_run_clip(&seen, 0, r->q, &part)) write_stretch(r, &part);
    if (cl_run_clip(&seen, (int64_t)r->q + 1, INT64_MAX, &part)) write_stretch(r, &part);
}

/* Everything at the query's own position (every window shows that): who is not behind it. */
static void write_position(const mask_row *r, const cl_export_held *held, uint32_t token)
{
    cl_run part;
    for (uint32_t i = cl_runs_find(held->runs, r->q); i < held->runs->n; i++) {
        if (!cl_run_clip(&held->runs->items[i], r->q, (int64_t)r->q + 1, &part)) break;
        write_held_neighbours(r, &part);
    }
    write_pending_neighbours(r, token);
}

/* Everything held in [p0, p1). */
static void write_range(const mask_row *r, const cl_export_held *held, int64_t p0, int64_t p1)
{
    if (p0 >= p1) return;
    for (uint32_t i = cl_runs_find(held->runs, p0); i < held->runs->n; i++) {
        if (held->runs->items[i].pos >= p1) break;
        write_run(r, &held->runs->items[i], p0, p1);
    }
    uint32_t left = held->n_pending;
    for (uint32_t i = 0; i < held->pending->n && left > 0; i++) {
        cl_run run = held->pending->items[i];
        if (run.pos >= p1) break;
        if (run.len > left) cl_run_set_len(&run, left);
        left -= run.len;
        write_run(r, &run, p0, p1);
    }
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void write_row(const mask_row *r, const cl_export_held *held, uint32_t token)
{
    const cl_export *export = r->export;
    const cellar_window *window = &export->group->window;
    int64_t first = cl_window_first(window, r->q), end = cl_window_last(window, r->q);
    int64_t limit = export->layer->is_causal ? (int64_t)r->q + 1 : INT64_MAX;
    int64_t n_sinks = window->kind == CELLAR_WINDOW_NONE ? 0 : window->n_sinks;
    if (end < INT64_MAX) end++;
    r->stretches->n = 0;
    r->stretches->is_open = r->content == CONTENT_ZEROS;
    if (!r->stretches->is_open) fill(r, 0, r->n_kv, word_not_seen(r));
    write_range(r, held, 0, smaller(first, smaller(n_sinks, limit)));
    write_range(r, held, first, smaller(end, limit));
    write_range(r, held, end, smaller(n_sinks, limit));
    if (r->is_2d) write_position(r, held, token);
    if (r->stretches->is_open) write_noted(r);
}

static void write_rows(const cl_export *export, const cl_export_streams *streams,
                       mask_content content, cellar_type type, uint32_t n_kv, void *to)
{
    uint32_t begin = export->step->segment_begin[export->ubatch];
    uint32_t n_segments = export->step->segment_begin[export->ubatch + 1] - begin;
    mask_stretches stretches;
    mask_row r = {.export = export,
                  .stretches = &stretches,
                  .is_past_caches = (uint64_t)n_kv * export->n_tokens *
                                        element_size(content, type) >=
                                    PAST_CACHES,
                  .content = content,
                  .type = type,
                  .is_2d = export->group->sequences.cells.points != NULL,
                  .member = UINT32_MAX,
                  .n_kv = n_kv,
                  .row = to};
    cl_export_held held = {0};
    for (uint32_t token = export->first; token < export->first + export->n_tokens; token++) {
        if (cl_exports_member(export, token) != r.member) {
            r.member = cl_exports_member(export, token);
            held = cl_exports_held(export, r.member, n_segments);
            r.first_cell = cl_exports_first_cell(export, streams, n_kv, token);
        }
        r.q = export->step->positions[token];
        r.point = cl_step_point(export->step, token);
        write_row(&r, &held, token);
        r.row += n_kv * element_size(content, type);
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

static cellar_status check_n_kv(const cl_export *export, uint32_t n_kv, cl_export_streams *streams,
                                cellar_error *error)
{
    cl_exports_streams(export, streams);
    if (n_kv < streams->cover || n_kv > streams->limit)
        CL_FAIL(error, CELLAR_INVALID, n_kv,
                "n_kv is %u, and must be %u to %u: ask cellar_export_extent", n_kv, streams->cover,
                streams->limit);
    return CELLAR_OK;
}

cellar_status cellar_export_mask(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                                 uint32_t n_kv, cellar_type type, void *mask, cellar_error *error)
{
    cl_export export;
    cl_export_streams streams;
    CL_TRY(cl_exports_open(memory, ubatch, layer, &export, error));
    if (!mask) CL_FAIL(error, CELLAR_INVALID, -1, "mask is NULL");
    if (type != CELLAR_F32 && type != CELLAR_F16)
        CL_FAIL(error, CELLAR_INVALID, type, "masks are CELLAR_F32 or CELLAR_F16, not type %d",
                (int)type);
    CL_TRY(check_n_kv(&export, n_kv, &streams, error));
    CL_TRY(cl_exports_check_shifts(&export, error));
    write_rows(&export, &streams, export.layer->slopes ? CONTENT_DISTANCES : CONTENT_ZEROS, type,
               n_kv, mask);
    return CELLAR_OK;
}

cellar_status cellar_export_buckets(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                                    uint32_t n_kv, int32_t *buckets, cellar_error *error)
{
    cl_export export;
    cl_export_streams streams;
    CL_TRY(cl_exports_open(memory, ubatch, layer, &export, error));
    if (!buckets) CL_FAIL(error, CELLAR_INVALID, -1, "buckets is NULL");
    if (export.layer->n_buckets == 0)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u has no buckets", layer);
    CL_TRY(check_n_kv(&export, n_kv, &streams, error));
    write_rows(&export, &streams, CONTENT_BUCKETS, CELLAR_F32, n_kv, buckets);
    return CELLAR_OK;
}
