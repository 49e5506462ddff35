/*
 * recurrence.c: state = state / 2 + noise(token, position, layer, element). See recurrence.h.
 *
 * The noise comes from the generator of random.h, seeded by what was read and where, so that nothing
 * has to be stored to compute a state again.
 */
#include "recurrence.h"

#include "random.h"

uint32_t recurrence_size(const cellar_layer *layer)
{
    uint32_t n = 0;
    if (layer->kind != CELLAR_LAYER_RECURRENT) return 0;
    for (uint32_t t = 0; t < layer->n_states; t++)
        n += layer->state_sizes[t];
    return n;
}

void recurrence_step(const cellar_layer *layer, uint32_t number, uint64_t token, cellar_pos pos,
                     float *state)
{
    uint64_t noise = random_mix(random_mix(token, number + 1), (uint64_t)pos + 1);
    for (uint32_t i = 0, n = recurrence_size(layer); i < n; i++)
        state[i] = 0.5f * state[i] + random_float(&noise);
}
