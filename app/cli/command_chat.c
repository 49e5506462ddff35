/*
 * command_chat.c: `cellar chat`: talk with a model.
 *
 * A line is said, or begins with a slash and is a command. Ctrl-C ends an answer or a line, Ctrl-D
 * the program. What is read and written stays in the memory whatever ends it, and in the session of
 * --session when the program ends, also by SIGTERM or SIGHUP.
 *
 * From a pipe each line is said in turn. Then a thing that could not be done makes the exit code 1.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>

#include "cli/chat.h"
#include "cli/chat_signals.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cpu_choice.h"
#include "report.h"

#define EXIT_CODE_SIGNAL 128 /* and the signal's number, as shells count */

static const char *const on_full_names[] = {"shift", "stop", NULL};

static chat_options default_options(void)
{
    return (chat_options){.memory = memory_options_defaults(),
                          .n_predict = -1,
                          .n_conversations = 4,
                          .checkpoint_mib = 64,
                          .sampling = sampling_options_defaults()};
}

static options_result parse(int argc, char **argv, chat_options *o, cellar_error *error)
{
    const option table[] = {
        option_text('m', "model", &o->model),
        option_flag(0, "no-mmap", &o->no_mmap),
        option_text(0, "system", &o->system),
        option_text(0, "chat-template", &o->format),
        option_text(0, "session", &o->session),
        option_integer('n', "predict", &o->n_predict, -1, INT64_MAX),
        option_integer(0, "n-predict", &o->n_predict, -1, INT64_MAX),
        option_flag(0, "ignore-eos", &o->ignore_end),
        MEMORY_OPTIONS(&o->memory),
        option_choice(0, "on-full", &o->on_full, on_full_names),
        option_integer(0, "conversations", &o->n_conversations, 1, 4096),
        option_integer(0, "checkpoints", &o->checkpoint_mib, 0, 1 << 20),
        SAMPLING_OPTIONS(&o->sampling),
        option_text(0, "cpu", &o->cpu),
        option_flag('q', "quiet", &o->is_quiet),
    };
    options_result result = options_parse(table, sizeof table / sizeof table[0], argc, argv, NULL,
                                          0, NULL, error);
    if (result != OPTIONS_OK) {
        return result;
    }
    return cpu_choice_take(o->cpu, &o->cpu_mask, error) == CELLAR_OK ? OPTIONS_OK : OPTIONS_WRONG;
}

static void say(chat *c, const char *text, size_t n)
{
    cellar_error error;
    if (dialogue_say(c->current, text, n, &error) != CELLAR_OK) {
        chat_fail(c, NULL, &error);
        return;
    }
    chat_answer(c);
}

static void take_line(chat *c, const char *text, size_t n)
{
    if (n == 0 && dialogue_is_waiting(c->current)) {
        chat_answer(c);
    } else if (n > 1 && text[0] == '/' && text[1] == '/') {
        say(c, text + 1, n - 1);
    } else if (n > 0 && text[0] == '/') {
        chat_command(c, text);
    } else if (n > 0) {
        say(c, text, n);
    }
}

/* A line that was given up; true: go on. */
static bool take_interrupt(chat *c, bool was_empty)
{
    fputc('\n', stderr);
    if (chat_signals_ending() != 0) {
        return false;
    }
    chat_signals_forget();
    if (was_empty) {
        chat_note(c, "to leave: Ctrl-D, or /quit");
    }
    return true;
}

static void talk(chat *c)
{
    while (!c->is_leaving && chat_signals_ending() == 0) {
        char prompt[DIALOGUE_LONGEST_NAME + 4];
        const char *text;
        size_t n;
        snprintf(prompt, sizeof prompt, "%s> ", c->current->name);
        const chat_line_result result = chat_line_read(c->line, prompt, &text, &n);
        if (result == CHAT_LINE_TEXT) {
            take_line(c, text, n);
        } else if (result != CHAT_LINE_INTERRUPTED || !take_interrupt(c, n == 0)) {
            if (result == CHAT_LINE_FAILED) {
                cellar_error error;
                report(&error, CELLAR_IO, -1, "the input cannot be read");
                chat_fail(c, NULL, &error);
            } else if (result == CHAT_LINE_END && chat_line_is_edited(c->line)) {
                fputc('\n', stderr);
            }
            break;
        }
    }
}

static int run(const chat_options *o, chat *c)
{
    if (!chat_make(o, c)) {
        return EXIT_CODE_FAILED;
    }
    const bool is_edited = chat_line_is_edited(c->line);
    if (is_edited) {
        chat_note(c, "%s. /help shows the commands, Ctrl-D leaves",
                  c->compiled != NULL ? "say something" : "begin a story, and it goes on");
    }
    talk(c);
    bool is_good = is_edited || !c->has_failed;
    if (o->session != NULL && c->all.n > 0) {
        is_good = chat_save(c, o->session) && is_good;
    }
    if (chat_signals_ending() != 0) {
        return EXIT_CODE_SIGNAL + chat_signals_ending();
    }
    return is_good ? EXIT_CODE_OK : EXIT_CODE_FAILED;
}

int command_chat(int argc, char **argv)
{
    chat_options options = default_options();
    cellar_error error = {.status = CELLAR_OK};
    options_result parsed = parse(argc, argv, &options, &error);
    if (parsed == OPTIONS_HELP) {
        fputs(command_chat_help, stdout);
        return EXIT_CODE_OK;
    }
    if (parsed == OPTIONS_WRONG) {
        fprintf(stderr, "cellar chat: %s\nSee 'cellar help chat'.\n", error.message);
        return EXIT_CODE_USAGE;
    }
    chat c;
    int code = run(&options, &c);
    chat_free(&c);
    return code;
}
