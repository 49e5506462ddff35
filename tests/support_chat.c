/*
 * support_chat.c: the room of support_chat.h.
 *
 * The state layer: behind all layers of the model, state' = state / 2 + x, and what goes on to the
 * output is x + state'. It is as simple as a recurrent layer can be, and forgets nothing that counts.
 */
#include "support_chat.h"

#include <stdlib.h>
#include <string.h>

#define WIDTH 32u /* of the model */
#define STATE_LAYER 2u

/* ---- a model with a state ------------------------------------------------------------------- */

/* The architecture of the model under the state; of the whole process, and never changed back. */
static const model_architecture *inner_architecture;

static void run_segment(const block_context *c, uint32_t segment, const cellar_states *states)
{
    const cellar_segment *where = &c->place.segments[segment];
    float state[WIDTH];
    const float *source = states->source == CELLAR_NO_STATE
                              ? NULL
                              : cellar_state_data(c->memory, states->source, STATE_LAYER, 0);
    for (uint32_t i = 0; i < WIDTH; i++) {
        state[i] = source != NULL ? source[i] : 0;
    }
    uint32_t target = 0;
    for (uint32_t t = 0; t < where->n_tokens; t++) {
        float *x = c->x + (size_t)(where->first + t) * WIDTH;
        for (uint32_t i = 0; i < WIDTH; i++) {
            state[i] = state[i] / 2 + x[i];
            x[i] += state[i];
        }
        if (target < states->n_targets && states->after[target] == t + 1) {
            memcpy(cellar_state_data(c->memory, states->targets[target], STATE_LAYER, 0), state,
                   sizeof state);
            target++;
        }
    }
}

/* The state comes behind the last layer. */
static cellar_status run_with_state(const model *m, uint32_t layer, const block_context *c,
                                    cellar_error *error)
{
    cellar_status status = inner_architecture->run_layer(m, layer, c, error);
    if (layer + 1 < m->n_layers) {
        return status;
    }
    for (uint32_t s = 0; status == CELLAR_OK && s < c->place.n_segments; s++) {
        cellar_states states;
        status = cellar_get_states(c->memory, c->ubatch, s, &states, error);
        if (status == CELLAR_OK) {
            run_segment(c, s, &states);
        }
    }
    return status == CELLAR_OK ? cellar_confirm(c->memory, c->ubatch, STATE_LAYER, error) : status;
}

static void add_state(model *m)
{
    static const uint32_t size = WIDTH;
    static model_architecture with_state = {.name = "llama", .run_layer = run_with_state};
    inner_architecture = m->architecture;
    m->architecture = &with_state;
    assert_int_equal(m->n_memory_layers, STATE_LAYER);
    cellar_layer layer = cellar_layer_init();
    layer.kind = CELLAR_LAYER_RECURRENT;
    layer.n_states = 1;
    layer.state_sizes = &size;
    m->memory_layers[m->n_memory_layers++] = layer;
}

/* ---- the room ------------------------------------------------------------------------------- */

static bool should_stop(void *context)
{
    chat_room *room = context;
    return room->stop_after != UINT64_MAX && (room->stop_after == 0 || room->stop_after-- == 0);
}

static bool show_text(void *context, const char *bytes, size_t n)
{
    chat_room *room = context;
    assert_true(n <= sizeof room->shown - room->n_shown);
    memcpy(room->shown + room->n_shown, bytes, n);
    room->n_shown += n;
    return true;
}

static void note_forgotten(void *context, uint32_t n_messages, uint32_t n_tokens)
{
    (void)n_messages;
    (void)n_tokens;
    ((chat_room *)context)->n_forgotten++;
}

static engine *make_engine(const model *m, uint32_t n_cells)
{
    engine_options options = engine_defaults();
    options.n_cells = n_cells;
    options.n_ubatch = 8;
    options.n_sequences = 6;
    options.checkpoint_bytes = 1 << 20;
    engine *e;
    assert_int_equal(engine_create(m, &options, &e, NULL), CELLAR_OK);
    return e;
}

static void must(chat_room *room, cellar_status status)
{
    if (status != CELLAR_OK) {
        fail_msg("%s: %s", cellar_status_text(status), room->error.message);
    }
}

static void read_model(chat_room *room, const gguf_file *file)
{
    must(room, model_load(file, &room->model, &room->error));
    must(room, tokenizer_create(file, &room->tok, &room->error));
    must(room, chat_encoder_create(room->tok, &room->encoder, &room->error));
}

/* The rest, once there is a model. */
static void furnish(chat_room *room, bool has_template, uint32_t n_cells)
{
    if (has_template && chat_template_compile(CHAT_ROOM_TEMPLATE, strlen(CHAT_ROOM_TEMPLATE), NULL,
                                              &room->compiled, &room->error) != CELLAR_OK) {
        fail_msg("%s", room->error.message);
    }
    assert_int_equal(chat_renderer_make(room->encoder, room->compiled, "<s>", "</s>", 1,
                                        &room->all.renderer, &room->error),
                     CELLAR_OK);
    room->all.engine = make_engine(room->model, n_cells);
    room->all.tokenizer = room->tok;
    room->all.encoder = room->encoder;
    room->how = dialogue_options_defaults();
    room->how.sampling.temperature = 0;
    room->how.ignore_end = true;
    room->how.context = room;
    room->how.should_stop = should_stop;
    room->how.text = show_text;
    room->how.forgot = note_forgotten;
}

void chat_room_open(chat_room *room, chat_room_kind kind, uint32_t n_cells)
{
    *room = (chat_room){.stop_after = UINT64_MAX};
    const fixture_shape shape = fixture_default();
    room->made = fixture_create(&shape);
    read_model(room, room->made.file);
    if (kind == CHAT_ROOM_WINDOW) {
        room->model->memory_layers[1].window = (cellar_window){.kind = CELLAR_WINDOW_STANDARD,
                                                               .size = 16};
    } else if (kind == CHAT_ROOM_STATES) {
        add_state(room->model);
    }
    furnish(room, kind != CHAT_ROOM_STORY, n_cells);
}

void chat_room_open_file(chat_room *room, const char *path, uint32_t n_cells)
{
    *room = (chat_room){.stop_after = UINT64_MAX};
    must(room, gguf_open(path, &room->file, &room->error));
    read_model(room, room->file);
    furnish(room, true, n_cells);
}

void chat_room_close(chat_room *room)
{
    dialogues_free(&room->all);
    engine_destroy(room->all.engine);
    chat_template_destroy(room->compiled);
    chat_encoder_destroy(room->encoder);
    tokenizer_destroy(room->tok);
    model_free(room->model);
    if (room->file != NULL) {
        gguf_close(room->file);
    } else {
        fixture_destroy(&room->made);
    }
}

dialogue *chat_room_add(chat_room *room, const char *name, const char *system)
{
    dialogue *d;
    must(room, dialogues_add(&room->all, name, system, &d, &room->error));
    return d;
}

dialogue *chat_room_fork(chat_room *room, const dialogue *from, const char *name)
{
    dialogue *d;
    must(room, dialogues_fork(&room->all, from, name, &d, &room->error));
    return d;
}

cellar_status chat_room_try(chat_room *room, dialogue *d, const char *text, uint64_t n)
{
    if (text != NULL) {
        must(room, dialogue_say(d, text, strlen(text), &room->error));
    }
    room->how.n_limit = n;
    room->n_shown = 0;
    return dialogue_answer(&room->all, d, &room->how, &room->result, &room->error);
}

void chat_room_say(chat_room *room, dialogue *d, const char *text, uint64_t n)
{
    must(room, chat_room_try(room, d, text, n));
}

void chat_room_answer(chat_room *room, dialogue *d, uint64_t n)
{
    must(room, chat_room_try(room, d, NULL, n));
}

uint64_t chat_room_rows(const chat_room *room)
{
    cellar_statistics memory;
    assert_int_equal(cellar_stats(engine_memory(room->all.engine), &memory, NULL), CELLAR_OK);
    return memory.rows_written;
}

/* ---- as if it were read in one go ----------------------------------------------------------- */

/* Read tokens [n] into a sequence; the logits of the last. */
static void read_all(engine *e, cellar_seq seq, const cellar_token *tokens, uint32_t n,
                     float *logits)
{
    const uint32_t last = n - 1;
    cellar_seq *seqs = malloc(n * sizeof *seqs);
    assert_non_null(seqs);
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = seq;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    cellar_error error;
    if (engine_decode(e, &batch, &last, 1, logits, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    free(seqs);
}

void chat_room_check_cold(chat_room *room, const dialogue *d)
{
    const size_t n_logits = room->model->n_vocab;
    float *warm = calloc(n_logits, sizeof *warm), *cold = calloc(n_logits, sizeof *cold);
    const uint32_t held = dialogue_held(&room->all, d);
    const cellar_seq scratch = 1 << 20;
    const cellar_token probe = 100;
    cellar_memory *memory = engine_memory(room->all.engine);
    assert_true(held <= d->text.n_tokens && warm != NULL && cold != NULL);
    if (held == 0) {
        free(warm);
        free(cold);
        return;
    }
    assert_int_equal(cellar_copy(memory, d->seq, scratch, 0, -1, NULL), CELLAR_OK);
    read_all(room->all.engine, scratch, &probe, 1, warm);
    assert_int_equal(cellar_remove(memory, scratch, 0, -1, NULL), CELLAR_OK);
    engine *e = make_engine(room->model, held + 64);
    read_all(e, 0, d->text.tokens, held, cold);
    read_all(e, 0, &probe, 1, cold);
    engine_destroy(e);
    assert_memory_equal(warm, cold, n_logits * sizeof *warm);
    free(warm);
    free(cold);
    assert_int_equal(cellar_check(memory, NULL), CELLAR_OK);
}
