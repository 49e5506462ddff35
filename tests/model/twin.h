/*
 * twin.h: the library and the plain models side by side, for tests that say step by step what
 * happens: every call is made on both, and every result of attention is compared with brute force.
 *
 * A token's rows follow from its id (drive.h), so the ids of a test must differ from each other. A
 * difference is counted and described, not fatal: twin.n_wrong and twin.message. The worst ratio of
 * difference to bound seen is kept in twin.worst; it must stay below 1.
 */
#ifndef MODEL_TWIN_H
#define MODEL_TWIN_H

#include "attention_model.h"
#include "drive.h"
#include "memory_model.h"

typedef struct twin {
    drive d; /* fill in d.layers, d.n_layers and d.seed, then twin_open */
    memory_model model;
    float q_factor; /* queries are multiplied by this: large ones make softmax sharp; 0: 1 */
    bool is_quiet;  /* results are not compared: for long pasts of which only the end matters */
    double worst;   /* largest difference / bound so far */
    double largest_bound;
    uint32_t n_compared, n_wrong;
    char message[300]; /* of the first difference */
} twin;

/* A memory with d.layers; what differs from the default configuration is in config. */
void twin_open(twin *t, const cellar_config *config);
void twin_close(twin *t);

/* A whole step of both; tokens must be given. Compares each result. */
void twin_step(twin *t, const cellar_batch *batch);

/* n tokens at the end of one sequence in one step. */
void twin_append(twin *t, cellar_seq seq, cellar_token first, uint32_t n);

void twin_remove(twin *t, cellar_seq seq, cellar_pos p0, cellar_pos p1);
void twin_copy(twin *t, cellar_seq from, cellar_seq to, cellar_pos p0, cellar_pos p1);
void twin_shift(twin *t, cellar_seq seq, cellar_pos p0, cellar_pos p1, cellar_pos delta);

/* Read every row of a sequence back and compare. */
void twin_read(twin *t, cellar_seq seq);

#endif /* MODEL_TWIN_H */
