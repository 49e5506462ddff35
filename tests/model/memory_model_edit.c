/*
 * memory_model_edit.c: remove, copy, keep, shift, divide: may it be done, and what is left then.
 * See memory_model.h.
 *
 * With a recurrent group the question is whether the tokens that are left are the beginning of what
 * a kept state has read. Where the header leaves something open a verdict allows more than one answer.
 */
#include "memory_model.h"

#include <stdlib.h>
#include <string.h>

#define VERDICT(allowed, at) ((model_verdict){allowed, at})
#define OK_OR_REFUSED (MODEL_MAY(CELLAR_OK) | MODEL_MAY(CELLAR_REFUSED))

static const model_verdict fine = {MODEL_MAY(CELLAR_OK), -1};
static const model_verdict invalid = {MODEL_MAY(CELLAR_INVALID), MODEL_AT_UNSAID};

static bool is_in(const model_entry *entry, int64_t from, int64_t to)
{
    return entry->pos >= from && entry->pos < to;
}

static uint32_t count_in(const model_sequence *sequence, int64_t from, int64_t to)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sequence->n; i++)
        n += is_in(&sequence->entries[i], from, to);
    return n;
}

/* Both have to be done: what may the whole answer? */
static model_verdict both(model_verdict a, model_verdict b)
{
    uint32_t ok = a.allowed & b.allowed & MODEL_MAY(CELLAR_OK);
    uint32_t failures = (a.allowed | b.allowed) & ~MODEL_MAY(CELLAR_OK);
    return VERDICT(ok | failures, failures ? MODEL_AT_UNSAID : -1);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Is the state behind entry i kept? */
static bool has_state(const model_sequence *sequence, uint32_t group, uint32_t i)
{
    return (sequence->entries[i].held >> group & 1) ||
           memory_model_has_checkpoint(sequence, (int64_t)sequence->entries[i].pos + 1);
}

/* The largest position <= p at which a kept state goes on, or 0. */
static int64_t last_state(const model_sequence *sequence, uint32_t group, int64_t p)
{
    for (uint32_t i = sequence->n; i-- > 0;)
        if ((int64_t)sequence->entries[i].pos + 1 <= p && has_state(sequence, group, i))
            return (int64_t)sequence->entries[i].pos + 1;
    return 0;
}

/* ---- remove ---------------------------------------------------------------------------------- */

model_verdict memory_model_judge_remove(memory_model *model, cellar_seq seq, cellar_pos p0,
                                        cellar_pos p1)
{
    int64_t from, to;
    if (seq < 0 || !memory_model_plain_range(p0, p1, &from, &to)) return invalid;
    const model_sequence *sequence = memory_model_sequence(model, seq);
    uint32_t group = memory_model_recurrent_group(model), n = count_in(sequence, from, to);
    if (group == MODEL_NONE || sequence->n == 0) return fine;
    if (n == 0 || n == sequence->n) return fine;
    uint32_t left = sequence->n - n;
    bool is_end = is_in(&sequence->entries[sequence->n - 1], from, to);
    if (is_end && has_state(sequence, group, left - 1)) return fine;
    return VERDICT(MODEL_MAY(CELLAR_REFUSED), last_state(sequence, group, from));
}

void memory_model_do_remove(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1)
{
    int64_t from, to, first = -1;
    memory_model_plain_range(p0, p1, &from, &to);
    model_sequence *sequence = memory_model_sequence(model, seq);
    uint32_t n = 0, before = sequence->n, group = memory_model_recurrent_group(model);
    bool is_end = before > 0 && is_in(&sequence->entries[before - 1], from, to);
    for (uint32_t i = 0; i < before; i++) {
        if (!is_in(&sequence->entries[i], from, to))
            sequence->entries[n++] = sequence->entries[i];
        else if (first < 0)
            first = sequence->entries[i].pos;
    }
    sequence->n = n;
    if (n == before) return;
    if (n == 0) {
        sequence->n_checkpoints = 0;
    } else if (is_end) {
        memory_model_drop_checkpoints(sequence, first + 1, INT64_MAX);
        if (group != MODEL_NONE) sequence->entries[n - 1].held |= 1u << group;
    } else {
        memory_model_doubt_checkpoints(sequence, first + 1, INT64_MAX);
    }
    memory_model_recount(model);
}

void memory_model_keep(memory_model *model, cellar_seq seq)
{
    for (uint32_t s = 0; s < model->n_sequences; s++) {
        model_sequence *sequence = &model->sequences[s];
        if (sequence->name == seq) continue;
        sequence->n = sequence->n_checkpoints = 0;
    }
    memory_model_recount(model);
}

void memory_model_clear(memory_model *model)
{
    memory_model_keep(model, -1);
}

/* ---- copy ------------------------------------------------------------------------------------ */

/* May the recurrent group copy this? */
static model_verdict judge_state_copy(const model_sequence *source, const model_sequence *target,
                                      uint32_t group, int64_t from, int64_t to)
{
    uint32_t n_source = count_in(source, from, to), n_target = count_in(target, from, to);
    bool is_beginning = n_source > 0 && is_in(&source->entries[0], from, to);
    bool is_alone = n_target == target->n;
    if (n_source == 0 && (n_target == 0 || is_alone)) return fine;
    if (n_source == 0 && is_in(&target->entries[target->n - 1], from, to)) {
        /* What is left of the target has a state of its own, or perhaps in a checkpoint. */
        uint32_t last = target->n - n_target - 1;
        if (target->entries[last].held >> group & 1) return fine;
        if (has_state(target, group, last)) return VERDICT(OK_OR_REFUSED, MODEL_AT_UNSAID);
    }
    if (!is_beginning || !is_alone) return VERDICT(MODEL_MAY(CELLAR_REFUSED), MODEL_AT_UNSAID);
    if (!has_state(source, group, n_source - 1))
        return VERDICT(MODEL_MAY(CELLAR_REFUSED), last_state(source, group, to));
    return fine;
}

/* Cells of a group that only this range of this sequence holds. */
static uint32_t count_alone(const memory_model *model, uint32_t g, const model_sequence *sequence,
                            int64_t from, int64_t to)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sequence->n; i++) {
        const model_entry *entry = &sequence->entries[i];
        if (is_in(entry, from, to) && (entry->held >> g & 1))
            n += model->groups[g].slots[entry->slot[g]].refs == 1;
    }
    return n;
}

/*
 * Where the target will go on, and how many entries of each half its window lets it see there: those that
 * are copied, and those of its own outside the range.
 */
typedef struct model_halves {
    uint32_t n_copied, n_own;
} model_halves;

static model_halves count_seen(const memory_model *model, uint32_t g, const model_sequence *source,
                               const model_sequence *target, int64_t from, int64_t to)
{
    int64_t last = -1;
    model_halves n = {0, 0};
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < source->n; i++) {
            const model_entry *entry = &source->entries[i];
            if (!is_in(entry, from, to)) continue;
            if (pass == 0 && entry->pos > last) last = entry->pos;
            bool is_seen = memory_model_sees(&model->groups[g], last + 1, entry) ||
                           (model->has_points && memory_model_sees(&model->groups[g], last, entry));
            n.n_copied += pass == 1 && is_seen && (entry->held >> g & 1);
        }
        for (uint32_t i = 0; i < target->n; i++) {
            const model_entry *entry = &target->entries[i];
            if (is_in(entry, from, to)) continue;
            if (pass == 0 && entry->pos > last) last = entry->pos;
            bool is_seen = memory_model_sees(&model->groups[g], last + 1, entry) ||
                           (model->has_points && memory_model_sees(&model->groups[g], last, entry));
            n.n_own += pass == 1 && is_seen && (entry->held >> g & 1);
        }
    }
    return n;
}

/* Cells of the target that nobody else holds, that its next token sees, and that are replaced: they go first. */
static uint32_t count_replaced(const memory_model *model, uint32_t g, const model_sequence *target,
                               int64_t from, int64_t to)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < target->n; i++) {
        const model_entry *entry = &target->entries[i];
        int64_t last = target->entries[target->n - 1].pos;
        bool is_alone = (entry->held >> g & 1) && model->groups[g].slots[entry->slot[g]].refs == 1;
        bool is_seen = memory_model_sees(&model->groups[g], last + 1, entry) ||
                       (model->has_points && memory_model_sees(&model->groups[g], last, entry));
        n += is_in(entry, from, to) && is_alone && is_seen;
    }
    return n;
}

/* Behind a window only what next queries see, now and after the copy, is in the way. */
static uint32_t window_verdict(const memory_model *model, uint32_t g, uint32_t pool,
                               const model_sequence *source, const model_sequence *target,
                               int64_t from, int64_t to)
{
    const model_group *group = &model->groups[g];
    uint32_t needed = memory_model_count_needed(model, g, pool);
    model_halves seen = count_seen(model, g, source, target, from, to);
    uint32_t replaced = count_replaced(model, g, target, from, to);
    if (needed + seen.n_copied + seen.n_own <= group->capacity[pool] + replaced)
        return MODEL_MAY(CELLAR_OK);
    /* With points two answers are counted as needed, of which one may do. */
    replaced = count_in(target, from, to);
    if (!model->has_points && needed + seen.n_copied > group->most[pool] + replaced)
        return MODEL_MAY(CELLAR_FULL);
    return MODEL_MAY(CELLAR_OK) | MODEL_MAY(CELLAR_FULL);
}

/* Between pools rows are copied: is there room? */
static model_verdict judge_copy_room(const memory_model *model, const model_sequence *source,
                                     const model_sequence *target, int64_t from, int64_t to)
{
    model_verdict verdict = fine;
    uint32_t pool = memory_model_pool(model, target->name);
    for (uint32_t g = 0; g < model->n_groups; g++) {
        const model_group *group = &model->groups[g];
        uint32_t p = group->kind == CELLAR_LAYER_RECURRENT ? 0 : pool, n = 0;
        for (uint32_t i = 0; i < source->n; i++)
            n += is_in(&source->entries[i], from, to) && (source->entries[i].held >> g & 1);
        bool is_window = group->window.kind != CELLAR_WINDOW_NONE;
        uint32_t used = memory_model_count_used(model, g, p), allowed;
        if (n == 0 || (used + n <= group->capacity[p] && !is_window)) continue;
        if (is_window) {
            allowed = window_verdict(model, g, p, source, target, from, to);
        } else {
            allowed = MODEL_MAY(CELLAR_OK) | MODEL_MAY(CELLAR_FULL);
            if (group->kind == CELLAR_LAYER_ATTENTION &&
                used + n > group->most[p] + count_alone(model, g, target, from, to) &&
                count_alone(model, g, source, from, to) == n)
                allowed = MODEL_MAY(CELLAR_FULL);
        }
        if (allowed == MODEL_MAY(CELLAR_OK)) continue;
        verdict.at = MODEL_AT_UNSAID;
        verdict.allowed |= allowed;
        if (allowed == MODEL_MAY(CELLAR_FULL)) {
            verdict.allowed = allowed;
            return verdict;
        }
    }
    return verdict;
}

model_verdict memory_model_judge_copy(memory_model *model, cellar_seq from_seq, cellar_seq to_seq,
                                      cellar_pos p0, cellar_pos p1)
{
    int64_t from, to;
    if (from_seq < 0 || to_seq < 0 || !memory_model_plain_range(p0, p1, &from, &to)) return invalid;
    if (from_seq == to_seq) return fine;
    memory_model_sequence(model, from_seq);
    const model_sequence *target = memory_model_sequence(model, to_seq);
    const model_sequence *source = memory_model_sequence(model, from_seq);
    model_verdict verdict = fine;
    uint32_t group = memory_model_recurrent_group(model);
    if (group != MODEL_NONE) verdict = judge_state_copy(source, target, group, from, to);
    if (memory_model_pool(model, from_seq) == memory_model_pool(model, to_seq)) return verdict;
    model_verdict room = judge_copy_room(model, source, target, from, to);
    if (verdict.allowed == MODEL_MAY(CELLAR_REFUSED) && room.allowed == MODEL_MAY(CELLAR_OK))
        return verdict;
    return verdict.allowed == MODEL_MAY(CELLAR_OK) ? room : both(verdict, room);
}

/* The same places in another pool; what was given up is given up there too. */
static void move_to_pool(memory_model *model, model_sequence *target, int64_t from, int64_t to)
{
    uint32_t pool = memory_model_pool(model, target->name);
    for (uint32_t g = 0; g < model->n_groups; g++)
        for (uint32_t i = 0; i < target->n; i++) {
            model_entry *entry = &target->entries[i];
            if (!is_in(entry, from, to)) continue;
            uint32_t p = model->groups[g].kind == CELLAR_LAYER_RECURRENT ? 0 : pool;
            entry->slot[g] = memory_model_new_slot(model, g, entry->cell, p);
        }
}

static void copy_checkpoints(model_sequence *target, const model_sequence *source, int64_t from,
                             int64_t to, bool is_fork, bool must)
{
    if (is_fork)
        target->n_checkpoints = 0;
    else
        memory_model_doubt_checkpoints(target, from + 1, INT64_MAX);
    for (uint32_t i = 0; i < source->n_checkpoints; i++) {
        cellar_pos position = source->checkpoints[i].position;
        if (position > from && position <= to) memory_model_add_checkpoint(target, position, must);
    }
}

void memory_model_do_copy(memory_model *model, cellar_seq from_seq, cellar_seq to_seq,
                          cellar_pos p0, cellar_pos p1)
{
    int64_t from, to;
    if (from_seq == to_seq) return;
    memory_model_plain_range(p0, p1, &from, &to);
    memory_model_sequence(model, from_seq);
    model_sequence *target = memory_model_sequence(model, to_seq);
    const model_sequence *source = memory_model_sequence(model, from_seq);
    bool is_other_pool = memory_model_pool(model, from_seq) != memory_model_pool(model, to_seq);
    uint32_t n = 0, group = memory_model_recurrent_group(model);
    for (uint32_t i = 0; i < target->n; i++)
        if (!is_in(&target->entries[i], from, to)) target->entries[n++] = target->entries[i];
    bool is_fork = n == 0 && count_in(source, from, to) == source->n;
    target->n = n;
    for (uint32_t i = 0; i < source->n; i++)
        if (is_in(&source->entries[i], from, to)) memory_model_push(target, &source->entries[i]);
    memory_model_sort(target);
    if (group != MODEL_NONE && target->n > 0)
        target->entries[target->n - 1].held |= 1u << group; /* from a checkpoint, if need be */
    if (is_other_pool) move_to_pool(model, target, from, to);
    copy_checkpoints(target, source, from, to, is_fork, is_fork && !is_other_pool);
    memory_model_recount(model);
}

/* ---- shift and divide ------------------------------------------------------------------------ */

/* Does an entry outside [from, to) stand at `pos`, or (a division) between there and `old`? */
static bool is_in_the_way(const model_sequence *sequence, int64_t from, int64_t to, int64_t pos,
                          int64_t old, bool is_division)
{
    for (uint32_t i = 0; i < sequence->n; i++) {
        const model_entry *other = &sequence->entries[i];
        if (is_in(other, from, to)) continue;
        if (other->pos == pos || (is_division && other->pos > pos && other->pos < old)) return true;
    }
    return false;
}

/* Where an entry of the range goes. */
static int64_t moved(int64_t pos, int64_t delta, int64_t divisor)
{
    return divisor ? pos / divisor : pos + delta;
}

/* divisor 0: shift by delta. */
static model_verdict judge_move(memory_model *model, cellar_seq seq, int64_t from, int64_t to,
                                int64_t delta, int64_t divisor)
{
    const model_sequence *sequence = memory_model_sequence(model, seq);
    uint32_t n = count_in(sequence, from, to);
    bool is_cut = false, is_left = false;
    bool has_states = memory_model_recurrent_group(model) != MODEL_NONE;
    model_verdict verdict = fine;
    if (divisor == 1 || (divisor == 0 && delta == 0)) return fine;
    for (uint32_t i = 0; i < sequence->n; i++) {
        const model_entry *entry = &sequence->entries[i];
        if (!is_in(entry, from, to)) continue;
        int64_t pos = moved(entry->pos, delta, divisor);
        is_cut |= pos < 0;
        is_left |= pos >= 0;
        if (pos > INT32_MAX - 1) return invalid;
    }
    for (uint32_t i = 0; i < sequence->n && verdict.allowed != MODEL_MAY(CELLAR_REFUSED); i++) {
        const model_entry *entry = &sequence->entries[i];
        int64_t pos = moved(entry->pos, delta, divisor);
        if (!is_in(entry, from, to) || pos < 0) continue;
        if (is_in_the_way(sequence, from, to, pos, entry->pos, divisor > 0))
            verdict = VERDICT(MODEL_MAY(CELLAR_REFUSED), pos);
    }
    if (!has_states) return verdict;
    /* What states have read moves as a whole, and is forgotten as a whole. */
    if (n > 0 && (n < sequence->n || divisor || (is_cut && is_left)))
        return VERDICT(MODEL_MAY(CELLAR_REFUSED), MODEL_AT_UNSAID);
    return verdict;
}

model_verdict memory_model_judge_shift(memory_model *model, cellar_seq seq, cellar_pos p0,
                                       cellar_pos p1, cellar_pos delta)
{
    int64_t from, to;
    if (seq < 0 || !memory_model_plain_range(p0, p1, &from, &to)) return invalid;
    return judge_move(model, seq, from, to, delta, 0);
}

model_verdict memory_model_judge_divide(memory_model *model, cellar_seq seq, cellar_pos p0,
                                        cellar_pos p1, cellar_pos divisor)
{
    int64_t from, to;
    if (seq < 0 || divisor < 1 || !memory_model_plain_range(p0, p1, &from, &to)) return invalid;
    return judge_move(model, seq, from, to, 0, divisor);
}

/* Checkpoints behind the first token that moves, or behind where it comes to stand, are forgotten. */
static void lose_checkpoints(model_sequence *sequence, int64_t from, int64_t to, int64_t delta,
                             int64_t divisor)
{
    int64_t first = INT64_MAX;
    for (uint32_t i = sequence->n; i-- > 0;)
        if (is_in(&sequence->entries[i], from, to)) first = sequence->entries[i].pos;
    if (first == INT64_MAX) return;
    int64_t end = moved(first, delta, divisor), bound = end < first ? end : first;
    memory_model_drop_checkpoints(sequence, (bound < 0 ? 0 : bound) + 1, INT64_MAX);
}

static void do_move(memory_model *model, cellar_seq seq, int64_t from, int64_t to, int64_t delta,
                    int64_t divisor)
{
    model_sequence *sequence = memory_model_sequence(model, seq);
    uint32_t n = 0, n_moved = count_in(sequence, from, to);
    if (from >= to || divisor == 1 || (divisor == 0 && delta == 0)) return;
    lose_checkpoints(sequence, from, to, delta, divisor);
    if (n_moved == 0) return;
    for (uint32_t i = 0; i < sequence->n; i++) {
        model_entry entry = sequence->entries[i];
        int64_t pos = is_in(&entry, from, to) ? moved(entry.pos, delta, divisor) : entry.pos;
        entry.pos = (cellar_pos)pos;
        if (pos >= 0 && pos <= INT32_MAX) sequence->entries[n++] = entry;
    }
    sequence->n = n;
    memory_model_sort(sequence);
    if (sequence->n == 0) sequence->n_checkpoints = 0;
    memory_model_recount(model);
}

void memory_model_do_shift(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                           cellar_pos delta)
{
    int64_t from, to;
    memory_model_plain_range(p0, p1, &from, &to);
    do_move(model, seq, from, to, delta, 0);
}

void memory_model_do_divide(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                            cellar_pos divisor)
{
    int64_t from, to;
    memory_model_plain_range(p0, p1, &from, &to);
    do_move(model, seq, from, to, 0, divisor);
}

model_verdict memory_model_judge_shift_context(memory_model *model, cellar_seq seq, cellar_pos keep,
                                               cellar_pos discard, cellar_pos *first,
                                               cellar_pos *dropped)
{
    if (seq < 0) return invalid;
    int64_t min = memory_model_pos_min(model, seq), max = memory_model_pos_max(model, seq);
    int64_t n = max + 1 - min, drop = discard ? discard : (n - keep) / 2;
    if (min < 0 || keep < 0 || keep >= n || discard < 0 || discard > n - keep || drop == 0)
        return invalid;
    *first = (cellar_pos)(min + keep);
    *dropped = (cellar_pos)drop;
    cellar_pos end = (cellar_pos)(min + keep + drop);
    const model_sequence *sequence = memory_model_sequence(model, seq);
    model_verdict removal = memory_model_judge_remove(model, seq, *first, end);
    removal.at = MODEL_AT_UNSAID;
    if (memory_model_recurrent_group(model) == MODEL_NONE) return removal;
    /* States: a removal of all, or a move of all over a hole, are left open. */
    uint32_t n_gone = count_in(sequence, *first, end);
    if (n_gone == 0 || n_gone == sequence->n || count_in(sequence, end, INT64_MAX) == 0)
        return VERDICT(removal.allowed | OK_OR_REFUSED, MODEL_AT_UNSAID);
    return removal;
}

/* ---- judged and done ------------------------------------------------------------------------- */

static cellar_status only_status(model_verdict verdict)
{
    int status = 0;
    while (!(verdict.allowed >> status & 1))
        status++;
    return (cellar_status)-status;
}

cellar_status memory_model_remove(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1)
{
    cellar_status status = only_status(memory_model_judge_remove(model, seq, p0, p1));
    if (status == CELLAR_OK) memory_model_do_remove(model, seq, p0, p1);
    return status;
}

cellar_status memory_model_copy(memory_model *model, cellar_seq from, cellar_seq to, cellar_pos p0,
                                cellar_pos p1)
{
    cellar_status status = only_status(memory_model_judge_copy(model, from, to, p0, p1));
    if (status == CELLAR_OK) memory_model_do_copy(model, from, to, p0, p1);
    return status;
}

cellar_status memory_model_shift(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                                 cellar_pos delta, int64_t *at)
{
    model_verdict verdict = memory_model_judge_shift(model, seq, p0, p1, delta);
    cellar_status status = only_status(verdict);
    *at = verdict.at;
    if (status == CELLAR_OK) memory_model_do_shift(model, seq, p0, p1, delta);
    return status;
}
