/*
 * visibility.c: the tests that a pair of query and key has to pass. See visibility.h.
 *
 * Order does not matter: a key is seen when nothing hides it. Positions go up to INT32_MAX, so
 * differences are taken in 64 bits.
 */
#include "visibility.h"

/* Does the window, and nothing else, let the query see the key? */
static bool window_shows(const cellar_window *window, int64_t query, int64_t key)
{
    int64_t size = window->size;
    if (key < window->n_sinks) return true;
    switch (window->kind) {
    case CELLAR_WINDOW_NONE:
        return true;
    case CELLAR_WINDOW_STANDARD:
        return key > query - size;
    case CELLAR_WINDOW_CHUNKED:
        return key >= query / size * size;
    case CELLAR_WINDOW_SYMMETRIC:
        return (query > key ? query - key : key - query) <= size / 2;
    }
    return false;
}

/* Later in the reading order of an image: on a lower line, or further right on the same. */
static bool stands_behind(cellar_point key, cellar_point query)
{
    return key.y > query.y || (key.y == query.y && key.x > query.x);
}

bool model_sees(const cellar_layer *layer, cellar_pos query, cellar_point query_point,
                cellar_pos key, cellar_point key_point, bool same_or_earlier_ubatch)
{
    if (!same_or_earlier_ubatch) return false;
    if (layer->is_causal && key > query) return false;
    if (key == query && stands_behind(key_point, query_point)) return false;
    return window_shows(&layer->window, query, key);
}
