/*
 * recurrence.h: a recurrent layer small enough to be recomputed at every look.
 *
 * The state is halved and a number that depends on the token, its position, the layer and the
 * element is added: every token read leaves a trace, their order matters, and every operation
 * rounds the same on every machine. So two states are equal to the last bit exactly when the same
 * tokens were read in the same order (up to what 24 bits remember), which is what a memory of
 * states has to keep. Cannot fail.
 */
#ifndef MODEL_RECURRENCE_H
#define MODEL_RECURRENCE_H

#include <cellar.h>

/* Floats of a layer's part of a state, its tensors behind each other; 0: not recurrent. */
uint32_t recurrence_size(const cellar_layer *layer);

/* Read one token: `state` [recurrence_size(layer)] is changed in place. */
void recurrence_step(const cellar_layer *layer, uint32_t number, uint64_t token, cellar_pos pos,
                     float *state);

#endif /* MODEL_RECURRENCE_H */
