/*
 * replay_recurrent.c: which steps a memory with states must refuse, though the trace has them done.
 *
 * The largest positions are those after the step, so a removal that the trace calls successful was of a
 * part exactly if the sequence holds something afterwards.
 */
#include "replay_recurrent.h"

#include <string.h>

static bool has_kind(const model *m, cellar_layer_kind kind)
{
    for (uint32_t i = 0; i < m->n_memory_layers; i++) {
        if (m->memory_layers[i].kind == kind) return true;
    }
    return false;
}

bool replay_has_states(const model *m)
{
    return has_kind(m, CELLAR_LAYER_RECURRENT);
}

bool replay_attends(const model *m)
{
    return has_kind(m, CELLAR_LAYER_ATTENTION);
}

bool replay_is_hybrid(const model *m)
{
    return replay_has_states(m) && replay_attends(m);
}

bool replay_reference_overruns(const model *m)
{
    return strcmp(m->architecture->name, "rwkv7") == 0 &&
           m->memory_layers[0].state_sizes[2] / m->n_embd % 32 != 0;
}

static bool is_step(const json_t *step, const char *op)
{
    return strcmp(json_string_value(json_object_get(step, "op")), op) == 0;
}

/* Does the sequence that the step names hold something after it? */
static bool is_left(const json_t *step)
{
    json_int_t seq = json_integer_value(json_array_get(json_object_get(step, "args"), 0));
    const json_t *max = json_object_get(step, "pmax");
    return seq >= 0 && json_integer_value(json_array_get(max, (size_t)seq)) >= 0;
}

bool replay_must_be_refused(const model *m, const json_t *step)
{
    if (!replay_has_states(m) || !is_left(step)) {
        return false;
    }
    return (is_step(step, "seq_rm") && json_is_true(json_object_get(step, "ret"))) ||
           is_step(step, "seq_add") || is_step(step, "seq_div");
}

bool replay_refusal_makes_wrong(const model *m, const json_t *step)
{
    if (is_step(step, "seq_rm")) {
        return replay_is_hybrid(m);
    }
    for (uint32_t i = 0; i < m->n_memory_layers; i++) {
        const cellar_layer *layer = &m->memory_layers[i];
        if (layer->kind == CELLAR_LAYER_ATTENTION && layer->rope.kind != CELLAR_ROPE_NONE) {
            return true;
        }
    }
    return false;
}
