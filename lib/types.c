/*
 * types.c: names and sizes of the row types.
 *
 * One table of what cellar.h says of each type. How numbers are written is the kernels' business;
 * their codec table must give the same block sizes, and a unit test compares the two. Nothing here
 * fails: what is not a row type has no name and no size.
 */
#include <stdint.h>

#include "cellar.h"
#include "checked.h"

typedef struct row_type {
    cellar_type type;
    uint32_t block, block_bytes;
    const char *name;
} row_type;

static const row_type row_types[] = {
    {CELLAR_F32, 1, 4, "f32"},     {CELLAR_F16, 1, 2, "f16"},         {CELLAR_Q4_0, 32, 18, "q4_0"},
    {CELLAR_Q4_1, 32, 20, "q4_1"}, {CELLAR_Q5_0, 32, 22, "q5_0"},     {CELLAR_Q5_1, 32, 24, "q5_1"},
    {CELLAR_Q8_0, 32, 34, "q8_0"}, {CELLAR_IQ4_NL, 32, 18, "iq4_nl"}, {CELLAR_BF16, 1, 2, "bf16"},
};

static const row_type *find(cellar_type type)
{
    for (size_t i = 0; i < sizeof row_types / sizeof *row_types; i++)
        if (row_types[i].type == type) return &row_types[i];
    return NULL;
}

const char *cellar_type_name(cellar_type type)
{
    const row_type *row = find(type);
    return row ? row->name : NULL;
}

uint32_t cellar_type_block(cellar_type type)
{
    const row_type *row = find(type);
    return row ? row->block : 0;
}

size_t cellar_type_bytes(cellar_type type, size_t n)
{
    const row_type *row = find(type);
    size_t bytes;
    if (!row || n % row->block != 0) return 0;
    return cl_checked_mul(n / row->block, row->block_bytes, &bytes) ? bytes : 0;
}
