/*
 * inspect_text.c: a model file as tables for people: what it is, how large, what it says about
 * itself.
 *
 * Columns are as wide as their widest entry, within limits; texts that are longer are cut and end
 * in "...". Nothing is printed that inspect_put_text has not made harmless.
 */
#include "inspect.h"

#include <inttypes.h>
#include <string.h>

enum {
    MAX_KEY = 48,    /* columns of a key */
    MAX_NAME = 48,   /* columns of a tensor's name */
    MAX_VALUE = 72,  /* columns of a value */
    MAX_ELEMENT = 24 /* columns of one element of an array of strings */
};

static gguf_string text_of(const char *text)
{
    return (gguf_string){text, strlen(text)};
}

/* The text and as many spaces as make it `columns` wide. */
static void put_padded(gguf_string text, uint32_t columns)
{
    const uint32_t used = inspect_put_text(stdout, text, columns);
    printf("%*s", (int)(columns - used), "");
}

static uint32_t width_of(gguf_string text, uint32_t most)
{
    return inspect_put_text(NULL, text, most);
}

static uint32_t wider(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* 260032 -> "260.0 thousand"; what people call a 7B model reads "7.2 billion". */
static void format_count(char out[32], uint64_t count)
{
    static const char *const names[] = {"", " thousand", " million", " billion", " trillion"};
    double amount = (double)count;
    unsigned name = 0;
    for (; amount >= 1000 && name < 4; name++)
        amount /= 1000;
    (void)snprintf(out, 32, name == 0 ? "%.0f%s" : "%.1f%s", amount, names[name]);
}

/* ---- summary -------------------------------------------------------------------------------- */

static void print_summary(const gguf_file *file, const inspect_summary *summary)
{
    char size[32], count[32];
    inspect_format_size(size, gguf_size(file));
    format_count(count, summary->n_parameters);
    (void)inspect_put_text(stdout, text_of(summary->path), UINT32_MAX - 8);
    printf("\n  size          %s (%" PRIu64 " bytes)\n", size, gguf_size(file));
    printf("  format        GGUF version %u, tensors aligned to %u bytes\n", gguf_version(file),
           gguf_alignment(file));
    printf("  architecture  ");
    if (summary->architecture.data != NULL)
        (void)inspect_put_text(stdout, summary->architecture, MAX_VALUE);
    else
        printf("(not given)");
    if (summary->name.data != NULL) {
        printf("\n  name          ");
        (void)inspect_put_text(stdout, summary->name, MAX_VALUE);
    }
    printf("\n  parameters    %s", count);
    if (summary->n_parameters >= 1000) printf(" (%" PRIu64 ")", summary->n_parameters);
    printf("%s\n", gguf_count_tensors(file) == 0 ? " (the file has no tensors)" : "");
}

static void print_types(const inspect_summary *summary)
{
    if (summary->n_types == 0) return;
    printf("\nTensor types\n  %-8s %8s %16s %16s %7s\n", "type", "tensors", "parameters", "bytes",
           "share");
    for (uint32_t i = 0; i < summary->n_types; i++) {
        const inspect_type *entry = &summary->types[i];
        const char *name = "?";
        (void)gguf_type_block(entry->type, &name, NULL, NULL);
        printf("  %-8s %8u %16" PRIu64 " %16" PRIu64 " %6.1f%%\n", name, entry->n_tensors,
               entry->n_parameters, entry->n_bytes,
               100.0 * (double)entry->n_bytes / (double)summary->n_bytes);
    }
}

/* ---- metadata ------------------------------------------------------------------------------- */

static void put_quoted(gguf_string text, uint32_t columns)
{
    putchar('"');
    (void)inspect_put_text(stdout, text, columns);
    putchar('"');
}

/* The first few elements, as many as fit, then "...". */
static void print_elements(const gguf_value *value)
{
    uint32_t used = 0;
    for (uint64_t i = 0; i < value->count; i++) {
        char number[40];
        uint32_t width;
        if (value->strings != NULL) {
            width = width_of(value->strings[i], MAX_ELEMENT) + 2;
        } else {
            inspect_format_number(number, value, i);
            width = (uint32_t)strlen(number);
        }
        if (used + width + 7 > MAX_VALUE && i > 0) {
            printf(", ...");
            return;
        }
        printf("%s", i > 0 ? ", " : "");
        if (value->strings != NULL)
            put_quoted(value->strings[i], MAX_ELEMENT);
        else
            printf("%s", number);
        used += width + 2;
    }
}

static void print_value(const gguf_value *value)
{
    if (value->type == GGUF_ARRAY) {
        print_elements(value);
    } else if (value->strings != NULL) {
        put_quoted(value->strings[0], MAX_VALUE - 2);
        if (value->strings[0].length > MAX_VALUE) printf(" (%zu bytes)", value->strings[0].length);
    } else {
        char number[40];
        inspect_format_number(number, value, 0);
        printf("%s", number);
    }
}

static void format_type(char out[48], const gguf_value *value)
{
    if (value->type == GGUF_ARRAY)
        (void)snprintf(out, 48, "%s[%" PRIu64 "]", gguf_type_name(value->element_type),
                       value->count);
    else
        (void)snprintf(out, 48, "%s", gguf_type_name(value->type));
}

static void print_metadata(const gguf_file *file)
{
    char type[48];
    uint32_t key_columns = 0, type_columns = 0;
    for (uint32_t i = 0; i < gguf_count_values(file); i++) {
        const gguf_value *value = gguf_value_at(file, i);
        format_type(type, value);
        key_columns = wider(key_columns, width_of(value->key, MAX_KEY));
        type_columns = wider(type_columns, (uint32_t)strlen(type));
    }
    printf("\nMetadata (%u keys)\n", gguf_count_values(file));
    for (uint32_t i = 0; i < gguf_count_values(file); i++) {
        const gguf_value *value = gguf_value_at(file, i);
        format_type(type, value);
        printf("  ");
        put_padded(value->key, key_columns);
        printf("  %-*s  ", (int)type_columns, type);
        print_value(value);
        putchar('\n');
    }
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* "288 x 32000": the length of a row first, as in the file. */
static void format_shape(char out[96], const gguf_tensor *tensor)
{
    int length = snprintf(out, 96, "%" PRIu64, tensor->dims[0]);
    for (uint32_t i = 1; i < tensor->n_dims; i++)
        length += snprintf(out + length, 96 - (size_t)length, " x %" PRIu64, tensor->dims[i]);
}

static void print_tensors(const gguf_file *file)
{
    char shape[96];
    uint32_t name_columns = 4, shape_columns = 5;
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        format_shape(shape, tensor);
        name_columns = wider(name_columns, width_of(tensor->name, MAX_NAME));
        shape_columns = wider(shape_columns, (uint32_t)strlen(shape));
    }
    printf("\nTensors (%u)\n", gguf_count_tensors(file));
    if (gguf_count_tensors(file) == 0) return;
    printf("  %-*s  %-*s  %-8s %14s %14s\n", (int)name_columns, "name", (int)shape_columns, "shape",
           "type", "bytes", "offset");
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        const char *type = "?";
        (void)gguf_type_block(tensor->type, &type, NULL, NULL);
        format_shape(shape, tensor);
        printf("  ");
        put_padded(tensor->name, name_columns);
        printf("  %-*s  %-8s %14" PRIu64 " %14" PRIu64 "\n", (int)shape_columns, shape, type,
               tensor->n_bytes, tensor->offset);
    }
}

/* ---- the plan of a memory ------------------------------------------------------------------- */

/* "-" for what belongs to no group, or to no single layer. */
static void format_index(char out[16], int32_t index)
{
    (void)snprintf(out, 16, index < 0 ? "-" : "%d", (int)index);
}

static void print_total(const char *name, uint64_t bytes)
{
    char size[32];
    inspect_format_size(size, bytes);
    printf("  %-15s  %16" PRIu64 "  %s\n", name, bytes, size);
}

static void print_plan(const inspect_plan *plan)
{
    char group[16], layer[16];
    printf("\nMemory of %u cells\n  %5s  %5s  %-8s  %-15s  %-6s  %16s\n", plan->n_cells, "group",
           "layer", "kind", "what", "type", "bytes");
    for (size_t i = 0; i < plan->n_items; i++) {
        const cellar_bytes *item = &plan->items[i];
        format_index(group, item->group);
        format_index(layer, item->layer);
        printf("  %5s  %5s  %-8s  %-15s  %-6s  %16" PRIu64 "%s\n", group, layer,
               inspect_kind_name(item->kind), item->what,
               inspect_has_type(item) ? cellar_type_name(item->type) : "-", item->bytes,
               item->is_callers ? "  (a store of the caller)" : "");
    }
    printf("\nTogether\n");
    for (int kind = 0; kind < CELLAR_BYTES_KINDS; kind++)
        if (plan->sizes.bytes[kind] > 0)
            print_total(inspect_kind_name((cellar_bytes_kind)kind), plan->sizes.bytes[kind]);
    print_total("all", plan->sizes.total);
}

void inspect_print_text(const gguf_file *file, const inspect_summary *summary, inspect_parts parts)
{
    print_summary(file, summary);
    print_types(summary);
    if (parts.metadata) print_metadata(file);
    if (parts.tensors) print_tensors(file);
    if (parts.plan != NULL) print_plan(parts.plan);
}
