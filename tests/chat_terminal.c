/*
 * chat_terminal.c: `cellar chat` as a person at a terminal uses it.
 *
 * A pseudo-terminal, the program on it, and a script of what is typed and what has to be seen:
 * conversations are forked, taken back, stopped by Ctrl-C in the middle of a long message and of an
 * answer, gone on with, saved, left and loaded again. That nothing is read twice is checked by the
 * figures that the program shows. Nothing depends on time: the test types when it has seen what it
 * waits for, and only gives up after minutes. Screen control is taken out before anything is compared.
 */
#define _XOPEN_SOURCE 700

#include "chat_terminal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];
static char long_file[96], template_file[96], session_file[96];

/* ---- what a person does --------------------------------------------------------------------- */

/* A conversation forked, gone on with, and taken back: only what is new is read. */
static void fork_and_rewind(void)
{
    static const char *const arguments[] = {"--seed", "3", "--temp", "0", NULL};
    terminal *t = terminal_open(arguments);
    terminal_expect(t, "main> ");
    terminal_type(t, "Once upon a time\n");
    terminal_expect(t, "[");
    CHECK(terminal_number(t, " tokens reused") == 0);
    const long used = terminal_number(t, " of 512 cells used");
    terminal_expect(t, "main> ");
    terminal_type(t, "/fork two\n");
    terminal_expect(t, "'two': 1 turn, ");
    CHECK(terminal_number(t, " tokens read") == used);
    terminal_expect(t, "two> ");
    terminal_type(t, "Suddenly it rained.\n");
    terminal_expect(t, "[");
    CHECK(terminal_number(t, " tokens reused") == used);
    const long more = terminal_number(t, " of 512 cells used");
    CHECK(more > used);
    terminal_expect(t, "two> ");
    terminal_type(t, "/memory\n");
    terminal_expect(t, "++++");
    terminal_expect(t, "bbbb");
    terminal_expect(t, "a main: ");
    terminal_expect(t, "two> ");
    terminal_type(t, "/rewind 1\n");
    terminal_expect(t, "'two': 1 turn, ");
    terminal_expect(t, "two> ");
    terminal_type(t, "/switch main\n");
    terminal_expect(t, "main> ");
    terminal_type(t, "Suddenly it snowed.\n");
    terminal_expect(t, "[");
    CHECK(terminal_number(t, " tokens reused") >= used);
    terminal_expect(t, "main> ");
    terminal_type(t, "/regenerate\n");
    terminal_expect(t, "tokens reused, 1 read");
    terminal_expect(t, "main> ");
    terminal_type(t, "/list\n");
    terminal_expect(t, "* main: 2 turns");
    terminal_expect(t, "two: 1 turn,");
    terminal_expect(t, "main> ");
    terminal_type(t, "/swich two\n");
    terminal_expect(t, "did you mean /switch?");
    terminal_expect(t, "main> ");
    terminal_type(t, "\004"); /* Ctrl-D */
    CHECK(terminal_close(t) == 0);
}

/* Ctrl-C in the middle of a long message: what was read stays; an empty line reads on. */
static void stop_in_a_message(void)
{
    const char *const arguments[] = {"-c", "60000", "--ubatch", "16", "-t", "1", NULL};
    terminal *t = terminal_open(arguments);
    char say[128];
    snprintf(say, sizeof say, "/file %s\n", long_file);
    terminal_expect(t, "main> ");
    terminal_type(t, say);
    terminal_expect(t, "reading: ");
    terminal_expect(t, "reading: "); /* the second time something has been read */
    terminal_type(t, "\003");        /* Ctrl-C */
    terminal_expect(t, "(stopped: ");
    const long first = terminal_number(t, " of ");
    CHECK(first > 0);
    terminal_expect(t, "stay read");
    terminal_expect(t, "main> ");
    terminal_type(t, "\n");
    terminal_expect(t, "reading: ");
    terminal_expect(t, "reading: ");
    terminal_type(t, "\003");
    terminal_expect(t, "(stopped: ");
    const long second = terminal_number(t, " of ");
    CHECK(second >= first);
    terminal_expect(t, "[");
    CHECK(terminal_number(t, " tokens reused") == first);
    CHECK(terminal_number(t, " read,") == second - first);
    terminal_expect(t, "main> ");
    terminal_type(t, "/rewind\n");
    terminal_expect(t, "'main': 0 turns");
    terminal_expect(t, "main> ");
    terminal_type(t, "Once upon a time\n");
    terminal_expect(t, " written");
    terminal_expect(t, "main> ");
    terminal_type(t, "/quit\n");
    CHECK(terminal_close(t) == 0);
}

/* Ctrl-C in an answer, which goes on; everything saved, left, and there again. */
static void stop_in_an_answer_and_come_back(void)
{
    const char *const arguments[] = {"-c",          "60000",        "--chat-template",
                                     template_file, "--ignore-eos", NULL};
    terminal *t = terminal_open(arguments);
    char line[128];
    terminal_expect(t, "main> ");
    terminal_type(t, "Once upon a time\n");
    terminal_expect_more(t, 200);
    terminal_type(t, "\003");
    terminal_expect(t, "(stopped. An empty line goes on");
    terminal_expect(t, "[");
    const long used = terminal_number(t, " of 60000 cells used");
    terminal_expect(t, "main> ");
    terminal_type(t, "\n");
    terminal_expect_more(t, 200);
    terminal_type(t, "\003");
    terminal_expect(t, "[");
    const long reused = terminal_number(t, " tokens reused");
    CHECK(reused == used || reused == used - 1); /* the last one, for its logits */
    terminal_expect(t, "main> ");
    terminal_type(t, "/fork other\n");
    terminal_expect(t, "other> ");
    snprintf(line, sizeof line, "/save %s\n", session_file);
    terminal_type(t, line);
    terminal_expect(t, "(saved: 2 conversations)");
    terminal_expect(t, "other> ");
    terminal_type(t, "/list\n");
    terminal_expect(t, "* other: 1 turn, ");
    const long held = terminal_number(t, " tokens read");
    terminal_expect(t, "other> ");
    terminal_type(t, "/quit\n");
    CHECK(terminal_close(t) == 0);

    const char *const again[] = {"-c",        "60000",      "--chat-template", template_file,
                                 "--session", session_file, "--ignore-eos",    NULL};
    t = terminal_open(again);
    terminal_expect(t, "(2 conversations, ");
    CHECK(terminal_number(t, " tokens of 'other' need not be read again") == held);
    terminal_expect(t, "other> ");
    terminal_type(t, "Then a cat came.\n");
    terminal_expect_more(t, 100);
    terminal_type(t, "\003");
    terminal_expect(t, "[");
    CHECK(terminal_number(t, " tokens reused") >= held - 1);
    terminal_expect(t, "other> ");
    terminal_signal(t, SIGTERM); /* saves, too */
    CHECK(terminal_close(t) == 128 + SIGTERM);

    t = terminal_open(again);
    terminal_expect(t, "(2 conversations, ");
    CHECK(terminal_number(t, " tokens of 'other' need not be read again") > held);
    terminal_expect(t, "other> ");
    terminal_type(t, "/history\n");
    terminal_expect(t, "#3 user: Then a cat came.");
    terminal_expect(t, "other> ");
    terminal_type(t, "\004");
    CHECK(terminal_close(t) == 0);
}

/* A line that is given up; the way out; a line that is edited, completed, and called back. */
static void lines_are_edited(void)
{
    const char *const arguments[] = {"--temp", "0", NULL};
    terminal *t = terminal_open(arguments);
    terminal_expect(t, "main> ");
    terminal_type(t, "\003");
    terminal_expect(t, "(to leave: Ctrl-D, or /quit)");
    terminal_expect(t, "main> ");
    terminal_type(t, "half a line");
    terminal_expect(t, "half a line");
    terminal_type(t, "\003");
    terminal_expect(t, "\nmain> ");
    CHECK(!terminal_has_seen_twice(t, "to leave"));
    terminal_type(t, "nothing of this\025/hel\t\n"); /* Ctrl-U, and a tab */
    terminal_expect(t, "another answer");
    terminal_expect(t, "main> ");
    terminal_type(t, "/system gr\xc3\xb6\xc3\x9f"
                     "er\n");
    terminal_expect(t, "main> ");
    terminal_type(t, "/history\n");
    terminal_expect(t, "#1 system: gr\xc3\xb6\xc3\x9f"
                       "er");
    terminal_expect(t, "main> ");
    terminal_type(t, "\033[A\n"); /* up: the history */
    terminal_expect(t, "#1 system: gr\xc3\xb6\xc3\x9f"
                       "er");
    terminal_expect(t, "main> ");
    terminal_type(t, "\004");
    CHECK(terminal_close(t) == 0);
}

/* ---- running -------------------------------------------------------------------------------- */

static void write_file(char *path, size_t size, const char *name, const char *text, int times)
{
    snprintf(path, size, "%s/%s", folder, name);
    FILE *file = text != NULL ? fopen(path, "w") : NULL;
    for (int i = 0; file != NULL && i < times; i++) {
        fputs(text, file);
    }
    if (file != NULL) fclose(file);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"forked, gone on with, taken back", fork_and_rewind},
        {"Ctrl-C in the middle of a long message", stop_in_a_message},
        {"Ctrl-C in an answer; saved, left, loaded", stop_in_an_answer_and_come_back},
        {"lines are edited", lines_are_edited},
    };
    const char *place = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/chatXXXXXX", place != NULL ? place : "/tmp");
    if (mkdtemp(folder) == NULL || getenv("OUT") == NULL) {
        fputs("expected OUT, the folder of the build, and a place for files\n", stderr);
        return 1;
    }
    write_file(long_file, sizeof long_file, "long", "The fox went over the hill. ", 6000);
    write_file(template_file, sizeof template_file, "template",
               "{% for m in messages %}{{ m.content }} {% endfor %}", 1);
    write_file(session_file, sizeof session_file, "session", NULL, 0);
    unsigned n_failed = 0;
    const unsigned n = sizeof tests / sizeof tests[0];
    for (unsigned i = 0; i < n; i++) {
        const bool is_good = terminal_run(tests[i].run);
        printf("%s %s\n", is_good ? "ok  " : "FAIL", tests[i].name);
        fflush(stdout);
        n_failed += !is_good;
    }
    (void)remove(long_file);
    (void)remove(template_file);
    (void)remove(session_file);
    (void)rmdir(folder);
    printf("%u passed, %u failed, 0 skipped\n", n - n_failed, n_failed);
    return n_failed > 0;
}
