/*
 * support_parsed_session.c: see the header.
 *
 * Every offset and size is that of docs/session-format.md, written down here once more, and sizes of row
 * types those of docs/kernels.md, so that a slip of the library's is not repeated.
 */
#include "support_parsed_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Bytes that are read one after the other. */
typedef struct stream {
    const unsigned char *at, *end;
} stream;

static const unsigned char *take(stream *s, size_t n)
{
    if (n > (size_t)(s->end - s->at)) fail_msg("%zu bytes where %td are left", n, s->end - s->at);
    const unsigned char *at = s->at;
    s->at += n;
    return at;
}

static uint32_t u32_at(const unsigned char *b)
{
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static uint64_t u64_at(const unsigned char *b)
{
    return u32_at(b) | (uint64_t)u32_at(b + 4) << 32;
}

static uint32_t u32(stream *s)
{
    return u32_at(take(s, 4));
}

static int32_t i32(stream *s)
{
    return (int32_t)u32(s);
}

static float f32(stream *s)
{
    uint32_t bits = u32(s);
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static double f64(stream *s)
{
    uint64_t bits = u64_at(take(s, 8));
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static void zeros(stream *s, size_t n)
{
    const unsigned char *b = take(s, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(b[i], 0);
}

/* RFC 3720, appendix B.4. */
static uint32_t checksum(const unsigned char *b, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void *room(size_t n, size_t size)
{
    void *block = calloc(n + 1, size);
    assert_non_null(block);
    return block;
}

/* ---- header and index --------------------------------------------------------------------------- */

/* True: the record is in use; p then has the larger generation. */
static bool read_commit(parsed_session *p, uint32_t offset)
{
    static const unsigned char unused[64];
    const unsigned char *b = p->bytes + offset;
    if (memcmp(b, unused, 64) == 0) return false;
    stream rest = {b + 32, b + 60};
    zeros(&rest, 28);
    assert_int_equal(u32_at(b + 60), checksum(b, 60));
    assert_true(u64_at(b) >= 1);
    if (u64_at(b) <= p->generation) return true;
    p->generation = u64_at(b);
    p->length = u64_at(b + 8);
    p->index_offset = u64_at(b + 16);
    assert_int_equal(p->index_offset % 64, 0);
    assert_int_equal(u64_at(b + 24), p->length - p->index_offset);
    return true;
}

static void read_header(parsed_session *p)
{
    stream s = {p->bytes, p->bytes + p->size};
    assert_memory_equal(take(&s, 8), "CELLAR\r\n", 8);
    assert_int_equal(u32(&s), 1);
    assert_int_equal(u32(&s), 256);
    zeros(&s, 44);
    assert_int_equal(u32(&s), checksum(p->bytes, 60));
    assert_true(read_commit(p, 64));
    p->is_journal = read_commit(p, 128);
    s.at = p->bytes + 192;
    zeros(&s, 64);
    if (p->is_journal)
        assert_true(p->length <= p->size);
    else
        assert_int_equal(p->length, p->size);
}

static void check_section(const parsed_session *p, uint32_t i)
{
    const parsed_section *its = &p->sections[i];
    uint64_t before = i == 0 ? 256 : its[-1].offset + its[-1].length;
    assert_in_range(its->kind, 1, 6);
    assert_int_equal(its->offset % 64, 0);
    assert_true(its->offset >= before && its->offset + its->length <= p->index_offset);
    bool has_part = its->kind >= 3 && its->kind <= 5;
    assert_true(has_part ? its->count > 0 : its->part == 0 && its->first == 0 && its->count == 0);
}

static void read_index(parsed_session *p)
{
    stream s = {p->bytes + p->index_offset, p->bytes + p->length};
    size_t n = (size_t)(s.end - s.at);
    assert_memory_equal(take(&s, 4), "CIDX", 4);
    p->n_sections = u32(&s);
    assert_int_equal(n, 16 + 40 * (size_t)p->n_sections);
    p->sections = room(p->n_sections, sizeof *p->sections);
    for (uint32_t i = 0; i < p->n_sections; i++) {
        parsed_section *its = &p->sections[i];
        its->kind = u32(&s);
        its->part = u32(&s);
        its->first = u32(&s);
        its->count = u32(&s);
        its->offset = u64_at(take(&s, 8));
        its->length = u64_at(take(&s, 8));
        check_section(p, i);
        assert_int_equal(u32(&s), checksum(p->bytes + its->offset, its->length));
        zeros(&s, 4);
    }
    zeros(&s, 4);
    assert_int_equal(u32(&s), checksum(p->bytes + p->index_offset, n - 4));
}

/* The only section of a kind; false: there is none. */
static bool find_one(const parsed_session *p, uint32_t kind, stream *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_sections; i++) {
        if (p->sections[i].kind != kind) continue;
        s->at = p->bytes + p->sections[i].offset;
        s->end = s->at + p->sections[i].length;
        n++;
    }
    assert_true(n <= 1);
    return n == 1;
}

/* ---- MODEL, NOTES -------------------------------------------------------------------------------- */

static parsed_note *read_notes(stream *s, uint32_t *n)
{
    *n = u32(s);
    parsed_note *notes = room(*n, sizeof *notes);
    for (uint32_t i = 0; i < *n; i++) {
        notes[i].name_size = u32(s);
        notes[i].size = u32(s);
        assert_in_range(notes[i].name_size, 1, 255);
        assert_true(notes[i].size <= 16 << 20);
        notes[i].name = (const char *)take(s, notes[i].name_size);
        notes[i].value = take(s, notes[i].size);
        zeros(s, -(notes[i].name_size + notes[i].size) & 3);
        for (uint32_t k = 0; k < i; k++)
            assert_false(notes[k].name_size == notes[i].name_size &&
                         memcmp(notes[k].name, notes[i].name, notes[i].name_size) == 0);
    }
    return notes;
}

static void read_layer(parsed_layer *l, stream *s)
{
    l->kind = u32(s);
    l->group = i32(s);
    l->reads = i32(s);
    l->flags = u32(s);
    l->n_heads = u32(s);
    l->n_kv_heads = u32(s);
    l->k_size = u32(s);
    l->v_size = u32(s);
    l->k_type = u32(s);
    l->v_type = u32(s);
    l->scale = f32(s);
    l->softcap = f32(s);
    l->alibi = f32(s);
    zeros(s, 4);
    l->window_kind = u32(s);
    l->size = u32(s);
    l->n_sinks = u32(s);
    l->rope_kind = u32(s);
    l->n_rot = u32(s);
    l->rope_first = u32(s);
    for (int i = 0; i < 4; i++)
        l->sections[i] = u32(s);
    for (int i = 0; i < 6; i++)
        l->rope[i] = f64(s);
    l->yarn_context = u32(s);
    l->n_factors = u32(s);
    l->n_states = u32(s);
    zeros(s, 4);
    l->factors = take(s, 4 * (size_t)l->n_factors);
    l->state_sizes = take(s, 4 * (size_t)l->n_states);
}

static size_t type_bytes(uint32_t type, size_t n)
{
    static const struct {
        uint32_t type, block, bytes;
    } sizes[] = {{0, 1, 4},   {1, 1, 2},   {2, 32, 18},  {3, 32, 20}, {6, 32, 22},
                 {7, 32, 24}, {8, 32, 34}, {20, 32, 18}, {30, 1, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].type == type) return n / sizes[i].block * sizes[i].bytes;
    fail_msg("row type %u", type);
    return 0;
}

/* Bytes of one head's row. */
static size_t row_bytes(const parsed_layer *l, uint32_t tensor)
{
    if (l->kind == 1) return 4 * (size_t)u32_at(l->state_sizes + 4 * tensor);
    return tensor == 0 ? type_bytes(l->k_type, l->k_size) : type_bytes(l->v_type, l->v_size);
}

/* Kinds of rows, and heads, that a layer stores. */
static uint32_t count_tensors(const parsed_layer *l)
{
    if (l->kind == 1) return l->n_states;
    if (l->kind == 2 || l->reads >= 0) return 0;
    return l->flags & 2 ? 1 : 2;
}

static uint32_t count_heads(const parsed_layer *l)
{
    return l->kind == 1 ? 1 : l->n_kv_heads;
}

static void read_model(parsed_session *p)
{
    stream s = {NULL, NULL};
    assert_true(find_one(p, 1, &s));
    p->facts = read_notes(&s, &p->n_facts);
    p->n_groups = u32(&s);
    assert_in_range(p->n_groups, 1, PARSED_GROUPS);
    for (uint32_t g = 0; g < p->n_groups; g++) {
        parsed_group *its = &p->groups[g];
        its->kind = u32(&s);
        its->window_kind = u32(&s);
        its->size = u32(&s);
        its->n_sinks = u32(&s);
        its->has_points = u32(&s);
    }
    p->n_layers = u32(&s);
    assert_in_range(p->n_layers, 1, PARSED_LAYERS);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        parsed_layer *l = &p->layers[i];
        read_layer(l, &s);
        for (uint32_t t = 0; t < count_tensors(l); t++)
            p->groups[l->group].cell_bytes += count_heads(l) * row_bytes(l, t);
    }
    assert_ptr_equal(s.at, s.end);
}

/* ---- SEQUENCES, TOKENS --------------------------------------------------------------------------- */

static void read_list(parsed_list *list, stream *s)
{
    list->lost = u32(s);
    list->n = u32(s);
    list->runs = room(list->n, sizeof *list->runs);
    for (uint32_t r = 0; r < list->n; r++) {
        parsed_run *run = &list->runs[r];
        run->pos = i32(s);
        run->cell = u32(s);
        run->len = u32(s);
        run->step = run->len >> 31;
        run->len &= 0x7fffffffu;
        run->shift = i32(s);
        assert_true(run->len > 0 && run->pos >= 0);
    }
}

static void read_sequence(parsed_session *p, parsed_sequence *q, stream *s)
{
    q->name = i32(s);
    q->n_marks = u32(s);
    assert_true(q->name >= 0 && (q == p->sequences || q[-1].name < q->name));
    for (uint32_t g = 0; g < p->n_groups; g++)
        read_list(&q->lists[g], s);
    q->marks = room(q->n_marks, sizeof *q->marks);
    for (uint32_t m = 0; m < q->n_marks; m++) {
        q->marks[m].checkpoint = u32(s);
        q->marks[m].position = i32(s);
        assert_true(q->marks[m].checkpoint < p->n_checkpoints);
        assert_true(m == 0 || q->marks[m - 1].position < q->marks[m].position);
    }
}

static void read_sequences(parsed_session *p)
{
    stream s = {NULL, NULL};
    assert_true(find_one(p, 6, &s));
    p->n_checkpoints = u32(&s);
    p->n_sequences = u32(&s);
    p->checkpoints = room(p->n_checkpoints, sizeof *p->checkpoints);
    p->sequences = room(p->n_sequences, sizeof *p->sequences);
    for (uint32_t c = 0; c < p->n_checkpoints; c++) {
        p->checkpoints[c].position = i32(&s);
        assert_true(p->checkpoints[c].position >= 1);
        for (uint32_t g = 0; g < p->n_groups; g++)
            read_list(&p->checkpoints[c].lists[g], &s);
    }
    for (uint32_t i = 0; i < p->n_sequences; i++)
        read_sequence(p, &p->sequences[i], &s);
    assert_ptr_equal(s.at, s.end);
}

static void read_logs(parsed_session *p)
{
    for (uint32_t i = 0; i < p->n_sections; i++) {
        const parsed_section *its = &p->sections[i];
        if (its->kind != 3) continue;
        assert_true(its->part < p->n_sequences);
        parsed_sequence *q = &p->sequences[its->part];
        assert_int_equal(its->first, q->n_tokens);
        assert_int_equal(its->length, 4 * (uint64_t)its->count);
        int32_t *tokens = room(its->first + (size_t)its->count, sizeof *tokens);
        if (q->tokens) memcpy(tokens, q->tokens, its->first * sizeof *tokens);
        free(q->tokens);
        q->tokens = tokens;
        for (uint32_t t = 0; t < its->count; t++)
            tokens[its->first + t] = (int32_t)u32_at(p->bytes + its->offset + 4 * (size_t)t);
        q->n_tokens = its->first + its->count;
    }
}

/* ---- cells and rows -------------------------------------------------------------------------------- */

/* CELLS and ROWS come in pairs, cells ascending within a group. */
static void check_cells(const parsed_session *p)
{
    uint64_t next[PARSED_GROUPS] = {0};
    for (uint32_t i = 0; i < p->n_sections; i++) {
        const parsed_section *cells = &p->sections[i];
        if (cells->kind != 4) continue;
        assert_true(cells->part < p->n_groups && cells->first >= next[cells->part]);
        next[cells->part] = cells->first + (uint64_t)cells->count;
        const parsed_group *group = &p->groups[cells->part];
        assert_int_equal(cells->length, (uint64_t)cells->count * (group->has_points ? 12 : 8));
        uint32_t n = 0;
        for (uint32_t k = i + 1; k < p->n_sections; k++) {
            const parsed_section *rows = &p->sections[k];
            if (rows->kind != 5 || rows->part != cells->part || rows->first != cells->first)
                continue;
            assert_int_equal(rows->count, cells->count);
            assert_int_equal(rows->length, cells->count * group->cell_bytes);
            n++;
        }
        assert_int_equal(n, 1);
    }
}

static const parsed_section *find_cell(const parsed_session *p, uint32_t kind, uint32_t group,
                                       uint32_t cell)
{
    for (uint32_t i = 0; i < p->n_sections; i++) {
        const parsed_section *its = &p->sections[i];
        if (its->kind == kind && its->part == group && cell >= its->first &&
            cell - its->first < its->count)
            return its;
    }
    return NULL;
}

bool parsed_get_cell(const parsed_session *p, uint32_t group, uint32_t cell, parsed_cell *out)
{
    const parsed_section *its = find_cell(p, 4, group, cell);
    if (!its) return false;
    size_t i = cell - its->first, n = its->count;
    const unsigned char *b = p->bytes + its->offset;
    *out = (parsed_cell){(int32_t)u32_at(b + 4 * i), (int32_t)u32_at(b + 4 * (n + i)), 0, 0};
    if (!p->groups[group].has_points) return true;
    b += 4 * (2 * n + i);
    out->y = (int16_t)(b[0] | b[1] << 8);
    out->x = (int16_t)(b[2] | b[3] << 8);
    return true;
}

const unsigned char *parsed_row(const parsed_session *p, uint32_t layer, uint32_t tensor,
                                uint32_t head, uint32_t cell)
{
    uint32_t group = (uint32_t)p->layers[layer].group;
    const parsed_section *its = find_cell(p, 5, group, cell);
    assert_non_null(its);
    size_t tile = p->groups[group].kind == 1 ? 1 : 32, first = (cell - its->first) / tile * tile;
    size_t in_tile = its->count - first < tile ? its->count - first : tile;
    size_t at = its->offset + first * p->groups[group].cell_bytes;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const parsed_layer *l = &p->layers[i];
        if (l->group != (int32_t)group) continue;
        for (uint32_t t = 0; t < count_tensors(l); t++) {
            size_t row = row_bytes(l, t);
            if (i == layer && t == tensor)
                return p->bytes + at + (head * in_tile + (cell - its->first) % tile) * row;
            at += count_heads(l) * in_tile * row;
        }
    }
    fail_msg("layer %u stores no rows", layer);
    return NULL;
}

/* ---- all of it -------------------------------------------------------------------------------------- */

void parsed_read(parsed_session *p, const unsigned char *bytes, size_t size)
{
    *p = (parsed_session){.bytes = bytes, .size = size};
    assert_true(size >= 256);
    read_header(p);
    read_index(p);
    read_model(p);
    stream s = {NULL, NULL};
    if (find_one(p, 2, &s)) {
        p->notes = read_notes(&s, &p->n_notes);
        assert_true(p->n_notes > 0 && s.at == s.end);
    }
    read_sequences(p);
    read_logs(p);
    check_cells(p);
}

static void free_lists(parsed_list *lists)
{
    for (uint32_t g = 0; g < PARSED_GROUPS; g++)
        free(lists[g].runs);
}

void parsed_free(parsed_session *p)
{
    for (uint32_t i = 0; i < p->n_sequences; i++) {
        free_lists(p->sequences[i].lists);
        free(p->sequences[i].marks);
        free(p->sequences[i].tokens);
    }
    for (uint32_t c = 0; c < p->n_checkpoints; c++)
        free_lists(p->checkpoints[c].lists);
    free(p->sequences);
    free(p->checkpoints);
    free(p->sections);
    free(p->facts);
    free(p->notes);
    memset(p, 0, sizeof *p);
}
