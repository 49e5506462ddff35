/*
 * session_journal.c: saving what was added.
 *
 *     1. what is to be saved is numbered: cells that the file has keep their numbers, others get new ones
 *     2. sections that something still needs are kept in the index; what is missing is appended:
 *            MODEL and NOTES if they changed | the new ends of logs | new CELLS, ROWS | SEQUENCES | index
 *     3. if more than half of the file would not be needed then, or numbers run out, or the file is not
 *        the one that is known, the session is saved whole instead
 *
 * What is remembered of the file (session_journal.h) changes when the file has, in one go: everything that
 * takes is reserved before anything is written.
 */
#include "session_journal.h"

#include <string.h>

#include "error.h"
#include "session_load.h"
#include "session_model.h"

#define MOST_CELLS (1u << 31) /* numbers of cells in a file stay below */

/* ---- which sections stay -------------------------------------------------------------------------- */

/* One save. */
typedef struct update {
    cellar_journal *journal;
    cl_saving *saving;
    cl_file_content next; /* what the file will have */
    uint32_t *live;       /* [content.n_entries] cells of a CELLS section that are still needed */
    uint32_t *of_group;   /* [content.n_entries] the CELLS sections of one group */
    uint32_t *parts; /* [content.n_parts] the new place of a log whose sections stay; UINT32_MAX */
    uint32_t *in_file; /* [selection.n_sequences] tokens of the log that the file has */
    size_t scratch_bytes;
    uint32_t n_kept;     /* entries that stay */
    uint64_t live_bytes; /* of the file as it is, that stay needed */
    bool has_model, has_notes;
} update;

static cellar_status get_scratch(update *u, cellar_error *error)
{
    size_t n_entries = u->journal->content.n_entries, n_parts = u->journal->content.n_parts;
    size_t n = 2 * n_entries + n_parts + u->saving->selection.n_sequences + 1;
    u->live = cl_alloc_get(&u->journal->alloc, CELLAR_BYTES_SCRATCH, n * sizeof *u->live);
    if (!u->live) return cl_error_no_memory(error, "an index", n * sizeof *u->live);
    u->scratch_bytes = n * sizeof *u->live;
    memset(u->live, 0, u->scratch_bytes);
    u->of_group = u->live + n_entries;
    u->parts = u->of_group + n_entries;
    u->in_file = u->parts + n_parts;
    return CELLAR_OK;
}

/* The CELLS section of a group that a cell of the file lies in; n: none. They are ascending. */
static uint32_t find_section(const update *u, uint32_t n, uint32_t cell)
{
    uint32_t low = 0, high = n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (u->journal->content.entries[u->of_group[middle]].first <= cell)
            low = middle;
        else
            high = middle;
    }
    if (n == 0) return n;
    const cl_session_entry *entry = &u->journal->content.entries[u->of_group[low]];
    return cell >= entry->first && cell - entry->first < entry->count ? low : n;
}

/* Count the cells of a group's sections that are still needed. */
static uint32_t count_live(update *u, uint32_t g)
{
    const cl_file_content *content = &u->journal->content;
    const cl_session_map *map = &u->saving->maps[g];
    uint32_t n = 0;
    for (uint32_t i = 0; i < content->n_entries; i++)
        if (content->entries[i].kind == CL_SESSION_CELLS && content->entries[i].part == g)
            u->of_group[n++] = i;
    for (uint32_t s = 0; s < map->n; s++) {
        const cl_span *span = &map->spans[s];
        if (span->file >= map->first_new) continue;
        for (uint32_t done = 0; done < span->len;) {
            uint32_t at = find_section(u, n, span->file + done);
            if (at == n) break; /* never: the file has it */
            const cl_session_entry *entry = &content->entries[u->of_group[at]];
            uint32_t some = entry->first + entry->count - (span->file + done);
            if (some > span->len - done) some = span->len - done;
            /* A cell that was loaded into two pools is there once. */
            uint32_t *live = &u->live[u->of_group[at]];
            *live = entry->count - *live < some ? entry->count : *live + some;
            done += some;
        }
    }
    return n;
}

static cellar_status keep(update *u, cl_session_entry entry, cellar_error *error)
{
    cl_saving *saving = u->saving;
    void *entries = saving->entries;
    bool ok = cl_alloc_reserve(&saving->alloc, CELLAR_BYTES_SCRATCH, &entries, &saving->capacity,
                               saving->n_entries + 1ull, sizeof entry);
    saving->entries = entries;
    if (!ok) return cl_error_no_memory(error, "an index", saving->n_entries * sizeof entry);
    saving->entries[saving->n_entries++] = entry;
    return CELLAR_OK;
}

/* Which logs of the file are the beginnings of those that are to be saved. */
static void match_logs(update *u)
{
    const cl_file_content *content = &u->journal->content;
    for (uint32_t p = 0; p < content->n_parts; p++)
        u->parts[p] = UINT32_MAX;
    for (uint32_t i = 0; i < u->next.n_logs; i++) {
        const cl_known_log *now = &u->next.logs[i];
        const cl_known_log *old = cl_file_content_find(content, now->seq);
        if (!old || old->n_tokens == 0 || old->n_tokens > now->n_tokens ||
            memcmp(old->tokens, now->tokens, old->n_tokens * sizeof *old->tokens) != 0)
            continue;
        u->parts[old->part] = i;
        u->in_file[i] = old->n_tokens;
    }
}

/* The rows of a cell and what it says of itself. */
static uint64_t file_bytes(const update *u, uint32_t g)
{
    const cl_group *group = &u->journal->memory->groups[g];
    return cl_storage_cell_bytes(&group->storage) + (group->sequences.cells.points ? 12 : 8);
}

/* Cells of a section (CELLS, ROWS) that are needed. */
static uint32_t live_cells(const update *u, uint32_t i, const uint32_t *n_sections)
{
    const cl_session_entry *entry = &u->journal->content.entries[i];
    if (entry->kind == CL_SESSION_CELLS) return u->live[i];
    uint32_t n = n_sections[entry->part], at = find_section(u, n, entry->first);
    return at == n ? 0 : u->live[u->of_group[at]];
}

/* Sections of one group that stay. They are noted in `live` for all their entries. */
static void mark_cells(update *u, uint32_t g)
{
    const cl_file_content *content = &u->journal->content;
    uint32_t n_sections[CL_MAX_GROUPS];
    n_sections[g] = count_live(u, g);
    for (uint32_t i = 0; i < content->n_entries; i++) {
        if (content->entries[i].part != g) continue;
        if (content->entries[i].kind == CL_SESSION_CELLS)
            u->live_bytes += u->live[i] * file_bytes(u, g);
        if (content->entries[i].kind == CL_SESSION_ROWS) u->live[i] = live_cells(u, i, n_sections);
    }
}

static cellar_status keep_sections(update *u, cellar_error *error)
{
    const cl_file_content *content = &u->journal->content;
    u->live_bytes = CL_SESSION_HEADER;
    match_logs(u);
    for (uint32_t g = 0; g < u->journal->memory->n_groups; g++)
        mark_cells(u, g);
    u->has_model = cl_block_equal(&content->model, &u->next.model);
    u->has_notes = cl_block_equal(&content->notes, &u->next.notes);
    for (uint32_t i = 0; i < content->n_entries; i++) {
        cl_session_entry entry = content->entries[i];
        bool is_cells = entry.kind == CL_SESSION_CELLS || entry.kind == CL_SESSION_ROWS;
        bool stays = (entry.kind == CL_SESSION_MODEL && u->has_model) ||
                     (entry.kind == CL_SESSION_NOTES && u->has_notes) ||
                     (entry.kind == CL_SESSION_TOKENS && u->parts[entry.part] != UINT32_MAX) ||
                     (is_cells && u->live[i] > 0);
        if (!stays) continue;
        if (!is_cells) u->live_bytes += entry.length;
        if (entry.kind == CL_SESSION_TOKENS) entry.part = u->parts[entry.part];
        CL_TRY(keep(u, entry, error));
    }
    u->n_kept = u->saving->n_entries;
    return CELLAR_OK;
}

/* ---- appending ------------------------------------------------------------------------------------- */

/* Everything that the file lacks, into a sink that begins where the file ends. */
static cellar_status put_new(update *u, cl_sink *sink, cl_session_commit *commit,
                             cellar_error *error)
{
    cl_saving *saving = u->saving;
    saving->n_entries = u->n_kept;
    if (!u->has_model) CL_TRY(cl_saving_put_model(saving, sink, error));
    if (!u->has_notes) CL_TRY(cl_saving_put_notes(saving, sink, error));
    for (uint32_t i = 0; i < saving->selection.n_sequences; i++)
        CL_TRY(cl_saving_put_log(saving, i, u->in_file[i], sink, error));
    for (uint32_t g = 0; g < saving->memory->n_groups; g++)
        CL_TRY(cl_saving_put_cells(saving, g, sink, error));
    CL_TRY(cl_saving_put_sequences(saving, sink, error));
    return cl_saving_put_index(saving, sink, commit, error);
}

static cellar_status add(void *context, const cellar_writer *writer, cl_session_commit *commit,
                         cellar_error *error)
{
    update *u = context;
    cl_sink sink;
    if (!cl_sink_open(&sink, writer, &u->journal->memory->kernels, commit->length,
                      &u->journal->alloc))
        return cl_error_no_memory(error, "a buffer", CL_SINK_BYTES);
    cellar_status status = put_new(u, &sink, commit, error);
    cl_sink_close(&sink, &u->journal->alloc);
    return status;
}

/* Is appending worth it? */
static cellar_status plan_append(update *u, bool *is_worth_it, cellar_error *error)
{
    cellar_journal *journal = u->journal;
    cl_known_cells known[CL_MAX_GROUPS];
    uint32_t n_groups = journal->memory->n_groups;
    *is_worth_it = false;
    for (uint32_t g = 0; g < n_groups; g++)
        known[g] = cl_file_cells_known(&journal->cells[g]);
    CL_TRY(cl_saving_map(u->saving, known, error));
    for (uint32_t g = 0; g < n_groups; g++)
        if (u->saving->maps[g].n_cells > MOST_CELLS - journal->cells[g].next) return CELLAR_OK;
    CL_TRY(keep_sections(u, error));
    cl_sink counter;
    cl_session_commit commit = journal->identity.commit;
    uint64_t old_length = commit.length;
    (void)cl_sink_open(&counter, NULL, &journal->memory->kernels, old_length, &journal->alloc);
    CL_TRY(put_new(u, &counter, &commit, error));
    uint64_t live = u->live_bytes + (commit.length - old_length);
    *is_worth_it = live >= commit.length - live;
    return CELLAR_OK;
}

/* The file has been written: remember what it has now. There is room for all of it. */
static void remember(update *u)
{
    cellar_journal *journal = u->journal;
    memcpy(u->next.entries, u->saving->entries, u->next.n_entries * sizeof *u->next.entries);
    cl_file_content_free(&journal->content, &journal->alloc);
    journal->content = u->next;
    memset(&u->next, 0, sizeof u->next);
    for (uint32_t g = 0; g < journal->memory->n_groups; g++) {
        const cl_session_map *map = &u->saving->maps[g];
        cl_file_cells_forget(&journal->cells[g], map->first_new + map->n_cells);
        cl_file_cells_add(&journal->cells[g], map->spans, map->n);
    }
}

static cellar_status reserve_entries(update *u, cellar_error *error)
{
    uint32_t n = u->saving->n_entries;
    if (cl_file_content_reserve(&u->next, n, &u->journal->alloc)) return CELLAR_OK;
    return cl_error_no_memory(error, "an index", n * sizeof(cl_session_entry));
}

/* CELLAR_MISMATCH: it has to be saved whole. */
static cellar_status append(update *u, uint64_t *n_written, cellar_error *error)
{
    cellar_journal *journal = u->journal;
    bool is_worth_it;
    CL_TRY(get_scratch(u, error));
    CL_TRY(plan_append(u, &is_worth_it, error));
    if (!is_worth_it) return CELLAR_MISMATCH;
    CL_TRY(reserve_entries(u, error));
    CL_TRY(cl_file_append(journal->path, &journal->memory->kernels, add, u, &journal->identity,
                          n_written, error));
    remember(u);
    return CELLAR_OK;
}

/* ---- saving whole ----------------------------------------------------------------------------------- */

/* What cl_file_replace is to write. */
typedef struct whole {
    cl_saving *saving;
    cl_session_commit measured;
} whole;

static cellar_status write_whole(void *context, const cellar_writer *writer, cellar_error *error)
{
    const whole *its = context;
    return cl_saving_write(its->saving, &its->measured, writer, error);
}

static cellar_status replace(update *u, uint64_t *n_written, cellar_error *error)
{
    cellar_journal *journal = u->journal;
    cl_file_identity made = {.is_known = false};
    whole its = {.saving = u->saving};
    CL_TRY(cl_saving_measure(u->saving, &its.measured, error));
    CL_TRY(reserve_entries(u, error));
    cellar_status status = cl_file_replace(journal->path, write_whole, &its, &made, n_written,
                                           error);
    if (status != CELLAR_OK) {
        /* Too late for the old file: what is remembered is of another one. */
        if (made.is_known) journal->identity.is_known = false;
        return status;
    }
    journal->identity = made;
    remember(u);
    return CELLAR_OK;
}

/* ---- the calls --------------------------------------------------------------------------------------- */

static cellar_status save(update *u, uint64_t *n_written, cellar_error *error)
{
    cellar_journal *journal = u->journal;
    if (!cl_file_content_make(&u->next, u->saving, &journal->alloc))
        return cl_error_no_memory(error, "what a journal remembers", u->next.n_tokens);
    for (uint32_t g = 0; g < journal->memory->n_groups; g++)
        if (!cl_file_cells_reserve(&journal->cells[g], &journal->alloc))
            return cl_error_no_memory(error, "what a journal remembers",
                                      journal->cells[g].cells->n * sizeof(uint32_t));
    if (journal->identity.is_known) {
        cellar_status status = append(u, n_written, error);
        if (status != CELLAR_MISMATCH) return status;
        cl_alloc_put(&journal->alloc, CELLAR_BYTES_SCRATCH, u->next.entries,
                     u->next.n_entries * sizeof *u->next.entries);
        u->next.entries = NULL;
        u->next.n_entries = 0;
    }
    return replace(u, n_written, error);
}

cellar_status cellar_save_journal(cellar_journal *journal, const cellar_save_options *options,
                                  uint64_t *n_written, cellar_error *error)
{
    if (!journal) CL_FAIL(error, CELLAR_INVALID, -1, "journal is NULL");
    cl_saving saving;
    update u = {.journal = journal, .saving = &saving};
    CL_TRY(cl_saving_open(&saving, journal->memory, options, error));
    cellar_status status = save(&u, n_written, error);
    cl_file_content_free(&u.next, &journal->alloc);
    cl_alloc_put(&journal->alloc, CELLAR_BYTES_SCRATCH, u.live, u.scratch_bytes);
    cl_saving_close(&saving);
    return status;
}

/* ---- loading ----------------------------------------------------------------------------------------- */

/* Numbers of a group from here on are free in the file. */
static uint32_t next_number(const cellar_session *session, uint32_t g)
{
    const cl_saved_group *group = &session->model.groups[g];
    if (group->n_sections == 0) return 0;
    const cl_saved_cells *last = &group->sections[group->n_sections - 1];
    return last->first + last->count;
}

/* A load from the file. */
typedef struct loading {
    cellar_journal *journal;
    const cellar_session *session;
    bool is_noted[CL_MAX_GROUPS]; /* what was known of the group's cells is forgotten */
} loading;

static void forget_old(loading *l, uint32_t g)
{
    if (l->is_noted[g]) return;
    l->is_noted[g] = true;
    cl_file_cells_forget(&l->journal->cells[g], next_number(l->session, g));
}

static void note_landing(void *context, uint32_t group, const cl_span *spans, uint32_t n)
{
    loading *l = context;
    forget_old(l, group);
    cl_file_cells_add(&l->journal->cells[group], spans, n);
}

/*
 * Load, and remember what the file has of it. For want of memory, or when rows were converted, the journal
 * knows nothing of the file then, and saves it whole the next time.
 */
static cellar_status load(loading *l, const cl_file_source *source,
                          const cellar_load_options *options, cellar_error *error)
{
    cellar_journal *journal = l->journal;
    cellar_memory *memory = journal->memory;
    bool is_room = true;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        is_room = is_room && cl_file_cells_reserve(&journal->cells[g], &journal->alloc);
    CL_TRY(cl_load_session(memory, l->session, options, is_room ? note_landing : NULL, l, error));
    journal->identity.is_known = false;
    cl_file_content content;
    if (!is_room || !cl_file_content_read(&content, memory, l->session, options, &journal->alloc))
        return CELLAR_OK;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        forget_old(l, g);
    cl_file_content_free(&journal->content, &journal->alloc);
    journal->content = content;
    cl_file_identify(source, &l->session->commit, &journal->identity);
    return CELLAR_OK;
}

cellar_status cellar_load_journal(cellar_journal *journal, const cellar_load_options *options,
                                  cellar_error *error)
{
    if (!journal) CL_FAIL(error, CELLAR_INVALID, -1, "journal is NULL");
    CL_TRY(cl_memory_check_moves(journal->memory, error));
    cl_file_source source;
    cellar_session *session;
    CL_TRY(cl_file_open(journal->path, &source, error));
    cl_bytes bytes = {.reader = cl_file_reader(&source), .is_shared = true, .size = source.size};
    cellar_status status = cl_session_open(&bytes, source.file, &journal->memory->alloc.user,
                                           &session, error);
    if (status != CELLAR_OK) {
        cl_file_close(source.file);
        return status;
    }
    loading l = {.journal = journal, .session = session};
    status = load(&l, &source, options, error);
    cellar_close_session(session);
    return status;
}

/* ---- made and given back ----------------------------------------------------------------------------- */

cellar_status cellar_open_journal(cellar_memory *memory, const char *path, cellar_journal **out,
                                  cellar_error *error)
{
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "journal is NULL");
    *out = NULL;
    CL_TRY(cl_memory_check(memory, error));
    if (!path || !*path) CL_FAIL(error, CELLAR_INVALID, -1, "path is NULL or empty");
    CL_TRY(cl_model_check_rows(memory, error));
    cl_alloc alloc;
    cl_alloc_init(&alloc, &memory->alloc.user, 0);
    size_t path_bytes = strlen(path) + 1;
    cellar_journal *journal = cl_alloc_get(&alloc, CELLAR_BYTES_OBJECT, sizeof *journal);
    if (!journal) return cl_error_no_memory(error, "a journal", sizeof *journal);
    memset(journal, 0, sizeof *journal);
    journal->path = cl_alloc_get(&alloc, CELLAR_BYTES_OBJECT, path_bytes);
    if (!journal->path) {
        cl_alloc_put(&alloc, CELLAR_BYTES_OBJECT, journal, sizeof *journal);
        return cl_error_no_memory(error, "a journal", path_bytes);
    }
    memcpy(journal->path, path, path_bytes);
    journal->path_bytes = path_bytes;
    journal->memory = memory;
    journal->alloc = alloc;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        journal->cells[g].cells = &memory->groups[g].sequences.cells;
    *out = journal;
    return CELLAR_OK;
}

void cellar_close_journal(cellar_journal *journal)
{
    if (!journal) return;
    cl_alloc alloc = journal->alloc; /* the counts live in the block that goes last */
    for (uint32_t g = 0; g < CL_MAX_GROUPS; g++)
        cl_file_cells_free(&journal->cells[g], &alloc);
    cl_file_content_free(&journal->content, &alloc);
    cl_alloc_put(&alloc, CELLAR_BYTES_OBJECT, journal->path, journal->path_bytes);
    cl_alloc_put(&alloc, CELLAR_BYTES_OBJECT, journal, sizeof *journal);
}
