/*
 * support_moving.h: random memories of several groups, pools and checkpoints, for tests that move rows.
 *
 * The question is always the same: does every sequence hold the same tokens at the same positions as
 * before, and does one more token see the same, bit for bit? moving_look writes down the answer;
 * two looks that are equal differ in nothing but where cells lie. Running out of memory ends the
 * program.
 */
#ifndef SUPPORT_MOVING_H
#define SUPPORT_MOVING_H

#include "model/drive.h"

#define MOVING_SEQUENCES 5

typedef struct moving {
    drive d;
    uint64_t random;
    cellar_token next_token;
} moving;

/* Full attention in two row types and a window of 16; n_pools pools that share n_cells. */
void moving_open(moving *m, uint64_t seed, uint32_t n_cells, uint32_t n_pools,
                 const cellar_allocator *allocator, uint64_t budget_bytes);
void moving_close(moving *m);

/* One random operation; refusals are as good as any. */
void moving_change(moving *m);

/* What can be seen but the places of cells, as a block of *size bytes for the caller to free. */
unsigned char *moving_look(moving *m, size_t *size);

#endif /* SUPPORT_MOVING_H */
