/*
 * prefix_lost.c: what was known once: the last texts that were given up for want of room.
 *
 * The hash of a text is that of its beginning and its last token, so all beginnings of a prompt are
 * hashed in one pass. Nothing here fails, and nothing here decides what is reused.
 */
#include "prefix_lost.h"

static uint64_t add_token(uint64_t hash, cellar_token token)
{
    hash = (hash ^ (uint32_t)token) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t first_hash(uint64_t space)
{
    return space ^ 0x6a09e667f3bcc908u;
}

static void remove_oldest(cl_prefix_lost *lost)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < lost->n; i++)
        if (lost->items[i].number < lost->items[oldest].number) oldest = i;
    lost->n--;
    for (uint32_t i = oldest; i < lost->n; i++)
        lost->items[i] = lost->items[i + 1];
}

void cl_prefix_lost_add(cl_prefix_lost *lost, uint64_t space, const cellar_token *tokens,
                        uint32_t n)
{
    uint64_t hash = first_hash(space);
    for (uint32_t i = 0; i < n; i++)
        hash = add_token(hash, tokens[i]);
    if (lost->n == CL_PREFIX_LOST) remove_oldest(lost);
    uint32_t at = lost->n++;
    for (; at > 0 && lost->items[at - 1].n > n; at--)
        lost->items[at] = lost->items[at - 1];
    lost->items[at] = (cl_prefix_lost_text){space, hash, ++lost->last_number, n};
}

bool cl_prefix_lost_has(const cl_prefix_lost *lost, uint64_t space, const cellar_token *tokens,
                        uint32_t n, uint32_t known)
{
    uint64_t hash = first_hash(space);
    uint32_t read = 0;
    for (uint32_t i = 0; i < lost->n && lost->items[i].n <= n; i++) {
        const cl_prefix_lost_text *text = &lost->items[i];
        if (text->space != space || text->n <= known) continue;
        while (read < text->n)
            hash = add_token(hash, tokens[read++]);
        if (hash == text->hash) return true;
    }
    return false;
}
