/*
 * inspect_plan.c: what a memory for a model would take, before there is one.
 *
 * The model is loaded as it would be to run it, so a plan is only given for a file that can be run, and
 * the library is asked for the items, so they are those that `cellar run` gets with the same options.
 * They are gathered first and printed by inspect_text.c and inspect_json.c: whatever can go wrong has
 * gone wrong before the first line is out.
 */
#include <stdlib.h>
#include <string.h>

#include "inspect.h"
#include "report.h"

const char *inspect_kind_name(cellar_bytes_kind kind)
{
    static const char *const names[CELLAR_BYTES_KINDS] = {"object",  "cells", "rows", "states",
                                                          "scratch", "runs",  "step"};
    return (unsigned)kind < CELLAR_BYTES_KINDS ? names[kind] : "?";
}

bool inspect_has_type(const cellar_bytes *item)
{
    return item->layer >= 0;
}

static bool add_item(void *context, const cellar_bytes *item)
{
    inspect_plan *plan = context;
    if (plan->n_items == plan->capacity) {
        const size_t larger = plan->capacity == 0 ? 64 : 2 * plan->capacity;
        cellar_bytes *items = realloc(plan->items, larger * sizeof *items);
        if (items == NULL) return !(plan->is_cut = true);
        plan->items = items;
        plan->capacity = larger;
    }
    plan->items[plan->n_items++] = *item;
    plan->sizes.bytes[item->kind] += item->bytes;
    plan->sizes.total += item->bytes;
    return true;
}

cellar_status inspect_plan_make(const gguf_file *file, const memory_options *options,
                                inspect_plan *plan, cellar_error *error)
{
    *plan = (inspect_plan){.n_cells = 0};
    model *m = NULL;
    engine_options its;
    cellar_status status = model_load(file, &m, error);
    if (status == CELLAR_OK) status = memory_options_apply(options, m, &its, error);
    if (status == CELLAR_OK) {
        plan->n_cells = its.n_cells;
        status = engine_plan(m, &its, add_item, plan, error);
    }
    if (status == CELLAR_OK && plan->is_cut)
        status = report(error, CELLAR_NO_MEMORY, -1, "no memory for the items of a plan");
    model_free(m);
    return status;
}

void inspect_plan_free(inspect_plan *plan)
{
    free(plan->items);
    *plan = (inspect_plan){.n_cells = 0};
}
