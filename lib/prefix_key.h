/*
 * prefix_key.h: what has to be equal before tokens are compared at all.
 *
 * A key is a list of named values: facts of the model, facts of the request, the row types of the
 * memory, salt and owner. Sorted by name it has one form, so two keys are equal when their lists are. The
 * same list is written into a file as its facts, so a file says by itself where it belongs. Names keep
 * parts apart: no value of one can pass for another.
 *
 *     (facts, by name)   prefix.rows   prefix.salt   prefix.domain or prefix.shared
 *
 * All entries under one key form a space: an index of their own, which nothing leads out of.
 */
#ifndef CL_PREFIX_KEY_H
#define CL_PREFIX_KEY_H

#include "prefix_index.h"

#define CL_PREFIX_ROWS "prefix.rows"
#define CL_PREFIX_SALT "prefix.salt"
#define CL_PREFIX_DOMAIN "prefix.domain"
#define CL_PREFIX_SHARED "prefix.shared"
#define CL_PREFIX_KEY_BYTES 4096u /* most of a domain, and of a salt */

/* A list of notes, in order; what they point to is somebody else's, or part of the block. */
typedef struct cl_prefix_notes {
    cellar_note *items; /* [n] */
    uint32_t n;
    size_t bytes; /* of the block */
} cl_prefix_notes;

typedef struct cl_prefix_space {
    cl_prefix_notes key; /* the owner is the last one */
    uint64_t hash;       /* of the key; for what is told, never for what is reused */
    cl_prefix_index index;
} cl_prefix_space;

/* Copy notes and what they point to into one block. False: no memory. */
bool cl_prefix_notes_copy(const cellar_note *notes, uint32_t n, cl_alloc *alloc,
                          cl_prefix_notes *out);
void cl_prefix_notes_free(cl_prefix_notes *notes, cl_alloc *alloc);

/* Are these facts that a caller may give? CELLAR_INVALID, CELLAR_NO_MEMORY. */
cellar_status cl_prefix_key_check_facts(const cellar_note *facts, uint32_t n, cl_alloc *alloc,
                                        cellar_error *error);

/*
 * The list of a key; `base` is what the library adds. Its values are those of the key and the base,
 * which must stay. CELLAR_INVALID, CELLAR_NO_MEMORY.
 */
cellar_status cl_prefix_key_collect(const cl_prefix_notes *base, const cellar_prefix_key *key,
                                    cl_alloc *alloc, cl_prefix_notes *out, cellar_error *error);

/* The list of a session's facts. False: no memory. */
bool cl_prefix_key_sort(const cellar_note *facts, uint32_t n, cl_alloc *alloc,
                        cl_prefix_notes *out);

bool cl_prefix_key_equal(const cl_prefix_notes *a, const cl_prefix_notes *b);

/* Do they differ in their owner only? */
bool cl_prefix_key_is_elsewhere(const cl_prefix_notes *a, const cl_prefix_notes *b);

/* For what is told, never for what is reused. */
uint64_t cl_prefix_key_hash(const cl_prefix_notes *key);

/* A note of the list by name; NULL. */
const cellar_note *cl_prefix_key_get(const cl_prefix_notes *key, const char *name);

/* An empty space; the key is copied. NULL: no memory. */
cl_prefix_space *cl_prefix_space_create(const cl_prefix_notes *key, cl_alloc *alloc);
void cl_prefix_space_destroy(cl_prefix_space *space, cl_alloc *alloc);

#endif /* CL_PREFIX_KEY_H */
