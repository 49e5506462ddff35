/*
 * support_attend.h: one attention layer without a memory around it.
 *
 * The walk of attend.c needs cells with rows, runs that say where they stand, and queries. Here all
 * of it is written down directly: key i lies in a cell of the test's choice, was rotated for one
 * position and stands at another. Tests change one thing at a time and compare bits, or compare with
 * arithmetic in double. A failure of the test's own memory ends the program.
 */
#ifndef SUPPORT_ATTEND_H
#define SUPPORT_ATTEND_H

#include "attend.h"

typedef struct walk_key {
    int32_t pos, stored_pos;
    uint32_t cell;
    cl_point point;
} walk_key;

typedef struct walk_query {
    int32_t pos;
    cl_point point;
} walk_query;

typedef struct walk {
    /* set by the test before walk_open: */
    cellar_layer description; /* heads, sizes, types, rope, features */
    cellar_row_store store;   /* used if `read` is set */
    uint32_t n_cells, cpu_mask;
    uint32_t n_workers; /* 0: one */
    /* made by walk_open: */
    cl_layer layer;
    cl_group group;
    cl_rope rope;
    cl_kernels kernels;
    cl_alloc alloc;
    cl_rows rows[2];
    cl_pool pool;
    cellar_row_store stores[2];
    cl_scratch_layout layout;
    float *scratch, *slopes;
    double *frequencies;
} walk;

void walk_open(walk *w);
void walk_close(walk *w);

/* Store n keys: k [n][n_kv_heads][k_size], v [n][n_kv_heads][v_size]. False: the store failed. */
bool walk_store(walk *w, const walk_key *keys, uint32_t n, const float *k, const float *v);

/*
 * Attend: queries [n_queries] of one sequence that holds `keys` [n_keys], in order of position; q
 * [n_queries][n_heads][k_size], out [n_queries][n_heads][v_size]. False: the store failed.
 */
bool walk_attend(walk *w, const walk_key *keys, uint32_t n_keys, const walk_query *queries,
                 uint32_t n_queries, const float *q, float *out);

#endif /* SUPPORT_ATTEND_H */
