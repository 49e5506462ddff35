/*
 * attention_matrix_layer.c: from a case to the layers that show it. See attention_matrix.h.
 *
 * A feature is a change to a plain layer. What it leaves open (sizes of windows, the kind of
 * rotation, a given scale) is drawn from the case's seed, so that a case stands for many. The
 * layer is often not alone: layers of other groups and types before it see to it that offsets,
 * rotations and groups are not all the first ones.
 */
#include "attention_matrix.h"

#include <stdlib.h>
#include <string.h>

const char *const feature_names[FEATURE_KINDS] = {
#define FEATURE_NAME(name, text) text,
    FEATURES(FEATURE_NAME)
#undef FEATURE_NAME
};

const char *const situation_names[SITUATION_KINDS] = {
#define SITUATION_NAME(name, text) text,
    SITUATIONS(SITUATION_NAME)
#undef SITUATION_NAME
};

const uint32_t matrix_heads[HEADS][2] = {{1, 1}, {8, 2}, {5, 5}, {70, 1}};
const uint32_t matrix_sizes[SIZES][2] = {{32, 32},   {64, 64}, {96, 64}, {128, 128},
                                         {256, 128}, {80, 80}, {1, 1},   {7, 3}};

/* Features of which a layer can have one only: bits of what each decides. */
enum { WINDOW = 1, CAUSAL = 2, BUCKETS = 4, ROPE = 8, TURN_K = 16, TURN_V = 32, V_PLACE = 64 };

static unsigned decides(feature f)
{
    switch (f) {
    case FEATURE_WINDOW:
    case FEATURE_CHUNKED:
    case FEATURE_SYMMETRIC:
    case FEATURE_KEPT:
        return WINDOW;
    case FEATURE_NOT_CAUSAL:
        return CAUSAL;
    case FEATURE_SYMMETRIC_NOT_CAUSAL:
        return WINDOW | CAUSAL;
    case FEATURE_BUCKETS_ONE:
    case FEATURE_BUCKETS_BOTH:
        return BUCKETS;
    case FEATURE_MROPE_TEXT:
    case FEATURE_MROPE_IMAGE:
    case FEATURE_ROPE_INSIDE:
    case FEATURE_YARN:
        return ROPE;
    case FEATURE_HADAMARD_K:
        return TURN_K;
    case FEATURE_HADAMARD_V:
        return TURN_V;
    case FEATURE_HADAMARD_BOTH:
        return TURN_K | TURN_V;
    case FEATURE_V_IN_K:
        return TURN_K | TURN_V | V_PLACE;
    default:
        return 0;
    }
}

bool matrix_is_pair(feature a, feature b)
{
    return a != b && a != FEATURE_PLAIN && b != FEATURE_PLAIN && !(decides(a) & decides(b));
}

bool matrix_takes(uint32_t sizes, cellar_type k_type, cellar_type v_type)
{
    return matrix_sizes[sizes][0] % row_model_block(k_type) == 0 &&
           matrix_sizes[sizes][1] % row_model_block(v_type) == 0;
}

/* ---- features -------------------------------------------------------------------------------- */

static float *make_numbers(size_t n, float size, uint64_t *random)
{
    float *numbers = drive_grab(n, sizeof *numbers);
    for (size_t i = 0; i < n; i++)
        numbers[i] = size * random_float(random);
    return numbers;
}

static void set_window(cellar_layer *layer, cellar_window_kind kind, uint32_t n_sinks,
                       uint64_t *random)
{
    layer->window.kind = kind;
    layer->window.size = (uint32_t)random_between(random, 1, 20);
    layer->window.n_sinks = n_sinks;
}

static void set_buckets(matrix_layers *out, cellar_layer *layer, bool is_bidirectional,
                        uint64_t *random)
{
    static const uint32_t counts[] = {32, 8, 16, 6, 2};
    uint32_t n = counts[random_below(random, 5)];
    layer->buckets.n = n;
    layer->buckets.max_distance = n / 2 + (uint32_t)random_between(random, 1, 60);
    layer->buckets.is_bidirectional = is_bidirectional;
    layer->buckets.bias = out->bias = make_numbers((size_t)n * layer->n_heads, 3, random);
}

/* Rotating elements from `first` on, as many as `room` allows. False: none. */
static bool set_rope(cellar_layer *layer, cellar_rope_kind kind, uint32_t first, uint32_t room,
                     uint64_t *random)
{
    if (room < 2) return false;
    layer->rope.kind = kind;
    layer->rope.first = first;
    layer->rope.n_rot = room / 2 * 2;
    if (kind != CELLAR_ROPE_MROPE) return true;
    uint32_t left = room / 2, *sections = layer->rope.sections;
    for (int i = 0; i < 3; i++) { /* every axis gets a pair if there are enough */
        sections[i] = left > 0 ? 1 + random_below(random, left < 3 ? 1 : left / 2) : 0;
        left -= sections[i];
    }
    sections[3] = left;
    return true;
}

static void set_yarn(matrix_layers *out, cellar_layer *layer, uint64_t *random)
{
    uint32_t n_pairs = layer->rope.n_rot / 2;
    layer->rope.scale = 0.25;
    layer->rope.yarn_ext = random_one_in(random, 2) ? 1 : 0.5;
    layer->rope.yarn_attn = 1.1;
    layer->rope.yarn_context = 64;
    out->factors = make_numbers(n_pairs, 0.5f, random);
    for (uint32_t i = 0; i < n_pairs; i++)
        out->factors[i] += 1.5f;
    layer->rope.factors = out->factors;
}

/*
 * The rotation of a layer whose heads may rotate from `first` on: the one the features ask for, or
 * any.
 */
static bool choose_rope(const matrix_case *c, matrix_layers *out, cellar_layer *layer,
                        uint32_t first, uint64_t *random)
{
    uint32_t room = layer->k_size - first;
    cellar_rope_kind kind = random_one_in(random, 2) ? CELLAR_ROPE_NEOX : CELLAR_ROPE_NORMAL;
    for (int i = 0; i < 2; i++) {
        feature f = i ? c->second : c->first;
        if (f == FEATURE_MROPE_TEXT || f == FEATURE_MROPE_IMAGE) {
            out->has_points = f == FEATURE_MROPE_IMAGE;
            return set_rope(layer, CELLAR_ROPE_MROPE, first, room, random);
        }
        if (f == FEATURE_ROPE_INSIDE) {
            uint32_t skip = room > 2 ? 1 + random_below(random, room - 2) : 0;
            return set_rope(layer, kind, first + skip, room - skip, random);
        }
        if (f == FEATURE_YARN) {
            if (!set_rope(layer, kind, first, room, random)) return false;
            set_yarn(out, layer, random);
            return true;
        }
    }
    if (random_one_in(random, 4) || room < 2) return true; /* none */
    return set_rope(layer, kind, first, random_one_in(random, 3) ? (room + 3) / 2 : room, random);
}

static void add_feature(feature f, matrix_layers *out, cellar_layer *layer, uint64_t *random)
{
    switch (f) {
    case FEATURE_WINDOW:
        set_window(layer, CELLAR_WINDOW_STANDARD, 0, random);
        break;
    case FEATURE_CHUNKED:
        set_window(layer, CELLAR_WINDOW_CHUNKED, 0, random);
        break;
    case FEATURE_SYMMETRIC_NOT_CAUSAL:
        layer->is_causal = false; /* fall through */
    case FEATURE_SYMMETRIC:
        set_window(layer, CELLAR_WINDOW_SYMMETRIC, 0, random);
        break;
    case FEATURE_KEPT:
        set_window(layer, random_one_in(random, 3) ? CELLAR_WINDOW_CHUNKED : CELLAR_WINDOW_STANDARD,
                   (uint32_t)random_between(random, 1, 5), random);
        break;
    case FEATURE_NOT_CAUSAL:
        layer->is_causal = false;
        break;
    case FEATURE_ALIBI:
        layer->alibi_max_bias = random_one_in(random, 2) ? 8 : 3;
        break;
    case FEATURE_SOFTCAP:
        layer->softcap = random_one_in(random, 2) ? 1.5f : 30;
        break;
    case FEATURE_SINKS:
        layer->sinks = out->sinks = make_numbers(layer->n_heads, 4, random);
        break;
    case FEATURE_BUCKETS_ONE:
        set_buckets(out, layer, false, random);
        break;
    case FEATURE_BUCKETS_BOTH:
        set_buckets(out, layer, true, random);
        break;
    case FEATURE_HADAMARD_BOTH:
        layer->rotate_v = true; /* fall through */
    case FEATURE_HADAMARD_K:
        layer->rotate_k = true;
        break;
    case FEATURE_HADAMARD_V:
        layer->rotate_v = true;
        break;
    default:
        break; /* seen to elsewhere */
    }
}

static bool has(const matrix_case *c, feature f)
{
    return c->first == f || c->second == f;
}

/* A layer of another kind, for company. */
static cellar_layer make_company(uint64_t *random)
{
    cellar_layer layer = drive_layer(2, 1, 32, 32);
    layer.k_type = row_model_types[random_below(random, ROW_MODEL_TYPES)];
    layer.v_type = row_model_types[random_below(random, ROW_MODEL_TYPES)];
    layer.rope.kind = CELLAR_ROPE_NORMAL;
    if (random_one_in(random, 2)) set_window(&layer, CELLAR_WINDOW_STANDARD, 0, random);
    return layer;
}

bool matrix_make_layers(const matrix_case *c, matrix_layers *out)
{
    uint64_t random = random_mix(c->seed, 1);
    memset(out, 0, sizeof *out);
    cellar_layer layer = drive_layer(matrix_heads[c->heads][0], matrix_heads[c->heads][1],
                                     matrix_sizes[c->sizes][0], matrix_sizes[c->sizes][1]);
    layer.k_type = c->k_type;
    layer.v_type = c->v_type;
    if (random_one_in(&random, 4)) layer.scale = 0.3f;
    add_feature(c->first, out, &layer, &random);
    if (c->second != c->first) add_feature(c->second, out, &layer, &random);
    uint32_t first = 0;
    if (has(c, FEATURE_V_IN_K)) {
        layer.v_in_k = true;
        layer.v_type = layer.k_type;
        /* Where V fills all of K, nothing can rotate. */
        if (layer.v_size == layer.k_size && layer.k_size > 2 && !random_one_in(&random, 4))
            layer.v_size = layer.k_size / 2;
        first = layer.v_size;
    }
    if (!choose_rope(c, out, &layer, first, &random)) return false;
    bool has_company = random_one_in(&random, 3);
    if (has(c, FEATURE_READS_LAYER)) {
        out->layer[out->n++] = layer;
        if (has_company) out->layer[out->n++] = make_company(&random);
        layer.reads_layer = 0;
    } else if (has_company) {
        out->layer[out->n++] = make_company(&random);
    }
    out->target = out->n;
    out->layer[out->n++] = layer;
    return true;
}

void matrix_free_layers(matrix_layers *layers)
{
    free(layers->sinks);
    free(layers->bias);
    free(layers->factors);
    memset(layers, 0, sizeof *layers);
}
