/*
 * attend_features.h: what of a key block a query sees, and what is added to a score.
 *
 * Everything in which layers differ beside shapes and rotations: causality, windows, sinks that are
 * kept, images, soft caps, ALiBi and learned distances. Which keys of a block one query sees is a
 * mask of 32 bits, bit j for key j. The walk (attend.c) computes with seen keys alone, so what stands
 * in the rows of others, NaN included, reaches no result. Pure functions; nothing fails.
 */
#ifndef CL_ATTEND_FEATURES_H
#define CL_ATTEND_FEATURES_H

#include "attend.h"

/* A query's place, and what follows from it. */
typedef struct cl_looker {
    int32_t pos;
    int32_t first, last; /* positions that window and causality let it see */
    int32_t last_sink;   /* positions up to this are seen too; -1: none */
    cl_point point;
} cl_looker;

/* The place of token `token` of the micro-batch. */
cl_looker cl_attend_looker(const cl_attention *attention, uint32_t token);

/* Which keys of a block it sees. */
uint32_t cl_attend_visible(const cl_attention *attention, const cl_key_block *block,
                           const cl_looker *looker);

/* Does anything have to be done to scores before the softmax? */
static inline bool cl_attend_is_adjusted(const cl_layer *layer)
{
    return layer->softcap > 0 || layer->slopes || layer->bucket_bias;
}

/* Distances k - q of the keys of a block that a query sees, one behind the other, and their buckets. */
typedef struct cl_distances {
    uint32_t n;
    int32_t distance[CL_KEYS];
    uint32_t bucket[CL_KEYS]; /* if the layer has buckets */
} cl_distances;

void cl_attend_measure(const cl_attention *attention, const cl_key_block *block,
                       const cl_looker *looker, uint32_t visible, cl_distances *distances);

/* Scores of those keys for one query head: soft cap, then ALiBi and the bias of the buckets. */
void cl_attend_adjust(const cl_layer *layer, uint32_t head, const cl_distances *distances,
                      float *scores);

/* ---- masks ----------------------------------------------------------------------------------- */

/* The first n bits; n <= 32. */
static inline uint32_t cl_mask_first(uint32_t n)
{
    return n >= 32 ? UINT32_MAX : (1u << n) - 1;
}

/* The lowest bit that is set; the mask is not 0. */
static inline uint32_t cl_mask_lowest(uint32_t mask)
{
    return (uint32_t)__builtin_ctz(mask);
}

/* One more than the highest bit that is set; the mask is not 0. */
static inline uint32_t cl_mask_end(uint32_t mask)
{
    return 32 - (uint32_t)__builtin_clz(mask);
}

/* How many bits below `bit` are set. */
static inline uint32_t cl_mask_rank(uint32_t mask, uint32_t bit)
{
    return (uint32_t)__builtin_popcount(mask & cl_mask_first(bit));
}

/* Are the bits that are set one stretch? The mask is not 0. */
static inline bool cl_mask_is_stretch(uint32_t mask)
{
    uint32_t from_lowest = mask >> cl_mask_lowest(mask);
    return (from_lowest & (from_lowest + 1)) == 0;
}

#endif /* CL_ATTEND_FEATURES_H */
