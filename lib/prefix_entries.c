/*
 * prefix_entries.c: entries: made, found, forgotten, the last used; room for them in the index.
 *
 * Everything of an entry but its session in RAM is counted against index_bytes. When that is used up, or the
 * number of entries, the one that was not used for longest is forgotten, in whatever place it is; running and
 * pinned ones stay. So adding fails only when nothing else is left, and leaves no trace then.
 */
#include "prefix_library.h"

#include "error.h"

/* ---- which ------------------------------------------------------------------------------------ */

cl_prefix_entry *cl_prefix_entries_running(const cellar_library *library, cellar_seq seq)
{
    for (uint32_t i = 0; i < library->n_entries; i++)
        if (library->entries[i]->is_running && library->entries[i]->seq == seq)
            return library->entries[i];
    return NULL;
}

cl_prefix_entry *cl_prefix_entries_numbered(const cellar_library *library, uint64_t number)
{
    for (uint32_t i = 0; i < library->n_entries; i++)
        if (library->entries[i]->number == number) return library->entries[i];
    return NULL;
}

void cl_prefix_entries_touch(cellar_library *library, cl_prefix_entry *entry)
{
    entry->last_used = ++library->clock;
}

bool cl_prefix_entries_is_in(const cl_prefix_entry *entry, cl_prefix_where where)
{
    switch (where) {
    case CL_PREFIX_CELLS:
        return entry->seq >= 0;
    case CL_PREFIX_RAM:
        return entry->blob != NULL;
    case CL_PREFIX_DISK:
        return entry->file > 0;
    }
    return false;
}

static bool may_go(const cl_prefix_entry *entry)
{
    return !entry->is_running && !entry->is_pinned && entry->n_guards == 0;
}

cl_prefix_entry *cl_prefix_entries_oldest(const cellar_library *library, cl_prefix_where where,
                                          uint64_t after, uint64_t before)
{
    cl_prefix_entry *oldest = NULL;
    for (uint32_t i = 0; i < library->n_entries; i++) {
        cl_prefix_entry *entry = library->entries[i];
        if (!cl_prefix_entries_is_in(entry, where) || !may_go(entry)) continue;
        if (entry->last_used <= after || entry->last_used >= before) continue;
        if (!oldest || entry->last_used < oldest->last_used) oldest = entry;
    }
    return oldest;
}

/* ---- leaving ---------------------------------------------------------------------------------- */

void cl_prefix_entries_leave(cellar_library *library, cl_prefix_entry *entry, cl_prefix_where where)
{
    if (!cl_prefix_entries_is_in(entry, where)) return;
    if (where == CL_PREFIX_CELLS) {
        cellar_status status = cellar_remove(library->memory, entry->seq, 0, -1, NULL);
        (void)status; /* of a whole sequence, with no step open: it cannot fail */
        entry->seq = -1;
    } else if (where == CL_PREFIX_RAM) {
        cl_prefix_store_free(library, entry);
    } else {
        cl_prefix_folder_abandon(&library->disk, entry);
    }
}

bool cl_prefix_entries_settle(cellar_library *library, cl_prefix_entry *entry, bool is_lost)
{
    if (entry->seq >= 0 || entry->blob || entry->file > 0) return true;
    if (is_lost) {
        cl_prefix_lost_add(&library->lost, entry->space->hash, entry->text.tokens, entry->text.n);
        library->counts.n_lost++;
    }
    cl_prefix_entries_remove(library, entry);
    return false;
}

/* Forget the entry that was not used for longest, to make room in the index. False: none may go. */
static bool forget_oldest(cellar_library *library)
{
    cl_prefix_entry *oldest = NULL;
    for (uint32_t i = 0; i < library->n_entries; i++) {
        cl_prefix_entry *entry = library->entries[i];
        if (may_go(entry) && (!oldest || entry->last_used < oldest->last_used)) oldest = entry;
    }
    if (!oldest) return false;
    cl_prefix_entries_leave(library, oldest, CL_PREFIX_CELLS);
    cl_prefix_entries_leave(library, oldest, CL_PREFIX_RAM);
    cl_prefix_entries_leave(library, oldest, CL_PREFIX_DISK);
    (void)cl_prefix_entries_settle(library, oldest, true);
    return true;
}

/* ---- spaces ----------------------------------------------------------------------------------- */

cl_prefix_space *cl_prefix_entries_space(const cellar_library *library, const cl_prefix_notes *key)
{
    for (uint32_t i = 0; i < library->n_spaces; i++)
        if (cl_prefix_key_equal(&library->spaces[i]->key, key)) return library->spaces[i];
    return NULL;
}

/* The space of a key, made if need be; NULL: no memory. */
static cl_prefix_space *need_space(cellar_library *library, const cl_prefix_notes *key)
{
    cl_prefix_space *space = cl_prefix_entries_space(library, key);
    if (space) return space;
    void *spaces = library->spaces;
    if (!cl_alloc_reserve(&library->index, CELLAR_BYTES_OBJECT, &spaces, &library->space_capacity,
                          (uint64_t)library->n_spaces + 1, sizeof *library->spaces))
        return NULL;
    library->spaces = spaces;
    space = cl_prefix_space_create(key, &library->index);
    if (space) library->spaces[library->n_spaces++] = space;
    return space;
}

/* A space without entries goes. */
static void settle_space(cellar_library *library, cl_prefix_space *space)
{
    if (space->index.n > 0) return;
    for (uint32_t i = 0; i < library->n_spaces; i++)
        if (library->spaces[i] == space) {
            library->spaces[i] = library->spaces[--library->n_spaces];
            break;
        }
    cl_prefix_space_destroy(space, &library->index);
}

/* ---- tokens ----------------------------------------------------------------------------------- */

cellar_status cl_prefix_entries_check_tokens(const cellar_token *tokens, uint32_t n,
                                             cellar_error *error)
{
    for (uint32_t i = 0; i < n; i++)
        if (tokens[i] < 0)
            CL_FAIL(error, CELLAR_INVALID, i, "token %u is %d, unknown: it cannot be looked up", i,
                    (int)tokens[i]);
    return CELLAR_OK;
}

/* ---- adding ----------------------------------------------------------------------------------- */

/* Room was refused: why, if nothing can be forgotten for it. */
static cellar_status make_way(cellar_library *library, const char *what, cellar_error *error)
{
    if (!library->index.was_limited) return cl_error_no_memory(error, what, 0);
    if (forget_oldest(library)) return CELLAR_OK;
    CL_FAIL_BECAUSE(error, CELLAR_FULL, CELLAR_REASON_BUDGET, -1,
                    "the index of prefixes is full of running and pinned sequences: %llu bytes",
                    (unsigned long long)library->index.limit);
}

static bool reserve_tokens(cellar_library *library, cl_prefix_entry *entry, uint64_t n)
{
    void *tokens = entry->text.tokens;
    if (!cl_alloc_reserve(&library->index, CELLAR_BYTES_OBJECT, &tokens, &entry->capacity, n,
                          sizeof *entry->text.tokens))
        return false;
    entry->text.tokens = tokens;
    return true;
}

cellar_status cl_prefix_entries_reserve(cellar_library *library, cl_prefix_entry *entry, uint64_t n,
                                        cellar_error *error)
{
    while (!reserve_tokens(library, entry, n))
        CL_TRY(make_way(library, "tokens of a prefix", error));
    return CELLAR_OK;
}

static void free_entry(cellar_library *library, cl_prefix_entry *entry)
{
    cl_alloc_put(&library->index, CELLAR_BYTES_OBJECT, entry->text.tokens,
                 entry->capacity * sizeof *entry->text.tokens);
    cl_alloc_put(&library->index, CELLAR_BYTES_OBJECT, entry->places,
                 entry->n_places * sizeof *entry->places);
    cl_alloc_put(&library->index, CELLAR_BYTES_OBJECT, entry, sizeof *entry);
}

static cl_prefix_entry *make_entry(cellar_library *library, const cellar_token *tokens, uint32_t n)
{
    cl_prefix_entry *entry = cl_alloc_get(&library->index, CELLAR_BYTES_OBJECT, sizeof *entry);
    if (!entry) return NULL;
    *entry = (cl_prefix_entry){.seq = -1};
    if (!reserve_tokens(library, entry, n)) {
        cl_alloc_put(&library->index, CELLAR_BYTES_OBJECT, entry, sizeof *entry);
        return NULL;
    }
    if (n > 0) memcpy(entry->text.tokens, tokens, n * sizeof *tokens);
    entry->text.n = n;
    return entry;
}

/* NULL: no memory; nothing has changed. */
static cl_prefix_entry *try_to_add(cellar_library *library, const cl_prefix_notes *key,
                                   const cellar_token *tokens, uint32_t n)
{
    void *entries = library->entries;
    if (!cl_alloc_reserve(&library->index, CELLAR_BYTES_OBJECT, &entries, &library->entry_capacity,
                          (uint64_t)library->n_entries + 1, sizeof *library->entries))
        return NULL;
    library->entries = entries;
    cl_prefix_space *space = need_space(library, key);
    if (!space) return NULL;
    cl_prefix_entry *entry = NULL;
    if (cl_prefix_index_reserve(&space->index, &library->index))
        entry = make_entry(library, tokens, n);
    if (!entry) {
        bool was_limited = library->index.was_limited;
        settle_space(library, space);
        library->index.was_limited = was_limited;
        return NULL;
    }
    entry->space = space;
    entry->number = ++library->last_number;
    cl_prefix_index_put(&space->index, &entry->text);
    library->entries[library->n_entries++] = entry;
    return entry;
}

cellar_status cl_prefix_entries_add(cellar_library *library, const cl_prefix_notes *key,
                                    const cellar_token *tokens, uint32_t n, cl_prefix_entry **out,
                                    cellar_error *error)
{
    while (library->n_entries >= library->config.n_entries)
        if (!forget_oldest(library))
            CL_FAIL_BECAUSE(error, CELLAR_FULL, CELLAR_REASON_BUDGET, -1,
                            "all %u entries of the prefix library are running or pinned",
                            library->n_entries);
    while (!(*out = try_to_add(library, key, tokens, n)))
        CL_TRY(make_way(library, "an entry of the prefix library", error));
    return CELLAR_OK;
}

void cl_prefix_entries_remove(cellar_library *library, cl_prefix_entry *entry)
{
    cl_prefix_index_take(&entry->space->index, &entry->text);
    settle_space(library, entry->space);
    for (uint32_t i = 0; i < library->n_entries; i++)
        if (library->entries[i] == entry) {
            library->entries[i] = library->entries[--library->n_entries];
            break;
        }
    free_entry(library, entry);
}

cellar_status cl_prefix_entries_set_places(cellar_library *library, cl_prefix_entry *entry,
                                           const cl_prefix_places *places, cellar_error *error)
{
    size_t bytes = places->n * sizeof *places->items;
    cl_prefix_place *items = NULL;
    while (bytes > 0 && !(items = cl_alloc_get(&library->index, CELLAR_BYTES_OBJECT, bytes)))
        CL_TRY(make_way(library, "places of a prefix", error));
    if (bytes > 0) memcpy(items, places->items, bytes);
    cl_alloc_put(&library->index, CELLAR_BYTES_OBJECT, entry->places,
                 entry->n_places * sizeof *entry->places);
    entry->places = items;
    entry->n_places = places->n;
    return CELLAR_OK;
}

/* ---- superfluous entries ---------------------------------------------------------------------- */

static void list_places(const cellar_library *library, const cl_prefix_entry *entry,
                        cl_prefix_where where, cl_prefix_places *out)
{
    out->n = 0;
    if (where == CL_PREFIX_CELLS) {
        cl_prefix_places_list(library->memory, entry->seq, entry->n_ready, out);
        return;
    }
    out->n = entry->n_places;
    for (uint32_t i = 0; i < out->n; i++)
        out->items[i] = entry->places[i];
}

/* Can `entry` go on wherever `old`, one of its beginnings, has an end or a checkpoint? */
static bool covers(const cellar_library *library, const cl_prefix_entry *entry,
                   const cl_prefix_entry *old, cl_prefix_where where)
{
    cl_prefix_places its, ours;
    list_places(library, old, where, &its);
    list_places(library, entry, where, &ours);
    for (uint32_t i = 0; i < its.n; i++)
        if (cl_prefix_places_find(ours.items, ours.n, its.items[i].last) != its.items[i].last)
            return false;
    return true;
}

static bool is_superfluous(const cellar_library *library, const cl_prefix_entry *entry,
                           const cl_prefix_entry *old, cl_prefix_where where)
{
    return old != entry && may_go(old) && cl_prefix_entries_is_in(old, where) &&
           covers(library, entry, old, where);
}

static cl_prefix_entry *find_superfluous(const cellar_library *library,
                                         const cl_prefix_entry *entry, cl_prefix_where where)
{
    const cl_prefix_index *index = &entry->space->index;
    uint32_t common = entry->text.common, at = entry->text.at;
    for (uint32_t i = at; i > 0 && common > 0; i--) {
        cl_prefix_entry *old = (cl_prefix_entry *)index->items[i - 1];
        if (old->text.n <= common && is_superfluous(library, entry, old, where)) return old;
        if (old->text.common < common) common = old->text.common;
    }
    for (uint32_t i = at + 1; i < index->n; i++) { /* the same text once more */
        cl_prefix_entry *old = (cl_prefix_entry *)index->items[i];
        if (old->text.common < entry->text.n || old->text.n > entry->text.n) break;
        if (is_superfluous(library, entry, old, where)) return old;
    }
    return NULL;
}

void cl_prefix_entries_supersede(cellar_library *library, const cl_prefix_entry *entry,
                                 cl_prefix_where where)
{
    cl_prefix_entry *old;
    while ((old = find_superfluous(library, entry, where))) {
        cl_prefix_entries_leave(library, old, where);
        (void)cl_prefix_entries_settle(library, old, false);
    }
}
