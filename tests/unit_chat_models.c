/*
 * unit_chat_models.c: twenty turns with models that have recurrent states or windows, through the
 * layer that `cellar chat` stands on.
 *
 * Each model file of the shared folder holds one conversation with forks, rewinds and second answers.
 * Tokens are counted: a turn reads what is new, going back to the end of a message reads nothing
 * again, because a checkpoint stands there, another answer reads one token. After each step the memory
 * must answer, bit for bit, as one that read all in one go. Skipped where there is no such folder;
 * unit_chat.c does the same with models of its own.
 */
#include "support_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_TURNS 20
#define N_CELLS 6000

static const char *const words[] = {
    "How old is the house?",
    "And the tree?",
    "Once upon a time there was a fox.",
    "It had time to think about the way it had come, and about the way back.",
    "Why?",
};

static const char *words_of(uint32_t turn)
{
    return words[turn % (sizeof words / sizeof *words)];
}

/* What was held is not read again; what comes out is right. */
static void say_more(chat_room *room, dialogue *d, const char *text)
{
    const uint32_t held = dialogue_held(&room->all, d);
    chat_room_say(room, d, text, 6);
    assert_true(room->result.n_reused >= held); /* more, where another conversation went on alike */
    assert_int_equal(room->result.n_reused + room->result.n_read, room->result.n_prompt);
    chat_room_check_cold(room, d);
}

static void take_back(chat_room *room, dialogue *d, uint32_t n_turns)
{
    const uint32_t held = dialogue_held(&room->all, d);
    assert_int_equal(dialogue_rewind(&room->all, d, n_turns, &room->error), CELLAR_OK);
    const uint32_t left = dialogue_held(&room->all, d);
    assert_true(left > 0 && left < held); /* a checkpoint, not the beginning */
    chat_room_check_cold(room, d);
}

static void answer_anew(chat_room *room, dialogue *d)
{
    assert_int_equal(dialogue_take_answer(&room->all, d, &room->error), CELLAR_OK);
    chat_room_answer(room, d, 6);
    assert_int_equal(room->result.n_read, 1);
    chat_room_check_cold(room, d);
}

static void hold_conversation(const char *path)
{
    chat_room room;
    chat_room_open_file(&room, path, N_CELLS);
    dialogue *d = chat_room_add(&room, "main", NULL), *other = NULL;
    for (uint32_t turn = 0; turn < N_TURNS; turn++) {
        say_more(&room, d, words_of(turn));
        if (turn % 7 == 3) {
            answer_anew(&room, d);
        } else if (turn % 7 == 5) {
            take_back(&room, d, 2);
        } else if (turn == 8) {
            other = chat_room_fork(&room, d, "other");
            chat_room_check_cold(&room, other);
        } else if (turn > 8 && turn % 3 == 0) {
            say_more(&room, other, words_of(turn + 1));
        }
    }
    assert_true(dialogue_turns(d) > 10 && dialogue_turns(other) > 8);
    chat_room_check_cold(&room, d);
    chat_room_check_cold(&room, other);
    chat_room_close(&room);
}

/* The file of a model, or the test is skipped. */
static void with_model(const char *name)
{
    char path[4096];
    const char *shared = getenv("CELLAR_SHARED");
    snprintf(path, sizeof path, "%s/models/random/%s.gguf", shared != NULL ? shared : "../shared",
             name);
    if (access(path, R_OK) != 0) {
        print_message("skipped: there is no %s (CELLAR_SHARED names the folder)\n", path);
        skip();
    }
    hold_conversation(path);
}

#define TURNS_WITH(name, file)                                                                     \
    static void turns_with_##name(void **state)                                                    \
    {                                                                                              \
        (void)state;                                                                               \
        with_model(file);                                                                          \
    }

TURNS_WITH(mamba, "mamba")
TURNS_WITH(mamba2, "mamba2")
TURNS_WITH(rwkv6, "rwkv6")
TURNS_WITH(rwkv7, "rwkv7")
TURNS_WITH(lfm2, "lfm2")
TURNS_WITH(falcon_h1, "falcon-h1")
TURNS_WITH(jamba, "jamba")
TURNS_WITH(gemma3, "gemma3")
TURNS_WITH(cohere2, "cohere2")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_with_mamba),   cmocka_unit_test(turns_with_mamba2),
        cmocka_unit_test(turns_with_rwkv6),   cmocka_unit_test(turns_with_rwkv7),
        cmocka_unit_test(turns_with_lfm2),    cmocka_unit_test(turns_with_falcon_h1),
        cmocka_unit_test(turns_with_jamba),   cmocka_unit_test(turns_with_gemma3),
        cmocka_unit_test(turns_with_cohere2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
