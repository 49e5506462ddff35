/*
 * quantize_types.c: the types that can be written, and how rows become theirs.
 *
 * Numbers of types and of general.file_type are facts of GGUF. Row types use the encoders that stored rows
 * have (kernels.h); the others those of quantize_pieces.h. IQ types but IQ4_NL are not here: their
 * grids are of little use unless an importance matrix says which weights matter.
 */
#define _POSIX_C_SOURCE 200809L

#include <strings.h>

#include "engine/quantize.h"
#include "engine/quantize_pieces.h"
#include "kernels.h"

static const quantize_type types[] = {
    {"F32", CL_WEIGHT_F32, 0, CL_WEIGHT_F32, false},
    {"F16", CL_WEIGHT_F16, 1, CL_WEIGHT_F16, false},
    {"BF16", CL_WEIGHT_BF16, 32, CL_WEIGHT_BF16, false},
    {"Q8_0", CL_WEIGHT_Q8_0, 7, CL_WEIGHT_Q8_0, false},
    {"Q6_K", CL_WEIGHT_Q6_K, 18, CL_WEIGHT_Q8_0, false},
    {"Q5_K", CL_WEIGHT_Q5_K, 16, CL_WEIGHT_Q5_1, true},
    {"Q4_K", CL_WEIGHT_Q4_K, 14, CL_WEIGHT_Q5_0, true},
    {"Q3_K", CL_WEIGHT_Q3_K, 11, CL_WEIGHT_IQ4_NL, true},
    {"Q2_K", CL_WEIGHT_Q2_K, 10, CL_WEIGHT_IQ4_NL, true},
    {"Q5_1", CL_WEIGHT_Q5_1, 9, CL_WEIGHT_Q5_1, true},
    {"Q5_0", CL_WEIGHT_Q5_0, 8, CL_WEIGHT_Q5_0, true},
    {"Q4_1", CL_WEIGHT_Q4_1, 3, CL_WEIGHT_Q4_1, true},
    {"Q4_0", CL_WEIGHT_Q4_0, 2, CL_WEIGHT_Q4_0, true},
    {"IQ4_NL", CL_WEIGHT_IQ4_NL, 25, CL_WEIGHT_IQ4_NL, true},
    {"MXFP4", CL_WEIGHT_MXFP4, 38, CL_WEIGHT_MXFP4, true},
};

#define N_TYPES (sizeof types / sizeof *types)

const quantize_type *quantize_find_type(const char *name)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (strcasecmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

const quantize_type *quantize_type_by_number(uint32_t type)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].type == type) return &types[i];
    return NULL;
}

bool quantize_needs_matrix(const char *name)
{
    static const char *const names[] = {"IQ1_S", "IQ1_M",   "IQ2_XXS", "IQ2_XS",
                                        "IQ2_S", "IQ3_XXS", "IQ3_S",   "IQ4_XS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(names[i], name) == 0) return true;
    return false;
}

const char *quantize_type_names(void)
{
    return "F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K, Q3_K, Q2_K, Q5_1, Q5_0, Q4_1, Q4_0, IQ4_NL, "
           "MXFP4";
}

typedef struct block_encoder {
    uint32_t type;
    size_t block, block_bytes;
    void (*encode)(unsigned char *to, const float *x);
} block_encoder;

static const block_encoder encoders[] = {
    {CL_WEIGHT_Q2_K, 256, 84, quantize_block_q2_k},
    {CL_WEIGHT_Q3_K, 256, 110, quantize_block_q3_k},
    {CL_WEIGHT_Q4_K, 256, 144, quantize_block_q4_k},
    {CL_WEIGHT_Q5_K, 256, 176, quantize_block_q5_k},
    {CL_WEIGHT_Q6_K, 256, 210, quantize_block_q6_k},
    {CL_WEIGHT_MXFP4, 32, 17, quantize_block_mxfp4},
};

void quantize_encode(const cl_kernels *kernels, uint32_t type, void *to, const float *from,
                     size_t n)
{
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++) {
        const block_encoder *e = &encoders[i];
        if (e->type != type) continue;
        unsigned char *block = to;
        for (size_t at = 0; at < n; at += e->block, block += e->block_bytes)
            e->encode(block, from + at);
        return;
    }
    kernels->codec[type].encode(to, from, n);
}
