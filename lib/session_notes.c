/*
 * session_notes.c: names and values in and out.
 *
 * What a caller gives is checked before anything is written, what a file says before anything is
 * allocated: the lengths of a list are held against the bytes that are left, so a lying one costs nothing.
 */
#include "session_notes.h"

#include "checked.h"
#include "error.h"

/* ---- rules ----------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at `s` (left bytes of it), 0: it is none, or a control character. */
static size_t character(const unsigned char *s, size_t left)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n == 0 || n > left || s[0] >= 0xf8) return 0;
    uint32_t code = n == 1 ? s[0] : s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    return is_control || is_surrogate || code > 0x10ffff || code < smallest[n] ? 0 : n;
}

/* Are these the bytes of a name? */
static bool is_name(const unsigned char *name, size_t n)
{
    if (n == 0 || n > CL_SESSION_NOTE_NAME) return false;
    for (size_t i = 0, some; i < n; i += some) {
        some = character(name + i, n - i);
        if (some == 0) return false;
    }
    return true;
}

/* Heapsort of notes by name, like sort.h. */
static void sink_note(const cellar_note **items, size_t root, size_t n)
{
    const cellar_note *item = items[root];
    for (;;) {
        size_t child = 2 * root + 1;
        if (child >= n) break;
        if (child + 1 < n && strcmp(items[child + 1]->name, items[child]->name) > 0) child++;
        if (strcmp(items[child]->name, item->name) <= 0) break;
        items[root] = items[child];
        root = child;
    }
    items[root] = item;
}

static void sort_notes(const cellar_note **items, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sink_note(items, i, n);
    while (n > 1) {
        const cellar_note *largest = items[0];
        items[0] = items[--n];
        items[n] = largest;
        sink_note(items, 0, n);
    }
}

/* *twin: a note whose name another has too, NULL: none. CELLAR_NO_MEMORY. */
static cellar_status find_twin(const cellar_note *notes, uint32_t n, const cellar_note **twin,
                               cl_alloc *alloc, cellar_error *error)
{
    *twin = NULL;
    if (n < 2) return CELLAR_OK;
    size_t bytes = n * sizeof(cellar_note *);
    const cellar_note **sorted = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, bytes);
    if (!sorted) return cl_error_no_memory(error, "a list of notes", bytes);
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = &notes[i];
    sort_notes(sorted, n);
    for (uint32_t i = 1; i < n && !*twin; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0) *twin = sorted[i];
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, (void *)sorted, bytes);
    return CELLAR_OK;
}

static cellar_status check_note(const cellar_note *note, uint32_t i, const char *what,
                                cellar_error *error)
{
    if (!note->name) CL_FAIL(error, CELLAR_INVALID, i, "%s %u: name is NULL", what, i);
    size_t n = 0;
    while (n <= CL_SESSION_NOTE_NAME && note->name[n])
        n++;
    if (!is_name((const unsigned char *)note->name, n))
        CL_FAIL(error, CELLAR_INVALID, i,
                "%s %u: a name has 1..%u bytes of UTF-8 without control characters", what, i,
                CL_SESSION_NOTE_NAME);
    if (note->size > CL_SESSION_NOTE_VALUE)
        CL_FAIL(error, CELLAR_INVALID, i, "%s %s: its value has %zu bytes, more than %u", what,
                note->name, note->size, CL_SESSION_NOTE_VALUE);
    if (note->size > 0 && !note->value)
        CL_FAIL(error, CELLAR_INVALID, i, "%s %s: value is NULL", what, note->name);
    return CELLAR_OK;
}

cellar_status cl_notes_check(const cellar_note *notes, uint32_t n, const char *what,
                             cl_alloc *alloc, cellar_error *error)
{
    if (n > 0 && !notes) CL_FAIL(error, CELLAR_INVALID, -1, "the list of %ss is NULL", what);
    for (uint32_t i = 0; i < n; i++)
        CL_TRY(check_note(&notes[i], i, what, error));
    const cellar_note *twin;
    CL_TRY(find_twin(notes, n, &twin, alloc, error));
    if (twin)
        CL_FAIL(error, CELLAR_INVALID, twin - notes, "%s %s is there twice", what, twin->name);
    return CELLAR_OK;
}

/* ---- out --------------------------------------------------------------------------------------- */

void cl_notes_put(cl_sink *sink, const cellar_note *notes, uint32_t n)
{
    cl_sink_put_u32(sink, n);
    for (uint32_t i = 0; i < n; i++) {
        size_t length = strlen(notes[i].name);
        cl_sink_put_u32(sink, (uint32_t)length);
        cl_sink_put_u32(sink, (uint32_t)notes[i].size);
        cl_sink_put(sink, notes[i].name, length);
        cl_sink_put(sink, notes[i].value, notes[i].size);
        static const unsigned char zeros[4];
        cl_sink_put(sink, zeros, -(length + notes[i].size) & 3);
    }
}

/* ---- in ---------------------------------------------------------------------------------------- */

/* A note as it lies in the file. */
typedef struct raw_note {
    const unsigned char *name, *value;
    uint32_t name_size, value_size;
} raw_note;

static cellar_status take_note(cl_cursor *cursor, uint64_t at, const char *what, raw_note *note,
                               cellar_error *error)
{
    note->name_size = cl_take_u32(cursor);
    note->value_size = cl_take_u32(cursor);
    if (cursor->has_failed)
        CL_FAIL(error, CELLAR_CORRUPT, (int64_t)at, "the list of %ss ends too early", what);
    if (note->name_size == 0 || note->name_size > CL_SESSION_NOTE_NAME ||
        note->value_size > CL_SESSION_NOTE_VALUE)
        CL_FAIL(error, CELLAR_CORRUPT, (int64_t)at,
                "a %s's name has %u bytes, its value %u: too few, or too many", what,
                note->name_size, note->value_size);
    note->name = cl_take(cursor, note->name_size);
    note->value = cl_take(cursor, note->value_size);
    size_t padding = -(note->name_size + note->value_size) & 3;
    const unsigned char *zeros = cl_take(cursor, padding);
    if (cursor->has_failed)
        CL_FAIL(error, CELLAR_CORRUPT, (int64_t)at, "a %s ends behind its section", what);
    if (!is_name(note->name, note->name_size))
        CL_FAIL(error, CELLAR_CORRUPT, (int64_t)at,
                "a %s's name is not UTF-8, or has control characters", what);
    for (size_t i = 0; i < padding; i++)
        if (zeros[i] != 0)
            CL_FAIL(error, CELLAR_CORRUPT, (int64_t)at, "bytes behind a %s are not zero", what);
    return CELLAR_OK;
}

/* Bytes of the block that holds n notes with so many bytes of names and values. */
static bool block_bytes(uint32_t n, size_t text, size_t *bytes)
{
    size_t ends;
    return cl_checked_mul(n, sizeof(cellar_note), bytes) && cl_checked_add(text, n, &ends) &&
           cl_checked_add(*bytes, ends, bytes);
}

void cl_notes_free(cellar_note *notes, uint32_t n, cl_alloc *alloc)
{
    size_t text = 0, bytes;
    if (!notes) return;
    for (uint32_t i = 0; i < n; i++)
        text += strlen(notes[i].name) + notes[i].size;
    (void)block_bytes(n, text, &bytes);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, notes, bytes);
}

static void fill_block(cellar_note *notes, uint32_t n, cl_cursor cursor)
{
    unsigned char *text = (unsigned char *)(notes + n);
    for (uint32_t i = 0; i < n; i++) {
        raw_note raw;
        (void)take_note(&cursor, 0, "note", &raw, NULL);
        memcpy(text, raw.name, raw.name_size);
        text[raw.name_size] = '\0';
        notes[i].name = (const char *)text;
        text += raw.name_size + 1;
        if (raw.value_size > 0) memcpy(text, raw.value, raw.value_size);
        notes[i].value = raw.value_size > 0 ? text : NULL;
        notes[i].size = raw.value_size;
        text += raw.value_size;
    }
}

cellar_status cl_notes_read(cl_cursor *cursor, const unsigned char *begin, uint64_t base,
                            const char *what, cl_alloc *alloc, cellar_note **notes, uint32_t *n,
                            cellar_error *error)
{
    *notes = NULL;
    *n = cl_take_u32(cursor);
    cl_cursor first = *cursor;
    size_t text = 0, bytes;
    uint64_t at = base + (uint64_t)(cursor->at - begin), start = at;
    if (cursor->has_failed || *n > cl_cursor_left(cursor) / 8)
        CL_FAIL(error, CELLAR_CORRUPT, (int64_t)at, "the list of %ss ends too early", what);
    for (uint32_t i = 0; i < *n; i++) {
        raw_note raw;
        at = base + (uint64_t)(cursor->at - begin);
        CL_TRY(take_note(cursor, at, what, &raw, error));
        text += (size_t)raw.name_size + raw.value_size;
    }
    if (*n == 0) return CELLAR_OK;
    cellar_note *block = NULL;
    if (block_bytes(*n, text, &bytes)) block = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, bytes);
    if (!block) return cl_error_no_memory(error, "notes", text);
    fill_block(block, *n, first);
    const cellar_note *twin;
    cellar_status status = find_twin(block, *n, &twin, alloc, error);
    if (status == CELLAR_OK && twin)
        status = cl_error_set(error, CELLAR_CORRUPT, CELLAR_REASON_NONE, (int64_t)start,
                              "%s %s is there twice", what, twin->name);
    if (status != CELLAR_OK)
        cl_notes_free(block, *n, alloc);
    else
        *notes = block;
    return status;
}

/* ---- comparing ---------------------------------------------------------------------------------- */

static const cellar_note *find_note(const cellar_note *notes, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(notes[i].name, name) == 0) return &notes[i];
    return NULL;
}

/* A value as a message can show it: text if it is short and printable, else its size. */
static void show_value(const cellar_note *note, char out[48])
{
    static const char digits[] = "0123456789";
    const unsigned char *value = note->value;
    bool is_text = note->size > 0 && note->size < 40;
    for (size_t i = 0; is_text && i < note->size; i++)
        is_text = value[i] >= 0x20 && value[i] < 0x7f;
    if (is_text) {
        memcpy(out, value, note->size);
        out[note->size] = '\0';
        return;
    }
    char number[24];
    size_t n = 0, rest = note->size;
    do
        number[n++] = digits[rest % 10];
    while ((rest /= 10) > 0);
    for (size_t i = 0; i < n; i++)
        out[i] = number[n - 1 - i];
    memcpy(out + n, " bytes", sizeof " bytes");
}

cellar_status cl_notes_compare(const cellar_note *saved, uint32_t n_saved,
                               const cellar_note *wanted, uint32_t n_wanted, cellar_error *error)
{
    for (uint32_t i = 0; i < n_wanted; i++) {
        char ours[48], theirs[48];
        show_value(&wanted[i], ours);
        const cellar_note *its = find_note(saved, n_saved, wanted[i].name);
        if (!its)
            CL_FAIL(error, CELLAR_MISMATCH, -1,
                    "fact %.80s: the session does not say, the memory has %s", wanted[i].name,
                    ours);
        if (its->size == wanted[i].size &&
            (its->size == 0 || memcmp(its->value, wanted[i].value, its->size) == 0))
            continue;
        show_value(its, theirs);
        CL_FAIL(error, CELLAR_MISMATCH, -1, "fact %.80s: the session has %s, the memory %s",
                wanted[i].name, theirs, ours);
    }
    for (uint32_t i = 0; i < n_saved; i++)
        if (!find_note(wanted, n_wanted, saved[i].name)) {
            char theirs[48];
            show_value(&saved[i], theirs);
            CL_FAIL(error, CELLAR_MISMATCH, -1,
                    "fact %.80s: the session has %s, the memory does not say", saved[i].name,
                    theirs);
        }
    return CELLAR_OK;
}
