/*
 * api_slot_files.c: /slots/{id}?action=save|restore|erase.
 *
 * What a slot holds is the sequence that was retained in it last. Saving writes it to a session file in the folder
 * that the server was given, under a plain name; the library neither follows nor replaces links. The file says whose
 * it is (a hash of the key, and the salt), and is restored for the same owner only. A file that is damaged or of
 * another model is refused, and nothing changes.
 *
 * All of it runs on the scheduler's thread: whoever writes at the time waits for the disk.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/fingerprint.h"
#include "report.h"
#include "safe_text.h"
#include "serve/reuse.h"
#include "serve/server.h"

#define LONGEST_NAME 200u
#define N_FACTS (FINGERPRINT_FACTS + 2)

typedef struct slot_errand {
    server *server;
    uint32_t slot;
    const char *path;
    char owner[SERVER_OWNER_BYTES];
    const char *salt; /* NULL: none */
    fingerprint who;
    cellar_note facts[N_FACTS];
    bool is_busy;
    size_t n_tokens; /* saved, restored or erased */
    uint64_t n_bytes;
    double seconds;
    cellar_status status;
    cellar_error error;
} slot_errand;

/* What was retained there last, if it is this owner's. */
static uint64_t own_entry(const slot_errand *e, cellar_entry *out)
{
    const reuse *r = scheduler_reuse(e->server->scheduler);
    const uint64_t entry = reuse_in_slot(r, e->slot, out);
    return entry != 0 && reuse_is_owners(r, out, e->owner) ? entry : 0;
}

/* Is somebody at work there? */
static bool look_whether_busy(slot_errand *e)
{
    scheduler_slot slot;
    scheduler_look_at_slot(e->server->scheduler, e->slot, &slot);
    e->is_busy = slot.is_busy;
    return slot.is_busy;
}

/* Who the model is, and whose the tokens are. */
static void make_facts(slot_errand *e)
{
    fingerprint_make(engine_model(e->server->engine), &e->who);
    memcpy(e->facts, e->who.facts, sizeof e->who.facts);
    const char *salt = e->salt != NULL ? e->salt : "";
    e->facts[FINGERPRINT_FACTS] = (cellar_note){"server.owner", e->owner, strlen(e->owner)};
    e->facts[FINGERPRINT_FACTS + 1] = (cellar_note){"server.salt", salt, strlen(salt)};
}

/* ---- on the scheduler's thread -------------------------------------------------------------- */

/* Write down what a sequence holds. */
static cellar_status write_session(slot_errand *e, cellar_seq seq, const cellar_token *tokens,
                                   size_t n)
{
    const cellar_log log = {seq, (uint32_t)n, tokens};
    cellar_save_options options = cellar_save_options_init();
    options.sequences = &seq;
    options.n_sequences = 1;
    options.facts = e->facts;
    options.n_facts = N_FACTS;
    options.logs = &log;
    options.n_logs = 1;
    return cellar_save_session(engine_memory(e->server->engine), &options, e->path, &e->error);
}

/* A fork of what is retained is saved: so it does not matter where that is. */
static void save(void *context)
{
    slot_errand *e = context;
    reuse *r = scheduler_reuse(e->server->scheduler);
    cellar_entry its;
    if (look_whether_busy(e)) {
        return;
    }
    if (own_entry(e, &its) == 0 || its.n_tokens == 0) {
        e->status = report(&e->error, CELLAR_NOT_FOUND, -1, "the slot holds nothing to save");
        return;
    }
    const double start = job_now();
    const size_t n = its.n_tokens;
    cellar_token *tokens = malloc(n * sizeof *tokens);
    reuse_entry *entry = NULL;
    reuse_answer answer = {.n_reused = 0};
    if (tokens == NULL) {
        e->status = report(&e->error, CELLAR_NO_MEMORY, -1, "no memory for %zu tokens", n);
    } else {
        memcpy(tokens, its.tokens, n * sizeof *tokens);
        e->status = reuse_begin(r, e->owner, e->salt, tokens, n, n, &entry, &answer, &e->error);
    }
    if (e->status == CELLAR_OK && answer.n_reused == 0) {
        e->status = report(&e->error, CELLAR_NOT_FOUND, -1, "the slot holds nothing to save");
    }
    if (e->status == CELLAR_OK) {
        e->status = write_session(e, entry->seq, tokens, answer.n_reused);
    }
    if (entry != NULL) {
        reuse_drop(r, entry);
    }
    free(tokens);
    struct stat file;
    e->n_tokens = answer.n_reused;
    e->n_bytes = e->status == CELLAR_OK && stat(e->path, &file) == 0 ? (uint64_t)file.st_size : 0;
    e->seconds = job_now() - start;
}

/* The only sequence of a session of ours. */
static cellar_status look_into(slot_errand *e, const cellar_session *session,
                               cellar_session_sequence *out)
{
    cellar_session_info info;
    cellar_status status = cellar_describe_session(session, &info, &e->error);
    if (status == CELLAR_OK && info.n_sequences != 1) {
        return report(&e->error, CELLAR_MISMATCH, -1, "the file is not one of a slot");
    }
    if (status == CELLAR_OK) {
        status = cellar_get_session_sequence(session, 0, out, &e->error);
    }
    if (status == CELLAR_OK && (out->pos_max < 0 || out->n_tokens != (uint32_t)out->pos_max + 1)) {
        return report(&e->error, CELLAR_MISMATCH, -1, "the file does not say what was read");
    }
    e->n_bytes = info.bytes;
    return status;
}

/* Load it into a sequence that holds nothing. */
static cellar_status load(slot_errand *e, const cellar_session *session,
                          const cellar_session_sequence *its, const reuse_entry *entry)
{
    cellar_memory *memory = engine_memory(e->server->engine);
    cellar_load_options options = cellar_load_options_init();
    options.sequences = &its->seq;
    options.as = &entry->seq;
    options.n_sequences = 1;
    options.facts = e->facts;
    options.n_facts = N_FACTS;
    cellar_status status = cellar_load_session(memory, session, &options, &e->error);
    if (status == CELLAR_FULL &&
        reuse_makes_room(scheduler_reuse(e->server->scheduler), e->owner, e->salt, its->tokens,
                         its->n_tokens, its->n_tokens)) {
        status = cellar_load_session(memory, session, &options, &e->error);
    }
    return status;
}

static void restore(void *context)
{
    slot_errand *e = context;
    reuse *r = scheduler_reuse(e->server->scheduler);
    if (look_whether_busy(e)) {
        return;
    }
    const double start = job_now();
    cellar_session *session = NULL;
    cellar_session_sequence its;
    reuse_entry *entry = NULL;
    reuse_answer answer;
    e->status = cellar_open_session(e->path, NULL, &session, &e->error);
    if (e->status == CELLAR_OK) {
        e->status = look_into(e, session, &its);
    }
    if (e->status == CELLAR_OK) {
        e->status = reuse_begin(r, e->owner, e->salt, its.tokens, its.n_tokens, 0, &entry, &answer,
                                &e->error);
    }
    if (e->status == CELLAR_OK) {
        e->status = load(e, session, &its, entry);
    }
    if (e->status == CELLAR_OK) {
        e->n_tokens = its.n_tokens;
        reuse_tell(r, entry, its.tokens, its.n_tokens);
        (void)reuse_retain(r, entry, e->slot);
    } else if (entry != NULL) {
        reuse_drop(r, entry);
    }
    cellar_close_session(session);
    e->seconds = job_now() - start;
}

static void erase(void *context)
{
    slot_errand *e = context;
    cellar_entry its;
    const uint64_t entry = look_whether_busy(e) ? 0 : own_entry(e, &its);
    if (entry != 0) {
        e->n_tokens = its.n_tokens;
        e->status = reuse_forget(scheduler_reuse(e->server->scheduler), entry, &e->error);
    }
}

/* ---- the request ---------------------------------------------------------------------------- */

/* A name and nothing more: no folder, nothing hidden, nothing that a terminal may not see. */
static bool is_plain_name(const char *name)
{
    const size_t n = strlen(name);
    size_t used;
    if (n == 0 || n > LONGEST_NAME || name[0] == '.' || strchr(name, '/') != NULL) {
        return false;
    }
    for (size_t at = 0; at < n; at += used) {
        if (!safe_text_is_printable(safe_text_decode(name + at, n - at, &used))) {
            return false;
        }
    }
    return true;
}

static bool read_slot(const server *s, http_request *request, uint32_t *slot)
{
    char *end;
    const char *text = http_rest(request);
    const unsigned long its = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || its >= s->n_slots) {
        http_reply_error(request, 404, "not_found_error", NULL, NULL, "there is no such slot");
        return false;
    }
    *slot = (uint32_t)its;
    return true;
}

static void reply(http_request *request, const slot_errand *e, const char *name,
                  const char *const words[3])
{
    json_t *body = json_pack("{s:I, s:s, s:I, s:I, s:{s:f}}", "id_slot", (json_int_t)e->slot,
                             "filename", name, words[0], (json_int_t)e->n_tokens, words[1],
                             (json_int_t)e->n_bytes, "timings", words[2], e->seconds * 1e3);
    http_reply_json(request, 200, body);
}

static void run(http_request *request, slot_errand *e, void (*what)(void *))
{
    if (!scheduler_run(e->server->scheduler, what, e)) {
        http_reply_error(request, 503, "unavailable_error", NULL, NULL, "the server is stopping");
    } else if (e->is_busy) {
        http_reply_error(request, 409, "invalid_request_error", NULL, NULL,
                         "slot %u is busy; try again when its answer is written",
                         (unsigned)e->slot);
    } else if (e->status != CELLAR_OK) {
        server_reply_status(request, e->status, &e->error);
    }
}

static void save_or_restore(server *s, http_request *request, slot_errand *e, bool saves)
{
    static const char *const saved[] = {"n_saved", "n_written", "save_ms"};
    static const char *const restored[] = {"n_restored", "n_read", "restore_ms"};
    if (s->slot_folder == NULL) {
        http_reply_error(request, 501, "not_supported_error", NULL, NULL,
                         "this server was not started with --slot-save-path");
        return;
    }
    json_t *body = server_read_body(request);
    if (body == NULL) {
        return;
    }
    fields f = fields_of(body);
    const json_t *name = fields_text(&f, "filename");
    const json_t *salt = fields_text(&f, "cache_salt");
    if (name == NULL || !is_plain_name(json_string_value(name))) {
        fields_wrong(&f, "filename", "the name of a file, without a folder");
    }
    if (!server_refuse_fields(request, &f)) {
        const size_t room = strlen(s->slot_folder) + json_string_length(name) + 2;
        char *path = malloc(room);
        if (path != NULL) {
            snprintf(path, room, "%s/%s", s->slot_folder, json_string_value(name));
            e->salt = salt != NULL ? json_string_value(salt) : NULL;
            e->path = path;
            make_facts(e);
            run(request, e, saves ? save : restore);
            reply(request, e, json_string_value(name), saves ? saved : restored);
        }
        free(path);
    }
    json_decref(body);
}

void api_slot_action(server *s, http_request *request)
{
    slot_errand e = {.server = s, .status = CELLAR_OK};
    const char *action = http_query(request, "action");
    if (!read_slot(s, request, &e.slot)) {
        return;
    }
    server_owner(request, e.owner);
    if (action != NULL && strcmp(action, "save") == 0) {
        save_or_restore(s, request, &e, true);
    } else if (action != NULL && strcmp(action, "restore") == 0) {
        save_or_restore(s, request, &e, false);
    } else if (action != NULL && strcmp(action, "erase") == 0) {
        run(request, &e, erase);
        http_reply_json(request, 200,
                        json_pack("{s:I, s:I}", "id_slot", (json_int_t)e.slot, "n_erased",
                                  (json_int_t)e.n_tokens));
    } else {
        http_reply_error(request, 400, "invalid_request_error", "action", NULL,
                         "'action': expected save, restore or erase");
    }
}
