/*
 * prefix_library.c: the object, and running sequences: extended, cut, retained, released.
 *
 * A running sequence is the caller's: the library knows its tokens and asks the memory about it, and never
 * changes it. When it is retained its cells get a name of the library's (a fork, then the caller's name is
 * forgotten), so names of the caller are free for the next request.
 */
#include "prefix_library.h"

#include <stdio.h>

#include "checked.h"
#include "error.h"

#define MOST_ENTRIES (1u << 20)
#define NAME_TRIES 65536u /* names that are tried for one of the right pool */

/* ---- making ------------------------------------------------------------------------------------ */

static cellar_status check_config(const cellar_memory *memory, const cellar_library_config *config,
                                  cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    if (!config) CL_FAIL(error, CELLAR_INVALID, -1, "config is NULL");
    if (config->struct_size != sizeof *config)
        CL_FAIL(error, CELLAR_INVALID, -1,
                "config.struct_size is %zu, not %zu: use cellar_library_config_init",
                config->struct_size, sizeof *config);
    if (config->first_seq < 0)
        CL_FAIL(error, CELLAR_INVALID, config->first_seq, "config.first_seq is %d, below 0",
                (int)config->first_seq);
    if (config->n_entries == 0 || config->n_entries > MOST_ENTRIES)
        CL_FAIL(error, CELLAR_INVALID, config->n_entries, "config.n_entries is %u, not 1..%u",
                config->n_entries, MOST_ENTRIES);
    if (config->index_bytes == 0)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.index_bytes is 0: nothing could be known");
    const cellar_allocator *a = &config->allocator;
    if (!a->allocate != !a->release || (a->resize && !a->allocate))
        CL_FAIL(error, CELLAR_INVALID, -1,
                "config.allocator needs allocate and release, or neither");
    bool has_store = config->ram_bytes > 0 || (config->folder && config->disk_bytes > 0);
    for (uint32_t g = 0; has_store && g < memory->n_groups; g++)
        if (memory->groups[g].is_external)
            CL_FAIL(error, CELLAR_UNSUPPORTED, g,
                    "group %u is external, its rows cannot be stored: ram_bytes 0, no folder", g);
    return CELLAR_OK;
}

/* The row types of all layers, as text: "0:f16/f16 12:q8_0/q8_0". Bytes, NUL included; to NULL: counted. */
static size_t describe_rows(const cellar_memory *memory, char *to, size_t size)
{
    size_t used = 0;
    int last_k = -1, last_v = -1;
    for (uint32_t i = 0; i < memory->n_layers; i++) {
        const cl_layer *layer = &memory->layers[i];
        int k = layer->k ? (int)layer->k->type : -1, v = layer->v ? (int)layer->v->type : -1;
        if (k == last_k && v == last_v) continue;
        last_k = k;
        last_v = v;
        int n = snprintf(to ? to + used : NULL, to ? size - used : 0, "%u:%s/%s ", i,
                         k < 0 ? "-" : cellar_type_name((cellar_type)k),
                         v < 0 ? "-" : cellar_type_name((cellar_type)v));
        used += (size_t)n;
    }
    return used + 1;
}

/* What is added to each key: the facts of the configuration, and the row types. */
static cellar_status make_base(cellar_library *library, const cellar_library_config *config,
                               cellar_error *error)
{
    cl_alloc alloc = library->store; /* given back at once: nothing is counted */
    alloc.limit = 0;
    CL_TRY(cl_prefix_key_check_facts(config->facts, config->n_facts, &alloc, error));
    size_t text_bytes = describe_rows(library->memory, NULL, 0), list_bytes, bytes;
    if (!cl_checked_mul((size_t)config->n_facts + 1, sizeof(cellar_note), &list_bytes) ||
        !cl_checked_add(list_bytes, text_bytes, &bytes))
        return cl_error_no_memory(error, "facts", SIZE_MAX);
    cellar_note *notes = cl_alloc_get(&alloc, CELLAR_BYTES_OBJECT, bytes);
    if (!notes) return cl_error_no_memory(error, "facts", bytes);
    char *text = (char *)notes + list_bytes;
    (void)describe_rows(library->memory, text, text_bytes);
    for (uint32_t i = 0; i < config->n_facts; i++)
        notes[i] = config->facts[i];
    notes[config->n_facts] = (cellar_note){CL_PREFIX_ROWS, text, text_bytes - 1};
    bool is_copied = cl_prefix_notes_copy(notes, config->n_facts + 1, &library->index,
                                          &library->base);
    cl_alloc_put(&alloc, CELLAR_BYTES_OBJECT, notes, bytes);
    if (is_copied) return CELLAR_OK;
    if (library->index.was_limited)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.index_bytes is too small for the facts");
    return cl_error_no_memory(error, "facts", bytes);
}

cellar_status cellar_library_create(cellar_memory *memory, const cellar_library_config *config,
                                    cellar_library **library, cellar_error *error)
{
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    *library = NULL;
    CL_TRY(check_config(memory, config, error));
    cl_alloc alloc;
    cl_alloc_init(&alloc, &config->allocator, config->index_bytes);
    cellar_library *its = cl_alloc_get(&alloc, CELLAR_BYTES_OBJECT, sizeof *its);
    if (!its && alloc.was_limited)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.index_bytes is %llu, less than %zu",
                (unsigned long long)config->index_bytes, sizeof *its);
    if (!its) return cl_error_no_memory(error, "a prefix library", sizeof *its);
    memset(its, 0, sizeof *its);
    its->memory = memory;
    its->config = *config;
    its->config.facts = NULL;
    its->config.folder = NULL;
    its->index = alloc;
    cl_alloc_init(&its->store, &config->allocator, config->ram_bytes);
    its->next_seq = config->first_seq;
    its->disk = (cl_prefix_folder){.handle = -1, .lock = -1};
    cellar_status status = make_base(its, config, error);
    if (status == CELLAR_OK && config->folder && config->disk_bytes > 0)
        status = cl_prefix_folder_open(its, config->folder, error);
    if (status != CELLAR_OK) {
        cellar_library_destroy(its);
        return status;
    }
    *library = its;
    return CELLAR_OK;
}

void cellar_library_destroy(cellar_library *library)
{
    if (!library) return;
    while (library->n_entries > 0) {
        cl_prefix_entry *entry = library->entries[library->n_entries - 1];
        if (!entry->is_running) cl_prefix_entries_leave(library, entry, CL_PREFIX_CELLS);
        cl_prefix_entries_leave(library, entry, CL_PREFIX_RAM);
        cl_prefix_entries_remove(library, entry);
    }
    cl_prefix_folder_close(&library->disk);
    cl_prefix_notes_free(&library->base, &library->index);
    cl_alloc *index = &library->index;
    cl_alloc_put(index, CELLAR_BYTES_OBJECT, library->spaces,
                 library->space_capacity * sizeof *library->spaces);
    cl_alloc_put(index, CELLAR_BYTES_OBJECT, library->entries,
                 library->entry_capacity * sizeof *library->entries);
    cl_alloc alloc = *index; /* the object itself goes */
    cl_alloc_put(&alloc, CELLAR_BYTES_OBJECT, library, sizeof *library);
}

/* ---- running sequences ------------------------------------------------------------------------- */

static cellar_status find_running(const cellar_library *library, cellar_seq seq,
                                  cl_prefix_entry **out, cellar_error *error)
{
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    *out = cl_prefix_entries_running(library, seq);
    if (!*out)
        CL_FAIL(error, CELLAR_INVALID, seq, "sequence %d is not running: attach it", (int)seq);
    return CELLAR_OK;
}

/* Does the memory hold as many positions of a sequence as the library has been told? */
static cellar_status check_held(const cellar_library *library, cellar_seq seq, uint64_t n,
                                cellar_error *error)
{
    cellar_pos next, last;
    cl_memory_position(library->memory, seq, &next, &last);
    if (n > 0 && (next < 0 || (uint64_t)next < n))
        CL_FAIL(error, CELLAR_INVALID, seq,
                "sequence %d goes on at position %d, not behind %llu tokens: cut it", (int)seq,
                (int)(next < 0 ? 0 : next), (unsigned long long)n);
    return CELLAR_OK;
}

cellar_status cellar_library_extend(cellar_library *library, cellar_seq seq,
                                    const cellar_token *tokens, uint32_t n_tokens,
                                    cellar_error *error)
{
    cl_prefix_entry *entry;
    CL_TRY(find_running(library, seq, &entry, error));
    CL_TRY(cl_memory_check_idle(library->memory, error));
    uint64_t n = (uint64_t)entry->n_ready + n_tokens;
    if (!tokens && n > entry->text.n)
        CL_FAIL(error, CELLAR_INVALID, seq,
                "sequence %d was about to read %u tokens more, not %u: say which", (int)seq,
                entry->text.n - entry->n_ready, n_tokens);
    if (tokens) CL_TRY(cl_prefix_entries_check_tokens(tokens, n_tokens, error));
    CL_TRY(check_held(library, seq, n, error));
    uint32_t known = entry->n_ready; /* tokens that are as they were noted */
    if (tokens)
        known += cl_prefix_index_common(entry->text.tokens + known, entry->text.n - known, tokens,
                                        n_tokens, 0);
    if (!tokens || known == n) {
        entry->n_ready = (uint32_t)n;
        return CELLAR_OK;
    }
    CL_TRY(cl_prefix_entries_reserve(library, entry, n, error));
    if (known < entry->text.n) cl_prefix_index_shrink(&entry->space->index, &entry->text, known);
    memcpy(entry->text.tokens + known, tokens + (known - entry->n_ready),
           ((size_t)n - known) * sizeof *tokens);
    cl_prefix_index_grow(&entry->space->index, &entry->text, (uint32_t)n);
    entry->n_ready = (uint32_t)n;
    return CELLAR_OK;
}

static void cut(cl_prefix_entry *entry, uint32_t n)
{
    entry->n_ready = n;
    cl_prefix_index_shrink(&entry->space->index, &entry->text, n);
}

cellar_status cellar_library_cut(cellar_library *library, cellar_seq seq, uint32_t n_tokens,
                                 cellar_error *error)
{
    cl_prefix_entry *entry;
    CL_TRY(find_running(library, seq, &entry, error));
    if (n_tokens > entry->n_ready)
        CL_FAIL(error, CELLAR_INVALID, n_tokens, "sequence %d has read %u tokens, not %u", (int)seq,
                entry->n_ready, n_tokens);
    cut(entry, n_tokens);
    return CELLAR_OK;
}

cellar_status cellar_library_release(cellar_library *library, cellar_seq seq, cellar_error *error)
{
    cl_prefix_entry *entry;
    CL_TRY(find_running(library, seq, &entry, error));
    cl_prefix_entries_remove(library, entry);
    return CELLAR_OK;
}

/* ---- retaining --------------------------------------------------------------------------------- */

static void forget_sequence(cellar_library *library, cellar_seq seq)
{
    cellar_status status = cellar_remove(library->memory, seq, 0, -1, NULL);
    (void)status; /* of a whole sequence, with no step open: it cannot fail */
}

/* A name that nobody has, in the pool if that has one among the next names. */
static cellar_seq choose_name(cellar_library *library, uint32_t pool)
{
    cellar_seq first_free = -1;
    for (uint32_t i = 0; i < NAME_TRIES; i++) {
        cellar_pos next, last;
        cellar_seq name = library->next_seq;
        library->next_seq = name == INT32_MAX ? library->config.first_seq : name + 1;
        cl_memory_position(library->memory, name, &next, &last);
        if (next >= 0 || last >= 0) continue;
        if (cl_memory_pool_of(library->memory, name) == pool) return name;
        if (first_free < 0) first_free = name;
    }
    return first_free;
}

cellar_seq cl_prefix_library_name(cellar_library *library, cellar_seq beside)
{
    return choose_name(library, cl_memory_pool_of(library->memory, beside));
}

/* Give what a sequence holds of its first n tokens a name of the library. */
static cellar_status rename_it(cellar_library *library, cellar_seq seq, uint32_t n,
                               cellar_seq *name, cellar_pos *held, cellar_error *error)
{
    cellar_memory *memory = library->memory;
    *name = choose_name(library, cl_memory_pool_of(memory, seq));
    if (*name < 0)
        CL_FAIL(error, CELLAR_FULL, library->config.first_seq,
                "no name from %d on is free for a retained sequence",
                (int)library->config.first_seq);
    CL_TRY(cellar_copy(memory, seq, *name, 0, -1, error));
    cellar_status status = cellar_rewind(memory, *name, (cellar_pos)n, held, error);
    if (status != CELLAR_OK) {
        forget_sequence(library, *name);
        return status;
    }
    forget_sequence(library, seq);
    return CELLAR_OK;
}

cellar_status cellar_library_retain(cellar_library *library, cellar_seq seq, uint64_t *entry,
                                    cellar_error *error)
{
    cl_prefix_entry *its;
    cellar_seq name = -1;
    cellar_pos held = 0;
    CL_TRY(find_running(library, seq, &its, error));
    CL_TRY(cl_memory_check_idle(library->memory, error));
    CL_TRY(check_held(library, seq, its->n_ready, error));
    if (its->n_ready > 0)
        CL_TRY(rename_it(library, seq, its->n_ready, &name, &held, error));
    else
        forget_sequence(library, seq);
    if (entry) *entry = held > 0 ? its->number : 0;
    if (held == 0) {
        if (name >= 0) forget_sequence(library, name);
        cl_prefix_entries_remove(library, its);
        return CELLAR_OK;
    }
    cut(its, (uint32_t)held);
    its->seq = name;
    its->is_running = false;
    cl_prefix_entries_touch(library, its);
    cl_prefix_entries_supersede(library, its, CL_PREFIX_CELLS);
    return CELLAR_OK;
}
