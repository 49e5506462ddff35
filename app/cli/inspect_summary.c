/*
 * inspect_summary.c: count what a file holds; make its texts and numbers printable.
 *
 * The texts of a model file are a stranger's. They are walked character by character, and only what
 * a terminal shows as a character passes; everything else is written as an escape that says what
 * was there.
 */
#include "inspect.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "safe_text.h"

/* ---- summary -------------------------------------------------------------------------------- */

static inspect_type *type_entry(inspect_summary *summary, uint32_t type)
{
    for (uint32_t i = 0; i < summary->n_types; i++)
        if (summary->types[i].type == type) return &summary->types[i];
    if (summary->n_types == INSPECT_MAX_TYPES) return NULL;
    inspect_type *entry = &summary->types[summary->n_types++];
    *entry = (inspect_type){.type = type};
    return entry;
}

static int compare_types(const void *left, const void *right)
{
    const inspect_type *a = left, *b = right;
    if (a->n_bytes != b->n_bytes) return a->n_bytes > b->n_bytes ? -1 : 1;
    return a->type < b->type ? -1 : a->type > b->type;
}

/* No sum can overflow: the reader has seen to it that all tensors lie in the file, side by side. */
inspect_summary inspect_summarize(const char *path, const gguf_file *file)
{
    inspect_summary summary = {.path = path};
    (void)gguf_get_string(file, "general.architecture", &summary.architecture, NULL);
    (void)gguf_get_string(file, "general.name", &summary.name, NULL);
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        summary.n_parameters += tensor->n_elements;
        summary.n_bytes += tensor->n_bytes;
        inspect_type *entry = type_entry(&summary, tensor->type);
        if (entry == NULL) continue;
        entry->n_tensors++;
        entry->n_parameters += tensor->n_elements;
        entry->n_bytes += tensor->n_bytes;
    }
    qsort(summary.types, summary.n_types, sizeof summary.types[0], compare_types);
    return summary;
}

/* ---- texts ---------------------------------------------------------------------------------- */

/*
 * Write the first character, or an escape for it, to out; its bytes are *size, what it took of the
 * text *used.
 */
static uint32_t escape_character(char out[16], const char *text, size_t length, size_t *size,
                                 size_t *used)
{
    static const char plain[] = "\a\b\t\n\v\f\r\\\"";
    static const char letters[] = "abtnvfr\\\"";
    const uint32_t code = safe_text_decode(text, length, used);
    const char *known = code != 0 && code < 0x80 ? strchr(plain, (int)code) : NULL;
    int n;
    if (known != NULL)
        n = snprintf(out, 16, "\\%c", letters[known - plain]);
    else if (code == SAFE_TEXT_INVALID || code < 0x20 || code == 0x7f)
        n = snprintf(out, 16, "\\x%02x", (unsigned char)text[0]);
    else if (!safe_text_is_printable(code))
        n = snprintf(out, 16, "\\u{%" PRIx32 "}", code);
    else {
        memcpy(out, text, *used);
        *size = *used;
        return 1;
    }
    *size = (size_t)n;
    return (uint32_t)n;
}

uint32_t inspect_put_text(FILE *stream, gguf_string text, uint32_t columns)
{
    static const char dots[] = "...";
    /*
     * Find where to stop: everything if it fits, else the last place that leaves room for the dots.
     */
    char out[16];
    size_t size = 0, used = 0, cut = 0;
    uint32_t width = 0, cut_width = 0;
    for (size_t at = 0; at < text.length && width <= columns; at += used) {
        if (width + 3 <= columns) {
            cut = at;
            cut_width = width;
        }
        width += escape_character(out, text.data + at, text.length - at, &size, &used);
    }
    const bool is_cut = width > columns;
    const size_t end = is_cut ? cut : text.length;
    for (size_t at = 0; at < end && stream != NULL; at += used) {
        (void)escape_character(out, text.data + at, text.length - at, &size, &used);
        (void)fwrite(out, 1, size, stream);
    }
    if (is_cut && stream != NULL) (void)fputs(dots, stream);
    return is_cut ? cut_width + 3 : width;
}

bool inspect_is_utf8(gguf_string text)
{
    return safe_text_is_utf8(text.data, text.length);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static void format_real(char out[40], double number, bool is_single)
{
    const int most = is_single ? 9 : 17;
    for (int digits = is_single ? 6 : 15; digits <= most; digits++) {
        (void)snprintf(out, 40, "%.*g", digits, number);
        const double back = strtod(out, NULL);
        if (is_single ? (float)back == (float)number : back == number) return;
    }
}

void inspect_format_number(char out[40], const gguf_value *value, uint64_t i)
{
    const double number = gguf_number_at(value, i);
    switch (value->element_type) {
    case GGUF_BOOL:
        (void)snprintf(out, 40, "%s", gguf_integer_at(value, i) != 0 ? "true" : "false");
        return;
    case GGUF_UINT64: {
        uint64_t bits = 0;
        for (unsigned byte = 8; byte-- > 0;)
            bits = bits << 8 | value->data[8 * i + byte];
        (void)snprintf(out, 40, "%" PRIu64, bits);
        return;
    }
    case GGUF_FLOAT32:
    case GGUF_FLOAT64:
        if (isfinite(number))
            format_real(out, number, value->element_type == GGUF_FLOAT32);
        else
            (void)snprintf(out, 40, "%s",
                           isnan(number) ? "NaN"
                           : number > 0  ? "Infinity"
                                         : "-Infinity");
        return;
    default:
        (void)snprintf(out, 40, "%" PRId64, gguf_integer_at(value, i));
    }
}

void inspect_format_size(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double amount = (double)bytes;
    unsigned unit = 0;
    for (; amount >= 1024 && unit < 6; unit++)
        amount /= 1024;
    (void)snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.2f %s", amount, units[unit]);
}
