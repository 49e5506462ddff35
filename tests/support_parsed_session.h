/*
 * support_parsed_session.h: a second reader of session files, for tests: written from docs/session-format.md and
 * nothing else of the library.
 *
 * It believes nothing: whatever the page says of a file is asserted (cmocka), its checksums bit by bit.
 * What it has read is in the structs below, all pointing into the bytes or allocated until
 * parsed_free.
 */
#ifndef SUPPORT_PARSED_SESSION_H
#define SUPPORT_PARSED_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PARSED_GROUPS = 16, PARSED_LAYERS = 16 };

typedef struct parsed_run {
    int32_t pos, shift;
    uint32_t cell, len, step;
} parsed_run;

typedef struct parsed_list {
    uint32_t lost; /* bit 31: sinks are among it */
    uint32_t n;
    parsed_run *runs;
} parsed_list;

typedef struct parsed_mark {
    uint32_t checkpoint;
    int32_t position;
} parsed_mark;

typedef struct parsed_checkpoint {
    int32_t position;
    parsed_list lists[PARSED_GROUPS];
} parsed_checkpoint;

typedef struct parsed_sequence {
    int32_t name;
    uint32_t n_marks, n_tokens;
    parsed_list lists[PARSED_GROUPS];
    parsed_mark *marks;
    int32_t *tokens; /* of its log */
} parsed_sequence;

typedef struct parsed_section {
    uint32_t kind, part, first, count;
    uint64_t offset, length;
} parsed_section;

typedef struct parsed_note {
    const char *name;
    const unsigned char *value;
    uint32_t name_size, size;
} parsed_note;

typedef struct parsed_group {
    uint32_t kind, window_kind, size, n_sinks, has_points;
    uint64_t cell_bytes;
} parsed_group;

typedef struct parsed_layer {
    uint32_t kind, flags, n_heads, n_kv_heads, k_size, v_size, k_type, v_type;
    int32_t group, reads;
    float scale, softcap, alibi;
    uint32_t window_kind, size, n_sinks;
    uint32_t rope_kind, n_rot, rope_first, sections[4], yarn_context, n_factors, n_states;
    double rope[6];
    const unsigned char *factors, *state_sizes;
} parsed_layer;

typedef struct parsed_session {
    const unsigned char *bytes;
    size_t size;
    uint64_t generation, length, index_offset;
    bool is_journal;
    uint32_t n_sections, n_facts, n_notes, n_groups, n_layers, n_sequences, n_checkpoints;
    parsed_section *sections;
    parsed_note *facts, *notes;
    parsed_group groups[PARSED_GROUPS];
    parsed_layer layers[PARSED_LAYERS];
    parsed_sequence *sequences;
    parsed_checkpoint *checkpoints;
} parsed_session;

void parsed_read(parsed_session *p, const unsigned char *bytes, size_t size);
void parsed_free(parsed_session *p);

/* What CELLS says of a cell. */
typedef struct parsed_cell {
    int32_t stored_pos, token;
    int16_t y, x;
} parsed_cell;

/* False: no section has the cell. */
bool parsed_get_cell(const parsed_session *p, uint32_t group, uint32_t cell, parsed_cell *out);

/*
 * The bytes of one head's row of a cell: of a layer's K (tensor 0) or V (1); of a recurrent layer's state
 * tensor, head 0. The cell must exist, the layer store rows.
 */
const unsigned char *parsed_row(const parsed_session *p, uint32_t layer, uint32_t tensor,
                                uint32_t head, uint32_t cell);

#endif /* SUPPORT_PARSED_SESSION_H */
