/*
 * visibility.h: may a query look at a key? The rule of the header, as one function.
 *
 * All models and tests that need to know what a token sees ask here, so the rule is written once
 * beside the library's own. It is about one pair of a layer that attends: both tokens stand in the
 * same sequence, and positions are those at which they stand now, after every shift. Cannot fail.
 */
#ifndef MODEL_VISIBILITY_H
#define MODEL_VISIBILITY_H

#include <cellar.h>

/*
 * Points only matter between tokens at the same position; they may be absolute or distances from
 * the position, as long as both are alike. Text: {position, position} or {0, 0}.
 * same_or_earlier_ubatch: the key is committed, or belongs to this micro-batch or to an earlier one
 * of the open step.
 */
bool model_sees(const cellar_layer *layer, cellar_pos query, cellar_point query_point,
                cellar_pos key, cellar_point key_point, bool same_or_earlier_ubatch);

#endif /* MODEL_VISIBILITY_H */
