/*
 * api_memory.c: GET /memory, what the page at / draws: cells, sequences, stores, and the last prompts.
 *
 * One look by an errand, of a fixed size; the JSON is made of it beside the engine. With keys everybody sees the own
 * sequences and prompts, and of others only that cells are in use. docs/server.md has the fields.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/memory_map.h"
#include "serve/server.h"

typedef struct look {
    server *server;
    memory_map *map;
    cellar_status status;
    cellar_error error;
} look;

static void look_at_memory(void *context)
{
    look *l = context;
    l->status = memory_map_fill(l->map, l->server->scheduler, &l->error);
}

/* ---- cells ---------------------------------------------------------------------------------- */

/* Does b go on where a ends? `n` tiles like a lie before b. */
static bool goes_on(const memory_tile *a, uint32_t n, const memory_tile *b)
{
    const bool follows = a->pos < 0 ? b->pos < 0 : b->pos == a->pos + (int64_t)n * a->n_used;
    return follows && a->sequence == b->sequence && a->n_used == b->n_used &&
           a->n_shared == b->n_shared && a->n_kept == b->n_kept && a->n_holders == b->n_holders;
}

/* [tile, tiles, sequence, position, used, shared, kept, holders], and so on: the free ones are left out. */
static json_t *stretches(const memory_map *map, const memory_map_group *group)
{
    json_t *list = json_array();
    const memory_tile *tiles = &map->tiles[group->first];
    for (uint32_t i = 0, n; i < group->n_tiles; i += n) {
        const memory_tile *t = &tiles[i];
        for (n = 1; i + n < group->n_tiles && goes_on(t, n, &tiles[i + n]); n++) {}
        if (t->n_used > 0) {
            (void)!json_array_append_new(
                list, json_pack("[I,I,i,i,I,I,I,I]", (json_int_t)i, (json_int_t)n, (int)t->sequence,
                                (int)t->pos, (json_int_t)t->n_used, (json_int_t)t->n_shared,
                                (json_int_t)t->n_kept, (json_int_t)t->n_holders));
        }
    }
    return list;
}

static json_t *describe_group(const memory_map *map, const memory_map_group *group)
{
    const cellar_group_info *info = &group->info;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "kind",
                     info->kind == CELLAR_LAYER_RECURRENT      ? "recurrent"
                     : info->window.kind != CELLAR_WINDOW_NONE ? "window"
                                                               : "attention",
                     "window", (json_int_t)info->window.size, "layers", (json_int_t)info->n_layers,
                     "cells", (json_int_t)info->n_cells, "used", (json_int_t)info->n_used,
                     "cell_bytes", (json_int_t)info->row_bytes, "shown", (json_int_t)group->n_shown,
                     "cells_per_tile", (json_int_t)group->per_tile, "tiles",
                     (json_int_t)group->n_tiles, "map", stretches(map, group));
}

/* ---- sequences ------------------------------------------------------------------------------ */

static json_t *runs_of(const memory_map *map, const memory_map_sequence *its)
{
    json_t *list = json_array();
    for (size_t i = 0; i < its->n_runs; i++) {
        const memory_map_run *run = &map->runs[its->first_run + i];
        (void)!json_array_append_new(list, json_pack("[I,I,I,i]", (json_int_t)run->group,
                                                     (json_int_t)run->cell, (json_int_t)run->len,
                                                     (int)run->pos));
    }
    return list;
}

static json_t *describe_sequence(const memory_map *map, const memory_map_sequence *its)
{
    const cellar_entry *entry = &its->entry;
    const bool is_in_cells = entry->seq >= 0;
    json_t *made =
        json_pack("{s:I, s:I, s:s, s:b, s:b, s:I, s:I, s:I, s:I, s:f, s:I, s:I}", "id",
                  (json_int_t)entry->entry, "conversation", (json_int_t)its->note.conversation,
                  "tier", job_source_name(reuse_tier(entry)), "is_running", entry->is_running,
                  "pinned", entry->is_pinned, "tokens", (json_int_t)entry->n_tokens, "bytes",
                  (json_int_t)its->bytes, "ram_bytes", (json_int_t)entry->ram_bytes, "disk_bytes",
                  (json_int_t)entry->disk_bytes, "age_seconds", its->for_seconds, "hits",
                  (json_int_t)its->note.n_hits, "id_slot", (json_int_t)its->note.slot);
    if (is_in_cells) {
        json_t *checkpoints = json_array();
        for (uint32_t i = 0; i < its->n_checkpoints; i++) {
            (void)!json_array_append_new(checkpoints, json_integer(its->checkpoints[i]));
        }
        json_t *more = json_pack(
            "{s:[i,i], s:I, s:I, s:o, s:I, s:o}", "positions", (int)its->info.pos_min,
            (int)its->info.pos_max, "cells", (json_int_t)its->info.n_cells, "shared_cells",
            (json_int_t)its->info.n_shared, "checkpoints", checkpoints, "n_checkpoints",
            (json_int_t)its->info.n_checkpoints, "runs", runs_of(map, its));
        (void)!json_object_update(made, more);
        json_decref(more);
    }
    return made;
}

/* ---- prompts -------------------------------------------------------------------------------- */

static const char *state_of(const timeline_event *event)
{
    static const char *const names[] = {"running", "stop",      "stop",  "length",
                                        "length",  "cancelled", "failed"};
    return event->has_ended ? names[event->report.finish] : names[JOB_GOES_ON];
}

static json_t *describe_event(const timeline_event *event)
{
    const job_report *its = &event->report;
    return json_pack("{s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:I, "
                     "s:I}",
                     "number", (json_int_t)event->number, "time_ms", (json_int_t)event->time_ms,
                     "conversation", (json_int_t)its->conversation, "state", state_of(event),
                     "prompt_tokens", (json_int_t)event->n_prompt, "reusable",
                     (json_int_t)its->n_reusable, "reused", (json_int_t)its->n_reused, "source",
                     job_source_name(its->source), "reason", its->reason != NULL ? its->reason : "",
                     "diverged_at", (json_int_t)its->diverged_at, "written",
                     (json_int_t)its->n_written, "wait_ms", its->wait_seconds * 1e3, "read_ms",
                     its->read_seconds * 1e3, "write_ms", its->write_seconds * 1e3, "set_aside",
                     (json_int_t)its->n_set_aside, "id_slot", (json_int_t)its->slot);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static json_t *describe(const server *s, const memory_map *map)
{
    json_t *groups = json_array(), *sequences = json_array(), *events = json_array();
    for (uint32_t g = 0; g < map->n_groups; g++) {
        (void)!json_array_append_new(groups, describe_group(map, &map->groups[g]));
    }
    for (uint32_t i = 0; i < map->n_sequences; i++) {
        (void)!json_array_append_new(sequences, describe_sequence(map, &map->sequences[i]));
    }
    for (size_t i = 0; i < map->n_events; i++) {
        (void)!json_array_append_new(events, describe_event(&map->events[i]));
    }
    const scheduler_counters c = scheduler_count(s->scheduler);
    json_t *stores = json_pack("{s:{s:I, s:I}, s:{s:I, s:I}, s:{s:I, s:I}}", "memory", "bytes",
                               (json_int_t)c.bytes, "limit", (json_int_t)map->memory.budget_bytes,
                               "ram", "bytes", (json_int_t)map->library.ram_bytes, "limit",
                               (json_int_t)s->reuse.ram_bytes, "disk", "bytes",
                               (json_int_t)map->library.disk_bytes, "limit",
                               (json_int_t)(s->reuse.folder != NULL ? s->reuse.disk_bytes : 0));
    json_t *cells = json_pack("{s:I, s:I, s:I, s:I}", "total", (json_int_t)map->memory.n_cells,
                              "used", (json_int_t)map->memory.n_used, "shared",
                              (json_int_t)map->memory.n_shared, "checkpoints",
                              (json_int_t)map->memory.n_checkpoints);
    return json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "time_ms",
                     (json_int_t)map->time_ms, "model", s->model_name, "n_ctx",
                     (json_int_t)s->n_context, "total_slots", (json_int_t)s->n_slots, "at_work",
                     (json_int_t)c.n_at_work, "waiting", (json_int_t)c.n_waiting, "cells", cells,
                     "stores", stores, "n_sequences", (json_int_t)map->n_own, "evictions",
                     (json_int_t)map->library.n_evicted, "groups", groups, "sequences", sequences,
                     "events", events);
}

void api_memory(server *s, http_request *request)
{
    char owner[SERVER_OWNER_BYTES];
    server_owner(request, owner);
    look l = {.server = s, .map = calloc(1, sizeof(memory_map))};
    if (l.map == NULL) {
        http_reply_json(request, 200, NULL);
        return;
    }
    l.map->owner = s->reuse.shares_between_keys ? NULL : owner;
    if (!scheduler_run(s->scheduler, look_at_memory, &l)) {
        http_reply_error(request, 503, "unavailable_error", NULL, NULL, "the server is stopping");
    } else if (l.status != CELLAR_OK) {
        server_reply_status(request, l.status, &l.error);
    } else {
        http_reply_json(request, 200, describe(s, l.map));
    }
    free(l.map);
}
