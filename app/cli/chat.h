/*
 * chat.h: the parts of `cellar chat`, and how its files meet.
 *
 *     command_chat.c   the command line, and the loop: a line, a command or an answer, a line
 *     chat_make.c      model, template, engine and dialogues from the options
 *     chat_turn.c      an answer: shown while it is written, and what is told about it
 *     chat_commands.c  what begins with a slash
 *     chat_files.c     /save, /load, /file and --session
 *     chat_map.c       /memory
 *     chat_line.c      lines from a terminal or a pipe; chat_signals.c: Ctrl-C
 *
 * Standard output gets what the model writes and what a command was asked for (/list, /memory, /help);
 * everything else goes to standard error. The conversations themselves are chat/dialogue.h.
 */
#ifndef APP_CHAT_H
#define APP_CHAT_H

#include "chat/dialogue.h"
#include "chat/dialogue_session.h"
#include "cli/chat_line.h"
#include "cli/memory_options.h"
#include "cli/model_file.h"
#include "cli/sampling_options.h"
#include "cli/session_mark.h"
#include "cli/terminal.h"

/* What the command line says. */
typedef struct chat_options {
    const char *model, *system, *format, *session, *cpu;
    memory_options memory;
    int64_t n_predict; /* -1: no limit */
    int64_t n_conversations, checkpoint_mib;
    sampling_options sampling;
    int on_full; /* 0: forget; 1: stop */
    uint32_t cpu_mask;
    bool no_mmap, ignore_end, is_quiet;
} chat_options;

typedef struct chat {
    const chat_options *options;
    model_file opened;
    engine *engine;
    chat_encoder *encoder;
    chat_template *compiled; /* NULL: the model goes on with the words */
    char *bos, *eos;
    dialogues all;
    dialogue *current;
    session_mark mark; /* of the file of --session, as it was loaded or saved last */
    dialogue_options how;
    uint64_t seed;
    chat_line *line;

    progress_line progress;
    char last;        /* byte of the answer that was shown */
    bool is_terminal; /* standard output is one */
    bool has_failed;  /* something could not be done */
    bool is_leaving;
} chat;

/* ---- chat_make.c ---------------------------------------------------------------------------- */

/* Make everything; false: reported. To be freed in any case. */
bool chat_make(const chat_options *options, chat *c);
void chat_free(chat *c);

/* ---- chat_turn.c ---------------------------------------------------------------------------- */

/* Let the model answer, or go on with its answer, and show it. */
void chat_answer(chat *c);

/* "cellar chat: ...": something that could not be done. */
void chat_fail(chat *c, const char *subject, const cellar_error *error);

/* A note on standard error, unless they are not wanted. */
void chat_note(const chat *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *chat_plural(uint64_t n); /* "s" unless it is one */

/* ---- chat_commands.c ------------------------------------------------------------------------ */

/* Words that a tab completes. */
extern const char *const chat_command_words[];

/* Do what a line that begins with a slash says. */
void chat_command(chat *c, const char *line);

/* ---- chat_files.c --------------------------------------------------------------------------- */

bool chat_save(chat *c, const char *path);       /* false: reported */
bool chat_load(chat *c, const char *path);       /* false: reported; everything is as it was */
bool chat_open_session(chat *c, bool *is_there); /* --session, before anything is read */
void chat_say_file(chat *c, const char *path);   /* the file's text is what is said */

/* ---- chat_map.c ----------------------------------------------------------------------------- */

void chat_map(chat *c);

extern const char chat_commands_help[];

#endif /* APP_CHAT_H */
