/*
 * prefix_key.c: keys as sorted lists of notes, and the spaces under them.
 *
 * Nothing is encoded or hashed to be compared: names with names, values with values, byte by byte. The
 * owner (domain, or shared) is sorted to the end, whatever other names there are, so that "the same but
 * for the owner" is a comparison of all but the last.
 */
#include "prefix_key.h"

#include "checked.h"
#include "error.h"
#include "session_notes.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool block_bytes(const cellar_note *notes, uint32_t n, size_t *bytes)
{
    if (!cl_checked_mul(n, sizeof *notes, bytes)) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!cl_checked_add(*bytes, strlen(notes[i].name) + 1, bytes) ||
            !cl_checked_add(*bytes, notes[i].size, bytes))
            return false;
    return true;
}

bool cl_prefix_notes_copy(const cellar_note *notes, uint32_t n, cl_alloc *alloc,
                          cl_prefix_notes *out)
{
    size_t bytes;
    *out = (cl_prefix_notes){0};
    if (n == 0) return true;
    if (!block_bytes(notes, n, &bytes)) return false;
    cellar_note *items = cl_alloc_get(alloc, CELLAR_BYTES_OBJECT, bytes);
    if (!items) return false;
    char *text = (char *)(items + n);
    for (uint32_t i = 0; i < n; i++) {
        size_t length = strlen(notes[i].name) + 1;
        memcpy(text, notes[i].name, length);
        if (notes[i].size > 0) memcpy(text + length, notes[i].value, notes[i].size);
        items[i] = (cellar_note){text, text + length, notes[i].size};
        text += length + notes[i].size;
    }
    *out = (cl_prefix_notes){items, n, bytes};
    return true;
}

void cl_prefix_notes_free(cl_prefix_notes *notes, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_OBJECT, notes->items, notes->bytes);
    *notes = (cl_prefix_notes){0};
}

/* ---- order ----------------------------------------------------------------------------------- */

static bool is_owner(const cellar_note *note)
{
    return strcmp(note->name, CL_PREFIX_DOMAIN) == 0 || strcmp(note->name, CL_PREFIX_SHARED) == 0;
}

static bool is_greater(const cellar_note *a, const cellar_note *b)
{
    if (is_owner(a) != is_owner(b)) return is_owner(a);
    return strcmp(a->name, b->name) > 0;
}

/* Insertion: lists are short, and mostly in order already. */
static void sort(cl_prefix_notes *notes)
{
    for (uint32_t i = 1; i < notes->n; i++) {
        cellar_note note = notes->items[i];
        uint32_t at = i;
        for (; at > 0 && is_greater(&notes->items[at - 1], &note); at--)
            notes->items[at] = notes->items[at - 1];
        notes->items[at] = note;
    }
}

static bool make_list(uint32_t n, cl_alloc *alloc, cl_prefix_notes *out)
{
    *out = (cl_prefix_notes){.bytes = n * sizeof(cellar_note)};
    out->items = cl_alloc_get(alloc, CELLAR_BYTES_OBJECT, out->bytes);
    return out->items != NULL;
}

bool cl_prefix_key_sort(const cellar_note *facts, uint32_t n, cl_alloc *alloc, cl_prefix_notes *out)
{
    *out = (cl_prefix_notes){0};
    if (n == 0) return true;
    if (!make_list(n, alloc, out)) return false;
    memcpy(out->items, facts, n * sizeof *facts);
    out->n = n;
    sort(out);
    return true;
}

/* ---- a key of the caller --------------------------------------------------------------------- */

cellar_status cl_prefix_key_check_facts(const cellar_note *facts, uint32_t n, cl_alloc *alloc,
                                        cellar_error *error)
{
    CL_TRY(cl_notes_check(facts, n, "fact", alloc, error));
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(facts[i].name, "prefix.", 7) == 0)
            CL_FAIL(error, CELLAR_INVALID, i, "fact %.80s: names that begin so are the library's",
                    facts[i].name);
    return CELLAR_OK;
}

static cellar_status check_part(const void *value, size_t size, const char *what,
                                cellar_error *error)
{
    if (size > CL_PREFIX_KEY_BYTES)
        CL_FAIL(error, CELLAR_INVALID, -1, "the %s has %zu bytes, more than %u", what, size,
                CL_PREFIX_KEY_BYTES);
    if (size > 0 && !value) CL_FAIL(error, CELLAR_INVALID, -1, "the %s is NULL", what);
    return CELLAR_OK;
}

static cellar_status check_key(const cellar_prefix_key *key, cl_alloc *alloc, cellar_error *error)
{
    if (!key) CL_FAIL(error, CELLAR_INVALID, -1, "key is NULL");
    if (key->struct_size != sizeof *key)
        CL_FAIL(error, CELLAR_INVALID, -1,
                "key.struct_size is %zu, not %zu: use cellar_prefix_key_init", key->struct_size,
                sizeof *key);
    CL_TRY(check_part(key->domain, key->domain_size, "domain", error));
    CL_TRY(check_part(key->salt, key->salt_size, "salt", error));
    return cl_prefix_key_check_facts(key->facts, key->n_facts, alloc, error);
}

cellar_status cl_prefix_key_collect(const cl_prefix_notes *base, const cellar_prefix_key *key,
                                    cl_alloc *alloc, cl_prefix_notes *out, cellar_error *error)
{
    CL_TRY(check_key(key, alloc, error));
    if (!make_list(base->n + key->n_facts + 2, alloc, out))
        return cl_error_no_memory(error, "a key", out->bytes);
    cellar_note *to = out->items;
    for (uint32_t i = 0; i < base->n; i++)
        *to++ = base->items[i];
    for (uint32_t i = 0; i < key->n_facts; i++)
        *to++ = key->facts[i];
    if (key->salt_size > 0) *to++ = (cellar_note){CL_PREFIX_SALT, key->salt, key->salt_size};
    *to++ = key->is_shared ? (cellar_note){CL_PREFIX_SHARED, NULL, 0}
                           : (cellar_note){CL_PREFIX_DOMAIN, key->domain, key->domain_size};
    out->n = (uint32_t)(to - out->items);
    sort(out);
    for (uint32_t i = 1; i < out->n; i++) {
        if (strcmp(out->items[i - 1].name, out->items[i].name) != 0) continue;
        const char *name = out->items[i].name;
        cl_prefix_notes_free(out, alloc);
        CL_FAIL(error, CELLAR_INVALID, -1, "fact %.80s: the library has it already", name);
    }
    return CELLAR_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool are_equal(const cellar_note *a, const cellar_note *b)
{
    return a->size == b->size && strcmp(a->name, b->name) == 0 &&
           (a->size == 0 || memcmp(a->value, b->value, a->size) == 0);
}

static uint32_t n_equal(const cl_prefix_notes *a, const cl_prefix_notes *b)
{
    uint32_t i = 0;
    while (i < a->n && i < b->n && are_equal(&a->items[i], &b->items[i]))
        i++;
    return i;
}

bool cl_prefix_key_equal(const cl_prefix_notes *a, const cl_prefix_notes *b)
{
    return a->n == b->n && n_equal(a, b) == a->n;
}

bool cl_prefix_key_is_elsewhere(const cl_prefix_notes *a, const cl_prefix_notes *b)
{
    return a->n == b->n && a->n > 0 && n_equal(a, b) == a->n - 1 && is_owner(&a->items[a->n - 1]) &&
           is_owner(&b->items[b->n - 1]);
}

const cellar_note *cl_prefix_key_get(const cl_prefix_notes *key, const char *name)
{
    for (uint32_t i = 0; i < key->n; i++)
        if (strcmp(key->items[i].name, name) == 0) return &key->items[i];
    return NULL;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return (hash ^ n) * 0x100000001b3u;
}

uint64_t cl_prefix_key_hash(const cl_prefix_notes *key)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < key->n; i++) {
        hash = hash_bytes(hash, key->items[i].name, strlen(key->items[i].name));
        hash = hash_bytes(hash, key->items[i].value, key->items[i].size);
    }
    return hash;
}

/* ---- spaces ---------------------------------------------------------------------------------- */

cl_prefix_space *cl_prefix_space_create(const cl_prefix_notes *key, cl_alloc *alloc)
{
    cl_prefix_space *space = cl_alloc_get(alloc, CELLAR_BYTES_OBJECT, sizeof *space);
    if (!space) return NULL;
    *space = (cl_prefix_space){.hash = cl_prefix_key_hash(key)};
    if (cl_prefix_notes_copy(key->items, key->n, alloc, &space->key)) return space;
    cl_alloc_put(alloc, CELLAR_BYTES_OBJECT, space, sizeof *space);
    return NULL;
}

void cl_prefix_space_destroy(cl_prefix_space *space, cl_alloc *alloc)
{
    cl_prefix_index_free(&space->index, alloc);
    cl_prefix_notes_free(&space->key, alloc);
    cl_alloc_put(alloc, CELLAR_BYTES_OBJECT, space, sizeof *space);
}
