/*
 * dialogue.c: the list of dialogues, and what can be done to their messages.
 *
 * Nothing here reads. Messages are changed first and the memory follows: at once where something is
 * taken back, so that its cells are free, and otherwise before the next answer.
 */
#define _POSIX_C_SOURCE 200809L

#include "chat/dialogue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "safe_text.h"

dialogue_options dialogue_options_defaults(void)
{
    return (dialogue_options){.sampling = sampler_defaults(), .n_limit = UINT64_MAX};
}

static cellar_status no_memory(cellar_error *error)
{
    return report(error, CELLAR_NO_MEMORY, -1, "no memory for a conversation");
}

/* ---- the list ------------------------------------------------------------------------------- */

static void free_dialogue(dialogue *d)
{
    if (d != NULL) {
        free(d->name);
        json_decref(d->messages);
        chat_text_free(&d->text);
        free(d);
    }
}

static void release_sequence(dialogues *all, const dialogue *d)
{
    /* Removing a whole sequence cannot fail while no step is open. */
    (void)!cellar_remove(engine_memory(all->engine), d->seq, 0, -1, NULL);
}

void dialogues_free(dialogues *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        release_sequence(all, all->list[i]);
        free_dialogue(all->list[i]);
    }
    free(all->list);
    all->list = NULL;
    all->n = all->capacity = 0;
}

dialogue *dialogues_find(const dialogues *all, const char *name)
{
    for (uint32_t i = 0; i < all->n; i++) {
        if (strcmp(all->list[i]->name, name) == 0) {
            return all->list[i];
        }
    }
    return NULL;
}

static cellar_status check_name(const dialogues *all, const char *name, cellar_error *error)
{
    const size_t n = strlen(name);
    bool is_good = n > 0 && n <= DIALOGUE_LONGEST_NAME;
    size_t used = 0;
    for (size_t at = 0; is_good && at < n; at += used) {
        const uint32_t code = safe_text_decode(name + at, n - at, &used);
        is_good = safe_text_is_printable(code) && code != ' ';
    }
    if (!is_good) {
        return report(error, CELLAR_INVALID, -1,
                      "a name has 1 to %u bytes of text without spaces: '%s' is none",
                      DIALOGUE_LONGEST_NAME, name);
    }
    if (dialogues_find(all, name) != NULL) {
        return report(error, CELLAR_INVALID, -1, "there is a conversation '%s' already", name);
    }
    return CELLAR_OK;
}

/* Room for one more, and the one; it is in the list when everything else is done. */
static cellar_status make(dialogues *all, const char *name, dialogue **out, cellar_error *error)
{
    *out = NULL;
    cellar_status status = check_name(all, name, error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (all->n == all->capacity) {
        const uint32_t capacity = all->capacity == 0 ? 8 : 2 * all->capacity;
        dialogue **list = realloc(all->list, capacity * sizeof(dialogue *));
        if (list == NULL) {
            return no_memory(error);
        }
        all->list = list;
        all->capacity = capacity;
    }
    dialogue *d = calloc(1, sizeof *d);
    if (d != NULL) {
        d->name = strdup(name);
        d->seq = all->next;
    }
    if (d == NULL || d->name == NULL) {
        free_dialogue(d);
        return no_memory(error);
    }
    *out = d;
    return CELLAR_OK;
}

static void put_in_list(dialogues *all, dialogue *d)
{
    all->list[all->n++] = d;
    all->next++;
}

cellar_status dialogues_add(dialogues *all, const char *name, const char *system, dialogue **out,
                            cellar_error *error)
{
    cellar_status status = make(all, name, out, error);
    if (status != CELLAR_OK) {
        return status;
    }
    (*out)->messages = json_array();
    status = (*out)->messages == NULL ? no_memory(error)
             : system != NULL ? dialogue_set_system(all, *out, system, strlen(system), error)
                              : CELLAR_OK;
    if (status != CELLAR_OK) {
        free_dialogue(*out);
        *out = NULL;
        return status;
    }
    put_in_list(all, *out);
    return CELLAR_OK;
}

cellar_status dialogues_fork(dialogues *all, const dialogue *from, const char *name, dialogue **out,
                             cellar_error *error)
{
    cellar_status status = make(all, name, out, error);
    if (status != CELLAR_OK) {
        return status;
    }
    dialogue *d = *out;
    d->n_forgotten = from->n_forgotten;
    d->is_open = from->is_open;
    d->messages = json_deep_copy(from->messages);
    status = d->messages == NULL ? no_memory(error) : chat_text_copy(&from->text, &d->text, error);
    if (status == CELLAR_OK) {
        status = cellar_copy(engine_memory(all->engine), from->seq, d->seq, 0, -1, error);
    }
    if (status != CELLAR_OK) {
        free_dialogue(d);
        *out = NULL;
        return status;
    }
    put_in_list(all, d);
    return CELLAR_OK;
}

void dialogues_drop(dialogues *all, dialogue *gone)
{
    uint32_t i = 0;
    while (i < all->n && all->list[i] != gone) {
        i++;
    }
    if (i < all->n) {
        release_sequence(all, gone);
        memmove(all->list + i, all->list + i + 1, (all->n - i - 1) * sizeof *all->list);
        all->n--;
        free_dialogue(gone);
    }
}

uint32_t dialogue_held(const dialogues *all, const dialogue *d)
{
    return (uint32_t)(cellar_position_max(engine_memory(all->engine), d->seq) + 1);
}

/* ---- messages ------------------------------------------------------------------------------- */

static bool has_role(const json_t *message, const char *role)
{
    const char *its = json_string_value(json_object_get(message, "role"));
    return its != NULL && strcmp(its, role) == 0;
}

static bool last_is(const dialogue *d, const char *role)
{
    const size_t n = json_array_size(d->messages);
    return n > 0 && has_role(json_array_get(d->messages, n - 1), role);
}

bool dialogue_has_system(const dialogue *d)
{
    return has_role(json_array_get(d->messages, 0), "system");
}

bool dialogue_is_waiting(const dialogue *d)
{
    return d->is_open ||
           (json_array_size(d->messages) > 0 && !last_is(d, "assistant") && !last_is(d, "system"));
}

/* A text, in front of it what `before` says (may be NULL) and a line end. Anything becomes UTF-8. */
static json_t *make_text(const json_t *before, const char *bytes, size_t n)
{
    const size_t n_before = json_string_length(before);
    char *all = n <= SIZE_MAX / 8 ? malloc(n_before + 1 + 3 * (n + 3) + 12) : NULL;
    if (all == NULL) {
        return NULL;
    }
    size_t used = n_before;
    if (n_before > 0) {
        memcpy(all, json_string_value(before), n_before);
        all[used++] = '\n';
    }
    utf8_stream stream = {.n_waiting = 0};
    used += utf8_stream_push(&stream, bytes, n, all + used);
    used += utf8_stream_finish(&stream, all + used);
    json_t *text = json_stringn(all, used);
    free(all);
    return text;
}

static json_t *make_message(const char *role, const char *bytes, size_t n)
{
    json_t *message = json_object();
    if (message == NULL || json_object_set_new(message, "role", json_string(role)) != 0 ||
        json_object_set_new(message, "content", make_text(NULL, bytes, n)) != 0) {
        json_decref(message);
        return NULL;
    }
    return message;
}

cellar_status dialogue_say(dialogue *d, const char *bytes, size_t n, cellar_error *error)
{
    bool is_good;
    if (last_is(d, "user")) {
        json_t *last = json_array_get(d->messages, json_array_size(d->messages) - 1);
        json_t *text = make_text(json_object_get(last, "content"), bytes, n);
        is_good = json_object_set_new(last, "content", text) == 0;
    } else {
        is_good = json_array_append_new(d->messages, make_message("user", bytes, n)) == 0;
        d->is_open = d->is_open && !is_good;
    }
    return is_good ? CELLAR_OK : no_memory(error);
}

cellar_status dialogue_set_system(dialogues *all, dialogue *d, const char *bytes, size_t n,
                                  cellar_error *error)
{
    json_t *message = n > 0 ? make_message("system", bytes, n) : NULL;
    if (n > 0 && message == NULL) {
        return no_memory(error);
    }
    const bool is_there = dialogue_has_system(d);
    bool is_good = true;
    if (n > 0) {
        is_good = is_there ? json_array_set_new(d->messages, 0, message) == 0
                           : json_array_insert_new(d->messages, 0, message) == 0;
    } else if (is_there) {
        is_good = json_array_remove(d->messages, 0) == 0;
    }
    if (is_good) {
        dialogue_trim(all, d);
    }
    return is_good ? CELLAR_OK : no_memory(error);
}

/* ---- taking back ---------------------------------------------------------------------------- */

uint32_t dialogue_turns(const dialogue *d)
{
    uint32_t n = 0;
    for (size_t i = 0; i < json_array_size(d->messages); i++) {
        n += has_role(json_array_get(d->messages, i), "user");
    }
    return n;
}

/* The first n messages stay. */
static void keep_messages(dialogues *all, dialogue *d, size_t n)
{
    if (n < json_array_size(d->messages)) {
        d->is_open = false;
    }
    while (json_array_size(d->messages) > n) {
        (void)!json_array_remove(d->messages, json_array_size(d->messages) - 1);
    }
    if (n <= (size_t)d->n_forgotten + dialogue_has_system(d)) {
        d->n_forgotten = 0; /* what had been forgotten is all there is: it will be read again */
    }
    dialogue_trim(all, d);
}

cellar_status dialogue_rewind(dialogues *all, dialogue *d, uint32_t n_turns, cellar_error *error)
{
    const uint32_t turns = dialogue_turns(d);
    if (n_turns > turns) {
        return report(error, CELLAR_INVALID, turns,
                      "%" PRIu32 " turns cannot be taken back: there are %" PRIu32, n_turns, turns);
    }
    size_t i = json_array_size(d->messages);
    while (n_turns > 0) {
        n_turns -= has_role(json_array_get(d->messages, --i), "user");
    }
    keep_messages(all, d, i);
    return CELLAR_OK;
}

cellar_status dialogue_keep(dialogues *all, dialogue *d, uint32_t n_messages, cellar_error *error)
{
    if (n_messages > json_array_size(d->messages)) {
        return report(error, CELLAR_INVALID, n_messages,
                      "there is no message %" PRIu32 ": there are %zu", n_messages,
                      json_array_size(d->messages));
    }
    keep_messages(all, d, n_messages);
    return CELLAR_OK;
}

cellar_status dialogue_take_answer(dialogues *all, dialogue *d, cellar_error *error)
{
    if (!last_is(d, "assistant")) {
        return report(error, CELLAR_INVALID, -1, "there is no answer to make anew");
    }
    keep_messages(all, d, json_array_size(d->messages) - 1);
    return CELLAR_OK;
}
