/*
 * support_tale.c: pieces of a story for support_tale.h.
 *
 * The order of calls is that of command_run.c. What a test cannot go on without ends the program with
 * a message.
 */
#define _POSIX_C_SOURCE 200809L

#include "support_tale.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* What the callbacks of a piece need. */
typedef struct telling {
    run_session *session; /* NULL: none */
    tale *tale;
    uint64_t stop_after;
} telling;

tale_piece tale_piece_default(const char *text)
{
    return (tale_piece){.file = "tale",
                        .prompt = text,
                        .is_seeded = true,
                        .n_limit = 20,
                        .seed = 7,
                        .stop_after = UINT64_MAX,
                        .temperature = 1,
                        .n_cells = 200,
                        .n_ubatch = 8,
                        .n_keep = 4,
                        .type = CELLAR_F16};
}

tale *tale_create(const fixture_shape *shape)
{
    tale *t = calloc(1, sizeof *t);
    MUST(t != NULL);
    t->made = fixture_create(shape);
    MUST(model_load(t->made.file, &t->model, &t->error) == CELLAR_OK);
    MUST(tokenizer_create(t->made.file, &t->tok, &t->error) == CELLAR_OK);
    const char *place = getenv("TMPDIR");
    snprintf(t->folder, sizeof t->folder, "%.40s/taleXXXXXX", place != NULL ? place : "/tmp");
    MUST(mkdtemp(t->folder) != NULL);
    return t;
}

void tale_destroy(tale *t)
{
    DIR *folder = opendir(t->folder);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            (void)remove(tale_path(t, entry->d_name));
        }
    }
    if (folder != NULL) closedir(folder);
    (void)rmdir(t->folder);
    tokenizer_destroy(t->tok);
    model_free(t->model);
    fixture_destroy(&t->made);
    free(t);
}

const char *tale_path(tale *t, const char *name)
{
    static char path[sizeof t->folder + 260];
    snprintf(path, sizeof path, "%s/%s", t->folder, name);
    return path;
}

unsigned char *tale_read(tale *t, const char *name, size_t *size)
{
    FILE *file = fopen(tale_path(t, name), "rb");
    MUST(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size + 1);
    MUST(bytes != NULL && fread(bytes, 1, *size, file) == *size);
    fclose(file);
    return bytes;
}

void tale_write(tale *t, const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(tale_path(t, name), "wb");
    MUST(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

/* ---- a piece -------------------------------------------------------------------------------- */

static void take(tale *t, cellar_token token)
{
    MUST(t->n_tokens < TALE_MOST_TOKENS);
    t->tokens[t->n_tokens++] = token;
}

static cellar_status on_written(void *context, cellar_token token, cellar_error *error)
{
    telling *its = context;
    take(its->tale, token);
    return its->session != NULL ? run_session_written(its->session, token, error) : CELLAR_OK;
}

static cellar_status on_shifted(void *context, cellar_pos keep, cellar_pos discarded,
                                cellar_error *error)
{
    telling *its = context;
    return its->session != NULL ? run_session_shifted(its->session, keep, discarded, error)
                                : CELLAR_OK;
}

static bool should_stop(void *context)
{
    telling *its = context;
    return its->stop_after != UINT64_MAX && (its->stop_after == 0 || its->stop_after-- == 0);
}

/* The last token that the memory holds, read once more for its logits. */
static void look_at_logits(tale *t, engine *e)
{
    cellar_memory *memory = engine_memory(e);
    cellar_sequence_info info;
    MUST(cellar_get_sequence(memory, 0, &info, NULL) == CELLAR_OK);
    if (info.pos_next == 0) return;
    const cellar_token any = 100;
    const uint32_t wanted = 0;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.tokens = &any;
    if (engine_decode(e, &batch, &wanted, 1, t->logits, NULL) != CELLAR_OK) {
        memset(t->logits, 0, sizeof t->logits); /* the cells are full */
    }
}

static sampler *make_sampler(tale *t, const tale_piece *piece, const run_session *s, uint64_t *seed)
{
    sampler_options how = sampler_defaults();
    how.temperature = piece->temperature;
    how.repeat_penalty = 1.1;
    how.top_k = 0; /* a random model's logits are peaked: let every token have its chance */
    how.top_p = 1;
    how.min_p = 0;
    how.seed = *seed = piece->seed;
    const bool goes_on = s != NULL &&
                         run_session_seed(s, piece->is_seeded ? &piece->seed : NULL, seed);
    sampler *chooser;
    MUST(sampler_create(&how, t->model->n_vocab, &chooser, &t->error) == CELLAR_OK);
    if (s != NULL) {
        run_session_show(s, chooser, goes_on);
    }
    return chooser;
}

static engine *make_engine(tale *t, const tale_piece *piece)
{
    engine_options options = engine_defaults();
    options.n_cells = piece->n_cells;
    options.n_ubatch = piece->n_ubatch;
    options.k_type = options.v_type = piece->type;
    engine *e;
    MUST(engine_create(t->model, &options, &e, &t->error) == CELLAR_OK);
    return e;
}

static cellar_status tell(tale *t, const tale_piece *piece, run_session *s, const prompt *p)
{
    telling its = {.session = s, .tale = t, .stop_after = piece->stop_after};
    generate_options g = generate_defaults();
    cellar_token *tokens = NULL;
    uint64_t seed = 0;
    if (s == NULL) {
        const tokenize_options how = {.add_special = true};
        MUST(tokenizer_encode(t->tok, p->text, p->length, how, &tokens, &g.n_prompt, &t->error) ==
             CELLAR_OK);
        g.prompt = tokens;
    }
    g.n_limit = piece->n_limit;
    g.n_keep = piece->n_keep;
    g.on_full = piece->on_full;
    g.ignore_end = true;
    g.context = &its;
    g.written = on_written;
    g.shifted = on_shifted;
    g.should_stop = should_stop;
    engine *e = make_engine(t, piece);
    sampler *chooser = make_sampler(t, piece, s, &seed);
    cellar_status status = s != NULL ? run_session_load(s, e, &g, &t->error) : CELLAR_OK;
    if (status == CELLAR_OK) {
        t->n_tokens = 0;
        for (uint32_t i = 0; s != NULL && i < s->talk.n_tokens; i++)
            take(t, s->talk.tokens[i]);
        for (size_t i = 0; s == NULL && i < g.n_prompt; i++)
            take(t, g.prompt[i]);
        status = generate(e, t->tok, chooser, &g, &t->result, &t->error);
        cellar_error saved_error = {.status = CELLAR_OK};
        const cellar_status saved =
            s != NULL ? run_session_save(s, &t->result, chooser, seed, &saved_error) : CELLAR_OK;
        if (status == CELLAR_OK && saved != CELLAR_OK) {
            status = saved;
            t->error = saved_error;
        }
        look_at_logits(t, e);
    }
    free(tokens);
    sampler_destroy(chooser);
    if (s != NULL) run_session_close(s);
    engine_destroy(e);
    return status;
}

cellar_status tale_tell(tale *t, const tale_piece *piece)
{
    prompt p = {.is_default = piece->prompt == NULL};
    const char *text = piece->prompt != NULL ? piece->prompt : PROMPT_DEFAULT;
    p.text = strdup(text);
    p.length = strlen(text);
    MUST(p.text != NULL);
    char path[sizeof t->folder + 260];
    snprintf(path, sizeof path, "%s", tale_path(t, piece->file != NULL ? piece->file : ""));
    const run_session_options options = {
        .path = path, .title = piece->title, .replaces = piece->replaces};
    run_session session;
    cellar_status status = CELLAR_OK;
    if (piece->file != NULL) {
        status = run_session_open(&options, &session, &t->error);
        if (status == CELLAR_OK) status = run_session_prompt(&session, t->tok, &p, &t->error);
        if (status != CELLAR_OK) run_session_close(&session);
    }
    if (status == CELLAR_OK) status = tell(t, piece, piece->file != NULL ? &session : NULL, &p);
    prompt_free(&p);
    return status;
}
