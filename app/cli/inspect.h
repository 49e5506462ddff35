/*
 * inspect.h: what the parts of `cellar inspect` share: the summary of a file, and showing its texts
 * and numbers.
 *
 *   command_inspect.c   the command line
 *   inspect_summary.c   counting; texts and numbers made printable
 *   inspect_text.c      tables for people
 *   inspect_json.c      the same for programs
 */
#ifndef APP_INSPECT_H
#define APP_INSPECT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

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

/* Which parts to show besides the summary. */
typedef struct inspect_parts {
    bool metadata, tensors;
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

#endif /* APP_INSPECT_H */
