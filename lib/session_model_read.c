/*
 * session_model_read.c: MODEL out of a file, and held against a memory.
 *
 * A layer that was read is brought into the form in which a memory describes its own (fields without a
 * meaning 0), put into bytes again and held against those that were read: so nothing gets through
 * that this library would not have written. Then the layers have to make a configuration (config.c),
 * and the groups have to be those that these layers make.
 */
#include "error.h"
#include "session_model.h"
#include "session_model_layers.h"
#include "session_notes.h"

/* What reading MODEL goes along with. */
typedef struct model_reader {
    cl_cursor *cursor;
    const unsigned char *begin;
    uint64_t base;
    cl_alloc *alloc;
    cl_saved_model *model;
    uint32_t *next_number; /* in the model's numbers: where the next factors or sizes go */
} model_reader;

static int64_t offset_of(const model_reader *r)
{
    return (int64_t)(r->base + (uint64_t)(r->cursor->at - r->begin));
}

static cellar_status fail_short(const model_reader *r, const char *what, cellar_error *error)
{
    CL_FAIL(error, CELLAR_CORRUPT, offset_of(r), "MODEL ends inside its %s", what);
}

/* ---- room ---------------------------------------------------------------------------------------- */

static cellar_status get_room(model_reader *r, cellar_error *error)
{
    cl_saved_model *model = r->model;
    size_t n = model->n_layers, bytes = n * (sizeof(cellar_layer) + sizeof(int32_t));
    model->layers = cl_alloc_get(r->alloc, CELLAR_BYTES_SCRATCH, bytes);
    if (!model->layers) return cl_error_no_memory(error, "the layers of a session", bytes);
    memset(model->layers, 0, bytes);
    model->layer_groups = (int32_t *)(model->layers + n);
    /* Their factors and sizes are at most what is left of the section. */
    size_t left = cl_cursor_left(r->cursor);
    if (left == 0) return CELLAR_OK;
    model->numbers = cl_alloc_get(r->alloc, CELLAR_BYTES_SCRATCH, left);
    if (!model->numbers) return cl_error_no_memory(error, "the layers of a session", left);
    model->numbers_bytes = left;
    r->next_number = model->numbers;
    return CELLAR_OK;
}

void cl_model_free(cl_saved_model *model, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, model->numbers, model->numbers_bytes);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, model->layers,
                 model->n_layers * (sizeof(cellar_layer) + sizeof(int32_t)));
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, model->groups,
                 model->n_groups * sizeof *model->groups);
    cl_notes_free(model->facts, model->n_facts, alloc);
    memset(model, 0, sizeof *model);
}

/* ---- groups ----------------------------------------------------------------------------------------- */

static cellar_window take_window(cl_cursor *cursor)
{
    cellar_window window;
    window.kind = (cellar_window_kind)cl_take_u32(cursor);
    window.size = cl_take_u32(cursor);
    window.n_sinks = cl_take_u32(cursor);
    return window;
}

static cellar_status read_groups(model_reader *r, cellar_error *error)
{
    cl_saved_model *model = r->model;
    int64_t at = offset_of(r);
    uint32_t n = cl_take_u32(r->cursor);
    if (r->cursor->has_failed) return fail_short(r, "groups", error);
    if (n == 0 || n > CL_MAX_GROUPS)
        CL_FAIL(error, CELLAR_CORRUPT, at, "MODEL has %u groups, not 1..%u", n, CL_MAX_GROUPS);
    if (n > cl_cursor_left(r->cursor) / CL_SESSION_GROUP) return fail_short(r, "groups", error);
    model->groups = cl_alloc_get(r->alloc, CELLAR_BYTES_SCRATCH, n * sizeof *model->groups);
    if (!model->groups)
        return cl_error_no_memory(error, "the groups of a session", n * sizeof *model->groups);
    memset(model->groups, 0, n * sizeof *model->groups);
    model->n_groups = n;
    for (uint32_t g = 0; g < n; g++) {
        unsigned char again[CL_SESSION_GROUP];
        const unsigned char *raw = r->cursor->at;
        at = offset_of(r);
        model->groups[g].kind = (cellar_layer_kind)cl_take_u32(r->cursor);
        model->groups[g].window = take_window(r->cursor);
        model->groups[g].has_points = cl_take_u32(r->cursor) != 0;
        cl_model_put_group(again, &model->groups[g]);
        if (memcmp(raw, again, sizeof again) != 0)
            CL_FAIL(error, CELLAR_CORRUPT, at, "group %u of MODEL is not as groups are", g);
    }
    return CELLAR_OK;
}

/* ---- layers ----------------------------------------------------------------------------------------- */

static void take_rope(cl_cursor *cursor, cellar_rope *rope, uint32_t *n_factors)
{
    rope->kind = (cellar_rope_kind)cl_take_u32(cursor);
    rope->n_rot = cl_take_u32(cursor);
    rope->first = cl_take_u32(cursor);
    for (uint32_t i = 0; i < 4; i++)
        rope->sections[i] = cl_take_u32(cursor);
    rope->base = cl_take_f64(cursor);
    rope->scale = cl_take_f64(cursor);
    rope->yarn_ext = cl_take_f64(cursor);
    rope->yarn_attn = cl_take_f64(cursor);
    rope->yarn_beta_fast = cl_take_f64(cursor);
    rope->yarn_beta_slow = cl_take_f64(cursor);
    rope->yarn_context = cl_take_u32(cursor);
    *n_factors = cl_take_u32(cursor);
}

/* The fixed part, as it stands. */
static void take_layer(cl_cursor *cursor, cellar_layer *layer, int32_t *group, uint32_t *n_factors)
{
    layer->struct_size = sizeof *layer;
    layer->kind = (cellar_layer_kind)cl_take_u32(cursor);
    *group = cl_take_i32(cursor);
    layer->reads_layer = cl_take_i32(cursor);
    uint32_t flags = cl_take_u32(cursor);
    layer->is_causal = flags & CL_MODEL_CAUSAL;
    layer->v_in_k = flags & CL_MODEL_V_IN_K;
    layer->rotate_k = flags & CL_MODEL_TURNED_K;
    layer->rotate_v = flags & CL_MODEL_TURNED_V;
    layer->n_heads = cl_take_u32(cursor);
    layer->n_kv_heads = cl_take_u32(cursor);
    layer->k_size = cl_take_u32(cursor);
    layer->v_size = cl_take_u32(cursor);
    layer->k_type = (cellar_type)cl_take_u32(cursor);
    layer->v_type = (cellar_type)cl_take_u32(cursor);
    layer->scale = cl_take_f32(cursor);
    layer->softcap = cl_take_f32(cursor);
    layer->alibi_max_bias = cl_take_f32(cursor);
    (void)cl_take_u32(cursor);
    layer->window = take_window(cursor);
    take_rope(cursor, &layer->rope, n_factors);
    layer->n_states = cl_take_u32(cursor);
    (void)cl_take_u32(cursor);
}

/* Fields that mean nothing become 0, defaults are filled in: as cl_model_describe would have it. */
static void normalise(cellar_layer *layer)
{
    cellar_layer plain;
    memset(&plain, 0, sizeof plain);
    plain.struct_size = sizeof plain;
    plain.kind = layer->kind;
    plain.reads_layer = -1;
    plain.n_states = layer->n_states;
    if (layer->kind != CELLAR_LAYER_ATTENTION) {
        if (layer->kind == CELLAR_LAYER_NONE) plain.n_states = 0;
        *layer = plain;
        return;
    }
    layer->n_states = 0;
    if (layer->window.kind == CELLAR_WINDOW_NONE) layer->window = plain.window;
    if (layer->v_in_k) layer->v_type = CELLAR_F32;
    if (layer->scale == 0) layer->scale = 1; /* never written so */
    if (layer->k_size % 2 != 0) layer->rotate_k = false;
    if (layer->v_size % 2 != 0) layer->rotate_v = false;
    cellar_rope *rope = &layer->rope;
    if (rope->kind == CELLAR_ROPE_NONE) *rope = plain.rope;
    if (rope->kind != CELLAR_ROPE_NONE && rope->n_rot == 0) rope->n_rot = layer->k_size;
    if (rope->yarn_ext == 0) {
        rope->yarn_beta_fast = rope->yarn_beta_slow = 0;
        rope->yarn_context = 0;
    }
}

/* n numbers behind a layer, as they are in memory; NULL: there are none. */
static const void *take_numbers(model_reader *r, uint32_t n)
{
    const unsigned char *from = cl_take(r->cursor, (size_t)n * 4);
    if (!from || n == 0) return NULL;
    uint32_t *to = r->next_number;
    for (uint32_t i = 0; i < n; i++)
        to[i] = cl_get_u32(from + 4 * (size_t)i);
    r->next_number += n;
    return to;
}

static cellar_status read_layer(model_reader *r, uint32_t i, cellar_error *error)
{
    cellar_layer *layer = &r->model->layers[i];
    int32_t *group = &r->model->layer_groups[i];
    int64_t at = offset_of(r);
    const unsigned char *raw = r->cursor->at;
    uint32_t n_factors;
    if (cl_cursor_left(r->cursor) < CL_SESSION_LAYER) return fail_short(r, "layers", error);
    take_layer(r->cursor, layer, group, &n_factors);
    normalise(layer);
    bool fits = n_factors == 0 ||
                (layer->kind == CELLAR_LAYER_ATTENTION && layer->rope.kind != CELLAR_ROPE_NONE &&
                 n_factors == layer->rope.n_rot / 2);
    if (!fits)
        CL_FAIL(error, CELLAR_CORRUPT, at + 148, "layer %u has %u factors: not one a pair", i,
                n_factors);
    layer->rope.factors = take_numbers(r, n_factors);
    layer->state_sizes = take_numbers(r, layer->n_states);
    if (r->cursor->has_failed) return fail_short(r, "layers", error);
    unsigned char again[CL_SESSION_LAYER];
    cl_model_put_layer(again, layer, layer->kind == CELLAR_LAYER_NONE ? -1 : *group);
    for (uint32_t b = 0; b < CL_SESSION_LAYER; b++)
        if (raw[b] != again[b])
            CL_FAIL(error, CELLAR_CORRUPT, at + b, "layer %u: byte %u is not as layers are", i, b);
    return CELLAR_OK;
}

static bool same_window(const cellar_window *a, const cellar_window *b)
{
    return a->kind == b->kind && a->size == b->size && a->n_sinks == b->n_sinks;
}

/* The bytes of one cell's rows in one layer. */
static uint64_t layer_bytes(const cellar_layer *layer)
{
    uint64_t bytes = 0;
    if (layer->kind == CELLAR_LAYER_RECURRENT)
        for (uint32_t t = 0; t < layer->n_states; t++)
            bytes += (uint64_t)layer->state_sizes[t] * sizeof(float);
    if (layer->kind != CELLAR_LAYER_ATTENTION || layer->reads_layer >= 0) return bytes;
    uint64_t k = cellar_type_bytes(layer->k_type, layer->k_size);
    uint64_t v = layer->v_in_k ? 0 : cellar_type_bytes(layer->v_type, layer->v_size);
    return layer->n_kv_heads * (k + v);
}

/* Which of the groups a layer belongs to; n: none of the first n. */
static uint32_t find_group(const cl_saved_model *model, const cellar_layer *layer, uint32_t n)
{
    for (uint32_t g = 0; g < n; g++)
        if (model->groups[g].kind == layer->kind &&
            same_window(&model->groups[g].window, &layer->window))
            return g;
    return n;
}

/* Are the groups those that the layers make, in the order in which they first need them? */
static cellar_status check_groups(const model_reader *r, cellar_error *error)
{
    cl_saved_model *model = r->model;
    uint32_t n_used = 0;
    bool is_2d = false;
    for (uint32_t i = 0; i < model->n_layers; i++) {
        const cellar_layer *layer = &model->layers[i];
        if (layer->kind == CELLAR_LAYER_NONE) continue;
        is_2d = is_2d || layer->rope.kind == CELLAR_ROPE_MROPE;
        uint32_t g = find_group(model, layer, n_used);
        if (g == n_used && n_used < model->n_groups &&
            find_group(model, layer, n_used + 1) == n_used)
            n_used++;
        if (g >= n_used || model->layer_groups[i] != (int32_t)g)
            CL_FAIL(error, CELLAR_CORRUPT, (int64_t)r->base,
                    "layer %u is said to be of group %d, which it is not", i,
                    (int)model->layer_groups[i]);
        model->groups[g].cell_bytes += layer_bytes(layer);
        if (layer->reads_layer < 0 || layer->kind != CELLAR_LAYER_ATTENTION) continue;
        const cellar_layer *source = &model->layers[layer->reads_layer];
        if (layer->k_type != source->k_type || layer->v_type != source->v_type)
            CL_FAIL(error, CELLAR_CORRUPT, (int64_t)r->base,
                    "layer %u reads layer %d, but its rows are of another type", i,
                    (int)layer->reads_layer);
    }
    if (n_used < model->n_groups)
        CL_FAIL(error, CELLAR_CORRUPT, (int64_t)r->base, "group %u of MODEL has no layers", n_used);
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (model->groups[g].has_points !=
            (is_2d && model->groups[g].kind == CELLAR_LAYER_ATTENTION))
            CL_FAIL(error, CELLAR_CORRUPT, (int64_t)r->base,
                    "group %u of MODEL is wrong about 2-D positions", g);
    return CELLAR_OK;
}

/* Do the layers make a configuration? */
static cellar_status check_layers(const model_reader *r, cellar_error *error)
{
    cellar_config config = cellar_config_init();
    cellar_error own;
    config.n_layers = r->model->n_layers;
    config.layers = r->model->layers;
    config.n_cells = 1;
    if (cl_config_check(&config, &own) == CELLAR_OK) return CELLAR_OK;
    CL_FAIL(error, CELLAR_CORRUPT, (int64_t)r->base, "MODEL: %.200s", own.message);
}

static cellar_status read_layers(model_reader *r, cellar_error *error)
{
    int64_t at = offset_of(r);
    uint32_t n = cl_take_u32(r->cursor);
    if (r->cursor->has_failed || n > cl_cursor_left(r->cursor) / CL_SESSION_LAYER)
        return fail_short(r, "layers", error);
    if (n == 0) CL_FAIL(error, CELLAR_CORRUPT, at, "MODEL has no layers");
    r->model->n_layers = n;
    CL_TRY(get_room(r, error));
    for (uint32_t i = 0; i < n; i++)
        CL_TRY(read_layer(r, i, error));
    if (cl_cursor_left(r->cursor) > 0)
        CL_FAIL(error, CELLAR_CORRUPT, offset_of(r), "MODEL goes on behind its layers");
    CL_TRY(check_layers(r, error));
    return check_groups(r, error);
}

cellar_status cl_model_read(cl_cursor *cursor, cl_alloc *alloc, cl_saved_model *model,
                            uint64_t base, cellar_error *error)
{
    model_reader r = {cursor, cursor->at, base, alloc, model, NULL};
    memset(model, 0, sizeof *model);
    cellar_status status = cl_notes_read(cursor, r.begin, base, "fact", alloc, &model->facts,
                                         &model->n_facts, error);
    if (status == CELLAR_OK) status = read_groups(&r, error);
    if (status == CELLAR_OK) status = read_layers(&r, error);
    if (status != CELLAR_OK) cl_model_free(model, alloc);
    return status;
}

/* ---- comparing ------------------------------------------------------------------------------------- */

/* A number of a layer, by name. */
typedef struct field {
    const char *name;
    double saved, ours;
} field;

static cellar_status compare_fields(const field *fields, size_t n, uint32_t layer,
                                    cellar_error *error)
{
    for (size_t i = 0; i < n; i++)
        if (fields[i].saved != fields[i].ours)
            CL_FAIL(error, CELLAR_MISMATCH, layer,
                    "layer %u: %s: the session has %.9g, the memory %.9g", layer, fields[i].name,
                    fields[i].saved, fields[i].ours);
    return CELLAR_OK;
}

#define FIELD(name)                                                                                \
    {                                                                                              \
#name, (double)a->name, (double)b->name                                                    \
    }
#define COMPARE(fields, i, error)                                                                  \
    compare_fields(fields, sizeof(fields) / sizeof *(fields), i, error)

static cellar_status compare_rope(const cellar_rope *a, const cellar_rope *b, uint32_t i,
                                  cellar_error *error)
{
    const field fields[] = {
        FIELD(kind),         FIELD(n_rot),          FIELD(first),       FIELD(base),
        FIELD(scale),        FIELD(yarn_ext),       FIELD(yarn_attn),   FIELD(yarn_beta_fast),
        FIELD(yarn_context), FIELD(yarn_beta_slow), FIELD(sections[0]), FIELD(sections[1]),
        FIELD(sections[2]),  FIELD(sections[3]),
    };
    CL_TRY(COMPARE(fields, i, error));
    if (!a->factors != !b->factors)
        CL_FAIL(error, CELLAR_MISMATCH, i, "layer %u: factors: the session has %s, the memory %s",
                i, a->factors ? "some" : "none", b->factors ? "some" : "none");
    for (uint32_t f = 0; a->factors && f < a->n_rot / 2; f++)
        if (a->factors[f] != b->factors[f])
            CL_FAIL(error, CELLAR_MISMATCH, i,
                    "layer %u: factors[%u]: the session has %.9g, the memory %.9g", i, f,
                    (double)a->factors[f], (double)b->factors[f]);
    return CELLAR_OK;
}

static cellar_status compare_layer(const cellar_layer *a, const cellar_memory *memory, uint32_t i,
                                   cellar_error *error)
{
    cellar_layer ours;
    cl_model_describe(memory, i, &ours);
    const cellar_layer *b = &ours;
    const field fields[] = {
        FIELD(kind),        FIELD(n_heads),        FIELD(n_kv_heads),  FIELD(k_size),
        FIELD(v_size),      FIELD(scale),          FIELD(is_causal),   FIELD(window.kind),
        FIELD(window.size), FIELD(window.n_sinks), FIELD(reads_layer), FIELD(v_in_k),
        FIELD(softcap),     FIELD(alibi_max_bias), FIELD(n_states),
    };
    CL_TRY(COMPARE(fields, i, error));
    for (uint32_t t = 0; t < a->n_states; t++)
        if (a->state_sizes[t] != memory->layers[i].states[t].size)
            CL_FAIL(error, CELLAR_MISMATCH, i,
                    "layer %u: state_sizes[%u]: the session has %u, the memory %u", i, t,
                    a->state_sizes[t], memory->layers[i].states[t].size);
    return compare_rope(&a->rope, &b->rope, i, error);
}

cellar_status cl_model_compare(const cl_saved_model *model, const cellar_memory *memory,
                               const cellar_load_options *options, cellar_error *error)
{
    CL_TRY(cl_model_check_rows(memory, error));
    if (!options->ignores_facts)
        CL_TRY(cl_notes_compare(model->facts, model->n_facts, options->facts, options->n_facts,
                                error));
    if (model->n_layers != memory->n_layers)
        CL_FAIL(error, CELLAR_MISMATCH, -1, "layers: the session has %u, the memory %u",
                model->n_layers, memory->n_layers);
    for (uint32_t i = 0; i < model->n_layers; i++)
        CL_TRY(compare_layer(&model->layers[i], memory, i, error));
    return CELLAR_OK;
}
