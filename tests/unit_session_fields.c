/*
 * unit_session_fields.c: every field of a session file, given values that it must not have.
 *
 * One change at a time is made in a good file, all checksums are made right, and the file is loaded into
 * a memory with sequences of its own. The table says which status has to come of it and a word of the
 * message; where it says CELLAR_OK the change is legal, or does no harm. After each the memory is as it was,
 * no more was allocated than the file's size and a megabyte, and at the end the good file still loads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "support_session_case.h"

#define MOST 0xffffffffu

/* ---- where a field is ------------------------------------------------------------------------------ */

/* Behind a list of notes that begins at `at`. */
static size_t behind_notes(const part *p, size_t at)
{
    uint32_t n = part_get(p, at);
    at += 4;
    while (n-- > 0)
        at += 8 + ((size_t)part_get(p, at) + part_get(p, at + 4) + 3) / 4 * 4;
    return at;
}

static part *in_model(parts *p, size_t *at)
{
    *at = 0;
    return parts_find(p, CL_SESSION_MODEL, 0, 0);
}

/* From the number of groups on. */
static part *in_groups(parts *p, size_t *at)
{
    part *model = parts_find(p, CL_SESSION_MODEL, 0, 0);
    *at = behind_notes(model, 0);
    return model;
}

/* From the number of layers on. */
static part *in_layers(parts *p, size_t *at)
{
    part *model = in_groups(p, at);
    *at += 4 + 20 * (size_t)part_get(model, *at);
    return model;
}

static part *in_layer_0(parts *p, size_t *at)
{
    part *model = in_layers(p, at);
    *at += 4;
    return model;
}

static part *in_layer_1(parts *p, size_t *at)
{
    part *model = in_layer_0(p, at);
    *at += 160;
    return model;
}

static part *in_notes(parts *p, size_t *at)
{
    *at = 0;
    return parts_find(p, CL_SESSION_NOTES, 0, 0);
}

static part *in_cells(parts *p, size_t *at)
{
    *at = 0;
    return parts_find(p, CL_SESSION_CELLS, 0, 0);
}

static part *in_states(parts *p, size_t *at)
{
    *at = 0;
    return parts_find(p, CL_SESSION_CELLS, 1, 0);
}

static part *in_sequences(parts *p, size_t *at)
{
    *at = 0;
    return parts_find(p, CL_SESSION_SEQUENCES, 0, 0);
}

static size_t behind_lists(const part *p, size_t at, uint32_t n)
{
    while (n-- > 0)
        at += 8 + 16 * (size_t)part_get(p, at + 4);
    return at;
}

/* Checkpoint i; behind them, sequence i - n_checkpoints. */
static part *in_entry(parts *p, size_t *at, uint32_t i)
{
    size_t groups;
    const part *model = in_groups(p, &groups);
    uint32_t n_groups = part_get(model, groups);
    part *s = in_sequences(p, at);
    uint32_t n_checkpoints = part_get(s, 0);
    *at = 8;
    for (uint32_t k = 0; k < i; k++) {
        uint32_t n_marks = k < n_checkpoints ? 0 : part_get(s, *at + 4);
        *at = behind_lists(s, *at + (k < n_checkpoints ? 4 : 8), n_groups) + 8 * (size_t)n_marks;
    }
    return s;
}

static part *in_checkpoint(parts *p, size_t *at)
{
    return in_entry(p, at, 0);
}

/* The checkpoint's list of group 1. */
static part *in_pin(parts *p, size_t *at)
{
    part *s = in_checkpoint(p, at);
    *at = behind_lists(s, *at + 4, 1);
    return s;
}

static part *in_long(parts *p, size_t *at)
{
    return in_entry(p, at, part_get(in_sequences(p, at), 0));
}

static part *in_fork(parts *p, size_t *at)
{
    return in_entry(p, at, part_get(in_sequences(p, at), 0) + 1);
}

/* Lists of the long sequence: of group 0 and of group 1; and behind them its marks. */
static part *in_list(parts *p, size_t *at)
{
    part *s = in_long(p, at);
    *at += 8;
    return s;
}

static part *in_list_1(parts *p, size_t *at)
{
    part *s = in_list(p, at);
    *at = behind_lists(s, *at, 1);
    return s;
}

static part *in_marks(parts *p, size_t *at)
{
    part *s = in_list(p, at);
    *at = behind_lists(s, *at, 2);
    return s;
}

static part *in_fork_list(parts *p, size_t *at)
{
    part *s = in_fork(p, at);
    *at += 8;
    return s;
}

/* ---- numbers ----------------------------------------------------------------------------------------- */

typedef part *finder(parts *p, size_t *at);

typedef struct number {
    const char *name;
    case_shape shape;
    finder *find;
    uint32_t offset;
    char how; /* '=' or '+' */
    uint32_t value;
    cellar_status status;
    const char *says; /* part of the message, or NULL */
} number;

/* Runs of the long sequence begin 8 behind its list: position, cell, length and step, shift. */
static const number numbers[] = {
    /* MODEL */
    {"facts: 2^32-1", CASE_PLAIN, in_model, 0, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a fact's name of 0 bytes", CASE_PLAIN, in_model, 4, '=', 0, CELLAR_CORRUPT, "name"},
    {"a fact's name of 256 bytes", CASE_PLAIN, in_model, 4, '=', 256, CELLAR_CORRUPT, NULL},
    {"a fact's name of 2^32-1 bytes", CASE_PLAIN, in_model, 4, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a fact's value of 2^32-1 bytes", CASE_PLAIN, in_model, 8, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a NUL in a fact's name", CASE_PLAIN, in_model, 12, '=', 0x00616161, CELLAR_CORRUPT, "name"},
    {"a fact with another name", CASE_PLAIN, in_model, 12, '+', 1, CELLAR_MISMATCH, "fact"},
    {"a fact with another value", CASE_PLAIN, in_model, 24, '+', 1, CELLAR_MISMATCH,
     "architecture"},
    {"one fact less", CASE_PLAIN, in_model, 0, '+', MOST, CELLAR_CORRUPT, NULL},
    {"groups: 0", CASE_PLAIN, in_groups, 0, '=', 0, CELLAR_CORRUPT, "group"},
    {"groups: 17", CASE_PLAIN, in_groups, 0, '=', 17, CELLAR_CORRUPT, "group"},
    {"groups: 2^32-1", CASE_PLAIN, in_groups, 0, '=', MOST, CELLAR_CORRUPT, "group"},
    {"a group of an unknown kind", CASE_PLAIN, in_groups, 4, '=', 3, CELLAR_CORRUPT, NULL},
    {"a group with a window that no layer has", CASE_WINDOW, in_groups, 32, '+', 1, CELLAR_CORRUPT,
     NULL},
    {"2-D positions where no layer uses them", CASE_PLAIN, in_groups, 20, '=', 1, CELLAR_CORRUPT,
     "2-D"},
    {"no 2-D positions where layers use them", CASE_PICTURE, in_groups, 20, '=', 0, CELLAR_CORRUPT,
     "2-D"},
    {"layers: 0", CASE_PLAIN, in_layers, 0, '=', 0, CELLAR_CORRUPT, "layers"},
    {"layers: one less", CASE_PLAIN, in_layers, 0, '+', MOST, CELLAR_CORRUPT, "layers"},
    {"layers: one more", CASE_PLAIN, in_layers, 0, '+', 1, CELLAR_CORRUPT, "layers"},
    {"layers: 2^32-1", CASE_PLAIN, in_layers, 0, '=', MOST, CELLAR_CORRUPT, "layers"},
    {"a layer of an unknown kind", CASE_PLAIN, in_layer_0, 0, '=', 255, CELLAR_CORRUPT, NULL},
    {"a layer of no such group", CASE_PLAIN, in_layer_0, 4, '=', 1, CELLAR_CORRUPT, NULL},
    {"a layer of group -2", CASE_PLAIN, in_layer_0, 4, '=', MOST - 1, CELLAR_CORRUPT, NULL},
    {"a layer that reads itself", CASE_PLAIN, in_layer_1, 8, '=', 1, CELLAR_CORRUPT, NULL},
    {"a layer that reads one behind", CASE_PLAIN, in_layer_0, 8, '=', 1, CELLAR_CORRUPT, NULL},
    {"a layer that reads layer 2^31-1", CASE_PLAIN, in_layer_1, 8, '=', INT32_MAX, CELLAR_CORRUPT,
     NULL},
    {"an unknown flag", CASE_PLAIN, in_layer_0, 12, '=', 17, CELLAR_CORRUPT, NULL},
    {"query heads: 0", CASE_PLAIN, in_layer_0, 16, '=', 0, CELLAR_CORRUPT, NULL},
    {"query heads: 3 more", CASE_PLAIN, in_layer_0, 16, '+', 3, CELLAR_MISMATCH, "n_heads"},
    {"K/V heads: 2^32-1", CASE_PLAIN, in_layer_0, 20, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a K head one longer", CASE_PLAIN, in_layer_0, 24, '+', 1, CELLAR_CORRUPT, NULL},
    {"a K head of 2^32-1 elements", CASE_PLAIN, in_layer_0, 24, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a V head one longer", CASE_PLAIN, in_layer_0, 28, '+', 1, CELLAR_CORRUPT, NULL},
    {"a V head of 0 elements", CASE_PLAIN, in_layer_0, 28, '=', 0, CELLAR_CORRUPT, NULL},
    {"row type 255", CASE_PLAIN, in_layer_0, 32, '=', 255, CELLAR_CORRUPT, NULL},
    {"row type 2^32-1", CASE_PLAIN, in_layer_0, 36, '=', MOST, CELLAR_CORRUPT, NULL},
    {"another row type", CASE_PLAIN, in_layer_0, 32, '=', CELLAR_F16, CELLAR_CORRUPT, NULL},
    {"the scale is NaN", CASE_PLAIN, in_layer_0, 40, '=', 0x7fc00000, CELLAR_CORRUPT, NULL},
    {"the scale is another", CASE_PLAIN, in_layer_0, 40, '+', 1, CELLAR_MISMATCH, "scale"},
    {"the soft cap is -1", CASE_PLAIN, in_layer_0, 44, '=', 0xbf800000, CELLAR_CORRUPT, NULL},
    {"the soft cap is another", CASE_PLAIN, in_layer_0, 44, '=', 0x42000000, CELLAR_MISMATCH,
     "softcap"},
    {"a field that is zero is not", CASE_PLAIN, in_layer_0, 52, '=', 1, CELLAR_CORRUPT, NULL},
    {"a window where there is none", CASE_PLAIN, in_layer_0, 56, '=', 1, CELLAR_CORRUPT, NULL},
    {"a rope of an unknown kind", CASE_PLAIN, in_layer_0, 68, '=', 9, CELLAR_CORRUPT, NULL},
    {"another kind of rope", CASE_WINDOW, in_layer_0, 68, '=', 1, CELLAR_MISMATCH, "kind"},
    {"more rotating elements than there are", CASE_PLAIN, in_layer_0, 72, '=', 6, CELLAR_CORRUPT,
     NULL},
    {"fewer rotating elements", CASE_WINDOW, in_layer_0, 72, '=', 2, CELLAR_MISMATCH, "n_rot"},
    {"another base", CASE_WINDOW, in_layer_0, 100, '+', 16, CELLAR_MISMATCH, "base"},
    {"a base that is no number", CASE_PLAIN, in_layer_0, 100, '=', 0x7ff80000, CELLAR_CORRUPT,
     NULL},
    {"factors that are not there", CASE_PLAIN, in_layer_1, 148, '=', 2, CELLAR_CORRUPT, NULL},
    {"factors: 2^32-1", CASE_PLAIN, in_layer_0, 148, '=', MOST, CELLAR_CORRUPT, NULL},
    {"states: 2^32-1", CASE_HYBRID, in_layer_1, 152, '=', MOST, CELLAR_CORRUPT, NULL},
    {"states: one less", CASE_HYBRID, in_layer_1, 152, '+', MOST, CELLAR_CORRUPT, NULL},
    {"a state of 0 numbers", CASE_HYBRID, in_layer_1, 160, '=', 0, CELLAR_CORRUPT, NULL},
    {"a state of another size", CASE_HYBRID, in_layer_1, 160, '+', 1, CELLAR_CORRUPT, NULL},
    {"a state of 2^32-1 numbers", CASE_HYBRID, in_layer_1, 164, '=', MOST, CELLAR_CORRUPT, NULL},
    /* NOTES */
    {"notes: 2^32-1", CASE_PLAIN, in_notes, 0, '=', MOST, CELLAR_CORRUPT, NULL},
    {"notes: one less", CASE_PLAIN, in_notes, 0, '=', 1, CELLAR_CORRUPT, NULL},
    {"notes: one more", CASE_PLAIN, in_notes, 0, '=', 3, CELLAR_CORRUPT, NULL},
    {"a note's value of 16 MiB + 1", CASE_PLAIN, in_notes, 8, '=', (16u << 20) + 1, CELLAR_CORRUPT,
     NULL},
    {"a note's value of 2^32-1", CASE_PLAIN, in_notes, 8, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a control character in a note's name", CASE_PLAIN, in_notes, 12, '=', 0x07616161,
     CELLAR_CORRUPT, "name"},
    {"a note's name that is no UTF-8", CASE_PLAIN, in_notes, 12, '=', 0xff616161, CELLAR_CORRUPT,
     "name"},
    {"a note of another name", CASE_PLAIN, in_notes, 12, '=', 0x61616161, CELLAR_OK, NULL},
    /* CELLS */
    {"stored position -1", CASE_PLAIN, in_cells, 0, '=', MOST, CELLAR_CORRUPT, "position"},
    {"stored position 2^31-1", CASE_PLAIN, in_cells, 8, '=', INT32_MAX, CELLAR_CORRUPT, "position"},
    {"another stored position", CASE_PLAIN, in_cells, 12, '+', 1, CELLAR_CORRUPT, "stored"},
    {"another stored position of a state", CASE_HYBRID, in_states, 0, '+', 1, CELLAR_CORRUPT, NULL},
    {"token -1", CASE_PLAIN, in_cells, 24 * 4, '=', MOST, CELLAR_OK, NULL},
    {"token 2^31-1", CASE_PLAIN, in_cells, 24 * 4, '=', INT32_MAX, CELLAR_OK, NULL},
    {"a point far away", CASE_PICTURE, in_cells, 30 * 8, '=', 0x7fff7fff, CELLAR_OK, NULL},
    /* SEQUENCES: counts and names */
    {"checkpoints: 1 without any", CASE_PLAIN, in_sequences, 0, '=', 1, CELLAR_CORRUPT, NULL},
    {"checkpoints: 2^32-1", CASE_WINDOW, in_sequences, 0, '=', MOST, CELLAR_CORRUPT, NULL},
    {"checkpoints: one less", CASE_WINDOW, in_sequences, 0, '+', MOST, CELLAR_CORRUPT, NULL},
    {"sequences: 0", CASE_PLAIN, in_sequences, 4, '=', 0, CELLAR_CORRUPT, NULL},
    {"sequences: 1", CASE_PLAIN, in_sequences, 4, '=', 1, CELLAR_CORRUPT, NULL},
    {"sequences: 3", CASE_PLAIN, in_sequences, 4, '=', 3, CELLAR_CORRUPT, NULL},
    {"sequences: 2^31", CASE_PLAIN, in_sequences, 4, '=', 1u << 31, CELLAR_CORRUPT, NULL},
    {"sequences: 2^32-1", CASE_PLAIN, in_sequences, 4, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a sequence called -1", CASE_PLAIN, in_long, 0, '=', MOST, CELLAR_CORRUPT, "name"},
    {"two sequences of one name", CASE_PLAIN, in_fork, 0, '=', CASE_LONG, CELLAR_CORRUPT, "name"},
    {"names that fall", CASE_PLAIN, in_fork, 0, '=', 1, CELLAR_CORRUPT, "name"},
    /* lists and runs */
    {"lost: -1", CASE_WINDOW, in_list_1, 0, '=', MOST, CELLAR_CORRUPT, "lost"},
    {"lost, where nothing is", CASE_PLAIN, in_list, 0, '=', 3, CELLAR_CORRUPT, "lost"},
    {"lost behind a window", CASE_WINDOW, in_list_1, 0, '=', 3, CELLAR_OK, NULL},
    {"all is lost", CASE_WINDOW, in_list_1, 0, '=', INT32_MAX, CELLAR_CORRUPT, "lost"},
    {"runs: 0, but bytes follow", CASE_PLAIN, in_list, 4, '=', 0, CELLAR_CORRUPT, NULL},
    {"runs: 2^32-1", CASE_PLAIN, in_list, 4, '=', MOST, CELLAR_CORRUPT, NULL},
    {"runs: so many that their bytes wrap", CASE_PLAIN, in_list, 4, '=', 1u << 28, CELLAR_CORRUPT,
     NULL},
    {"a run at -1", CASE_PLAIN, in_list, 8, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a run at 2^31-1", CASE_PLAIN, in_list, 8, '=', INT32_MAX, CELLAR_CORRUPT, NULL},
    {"a run that leaves the range", CASE_PLAIN, in_list, 8, '=', INT32_MAX - 10, CELLAR_CORRUPT,
     NULL},
    {"a run elsewhere", CASE_PLAIN, in_list, 8, '=', 1, CELLAR_CORRUPT, "shift"},
    {"a run of cells that are not there", CASE_PLAIN, in_list, 12, '=', 10, CELLAR_CORRUPT, "cell"},
    {"a run from cell 2^31-1", CASE_PLAIN, in_list, 12, '=', INT32_MAX, CELLAR_CORRUPT, "cell"},
    {"a run from cell 2^32-1", CASE_PLAIN, in_list, 12, '=', MOST, CELLAR_CORRUPT, "cell"},
    {"an empty run", CASE_PLAIN, in_list, 16, '=', 1u << 31, CELLAR_CORRUPT, NULL},
    {"a run of 2^31-1 cells", CASE_PLAIN, in_list, 16, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a run one too long", CASE_PLAIN, in_list, 16, '+', 5, CELLAR_CORRUPT, NULL},
    {"a shorter run", CASE_PLAIN, in_list, 16, '+', MOST, CELLAR_OK, NULL},
    {"one cell at a standstill", CASE_PLAIN, in_list, 16, '=', 1, CELLAR_CORRUPT, "step"},
    {"all at one position", CASE_PLAIN, in_list, 16, '=', 20, CELLAR_CORRUPT, "shift"},
    {"a shift that is not so", CASE_PLAIN, in_list, 20, '=', 1, CELLAR_CORRUPT, "shift"},
    {"a shift of 2^31", CASE_PLAIN, in_list, 20, '=', 1u << 31, CELLAR_CORRUPT, "shift"},
    {"runs that overlap", CASE_PLAIN, in_fork_list, 24, '+', MOST, CELLAR_CORRUPT, NULL},
    {"runs that fall", CASE_PLAIN, in_fork_list, 24, '=', 0, CELLAR_CORRUPT, NULL},
    {"a gap", CASE_PLAIN, in_fork_list, 16, '+', MOST, CELLAR_OK, NULL},
    /* states */
    {"a state that stands elsewhere", CASE_HYBRID, in_list_1, 8, '+', MOST, CELLAR_CORRUPT, NULL},
    {"a state behind the end", CASE_HYBRID, in_list_1, 8, '+', 1, CELLAR_CORRUPT, NULL},
    {"a state without its sequence's end", CASE_HYBRID, in_list, 16, '+', MOST, CELLAR_CORRUPT,
     "state"},
    {"two states at one position", CASE_HYBRID, in_list_1, 16, '=', 2, CELLAR_CORRUPT, NULL},
    /* checkpoints and marks */
    {"a checkpoint at 0", CASE_WINDOW, in_checkpoint, 0, '=', 0, CELLAR_CORRUPT, "checkpoint"},
    {"a checkpoint at -1", CASE_WINDOW, in_checkpoint, 0, '=', MOST, CELLAR_CORRUPT, "checkpoint"},
    {"a checkpoint behind the end", CASE_WINDOW, in_checkpoint, 0, '=', 2000, CELLAR_CORRUPT,
     "checkpoint"},
    {"a checkpoint at 2^31-1", CASE_WINDOW, in_checkpoint, 0, '=', INT32_MAX, CELLAR_CORRUPT,
     "checkpoint"},
    {"a state's checkpoint elsewhere", CASE_HYBRID, in_checkpoint, 0, '+', 1, CELLAR_CORRUPT,
     "checkpoint"},
    {"a checkpoint's cells behind it", CASE_WINDOW, in_checkpoint, 0, '=', 2, CELLAR_CORRUPT,
     "checkpoint"},
    {"a checkpoint has lost 2^31-1", CASE_WINDOW, in_pin, 0, '=', INT32_MAX, CELLAR_CORRUPT, NULL},
    {"marks: one less", CASE_WINDOW, in_long, 4, '+', MOST, CELLAR_CORRUPT, NULL},
    {"marks: 2^32-1", CASE_WINDOW, in_long, 4, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a mark of no checkpoint", CASE_WINDOW, in_marks, 8, '=', 2, CELLAR_CORRUPT, "checkpoint"},
    {"a mark of checkpoint 2^32-1", CASE_WINDOW, in_marks, 0, '=', MOST, CELLAR_CORRUPT,
     "checkpoint"},
    {"two marks of one checkpoint", CASE_WINDOW, in_marks, 8, '=', 0, CELLAR_CORRUPT, NULL},
    {"a mark at 0", CASE_WINDOW, in_marks, 4, '=', 0, CELLAR_CORRUPT, NULL},
    {"a mark at -1", CASE_WINDOW, in_marks, 4, '=', MOST, CELLAR_CORRUPT, NULL},
    {"a mark at 2^31-1", CASE_WINDOW, in_marks, 12, '=', INT32_MAX, CELLAR_CORRUPT, NULL},
    {"a mark behind the end", CASE_WINDOW, in_marks, 12, '=', 21, CELLAR_CORRUPT, "end"},
    {"marks at one position", CASE_WINDOW, in_marks, 12, '=', 8, CELLAR_CORRUPT, NULL},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

/* Take a file apart, change it, put it together, try it. */
static void expect(session_case *c, const parts *changed, const char *name, cellar_status want,
                   const char *says)
{
    parcel file = {0};
    parts_put(changed, &file);
    cellar_status got = case_try(c, file.bytes, file.size);
    if (got != want)
        fail_msg("%s: %s, not %s: %s", name, cellar_status_text(got), cellar_status_text(want),
                 c->error.message);
    if (got != CELLAR_OK && says && !strstr(c->error.message, says))
        fail_msg("%s: \"%s\" does not speak of \"%s\"", name, c->error.message, says);
    case_expect_unchanged(c, name);
    parcel_free(&file);
}

static void change_number(session_case *c, const number *n)
{
    parts all;
    size_t at;
    parts_take(&all, &c->file);
    part *which = n->find(&all, &at);
    at += n->offset;
    assert_true(at + 4 <= which->size);
    part_set(which, at, n->how == '+' ? part_get(which, at) + n->value : n->value);
    expect(c, &all, n->name, n->status, n->says);
    parts_free(&all);
}

static void every_number_is_held_against_the_rest(void **state)
{
    (void)state;
    for (case_shape shape = 0; shape < CASE_SHAPES; shape++) {
        session_case c;
        case_open(&c, shape);
        clock_t begin = clock();
        uint32_t n = 0;
        for (uint32_t i = 0; i < NUMBERS; i++)
            if (numbers[i].shape == shape) {
                change_number(&c, &numbers[i]);
                n++;
            }
        /* Ten milliseconds each, the comparisons included. */
        assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 0.01 * n);
        assert_int_equal(case_try(&c, c.file.bytes, c.file.size), CELLAR_OK);
        case_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_is_held_against_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
