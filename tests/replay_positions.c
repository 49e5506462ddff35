/*
 * replay_positions.c: what a memory with windows must hold after a step.
 *
 * With W the largest window and n the position behind the last token of a sequence:
 *
 *     the largest position is the largest that was given and not removed;
 *     a sequence that holds something can be continued at n without reading again;
 *     with a layer that sees everything, the smallest position is the smallest that was ever given and
 *     not removed; without one it is at least that, and at most n - W + 1 or, if that is smaller,
 *     where the reference's begins: what a window needs is there, and nothing that never was.
 *
 * (The trace's smallest position cannot be asked for: it is that of the reference's window cache, which
 * gives up a position when its cell is used for another, in the order of its cells.)
 */
#include "replay_positions.h"
#include "replay_recurrent.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool *row_of(const replay_positions *p, int32_t seq)
{
    return p->held + (size_t)seq * REPLAY_POSITIONS;
}

bool replay_positions_create(replay_positions *p, uint32_t n_sequences)
{
    *p = (replay_positions){.n_sequences = n_sequences};
    p->held = calloc(n_sequences, REPLAY_POSITIONS * sizeof *p->held);
    p->saved = calloc(n_sequences, REPLAY_POSITIONS * sizeof *p->saved);
    p->saved_sequence = calloc(1, REPLAY_POSITIONS * sizeof *p->saved_sequence);
    return p->held != NULL && p->saved != NULL && p->saved_sequence != NULL;
}

void replay_positions_free(replay_positions *p)
{
    free(p->held);
    free(p->saved);
    free(p->saved_sequence);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int32_t number_at(const json_t *list, size_t i)
{
    return (int32_t)json_integer_value(json_array_get(list, i));
}

static int32_t argument(const json_t *step, size_t i)
{
    return number_at(json_object_get(step, "args"), i);
}

/* [first, last) of arguments i and i + 1. */
static void range_of(const json_t *step, size_t i, int32_t *first, int32_t *last)
{
    int32_t from = argument(step, i), to = argument(step, i + 1);
    *first = from < 0 ? 0 : from;
    *last = to < 0 || to > REPLAY_POSITIONS ? REPLAY_POSITIONS : to;
}

static void add_tokens(replay_positions *p, const json_t *step, replay_outcome *outcome)
{
    const json_t *positions = json_object_get(step, "pos"), *seqs = json_object_get(step, "seq");
    for (size_t i = 0; i < json_array_size(positions); i++) {
        int32_t position = number_at(positions, i) + p->ahead;
        const json_t *members = json_array_get(seqs, i);
        for (size_t j = 0; j < json_array_size(members); j++) {
            int32_t seq = number_at(members, j);
            if (seq < 0 || (uint32_t)seq >= p->n_sequences || position < 0 ||
                position >= REPLAY_POSITIONS) {
                replay_fail(outcome, "sequence %" PRId32 " at %" PRId32 " is beyond the replayer",
                            seq, position);
                return;
            }
            row_of(p, seq)[position] = true;
        }
    }
}

/* Move positions of a sequence: by `delta` or, if it is not 0, divided by `divisor`. */
static void move(replay_positions *p, const json_t *step, int32_t delta, int32_t divisor)
{
    bool *row = row_of(p, argument(step, 0)), moved[REPLAY_POSITIONS] = {false};
    int32_t first, last;
    range_of(step, 1, &first, &last);
    for (int32_t i = 0; i < REPLAY_POSITIONS; i++) {
        bool is_moved = i >= first && i < last;
        int32_t to = !is_moved ? i : divisor != 0 ? i / divisor : i + delta;
        if (row[i] && to >= 0 && to < REPLAY_POSITIONS) {
            moved[to] = true;
        }
    }
    memcpy(row, moved, sizeof moved);
}

static void remove_range(replay_positions *p, const json_t *step)
{
    int32_t seq = argument(step, 0), first, last;
    range_of(step, 1, &first, &last);
    for (int32_t s = 0; s < (int32_t)p->n_sequences; s++) {
        if (seq < 0 || s == seq) {
            for (int32_t i = first; i < last; i++)
                row_of(p, s)[i] = false;
        }
    }
}

static void copy_range(replay_positions *p, const json_t *step)
{
    const bool *from = row_of(p, argument(step, 0));
    bool *to = row_of(p, argument(step, 1));
    int32_t first, last;
    range_of(step, 2, &first, &last);
    for (int32_t i = first; i < last; i++) {
        to[i] |= from[i];
    }
}

static void keep(replay_positions *p, int32_t seq)
{
    for (int32_t s = 0; s < (int32_t)p->n_sequences; s++) {
        if (s != seq) memset(row_of(p, s), 0, REPLAY_POSITIONS * sizeof *p->held);
    }
}

static bool has_known_sequences(const replay_positions *p, const json_t *step, const char *op)
{
    size_t n = strcmp(op, "seq_cp") == 0 ? 2 : strncmp(op, "seq", 3) == 0 ? 1 : 0;
    if (strncmp(op, "state_seq", 9) == 0) n = 1;
    for (size_t i = 0; i < n; i++) {
        int32_t seq = argument(step, i);
        bool may_be_any = strcmp(op, "seq_rm") == 0 && seq == -1;
        if (!may_be_any && (seq < 0 || (uint32_t)seq >= p->n_sequences)) return false;
    }
    return true;
}

void replay_positions_apply(replay_positions *p, const json_t *step, replay_outcome *outcome)
{
    const char *op = json_string_value(json_object_get(step, "op"));
    const size_t all = (size_t)p->n_sequences * REPLAY_POSITIONS, one = REPLAY_POSITIONS;
    if (!has_known_sequences(p, step, op)) {
        replay_fail(outcome, "%s names a sequence that there is not", op);
    } else if (strcmp(op, "decode") == 0) {
        add_tokens(p, step, outcome);
    } else if (strcmp(op, "seq_rm") == 0) {
        if (json_is_true(json_object_get(step, "ret"))) remove_range(p, step);
    } else if (strcmp(op, "seq_cp") == 0) {
        copy_range(p, step);
    } else if (strcmp(op, "seq_keep") == 0) {
        keep(p, argument(step, 0));
    } else if (strcmp(op, "seq_add") == 0) {
        move(p, step, argument(step, 3), 0);
    } else if (strcmp(op, "seq_div") == 0) {
        move(p, step, 0, argument(step, 3));
    } else if (strcmp(op, "clear") == 0) {
        memset(p->held, 0, all);
    } else if (strcmp(op, "state_save") == 0) {
        memcpy(p->saved, p->held, all);
    } else if (strcmp(op, "state_load") == 0) {
        memcpy(p->held, p->saved, all);
    } else if (strcmp(op, "state_seq_save") == 0) {
        memcpy(p->saved_sequence, row_of(p, argument(step, 0)), one);
    } else if (strcmp(op, "state_seq_load") == 0) {
        memcpy(row_of(p, argument(step, 0)), p->saved_sequence, one);
    }
}

/* ---- the check ------------------------------------------------------------------------------ */

bool replay_positions_are_windowed(const model *m)
{
    for (uint32_t i = 0; i < m->n_memory_layers; i++) {
        if (m->memory_layers[i].window.kind != CELLAR_WINDOW_NONE) return true;
    }
    return false;
}

static int32_t largest_window(const model *m, bool *is_everywhere)
{
    uint32_t size = 0;
    *is_everywhere = true;
    for (uint32_t i = 0; i < m->n_memory_layers; i++) {
        const cellar_window *window = &m->memory_layers[i].window;
        *is_everywhere &= window->kind != CELLAR_WINDOW_NONE;
        size = window->kind != CELLAR_WINDOW_NONE && window->size > size ? window->size : size;
    }
    return (int32_t)size;
}

static int32_t smallest(const bool *row)
{
    int32_t i = 0;
    while (i < REPLAY_POSITIONS && !row[i])
        i++;
    return i < REPLAY_POSITIONS ? i : -1;
}

static int32_t largest(const bool *row)
{
    int32_t i = REPLAY_POSITIONS - 1;
    while (i >= 0 && !row[i])
        i--;
    return i;
}

void replay_positions_check(const replay_positions *p, const model *m, const cellar_memory *memory,
                            const json_t *min, replay_outcome *outcome)
{
    bool is_everywhere;
    int32_t size = largest_window(m, &is_everywhere);
    for (int32_t s = 0; s < (int32_t)p->n_sequences; s++) {
        int32_t first = smallest(row_of(p, s)), last = largest(row_of(p, s)), latest = first;
        if (!replay_attends(m)) {
            first = latest =
                last; /* a state is that after the last token, and nothing else is held */
        }
        int32_t begin = last + 1 - size + 1; /* of what the next token looks at */
        if (is_everywhere) {
            latest = begin > number_at(min, (size_t)s) ? begin : number_at(min, (size_t)s);
            latest = latest > first ? latest : first;
        }
        int32_t found_min = cellar_position_min(memory, s);
        int32_t found_max = cellar_position_max(memory, s);
        if (found_max != last || found_min < first || found_min > latest) {
            replay_fail(outcome,
                        "sequence %" PRId32 " holds %" PRId32 "..%" PRId32
                        ", expected from %" PRId32 " or up to %" PRId32 " to %" PRId32,
                        s, found_min, found_max, first, latest, last);
        }
        cellar_error error;
        if (last >= 0 && cellar_can_continue(memory, s, last + 1, NULL, &error) != CELLAR_OK) {
            replay_fail(outcome, "sequence %" PRId32 " cannot be continued at %" PRId32 ": %s", s,
                        last + 1, error.message);
        }
    }
}
