/*
 * memory_model_checkpoint.c: at which positions a sequence has checkpoints. See memory_model.h.
 *
 * Only the places are kept: what a return to one has to bring back follows from the entries before
 * it. Which ones are thinned out when room is short is the library's choice, so places are marked
 * as certain or not, and learned again after every operation.
 */
#include "memory_model.h"

#include <stdlib.h>
#include <string.h>

bool memory_model_has_checkpoint(const model_sequence *sequence, int64_t position)
{
    for (uint32_t i = 0; i < sequence->n_checkpoints; i++)
        if (sequence->checkpoints[i].position == position) return true;
    return false;
}

void memory_model_add_checkpoint(model_sequence *sequence, cellar_pos position, bool must)
{
    uint32_t at = 0;
    while (at < sequence->n_checkpoints && sequence->checkpoints[at].position < position)
        at++;
    if (at < sequence->n_checkpoints && sequence->checkpoints[at].position == position) {
        sequence->checkpoints[at].must |= must;
        return;
    }
    if (sequence->n_checkpoints == sequence->checkpoint_capacity) {
        sequence->checkpoint_capacity = sequence->checkpoint_capacity * 2 + 8;
        model_checkpoint *more = memory_model_grab(sequence->checkpoint_capacity, sizeof *more);
        if (at > 0 || sequence->n_checkpoints > 0)
            memcpy(more, sequence->checkpoints, sequence->n_checkpoints * sizeof *more);
        free(sequence->checkpoints);
        sequence->checkpoints = more;
    }
    for (uint32_t i = sequence->n_checkpoints++; i > at; i--)
        sequence->checkpoints[i] = sequence->checkpoints[i - 1];
    sequence->checkpoints[at] = (model_checkpoint){position, must};
}

void memory_model_drop_checkpoints(model_sequence *sequence, int64_t from, int64_t to)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sequence->n_checkpoints; i++) {
        cellar_pos position = sequence->checkpoints[i].position;
        if (position < from || position >= to)
            sequence->checkpoints[n++] = sequence->checkpoints[i];
    }
    sequence->n_checkpoints = n;
}

void memory_model_doubt_checkpoints(model_sequence *sequence, int64_t from, int64_t to)
{
    for (uint32_t i = 0; i < sequence->n_checkpoints; i++)
        if (sequence->checkpoints[i].position >= from && sequence->checkpoints[i].position < to)
            sequence->checkpoints[i].must = false;
}

void memory_model_doubt_all_checkpoints(memory_model *model)
{
    for (uint32_t s = 0; s < model->n_sequences; s++)
        for (uint32_t i = 0; i < model->sequences[s].n_checkpoints; i++)
            model->sequences[s].checkpoints[i].must = false;
}

model_verdict memory_model_judge_checkpoint(memory_model *model, cellar_seq seq)
{
    if (seq < 0) return (model_verdict){MODEL_MAY(CELLAR_INVALID), MODEL_AT_UNSAID};
    const model_sequence *sequence = memory_model_sequence(model, seq);
    bool is_needed = memory_model_has_windows(model) ||
                     memory_model_recurrent_group(model) != MODEL_NONE;
    if (!is_needed || sequence->n == 0) return (model_verdict){MODEL_MAY(CELLAR_OK), -1};
    int64_t next = (int64_t)sequence->entries[sequence->n - 1].pos + 1;
    model_verdict verdict = {MODEL_MAY(CELLAR_OK) | MODEL_MAY(CELLAR_FULL), MODEL_AT_UNSAID};
    if (!memory_model_has_all(model, sequence, next)) verdict.allowed = MODEL_MAY(CELLAR_REPLAY);
    return verdict;
}
