/*
 * visibility.c: the rules of causality, of windows and of shared positions. See visibility.h.
 *
 * A layer that is not causal sees its whole micro-batch and all before it: the tokens of earlier
 * micro-batches lie at earlier positions of the same sequence, so only tokens of its own can stand
 * behind a query. Of tokens at one position each sees those not behind it in reading order: rows
 * first, then columns.
 */
#include "visibility.h"

bool attention_model_window_sees(const cellar_window *window, int64_t q, int64_t k)
{
    int64_t size = window->size, distance = q > k ? q - k : k - q;
    if (window->kind == CELLAR_WINDOW_NONE || k < window->n_sinks) return true;
    if (window->kind == CELLAR_WINDOW_STANDARD) return k > q - size;
    if (window->kind == CELLAR_WINDOW_CHUNKED) return k >= q / size * size;
    return distance <= size / 2;
}

bool attention_model_sees(const cellar_layer *layer, int64_t q, cellar_point q_point, int64_t k,
                          cellar_point k_point, bool is_same_ubatch)
{
    if (k > q && (layer->is_causal || !is_same_ubatch)) return false;
    if (k == q && (k_point.y > q_point.y || (k_point.y == q_point.y && k_point.x > q_point.x)))
        return false;
    return attention_model_window_sees(&layer->window, q, k);
}
