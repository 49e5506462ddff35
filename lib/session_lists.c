/*
 * session_lists.c: the lists of a selection, in their order, numbered and written.
 *
 * Lists are passed over in the same order for both, by one function. A list is told twice: once to count
 * its runs, which stand in front of them, once to write them.
 */
#include "session_lists.h"

#include "error.h"
#include "sort.h"

/* ---- who -------------------------------------------------------------------------------------- */

static bool exists(const cellar_memory *memory, cellar_seq seq)
{
    for (uint32_t g = 0; g < memory->n_groups; g++)
        if (cl_sequence_table_find(&memory->groups[g].sequences.table, seq) != CL_NO_SLOT)
            return true;
    return false;
}

static cellar_status get_names(cl_selection *s, uint64_t n, cl_alloc *alloc, cellar_error *error)
{
    if (n == 0) return CELLAR_OK;
    if (n <= UINT32_MAX)
        s->sequences = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, n * sizeof *s->sequences);
    if (!s->sequences) return cl_error_no_memory(error, "a list of sequences", (size_t)n * 8);
    s->capacity = (uint32_t)n;
    return CELLAR_OK;
}

static cellar_status choose_given(cl_selection *s, const cellar_seq *given, uint32_t n,
                                  cl_alloc *alloc, cellar_error *error)
{
    CL_TRY(get_names(s, n, alloc, error));
    for (uint32_t i = 0; i < n; i++) {
        CL_TRY(cl_memory_check_seq(given[i], error));
        if (!exists(s->memory, given[i]))
            CL_FAIL(error, CELLAR_NOT_FOUND, given[i], "sequence %d does not exist", (int)given[i]);
        s->sequences[s->n_sequences++] = given[i];
    }
    cl_sort(s->sequences, n);
    for (uint32_t i = 1; i < n; i++)
        if (s->sequences[i] == s->sequences[i - 1])
            CL_FAIL(error, CELLAR_INVALID, s->sequences[i], "sequence %d is named twice",
                    (int)s->sequences[i]);
    return CELLAR_OK;
}

static cellar_status choose_all(cl_selection *s, cl_alloc *alloc, cellar_error *error)
{
    uint64_t most = 0;
    for (uint32_t g = 0; g < s->memory->n_groups; g++)
        most += s->memory->groups[g].sequences.table.n;
    CL_TRY(get_names(s, most, alloc, error));
    uint32_t n = 0;
    for (uint32_t g = 0; g < s->memory->n_groups; g++) {
        const cl_sequence_table *table = &s->memory->groups[g].sequences.table;
        for (uint32_t slot = 0; slot < table->n_slots; slot++)
            if (table->items[slot].id >= 0) s->sequences[n++] = table->items[slot].id;
    }
    cl_sort(s->sequences, n);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || s->sequences[i] != s->sequences[s->n_sequences - 1])
            s->sequences[s->n_sequences++] = s->sequences[i];
    return CELLAR_OK;
}

static const cl_runs *marks_of(const cl_selection *s, uint32_t i)
{
    return cl_sequence_table_runs(&s->memory->checkpoints.sequences.table,
                                  (cellar_seq)s->sequences[i]);
}

static cellar_status choose_checkpoints(cl_selection *s, cl_alloc *alloc, cellar_error *error)
{
    size_t n = s->memory->checkpoints.n;
    if (n == 0) return CELLAR_OK;
    s->checkpoints = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, 2 * n * sizeof *s->checkpoints);
    if (!s->checkpoints)
        return cl_error_no_memory(error, "a list of checkpoints", 2 * n * sizeof(uint32_t));
    s->numbers = s->checkpoints + n;
    for (size_t i = 0; i < n; i++)
        s->numbers[i] = UINT32_MAX;
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        const cl_runs *marks = marks_of(s, i);
        for (uint32_t r = 0; r < marks->n; r++)
            for (uint32_t k = 0; k < marks->items[r].len; k++) {
                uint32_t slot = marks->items[r].cell + k;
                if (s->numbers[slot] != UINT32_MAX) continue;
                s->numbers[slot] = s->n_checkpoints;
                s->checkpoints[s->n_checkpoints++] = slot;
            }
    }
    return CELLAR_OK;
}

cellar_status cl_selection_make(cl_selection *selection, const cellar_memory *memory,
                                const cellar_seq *sequences, uint32_t n_sequences, cl_alloc *alloc,
                                cellar_error *error)
{
    *selection = (cl_selection){.memory = memory};
    cellar_status status = sequences ? choose_given(selection, sequences, n_sequences, alloc, error)
                                     : choose_all(selection, alloc, error);
    if (status == CELLAR_OK) status = choose_checkpoints(selection, alloc, error);
    if (status != CELLAR_OK) cl_selection_free(selection, alloc);
    return status;
}

void cl_selection_free(cl_selection *selection, cl_alloc *alloc)
{
    if (selection->checkpoints)
        cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, selection->checkpoints,
                     2 * (size_t)selection->memory->checkpoints.n * sizeof(uint32_t));
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, selection->sequences,
                 selection->capacity * sizeof *selection->sequences);
    *selection = (cl_selection){.memory = selection->memory};
}

uint32_t cl_selection_find(const cl_selection *selection, cellar_seq seq)
{
    uint32_t low = 0, high = selection->n_sequences;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (selection->sequences[middle] < seq)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_there = low < selection->n_sequences && selection->sequences[low] == seq;
    return is_there ? low : selection->n_sequences;
}

/* ---- numbering --------------------------------------------------------------------------------- */

/*
 * Write the lists of one group to out (if not NULL), in the order of numbering: a sequence's, then those of
 * checkpoints that were not named before. Returns how many.
 */
static size_t collect_lists(const cl_selection *s, uint32_t group, const cl_runs **out)
{
    size_t n = 0;
    uint32_t n_named = 0;
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        if (out) out[n] = cl_memory_runs(s->memory, group, (cellar_seq)s->sequences[i]);
        n++;
        const cl_runs *marks = marks_of(s, i);
        for (uint32_t r = 0; r < marks->n; r++)
            for (uint32_t k = 0; k < marks->items[r].len; k++) {
                uint32_t slot = marks->items[r].cell + k;
                if (s->numbers[slot] != n_named) continue;
                n_named++;
                if (out) out[n] = &cl_checkpoints_pin(&s->memory->checkpoints, slot, group)->runs;
                n++;
            }
    }
    return n;
}

cellar_status cl_selection_map(const cl_selection *selection, uint32_t group,
                               const cl_known_cells *known, cl_session_map *map, cl_alloc *alloc,
                               cellar_error *error)
{
    size_t n = collect_lists(selection, group, NULL), bytes = n * sizeof(cl_runs *);
    const cl_runs **lists = NULL;
    if (n > 0) {
        lists = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, bytes);
        if (!lists) return cl_error_no_memory(error, "the lists of a session", bytes);
        (void)collect_lists(selection, group, lists);
    }
    cellar_status status = cl_session_map_make(map, lists, n, known, alloc, error);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, (void *)lists, bytes);
    return status;
}

/* ---- writing ------------------------------------------------------------------------------------ */

static void put_run(void *context, const cl_run *run)
{
    unsigned char bytes[CL_SESSION_RUN], *to = bytes;
    to = cl_put_i32(to, run->pos);
    to = cl_put_u32(to, run->cell);
    to = cl_put_u32(to, run->len | (uint32_t)run->step << 31);
    cl_put_i32(to, run->shift);
    cl_sink_put(context, bytes, sizeof bytes);
}

static void put_list(cl_sink *sink, const cl_session_map *map, uint32_t lost, const cl_runs *runs)
{
    cl_sink_put_u32(sink, lost);
    cl_sink_put_u32(sink, cl_session_map_visit(map, runs, NULL, NULL));
    (void)cl_session_map_visit(map, runs, put_run, sink);
}

/* What is out of sight of a query at n is no part of a checkpoint there. */
static uint32_t lost_before(const cl_group *group, int64_t n)
{
    if (!cl_group_has_window(group)) return 0;
    int64_t first = cl_window_first(&group->window, n);
    return first > (int64_t)group->window.n_sinks ? (uint32_t)first : 0;
}

/* Up to where a sequence has lost something (bit 31: also where sinks belong), or where it began. */
static uint32_t lost_by(const cl_group *group, cellar_seq seq)
{
    const cl_sequence_table *table = &group->sequences.table;
    uint32_t slot = cl_sequence_table_find(table, seq);
    if (slot == CL_NO_SLOT) return 0;
    if (group->kind == CELLAR_LAYER_RECURRENT) return (uint32_t)table->items[slot].begin;
    const cl_runs *lost = &table->items[slot].lost;
    bool has_gaps = lost->n > 0 && lost->items[0].pos < (int64_t)group->window.n_sinks;
    return (uint32_t)cl_lost_end(lost) | (uint32_t)has_gaps << 31;
}

static void put_checkpoint(const cl_selection *s, uint32_t i, const cl_session_map *maps,
                           cl_sink *sink)
{
    const cl_checkpoints *checkpoints = &s->memory->checkpoints;
    uint32_t slot = s->checkpoints[i];
    int32_t position = checkpoints->sequences.cells.stored_pos[slot] + 1;
    cl_sink_put_u32(sink, (uint32_t)position);
    for (uint32_t g = 0; g < s->memory->n_groups; g++) {
        const cl_pin *pin = cl_checkpoints_pin(checkpoints, slot, g);
        put_list(sink, &maps[g], lost_before(&s->memory->groups[g], position), &pin->runs);
    }
}

static void put_marks(const cl_selection *s, const cl_runs *marks, cl_sink *sink)
{
    for (uint32_t r = 0; r < marks->n; r++)
        for (uint32_t k = 0; k < marks->items[r].len; k++) {
            const cl_run *run = &marks->items[r];
            cl_sink_put_u32(sink, s->numbers[run->cell + k]);
            cl_sink_put_u32(sink, (uint32_t)run->pos + (run->step ? k : 0) + 1);
        }
}

static void put_sequence(const cl_selection *s, uint32_t i, const cl_session_map *maps,
                         cl_sink *sink)
{
    cellar_seq seq = (cellar_seq)s->sequences[i];
    const cl_runs *marks = marks_of(s, i);
    uint32_t n_marks = 0;
    for (uint32_t r = 0; r < marks->n; r++)
        n_marks += marks->items[r].len;
    cl_sink_put_u32(sink, (uint32_t)seq);
    cl_sink_put_u32(sink, n_marks);
    for (uint32_t g = 0; g < s->memory->n_groups; g++) {
        const cl_group *group = &s->memory->groups[g];
        put_list(sink, &maps[g], lost_by(group, seq), cl_group_runs(group, seq));
    }
    put_marks(s, marks, sink);
}

void cl_selection_put(const cl_selection *selection, const cl_session_map *maps, cl_sink *sink)
{
    cl_sink_put_u32(sink, selection->n_checkpoints);
    cl_sink_put_u32(sink, selection->n_sequences);
    for (uint32_t i = 0; i < selection->n_checkpoints; i++)
        put_checkpoint(selection, i, maps, sink);
    for (uint32_t i = 0; i < selection->n_sequences; i++)
        put_sequence(selection, i, maps, sink);
}
