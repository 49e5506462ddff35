/*
 * chat_turn.c: an answer, and what is told about it.
 *
 * Text goes to standard output token by token. What the memory did goes to standard error when the
 * answer has ended, in one line: what was reused, what was read, what was written. Whatever ended an
 * answer early is said together with the way to go on.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/chat.h"
#include "cli/chat_signals.h"
#include "report.h"

#define PROGRESS_FROM 64 /* tokens to read that are worth a progress line */

const char *chat_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

void chat_fail(chat *c, const char *subject, const cellar_error *error)
{
    cellar_error name; /* report() leaves only what a terminal may see */
    report(&name, error->status, -1, "%s: ", subject != NULL ? subject : "");
    fprintf(stderr, "cellar chat: %s%s\n", subject != NULL ? name.message : "", error->message);
    c->has_failed = true;
}

void chat_note(const chat *c, const char *format, ...)
{
    if (c->options->is_quiet) {
        return;
    }
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fputc('(', stderr);
    terminal_write(stderr, text, strlen(text));
    fputs(")\n", stderr);
}

/* ---- while it is made ----------------------------------------------------------------------- */

static bool should_stop(void *context)
{
    (void)context;
    return chat_signals_interrupted();
}

static void show_progress(void *context, size_t n_read, size_t n)
{
    chat *c = context;
    if (n_read == n) {
        progress_line_erase(&c->progress);
    } else if (n - n_read >= PROGRESS_FROM || c->progress.is_visible) {
        progress_line_show(&c->progress, "reading: %zu of %zu tokens", n_read, n);
    }
}

static bool show_text(void *context, const char *bytes, size_t n)
{
    chat *c = context;
    if (c->is_terminal) {
        terminal_write(stdout, bytes, n);
    } else {
        fwrite(bytes, 1, n, stdout);
    }
    c->last = bytes[n - 1];
    return fflush(stdout) == 0 && !ferror(stdout);
}

static void tell_forgotten(void *context, uint32_t n_messages, uint32_t n_tokens)
{
    chat *c = context;
    progress_line_erase(&c->progress);
    if (c->last != '\0' && c->last != '\n' && c->is_terminal) {
        fflush(stdout);
        fputs("\n", stderr);
    }
    if (n_tokens > 0) {
        chat_note(c,
                  "the memory is full: the oldest %" PRIu32 " message%s, %" PRIu32
                  " tokens, are forgotten",
                  n_messages, chat_plural(n_messages), n_tokens);
    } else {
        chat_note(c,
                  "the memory is full: the oldest %" PRIu32
                  " message%s will be left out, and the rest read again",
                  n_messages, chat_plural(n_messages));
    }
}

/* ---- when it has ended ---------------------------------------------------------------------- */

static double rate(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static void tell_figures(const chat *c, const dialogue_result *r)
{
    cellar_statistics memory;
    if (c->options->is_quiet ||
        cellar_stats(engine_memory(c->engine), &memory, NULL) != CELLAR_OK) {
        return;
    }
    fprintf(stderr, "[%zu token%s reused, %zu read, %.1f/s", r->n_reused, chat_plural(r->n_reused),
            r->n_read, rate((double)r->n_read, r->read_seconds));
    fprintf(stderr, " | %" PRIu64 " written, %.1f/s", r->n_written,
            rate((double)r->n_written, r->write_seconds));
    fprintf(stderr, " | %" PRIu32 " of %" PRIu32 " cells used]\n", memory.n_used, memory.n_cells);
}

static void tell_end(const chat *c, const dialogue_result *r)
{
    const uint32_t held = dialogue_held(&c->all, c->current);
    if (r->ended == GENERATE_ENDED_STOPPED && r->n_written == 0 && !c->current->is_open) {
        chat_note(c,
                  "stopped: %" PRIu32 " of %zu tokens are read, and stay read. An empty line reads "
                  "on, more words are added to yours, /rewind takes them back",
                  held, r->n_prompt);
    } else if (r->ended == GENERATE_ENDED_STOPPED) {
        chat_note(c, "stopped. An empty line goes on, /regenerate makes another answer");
    } else if (r->ended == GENERATE_ENDED_LIMIT) {
        chat_note(c, "an empty line goes on: the answer has as many tokens as -n allows");
    } else if (r->ended == GENERATE_ENDED_FULL) {
        chat_note(c,
                  "stopped, all %" PRIu32 " cells are full: /rewind takes something back, /drop "
                  "forgets a conversation, -c gives more",
                  engine_cells(c->engine));
    }
}

void chat_answer(chat *c)
{
    dialogue_result result;
    cellar_error error;
    c->how.progress = show_progress;
    c->how.text = show_text;
    c->how.should_stop = should_stop;
    c->how.forgot = tell_forgotten;
    c->last = '\0';
    const cellar_status status = dialogue_answer(&c->all, c->current, &c->how, &result, &error);
    progress_line_erase(&c->progress);
    if (result.ended == GENERATE_ENDED_OUTPUT) {
        c->is_leaving = true; /* main() says what is wrong with the output */
        return;
    }
    if (c->last != '\0' && c->last != '\n') {
        fputc('\n', stdout);
        fflush(stdout);
    }
    if (status != CELLAR_OK) {
        chat_fail(c, NULL, &error);
    } else {
        tell_end(c, &result);
    }
    tell_figures(c, &result);
    chat_signals_forget();
}
