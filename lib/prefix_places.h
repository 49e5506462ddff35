/*
 * prefix_places.h: after how many of its tokens a sequence can go on.
 *
 * For a sequence in the cells the memory answers. For a stored one the answer is written down when it is
 * stored: stretches [first, last] of numbers of tokens, the largest first. A sequence that attends to
 * everything has one, [1, n]; a window that has passed on leaves a stretch at the end and a place for
 * each checkpoint; states leave places.
 *
 * Only the CL_PREFIX_PLACES last ones are noted. A note that says too much does no harm: what is
 * loaded is asked again.
 */
#ifndef CL_PREFIX_PLACES_H
#define CL_PREFIX_PLACES_H

#include "memory.h"

#define CL_PREFIX_PLACES 128u /* most stretches of a sequence */
#define CL_PREFIX_PLACES_NOTE "prefix.places"

typedef struct cl_prefix_place {
    uint32_t first, last;
} cl_prefix_place;

typedef struct cl_prefix_places {
    uint32_t n;
    cl_prefix_place items[CL_PREFIX_PLACES];
} cl_prefix_places;

/* The largest number of tokens up to n after which a sequence in the cells can go on. *why (may be
 * NULL): the reason that it is not n. */
uint32_t cl_prefix_places_ask(const cellar_memory *memory, cellar_seq seq, uint32_t n,
                              cellar_reason *why);

/* Does some layer keep states? */
bool cl_prefix_places_has_states(const cellar_memory *memory);

/* Does every group keep everything? Then every place is good, and a stretch can be cut out. */
bool cl_prefix_places_keeps_all(const cellar_memory *memory);

/* All of a sequence that holds n tokens. */
void cl_prefix_places_list(const cellar_memory *memory, cellar_seq seq, uint32_t n,
                           cl_prefix_places *out);

/* What cl_prefix_places_ask would say. */
uint32_t cl_prefix_places_find(const cl_prefix_place *items, uint32_t n_items, uint32_t n);

/* As the bytes of a note, 8 a place; and back: false if they are no places of n tokens. */
size_t cl_prefix_places_write(const cl_prefix_places *places,
                              unsigned char to[8 * CL_PREFIX_PLACES]);
bool cl_prefix_places_read(const unsigned char *bytes, size_t size, uint32_t n,
                           cl_prefix_places *out);

#endif /* CL_PREFIX_PLACES_H */
