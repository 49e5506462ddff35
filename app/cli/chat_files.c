/*
 * chat_files.c: conversations saved to files and loaded from them, and files that are said.
 *
 * A file that is there and is no session is never written over: a slip of the finger must not cost a
 * model.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/chat.h"
#include "cli/prompt.h"
#include "cli/run_session.h"
#include "cli/session_command.h"
#include "report.h"

bool chat_save(chat *c, const char *path)
{
    cellar_error error;
    dialogue_state state = {.current = c->current->name, .seed = c->seed};
    memcpy(state.generator, c->how.generator, sizeof state.generator);
    cellar_status status = CELLAR_OK;
    if (access(path, F_OK) == 0 && !session_is_one(path)) {
        status = report(&error, CELLAR_INVALID, -1,
                        "is there and is no session: it is not written over");
    }
    const char *session = c->options->session;
    const bool is_own = session != NULL && strcmp(path, session) == 0;
    if (status == CELLAR_OK && is_own) {
        status = session_mark_check(&c->mark, path, &error);
    }
    if (status == CELLAR_OK) {
        status = dialogue_session_save(&c->all, &state, path, &error);
    }
    if (status == CELLAR_OK && is_own) {
        c->mark = session_mark_take(path);
    }
    if (status != CELLAR_OK) {
        chat_fail(c, path, &error);
    }
    return status == CELLAR_OK;
}

/* Whether random numbers go on where they stood, unless a seed was asked for. */
static void take_state(chat *c, const dialogue_state *state)
{
    c->current = dialogues_find(&c->all, state->current);
    if (c->options->sampling.seed < 0) {
        c->seed = state->seed;
        c->how.sampling.seed = state->seed;
        memcpy(c->how.generator, state->generator, sizeof c->how.generator);
    }
}

bool chat_load(chat *c, const char *path)
{
    cellar_error error;
    dialogue_state state = {.current = NULL};
    const session_mark mark = session_mark_take(path);
    const cellar_status status = dialogue_session_load(&c->all, &state, path, &error);
    if (status == CELLAR_FULL && c->all.n > 0) {
        chat_fail(c, path, &error);
        chat_note(c, "what is there and what is loaded need room side by side: /drop something, "
                     "give more cells (-c), or begin with --session");
        return false;
    }
    if (status != CELLAR_OK) {
        chat_fail(c, path, &error);
        return false;
    }
    take_state(c, &state);
    if (c->options->session != NULL && strcmp(path, c->options->session) == 0) {
        c->mark = mark;
    }
    chat_note(c, "%" PRIu32 " conversation%s, %" PRIu32 " tokens of '%s' need not be read again",
              c->all.n, chat_plural(c->all.n), dialogue_held(&c->all, c->current),
              c->current->name);
    return true;
}

bool chat_open_session(chat *c, bool *is_there)
{
    cellar_error error;
    const char *path = c->options->session;
    c->mark = session_mark_take(path);
    if (run_session_place(path, is_there, &error) != CELLAR_OK) {
        chat_fail(c, path, &error);
        return false;
    }
    if (*is_there && !chat_load(c, path)) {
        return false;
    }
    if (*is_there && c->options->system != NULL) {
        const char *system = c->options->system;
        if (dialogue_set_system(&c->all, c->current, system, strlen(system), &error) != CELLAR_OK) {
            chat_fail(c, NULL, &error);
            return false;
        }
    }
    return true;
}

void chat_say_file(chat *c, const char *path)
{
    cellar_error error;
    prompt text;
    cellar_status status = prompt_read(NULL, path, &text, &error);
    if (status == CELLAR_OK) {
        status = dialogue_say(c->current, text.text, text.length, &error);
        prompt_free(&text);
    }
    if (status != CELLAR_OK) {
        chat_fail(c, NULL, &error);
        return;
    }
    chat_answer(c);
}
