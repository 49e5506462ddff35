/*
 * prefix_questions.c: what the library knows: shown, counted and checked.
 *
 * Nothing here changes anything. Checking is for tests: it computes anew what the rest of the library only
 * ever updates.
 */
#include "prefix_library.h"

#include "error.h"

const char *cellar_prefix_source_text(cellar_prefix_source source)
{
    switch ((int)source) {
#define SOURCE_TEXT(name, value, text)                                                             \
    case value:                                                                                    \
        return text;
        CELLAR_PREFIX_SOURCES(SOURCE_TEXT)
#undef SOURCE_TEXT
    default:
        return "unknown";
    }
}

const char *cellar_prefix_reason_text(cellar_prefix_reason reason)
{
    switch ((int)reason) {
#define REASON_TEXT(name, value, text)                                                             \
    case value:                                                                                    \
        return text;
        CELLAR_PREFIX_REASONS(REASON_TEXT)
#undef REASON_TEXT
    default:
        return "unknown";
    }
}

static void describe(const cl_prefix_entry *entry, cellar_entry *out)
{
    const cellar_note *domain = cl_prefix_key_get(&entry->space->key, CL_PREFIX_DOMAIN);
    *out = (cellar_entry){.entry = entry->number,
                          .last_used = entry->last_used,
                          .seq = entry->seq,
                          .is_running = entry->is_running,
                          .is_pinned = entry->is_pinned,
                          .is_shared = domain == NULL,
                          .n_tokens = entry->n_ready,
                          .n_planned = entry->text.n,
                          .ram_bytes = entry->blob_bytes,
                          .disk_bytes = entry->file_bytes,
                          .tokens = entry->text.tokens};
    if (domain) {
        out->domain = domain->value;
        out->domain_size = domain->size;
    }
}

cellar_status cellar_library_visit(const cellar_library *library, cellar_entry_visitor visitor,
                                   void *context, cellar_error *error)
{
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    if (!visitor) CL_FAIL(error, CELLAR_INVALID, -1, "visitor is NULL");
    for (uint32_t s = 0; s < library->n_spaces; s++) {
        const cl_prefix_index *index = &library->spaces[s]->index;
        for (uint32_t i = 0; i < index->n; i++) {
            cellar_entry entry;
            describe((const cl_prefix_entry *)index->items[i], &entry);
            if (!visitor(context, &entry)) return CELLAR_OK;
        }
    }
    return CELLAR_OK;
}

cellar_status cellar_library_stats(const cellar_library *library, cellar_library_statistics *out,
                                   cellar_error *error)
{
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    *out = library->counts;
    out->n_entries = library->n_entries;
    for (uint32_t i = 0; i < library->n_entries; i++) {
        const cl_prefix_entry *entry = library->entries[i];
        out->n_running += entry->is_running;
        out->n_retained += !entry->is_running && entry->seq >= 0;
        out->n_in_ram += entry->blob != NULL;
        out->n_on_disk += entry->file > 0;
        out->n_pinned += entry->is_pinned;
    }
    out->index_bytes = library->index.total;
    out->ram_bytes = library->store.total;
    out->disk_bytes = library->disk.bytes;
    return CELLAR_OK;
}

/* ---- checking ---------------------------------------------------------------------------------- */

#define WRONG(error, entry, what)                                                                  \
    CL_FAIL_BECAUSE(error, CELLAR_CORRUPT, CELLAR_REASON_INVARIANT, (int64_t)(entry)->number,      \
                    "entry %llu of the prefix library: %s", (unsigned long long)(entry)->number,   \
                    what)

static cellar_status check_index(const cl_prefix_space *space, cellar_error *error)
{
    const cl_prefix_index *index = &space->index;
    for (uint32_t i = 0; i < index->n; i++) {
        const cl_prefix_entry *entry = (const cl_prefix_entry *)index->items[i];
        const cl_prefix_text *text = &entry->text, *before = i > 0 ? index->items[i - 1] : NULL;
        uint32_t common = !before ? 0
                                  : cl_prefix_index_common(before->tokens, before->n, text->tokens,
                                                           text->n, 0);
        if (text->at != i || entry->space != space) WRONG(error, entry, "is not where it says");
        if (text->common != common) WRONG(error, entry, "agrees otherwise with the one before");
        if (before && common < before->n &&
            (common == text->n || before->tokens[common] > text->tokens[common]))
            WRONG(error, entry, "is out of order");
    }
    return CELLAR_OK;
}

static cellar_status check_entry(const cellar_library *library, const cl_prefix_entry *entry,
                                 cellar_error *error)
{
    cellar_pos next, last;
    bool is_stored = entry->blob || entry->file > 0;
    if (entry->seq < 0 && !is_stored) WRONG(error, entry, "is nowhere");
    if (entry->n_ready > entry->text.n || entry->text.n > entry->capacity)
        WRONG(error, entry, "has read more than it knows");
    if (!entry->is_running && entry->n_ready != entry->text.n)
        WRONG(error, entry, "is not running, and is about to read");
    if (entry->is_running && (is_stored || entry->seq >= library->config.first_seq))
        WRONG(error, entry, "is running under the library's name, or stored");
    if (!entry->blob != (entry->blob_bytes == 0) || !entry->file != (entry->file_bytes == 0))
        WRONG(error, entry, "has bytes and no store, or a store and no bytes");
    if (entry->seq < 0) return CELLAR_OK;
    cl_memory_position(library->memory, entry->seq, &next, &last);
    if (entry->n_ready > 0 && (next < 0 || (uint32_t)next < entry->n_ready))
        WRONG(error, entry, "is not in the memory");
    if (!entry->is_running && (uint32_t)next != entry->n_ready)
        WRONG(error, entry, "is longer in the memory");
    return CELLAR_OK;
}

static cellar_status check_sums(const cellar_library *library, cellar_error *error)
{
    uint64_t ram = 0, disk = library->disk.orphaned;
    uint32_t n = 0;
    for (uint32_t i = 0; i < library->n_entries; i++) {
        ram += library->entries[i]->blob_bytes;
        disk += library->entries[i]->file_bytes;
    }
    for (uint32_t i = 0; i < library->n_spaces; i++)
        n += library->spaces[i]->index.n;
    bool is_right = n == library->n_entries && ram == library->store.total &&
                    disk == library->disk.bytes && n <= library->config.n_entries &&
                    ram <= library->config.ram_bytes && disk <= library->config.disk_bytes &&
                    library->index.total <= library->config.index_bytes;
    if (!is_right)
        CL_FAIL_BECAUSE(error, CELLAR_CORRUPT, CELLAR_REASON_INVARIANT, -1,
                        "the sums or limits of the prefix library are wrong");
    return CELLAR_OK;
}

cellar_status cellar_library_check(const cellar_library *library, cellar_error *error)
{
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    for (uint32_t i = 0; i < library->n_spaces; i++) {
        const cl_prefix_space *space = library->spaces[i];
        if (space->index.n == 0)
            CL_FAIL_BECAUSE(error, CELLAR_CORRUPT, CELLAR_REASON_INVARIANT, i,
                            "a key of the prefix library has no entries");
        CL_TRY(check_index(space, error));
    }
    for (uint32_t i = 0; i < library->n_entries; i++)
        CL_TRY(check_entry(library, library->entries[i], error));
    return check_sums(library, error);
}
