/*
 * api_state.c: what the server is doing and holding: /metrics, /slots, /cache.
 *
 * Figures of the memory are read by an errand, between two micro-batches. Nobody's words are shown, and with keys
 * everybody sees what belongs to the own key only.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/reuse.h"
#include "serve/server.h"

static void refuse_switched_off(http_request *request, const char *option)
{
    http_reply_error(request, 501, "not_supported_error", NULL, NULL,
                     "this server was not started with %s", option);
}

static void reply_stopping(http_request *request)
{
    http_reply_error(request, 503, "unavailable_error", NULL, NULL, "the server is stopping");
}

/* ---- /metrics ------------------------------------------------------------------------------- */

typedef struct page_text {
    char *text; /* NULL: no memory */
    size_t n;
    FILE *stream;
} page_text;

static void say(const page_text *p, const char *name, const char *kind, const char *help,
                double value)
{
    fprintf(p->stream, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, kind, name,
            value);
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void say_known_names(const page_text *p, const scheduler_counters *c)
{
    const double n_prompt = (double)c->n_prompt, n_written = (double)c->n_written;
    say(p, "llamacpp:prompt_tokens_total", "counter", "Prompt tokens computed.", n_prompt);
    say(p, "llamacpp:prompt_seconds_total", "counter", "Seconds of computing them.",
        c->prompt_seconds);
    say(p, "llamacpp:tokens_predicted_total", "counter", "Tokens written.", n_written);
    say(p, "llamacpp:tokens_predicted_seconds_total", "counter", "Seconds of computing them.",
        c->write_seconds);
    say(p, "llamacpp:prompt_tokens_seconds", "gauge", "Prompt tokens a second, on average.",
        ratio(n_prompt, c->prompt_seconds));
    say(p, "llamacpp:predicted_tokens_seconds", "gauge", "Tokens written a second, on average.",
        ratio(n_written, c->write_seconds));
    say(p, "llamacpp:requests_processing", "gauge", "Answers at work.", c->n_at_work);
    say(p, "llamacpp:requests_deferred", "gauge", "Answers that wait.", c->n_waiting);
    say(p, "llamacpp:n_tokens_max", "counter", "Most tokens that a prompt and its answer had.",
        (double)c->n_most_tokens);
    say(p, "llamacpp:n_decode_total", "counter", "Micro-batches computed.", (double)c->n_steps);
    say(p, "llamacpp:n_busy_slots_per_decode", "gauge", "Answers at work in one, on average.",
        ratio((double)c->n_busy, (double)c->n_steps));
    say(p, "llamacpp:kv_cache_usage_ratio", "gauge", "Cells held, 0..1.",
        ratio(c->n_used, c->n_cells));
    say(p, "llamacpp:kv_cache_tokens", "gauge", "Cells held.", c->n_used);
    say(p, "llamacpp:prompt_tokens_cache_total", "counter", "Prompt tokens taken over.",
        (double)c->n_reused);
    say(p, "llamacpp:prompt_cache_hit_ratio", "gauge", "Of all prompt tokens, 0..1.",
        ratio((double)c->n_reused, (double)c->n_reused + n_prompt));
}

static void say_reasons(const page_text *p, const scheduler_counters *c)
{
    static const char *const names[] = {"cellar:prompts_total", "cellar:prefix_hit_tokens_total",
                                        "cellar:prefix_miss_tokens_total"};
    static const char *const help[] = {"Prompts by why no more of them was reused.",
                                       "Tokens taken over, likewise.", "Tokens not, likewise."};
    for (int k = 0; k < 3; k++) {
        fprintf(p->stream, "# HELP %s %s\n# TYPE %s counter\n", names[k], help[k], names[k]);
        for (uint32_t i = 0; i < SCHEDULER_REASONS && c->reasons[i].name != NULL; i++) {
            const scheduler_reason *its = &c->reasons[i];
            const uint64_t n = k == 0 ? its->n : k == 1 ? its->n_reused : its->n_not;
            fprintf(p->stream, "%s{reason=\"%s\"} %" PRIu64 "\n", names[k], its->name, n);
        }
    }
}

static void say_own_names(const page_text *p, const scheduler_counters *c)
{
    say(p, "cellar:jobs_total", "counter", "Requests for text begun.", (double)c->n_jobs);
    say(p, "cellar:answers_total", "counter", "Answers ended.", (double)c->n_branches_ended);
    say(p, "cellar:answers_cancelled_total", "counter", "Of these, cancelled.",
        (double)c->n_cancelled);
    say(p, "cellar:answers_failed_total", "counter", "Of these, failed.", (double)c->n_failed);
    say(p, "cellar:set_aside_total", "counter", "Times that an answer had to make room.",
        (double)c->n_set_aside);
    say(p, "cellar:evictions_total", "counter", "Sequences moved out of the cells.",
        (double)c->library.n_evicted);
    say(p, "cellar:lost_total", "counter", "Sequences that had nowhere to go.",
        (double)c->library.n_lost);
    say(p, "cellar:damaged_total", "counter", "Stored sequences that were not what they should be.",
        (double)c->library.n_damaged);
    say(p, "cellar:store_failures_total", "counter", "Stored sequences not written or not read.",
        (double)c->library.n_failures);
    say(p, "cellar:cells_total", "gauge", "Cells of the largest group.", c->n_cells);
    say(p, "cellar:cells_used", "gauge", "Of these, held.", c->n_used);
    say(p, "cellar:sequences_retained", "gauge", "Sequences in the cells that nobody works in.",
        c->library.n_retained);
    say(p, "cellar:sequences_ram", "gauge", "Sequences in RAM.", c->library.n_in_ram);
    say(p, "cellar:sequences_disk", "gauge", "Sequences on disk.", c->library.n_on_disk);
    say(p, "cellar:ram_bytes", "gauge", "Bytes of the store in RAM.", (double)c->library.ram_bytes);
    say(p, "cellar:disk_bytes", "gauge", "Bytes of the files.", (double)c->library.disk_bytes);
    say(p, "cellar:index_bytes", "gauge", "Bytes of the index of prefixes.",
        (double)c->library.index_bytes);
    say(p, "cellar:memory_bytes", "gauge", "Bytes of the memory and the engine's buffers.",
        (double)c->bytes);
    say_reasons(p, c);
}

/* The shared store, if there is one. */
static void say_shared(page_text *p, const scheduler_counters *counters)
{
    const shared_counters *c = &counters->shared;
    if (!counters->has_shared) {
        return;
    }
    say(p, "cellar:shared_tokens_total", "counter", "Prompt tokens from the shared store.",
        (double)counters->n_shared);
    say(p, "cellar:shared_fetches_total", "counter", "Prompts looked up there.",
        (double)c->n_fetches);
    say(p, "cellar:shared_hits_total", "counter", "Of these, something came.", (double)c->n_hits);
    say(p, "cellar:shared_late_total", "counter",
        "Of these, given up: no time, or reading was faster.", (double)c->n_late);
    say(p, "cellar:shared_skipped_total", "counter", "Prompts that are read again faster.",
        (double)c->n_skipped);
    say(p, "cellar:shared_refused_total", "counter", "Prompts not looked up: the store is gone.",
        (double)c->n_refused);
    say(p, "cellar:shared_read_total", "counter", "Values read.", (double)c->n_read);
    say(p, "cellar:shared_read_bytes_total", "counter", "Their bytes.", (double)c->bytes_read);
    say(p, "cellar:shared_written_total", "counter", "Values written.", (double)c->n_written);
    say(p, "cellar:shared_written_bytes_total", "counter", "Their bytes.",
        (double)c->bytes_written);
    say(p, "cellar:shared_kept_total", "counter", "Values that were there already.",
        (double)c->n_kept);
    say(p, "cellar:shared_damaged_total", "counter", "Values that were not what they should be.",
        (double)c->n_damaged);
    say(p, "cellar:shared_failures_total", "counter", "Times that the store could not be used.",
        (double)c->n_failures);
    say(p, "cellar:shared_queued_bytes", "gauge", "Bytes that wait to be written.",
        (double)c->queued_bytes);
    say(p, "cellar:shared_reads", "gauge", "1: the store is read from.", c->reads);
    say(p, "cellar:shared_writes", "gauge", "1: the store is written to.", c->writes);
}

void api_metrics(server *s, http_request *request)
{
    if (!s->shows_metrics) {
        refuse_switched_off(request, "--metrics");
        return;
    }
    const scheduler_counters counters = scheduler_count(s->scheduler);
    page_text p = {.text = NULL};
    p.stream = open_memstream(&p.text, &p.n);
    if (p.stream != NULL) {
        say_known_names(&p, &counters);
        say_own_names(&p, &counters);
        say_shared(&p, &counters);
        if (fclose(p.stream) == 0) {
            http_reply_text(request, 200, "text/plain; version=0.0.4; charset=utf-8", p.text, p.n);
        }
    }
    free(p.text);
}

/* ---- /slots --------------------------------------------------------------------------------- */

typedef struct look {
    server *server;
    http_request *request;
    json_t *list;
    uint32_t n_idle;
    uint64_t id; /* of an entry to be dropped */
    bool is_found;
    cellar_status status;
    cellar_error error;
} look;

/* May this request see it? */
static bool is_own(const look *l, const cellar_entry *entry)
{
    char owner[SERVER_OWNER_BYTES];
    server_owner(l->request, owner);
    return reuse_is_owners(scheduler_reuse(l->server->scheduler), entry, owner);
}

static void look_at_slots(void *context)
{
    look *l = context;
    const server *s = l->server;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        scheduler_slot slot;
        scheduler_look_at_slot(s->scheduler, i, &slot);
        cellar_entry last;
        const bool has_last = !slot.is_busy &&
                              reuse_in_slot(scheduler_reuse(s->scheduler), i, &last) != 0 &&
                              is_own(l, &last);
        l->n_idle += !slot.is_busy;
        json_t *next = json_pack("{s:b, s:b, s:I, s:I}", "has_next_token", slot.is_busy,
                                 "has_new_line", false, "n_remain",
                                 slot.n_left < INT64_MAX ? (json_int_t)slot.n_left : (json_int_t)-1,
                                 "n_decoded", (json_int_t)slot.n_written);
        json_t *its = json_pack(
            "{s:I, s:I, s:I, s:b, s:b, s:{}, s:[o], s:I, s:I, s:I}", "id", (json_int_t)i, "id_task",
            slot.is_busy ? (json_int_t)slot.job : (json_int_t)-1, "n_ctx", (json_int_t)s->n_context,
            "speculative", false, "is_processing", slot.is_busy, "params", "next_token", next,
            "n_prompt_tokens", (json_int_t)slot.n_prompt, "n_held_tokens", (json_int_t)slot.n_held,
            "n_retained_tokens", has_last ? (json_int_t)last.n_tokens : (json_int_t)0);
        (void)!json_array_append_new(l->list, its);
    }
}

void api_slots(server *s, http_request *request)
{
    if (!s->shows_slots) {
        http_reply_error(request, 501, "not_supported_error", NULL, NULL,
                         "this server was started with --no-slots");
        return;
    }
    look l = {.server = s, .request = request, .list = json_array()};
    if (!scheduler_run(s->scheduler, look_at_slots, &l)) {
        json_decref(l.list);
        reply_stopping(request);
    } else if (l.n_idle == 0 && http_query(request, "fail_on_no_slot") != NULL) {
        json_decref(l.list);
        http_reply_error(request, 503, "unavailable_error", NULL, NULL, "no slot is idle");
    } else {
        http_reply_json(request, 200, l.list);
    }
}

/* ---- /cache --------------------------------------------------------------------------------- */

typedef struct weigh {
    const cellar_memory *memory;
    uint64_t bytes;
} weigh;

static bool add_run(void *context, const cellar_run *run)
{
    weigh *w = context;
    cellar_group_info group;
    if (cellar_get_group(w->memory, run->group, &group, NULL) == CELLAR_OK) {
        w->bytes += run->len * group.row_bytes;
    }
    return true;
}

/* What of it is in the cells. */
static void describe_cells(const cellar_memory *memory, cellar_seq seq, json_t *to)
{
    weigh w = {.memory = memory};
    cellar_sequence_info info = {.n_cells = 0};
    (void)!cellar_visit_runs(memory, seq, add_run, &w, NULL);
    (void)!cellar_get_sequence(memory, seq, &info, NULL);
    json_t *its = json_pack("{s:I, s:I, s:I, s:I}", "bytes", (json_int_t)w.bytes, "cells",
                            (json_int_t)info.n_cells, "shared_cells", (json_int_t)info.n_shared,
                            "checkpoints", (json_int_t)info.n_checkpoints);
    (void)!json_object_update(to, its);
    json_decref(its);
}

static bool describe(void *context, const cellar_entry *entry, const reuse_note *note)
{
    look *l = context;
    if (!is_own(l, entry)) {
        return true;
    }
    const bool is_in_cells = entry->seq >= 0;
    const double since = note->since > 0 ? job_now() - note->since : 0;
    json_t *its = json_pack(
        "{s:I, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:b}", "id",
        (json_int_t)entry->entry, "tier", job_source_name(reuse_tier(entry)), "is_running",
        entry->is_running, "tokens", (json_int_t)entry->n_tokens, "bytes", (json_int_t)0,
        "checkpoints", (json_int_t)0, "ram_bytes", (json_int_t)entry->ram_bytes, "disk_bytes",
        (json_int_t)entry->disk_bytes, "age_seconds", since, "hits", (json_int_t)note->n_hits,
        "id_slot", (json_int_t)note->slot, "pinned", entry->is_pinned);
    if (is_in_cells) {
        describe_cells(engine_memory(l->server->engine), entry->seq, its);
    }
    (void)!json_array_append_new(l->list, its);
    return true;
}

static void look_at_cache(void *context)
{
    look *l = context;
    reuse_visit(scheduler_reuse(l->server->scheduler), describe, l);
}

void api_cache(server *s, http_request *request)
{
    look l = {.server = s, .request = request, .list = json_array()};
    if (!scheduler_run(s->scheduler, look_at_cache, &l)) {
        json_decref(l.list);
        reply_stopping(request);
        return;
    }
    const scheduler_counters c = scheduler_count(s->scheduler);
    http_reply_json(
        request, 200,
        json_pack("{s:o, s:I, s:I, s:{s:I, s:I, s:I}, s:{s:I, s:I}, s:I}", "entries", l.list,
                  "n_cells", (json_int_t)c.n_cells, "n_used", (json_int_t)c.n_used, "bytes", "live",
                  (json_int_t)c.bytes, "ram", (json_int_t)c.library.ram_bytes, "disk",
                  (json_int_t)c.library.disk_bytes, "limits", "ram", (json_int_t)s->reuse.ram_bytes,
                  "disk", (json_int_t)s->reuse.disk_bytes, "evictions",
                  (json_int_t)c.library.n_evicted));
}

static bool find_entry(void *context, const cellar_entry *entry, const reuse_note *note)
{
    look *l = context;
    (void)note;
    l->is_found = l->is_found || (entry->entry == l->id && is_own(l, entry));
    return !l->is_found;
}

static void drop(void *context)
{
    look *l = context;
    reuse *r = scheduler_reuse(l->server->scheduler);
    reuse_visit(r, find_entry, l);
    if (l->is_found) {
        l->status = reuse_forget(r, l->id, &l->error);
    }
}

void api_cache_drop(server *s, http_request *request)
{
    char *end;
    const char *text = http_rest(request);
    look l = {.server = s, .request = request, .id = strtoull(text, &end, 10)};
    if (*text < '0' || *text > '9' || *end != '\0') {
        l.id = 0;
    }
    if (!scheduler_run(s->scheduler, drop, &l)) {
        reply_stopping(request);
    } else if (!l.is_found) {
        http_reply_error(request, 404, "not_found_error", NULL, NULL, "there is no such entry");
    } else if (l.status == CELLAR_REFUSED) {
        http_reply_error(request, 409, "invalid_request_error", NULL, NULL,
                         "an answer is being written there");
    } else if (l.status != CELLAR_OK) {
        server_reply_status(request, l.status, &l.error);
    } else {
        http_reply_json(request, 200, json_pack("{s:I}", "dropped", (json_int_t)l.id));
    }
}
