/*
 * transaction.c: a step as its caller sees it: begin, store, attend, commit, abort.
 *
 * begin lets step.c understand the batch and every group reserve its cells; until commit only the
 * step itself knows of them. Nothing between begin and commit allocates.
 */
#include <string.h>

#include "error.h"
#include "memory.h"

/* ---- begin ----------------------------------------------------------------------------------- */

static cellar_pos next_position(const void *context, cellar_seq id)
{
    const cellar_memory *memory = context;
    cellar_pos max = cellar_position_max(memory, id);
    return max < 0 ? -1 : max + 1;
}

static bool same_past(const void *context, cellar_seq a, cellar_seq b)
{
    const cellar_memory *memory = context;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        if (!cl_runs_equal(cl_memory_runs(memory, g, a), cl_memory_runs(memory, g, b)))
            return false;
    return true;
}

/* Every group needs a cell for every token. */
static cellar_status check_room(const cellar_memory *memory, uint32_t n_tokens, cellar_error *error)
{
    for (uint32_t g = 0; g < memory->n_groups; g++)
        CL_TRY(cl_group_check_room(&memory->groups[g], n_tokens, error));
    return CELLAR_OK;
}

cellar_status cellar_begin(cellar_memory *memory, const cellar_batch *batch, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    cl_step *step = &memory->step;
    CL_TRY(cl_step_check_batch(batch, error));
    /* A batch that could never fit is not worth the memory of looking at its tokens. */
    if (batch->n_tokens > memory->groups[0].sequences.cells.n)
        CL_TRY(check_room(memory, batch->n_tokens, error));
    cl_step_questions questions = {next_position, same_past, memory};
    CL_TRY(cl_step_resolve(step, batch, memory->n_ubatch, &questions, &memory->alloc, error));
    CL_TRY(check_room(memory, batch->n_tokens, error));
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        cellar_status status = cl_group_begin(&memory->groups[g], step, memory->ropes,
                                              memory->n_ropes, error);
        if (status == CELLAR_OK) continue;
        while (g-- > 0)
            cl_group_abort(&memory->groups[g], step);
        return status;
    }
    memset(memory->n_stored, 0, memory->n_layers * sizeof *memory->n_stored);
    memory->angles_ubatch = UINT32_MAX;
    step->is_open = true;
    return CELLAR_OK;
}

uint32_t cellar_count_ubatches(const cellar_memory *memory)
{
    return memory && memory->step.is_open ? memory->step.n_ubatches : 0;
}

static cellar_status check_ubatch(const cellar_memory *memory, uint32_t ubatch, cellar_error *error)
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
    CL_TRY(check_ubatch(memory, ubatch, error));
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    uint32_t first = cl_step_first(&memory->step, ubatch);
    out->n_tokens = cl_step_count(&memory->step, ubatch);
    out->indices = memory->step.indices + first;
    out->positions = memory->step.positions + first;
    return CELLAR_OK;
}

/* ---- store and attend ------------------------------------------------------------------------ */

static cellar_status check_layer(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                                 cellar_error *error)
{
    CL_TRY(check_ubatch(memory, ubatch, error));
    if (layer >= memory->n_layers)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: the memory has %u", layer,
                memory->n_layers);
    return CELLAR_OK;
}

/* Cosines and sines for the positions of a micro-batch, once for all layers. */
static void prepare_angles(cellar_memory *memory, uint32_t ubatch)
{
    if (memory->angles_ubatch == ubatch) return;
    uint32_t first = cl_step_first(&memory->step, ubatch), n = cl_step_count(&memory->step, ubatch);
    for (uint32_t r = 0; r < memory->n_ropes; r++) {
        const cl_rope *rope = &memory->ropes[r];
        float *at = memory->angles + memory->angle_offsets[r] * memory->n_ubatch;
        for (uint32_t i = 0; i < n; i++, at += 2 * (size_t)rope->n_pairs)
            cl_rope_angles(rope, memory->step.positions[first + i], rope->magnitude, at,
                           at + rope->n_pairs);
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
        .angles = memory->angles + memory->angle_offsets[its->rope] * memory->n_ubatch,
        .turn_offset = memory->angle_offsets[its->rope],
        .positions = memory->step.positions + first,
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
    CL_TRY(check_layer(memory, ubatch, layer, error));
    if (!k || !v) CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: k or v is NULL", layer);
    if (memory->n_stored[layer] != ubatch)
        CL_FAIL(error, CELLAR_INVALID, ubatch,
                "layer %u: micro-batch %u is not the next, that is %u", layer, ubatch,
                memory->n_stored[layer]);
    cl_attention attention = attention_of(memory, ubatch, layer);
    cl_attention_store(&attention, k, v);
    memory->n_stored[layer]++;
    memory->rows_written += attention.n_tokens;
    return CELLAR_OK;
}

cellar_status cellar_attend(cellar_memory *memory, uint32_t ubatch, uint32_t layer, const float *q,
                            float *out, cellar_error *error)
{
    CL_TRY(check_layer(memory, ubatch, layer, error));
    if (!q || !out) CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: q or out is NULL", layer);
    if (memory->n_stored[layer] <= ubatch)
        CL_FAIL(error, CELLAR_INVALID, ubatch,
                "layer %u: the rows of micro-batch %u are not stored yet", layer, ubatch);
    cl_attention attention = attention_of(memory, ubatch, layer);
    cl_group_sweep(&memory->groups[attention.layer->group], &memory->step, ubatch);
    cl_attention_attend(&attention, q, out);
    return CELLAR_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

cellar_status cellar_commit(cellar_memory *memory, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    cl_step *step = &memory->step;
    if (!step->is_open) CL_FAIL(error, CELLAR_INVALID, -1, "no step is open");
    for (uint32_t layer = 0; layer < memory->n_layers; layer++)
        if (memory->n_stored[layer] < step->n_ubatches)
            CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: %u of %u micro-batches are stored",
                    layer, memory->n_stored[layer], step->n_ubatches);
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_group_commit(&memory->groups[g]);
    step->is_open = false;
    return CELLAR_OK;
}

void cellar_abort(cellar_memory *memory)
{
    if (!memory || !memory->step.is_open) return;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_group_abort(&memory->groups[g], &memory->step);
    memory->step.is_open = false;
}
