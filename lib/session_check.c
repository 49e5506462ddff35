/*
 * session_check.c: cells and run lists of a session, read and held against each other.
 *
 * What is loaded later must always pass cellar_check, so everything that it asks of lists in memory is
 * asked here of lists in the file: runs in order, over cells that exist, whose stored positions say what
 * the shift says. Lists are read twice: once to count runs (each takes 16 bytes of the section, so their
 * number is bounded by it), then into arrays of that size. Offsets in messages are those of the file.
 */
#include "session.h"

#include "checked.h"
#include "error.h"

static cellar_status corrupt(cellar_error *error, uint64_t at, const char *what)
{
    CL_FAIL(error, CELLAR_CORRUPT, (int64_t)at, "%s", what);
}

/* n elements of `size` bytes that count as the session's; NULL and CELLAR_NO_MEMORY. */
static cellar_status take(cellar_session *session, void **out, uint64_t n, size_t size,
                          cellar_error *error)
{
    size_t bytes;
    *out = NULL;
    if (n == 0) return CELLAR_OK;
    if (n > SIZE_MAX || !cl_checked_mul((size_t)n, size, &bytes))
        return cl_error_no_memory(error, "a session", SIZE_MAX);
    *out = cl_alloc_get(&session->alloc, CELLAR_BYTES_SCRATCH, bytes);
    if (!*out) return cl_error_no_memory(error, "a session", bytes);
    memset(*out, 0, bytes);
    return CELLAR_OK;
}

static void put(cellar_session *session, void *block, uint64_t n, size_t size)
{
    if (block) cl_alloc_put(&session->alloc, CELLAR_BYTES_SCRATCH, block, (size_t)n * size);
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* Bytes of what CELLS says of one cell. */
static uint32_t label_bytes(const cl_saved_group *group)
{
    return group->has_points ? 12 : 8;
}

/* The ROWS section that belongs to CELLS section `cells`; *next: where its group's ROWS were found last. */
static cellar_status find_rows(const cellar_session *session, const cl_saved_group *group,
                               uint32_t cells, uint32_t *next, cl_session_entry *out,
                               cellar_error *error)
{
    const cl_session_entry *want = &session->entries[cells], *entry;
    do
        entry = *next < session->n_entries ? &session->entries[(*next)++] : NULL;
    while (entry && (entry->kind != CL_SESSION_ROWS || entry->part != want->part));
    if (!entry || entry->first != want->first || entry->count != want->count || entry < want)
        return corrupt(error, want->offset, "cells without rows behind them");
    if (group->cell_bytes == 0 || entry->length % group->cell_bytes != 0 ||
        entry->length / group->cell_bytes != entry->count)
        return corrupt(error, entry->offset, "rows do not have the size of their cells");
    *out = *entry;
    return CELLAR_OK;
}

static cellar_status count_sections(cellar_session *session, cellar_error *error)
{
    uint32_t n_rows = 0, n_cells = 0;
    for (uint32_t i = 0; i < session->n_entries; i++) {
        const cl_session_entry *entry = &session->entries[i];
        n_rows += entry->kind == CL_SESSION_ROWS;
        n_cells += entry->kind == CL_SESSION_CELLS;
        if (entry->kind != CL_SESSION_CELLS) continue;
        if (entry->part >= session->model.n_groups)
            return corrupt(error, entry->offset, "cells of a group that does not exist");
        session->model.groups[entry->part].n_sections++;
    }
    return n_rows == n_cells ? CELLAR_OK
                             : corrupt(error, session->commit.index_offset,
                                       "there are more or fewer sections of rows than of cells");
}

static cellar_status read_labels(cellar_session *session, const cl_saved_group *group,
                                 const cl_session_entry *entry, cl_saved_cells *cells,
                                 cellar_error *error)
{
    cl_section section;
    if (entry->length / label_bytes(group) != entry->count ||
        entry->length % label_bytes(group) != 0)
        return corrupt(error, entry->offset, "cells do not have the size that their number needs");
    void *stored_pos, *token, *points = NULL;
    CL_TRY(take(session, &stored_pos, entry->count, sizeof *cells->stored_pos, error));
    cells->stored_pos = stored_pos;
    cells->count = entry->count; /* from here on the arrays are found and freed */
    CL_TRY(take(session, &token, entry->count, sizeof *cells->token, error));
    cells->token = token;
    if (group->has_points)
        CL_TRY(take(session, &points, entry->count, sizeof *cells->points, error));
    cells->points = points;
    CL_TRY(cl_session_get_section(session, &session->alloc, entry, &section, error));
    const unsigned char *at = section.bytes;
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < entry->count; i++, at += 4) {
        cells->stored_pos[i] = (int32_t)cl_get_u32(at);
        if (cells->stored_pos[i] >= 0 && cells->stored_pos[i] < INT32_MAX) continue;
        status = corrupt(error, entry->offset + 4ull * i, "a cell is stored for no position");
        break;
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < entry->count; i++, at += 4)
        cells->token[i] = (int32_t)cl_get_u32(at);
    for (uint32_t i = 0; status == CELLAR_OK && cells->points && i < entry->count; i++, at += 4)
        cells->points[i] = (cl_point){(int16_t)cl_get_u16(at), (int16_t)cl_get_u16(at + 2)};
    cl_session_put_section(&session->alloc, &section);
    return status;
}

cellar_status cl_session_read_cells(cellar_session *session, cellar_error *error)
{
    CL_TRY(count_sections(session, error));
    for (uint32_t g = 0; g < session->model.n_groups; g++) {
        cl_saved_group *group = &session->model.groups[g];
        void *sections;
        CL_TRY(take(session, &sections, group->n_sections, sizeof *group->sections, error));
        group->sections = sections;
        group->n_cells = 0;
    }
    uint32_t n_done[CL_MAX_GROUPS] = {0}, next_rows[CL_MAX_GROUPS] = {0};
    for (uint32_t i = 0; i < session->n_entries; i++) {
        const cl_session_entry *entry = &session->entries[i];
        if (entry->kind != CL_SESSION_CELLS) continue;
        cl_saved_group *group = &session->model.groups[entry->part];
        cl_saved_cells *cells = &group->sections[n_done[entry->part]];
        if (n_done[entry->part] > 0 && entry->first < cells[-1].first + cells[-1].count)
            return corrupt(error, entry->offset, "cells are not in the order of their numbers");
        CL_TRY(find_rows(session, group, i, &next_rows[entry->part], &cells->rows, error));
        cells->first = entry->first;
        CL_TRY(read_labels(session, group, entry, cells, error));
        n_done[entry->part]++;
        group->n_cells += entry->count;
    }
    return CELLAR_OK;
}

/* The section that holds a cell, and how many cells there are in it from this one on; NULL: none. */
static const cl_saved_cells *find_cell(const cl_saved_group *group, uint32_t cell)
{
    uint32_t low = 0, high = group->n_sections;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (group->sections[middle].first + group->sections[middle].count <= cell)
            low = middle + 1;
        else
            high = middle;
    }
    return low < group->n_sections && group->sections[low].first <= cell ? &group->sections[low]
                                                                         : NULL;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* What reading SEQUENCES has used up of the session's arrays. */
typedef struct reading {
    cellar_session *session;
    cl_cursor cursor;
    const unsigned char *begin;
    uint64_t base; /* of `begin` in the file */
    size_t n_runs, n_lists, n_marks;
    bool is_counting;
    cellar_error *error;
} reading;

static uint64_t place(const reading *r)
{
    return r->base + (uint64_t)(r->cursor.at - r->begin);
}

static cellar_status check_cells(const reading *r, const cl_saved_group *group, const cl_run *run)
{
    for (uint32_t i = 0; i < run->len;) {
        const cl_saved_cells *cells = find_cell(group, run->cell + i);
        if (!cells) return corrupt(r->error, place(r), "a run leads to a cell that is not there");
        uint32_t at = run->cell + i - cells->first, n = cells->count - at;
        n = n < run->len - i ? n : run->len - i;
        for (uint32_t k = 0; k < n; k++) {
            int64_t pos = (int64_t)run->pos + (run->step ? i + k : 0);
            if (pos - cells->stored_pos[at + k] != run->shift)
                return corrupt(r->error, place(r),
                               "a run's shift does not lead to the stored position of its cells");
        }
        i += n;
    }
    return CELLAR_OK;
}

static cellar_status check_run(const reading *r, const cl_saved_group *group, const cl_run *run,
                               const cl_run *before)
{
    if (run->len == 0 || run->pos < 0 || run->pos >= INT32_MAX ||
        (run->step && run->len > (uint32_t)INT32_MAX - (uint32_t)run->pos) ||
        run->cell > (uint32_t)INT32_MAX || run->len > (uint32_t)INT32_MAX - run->cell)
        return corrupt(r->error, place(r), "a run leaves the range of positions or of cells");
    if (run->len == 1 && !run->step)
        return corrupt(r->error, place(r), "a run of one cell has step 0");
    if (before && cl_run_last(before) > run->pos)
        return corrupt(r->error, place(r), "runs overlap, or are not in order");
    if (before && cl_run_touches(before, run))
        return corrupt(r->error, place(r), "two runs could be one");
    return check_cells(r, group, run);
}

static cellar_status read_run(reading *r, cl_run *run)
{
    run->pos = cl_take_i32(&r->cursor);
    run->cell = cl_take_u32(&r->cursor);
    uint32_t len = cl_take_u32(&r->cursor);
    cl_run_set_len(run, len & 0x7fffffffu);
    run->step = len >> 31 != 0;
    run->shift = cl_take_i32(&r->cursor);
    return CELLAR_OK;
}

static cellar_status read_list(reading *r, uint32_t g, cl_saved_list *list)
{
    const cl_saved_group *group = &r->session->model.groups[g];
    uint32_t word = cl_take_u32(&r->cursor);
    int32_t lost = (int32_t)(word & 0x7fffffffu);
    bool has_gaps = word >> 31 != 0;
    uint32_t n = cl_take_u32(&r->cursor);
    if (r->cursor.has_failed || n > cl_cursor_left(&r->cursor) / CL_SESSION_RUN)
        return corrupt(r->error, place(r), "a list ends behind its section");
    bool may_lose = group->kind == CELLAR_LAYER_RECURRENT ||
                    group->window.kind != CELLAR_WINDOW_NONE;
    if (lost == INT32_MAX || (lost > 0 && !may_lose) ||
        (has_gaps && (lost == 0 || group->window.n_sinks == 0)))
        return corrupt(r->error, place(r), "a list has lost what its group cannot lose");
    r->n_lists++;
    if (r->is_counting) {
        (void)cl_take(&r->cursor, (size_t)n * CL_SESSION_RUN);
        r->n_runs += n;
        return CELLAR_OK;
    }
    *list = (cl_saved_list){lost, has_gaps, n, n > 0 ? r->session->runs + r->n_runs : NULL};
    r->n_runs += n;
    for (uint32_t i = 0; i < n; i++) {
        CL_TRY(read_run(r, &list->runs[i]));
        CL_TRY(check_run(r, group, &list->runs[i], i > 0 ? &list->runs[i - 1] : NULL));
    }
    if (group->kind == CELLAR_LAYER_RECURRENT && n > 0 && list->runs[0].pos < lost)
        return corrupt(r->error, place(r), "a state stands before its sequence begins");
    return CELLAR_OK;
}

/* A list for each group; *lists is where they are in the session's array. */
static cellar_status read_lists(reading *r, cl_saved_list **lists)
{
    cl_saved_list *at = r->is_counting ? NULL : r->session->lists + r->n_lists;
    for (uint32_t g = 0; g < r->session->model.n_groups; g++)
        CL_TRY(read_list(r, g, r->is_counting ? NULL : at + g));
    *lists = at;
    return CELLAR_OK;
}

static int64_t last_of(const cl_saved_list *list)
{
    return list->n_runs > 0 ? cl_run_last(&list->runs[list->n_runs - 1]) : -1;
}

/* ---- checkpoints and sequences --------------------------------------------------------------- */

/*
 * What going on at n takes ends at n - 1: the last token that a window sees there, the state behind it. A
 * window that sees nothing there (of one token, or where a chunk begins) may still have sinks.
 */
static bool ends_before(const cl_saved_group *group, const cl_saved_list *list, int64_t n)
{
    int64_t last = last_of(list);
    if (group->kind == CELLAR_LAYER_RECURRENT || cl_window_first(&group->window, n) < n)
        return last == n - 1;
    return last < n && last < (int64_t)group->window.n_sinks;
}

static cellar_status check_checkpoint(const reading *r, const cl_saved_checkpoint *checkpoint)
{
    if (checkpoint->position < 1)
        return corrupt(r->error, place(r), "a checkpoint stands at no position");
    for (uint32_t g = 0; g < r->session->model.n_groups; g++) {
        const cl_saved_group *group = &r->session->model.groups[g];
        const cl_saved_list *list = &checkpoint->lists[g];
        bool has_all = group->kind == CELLAR_LAYER_ATTENTION &&
                       group->window.kind == CELLAR_WINDOW_NONE;
        if (has_all && list->n_runs > 0)
            return corrupt(r->error, place(r), "a checkpoint holds what needs none");
        if (!has_all && !ends_before(group, list, checkpoint->position))
            return corrupt(r->error, place(r),
                           "a checkpoint does not hold what is right before it");
        bool is_state = group->kind == CELLAR_LAYER_RECURRENT;
        /* One state; several only where several tokens share the position (2-D). */
        if (is_state && (list->n_runs == 0 || list->lost != 0 ||
                         list->runs[0].pos != cl_run_last(&list->runs[list->n_runs - 1])))
            return corrupt(r->error, place(r), "a checkpoint does not hold one state");
    }
    return CELLAR_OK;
}

static cellar_status read_checkpoint(reading *r, uint32_t i)
{
    cl_saved_list *lists;
    int32_t position = cl_take_i32(&r->cursor);
    CL_TRY(read_lists(r, &lists));
    if (r->is_counting) return CELLAR_OK;
    r->session->checkpoints[i] = (cl_saved_checkpoint){position, lists};
    return check_checkpoint(r, &r->session->checkpoints[i]);
}

/* The largest of a cell's coordinates when it stands at `pos`. */
static int64_t coordinate(const cl_saved_group *group, uint32_t cell, int64_t pos)
{
    const cl_saved_cells *cells = find_cell(group, cell);
    if (!cells || !cells->points) return pos;
    cl_point point = cells->points[cell - cells->first];
    int64_t away = point.y > point.x ? point.y : point.x;
    return away > 0 ? pos + away : pos;
}

/* Where the next token of a list would go: behind its last one, and, after an image, behind that. */
static int64_t next_of(const cl_saved_group *group, const cl_saved_list *list)
{
    int64_t last = last_of(list), largest = last;
    for (uint32_t i = list->n_runs; i-- > 0 && cl_run_last(&list->runs[i]) == last;) {
        const cl_run *run = &list->runs[i];
        for (uint32_t k = run->step ? run->len - 1 : 0; k < run->len; k++) {
            int64_t its = coordinate(group, run->cell + k, last);
            if (its > largest) largest = its;
        }
    }
    return largest + 1 > list->lost ? largest + 1 : list->lost;
}

/* The groups of one sequence end at one position, and its checkpoints not behind that. */
static cellar_status check_sequence(const reading *r, const cl_saved_sequence *sequence)
{
    int64_t last = -1, next = 0;
    bool has_state = false;
    for (uint32_t g = 0; g < r->session->model.n_groups; g++) {
        const cl_saved_list *list = &sequence->lists[g];
        int64_t its = next_of(&r->session->model.groups[g], list);
        if (last_of(list) > last) last = last_of(list);
        if (its > next) next = its;
        has_state |= r->session->model.groups[g].kind == CELLAR_LAYER_RECURRENT;
    }
    /* Groups that keep everything, and states. A window may have given up or lost its end. */
    for (uint32_t g = 0; g < r->session->model.n_groups && has_state; g++)
        if (r->session->model.groups[g].window.kind == CELLAR_WINDOW_NONE &&
            last_of(&sequence->lists[g]) != last)
            return corrupt(r->error, place(r),
                           "a sequence's state does not stand where its other groups end");
    for (uint32_t i = 0; i < sequence->n_marks; i++)
        if (sequence->marks[i].position > next)
            return corrupt(r->error, place(r),
                           "a checkpoint stands behind the end of its sequence");
    return CELLAR_OK;
}

static cellar_status read_marks(reading *r, cl_saved_sequence *sequence, uint32_t *n_named)
{
    for (uint32_t i = 0; i < sequence->n_marks; i++) {
        cl_saved_mark *mark = &sequence->marks[i];
        mark->checkpoint = cl_take_u32(&r->cursor);
        mark->position = cl_take_i32(&r->cursor);
        if (mark->checkpoint >= r->session->n_checkpoints || mark->checkpoint > *n_named)
            return corrupt(r->error, place(r), "a mark names a checkpoint that is not next");
        *n_named += mark->checkpoint == *n_named;
        const cl_saved_checkpoint *its = &r->session->checkpoints[mark->checkpoint];
        if (mark->position < 1 || (i > 0 && mark->position <= mark[-1].position) ||
            (i > 0 && its->position <= r->session->checkpoints[mark[-1].checkpoint].position))
            return corrupt(r->error, place(r), "marks are not in the order of their positions");
    }
    return CELLAR_OK;
}

static cellar_status read_sequence(reading *r, uint32_t i, uint32_t *n_named)
{
    cl_saved_list *lists;
    int32_t name = cl_take_i32(&r->cursor);
    uint32_t n_marks = cl_take_u32(&r->cursor);
    if (name < 0 || (!r->is_counting && i > 0 && name <= r->session->sequences[i - 1].seq))
        return corrupt(r->error, place(r), "sequences are not in the order of their names");
    CL_TRY(read_lists(r, &lists));
    if (n_marks > cl_cursor_left(&r->cursor) / 8)
        return corrupt(r->error, place(r), "a list of marks ends behind its section");
    if (r->is_counting) {
        (void)cl_take(&r->cursor, (size_t)n_marks * 8);
        r->n_marks += n_marks;
        return CELLAR_OK;
    }
    cl_saved_sequence *sequence = &r->session->sequences[i];
    *sequence = (cl_saved_sequence){.seq = name,
                                    .lists = lists,
                                    .marks = n_marks > 0 ? r->session->marks + r->n_marks : NULL,
                                    .n_marks = n_marks};
    r->n_marks += n_marks;
    CL_TRY(read_marks(r, sequence, n_named));
    return check_sequence(r, sequence);
}

/* ---- SEQUENCES ------------------------------------------------------------------------------- */

/* One go over the section; it counts first, and fills in then. */
static cellar_status walk(reading *r, uint32_t n_checkpoints, uint32_t n_sequences)
{
    uint32_t n_named = 0;
    for (uint32_t i = 0; i < n_checkpoints; i++)
        CL_TRY(read_checkpoint(r, i));
    for (uint32_t i = 0; i < n_sequences; i++)
        CL_TRY(read_sequence(r, i, &n_named));
    if (cl_cursor_left(&r->cursor) > 0 || r->cursor.has_failed)
        return corrupt(r->error, place(r), "SEQUENCES does not end where its section ends");
    if (!r->is_counting && n_named < n_checkpoints)
        return corrupt(r->error, place(r), "a checkpoint belongs to nobody");
    return CELLAR_OK;
}

static cellar_status make_room(reading *r, uint32_t n_checkpoints, uint32_t n_sequences)
{
    cellar_session *session = r->session;
    void *sequences, *checkpoints, *runs, *lists, *marks;
    CL_TRY(take(session, &sequences, n_sequences, sizeof *session->sequences, r->error));
    session->sequences = sequences;
    session->n_sequences = n_sequences;
    CL_TRY(take(session, &checkpoints, n_checkpoints, sizeof *session->checkpoints, r->error));
    session->checkpoints = checkpoints;
    session->n_checkpoints = n_checkpoints;
    CL_TRY(take(session, &runs, r->n_runs, sizeof *session->runs, r->error));
    session->runs = runs;
    session->n_runs = r->n_runs;
    CL_TRY(take(session, &lists, r->n_lists, sizeof *session->lists, r->error));
    session->lists = lists;
    session->n_lists = r->n_lists;
    CL_TRY(take(session, &marks, r->n_marks, sizeof *session->marks, r->error));
    session->marks = marks;
    session->n_marks = r->n_marks;
    return CELLAR_OK;
}

static cellar_status read_all(cellar_session *session, const cl_section *section,
                              const cl_session_entry *entry, cellar_error *error)
{
    reading r = {.session = session,
                 .cursor = {section->bytes, section->bytes + section->size, false},
                 .begin = section->bytes,
                 .base = entry->offset,
                 .is_counting = true,
                 .error = error};
    uint32_t n_checkpoints = cl_take_u32(&r.cursor), n_sequences = cl_take_u32(&r.cursor);
    cl_cursor start = r.cursor;
    size_t least = 8 * ((size_t)session->model.n_groups + 1); /* bytes of an empty sequence */
    if (r.cursor.has_failed || n_checkpoints > cl_cursor_left(&start) / (least - 4) ||
        n_sequences > cl_cursor_left(&start) / least)
        return corrupt(error, entry->offset, "SEQUENCES is too short for what it says it has");
    CL_TRY(walk(&r, n_checkpoints, n_sequences));
    CL_TRY(make_room(&r, n_checkpoints, n_sequences));
    r.cursor = start;
    r.n_runs = r.n_lists = r.n_marks = 0;
    r.is_counting = false;
    return walk(&r, n_checkpoints, n_sequences);
}

cellar_status cl_session_read_lists(cellar_session *session, cellar_error *error)
{
    const cl_session_entry *entry = NULL;
    for (uint32_t i = 0; i < session->n_entries; i++) {
        if (session->entries[i].kind != CL_SESSION_SEQUENCES) continue;
        if (entry) return corrupt(error, session->entries[i].offset, "there are two SEQUENCES");
        entry = &session->entries[i];
    }
    if (!entry) return corrupt(error, session->commit.index_offset, "there is no SEQUENCES");
    cl_section section;
    CL_TRY(cl_session_get_section(session, &session->alloc, entry, &section, error));
    cellar_status status = read_all(session, &section, entry, error);
    cl_session_put_section(&session->alloc, &section);
    return status;
}

void cl_session_free_lists(cellar_session *session)
{
    for (uint32_t g = 0; g < session->model.n_groups; g++) {
        cl_saved_group *group = &session->model.groups[g];
        for (uint32_t i = 0; i < group->n_sections && group->sections; i++) {
            cl_saved_cells *cells = &group->sections[i];
            put(session, cells->stored_pos, cells->count, sizeof *cells->stored_pos);
            put(session, cells->token, cells->count, sizeof *cells->token);
            put(session, cells->points, cells->count, sizeof *cells->points);
        }
        put(session, group->sections, group->n_sections, sizeof *group->sections);
    }
    put(session, session->sequences, session->n_sequences, sizeof *session->sequences);
    put(session, session->checkpoints, session->n_checkpoints, sizeof *session->checkpoints);
    put(session, session->runs, session->n_runs, sizeof *session->runs);
    put(session, session->lists, session->n_lists, sizeof *session->lists);
    put(session, session->marks, session->n_marks, sizeof *session->marks);
}
