/*
 * prefix_lost.h: what was known once: the last texts that were given up for want of room.
 *
 * Only hashes are kept, so this can say why something is not found, and never what may be reused. A
 * hash that agrees by chance makes a reason wrong, nothing else. The oldest goes when a new one comes.
 *
 * They are sorted by length, so that one pass over a prompt meets all of them.
 */
#ifndef CL_PREFIX_LOST_H
#define CL_PREFIX_LOST_H

#include "cellar.h"

enum { CL_PREFIX_LOST = 256 };

typedef struct cl_prefix_lost_text {
    uint64_t space, hash, number; /* number: larger is younger */
    uint32_t n;                   /* tokens */
} cl_prefix_lost_text;

typedef struct cl_prefix_lost {
    cl_prefix_lost_text items[CL_PREFIX_LOST]; /* shorter ones first */
    uint32_t n;
    uint64_t last_number;
} cl_prefix_lost;

void cl_prefix_lost_add(cl_prefix_lost *lost, uint64_t space, const cellar_token *tokens,
                        uint32_t n);

/* Was there a text with which these tokens begin, longer than `known`? */
bool cl_prefix_lost_has(const cl_prefix_lost *lost, uint64_t space, const cellar_token *tokens,
                        uint32_t n, uint32_t known);

#endif /* CL_PREFIX_LOST_H */
