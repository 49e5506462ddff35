/*
 * normal_form.c: take characters apart, put marks in order, and put characters together again.
 *
 * The text is worked on in stretches: a starter (a character of combining class 0) and the marks
 * behind it. Each character is taken apart first. When the next starter comes,
 *
 *   1. the marks are sorted by their classes; marks of one class keep their order;
 *   2. for form C, each mark that can be joined with the starter is, unless a mark of its own
 *      class, or of a higher one, stands between them;
 *   3. if no mark is left and the next starter can be joined with this one (Hangul, some Indic
 *      vowels), the two go on as one; else the stretch is written out.
 *
 * A byte that is not UTF-8 is a starter above all code points, which no table knows. Fails only for
 * want of memory.
 */
#include "tokenizer/normal_form.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "tokenizer/utf8.h"

/* A byte b that is not UTF-8 has the code RAW_BYTE + b. */
#define RAW_BYTE 0x110000u

/* Bytes that can begin a character which form C, or form D, may change: U+0300, U+00C0. */
#define FIRST_LEAD_C 0xCCu
#define FIRST_LEAD_D 0xC3u

#define HANGUL 0xAC00u
#define HANGUL_L 0x1100u
#define HANGUL_V 0x1161u
#define HANGUL_T 0x11A7u
#define N_L 19u
#define N_V 21u
#define N_T 28u

/* ---- the tables ----------------------------------------------------------------------------- */

static uint8_t class_of(uint32_t code)
{
    if (code < 0x300 || code >= RAW_BYTE) {
        return 0;
    }
    uint32_t low = 0, high = normal_form_n_classes;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (normal_form_classes[middle] >> 8 <= code) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (uint8_t)normal_form_classes[low];
}

typedef struct decomposition {
    uint32_t code, first, second; /* second 0: there is none */
} decomposition;

static decomposition unpack(uint32_t index)
{
    const uint64_t packed = normal_form_decompositions[index];
    const uint32_t mask = 0x1FFFFF;
    return (decomposition){(uint32_t)(packed >> 42), (uint32_t)(packed >> 21) & mask,
                           (uint32_t)packed & mask};
}

/* The character in two parts, or one (*second 0); false: it has none. */
static bool take_apart(uint32_t code, uint32_t *first, uint32_t *second)
{
    if (code - HANGUL < N_L * N_V * N_T) {
        const uint32_t place = code - HANGUL, trailing = place % N_T;
        *first = trailing != 0 ? code - trailing : HANGUL_L + place / (N_V * N_T);
        *second = trailing != 0 ? HANGUL_T + trailing : HANGUL_V + place / N_T % N_V;
        return true;
    }
    uint32_t low = 0, high = normal_form_n_decompositions;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (unpack(middle).code < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == normal_form_n_decompositions || unpack(low).code != code) {
        return false;
    }
    *first = unpack(low).first;
    *second = unpack(low).second;
    return true;
}

static bool is_before(decomposition pair, uint32_t first, uint32_t second)
{
    return pair.first != first ? pair.first < first : pair.second < second;
}

/* The character that the two make; 0: none. */
static uint32_t put_together(uint32_t first, uint32_t second)
{
    if (first - HANGUL_L < N_L && second - HANGUL_V < N_V) {
        return HANGUL + ((first - HANGUL_L) * N_V + second - HANGUL_V) * N_T;
    }
    if (first - HANGUL < N_L * N_V * N_T && (first - HANGUL) % N_T == 0 &&
        second - HANGUL_T - 1 < N_T - 1) {
        return first + second - HANGUL_T;
    }
    uint32_t low = 0, high = normal_form_n_compositions;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (is_before(unpack(normal_form_compositions[middle]), first, second)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == normal_form_n_compositions) {
        return 0;
    }
    const decomposition pair = unpack(normal_form_compositions[low]);
    return pair.first == first && pair.second == second ? pair.code : 0;
}

/* ---- a stretch ------------------------------------------------------------------------------ */

typedef struct mark {
    uint32_t code, order; /* order: its place among the marks as they came */
    uint8_t class;
} mark;

typedef struct making {
    normal_form form;
    bool has_starter;
    uint32_t starter;
    mark *marks; /* [n_marks] */
    size_t n_marks, marks_capacity;
    char *bytes; /* [n], what is done */
    size_t n, capacity;
} making;

/* By class, then as they came. */
static int compare_marks(const void *a, const void *b)
{
    const mark *x = a, *y = b;
    if (x->class != y->class) {
        return x->class < y->class ? -1 : 1;
    }
    return (x->order > y->order) - (x->order < y->order);
}

static void sort_marks(making *m)
{
    bool is_sorted = true;
    for (size_t i = 1; i < m->n_marks && is_sorted; i++) {
        is_sorted = m->marks[i - 1].class <= m->marks[i].class;
    }
    if (!is_sorted) {
        qsort(m->marks, m->n_marks, sizeof *m->marks, compare_marks);
    }
}

/* Step 2. */
static void join_marks(making *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->n_marks; i++) {
        const bool is_blocked = kept > 0 && m->marks[kept - 1].class >= m->marks[i].class;
        const uint32_t joined = is_blocked ? 0 : put_together(m->starter, m->marks[i].code);
        if (joined != 0) {
            m->starter = joined;
        } else {
            m->marks[kept++] = m->marks[i];
        }
    }
    m->n_marks = kept;
}

static size_t put_code(uint32_t code, char *to)
{
    if (code >= RAW_BYTE) {
        to[0] = (char)(code - RAW_BYTE);
        return 1;
    }
    return utf8_put(code, to);
}

static bool write_code(making *m, uint32_t code)
{
    if (m->capacity - m->n < 4) {
        const size_t capacity = m->capacity + m->capacity / 2 + 64;
        char *grown = realloc(m->bytes, capacity);
        if (grown == NULL) {
            return false;
        }
        m->bytes = grown;
        m->capacity = capacity;
    }
    m->n += put_code(code, m->bytes + m->n);
    return true;
}

static bool write_stretch(making *m)
{
    bool is_done = !m->has_starter || write_code(m, m->starter);
    for (size_t i = 0; i < m->n_marks && is_done; i++) {
        is_done = write_code(m, m->marks[i].code);
    }
    m->has_starter = false;
    m->n_marks = 0;
    return is_done;
}

/* No more characters belong to the stretch. */
static void close_stretch(making *m)
{
    sort_marks(m);
    if (m->form == NORMAL_FORM_C && m->has_starter) {
        join_marks(m);
    }
}

static bool add_mark(making *m, uint32_t code, uint8_t class)
{
    if (m->n_marks == m->marks_capacity) {
        const size_t capacity = 2 * m->marks_capacity + 16;
        mark *grown = realloc(m->marks, capacity * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        m->marks = grown;
        m->marks_capacity = capacity;
    }
    m->marks[m->n_marks] = (mark){code, (uint32_t)m->n_marks, class};
    m->n_marks++;
    return true;
}

static bool add_starter(making *m, uint32_t code)
{
    close_stretch(m);
    if (m->form == NORMAL_FORM_C && m->has_starter && m->n_marks == 0) {
        const uint32_t joined = put_together(m->starter, code);
        if (joined != 0) {
            m->starter = joined;
            return true;
        }
    }
    if (!write_stretch(m)) {
        return false;
    }
    m->has_starter = true;
    m->starter = code;
    return true;
}

/* A decomposition has decompositions of its own only in its first part, so this is a loop. */
static bool add_character(making *m, uint32_t code)
{
    uint32_t seconds[4], first, second;
    size_t n = 0;
    while (code >= 0xC0 && n < sizeof seconds / sizeof *seconds &&
           take_apart(code, &first, &second)) {
        if (second != 0) {
            seconds[n++] = second;
        }
        code = first;
    }
    bool is_done = true;
    for (size_t i = n + 1; i > 0 && is_done; i--) {
        const uint32_t part = i == n + 1 ? code : seconds[i - 1];
        const uint8_t class = class_of(part);
        is_done = class == 0 ? add_starter(m, part) : add_mark(m, part, class);
    }
    return is_done;
}

/* ---- a text --------------------------------------------------------------------------------- */

static bool may_change(normal_form form, const char *text, size_t length)
{
    const unsigned char least = form == NORMAL_FORM_C ? FIRST_LEAD_C : FIRST_LEAD_D;
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] >= least) {
            return true;
        }
    }
    return false;
}

cellar_status normal_form_make(normal_form form, const char *text, size_t length, char **out,
                               size_t *n, cellar_error *error)
{
    *out = NULL;
    *n = 0;
    if (!may_change(form, text, length)) {
        return CELLAR_OK;
    }
    making m = {.form = form, .capacity = length + 4};
    m.bytes = malloc(m.capacity);
    bool is_done = m.bytes != NULL;
    for (size_t at = 0, size; at < length && is_done; at += size) {
        const unsigned char *bytes = (const unsigned char *)text + at;
        const bool is_whole = utf8_scan(bytes, length - at, &size) == UTF8_WHOLE;
        size = is_whole ? size : 1;
        is_done = add_character(&m, is_whole ? utf8_code(bytes, size) : RAW_BYTE + *bytes);
    }
    if (is_done) {
        close_stretch(&m);
        is_done = write_stretch(&m);
    }
    free(m.marks);
    if (is_done && (m.n != length || memcmp(m.bytes, text, length) != 0)) {
        *out = m.bytes;
        *n = m.n;
        return CELLAR_OK;
    }
    free(m.bytes);
    return is_done ? CELLAR_OK
                   : report(error, CELLAR_NO_MEMORY, -1, "no memory to normalise %llu bytes",
                            (unsigned long long)length);
}
