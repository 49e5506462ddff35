/*
 * visibility.h: which keys a query sees, in one place, from the words of cellar.h.
 *
 * Everything that asks "may this token look at that one?" asks here: the model of attention, which
 * leaves the others out, and the model of the memory, which must not let go of what the next token
 * will see. Positions are 64 bits wide so that the position behind the last one can be asked for.
 * Cannot fail.
 */
#ifndef MODEL_VISIBILITY_H
#define MODEL_VISIBILITY_H

#include <cellar.h>

/* Does the window alone let a query at q see a key at k? Sinks included. */
bool attention_model_window_sees(const cellar_window *window, int64_t q, int64_t k);

/*
 * Does a query at q see a key at k of the same sequence that is stored already: committed before,
 * or in this step up to the query's micro-batch? is_same_ubatch: both are computed together, which
 * matters to layers that are not causal. Points: where both stand in an image; equal ones (text has
 * y = x = position) hide nothing.
 */
bool attention_model_sees(const cellar_layer *layer, int64_t q, cellar_point q_point, int64_t k,
                          cellar_point k_point, bool is_same_ubatch);

#endif /* MODEL_VISIBILITY_H */
