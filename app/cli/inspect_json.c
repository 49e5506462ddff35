/*
 * inspect_json.c: a model file as JSON, complete: no text is cut, no array shortened.
 *
 * The document is written as it is walked, so memory does not grow with the file's arrays; only
 * strings pass through jansson, one at a time, as ASCII with \u escapes: safe for every reader and
 * on a terminal. A string that is not UTF-8 cannot stand in JSON as it is: each byte that does not
 * fit becomes U+FFFD, and the value says "lossy": true. NaN and the infinities, which JSON lacks,
 * are the strings "NaN", "Infinity" and "-Infinity".
 *
 * The names of the members are a promise to scripts: they may be added to, not changed.
 */
#include "inspect.h"

#include <inttypes.h>
#include <string.h>

#include "cli/json_text.h"

/* ---- strings -------------------------------------------------------------------------------- */

/* Without memory for one string, null stands in its place: the document stays well-formed. */
static void put_string(gguf_string text)
{
    json_t *string = json_text(text.data, text.length, NULL);
    json_text_print(string, 0);
    json_decref(string);
}

static void put_optional(gguf_string text)
{
    if (text.data != NULL)
        put_string(text);
    else
        printf("null");
}

static void put_c_string(const char *text)
{
    put_string((gguf_string){text, strlen(text)});
}

/* ---- metadata ------------------------------------------------------------------------------- */

static void put_element(const gguf_value *value, uint64_t i, bool *is_lossy)
{
    if (value->strings != NULL) {
        put_string(value->strings[i]);
        *is_lossy = *is_lossy || !inspect_is_utf8(value->strings[i]);
        return;
    }
    char number[40];
    inspect_format_number(number, value, i);
    const bool is_name = strchr("NI", number[0]) != NULL || strcmp(number, "-Infinity") == 0;
    printf(is_name ? "\"%s\"" : "%s", number);
}

static void put_value(const gguf_value *value)
{
    bool is_lossy = false;
    printf("{\"type\": \"%s\", ", gguf_type_name(value->type));
    if (value->type == GGUF_ARRAY) {
        printf("\"element_type\": \"%s\", \"count\": %" PRIu64 ", \"value\": [",
               gguf_type_name(value->element_type), value->count);
        for (uint64_t i = 0; i < value->count; i++) {
            printf("%s", i > 0 ? ", " : "");
            put_element(value, i, &is_lossy);
        }
        putchar(']');
    } else {
        printf("\"value\": ");
        put_element(value, 0, &is_lossy);
    }
    printf("%s}", is_lossy ? ", \"lossy\": true" : "");
}

static void put_metadata(const gguf_file *file)
{
    printf(",\n  \"metadata\": {");
    for (uint32_t i = 0; i < gguf_count_values(file); i++) {
        const gguf_value *value = gguf_value_at(file, i);
        printf("%s\n    ", i > 0 ? "," : "");
        put_string(value->key);
        printf(": ");
        put_value(value);
    }
    printf("%s}", gguf_count_values(file) > 0 ? "\n  " : "");
}

/* ---- tensors -------------------------------------------------------------------------------- */

static void put_type(uint32_t type)
{
    const char *name = "?";
    (void)gguf_type_block(type, &name, NULL, NULL);
    put_c_string(name);
}

static void put_types(const inspect_summary *summary)
{
    printf(",\n  \"types\": [");
    for (uint32_t i = 0; i < summary->n_types; i++) {
        const inspect_type *entry = &summary->types[i];
        printf("%s\n    {\"type\": ", i > 0 ? "," : "");
        put_type(entry->type);
        printf(", \"tensors\": %u, \"parameters\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
               entry->n_tensors, entry->n_parameters, entry->n_bytes);
    }
    printf("%s]", summary->n_types > 0 ? "\n  " : "");
}

static void put_tensor(const gguf_tensor *tensor)
{
    printf("{\"name\": ");
    put_string(tensor->name);
    printf(", \"type\": ");
    put_type(tensor->type);
    printf(", \"shape\": [");
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        printf("%s%" PRIu64, i > 0 ? ", " : "", tensor->dims[i]);
    printf("], \"bytes\": %" PRIu64 ", \"offset\": %" PRIu64 "%s}", tensor->n_bytes, tensor->offset,
           inspect_is_utf8(tensor->name) ? "" : ", \"lossy\": true");
}

static void put_tensors(const gguf_file *file)
{
    printf(",\n  \"tensors\": [");
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        printf("%s\n    ", i > 0 ? "," : "");
        put_tensor(gguf_tensor_at(file, i));
    }
    printf("%s]", gguf_count_tensors(file) > 0 ? "\n  " : "");
}

/* ---- the plan of a memory ------------------------------------------------------------------- */

static void put_index(const char *name, int32_t index)
{
    if (index < 0)
        printf("\"%s\": null, ", name);
    else
        printf("\"%s\": %d, ", name, (int)index);
}

static void put_item(const cellar_bytes *item)
{
    putchar('{');
    put_index("group", item->group);
    put_index("layer", item->layer);
    printf("\"kind\": ");
    put_c_string(inspect_kind_name(item->kind));
    printf(", \"what\": ");
    put_c_string(item->what);
    printf(", \"type\": ");
    if (inspect_has_type(item))
        put_c_string(cellar_type_name(item->type));
    else
        printf("null");
    printf(", \"callers\": %s, \"bytes\": %" PRIu64 "}", item->is_callers ? "true" : "false",
           item->bytes);
}

static void put_plan(const inspect_plan *plan)
{
    printf(",\n  \"memory\": {\n    \"cells\": %u,\n    \"items\": [", plan->n_cells);
    for (size_t i = 0; i < plan->n_items; i++) {
        printf("%s\n      ", i > 0 ? "," : "");
        put_item(&plan->items[i]);
    }
    printf("\n    ],\n    \"bytes\": {");
    for (int kind = 0; kind < CELLAR_BYTES_KINDS; kind++)
        printf("%s\"%s\": %" PRIu64, kind > 0 ? ", " : "",
               inspect_kind_name((cellar_bytes_kind)kind), plan->sizes.bytes[kind]);
    printf("},\n    \"total\": %" PRIu64 "\n  }", plan->sizes.total);
}

void inspect_print_json(const gguf_file *file, const inspect_summary *summary, inspect_parts parts)
{
    printf("{\n  \"file\": ");
    put_c_string(summary->path);
    printf(",\n  \"size\": %" PRIu64 ",\n  \"version\": %u,\n  \"alignment\": %u", gguf_size(file),
           gguf_version(file), gguf_alignment(file));
    printf(",\n  \"architecture\": ");
    put_optional(summary->architecture);
    printf(",\n  \"name\": ");
    put_optional(summary->name);
    printf(",\n  \"parameters\": %" PRIu64, summary->n_parameters);
    put_types(summary);
    if (parts.metadata) put_metadata(file);
    if (parts.tensors) put_tensors(file);
    if (parts.plan != NULL) put_plan(parts.plan);
    printf("\n}\n");
}
