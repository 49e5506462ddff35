/*
 * prefix_places.c: after how many of its tokens a sequence can go on.
 *
 * The memory is asked from the end of the sequence downwards: each answer is a place, and the next
 * question begins below it. Where nothing is recurrent, `rewind_min` says that all places down to it are
 * good, so a stretch costs one question. Nothing here fails: a place that is not found is only not used.
 */
#include "prefix_places.h"

#include "session_format.h"

uint32_t cl_prefix_places_ask(const cellar_memory *memory, cellar_seq seq, uint32_t n,
                              cellar_reason *why)
{
    cellar_pos from = 0;
    cellar_error error;
    if (why) *why = CELLAR_REASON_NONE;
    if (n == 0) return 0;
    cellar_status status = cellar_can_continue(memory, seq, (cellar_pos)n, &from, &error);
    if (status == CELLAR_OK) return n;
    if (status != CELLAR_REPLAY) return 0;
    if (why && (uint32_t)from < n) *why = error.reason;
    return (uint32_t)from;
}

bool cl_prefix_places_has_states(const cellar_memory *memory)
{
    for (uint32_t g = 0; g < memory->n_groups; g++)
        if (memory->groups[g].kind == CELLAR_LAYER_RECURRENT) return true;
    return false;
}

bool cl_prefix_places_keeps_all(const cellar_memory *memory)
{
    for (uint32_t g = 0; g < memory->n_groups; g++)
        if (memory->groups[g].kind == CELLAR_LAYER_RECURRENT ||
            cl_group_has_window(&memory->groups[g]))
            return false;
    return true;
}

void cl_prefix_places_list(const cellar_memory *memory, cellar_seq seq, uint32_t n,
                           cl_prefix_places *out)
{
    cellar_sequence_info info;
    uint32_t floor = UINT32_MAX; /* every place from here on is good */
    out->n = 0;
    if (!cl_prefix_places_has_states(memory) &&
        cellar_get_sequence(memory, seq, &info, NULL) == CELLAR_OK)
        floor = info.rewind_min > 1 ? (uint32_t)info.rewind_min : 1;
    while (n > 0 && out->n < CL_PREFIX_PLACES) {
        uint32_t last = cl_prefix_places_ask(memory, seq, n, NULL);
        if (last == 0) return;
        uint32_t first = last >= floor ? floor : last;
        out->items[out->n++] = (cl_prefix_place){first, last};
        n = first - 1;
    }
}

uint32_t cl_prefix_places_find(const cl_prefix_place *items, uint32_t n_items, uint32_t n)
{
    for (uint32_t i = 0; i < n_items; i++)
        if (items[i].first <= n) return items[i].last < n ? items[i].last : n;
    return 0;
}

size_t cl_prefix_places_write(const cl_prefix_places *places,
                              unsigned char to[8 * CL_PREFIX_PLACES])
{
    for (uint32_t i = 0; i < places->n; i++) {
        cl_put_u32(to + 8 * i, places->items[i].first);
        cl_put_u32(to + 8 * i + 4, places->items[i].last);
    }
    return 8 * places->n;
}

bool cl_prefix_places_read(const unsigned char *bytes, size_t size, uint32_t n,
                           cl_prefix_places *out)
{
    uint64_t below = (uint64_t)n + 1;
    out->n = 0;
    if (size % 8 != 0 || size > 8 * CL_PREFIX_PLACES) return false;
    for (size_t i = 0; i < size; i += 8) {
        cl_prefix_place place = {cl_get_u32(bytes + i), cl_get_u32(bytes + i + 4)};
        if (place.first == 0 || place.first > place.last || place.last >= below) return false;
        out->items[out->n++] = place;
        below = place.first;
    }
    return true;
}
