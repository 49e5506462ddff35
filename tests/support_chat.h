/*
 * support_chat.h: conversations with a tiny model, for tests.
 *
 *     chat_room room = chat_room_create(CHAT_ROOM_PLAIN, 400);
 *     dialogue *d = chat_room_add(&room, "main", NULL);
 *     chat_room_say(&room, d, "abab", 6);          said, read, and 6 tokens written
 *     ... room.result ...
 *     chat_room_check_cold(&room, d);              and the memory is as if all were read in one go
 *     chat_room_destroy(&room);
 *
 * The model is llama with random weights; it may get a window, or a layer with a recurrent state that
 * everything it has read goes into, so that a state that belongs to another text is seen in the
 * logits. A room can also be opened with the model of a file. What must work is asserted (cmocka).
 */
#ifndef TESTS_SUPPORT_CHAT_H
#define TESTS_SUPPORT_CHAT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "chat/dialogue.h"
#include "support_model.h"

typedef enum chat_room_kind {
    CHAT_ROOM_PLAIN,
    CHAT_ROOM_WINDOW, /* one layer of two sees the last 16 tokens */
    CHAT_ROOM_STATES, /* a recurrent state beside attention */
    CHAT_ROOM_STORY,  /* plain, and without a template */
} chat_room_kind;

#define CHAT_ROOM_KINDS 3 /* with a template */
#define CHAT_ROOM_TEMPLATE                                                                         \
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}"                      \
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"

typedef struct chat_room {
    fixture made;
    gguf_file *file; /* of chat_room_open_file, else NULL */
    model *model;
    tokenizer *tok;
    chat_encoder *encoder;
    chat_template *compiled;
    dialogues all;
    dialogue_options how;
    dialogue_result result;
    cellar_error error;
    uint64_t stop_after; /* questions whether to stop; UINT64_MAX: never */
    char shown[4096];    /* [n_shown] of the last answer */
    size_t n_shown;
    uint32_t n_forgotten; /* calls of `forgot` */
} chat_room;

/* Greedy, never ends by itself, micro-batches of 8. The room must not be moved. */
void chat_room_open(chat_room *room, chat_room_kind kind, uint32_t n_cells);
/* With the model in a file, and with the template. */
void chat_room_open_file(chat_room *room, const char *path, uint32_t n_cells);
void chat_room_close(chat_room *room);

dialogue *chat_room_add(chat_room *room, const char *name, const char *system);
dialogue *chat_room_fork(chat_room *room, const dialogue *from, const char *name);

/* Say it and let n tokens be written; the status of the answer. */
cellar_status chat_room_try(chat_room *room, dialogue *d, const char *text, uint64_t n);
void chat_room_say(chat_room *room, dialogue *d, const char *text, uint64_t n); /* must work */
void chat_room_answer(chat_room *room, dialogue *d, uint64_t n);

/* Rows of one layer that were ever written: what was read costs one each. */
uint64_t chat_room_rows(const chat_room *room);

/*
 * The logits of whatever is read next are those of a memory that read all that the sequence of `d`
 * holds in one go; and what it holds is the beginning of its text.
 */
void chat_room_check_cold(chat_room *room, const dialogue *d);

#endif /* TESTS_SUPPORT_CHAT_H */
