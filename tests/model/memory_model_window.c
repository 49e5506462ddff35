/*
 * memory_model_window.c: what windows and states allow: where a sequence can go on, and what must
 * not be given up for that. See memory_model.h.
 *
 * Nothing is remembered about windows: every question is a loop over all entries with the rule of
 * visibility.h.
 */
#include "memory_model.h"

#include <stdlib.h>

bool memory_model_sees(const model_group *group, int64_t q, const model_entry *entry)
{
    return entry->pos <= q && attention_model_window_sees(&group->window, q, entry->pos);
}

/* The last entry below n; sequence->n if there is none. */
static uint32_t last_below(const model_sequence *sequence, int64_t n)
{
    for (uint32_t i = sequence->n; i-- > 0;)
        if (sequence->entries[i].pos < n) return i;
    return sequence->n;
}

static bool group_has_all(const memory_model *model, uint32_t g, const model_sequence *sequence,
                          int64_t q, uint32_t end)
{
    const model_group *group = &model->groups[g];
    if (group->kind == CELLAR_LAYER_RECURRENT)
        return end == 0 || (sequence->entries[end - 1].held >> g & 1);
    for (uint32_t i = 0; i < end; i++)
        if (!(sequence->entries[i].held >> g & 1) &&
            memory_model_sees(group, q, &sequence->entries[i]))
            return false;
    return true;
}

bool memory_model_has_all(const memory_model *model, const model_sequence *sequence, int64_t q)
{
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (!group_has_all(model, g, sequence, q, sequence->n)) return false;
    return true;
}

/* Has every group given up all that is held no more up to n - 1, and nothing behind? */
static bool is_last_gone(const memory_model *model, const model_sequence *sequence, int64_t n)
{
    for (uint32_t g = 0; g < model->n_groups; g++)
        for (uint32_t i = 0; i < sequence->n; i++)
            if (sequence->entries[i].pos >= n && !(sequence->entries[i].held >> g & 1))
                return false;
    return true;
}

bool memory_model_continues(const memory_model *model, const model_sequence *sequence, int64_t n)
{
    if (n == 0) return true;
    uint32_t last = last_below(sequence, n);
    if (last == sequence->n || sequence->entries[last].pos != n - 1) return false;
    bool is_good = is_last_gone(model, sequence, n);
    for (uint32_t i = 0; i <= last; i++)
        is_good |= sequence->entries[i].pos == n - 1 && sequence->entries[i].held;
    for (uint32_t g = 0; g < model->n_groups && is_good; g++)
        is_good = group_has_all(model, g, sequence, n, last + 1);
    return is_good;
}

cellar_pos memory_model_rewind_target(const memory_model *model, const model_sequence *sequence,
                                      int64_t n)
{
    for (uint32_t i = sequence->n; i-- > 0;) {
        int64_t here = (int64_t)sequence->entries[i].pos + 1;
        if (here <= n && (memory_model_continues(model, sequence, here) ||
                          memory_model_has_checkpoint(sequence, here)))
            return (cellar_pos)here;
    }
    return 0;
}

uint32_t memory_model_count_needed(const memory_model *model, uint32_t group, uint32_t pool)
{
    const model_group *g = &model->groups[group];
    bool *is_needed = memory_model_grab(g->n_slots, sizeof *is_needed);
    uint32_t n = 0;
    for (uint32_t s = 0; s < model->n_sequences; s++) {
        const model_sequence *sequence = &model->sequences[s];
        if (sequence->n == 0 || memory_model_pool(model, sequence->name) != pool) continue;
        int64_t last = sequence->entries[sequence->n - 1].pos;
        for (uint32_t i = 0; i < sequence->n; i++) {
            const model_entry *entry = &sequence->entries[i];
            bool is_seen = memory_model_sees(g, last + 1, entry) ||
                           (model->has_points && memory_model_sees(g, last, entry));
            if (is_seen && (entry->held >> group & 1)) is_needed[entry->slot[group]] = true;
        }
    }
    for (uint32_t s = 0; s < g->n_slots; s++)
        n += is_needed[s];
    free(is_needed);
    return n;
}
