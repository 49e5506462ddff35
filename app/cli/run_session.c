/*
 * run_session.c: a session opened, added to, and loaded. Saving is in run_session_save.c.
 *
 * The text is compared with a prompt as bytes, not as tokens: what a model wrote token by token may
 * be cut into other tokens when it is read as text again, and is still the same text. Only with
 * `replaces` tokens are compared, because there every token of the prompt has to stand where the
 * prompt alone would put it. Behind a shift nothing is reused for that: what stands there was read
 * together with what has been forgotten.
 *
 * To choose the next token its logits are needed, so at least one token is always read: if nothing
 * is added and nothing is waiting, the last one once more.
 */
#define _POSIX_C_SOURCE 200809L

#include "cli/run_session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report.h"

#define GENERATOR_TEXT 128u /* bytes of the note that is read */
#define USUAL_ANSWER 256u   /* tokens that advice leaves room for */

/* ---- the file ------------------------------------------------------------------------------- */

/* Can files be made in the folder of `path`? */
static cellar_status check_folder(const char *path, cellar_error *error)
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    char *folder = n == 0 ? strdup(".") : strndup(path, n);
    if (folder == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the name of a folder");
    }
    const bool is_good = access(folder, W_OK | X_OK) == 0;
    const int reason = errno;
    free(folder);
    return is_good ? CELLAR_OK
                   : report(error, CELLAR_IO, -1,
                            "the session could not be saved: its folder cannot be written to: %s",
                            strerror(reason));
}

cellar_status run_session_place(const char *path, bool *is_there, cellar_error *error)
{
    struct stat file;
    *is_there = lstat(path, &file) == 0;
    if (!*is_there && errno != ENOENT) {
        return report(error, CELLAR_IO, -1, "cannot look at it: %s", strerror(errno));
    }
    if (*is_there && !S_ISREG(file.st_mode)) {
        return report(error, CELLAR_INVALID, -1,
                      "a session has to be a plain file, and this is %s: name another",
                      S_ISDIR(file.st_mode)   ? "a folder"
                      : S_ISLNK(file.st_mode) ? "a link"
                                              : "none");
    }
    if (*is_there && access(path, R_OK | W_OK) != 0) {
        return report(error, CELLAR_IO, -1, "cannot be read and written: %s", strerror(errno));
    }
    return check_folder(path, error);
}

/* Is it one of those that are written anew each time? */
static bool is_own_note(const run_session *s, const char *name)
{
    static const char *const own[] = {CONVERSATION_NOTE, RUN_SESSION_BEGINNING, RUN_SESSION_ENDING,
                                      RUN_SESSION_GENERATOR};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strcmp(name, own[i]) == 0) {
            return true;
        }
    }
    return s->options.title != NULL && strcmp(name, RUN_SESSION_TITLE) == 0;
}

static void *copy_bytes(const void *bytes, size_t n)
{
    char *copy = malloc(n + 1); /* the end of a text, and never nothing */
    if (copy != NULL) {
        if (n > 0) {
            memcpy(copy, bytes, n);
        }
        copy[n] = '\0';
    }
    return copy;
}

/* Copy the notes that are not ours: the file may be another one when they are written again. */
static cellar_status keep_notes(run_session *s, cellar_error *error)
{
    cellar_session_info info;
    cellar_status status = cellar_describe_session(s->file, &info, error);
    if (status != CELLAR_OK) {
        return status;
    }
    s->notes = calloc((size_t)info.n_notes + 1, sizeof *s->notes);
    for (uint32_t i = 0; s->notes != NULL && i < info.n_notes; i++) {
        cellar_note note;
        status = cellar_get_session_note(s->file, i, &note, error);
        if (status != CELLAR_OK) {
            return status;
        }
        if (is_own_note(s, note.name)) {
            continue;
        }
        cellar_note *copy = &s->notes[s->n_notes++];
        copy->size = note.size;
        copy->name = copy_bytes(note.name, strlen(note.name));
        copy->value = copy_bytes(note.value, note.size);
        if (copy->name == NULL || copy->value == NULL) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for the notes of the session");
        }
    }
    return s->notes != NULL
               ? CELLAR_OK
               : report(error, CELLAR_NO_MEMORY, -1, "no memory for the notes of the session");
}

/* A note that cannot be read is none: the next token is then drawn as in a new session. */
static void read_generator(run_session *s)
{
    cellar_note note;
    char text[GENERATOR_TEXT];
    if (!conversation_find_note(s->file, RUN_SESSION_GENERATOR, &note) || note.size == 0 ||
        note.size >= sizeof text) {
        return;
    }
    memcpy(text, note.value, note.size);
    text[note.size] = '\0';
    uint64_t *w = s->generator;
    s->has_generator = sscanf(text,
                              "seed %" SCNu64 " words %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64,
                              &s->seed, &w[0], &w[1], &w[2], &w[3]) == 5;
}

cellar_status run_session_open(const run_session_options *options, run_session *s,
                               cellar_error *error)
{
    *s = (run_session){.options = *options};
    cellar_status status = run_session_place(options->path, &s->is_resumed, error);
    if (status != CELLAR_OK || !s->is_resumed) {
        return status;
    }
    if ((status = cellar_open_session(options->path, NULL, &s->file, error)) != CELLAR_OK ||
        (status = conversation_read(s->file, &s->talk, error)) != CELLAR_OK ||
        (status = keep_notes(s, error)) != CELLAR_OK) {
        return status;
    }
    s->n_known = s->talk.n_held;
    s->n_old = s->talk.n_tokens;
    read_generator(s);
    return CELLAR_OK;
}

void run_session_close(run_session *s)
{
    for (uint32_t i = 0; i < s->n_notes; i++) {
        free((void *)(uintptr_t)s->notes[i].name);
        free((void *)(uintptr_t)s->notes[i].value);
    }
    free(s->notes);
    free(s->line);
    conversation_free(&s->talk);
    cellar_close_journal(s->journal);
    cellar_close_session(s->file);
    *s = (run_session){.is_resumed = false};
}

/* ---- the prompt ----------------------------------------------------------------------------- */

static cellar_status check_tokens(const run_session *s, cellar_error *error)
{
    for (uint32_t i = 0; i < s->talk.n_tokens; i++) {
        const cellar_token token = s->talk.tokens[i];
        if (token < 0 || (uint32_t)token >= tokenizer_size(s->tokenizer)) {
            return report(error, CELLAR_CORRUPT, i,
                          "token %" PRIu32 ": expected an id below %" PRIu32 ", found %" PRId32, i,
                          tokenizer_size(s->tokenizer), token);
        }
    }
    return CELLAR_OK;
}

/* Add bytes of a prompt to the talk: as its beginning, or behind what is there. */
static cellar_status add_text(run_session *s, const char *text, size_t n, cellar_error *error)
{
    const conversation *talk = &s->talk;
    const bool is_beginning = talk->n_tokens == 0;
    const cellar_token last = is_beginning ? -1 : talk->tokens[talk->n_tokens - 1];
    const tokenize_options how = {
        .add_special = is_beginning,
        .parse_special = s->options.show_special,
        .continues_text = !is_beginning && tokenizer_piece(s->tokenizer, last, false, NULL, 0) > 0,
        .drops_space = tokenizer_swallows_after(s->tokenizer, last)};
    cellar_token *tokens;
    size_t n_tokens;
    cellar_status status = tokenizer_encode(s->tokenizer, text, n, how, &tokens, &n_tokens, error);
    if (status == CELLAR_OK && n_tokens > 0) {
        status = conversation_add(&s->talk, tokens, n_tokens, error);
    }
    free(tokens);
    s->echo = text;
    s->n_echo = n;
    return status;
}

/* The whole text so far, without the token that begins every text. */
static cellar_status decode_talk(const run_session *s, char **text, size_t *n, cellar_error *error)
{
    const conversation *talk = &s->talk;
    const uint32_t skipped = tokenizer_adds_bos(s->tokenizer) && talk->n_tokens > 0 &&
                             talk->tokens[0] == tokenizer_bos(s->tokenizer);
    return tokenizer_decode(s->tokenizer, talk->tokens + skipped, talk->n_tokens - skipped,
                            s->options.show_special, text, n, error);
}

static bool begins_with(const char *text, size_t n, const char *with, size_t n_with)
{
    return n >= n_with && (n_with == 0 || memcmp(text, with, n_with) == 0);
}

static cellar_status continue_with(run_session *s, const prompt *p, cellar_error *error)
{
    if (p->is_default || p->length == 0) {
        return CELLAR_OK;
    }
    char *text;
    size_t n;
    cellar_status status = decode_talk(s, &text, &n, error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (begins_with(p->text, p->length, text, n)) {
        status = p->length > n ? add_text(s, p->text + n, p->length - n, error) : CELLAR_OK;
    } else if (!begins_with(text, n, p->text, p->length)) {
        status = add_text(s, p->text, p->length, error);
    }
    free(text);
    return status;
}

/* The prompt becomes the text; *s->n_known how much of it is held already. */
static cellar_status replace_with(run_session *s, const prompt *p, cellar_error *error)
{
    conversation old = s->talk;
    s->talk = (conversation){.n_tokens = 0};
    s->n_old = 0;
    cellar_status status = add_text(s, p->text, p->length, error);
    const bool has_beginning = old.n_parts > 0 && old.parts[0].first == 0;
    const uint32_t most = has_beginning ? old.parts[0].n : 0;
    uint32_t same = 0;
    while (same < most && same < s->talk.n_tokens && old.tokens[same] == s->talk.tokens[same]) {
        same++;
    }
    conversation_free(&old);
    return status == CELLAR_OK ? conversation_hold(&s->talk, same, error) : status;
}

cellar_status run_session_prompt(run_session *s, const tokenizer *tok, const prompt *p,
                                 cellar_error *error)
{
    s->tokenizer = tok;
    cellar_status status = check_tokens(s, error);
    if (status == CELLAR_OK) {
        status = !s->is_resumed        ? add_text(s, p->text, p->length, error)
                 : s->options.replaces ? replace_with(s, p, error)
                                       : continue_with(s, p, error);
    }
    if (status == CELLAR_OK && s->talk.n_tokens == 0) {
        status = report(error, CELLAR_INVALID, -1,
                        "the prompt is empty, and this model has no token to start a text with");
    }
    return status;
}

/* ---- random numbers ------------------------------------------------------------------------- */

bool run_session_seed(const run_session *s, const uint64_t *seed, uint64_t *seed_used)
{
    const bool goes_on = s->has_generator && s->n_old > 0 && (seed == NULL || *seed == s->seed);
    if (goes_on) {
        *seed_used = s->seed;
    }
    return goes_on;
}

void run_session_show(const run_session *s, sampler *chooser, bool goes_on)
{
    for (size_t i = 0; i < s->n_old; i++) {
        sampler_accept(chooser, s->talk.tokens[i]);
    }
    if (goes_on) {
        (void)sampler_resume(chooser, s->generator);
    }
}

/* ---- loading -------------------------------------------------------------------------------- */

static cellar_status load_rows(run_session *s, cellar_error *error)
{
    const size_t n_cells = engine_cells(s->engine);
    if (s->n_known > n_cells) {
        return report(error, CELLAR_FULL, -1,
                      "holds %zu tokens and the memory has %zu cells: give it more (-c %zu)",
                      s->n_known, n_cells, s->n_known + USUAL_ANSWER);
    }
    cellar_session_sequence sequence;
    cellar_status status = cellar_get_session_sequence(s->file, 0, &sequence, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const cellar_seq as = 0;
    cellar_load_options options = cellar_load_options_init();
    options.facts = s->fingerprint.facts;
    options.n_facts = FINGERPRINT_FACTS;
    options.sequences = &sequence.seq;
    options.as = &as;
    options.n_sequences = 1;
    status = cellar_load_journal(s->journal, &options, error);
    cellar_sequence_info info;
    if (status == CELLAR_OK) {
        status = cellar_get_sequence(engine_memory(s->engine), 0, &info, error);
    }
    if (status == CELLAR_OK && (size_t)info.pos_next != s->n_known) {
        status = report(error, CELLAR_CORRUPT, -1,
                        "changed while it was opened: it held %zu positions, now %" PRId32,
                        s->n_known, info.pos_next);
    }
    cellar_close_session(s->file);
    s->file = NULL;
    return status;
}

/* Cut the memory where the line goes on; at least its last token is to be read. */
static cellar_status go_back(run_session *s, cellar_error *error)
{
    const size_t held = s->talk.n_held;
    const size_t target = held < s->n_line ? held : s->n_line - 1;
    if (target >= s->n_known) {
        return CELLAR_OK;
    }
    cellar_pos from = 0;
    cellar_status status = cellar_rewind(engine_memory(s->engine), 0, (cellar_pos)target, &from,
                                         error);
    s->n_known = (size_t)from;
    return status;
}

static cellar_status make_line(run_session *s, cellar_error *error)
{
    s->n_line = conversation_length(&s->talk);
    s->line = malloc(s->n_line * sizeof *s->line);
    if (s->line == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a text of %zu tokens", s->n_line);
    }
    for (uint32_t i = 0; i < s->n_line; i++) {
        s->line[i] = conversation_at(&s->talk, i);
    }
    return CELLAR_OK;
}

/* Shift as often as the rest of the line needs to be read, as generate() would while it writes. */
static cellar_status shift_for_line(run_session *s, uint32_t n_keep, cellar_error *error)
{
    const cellar_pos keep = generate_kept(s->engine, n_keep);
    while (s->n_line > engine_cells(s->engine) && s->n_known > (size_t)keep + 1) {
        cellar_pos discarded = 0;
        cellar_status status = cellar_shift_context(engine_memory(s->engine), 0, keep, 0,
                                                    &discarded, error);
        if (status != CELLAR_OK) {
            return status;
        }
        status = conversation_forget(&s->talk, (uint32_t)keep, (uint32_t)discarded, error);
        if (status != CELLAR_OK) {
            return status;
        }
        const size_t behind = (size_t)keep + (size_t)discarded;
        memmove(s->line + keep, s->line + behind, (s->n_line - behind) * sizeof *s->line);
        s->n_line -= (size_t)discarded;
        s->n_known -= (size_t)discarded;
    }
    return CELLAR_OK;
}

cellar_status run_session_load(run_session *s, engine *e, generate_options *g, cellar_error *error)
{
    s->engine = e;
    fingerprint_make(engine_model(e), &s->fingerprint);
    cellar_status status;
    if ((status = cellar_open_journal(engine_memory(e), s->options.path, &s->journal, error)) !=
            CELLAR_OK ||
        (s->is_resumed && (status = load_rows(s, error)) != CELLAR_OK) ||
        (status = make_line(s, error)) != CELLAR_OK || (status = go_back(s, error)) != CELLAR_OK) {
        return status;
    }
    if (g->on_full == GENERATE_SHIFT) {
        status = shift_for_line(s, g->n_keep, error);
    }
    g->prompt = s->line;
    g->n_prompt = s->n_line;
    g->n_known = s->n_known;
    g->n_seen = s->n_old > 0 ? s->n_line - (s->talk.n_tokens - s->n_old) : 0;
    g->is_text_start = g->is_text_start && !s->is_resumed;
    if (g->echo != NULL) {
        g->echo = s->echo;
        g->n_echo = s->n_echo;
    }
    return status;
}

/* ---- while it writes ------------------------------------------------------------------------ */

cellar_status run_session_written(run_session *s, cellar_token token, cellar_error *error)
{
    return conversation_add(&s->talk, &token, 1, error);
}

cellar_status run_session_shifted(run_session *s, cellar_pos keep, cellar_pos discarded,
                                  cellar_error *error)
{
    cellar_sequence_info info;
    cellar_status status = cellar_get_sequence(engine_memory(s->engine), 0, &info, error);
    if (status == CELLAR_OK) {
        status = conversation_hold(&s->talk, (uint32_t)(info.pos_next + discarded), error);
    }
    return status == CELLAR_OK
               ? conversation_forget(&s->talk, (uint32_t)keep, (uint32_t)discarded, error)
               : status;
}
