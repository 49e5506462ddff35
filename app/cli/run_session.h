/*
 * run_session.h: the session of `cellar run`: a conversation that outlives the program.
 *
 * In this order: open (look at the file, if it is there), prompt (decide what is added to the
 * text), load (rows into the memory, and what generate() shall do with it), and, when it is done,
 * save. In between, generate() says here what it writes and what it shifts.
 *
 * What a prompt means when the session holds a text already:
 *     the text begins with the prompt    nothing is added: it goes on at its end
 *     the prompt begins with the text    what follows is added
 *     else                               the prompt is added
 * or, with `replaces`, the prompt is the whole text: of what is held stays what both begin with.
 *
 * Nothing is written before save, so whatever fails before leaves the file as it was. Saving goes
 * through a journal: it costs what was added. Beside the text the file gets notes: what of it is
 * held, where the generator of random numbers stands (so that a resumed story is the one that would
 * have been told without a break), how the text begins and ends, and perhaps a title. Notes of
 * others are kept.
 */
#ifndef APP_RUN_SESSION_H
#define APP_RUN_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/conversation.h"
#include "cli/prompt.h"
#include "cli/session_mark.h"
#include "engine/engine.h"
#include "engine/fingerprint.h"
#include "engine/generate.h"
#include "engine/sampler.h"
#include "tokenizer/tokenizer.h"

#define RUN_SESSION_TITLE "title"
#define RUN_SESSION_BEGINNING "beginning"
#define RUN_SESSION_ENDING "ending"
#define RUN_SESSION_GENERATOR "generator"

typedef struct run_session_options {
    const char *path;
    const char *title; /* NULL: as it was */
    bool replaces;     /* the prompt is the whole text */
    bool show_special; /* control tokens count as text */
} run_session_options;

typedef struct run_session {
    run_session_options options;
    cellar_session *file; /* until it is loaded */
    cellar_journal *journal;
    engine *engine;
    const tokenizer *tokenizer;
    fingerprint fingerprint;
    bool is_resumed;   /* the file was there */
    session_mark mark; /* which one it was */

    conversation talk;
    size_t n_old;   /* tokens of the talk that were there before the prompt */
    size_t n_known; /* positions that the memory holds when generate() begins */
    /* what generate() gets: all positions, those that are held first */
    cellar_token *line; /* [n_line] */
    size_t n_line;
    const char *echo; /* [n_echo] of the prompt: what was added */
    size_t n_echo;

    bool has_generator; /* the file says where it stood */
    uint64_t seed, generator[4];
    cellar_note *notes; /* [n_notes] of the file that are kept, in memory of their own */
    uint32_t n_notes;
} run_session;

/*
 * Is the file there? A failure if a session could not be saved to it when all the work is done:
 * CELLAR_INVALID: not a plain file; CELLAR_IO.
 */
cellar_status run_session_place(const char *path, bool *is_there, cellar_error *error);

/*
 * Look at the file, or, if there is none, whether one can be made. CELLAR_INVALID: not a plain
 * file; CELLAR_IO: it could not be saved later; and what cellar_open_session and conversation_read
 * return. To be closed, whatever it returns.
 */
cellar_status run_session_open(const run_session_options *options, run_session *s,
                               cellar_error *error);

/* Take in the prompt, which must outlive the session. CELLAR_INVALID: there is nothing to read. */
cellar_status run_session_prompt(run_session *s, const tokenizer *tok, const prompt *p,
                                 cellar_error *error);

/*
 * The sampler is shown the old text, and goes on where the generator stood if `seed` (NULL: none was
 * asked for) does not say otherwise; before that, *seed_used becomes the session's if it has one.
 */
bool run_session_seed(const run_session *s, const uint64_t *seed, uint64_t *seed_used);
void run_session_show(const run_session *s, sampler *chooser, bool goes_on);

/*
 * Load what the file holds into the engine's empty memory, go back to where reading goes on, make
 * room if `g` shifts, and fill in what concerns the session in `g`. Its context stays the caller's;
 * `written` and `shifted` of it have to call those below. CELLAR_MISMATCH: another model.
 */
cellar_status run_session_load(run_session *s, engine *e, generate_options *g, cellar_error *error);

cellar_status run_session_written(run_session *s, cellar_token token, cellar_error *error);
cellar_status run_session_shifted(run_session *s, cellar_pos keep, cellar_pos discarded,
                                  cellar_error *error);

/*
 * Save what the memory holds now and where the sampler stands. If nothing was read (the prompt was
 * too long, say) the file stays as it is. As cellar_save_journal. CELLAR_MISMATCH: another
 * program has saved to the file since it was opened, or made it: it stays.
 */
cellar_status run_session_save(run_session *s, const generate_result *result,
                               const sampler *chooser, uint64_t seed, cellar_error *error);

void run_session_close(run_session *s);

#endif /* APP_RUN_SESSION_H */
