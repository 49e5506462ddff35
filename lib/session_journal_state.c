/*
 * session_journal_state.c: remembering what a file has.
 *
 * A cell is in the file if its number is known and its stamp is still the one of that moment; only cells
 * that were held then get a number, because the stamp of a free one says nothing about who takes it next.
 * What was written of MODEL, NOTES and logs is kept whole and compared whole: a checksum could be right by
 * chance.
 */
#include <string.h>

#include "error.h"
#include "session_journal.h"
#include "session_model.h"
#include "session_notes.h"
#include "sort.h"

/* ---- cells --------------------------------------------------------------------------------------- */

static uint32_t file_cell(const void *context, uint32_t cell)
{
    const cl_file_cells *its = context;
    uint32_t stamp = cell >> its->cells->stamp_shift;
    if (cell >= its->n || stamp >= its->n_stamps) return CL_NO_FILE_CELL;
    bool is_same = its->stamps[stamp] == its->cells->stamps[stamp];
    return is_same ? its->numbers[cell] : CL_NO_FILE_CELL;
}

cl_known_cells cl_file_cells_known(const cl_file_cells *cells)
{
    return (cl_known_cells){file_cell, cells, cells->next};
}

static bool get_arrays(cl_file_cells *cells, uint32_t n, uint32_t n_stamps, cl_alloc *alloc)
{
    cells->numbers = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, n * sizeof *cells->numbers);
    cells->stamps = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, n_stamps * sizeof *cells->stamps);
    cells->n = n;
    cells->n_stamps = n_stamps;
    if (cells->numbers && cells->stamps) return true;
    cl_file_cells_free(cells, alloc);
    return false;
}

bool cl_file_cells_reserve(cl_file_cells *cells, cl_alloc *alloc)
{
    uint32_t n = cells->cells->n, n_stamps = n >> cells->cells->stamp_shift;
    if (n == cells->n) return true;
    cl_file_cells wanted = *cells;
    if (!get_arrays(&wanted, n, n_stamps, alloc)) return false;
    uint32_t kept = n < cells->n ? n : cells->n;
    uint32_t kept_stamps = n_stamps < cells->n_stamps ? n_stamps : cells->n_stamps;
    for (uint32_t i = kept; i < n; i++)
        wanted.numbers[i] = CL_NO_FILE_CELL;
    memset(wanted.stamps + kept_stamps, 0, (n_stamps - kept_stamps) * sizeof *wanted.stamps);
    if (kept > 0) memcpy(wanted.numbers, cells->numbers, kept * sizeof *wanted.numbers);
    if (kept > 0) memcpy(wanted.stamps, cells->stamps, kept_stamps * sizeof *wanted.stamps);
    cl_file_cells_free(cells, alloc);
    *cells = wanted;
    return true;
}

void cl_file_cells_free(cl_file_cells *cells, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, cells->stamps,
                 cells->n_stamps * sizeof *cells->stamps);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, cells->numbers, cells->n * sizeof *cells->numbers);
    *cells = (cl_file_cells){.cells = cells->cells, .next = cells->next};
}

void cl_file_cells_forget(cl_file_cells *cells, uint32_t next)
{
    for (uint32_t i = 0; i < cells->n; i++)
        cells->numbers[i] = CL_NO_FILE_CELL;
    if (cells->n > 0)
        memcpy(cells->stamps, cells->cells->stamps, cells->n_stamps * sizeof *cells->stamps);
    cells->next = next;
}

void cl_file_cells_add(cl_file_cells *cells, const cl_span *spans, uint32_t n)
{
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t i = 0; i < spans[s].len; i++) {
            uint32_t cell = spans[s].cell + i;
            if (cells->cells->refs[cell] > 0) cells->numbers[cell] = spans[s].file + i;
        }
}

/* ---- blocks -------------------------------------------------------------------------------------- */

bool cl_block_equal(const cl_block *a, const cl_block *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->bytes, b->bytes, a->size) == 0);
}

/* A block that is being written; it has its size already. */
typedef struct filling {
    cl_block *block;
    size_t used;
} filling;

static bool fill(void *context, const void *bytes, size_t n)
{
    filling *f = context;
    memcpy(f->block->bytes + f->used, bytes, n);
    f->used += n;
    return true;
}

/* MODEL (memory not NULL) or NOTES as bytes. */
static void put(cl_sink *sink, const cellar_memory *memory, const cellar_note *notes, uint32_t n)
{
    if (memory)
        cl_model_put(memory, notes, n, sink);
    else if (n > 0)
        cl_notes_put(sink, notes, n);
}

static bool encode(cl_block *block, const cl_kernels *kernels, const cellar_memory *memory,
                   const cellar_note *notes, uint32_t n, cl_alloc *alloc)
{
    cl_sink sink;
    (void)cl_sink_open(&sink, NULL, kernels, 0, alloc);
    put(&sink, memory, notes, n);
    *block = (cl_block){NULL, 0};
    if (sink.at == 0) return true;
    if (sink.at > SIZE_MAX) return false;
    block->bytes = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, (size_t)sink.at);
    if (!block->bytes) return false;
    block->size = (size_t)sink.at;
    filling f = {block, 0};
    cellar_writer writer = {fill, &f};
    bool ok = cl_sink_open(&sink, &writer, kernels, 0, alloc);
    if (ok) {
        put(&sink, memory, notes, n);
        (void)cl_sink_flush(&sink);
    }
    cl_sink_close(&sink, alloc);
    return ok;
}

/* ---- logs ---------------------------------------------------------------------------------------- */

const cl_known_log *cl_file_content_find(const cl_file_content *content, cellar_seq seq)
{
    uint32_t low = 0, high = content->n_logs;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (content->logs[middle].seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_there = low < content->n_logs && content->logs[low].seq == seq;
    return is_there ? &content->logs[low] : NULL;
}

/* Room for so many logs with so many tokens. */
static bool get_logs(cl_file_content *content, uint32_t n_logs, size_t n_tokens, cl_alloc *alloc)
{
    if (n_logs > 0) {
        content->logs = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, n_logs * sizeof *content->logs);
        if (!content->logs) return false;
        content->n_logs = n_logs;
    }
    if (n_tokens > 0) {
        content->tokens = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH,
                                       n_tokens * sizeof *content->tokens);
        if (!content->tokens) return false;
        content->n_tokens = n_tokens;
    }
    return true;
}

/* Fill in log i; *used tokens are there already. */
static void keep_log(cl_file_content *content, uint32_t i, cl_known_log log, size_t *used)
{
    content->logs[i] = log;
    content->logs[i].tokens = NULL;
    if (log.n_tokens == 0) return;
    content->logs[i].tokens = content->tokens + *used;
    memcpy(content->tokens + *used, log.tokens, log.n_tokens * sizeof *log.tokens);
    *used += log.n_tokens;
}

static bool keep_logs(cl_file_content *content, const cl_saving *saving, cl_alloc *alloc)
{
    const cl_selection *selection = &saving->selection;
    size_t n_tokens = 0, used = 0;
    for (uint32_t i = 0; saving->logs && i < selection->n_sequences; i++)
        if (saving->logs[i]) n_tokens += saving->logs[i]->n_tokens;
    if (!get_logs(content, selection->n_sequences, n_tokens, alloc)) return false;
    content->n_parts = selection->n_sequences;
    for (uint32_t i = 0; i < selection->n_sequences; i++) {
        cl_known_log log = {.seq = (cellar_seq)selection->sequences[i], .part = i};
        if (saving->logs && saving->logs[i]) {
            log.n_tokens = saving->logs[i]->n_tokens;
            log.tokens = saving->logs[i]->tokens;
        }
        keep_log(content, i, log, &used);
    }
    return true;
}

/* Which sequence of a session load option i is about: it was loaded, so it is there. */
static uint32_t part_of(const cellar_session *session, const cellar_load_options *options,
                        uint32_t i)
{
    if (!options->sequences) return i;
    return (uint32_t)(cl_session_find(session, options->sequences[i]) - session->sequences);
}

static bool read_logs(cl_file_content *content, const cellar_session *session,
                      const cellar_load_options *options, cl_alloc *alloc)
{
    uint32_t n = options->sequences ? options->n_sequences : session->n_sequences;
    size_t n_tokens = 0, used = 0;
    content->n_parts = session->n_sequences;
    if (n == 0) return true;
    int64_t *order = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, n * sizeof *order);
    if (!order) return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t part = part_of(session, options, i);
        cellar_seq as = options->sequences && options->as ? options->as[i]
                                                          : session->sequences[part].seq;
        order[i] = (int64_t)as << 32 | part;
        n_tokens += session->sequences[part].n_tokens;
    }
    cl_sort(order, n);
    bool ok = get_logs(content, n, n_tokens, alloc);
    for (uint32_t i = 0; ok && i < n; i++) {
        uint32_t part = (uint32_t)order[i];
        keep_log(content, i,
                 (cl_known_log){.seq = (cellar_seq)(order[i] >> 32),
                                .part = part,
                                .n_tokens = session->sequences[part].n_tokens,
                                .tokens = session->sequences[part].tokens},
                 &used);
    }
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, order, n * sizeof *order);
    return ok;
}

/* ---- all of it ----------------------------------------------------------------------------------- */

void cl_file_content_free(cl_file_content *content, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, content->tokens,
                 content->n_tokens * sizeof *content->tokens);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, content->logs,
                 content->n_logs * sizeof *content->logs);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, content->entries,
                 content->n_entries * sizeof *content->entries);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, content->notes.bytes, content->notes.size);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, content->model.bytes, content->model.size);
    memset(content, 0, sizeof *content);
}

bool cl_file_content_make(cl_file_content *content, const cl_saving *saving, cl_alloc *alloc)
{
    const cellar_memory *memory = saving->memory;
    const cellar_save_options *options = saving->options;
    memset(content, 0, sizeof *content);
    bool ok = encode(&content->model, &memory->kernels, memory, options->facts, options->n_facts,
                     alloc) &&
              encode(&content->notes, &memory->kernels, NULL, options->notes, options->n_notes,
                     alloc) &&
              keep_logs(content, saving, alloc);
    if (!ok) cl_file_content_free(content, alloc);
    return ok;
}

bool cl_file_content_reserve(cl_file_content *content, uint32_t n_entries, cl_alloc *alloc)
{
    size_t bytes = n_entries * sizeof *content->entries;
    content->entries = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, bytes);
    if (!content->entries) return false;
    content->n_entries = n_entries;
    return true;
}

/* Is MODEL of the file what the memory would write? */
static bool has_same_model(const cl_file_content *content, const cellar_session *session,
                           cl_alloc *alloc)
{
    for (uint32_t i = 0; i < session->n_entries; i++) {
        const cl_session_entry *entry = &session->entries[i];
        if (entry->kind != CL_SESSION_MODEL) continue;
        cl_section section;
        if (entry->length != content->model.size ||
            cl_session_get_section(session, alloc, entry, &section, NULL) != CELLAR_OK)
            return false;
        const bool is_same = memcmp(section.bytes, content->model.bytes, section.size) == 0;
        cl_session_put_section(alloc, &section);
        return is_same;
    }
    return false;
}

bool cl_file_content_read(cl_file_content *content, const cellar_memory *memory,
                          const cellar_session *session, const cellar_load_options *options,
                          cl_alloc *alloc)
{
    memset(content, 0, sizeof *content);
    bool ok = encode(&content->model, &memory->kernels, memory, session->model.facts,
                     session->model.n_facts, alloc) &&
              has_same_model(content, session, alloc) &&
              encode(&content->notes, &memory->kernels, NULL, session->notes, session->n_notes,
                     alloc) &&
              read_logs(content, session, options, alloc) &&
              cl_file_content_reserve(content, session->n_entries, alloc);
    if (ok)
        memcpy(content->entries, session->entries, session->n_entries * sizeof *content->entries);
    else
        cl_file_content_free(content, alloc);
    return ok;
}
