/*
 * prefix_library.h: the prefix library: what its files share.
 *
 *     prefix_index.c      texts in the order of their tokens
 *     prefix_key.c        keys, and the spaces under them
 *     prefix_places.c     after how many of its tokens a sequence can go on
 *     prefix_lost.c       what was known once: for reasons
 *     prefix_entries.c    entries: made, found, forgotten, the last used; room for them in the index
 *     prefix_find.c       what a prompt can reuse, and why not more
 *     prefix_attach.c     a new sequence out of what was found
 *     prefix_library.c    the object; running sequences: extended, cut, retained, released
 *     prefix_evict.c      room in the cells; entries by number
 *     prefix_store.c      sequences as sessions: in RAM, or on their way to and from a file
 *     prefix_folder.c     files beneath one folder
 *     prefix_parts.c      parts of sequences, carried from one library to another
 *     prefix_questions.c  what is known, counted, shown and checked
 *
 * It stands on the memory and never inside it: sequences are copied, removed and asked about by the calls
 * of cellar.h. An entry is a text with places where the text's sequence is: in the cells, in RAM, on disk, any
 * of them or several. An entry without a place is forgotten.
 */
#ifndef CL_PREFIX_LIBRARY_H
#define CL_PREFIX_LIBRARY_H

#include "prefix_key.h"
#include "prefix_lost.h"
#include "prefix_places.h"

typedef struct cl_prefix_entry {
    cl_prefix_text text; /* first, so that a text is its entry */
    cl_prefix_space *space;
    uint64_t number, last_used;
    uint64_t tried;    /* the attempt in which it failed: not tried again there */
    uint32_t n_ready;  /* tokens that were read; those up to text.n are still to be */
    uint32_t capacity; /* tokens that there is room for */
    cellar_seq seq;    /* -1: not in the cells */
    uint32_t n_guards; /* > 0: not to be evicted or forgotten just now */
    bool is_running;   /* `seq` is the caller's */
    bool is_pinned;
    void *blob; /* [blob_bytes] in RAM: a session; NULL: not there */
    size_t blob_bytes;
    uint64_t file; /* the number of its file; 0: none */
    uint64_t file_bytes;
    cl_prefix_place *places; /* [n_places] of a stored one */
    uint32_t n_places;
} cl_prefix_entry;

/* The folder of files. */
typedef struct cl_prefix_folder {
    int handle, lock;   /* -1: there is none */
    uint64_t last_file; /* the largest number in use */
    uint64_t bytes;     /* of all files, and of those that could not be removed */
    uint64_t orphaned;  /* of the latter */
} cl_prefix_folder;

struct cellar_library {
    cellar_memory *memory;
    cellar_library_config config; /* facts and folder are not kept: base and disk are */
    cl_alloc index;               /* limit: index_bytes */
    cl_alloc store;               /* limit: ram_bytes */
    cl_prefix_notes base;         /* what the library adds to each key */
    cl_prefix_space **spaces;     /* [n_spaces] each with an entry at least */
    uint32_t n_spaces, space_capacity;
    cl_prefix_entry **entries; /* [n_entries] */
    uint32_t n_entries, entry_capacity;
    cl_prefix_lost lost;
    cl_prefix_folder disk;
    uint64_t last_number, clock, attempt;
    cellar_seq next_seq;
    cellar_library_statistics counts; /* what is counted since the beginning */
};

/* A name of the library's that nobody has, of the pool of another sequence if there is one; -1. */
cellar_seq cl_prefix_library_name(cellar_library *library, cellar_seq beside);

/* ---- entries (prefix_entries.c) --------------------------------------------------------------- */

cl_prefix_space *cl_prefix_entries_space(const cellar_library *library, const cl_prefix_notes *key);

/*
 * A new entry for tokens under a key, in the index, in no place yet. Others are forgotten if the index is
 * full. CELLAR_FULL, CELLAR_NO_MEMORY.
 */
cellar_status cl_prefix_entries_add(cellar_library *library, const cl_prefix_notes *key,
                                    const cellar_token *tokens, uint32_t n, cl_prefix_entry **out,
                                    cellar_error *error);

/* Take an entry that is in no place out of the index. */
void cl_prefix_entries_remove(cellar_library *library, cl_prefix_entry *entry);

/* Unknown tokens (below 0) agree with nothing, so they cannot be looked up. CELLAR_INVALID. */
cellar_status cl_prefix_entries_check_tokens(const cellar_token *tokens, uint32_t n,
                                             cellar_error *error);

/* Room for n tokens. As cl_prefix_entries_add. */
cellar_status cl_prefix_entries_reserve(cellar_library *library, cl_prefix_entry *entry, uint64_t n,
                                        cellar_error *error);

cl_prefix_entry *cl_prefix_entries_running(const cellar_library *library, cellar_seq seq);
cl_prefix_entry *cl_prefix_entries_numbered(const cellar_library *library, uint64_t number);
void cl_prefix_entries_touch(cellar_library *library, cl_prefix_entry *entry);

/* Is it in some place? If not it is forgotten; is_lost: for want of room, which is remembered. */
bool cl_prefix_entries_settle(cellar_library *library, cl_prefix_entry *entry, bool is_lost);

/* The places of an entry, which it has as long as it is stored. CELLAR_FULL, CELLAR_NO_MEMORY. */
cellar_status cl_prefix_entries_set_places(cellar_library *library, cl_prefix_entry *entry,
                                           const cl_prefix_places *places, cellar_error *error);

/* Which place: for what is asked of all entries. */
typedef enum cl_prefix_where { CL_PREFIX_CELLS, CL_PREFIX_RAM, CL_PREFIX_DISK } cl_prefix_where;

bool cl_prefix_entries_is_in(const cl_prefix_entry *entry, cl_prefix_where where);

/*
 * The entry in a place that was not used for longest and may be evicted from there, of those last used
 * after `after` and before `before`. NULL: none.
 */
cl_prefix_entry *cl_prefix_entries_oldest(const cellar_library *library, cl_prefix_where where,
                                          uint64_t after, uint64_t before);

/* Take it out of a place. The cells: no step is open, and the entry is not running. */
void cl_prefix_entries_leave(cellar_library *library, cl_prefix_entry *entry,
                             cl_prefix_where where);

/*
 * Entries that this one makes superfluous leave the place: its beginnings, whose end and checkpoints it
 * has too.
 */
void cl_prefix_entries_supersede(cellar_library *library, const cl_prefix_entry *entry,
                                 cl_prefix_where where);

/* ---- finding (prefix_find.c) ------------------------------------------------------------------- */

/* An answer, and what attaching needs of it. */
typedef struct cl_prefix_answer {
    cellar_prefix told;
    cl_prefix_entry *entry; /* the best one; NULL */
    cl_prefix_space *space; /* NULL: nothing is known under the key */
    cellar_reason why;      /* why what agrees longest is worth less than that; NONE: not known */
    bool has_diverged;
} cl_prefix_answer;

/* A prompt. */
typedef struct cl_prefix_prompt {
    const cellar_token *tokens; /* [n] */
    uint32_t n, most;
} cl_prefix_prompt;

void cl_prefix_find(const cellar_library *library, const cl_prefix_notes *key,
                    cl_prefix_prompt prompt, cl_prefix_answer *answer);

/* Why not more than `reused` tokens are. */
cellar_prefix_reason cl_prefix_find_reason(const cellar_library *library,
                                           const cl_prefix_notes *key, cl_prefix_prompt prompt,
                                           const cl_prefix_answer *answer, uint32_t reused);

/* ---- room in the cells (prefix_evict.c) --------------------------------------------------------- */

/*
 * So many cells (or states) are missing: evict the retained sequence that was not used for longest. The
 * pool: any if UINT32_MAX. False: there is none, or all together are not enough.
 */
bool cl_prefix_evict_for(cellar_library *library, uint32_t pool, int64_t missing);

/* Out of the cells, into a store or away. */
void cl_prefix_evict(cellar_library *library, cl_prefix_entry *entry);

/* ---- stores (prefix_store.c) ------------------------------------------------------------------- */

/* Store what is in the cells, in RAM or on disk. False: it is stored nowhere. */
bool cl_prefix_store_keep(cellar_library *library, cl_prefix_entry *entry);

/* Write what is in the cells or in RAM to a file; only files last used before `before` may go for it.
 * CELLAR_FULL: no room; CELLAR_IO, CELLAR_NO_MEMORY. */
cellar_status cl_prefix_store_write(cellar_library *library, cl_prefix_entry *entry,
                                    uint64_t before, cellar_error *error);

/*
 * Load a stored entry into a sequence that holds nothing. CELLAR_CORRUPT, CELLAR_MISMATCH: it is not what
 * it should be; CELLAR_FULL and others of loading.
 */
cellar_status cl_prefix_store_load(cellar_library *library, cl_prefix_entry *entry, cellar_seq seq,
                                   cellar_error *error);

/* Give its RAM back. */
void cl_prefix_store_free(cellar_library *library, cl_prefix_entry *entry);

/* ---- files (prefix_folder.c) ------------------------------------------------------------------- */

/* Open the folder, take its lock, know its files. Statuses of cellar_library_create. */
cellar_status cl_prefix_folder_open(cellar_library *library, const char *path, cellar_error *error);
void cl_prefix_folder_close(cl_prefix_folder *folder);

/* Write a file for an entry that has none. CELLAR_IO, and what `fill` says. */
typedef cellar_status cl_prefix_fill(void *context, const cellar_writer *writer,
                                     cellar_error *error);
cellar_status cl_prefix_folder_write(cl_prefix_folder *folder, cl_prefix_entry *entry,
                                     cl_prefix_fill *fill, void *context, cellar_error *error);

/* Open a file as a session. *used (may be NULL): when, in nanoseconds. */
cellar_status cl_prefix_folder_read(const cl_prefix_folder *folder, uint64_t file,
                                    const cellar_allocator *allocator, cellar_session **session,
                                    uint64_t *used, cellar_error *error);

/* Its time becomes now. */
void cl_prefix_folder_touch(const cl_prefix_folder *folder, const cl_prefix_entry *entry);

/* Remove an entry's file; what is not there is removed. False: it stays. */
bool cl_prefix_folder_remove(cl_prefix_folder *folder, cl_prefix_entry *entry);

/* The same, and if it stays the entry has none all the same; its bytes go on counting. */
void cl_prefix_folder_abandon(cl_prefix_folder *folder, cl_prefix_entry *entry);

#endif /* CL_PREFIX_LIBRARY_H */
