/*
 * attend_features.c: causality, windows and images as masks; what distances add to scores.
 *
 * Most blocks are seen whole or not at all, and their first and last positions say so. The others are
 * asked piece by piece: what window and causality allow is an interval of positions, sinks are a
 * second one, and among keys at the query's own position, points decide one by one.
 *
 * Sources: ALiBi, Press et al., arXiv:2108.12409; buckets, Raffel et al., arXiv:1910.10683.
 */
#include "attend_features.h"

#include <math.h>

/* ---- what a query sees ----------------------------------------------------------------------- */

static int32_t clamp_position(int64_t pos)
{
    return pos > INT32_MAX ? INT32_MAX : (int32_t)pos;
}

cl_looker cl_attend_looker(const cl_attention *attention, uint32_t token)
{
    const cellar_window *window = &attention->group->window;
    cl_looker looker = {.pos = attention->positions[token], .last_sink = -1};
    looker.first = clamp_position(cl_window_first(window, looker.pos));
    looker.last = clamp_position(cl_window_last(window, looker.pos));
    if (window->kind != CELLAR_WINDOW_NONE)
        looker.last_sink = clamp_position((int64_t)window->n_sinks - 1);
    if (attention->layer->is_causal) {
        if (looker.last > looker.pos) looker.last = looker.pos;
        if (looker.last_sink > looker.pos) looker.last_sink = looker.pos;
    }
    if (attention->points) looker.point = attention->points[token];
    return looker;
}

/* The keys of a piece at positions first..last. */
static uint32_t keys_between(const cl_piece *piece, int64_t first, int64_t last)
{
    int64_t begin = first - piece->pos, end = last - piece->pos + 1;
    if (!piece->step) return begin <= 0 && end > 0 ? cl_mask_first(piece->len) : 0;
    if (begin < 0) begin = 0;
    if (end > (int64_t)piece->len) end = piece->len;
    return begin < end ? cl_mask_first((uint32_t)end) & ~cl_mask_first((uint32_t)begin) : 0;
}

/* Of the keys `seen` of a piece, those at the query's position that stand behind it in an image. */
static uint32_t keys_behind(const cl_cells *cells, const cl_piece *piece, const cl_looker *looker,
                            uint32_t seen)
{
    uint32_t behind = 0;
    for (uint32_t at = seen & keys_between(piece, looker->pos, looker->pos); at; at &= at - 1) {
        uint32_t i = cl_mask_lowest(at);
        if (cl_attend_is_behind(cells->points[piece->cell + i], looker->point)) behind |= 1u << i;
    }
    return behind;
}

uint32_t cl_attend_visible(const cl_attention *attention, const cl_key_block *block,
                           const cl_looker *looker)
{
    const cl_cells *cells = &attention->group->sequences.cells;
    bool has_ties = cells->points && block->first_pos <= looker->pos &&
                    looker->pos <= block->last_pos;
    if (block->first_pos >= looker->first && block->last_pos <= looker->last && !has_ties)
        return cl_mask_first(block->n_keys);
    if (block->first_pos > looker->last_sink &&
        (block->first_pos > looker->last || block->last_pos < looker->first))
        return 0;
    uint32_t mask = 0, before = 0;
    for (uint32_t i = 0; i < block->n_pieces; i++) {
        const cl_piece *piece = &attention->group->sweep.pieces[block->first_piece + i];
        uint32_t seen = keys_between(piece, looker->first, looker->last) |
                        keys_between(piece, 0, looker->last_sink);
        if (has_ties) seen &= ~keys_behind(cells, piece, looker, seen);
        mask |= seen << before;
        before += piece->len;
    }
    return mask;
}

/* ---- what distances add ---------------------------------------------------------------------- */

void cl_attend_measure(const cl_attention *attention, const cl_key_block *block,
                       const cl_looker *looker, uint32_t visible, cl_distances *distances)
{
    const cl_layer *layer = attention->layer;
    uint32_t before = 0;
    distances->n = 0;
    for (uint32_t i = 0; i < block->n_pieces; i++) {
        const cl_piece *piece = &attention->group->sweep.pieces[block->first_piece + i];
        uint32_t seen = (visible >> before) & cl_mask_first(piece->len);
        for (; seen; seen &= seen - 1) {
            int32_t pos = piece->pos + (piece->step ? (int32_t)cl_mask_lowest(seen) : 0);
            distances->distance[distances->n++] = pos - looker->pos;
        }
        before += piece->len;
    }
    for (uint32_t j = 0; layer->bucket_bias && j < distances->n; j++)
        distances->bucket[j] = cl_attend_bucket(layer, distances->distance[j]);
}

void cl_attend_adjust(const cl_layer *layer, uint32_t head, const cl_distances *distances,
                      float *scores)
{
    for (uint32_t j = 0; j < distances->n; j++) {
        if (layer->softcap > 0) scores[j] = layer->softcap * tanhf(scores[j] / layer->softcap);
        if (layer->slopes) scores[j] -= layer->slopes[head] * fabsf((float)distances->distance[j]);
        if (layer->bucket_bias)
            scores[j] += layer->bucket_bias[(size_t)distances->bucket[j] * layer->n_heads + head];
    }
}

void cl_attend_slopes(float *slopes, uint32_t n_heads, float max_bias)
{
    uint32_t n2 = 1; /* heads that make a geometric series; the others go between its members */
    while (2 * (uint64_t)n2 <= n_heads)
        n2 *= 2;
    for (uint32_t h = 0; h < n_heads; h++) {
        double exponent = h < n2 ? (double)(h + 1) : (2.0 * (h - n2) + 1) / 2;
        slopes[h] = (float)exp2(-(double)max_bias * exponent / n2);
    }
}

uint32_t cl_attend_bucket(const cl_layer *layer, int64_t distance)
{
    uint32_t half = layer->n_buckets, offset = 0;
    int64_t r = -distance;
    if (layer->is_bidirectional) {
        half /= 2;
        if (distance > 0) {
            offset = half;
            r = distance;
        }
    } else if (r < 0) {
        r = 0;
    }
    uint32_t max_exact = half / 2;
    if (r < (int64_t)max_exact) return offset + (uint32_t)r;
    if (max_exact == 0) return offset; /* one bucket for each direction */
    double share = log((double)r / max_exact) / log((double)layer->max_distance / max_exact);
    /* Where the exact value is whole, rounding must not put it below. */
    double bucket = max_exact + floor(share * (half - max_exact) + 1e-12);
    return offset + (bucket < half - 1.0 ? (uint32_t)bucket : half - 1);
}
