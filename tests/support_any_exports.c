/*
 * support_any_exports.c: everything that engines with tensors of their own can ask in a step.
 *
 * Answers go into blocks of exactly the size that the header names, so that a sanitizer sees a byte too
 * many. They are looked at for what can be said without a model: rows are cells of the group and differ from
 * each other, masks hold what masks can hold. Comparing them with the truth is for unit_exports.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support_any_play.h"

static void *grab(size_t n, size_t size)
{
    void *block = malloc(n * size + !n);
    DEMAND(block != NULL);
    return block;
}

static void export_rows(const cellar_memory *memory, uint32_t u, uint32_t l, uint32_t n)
{
    int64_t *rows = grab(n, sizeof *rows);
    cellar_group_info group;
    DEMAND(cellar_get_group(memory, (uint32_t)cellar_group_of_layer(memory, l), &group, NULL) ==
           CELLAR_OK);
    DEMAND(cellar_export_rows(memory, u, l, rows, NULL) == CELLAR_OK);
    for (uint32_t i = 0; i < n; i++) {
        DEMAND(rows[i] >= 0 && rows[i] < group.n_cells);
        for (uint32_t k = 0; k < i; k++)
            DEMAND(rows[k] != rows[i]);
    }
    free(rows);
}

static void export_elements(const any_player *p, uint32_t u, uint32_t l, uint32_t n)
{
    const cellar_layer *layer = &p->any.layers[l];
    int64_t *elements = grab((size_t)n * layer->n_kv_heads * layer->v_size, sizeof *elements);
    cellar_status status = cellar_export_elements(p->any.memory, u, l, elements, NULL);
    DEMAND(status == (layer->v_in_k ? CELLAR_INVALID : CELLAR_OK));
    free(elements);
}

static void export_masks(const any_player *p, uint32_t u, uint32_t l, uint32_t n, uint32_t n_kv)
{
    const cellar_layer *layer = &p->any.layers[l];
    float *mask = grab((size_t)n * n_kv, sizeof *mask);
    uint16_t *half = grab((size_t)n * n_kv, sizeof *half);
    int32_t *buckets = grab((size_t)n * n_kv, sizeof *buckets);
    cellar_status status = cellar_export_mask(p->any.memory, u, l, n_kv, CELLAR_F32, mask, NULL);
    DEMAND(status == CELLAR_OK || status == CELLAR_REFUSED);
    DEMAND(cellar_export_mask(p->any.memory, u, l, n_kv, CELLAR_F16, half, NULL) == status);
    for (size_t i = 0; status == CELLAR_OK && i < (size_t)n * n_kv; i++)
        DEMAND(mask[i] <= 0 && (isinf(mask[i]) || layer->alibi_max_bias > 0 || mask[i] == 0));
    DEMAND(cellar_export_mask(p->any.memory, u, l, n_kv, CELLAR_Q8_0, mask, NULL) ==
           CELLAR_INVALID);
    DEMAND(cellar_export_mask(p->any.memory, u, l, UINT32_MAX, CELLAR_F32, mask, NULL) ==
           CELLAR_INVALID);
    status = cellar_export_buckets(p->any.memory, u, l, n_kv, buckets, NULL);
    DEMAND((status == CELLAR_INVALID) == (layer->buckets.n == 0));
    for (size_t i = 0; status == CELLAR_OK && i < (size_t)n * n_kv; i++)
        DEMAND(buckets[i] >= 0 && (uint32_t)buckets[i] < layer->buckets.n);
    free(mask);
    free(half);
    free(buckets);
}

static void export_pages(any_player *p, uint32_t u, uint32_t l, uint32_t n_segments)
{
    uint32_t size = 1u << input_below(&p->in, 6), capacity = input_byte(&p->in);
    uint32_t *indptr = grab(n_segments + 1, sizeof *indptr);
    uint32_t *indices = grab(capacity, sizeof *indices);
    uint32_t *last = grab(n_segments, sizeof *last);
    cellar_status status = cellar_export_pages(p->any.memory, u, l, size, indptr,
                                               capacity ? indices : NULL, capacity, last, NULL);
    if (status == CELLAR_OK) {
        DEMAND(indptr[0] == 0 && indptr[n_segments] <= capacity);
        for (uint32_t s = 0; s < n_segments; s++)
            DEMAND(indptr[s] <= indptr[s + 1] && last[s] <= size);
    }
    free(indptr);
    free(indices);
    free(last);
}

void any_exports(any_player *p, uint32_t u, uint32_t l)
{
    const cellar_memory *memory = p->any.memory;
    cellar_ubatch ubatch;
    cellar_extent extent, largest;
    cellar_stream streams[ANY_POOLS];
    uint32_t pad = 1 + input_below(&p->in, 64);
    DEMAND(cellar_get_ubatch(memory, u, &ubatch, NULL) == CELLAR_OK);
    cellar_status status = cellar_export_extent(memory, u, l, pad, &extent, streams, ANY_POOLS,
                                                NULL);
    bool attends = p->any.layers[l].kind == CELLAR_LAYER_ATTENTION;
    DEMAND(status == (attends ? CELLAR_OK : CELLAR_INVALID));
    if (!attends) return;
    DEMAND(cellar_export_largest(memory, l, pad, &largest, NULL) == CELLAR_OK);
    DEMAND(extent.n_streams >= 1 && extent.n_streams <= largest.n_streams);
    DEMAND(extent.n_kv <= largest.n_kv);
    export_rows(memory, u, l, ubatch.n_tokens);
    export_elements(p, u, l, ubatch.n_tokens);
    export_masks(p, u, l, ubatch.n_tokens, extent.n_kv);
    export_pages(p, u, l, ubatch.n_segments);
}
