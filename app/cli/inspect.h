/*
 * inspect.h: what the parts of `cellar inspect` share: the summary of a file, and showing its texts
 * and numbers.
 *
 *   command_inspect.c   the command line
 *   inspect_summary.c   counting; texts and numbers made printable
 *   inspect_text.c      tables for people
 *   inspect_json.c      the same for programs
 *   inspect_plan.c      what a memory for the model would take, gathered item by item
 */
#ifndef APP_INSPECT_H
#define APP_INSPECT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/memory_options.h"
#include "engine/gguf.h"

/* How much of a file its tensors of one type take. */
typedef struct inspect_type {
    uint32_t type;
    uint32_t n_tensors;
    uint64_t n_parameters;
    uint64_t n_bytes;
} inspect_type;

enum { INSPECT_MAX_TYPES = 64 }; /* more than there are */

typedef struct inspect_summary {
    const char *path;
    gguf_string architecture, name;        /* data NULL: the file does not say */
    uint64_t n_parameters;                 /* elements of all tensors */
    uint64_t n_bytes;                      /* of all tensors */
    inspect_type types[INSPECT_MAX_TYPES]; /* [n_types], the largest first */
    uint32_t n_types;
} inspect_summary;

inspect_summary inspect_summarize(const char *path, const gguf_file *file);

/* What a memory for the model would take. */
typedef struct inspect_plan {
    uint32_t n_cells;
    cellar_bytes *items; /* [n_items] */
    size_t n_items, capacity;
    bool is_cut;        /* there was no memory for all of them */
    cellar_sizes sizes; /* sums of the items */
} inspect_plan;

/*
 * Load the model and plan a memory for it. To be freed, whatever it returns. Statuses of model_load
 * and cellar_measure; CELLAR_NO_MEMORY.
 */
cellar_status inspect_plan_make(const gguf_file *file, const memory_options *options,
                                inspect_plan *plan, cellar_error *error);
void inspect_plan_free(inspect_plan *plan);

/* "rows", "states", ...: what bytes of a kind are for. */
const char *inspect_kind_name(cellar_bytes_kind kind);

/* Has the item rows of a type? */
bool inspect_has_type(const cellar_bytes *item);

/* Which parts to show besides the summary. */
typedef struct inspect_parts {
    bool metadata, tensors;
    const inspect_plan *plan; /* NULL: none was asked for */
} inspect_parts;

void inspect_print_text(const gguf_file *file, const inspect_summary *summary, inspect_parts parts);
void inspect_print_json(const gguf_file *file, const inspect_summary *summary, inspect_parts parts);

/* ---- texts and numbers ---------------------------------------------------------------------- */

/*
 * Print the text so that no byte of it can drive a terminal: what is not printable becomes \n, \t,
 * \xff or \u{202e}. At most `columns` are used; a longer text is cut and ends in "...". NULL as
 * stream prints nothing. Returns the columns used, counting one for a character.
 */
uint32_t inspect_put_text(FILE *stream, gguf_string text, uint32_t columns);

/* Is the whole text UTF-8, so that nothing had to be replaced? */
bool inspect_is_utf8(gguf_string text);

/*
 * Element i of a numeric or bool value in decimal, exactly: floats by the shortest digits that read
 * back the same.
 */
void inspect_format_number(char out[40], const gguf_value *value, uint64_t i);

/* 1054336 -> "1.01 MiB" */
void inspect_format_size(char out[32], uint64_t bytes);

#endif /* APP_INSPECT_H */
