/*
 * transaction.c: a step as its caller sees it: begin, store, attend, commit, abort.
 *
 * begin lets step.c understand the batch and every group reserve its cells; until commit only the
 * step itself knows of them. Nothing between begin and commit allocates.
 */
#include <string.h>

#include "error.h"
#include "memory.h"
#include "settle.h"

/* ---- begin ----------------------------------------------------------------------------------- */

static void position(const void *context, cellar_seq id, cellar_pos *next, cellar_pos *last)
{
    cl_memory_position(context, id, next, last);
}

static bool same_past(const void *context, cellar_seq a, cellar_seq b)
{
    const cellar_memory *memory = context;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        if (!cl_group_same_past(&memory->groups[g], a, b)) return false;
    return true;
}

static uint32_t pool_of(const void *context, cellar_seq id)
{
    return cl_memory_pool_of(context, id);
}

/* A batch of more tokens than a group that keeps all of them has cells could never fit. */
static cellar_status check_size(const cellar_memory *memory, uint32_t n_tokens, cellar_error *error)
{
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        const cl_cells *cells = &group->sequences.cells;
        if (group->kind != CELLAR_LAYER_ATTENTION || cl_group_has_window(group)) continue;
        uint32_t n = 0;
        for (uint32_t p = 0; p < cells->n_pools; p++)
            n += cells->pools[p].n;
        if (n_tokens > n)
            CL_FAIL(error, CELLAR_FULL, n_tokens - cells->n_free,
                    "%u tokens need %u cells, %u of %u are free: %u missing", n_tokens, n_tokens,
                    cells->n_free, n, n_tokens - cells->n_free);
    }
    return CELLAR_OK;
}

/* Can every member go on where its first token of the batch stands? */
static cellar_status check_pasts(const cellar_memory *memory, cellar_error *error)
{
    for (uint32_t m = 0; m < memory->step.n_members; m++) {
        const cl_member *member = &memory->step.members[m];
        CL_TRY(cl_memory_check_next(memory, member->id, member->first, error));
    }
    return CELLAR_OK;
}

static void abort_groups(cellar_memory *memory, uint32_t n_begun)
{
    for (uint32_t g = n_begun; g-- > 0;)
        cl_group_abort(&memory->groups[g], &memory->step);
    cl_checkpoints_abort(&memory->checkpoints, &memory->step);
}

static cellar_status try_groups(cellar_memory *memory, cellar_error *error)
{
    cl_step *step = &memory->step;
    cellar_status status = CELLAR_OK;
    uint32_t g = 0;
    for (; g < memory->n_groups && status == CELLAR_OK; g++)
        status = cl_group_begin(&memory->groups[g], step, memory->ropes, memory->n_ropes, error);
    if (status == CELLAR_OK)
        status = cl_checkpoints_reserve(&memory->checkpoints, step, error);
    else
        g--; /* that one has undone its part itself */
    if (status != CELLAR_OK) abort_groups(memory, g);
    return status;
}

/* Checkpoints are made if possible: a step that has no room with all of them has half as many. */
static cellar_status begin_groups(cellar_memory *memory, cellar_error *error)
{
    cl_checkpoints *checkpoints = &memory->checkpoints;
    cellar_error why;
    cl_checkpoints_begin(checkpoints, &memory->step);
    uint32_t n_planned = checkpoints->n_planned;
    for (;;) {
        cellar_status status = try_groups(memory, &why);
        if (status == CELLAR_OK) return CELLAR_OK;
        if (status != CELLAR_FULL || n_planned == 0) {
            if (error) *error = why;
            return status;
        }
        n_planned /= 2;
        cl_checkpoints_begin(checkpoints, &memory->step);
        checkpoints->n_planned = n_planned; /* the last ones: they matter most */
    }
}

/* Engines write states, and rows of their own, whenever they like from now on. */
static void note_written(cellar_memory *memory)
{
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        cl_group *group = &memory->groups[g];
        if (group->is_external || group->kind == CELLAR_LAYER_RECURRENT) group->is_written = true;
    }
}

cellar_status cellar_begin(cellar_memory *memory, const cellar_batch *batch, cellar_error *error)
{
    CL_TRY(cl_memory_check_moves(memory, error));
    cl_step *step = &memory->step;
    CL_TRY(cl_step_check_batch(batch, memory->rules.is_2d, error));
    CL_TRY(check_size(memory, batch->n_tokens, error)); /* before the memory of looking at tokens */
    cl_step_questions questions = {position, same_past, pool_of, memory};
    CL_TRY(cl_step_resolve(step, batch, &memory->rules, &questions, &memory->alloc, error));
    CL_TRY(check_pasts(memory, error));
    cl_settle_many(memory, step);
    CL_TRY(begin_groups(memory, error));
    note_written(memory);
    memset(memory->n_stored, 0, memory->n_layers * sizeof *memory->n_stored);
    memory->angles_ubatch = UINT32_MAX;
    step->is_open = true;
    return CELLAR_OK;
}

uint32_t cellar_count_ubatches(const cellar_memory *memory)
{
    return memory && memory->step.is_open ? memory->step.n_ubatches : 0;
}

cellar_status cl_memory_check_ubatch(const cellar_memory *memory, uint32_t ubatch,
                                     cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (!memory->step.is_open) CL_FAIL(error, CELLAR_INVALID, -1, "no step is open");
    if (ubatch >= memory->step.n_ubatches)
        CL_FAIL(error, CELLAR_INVALID, ubatch, "micro-batch %u: the step has %u", ubatch,
                memory->step.n_ubatches);
    return CELLAR_OK;
}

cellar_status cellar_get_ubatch(const cellar_memory *memory, uint32_t ubatch, cellar_ubatch *out,
                                cellar_error *error)
{
    CL_TRY(cl_memory_check_ubatch(memory, ubatch, error));
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    const cl_step *step = &memory->step;
    uint32_t first = cl_step_first(step, ubatch), segment = step->segment_begin[ubatch];
    out->n_tokens = cl_step_count(step, ubatch);
    out->indices = step->indices + first;
    out->positions = step->positions + first;
    out->n_segments = step->segment_begin[ubatch + 1] - segment;
    out->segments = step->segments + segment;
    return CELLAR_OK;
}

/* ---- store and attend ------------------------------------------------------------------------ */

static cellar_status check_layer(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                                 cellar_error *error)
{
    CL_TRY(cl_memory_check_ubatch(memory, ubatch, error));
    if (layer >= memory->n_layers)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: the memory has %u", layer,
                memory->n_layers);
    return CELLAR_OK;
}

static cellar_status check_attends(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                                   cellar_error *error)
{
    CL_TRY(check_layer(memory, ubatch, layer, error));
    const cl_layer *its = &memory->layers[layer];
    if (its->kind != CELLAR_LAYER_ATTENTION)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u does not attend", layer);
    if (its->is_external)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u keeps its rows in the engine's tensors",
                layer);
    return CELLAR_OK;
}

/* Is this micro-batch the next of the layer to be stored? */
static cellar_status check_next(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                                cellar_error *error)
{
    if (memory->n_stored[layer] != ubatch)
        CL_FAIL(error, CELLAR_INVALID, ubatch,
                "layer %u: micro-batch %u is not the next, that is %u", layer, ubatch,
                memory->n_stored[layer]);
    return CELLAR_OK;
}

/* Cosines and sines for the positions of a micro-batch, once for all layers. */
static void prepare_angles(cellar_memory *memory, uint32_t ubatch)
{
    if (memory->angles_ubatch == ubatch) return;
    const cl_step *step = &memory->step;
    uint32_t first = cl_step_first(step, ubatch), n = cl_step_count(step, ubatch);
    for (uint32_t r = 0; r < memory->n_ropes; r++) {
        const cl_rope *rope = &memory->ropes[r];
        float *at = memory->angles + memory->angle_offsets[r] * memory->rules.n_ubatch;
        for (uint32_t i = first; i < first + n; i++, at += 2 * (size_t)rope->n_pairs) {
            cl_point point = cl_step_point(step, i);
            cl_rope_point_angles(rope, step->positions[i], point.y, point.x, rope->magnitude, at,
                                 at + rope->n_pairs);
        }
    }
    memory->angles_ubatch = ubatch;
}

static cl_attention attention_of(cellar_memory *memory, uint32_t ubatch, uint32_t layer)
{
    const cl_layer *its = &memory->layers[layer];
    cl_group *group = &memory->groups[its->group];
    uint32_t first = cl_step_first(&memory->step, ubatch);
    prepare_angles(memory, ubatch);
    return (cl_attention){
        .layer = its,
        .group = group,
        .rope = &memory->ropes[its->rope],
        .kernels = &memory->kernels,
        .angles = memory->angles + memory->angle_offsets[its->rope] * memory->rules.n_ubatch,
        .turn_offset = memory->angle_offsets[its->rope],
        .positions = memory->step.positions + first,
        .points = memory->step.points ? memory->step.points + first : NULL,
        .cells = group->cells_of + first,
        .n_tokens = cl_step_count(&memory->step, ubatch),
        .layout = &memory->scratch_layout,
        .scratch = memory->scratch,
        .workers = memory->workers,
    };
}

cellar_status cellar_store(cellar_memory *memory, uint32_t ubatch, uint32_t layer, const float *k,
                           const float *v, cellar_error *error)
{
    CL_TRY(check_attends(memory, ubatch, layer, error));
    const cl_layer *its = &memory->layers[layer];
    if (its->source != layer)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u stores nothing, it reads layer %u", layer,
                its->source);
    if (!k || (!v && !its->v_in_k))
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: k or v is NULL", layer);
    CL_TRY(check_next(memory, ubatch, layer, error));
    cl_attention attention = attention_of(memory, ubatch, layer);
    memory->groups[its->group].is_written = true;
    if (!cl_attend_store(&attention, k, v))
        CL_FAIL(error, CELLAR_IO, layer, "layer %u: its store could not be written", layer);
    memory->n_stored[layer]++;
    memory->rows_written += attention.n_tokens;
    return CELLAR_OK;
}

cellar_status cellar_confirm(cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                             cellar_error *error)
{
    CL_TRY(check_layer(memory, ubatch, layer, error));
    const cl_layer *its = &memory->layers[layer];
    if (its->kind == CELLAR_LAYER_NONE || its->source != layer ||
        (its->kind == CELLAR_LAYER_ATTENTION && !its->is_external))
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: nothing of it is the caller's to write",
                layer);
    CL_TRY(check_next(memory, ubatch, layer, error));
    memory->n_stored[layer]++;
    return CELLAR_OK;
}

cellar_status cellar_attend(cellar_memory *memory, uint32_t ubatch, uint32_t layer, const float *q,
                            float *out, cellar_error *error)
{
    CL_TRY(check_attends(memory, ubatch, layer, error));
    if (!q || !out) CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: q or out is NULL", layer);
    uint32_t n_stored = memory->n_stored[memory->layers[layer].source];
    cl_group *group = &memory->groups[memory->layers[layer].group];
    if (n_stored <= ubatch)
        CL_FAIL(error, CELLAR_INVALID, ubatch,
                "layer %u: the rows of micro-batch %u are not stored yet", layer, ubatch);
    if (group->reuses_cells && n_stored > ubatch + 1)
        CL_FAIL(error, CELLAR_INVALID, ubatch,
                "layer %u: micro-batch %u is already stored over what micro-batch %u sees; attend "
                "before storing the next",
                layer, n_stored - 1, ubatch);
    cl_attention attention = attention_of(memory, ubatch, layer);
    cl_group_sweep(group, &memory->step, ubatch);
    if (!cl_attend_attend(&attention, q, out))
        CL_FAIL(error, CELLAR_IO, layer, "layer %u: its store could not be read", layer);
    return CELLAR_OK;
}

/* ---- recurrent states ------------------------------------------------------------------------ */

static const cl_group *recurrent_group(const cellar_memory *memory)
{
    for (uint32_t g = 0; g < memory->n_groups; g++)
        if (memory->groups[g].kind == CELLAR_LAYER_RECURRENT) return &memory->groups[g];
    return NULL;
}

cellar_status cellar_get_states(const cellar_memory *memory, uint32_t ubatch, uint32_t segment,
                                cellar_states *out, cellar_error *error)
{
    CL_TRY(cl_memory_check_ubatch(memory, ubatch, error));
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    const cl_group *group = recurrent_group(memory);
    if (!group) CL_FAIL(error, CELLAR_INVALID, -1, "no layer is recurrent");
    const uint32_t *begin = memory->step.segment_begin;
    if (segment >= begin[ubatch + 1] - begin[ubatch])
        CL_FAIL(error, CELLAR_INVALID, segment, "segment %u: micro-batch %u has %u", segment,
                ubatch, begin[ubatch + 1] - begin[ubatch]);
    const cl_segment_states *states = &group->states[begin[ubatch] + segment];
    out->source = states->source;
    out->n_targets = states->n_targets;
    out->targets = group->targets + states->first_target;
    out->after = group->after + states->first_target;
    return CELLAR_OK;
}

float *cellar_state_data(const cellar_memory *memory, uint32_t state, uint32_t layer,
                         uint32_t tensor)
{
    if (!memory || layer >= memory->n_layers) return NULL;
    const cl_layer *its = &memory->layers[layer];
    if (its->kind != CELLAR_LAYER_RECURRENT || its->is_external || tensor >= its->n_states)
        return NULL;
    const cl_group *group = &memory->groups[its->group];
    if (state >= group->sequences.cells.pools[0].n) return NULL;
    return (float *)(void *)cl_storage_row(&group->storage, &its->states[tensor], 0, state);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Must something of the layer be stored or confirmed before a commit? */
static bool must_be_stored(const cellar_memory *memory, uint32_t layer)
{
    return memory->layers[layer].kind != CELLAR_LAYER_NONE && memory->layers[layer].source == layer;
}

cellar_status cellar_commit(cellar_memory *memory, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    cl_step *step = &memory->step;
    if (!step->is_open) CL_FAIL(error, CELLAR_INVALID, -1, "no step is open");
    for (uint32_t layer = 0; layer < memory->n_layers; layer++)
        if (must_be_stored(memory, layer) && memory->n_stored[layer] < step->n_ubatches)
            CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: %u of %u micro-batches are stored",
                    layer, memory->n_stored[layer], step->n_ubatches);
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_group_commit(&memory->groups[g], step);
    cl_checkpoints_commit(&memory->checkpoints, step);
    for (uint32_t g = 0; g < memory->n_groups; g++)
        if (memory->groups[g].kind == CELLAR_LAYER_RECURRENT) cl_recurrent_trim(&memory->groups[g]);
    step->is_open = false;
    return CELLAR_OK;
}

void cellar_abort(cellar_memory *memory)
{
    if (!memory || !memory->step.is_open) return;
    abort_groups(memory, memory->n_groups);
    memory->step.is_open = false;
}
