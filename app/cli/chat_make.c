/*
 * chat_make.c: everything that `cellar chat` needs, made in order and given back in the other.
 *
 * Which template: the one that --chat-template names (a known format, or a file), else the one in the
 * model's file, else none: then the model goes on with what is said, word after word.
 *
 * Windows and recurrent states get room for several conversations and for checkpoints; models
 * without them do not notice.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/chat.h"
#include "cli/chat_signals.h"
#include "cli/prompt.h"
#include "report.h"
#include "template/chat_formats.h"

static cellar_status open_model(chat *c, cellar_error *error)
{
    cellar_status status = model_file_open(c->options->model, c->options->no_mmap, &c->opened,
                                           error);
    if (status == CELLAR_OK && c->opened.model->encoder != NULL) {
        return report(
            error, CELLAR_UNSUPPORTED, -1,
            "models of architecture %s do not chat: their encoder reads one text, and the "
            "answer stands alone; 'cellar run' asks them",
            c->opened.model->architecture->name);
    }
    return status == CELLAR_OK ? chat_encoder_create(c->opened.tokenizer, &c->encoder, error)
                               : status;
}

/* ---- the template --------------------------------------------------------------------------- */

static cellar_status compile(chat *c, const char *text, size_t n, cellar_error *error)
{
    cellar_error inner = {.status = CELLAR_OK};
    cellar_status status = chat_template_compile(text, n, NULL, &c->compiled, &inner);
    return status == CELLAR_OK ? CELLAR_OK
                               : report(error, status, inner.at,
                                        "the chat template: %s; --chat-template gives "
                                        "another",
                                        inner.message);
}

static cellar_status compile_named(chat *c, cellar_error *error)
{
    const char *name = c->options->format;
    const chat_format *known = chat_format_find(name);
    if (known != NULL) {
        return compile(c, known->template_text, strlen(known->template_text), error);
    }
    if (access(name, F_OK) != 0) {
        char names[160] = "";
        size_t n, used = 0;
        const chat_format *list = chat_format_list(&n);
        for (size_t i = 0; i < n && used < sizeof names - 1; i++) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                     list[i].name);
        }
        return report(error, CELLAR_NOT_FOUND, -1,
                      "option --chat-template: '%.40s' is neither a file nor one of %s", name,
                      names);
    }
    prompt text;
    cellar_status status = prompt_read(NULL, name, &text, error);
    if (status == CELLAR_OK) {
        status = compile(c, text.text, text.length, error);
        prompt_free(&text);
    }
    return status;
}

/* The written form of a token, for the template; NULL where the model has none. */
static char *written_form(const tokenizer *tok, cellar_token token)
{
    const size_t n = token >= 0 ? tokenizer_piece(tok, token, true, NULL, 0) : 0;
    char *text = n > 0 ? malloc(n + 1) : NULL;
    if (text != NULL) {
        tokenizer_piece(tok, token, true, text, n);
        text[n] = '\0';
    }
    return text;
}

static cellar_status find_template(chat *c, cellar_error *error)
{
    gguf_string text;
    cellar_status status;
    if (c->options->format != NULL) {
        status = compile_named(c, error);
    } else if (gguf_get_string(c->opened.file, "tokenizer.chat_template", &text, NULL) ==
               CELLAR_OK) {
        status = compile(c, text.data, text.length, error);
    } else {
        status = CELLAR_OK;
        if (c->options->model != NULL) {
            chat_note(c, "the model has no chat template: it goes on with your words; "
                         "--chat-template gives it one");
        }
    }
    c->bos = written_form(c->opened.tokenizer, tokenizer_bos(c->opened.tokenizer));
    c->eos = written_form(c->opened.tokenizer, tokenizer_eos(c->opened.tokenizer));
    return status == CELLAR_OK ? chat_renderer_make(c->encoder, c->compiled, c->bos, c->eos,
                                                    (int64_t)time(NULL), &c->all.renderer, error)
                               : status;
}

/* ---- engine and dialogues ------------------------------------------------------------------- */

static cellar_status make_engine(chat *c, cellar_error *error)
{
    const chat_options *o = c->options;
    engine_options options;
    cellar_status status = memory_options_apply(&o->memory, c->opened.model, &options, error);
    if (status != CELLAR_OK) {
        return status;
    }
    options.cpu_mask = o->cpu_mask;
    options.n_sequences = (uint32_t)o->n_conversations;
    options.checkpoint_bytes = (uint64_t)o->checkpoint_mib << 20;
    if (options.n_cells > c->opened.model->n_context) {
        chat_note(c,
                  "%" PRIu32 " cells, but the model was trained for texts of %" PRIu32
                  " tokens; beyond these it may write nonsense",
                  options.n_cells, c->opened.model->n_context);
    }
    return engine_create(c->opened.model, &options, &c->engine, error);
}

static void choose_options(chat *c)
{
    const chat_options *o = c->options;
    c->how = dialogue_options_defaults();
    c->how.sampling = sampling_options_apply(&o->sampling);
    c->seed = c->how.sampling.seed;
    c->how.n_limit = o->n_predict < 0 ? UINT64_MAX : (uint64_t)o->n_predict;
    c->how.stops_when_full = o->on_full == 1;
    c->how.ignore_end = o->ignore_end;
    c->how.ends_with_line = c->compiled == NULL;
    c->how.context = c;
}

static bool open_model_and_template(chat *c)
{
    cellar_error error;
    if (open_model(c, &error) != CELLAR_OK || find_template(c, &error) != CELLAR_OK) {
        chat_fail(c, model_file_name(c->options->model), &error);
        return false;
    }
    return true;
}

bool chat_make(const chat_options *options, chat *c)
{
    *c = (chat){.options = options,
                .progress = progress_line_init(),
                .is_terminal = isatty(STDOUT_FILENO) != 0};
    cellar_error error;
    if (!open_model_and_template(c)) {
        return false;
    }
    if (make_engine(c, &error) != CELLAR_OK) {
        chat_fail(c, NULL, &error);
        return false;
    }
    c->all.engine = c->engine;
    c->all.tokenizer = c->opened.tokenizer;
    c->all.encoder = c->encoder;
    choose_options(c);
    bool is_there = false;
    if (options->session != NULL && !chat_open_session(c, &is_there)) {
        return false;
    }
    if (!is_there &&
        dialogues_add(&c->all, "main", options->system, &c->current, &error) != CELLAR_OK) {
        chat_fail(c, NULL, &error);
        return false;
    }
    if (chat_line_open(chat_command_words, &c->line, &error) != CELLAR_OK) {
        chat_fail(c, NULL, &error);
        return false;
    }
    chat_signals_catch();
    return true;
}

void chat_free(chat *c)
{
    chat_line_close(c->line);
    if (c->engine != NULL) {
        dialogues_free(&c->all);
    }
    engine_destroy(c->engine);
    chat_template_destroy(c->compiled);
    chat_encoder_destroy(c->encoder);
    model_file_close(&c->opened);
    free(c->bos);
    free(c->eos);
}
