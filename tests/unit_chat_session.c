/*
 * unit_chat_session.c: conversations come back whole, or not at all.
 *
 * Saved and loaded, every conversation has its messages, its tokens and its memory, and answers as if it
 * had never been away; what was shared is still shared. A session that is damaged, or another's, or of
 * another kind is refused, and what was there stays.
 */
#define _POSIX_C_SOURCE 200809L

#include "support_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat/dialogue_session.h"

static char path[80];

static int make_folder(void **state)
{
    (void)state;
    const char *place = getenv("TMPDIR");
    snprintf(path, sizeof path, "%.40s/chatXXXXXX", place != NULL ? place : "/tmp");
    const int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_folder(void **state)
{
    (void)state;
    (void)remove(path);
    return 0;
}

static const dialogue_state saved_state = {
    .current = "b", .seed = 7, .generator = {1, UINT64_MAX, 3, 4}};

static void must_save(chat_room *room)
{
    if (dialogue_session_save(&room->all, &saved_state, path, &room->error) != CELLAR_OK) {
        fail_msg("%s", room->error.message);
    }
}

/* Two that share a beginning, one on its own that was stopped, one that holds nothing. */
static void fill(chat_room *room)
{
    dialogue *a = chat_room_add(room, "a", "the system's words");
    chat_room_say(room, a, "hello </s>", 5);
    dialogue *b = chat_room_fork(room, a, "b");
    chat_room_say(room, a, "one", 5);
    chat_room_say(room, b, "two", 5);
    dialogue *c = chat_room_add(room, "c", NULL);
    room->stop_after = 8;
    chat_room_say(room, c, "a message that is stopped in its middle", 5);
    room->stop_after = UINT64_MAX;
    chat_room_add(room, "d", "silent");
}

static void assert_same(const dialogue *x, const dialogue *y)
{
    assert_string_equal(x->name, y->name);
    assert_true(json_equal(x->messages, y->messages));
    assert_int_equal(x->is_open, y->is_open);
    assert_int_equal(x->n_forgotten, y->n_forgotten);
    assert_int_equal(x->text.n_tokens, y->text.n_tokens);
    assert_int_equal(x->text.n_bytes, y->text.n_bytes);
    if (x->text.n_tokens > 0) {
        const size_t n = x->text.n_tokens;
        assert_memory_equal(x->text.bytes, y->text.bytes, x->text.n_bytes);
        assert_memory_equal(x->text.tokens, y->text.tokens, n * sizeof *x->text.tokens);
        assert_memory_equal(x->text.ends, y->text.ends, n * sizeof *x->text.ends);
        assert_memory_equal(x->text.starts, y->text.starts, n * sizeof *x->text.starts);
    }
}

static void conversations_come_back_whole(void **state)
{
    (void)state;
    for (int kind = 0; kind <= CHAT_ROOM_KINDS; kind++) {
        chat_room one, two;
        chat_room_open(&one, (chat_room_kind)kind, 700);
        chat_room_open(&two, (chat_room_kind)kind, 600);
        fill(&one);
        must_save(&one);
        dialogue_state got = {.current = NULL};
        chat_room_say(&two, chat_room_add(&two, "old", NULL), "forgotten soon", 3);
        if (dialogue_session_load(&two.all, &got, path, &two.error) != CELLAR_OK) {
            fail_msg("%s", two.error.message);
        }
        assert_string_equal(got.current, "b");
        assert_int_equal(got.seed, 7);
        assert_memory_equal(got.generator, saved_state.generator, sizeof got.generator);
        assert_int_equal(two.all.n, 4);
        cellar_statistics before, after;
        assert_int_equal(cellar_stats(engine_memory(one.all.engine), &before, NULL), CELLAR_OK);
        assert_int_equal(cellar_stats(engine_memory(two.all.engine), &after, NULL), CELLAR_OK);
        assert_int_equal(before.n_used, after.n_used); /* and so sharing is as before */
        assert_int_equal(before.n_shared, after.n_shared);
        for (uint32_t i = 0; i < 4; i++) {
            assert_same(one.all.list[i], two.all.list[i]);
            assert_int_equal(dialogue_held(&one.all, one.all.list[i]),
                             dialogue_held(&two.all, two.all.list[i]));
            chat_room_check_cold(&two, two.all.list[i]);
        }
        for (uint32_t i = 0; i < 4; i++) {
            chat_room_say(&one, one.all.list[i], "go on", 6);
            chat_room_say(&two, two.all.list[i], "go on", 6);
            assert_same(one.all.list[i], two.all.list[i]);
            assert_int_equal(one.result.n_reused, two.result.n_reused);
            assert_int_equal(one.result.n_read, two.result.n_read);
        }
        chat_room_close(&one);
        chat_room_close(&two);
    }
}

static unsigned char *read_file(size_t *n)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *n = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, file), *n);
    fclose(file);
    return bytes;
}

static void write_file(const unsigned char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

/* Loading fails, and nothing in the room has changed. */
static cellar_status must_refuse(chat_room *room)
{
    const uint32_t n = room->all.n, held = dialogue_held(&room->all, room->all.list[0]);
    dialogue_state got = {.current = NULL};
    const cellar_status status = dialogue_session_load(&room->all, &got, path, &room->error);
    assert_int_not_equal(status, CELLAR_OK);
    assert_int_equal(room->all.n, n);
    assert_int_equal(dialogue_held(&room->all, room->all.list[0]), held);
    assert_int_equal(cellar_check(engine_memory(room->all.engine), NULL), CELLAR_OK);
    return status;
}

static void damaged_sessions_are_refused(void **state)
{
    (void)state;
    chat_room room, other;
    chat_room_open(&room, CHAT_ROOM_PLAIN, 400);
    chat_room_open(&other, CHAT_ROOM_PLAIN, 400);
    fill(&room);
    must_save(&room);
    chat_room_say(&other, chat_room_add(&other, "old", NULL), "I stay", 3);
    size_t n;
    unsigned char *bytes = read_file(&n);
    for (size_t at = 0; at < n; at += 1 + n / 300) {
        bytes[at] ^= 0x11;
        write_file(bytes, n);
        bytes[at] ^= 0x11;
        dialogue_state got = {.current = NULL};
        /* padding and reserved bytes may be damaged without harm; then it loads whole */
        if (dialogue_session_load(&other.all, &got, path, &other.error) == CELLAR_OK) {
            assert_int_equal(other.all.n, 4);
            chat_room_check_cold(&other, other.all.list[0]);
        }
        assert_int_equal(cellar_check(engine_memory(other.all.engine), NULL), CELLAR_OK);
    }
    write_file(bytes, n / 2);
    assert_int_equal(must_refuse(&other), CELLAR_CORRUPT);
    free(bytes);
    chat_room_close(&room);
    chat_room_close(&other);
}

static void add_note(cellar_note *notes, uint32_t *n, const char *name, const char *text)
{
    if (text != NULL) {
        notes[(*n)++] = (cellar_note){.name = name, .value = text, .size = strlen(text)};
    }
}

/* Save what the room holds with other notes. */
static void save_notes(chat_room *room, const char *chat, const char *talk)
{
    cellar_note all[2];
    uint32_t n = 0;
    add_note(all, &n, "chat", chat);
    add_note(all, &n, "chat 0", talk);
    const dialogue *d = room->all.list[0];
    const cellar_log log = {.seq = d->seq, .n_tokens = d->text.n_tokens, .tokens = d->text.tokens};
    cellar_save_options options = cellar_save_options_init();
    options.sequences = &d->seq;
    options.n_sequences = 1;
    options.notes = all;
    options.n_notes = n;
    options.logs = &log;
    options.n_logs = 1;
    assert_int_equal(cellar_save_session(engine_memory(room->all.engine), &options, path, NULL),
                     CELLAR_OK);
}

#define FIRST "{\"name\":\"a\",\"sequence\":0}"
#define LIST(rest) "{\"version\":1,\"current\":\"a\",\"conversations\":[" FIRST rest "]}"
#define TALK(messages, rest) "{\"messages\":[" messages "],\"forgotten\":0" rest "}"
#define HELLO "{\"role\":\"user\",\"content\":\"x\"}"
#define TWICE "{\"name\":\"a\",\"sequence\":1}"
#define TOO_SHORT ",\"text\":\"ab\",\"lengths\":[1,1],\"starts\":\"22\""

/* Notes that do not fit each other, or the log: of "chat", and of "chat 0" (NULL: it is missing). */
static const struct {
    const char *chat, *talk;
    cellar_status status;
} lies[] = {
    {NULL, TALK(HELLO, ""), CELLAR_UNSUPPORTED}, /* a session of another kind */
    {"nonsense", TALK(HELLO, ""), CELLAR_CORRUPT},
    {"{\"version\":2}", TALK(HELLO, ""), CELLAR_UNSUPPORTED},
    {"{\"version\":1,\"conversations\":[]}", NULL, CELLAR_CORRUPT},
    {LIST(""), NULL, CELLAR_CORRUPT},
    {LIST("," TWICE), TALK(HELLO, ""), CELLAR_CORRUPT},
    {LIST(",3"), TALK(HELLO, ""), CELLAR_CORRUPT},
    {LIST(""), "[]", CELLAR_CORRUPT},
    {LIST(""), TALK(HELLO, ""), CELLAR_CORRUPT}, /* the sequence holds something, and no text */
    {LIST(""), TALK(HELLO, TOO_SHORT), CELLAR_CORRUPT},
    {LIST(""), TALK("3", ""), CELLAR_CORRUPT},
    {LIST(""), TALK("{\"role\":\"user\"}", ""), CELLAR_CORRUPT},
};

static void notes_that_lie_are_refused(void **state)
{
    (void)state;
    chat_room room, other;
    chat_room_open(&room, CHAT_ROOM_PLAIN, 400);
    chat_room_open(&other, CHAT_ROOM_PLAIN, 400);
    chat_room_say(&room, chat_room_add(&room, "a", NULL), "x", 3);
    chat_room_say(&other, chat_room_add(&other, "old", NULL), "I stay", 3);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        save_notes(&room, lies[i].chat, lies[i].talk);
        if (must_refuse(&other) != lies[i].status) {
            fail_msg("case %zu: %s", i, other.error.message);
        }
    }
    chat_room_close(&room);
    chat_room_close(&other);
}

static void another_model_is_refused(void **state)
{
    (void)state;
    chat_room room, other;
    chat_room_open(&room, CHAT_ROOM_PLAIN, 400);
    chat_room_open(&other, CHAT_ROOM_WINDOW, 400);
    fill(&room);
    must_save(&room);
    chat_room_say(&other, chat_room_add(&other, "old", NULL), "I stay", 3);
    assert_int_equal(must_refuse(&other), CELLAR_MISMATCH);
    (void)remove(path);
    assert_int_equal(must_refuse(&other), CELLAR_NOT_FOUND);
    chat_room_close(&room);
    chat_room_close(&other);
}

static void nothing_cannot_be_saved(void **state)
{
    (void)state;
    chat_room room;
    chat_room_open(&room, CHAT_ROOM_PLAIN, 400);
    chat_room_add(&room, "b", "silent");
    assert_int_equal(dialogue_session_save(&room.all, &saved_state, path, &room.error),
                     CELLAR_INVALID);
    chat_room_close(&room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_come_back_whole),
        cmocka_unit_test(damaged_sessions_are_refused),
        cmocka_unit_test(notes_that_lie_are_refused),
        cmocka_unit_test(another_model_is_refused),
        cmocka_unit_test(nothing_cannot_be_saved),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
