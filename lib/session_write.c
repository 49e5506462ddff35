/*
 * session_write.c: a session, from front to back.
 *
 *     header | MODEL | NOTES | TOKENS of each sequence | CELLS, ROWS, CELLS, ROWS ... of each group |
 *     SEQUENCES | index
 *
 * The header says how long the file will be, so everything is put twice: into a sink that counts, and then
 * into one that writes. Rows are written in sections of about a megabyte, so that whoever checks one and
 * then copies it finds it in the cache. What is needed beside the memory: lists of runs, and a buffer.
 */
#include "session_write.h"

#include "error.h"
#include "session_model.h"
#include "session_notes.h"
#include "session_rows.h"

#define SECTION_BYTES (1u << 20) /* of rows */
#define SECTION_CELLS (1u << 16) /* at most */

/* ---- what is saved ------------------------------------------------------------------------------ */

static cellar_status check_options(const cellar_memory *memory, const cellar_save_options *options,
                                   cl_alloc *alloc, cellar_error *error)
{
    if (!options) CL_FAIL(error, CELLAR_INVALID, -1, "options is NULL");
    if (options->struct_size != sizeof *options)
        CL_FAIL(error, CELLAR_INVALID, -1,
                "options.struct_size is %zu, not %zu: use cellar_save_options_init",
                options->struct_size, sizeof *options);
    if (options->n_sequences > 0 && !options->sequences)
        CL_FAIL(error, CELLAR_INVALID, -1, "options.n_sequences is %u, but sequences is NULL",
                options->n_sequences);
    if (options->n_logs > 0 && !options->logs)
        CL_FAIL(error, CELLAR_INVALID, -1, "options.n_logs is %u, but logs is NULL",
                options->n_logs);
    CL_TRY(cl_notes_check(options->facts, options->n_facts, "fact", alloc, error));
    CL_TRY(cl_notes_check(options->notes, options->n_notes, "note", alloc, error));
    return cl_model_check_rows(memory, error);
}

static cellar_status choose_logs(cl_saving *saving, cellar_error *error)
{
    const cellar_save_options *options = saving->options;
    uint32_t n = saving->selection.n_sequences;
    if (options->n_logs == 0) return CELLAR_OK;
    size_t bytes = (n + (size_t)1) * sizeof(cellar_log *);
    saving->logs = cl_alloc_get(&saving->alloc, CELLAR_BYTES_SCRATCH, bytes);
    if (!saving->logs) return cl_error_no_memory(error, "the logs of a session", bytes);
    memset((void *)saving->logs, 0, bytes);
    for (uint32_t i = 0; i < options->n_logs; i++) {
        const cellar_log *log = &options->logs[i];
        uint32_t at = cl_selection_find(&saving->selection, log->seq);
        if (at == n)
            CL_FAIL(error, CELLAR_INVALID, log->seq, "a log is of sequence %d, which is not saved",
                    (int)log->seq);
        if (saving->logs[at])
            CL_FAIL(error, CELLAR_INVALID, log->seq, "sequence %d has two logs", (int)log->seq);
        if (log->n_tokens > 0 && !log->tokens)
            CL_FAIL(error, CELLAR_INVALID, log->seq, "the log of sequence %d is NULL",
                    (int)log->seq);
        saving->logs[at] = log;
    }
    return CELLAR_OK;
}

cellar_status cl_saving_open(cl_saving *saving, const cellar_memory *memory,
                             const cellar_save_options *options, cellar_error *error)
{
    CL_TRY(cl_memory_check_moves(memory, error));
    memset(saving, 0, sizeof *saving);
    saving->memory = memory;
    saving->options = options;
    cl_alloc_init(&saving->alloc, &memory->alloc.user, 0);
    CL_TRY(check_options(memory, options, &saving->alloc, error));
    CL_TRY(cl_selection_make(&saving->selection, memory, options->sequences, options->n_sequences,
                             &saving->alloc, error));
    cellar_status status = choose_logs(saving, error);
    if (status != CELLAR_OK) cl_saving_close(saving);
    return status;
}

static void free_maps(cl_saving *saving)
{
    for (uint32_t g = 0; g < saving->n_maps; g++)
        cl_session_map_free(&saving->maps[g], &saving->alloc);
    saving->n_maps = 0;
}

void cl_saving_close(cl_saving *saving)
{
    size_t n_logs = saving->selection.n_sequences + (size_t)1;
    free_maps(saving);
    cl_alloc_put(&saving->alloc, CELLAR_BYTES_SCRATCH, (void *)saving->logs,
                 n_logs * sizeof(cellar_log *));
    cl_alloc_put(&saving->alloc, CELLAR_BYTES_SCRATCH, saving->entries,
                 saving->capacity * sizeof *saving->entries);
    cl_selection_free(&saving->selection, &saving->alloc);
    memset(saving, 0, sizeof *saving);
}

cellar_status cl_saving_map(cl_saving *saving, const cl_known_cells *known, cellar_error *error)
{
    free_maps(saving);
    for (uint32_t g = 0; g < saving->memory->n_groups; g++) {
        CL_TRY(cl_selection_map(&saving->selection, g, known ? &known[g] : NULL, &saving->maps[g],
                                &saving->alloc, error));
        saving->n_maps = g + 1;
    }
    return CELLAR_OK;
}

/* ---- sections ------------------------------------------------------------------------------------ */

void cl_saving_begin_section(cl_sink *sink, cl_session_entry *entry, cl_session_kind kind,
                             uint32_t part, uint32_t first, uint32_t count)
{
    cl_sink_align(sink, CL_SESSION_ALIGN);
    *entry = (cl_session_entry){
        .kind = (uint32_t)kind, .part = part, .first = first, .count = count, .offset = sink->at};
    cl_sink_begin_sum(sink);
}

static cellar_status check_sink(const cl_sink *sink, cellar_error *error)
{
    if (sink->has_failed)
        CL_FAIL(error, CELLAR_IO, (int64_t)(sink->at - sink->used),
                "the writer failed before byte %llu of the session",
                (unsigned long long)(sink->at - sink->used));
    return CELLAR_OK;
}

cellar_status cl_saving_end_section(cl_saving *saving, cl_sink *sink, cl_session_entry *entry,
                                    cellar_error *error)
{
    CL_TRY(check_sink(sink, error));
    entry->length = sink->at - entry->offset;
    entry->checksum = cl_sink_sum(sink);
    void *entries = saving->entries;
    bool ok = cl_alloc_reserve(&saving->alloc, CELLAR_BYTES_SCRATCH, &entries, &saving->capacity,
                               saving->n_entries + 1ull, sizeof(cl_session_entry));
    saving->entries = entries;
    if (!ok)
        return cl_error_no_memory(error, "the index of a session",
                                  saving->n_entries * sizeof(cl_session_entry));
    saving->entries[saving->n_entries++] = *entry;
    return CELLAR_OK;
}

cellar_status cl_saving_put_model(cl_saving *saving, cl_sink *sink, cellar_error *error)
{
    cl_session_entry entry;
    cl_saving_begin_section(sink, &entry, CL_SESSION_MODEL, 0, 0, 0);
    cl_model_put(saving->memory, saving->options->facts, saving->options->n_facts, sink);
    return cl_saving_end_section(saving, sink, &entry, error);
}

cellar_status cl_saving_put_notes(cl_saving *saving, cl_sink *sink, cellar_error *error)
{
    cl_session_entry entry;
    if (saving->options->n_notes == 0) return CELLAR_OK;
    cl_saving_begin_section(sink, &entry, CL_SESSION_NOTES, 0, 0, 0);
    cl_notes_put(sink, saving->options->notes, saving->options->n_notes);
    return cl_saving_end_section(saving, sink, &entry, error);
}

cellar_status cl_saving_put_log(cl_saving *saving, uint32_t sequence, uint32_t from, cl_sink *sink,
                                cellar_error *error)
{
    const cellar_log *log = saving->logs ? saving->logs[sequence] : NULL;
    if (!log || log->n_tokens <= from) return CELLAR_OK;
    cl_session_entry entry;
    cl_saving_begin_section(sink, &entry, CL_SESSION_TOKENS, sequence, from, log->n_tokens - from);
    cl_sink_put_i32s(sink, log->tokens + from, log->n_tokens - from);
    return cl_saving_end_section(saving, sink, &entry, error);
}

cellar_status cl_saving_put_sequences(cl_saving *saving, cl_sink *sink, cellar_error *error)
{
    cl_session_entry entry;
    cl_saving_begin_section(sink, &entry, CL_SESSION_SEQUENCES, 0, 0, 0);
    cl_selection_put(&saving->selection, saving->maps, sink);
    return cl_saving_end_section(saving, sink, &entry, error);
}

/* ---- cells ---------------------------------------------------------------------------------------- */

/* Cells in a section of a group. */
static uint32_t section_cells(const cl_group *group)
{
    uint64_t bytes = cl_storage_cell_bytes(&group->storage);
    uint64_t n = bytes > 0 ? SECTION_BYTES / bytes : SECTION_CELLS;
    if (n > SECTION_CELLS) n = SECTION_CELLS;
    uint32_t tile = cl_rows_tile(group->kind);
    return n > tile ? (uint32_t)n / tile * tile : tile;
}

static void put_points(const cl_cells *cells, uint32_t cell, uint32_t n, cl_sink *sink)
{
    for (uint32_t i = cell; i < cell + n; i++) {
        unsigned char bytes[4];
        cl_put_u16(bytes, (uint16_t)cells->points[i].y);
        cl_put_u16(bytes + 2, (uint16_t)cells->points[i].x);
        cl_sink_put(sink, bytes, sizeof bytes);
    }
}

/* What cells say of themselves: one array after the other. */
static void put_labels(const cl_cells *cells, cl_span_walk walk, uint32_t count, cl_sink *sink)
{
    for (uint32_t array = 0; array < (cells->points ? 3 : 2); array++) {
        cl_span_walk own = walk;
        uint32_t cell;
        for (uint32_t left = count, some; left > 0; left -= some) {
            some = cl_span_walk_next(&own, left, &cell);
            if (array == 0) cl_sink_put_i32s(sink, cells->stored_pos + cell, some);
            if (array == 1) cl_sink_put_i32s(sink, cells->token + cell, some);
            if (array == 2) put_points(cells, cell, some, sink);
        }
    }
}

static cellar_status put_rows(const cl_group *group, cl_span_walk *walk, uint32_t count,
                              cl_sink *sink, cellar_error *error)
{
    const cl_storage *storage = &group->storage;
    if (!sink->writer) {
        for (uint32_t left = count, cell; left > 0;)
            left -= cl_span_walk_next(walk, left, &cell);
        cl_sink_count(sink, count * cl_storage_cell_bytes(storage));
        return CELLAR_OK;
    }
    uint32_t a_block = storage->layout.cells_a_block, tile = cl_rows_tile(group->kind);
    while (count > 0 && !sink->has_failed) {
        cl_stretch stretches[CL_SESSION_TILE];
        uint32_t n = 0, left = count < tile ? count : tile;
        count -= left;
        while (left > 0) {
            cl_stretch *stretch = &stretches[n++];
            cl_span_walk before = *walk;
            stretch->len = cl_span_walk_next(walk, left, &stretch->cell);
            uint32_t rest = a_block - stretch->cell % a_block;
            if (stretch->len > rest) { /* it would leave its block */
                *walk = before;
                stretch->len = cl_span_walk_next(walk, rest, &stretch->cell);
            }
            left -= stretch->len;
        }
        if (!cl_rows_put(storage, stretches, n, sink))
            CL_FAIL_BECAUSE(error, CELLAR_IO, CELLAR_REASON_STORE, -1,
                            "rows of group %u could not be read from their store", group->index);
    }
    return CELLAR_OK;
}

cellar_status cl_saving_put_cells(cl_saving *saving, uint32_t g, cl_sink *sink, cellar_error *error)
{
    const cl_group *group = &saving->memory->groups[g];
    const cl_session_map *map = &saving->maps[g];
    cl_span_walk walk = cl_session_map_walk(map);
    uint32_t most = section_cells(group), done = 0;
    while (done < map->n_cells) {
        uint32_t count = map->n_cells - done < most ? map->n_cells - done : most;
        uint32_t first = map->first_new + done;
        cl_session_entry entry;
        cl_saving_begin_section(sink, &entry, CL_SESSION_CELLS, g, first, count);
        put_labels(&group->sequences.cells, walk, count, sink);
        CL_TRY(cl_saving_end_section(saving, sink, &entry, error));
        cl_saving_begin_section(sink, &entry, CL_SESSION_ROWS, g, first, count);
        CL_TRY(put_rows(group, &walk, count, sink, error));
        CL_TRY(cl_saving_end_section(saving, sink, &entry, error));
        done += count;
    }
    return CELLAR_OK;
}

/* ---- index and header ------------------------------------------------------------------------------ */

static void put_entry(const cl_session_entry *entry, cl_sink *sink)
{
    unsigned char bytes[CL_SESSION_ENTRY], *to = bytes;
    to = cl_put_u32(to, entry->kind);
    to = cl_put_u32(to, entry->part);
    to = cl_put_u32(to, entry->first);
    to = cl_put_u32(to, entry->count);
    to = cl_put_u64(to, entry->offset);
    to = cl_put_u64(to, entry->length);
    to = cl_put_u32(to, entry->checksum);
    cl_put_u32(to, 0);
    cl_sink_put(sink, bytes, sizeof bytes);
}

cellar_status cl_saving_put_index(cl_saving *saving, cl_sink *sink, cl_session_commit *commit,
                                  cellar_error *error)
{
    cl_sink_align(sink, CL_SESSION_ALIGN);
    commit->index_offset = sink->at;
    cl_sink_begin_sum(sink);
    cl_sink_put_u32(sink, CL_SESSION_INDEX);
    cl_sink_put_u32(sink, saving->n_entries);
    for (uint32_t i = 0; i < saving->n_entries; i++)
        put_entry(&saving->entries[i], sink);
    cl_sink_put_u32(sink, 0);
    cl_sink_put_u32(sink, cl_sink_sum(sink));
    commit->length = sink->at;
    commit->index_length = sink->at - commit->index_offset;
    (void)cl_sink_flush(sink);
    return check_sink(sink, error);
}

void cl_session_put_commit(unsigned char record[CL_SESSION_COMMIT], const cl_session_commit *commit,
                           const cl_kernels *kernels)
{
    memset(record, 0, CL_SESSION_COMMIT);
    if (!commit) return;
    unsigned char *to = cl_put_u64(record, commit->generation);
    to = cl_put_u64(to, commit->length);
    to = cl_put_u64(to, commit->index_offset);
    cl_put_u64(to, commit->index_length);
    cl_put_u32(record + CL_SESSION_COMMIT - 4, kernels->crc32c(0, record, CL_SESSION_COMMIT - 4));
}

void cl_session_put_header(unsigned char header[CL_SESSION_HEADER], const cl_session_commit *a,
                           const cl_session_commit *b, const cl_kernels *kernels)
{
    memset(header, 0, CL_SESSION_HEADER);
    memcpy(header, cl_session_magic, sizeof cl_session_magic);
    cl_put_u32(header + 8, CL_SESSION_VERSION);
    cl_put_u32(header + 12, CL_SESSION_HEADER);
    cl_put_u32(header + CL_SESSION_COMMIT_A - 4,
               kernels->crc32c(0, header, CL_SESSION_COMMIT_A - 4));
    cl_session_put_commit(header + CL_SESSION_COMMIT_A, a, kernels);
    cl_session_put_commit(header + CL_SESSION_COMMIT_B, b, kernels);
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

static cellar_status put_whole(cl_saving *saving, const cl_session_commit *measured, cl_sink *sink,
                               cl_session_commit *commit, cellar_error *error)
{
    unsigned char header[CL_SESSION_HEADER];
    cl_session_put_header(header, measured, NULL, &saving->memory->kernels);
    cl_sink_put(sink, header, sizeof header);
    saving->n_entries = 0;
    commit->generation = 1;
    CL_TRY(cl_saving_put_model(saving, sink, error));
    CL_TRY(cl_saving_put_notes(saving, sink, error));
    for (uint32_t i = 0; i < saving->selection.n_sequences; i++)
        CL_TRY(cl_saving_put_log(saving, i, 0, sink, error));
    for (uint32_t g = 0; g < saving->memory->n_groups; g++)
        CL_TRY(cl_saving_put_cells(saving, g, sink, error));
    CL_TRY(cl_saving_put_sequences(saving, sink, error));
    return cl_saving_put_index(saving, sink, commit, error);
}

cellar_status cl_saving_measure(cl_saving *saving, cl_session_commit *measured, cellar_error *error)
{
    cl_sink counter;
    (void)cl_sink_open(&counter, NULL, &saving->memory->kernels, 0, &saving->alloc);
    CL_TRY(cl_saving_map(saving, NULL, error));
    return put_whole(saving, NULL, &counter, measured, error);
}

cellar_status cellar_measure_session(const cellar_memory *memory,
                                     const cellar_save_options *options, uint64_t *bytes,
                                     cellar_error *error)
{
    if (!bytes) CL_FAIL(error, CELLAR_INVALID, -1, "bytes is NULL");
    cl_saving saving;
    cl_session_commit commit;
    CL_TRY(cl_saving_open(&saving, memory, options, error));
    cellar_status status = cl_saving_measure(&saving, &commit, error);
    if (status == CELLAR_OK) *bytes = commit.length;
    cl_saving_close(&saving);
    return status;
}

cellar_status cl_saving_write(cl_saving *saving, const cl_session_commit *measured,
                              const cellar_writer *writer, cellar_error *error)
{
    cl_session_commit commit;
    cl_sink sink;
    if (!cl_sink_open(&sink, writer, &saving->memory->kernels, 0, &saving->alloc))
        return cl_error_no_memory(error, "a buffer", CL_SINK_BYTES);
    cellar_status status = put_whole(saving, measured, &sink, &commit, error);
    cl_sink_close(&sink, &saving->alloc);
    return status;
}

cellar_status cellar_write_session(const cellar_memory *memory, const cellar_save_options *options,
                                   const cellar_writer *writer, cellar_error *error)
{
    if (!writer || !writer->write) CL_FAIL(error, CELLAR_INVALID, -1, "the writer is NULL");
    cl_saving saving;
    cl_session_commit measured;
    CL_TRY(cl_saving_open(&saving, memory, options, error));
    cellar_status status = cl_saving_measure(&saving, &measured, error);
    if (status == CELLAR_OK) status = cl_saving_write(&saving, &measured, writer, error);
    cl_saving_close(&saving);
    return status;
}
