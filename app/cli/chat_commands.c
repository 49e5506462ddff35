/*
 * chat_commands.c: what begins with a slash.
 *
 * A table of names, what each does with the rest of its line, and what /help says about it. A name
 * may be cut short as long as it is clear; one that is nearly right is asked back.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/chat.h"
#include "cli/options.h"
#include "report.h"

typedef struct chat_action {
    const char *name;
    const char *argument; /* as /help writes it */
    const char *summary;
    bool needs_argument;
    void (*run)(chat *c, const char *argument);
} chat_action;

static void refuse(chat *c, cellar_status status, const char *text)
{
    cellar_error error;
    report(&error, status, -1, "%s", text);
    chat_fail(c, NULL, &error);
}

static dialogue *find(chat *c, const char *name)
{
    dialogue *d = dialogues_find(&c->all, name);
    if (d == NULL) {
        cellar_error error;
        report(&error, CELLAR_NOT_FOUND, -1, "there is no conversation '%s': /list shows them",
               name);
        chat_fail(c, NULL, &error);
    }
    return d;
}

static void tell_current(const chat *c)
{
    const uint32_t turns = dialogue_turns(c->current), held = dialogue_held(&c->all, c->current);
    chat_note(c, "'%s': %" PRIu32 " turn%s, %" PRIu32 " token%s read", c->current->name, turns,
              chat_plural(turns), held, chat_plural(held));
}

/* ---- conversations -------------------------------------------------------------------------- */

static void do_fork(chat *c, const char *name)
{
    dialogue *made;
    cellar_error error;
    if (dialogues_fork(&c->all, c->current, name, &made, &error) != CELLAR_OK) {
        chat_fail(c, NULL, &error);
        return;
    }
    c->current = made;
    tell_current(c);
}

static void do_new(chat *c, const char *name)
{
    dialogue *made;
    cellar_error error;
    const json_t *first = json_array_get(c->current->messages, 0);
    const char *system = dialogue_has_system(c->current)
                             ? json_string_value(json_object_get(first, "content"))
                             : NULL;
    if (dialogues_add(&c->all, name, system, &made, &error) != CELLAR_OK) {
        chat_fail(c, NULL, &error);
        return;
    }
    c->current = made;
    tell_current(c);
}

static void do_switch(chat *c, const char *name)
{
    dialogue *d = find(c, name);
    if (d != NULL) {
        c->current = d;
        tell_current(c);
    }
}

static void do_drop(chat *c, const char *name)
{
    dialogue *d = find(c, name);
    if (d == c->current) {
        refuse(c, CELLAR_INVALID, "this is the conversation itself: /switch to another first");
    } else if (d != NULL) {
        dialogues_drop(&c->all, d);
    }
}

static void do_list(chat *c, const char *argument)
{
    (void)argument;
    for (uint32_t i = 0; i < c->all.n; i++) {
        const dialogue *d = c->all.list[i];
        const uint32_t turns = dialogue_turns(d), held = dialogue_held(&c->all, d);
        printf("%c %s: %" PRIu32 " turn%s, %" PRIu32 " token%s read\n", d == c->current ? '*' : ' ',
               d->name, turns, chat_plural(turns), held, chat_plural(held));
    }
}

/* ---- turns ---------------------------------------------------------------------------------- */

static bool read_number(const char *text, uint32_t *number)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    *number = (uint32_t)value;
    return end != text && *end == '\0' && errno == 0 && value >= 0 && value <= INT32_MAX;
}

static void do_rewind(chat *c, const char *argument)
{
    uint32_t n = 1;
    const bool is_message = *argument == '#';
    cellar_error error;
    if (*argument != '\0' && !read_number(argument + is_message, &n)) {
        refuse(c, CELLAR_INVALID,
               "/rewind takes a number of turns, or # and the number of the last message to keep");
        return;
    }
    const cellar_status status = is_message ? dialogue_keep(&c->all, c->current, n, &error)
                                            : dialogue_rewind(&c->all, c->current, n, &error);
    if (status != CELLAR_OK) {
        chat_fail(c, NULL, &error);
        return;
    }
    tell_current(c);
}

static void do_regenerate(chat *c, const char *argument)
{
    (void)argument;
    cellar_error error;
    if (!dialogue_is_waiting(c->current) || c->current->is_open) {
        if (dialogue_take_answer(&c->all, c->current, &error) != CELLAR_OK) {
            chat_fail(c, NULL, &error);
            return;
        }
    }
    chat_answer(c);
}

static void do_history(chat *c, const char *argument)
{
    (void)argument;
    const size_t n_system = dialogue_has_system(c->current);
    for (size_t i = 0; i < json_array_size(c->current->messages); i++) {
        const json_t *message = json_array_get(c->current->messages, i);
        const json_t *content = json_object_get(message, "content");
        const char *role = json_string_value(json_object_get(message, "role"));
        const bool is_forgotten = i >= n_system && i < n_system + c->current->n_forgotten;
        printf("#%zu %s%s: ", i + 1, role, is_forgotten ? " (forgotten)" : "");
        if (c->is_terminal) {
            terminal_write(stdout, json_string_value(content), json_string_length(content));
        } else {
            fwrite(json_string_value(content), 1, json_string_length(content), stdout);
        }
        fputc('\n', stdout);
    }
}

static void do_system(chat *c, const char *text)
{
    cellar_error error;
    if (dialogue_set_system(&c->all, c->current, text, strlen(text), &error) != CELLAR_OK) {
        chat_fail(c, NULL, &error);
        return;
    }
    tell_current(c);
}

/* ---- files, memory, leaving ----------------------------------------------------------------- */

static void do_file(chat *c, const char *path)
{
    chat_say_file(c, path);
}

static void do_save(chat *c, const char *path)
{
    if (chat_save(c, path)) {
        chat_note(c, "saved: %" PRIu32 " conversation%s", c->all.n, chat_plural(c->all.n));
    }
}

static void do_load(chat *c, const char *path)
{
    (void)!chat_load(c, path);
}

static void do_memory(chat *c, const char *argument)
{
    (void)argument;
    chat_map(c);
}

static void do_help(chat *c, const char *argument);

static void do_quit(chat *c, const char *argument)
{
    (void)argument;
    c->is_leaving = true;
}

static const chat_action actions[] = {
    {"drop", "NAME", "forget a conversation", true, do_drop},
    {"file", "FILE", "say what is in a file", true, do_file},
    {"fork", "NAME", "a new conversation that shares everything so far", true, do_fork},
    {"help", "", "this", false, do_help},
    {"history", "", "what was said, with numbers", false, do_history},
    {"list", "", "the conversations", false, do_list},
    {"load", "FILE", "conversations from a session, in place of these", true, do_load},
    {"memory", "", "draw the cells of the memory", false, do_memory},
    {"new", "NAME", "a new conversation with the same system message", true, do_new},
    {"quit", "", "leave; Ctrl-D does it too", false, do_quit},
    {"regenerate", "", "another answer", false, do_regenerate},
    {"rewind", "[N|#N]", "take back N turns, or all behind message N; default: 1", false,
     do_rewind},
    {"save", "FILE", "all conversations to a session", true, do_save},
    {"switch", "NAME", "go on with another conversation", true, do_switch},
    {"system", "[TEXT]", "set the system message, or take it away", false, do_system},
};

#define N_ACTIONS (sizeof actions / sizeof actions[0])

const char *const chat_command_words[] = {
    "/drop ", "/file ", "/fork ",      "/help",   "/history", "/list",    "/load ",   "/memory",
    "/new ",  "/quit",  "/regenerate", "/rewind", "/save ",   "/switch ", "/system ", NULL};

static void do_help(chat *c, const char *argument)
{
    (void)c;
    (void)argument;
    for (size_t i = 0; i < N_ACTIONS; i++) {
        char usage[32];
        snprintf(usage, sizeof usage, "/%s %s", actions[i].name, actions[i].argument);
        printf("  %-18s %s\n", usage, actions[i].summary);
    }
    puts("An empty line goes on with what was stopped. A line that ends in \\ goes on in\n"
         "the next. // at the beginning says a slash. Ctrl-C stops, and keeps what was read.");
}

/* ---- finding -------------------------------------------------------------------------------- */

/* The one of that name, or the only one that begins so; *nearest: what may have been meant. */
static const chat_action *find_action(const char *name, const chat_action **nearest)
{
    const size_t n = strlen(name);
    const chat_action *found = NULL;
    size_t n_found = 0, best = n < 4 ? 2 : 3; /* so many wrong letters are too many */
    *nearest = NULL;
    for (size_t i = 0; i < N_ACTIONS; i++) {
        if (strcmp(actions[i].name, name) == 0) {
            return &actions[i];
        }
        if (n > 0 && strncmp(actions[i].name, name, n) == 0) {
            found = &actions[i];
            n_found++;
        }
        const size_t d = options_distance(name, actions[i].name);
        if (d < best) {
            best = d;
            *nearest = &actions[i];
        }
    }
    *nearest = n_found > 1 ? found : *nearest;
    return n_found == 1 ? found : NULL;
}

void chat_command(chat *c, const char *line)
{
    char name[32];
    const size_t n = strcspn(line + 1, " \t");
    snprintf(name, sizeof name, "%.*s", (int)(n < 31 ? n : 31), line + 1);
    const char *argument = line + 1 + n + strspn(line + 1 + n, " \t");
    char *trimmed = strdup(argument);
    if (trimmed == NULL) {
        refuse(c, CELLAR_NO_MEMORY, "no memory for a command");
        return;
    }
    for (size_t end = strlen(trimmed); end > 0 && strchr(" \t\r", trimmed[end - 1]) != NULL;
         end--) {
        trimmed[end - 1] = '\0';
    }
    const chat_action *nearest, *action = find_action(name, &nearest);
    cellar_error error;
    if (action == NULL && nearest != NULL) {
        report(&error, CELLAR_NOT_FOUND, -1, "there is no /%s; did you mean /%s?", name,
               nearest->name);
        chat_fail(c, NULL, &error);
    } else if (action == NULL) {
        report(&error, CELLAR_NOT_FOUND, -1, "there is no /%s: /help shows what there is", name);
        chat_fail(c, NULL, &error);
    } else if (action->needs_argument && *trimmed == '\0') {
        report(&error, CELLAR_INVALID, -1, "/%s needs a %s", action->name,
               strcmp(action->argument, "NAME") == 0 ? "name" : "file");
        chat_fail(c, NULL, &error);
    } else {
        action->run(c, trimmed);
        fflush(stdout);
    }
    free(trimmed);
}
