/*
 * chat_line.c: libedit on a terminal, plain reading elsewhere, for chat_line.h.
 *
 * Both get their bytes here, one by one, because both must notice Ctrl-C between looking and waiting
 * (chat_signals_wait); libedit's own reading would try again after it. libedit wants characters, so
 * bytes are put together by the locale; in one that knows only ASCII a UTF-8 one is asked for.
 */
#define _DEFAULT_SOURCE

#include "cli/chat_line.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/chat_signals.h"
#include "cli/terminal.h"
#include "report.h"

#define KEPT_LINES 500 /* of the history */
#define LONGEST_LINE ((size_t)1 << 26)

struct chat_line {
    EditLine *edit; /* NULL: plain */
    History *history;
    const char *const *words;
    const char *prompt; /* shown now */
    bool is_interrupted;
    char *text; /* [n] the line */
    size_t n, capacity;
    char waiting[4096]; /* plain: bytes next..n_waiting were read and not used */
    size_t next, n_waiting;
};

/* ---- bytes ---------------------------------------------------------------------------------- */

/* 1: a byte; 0: the end; -1: interrupted, or it cannot be read. */
static int read_byte(chat_line *line, char *byte)
{
    if (line->next == line->n_waiting) {
        ssize_t n;
        do {
            if (!chat_signals_wait(STDIN_FILENO)) {
                line->is_interrupted = true;
                return -1;
            }
            n = read(STDIN_FILENO, line->waiting, line->edit != NULL ? 1 : sizeof line->waiting);
        } while (n < 0 && errno == EINTR);
        if (n <= 0) {
            return n < 0 ? -1 : 0;
        }
        line->next = 0;
        line->n_waiting = (size_t)n;
    }
    *byte = line->waiting[line->next++];
    return 1;
}

static bool append(chat_line *line, const char *bytes, size_t n)
{
    if (line->capacity - line->n < n + 1) {
        const size_t capacity = 2 * line->capacity + n + 256;
        char *larger = capacity < LONGEST_LINE ? realloc(line->text, capacity) : NULL;
        if (larger == NULL) {
            return false;
        }
        line->text = larger;
        line->capacity = capacity;
    }
    memcpy(line->text + line->n, bytes, n);
    line->n += n;
    line->text[line->n] = '\0';
    return true;
}

/* ---- libedit -------------------------------------------------------------------------------- */

static chat_line *line_of(EditLine *edit)
{
    void *line = NULL;
    el_get(edit, EL_CLIENTDATA, &line);
    return line;
}

static char *show_prompt(EditLine *edit)
{
    return (char *)(uintptr_t)line_of(edit)->prompt;
}

/* One character, as libedit wants it. */
static int read_character(EditLine *edit, wchar_t *out)
{
    chat_line *line = line_of(edit);
    mbstate_t state;
    memset(&state, 0, sizeof state);
    for (;;) {
        char byte;
        const int n = read_byte(line, &byte);
        if (n <= 0) {
            return n;
        }
        const size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-1) {
            *out = L'?';
            return 1;
        }
        if (used != (size_t)-2) {
            return 1;
        }
    }
}

/* Tab: complete a word at the beginning of the line as far as there is one way to go on. */
static unsigned char complete(EditLine *edit, int key)
{
    (void)key;
    const chat_line *line = line_of(edit);
    const LineInfo *info = el_line(edit);
    const size_t n = (size_t)(info->cursor - info->buffer);
    const char *found = NULL;
    size_t same = 0;
    for (size_t i = 0; line->words[i] != NULL; i++) {
        if (strncmp(line->words[i], info->buffer, n) != 0) {
            continue;
        }
        size_t both = n;
        while (found != NULL && both < same && line->words[i][both] == found[both]) {
            both++;
        }
        same = found != NULL ? both : strlen(line->words[i]);
        found = line->words[i];
    }
    char rest[64];
    if (n == 0 || found == NULL || same <= n || same - n >= sizeof rest) {
        return CC_REFRESH_BEEP;
    }
    memcpy(rest, found + n, same - n);
    rest[same - n] = '\0';
    return el_insertstr(edit, rest) == 0 ? CC_REFRESH : CC_ERROR;
}

static void prepare_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
}

static bool open_edit(chat_line *line)
{
    prepare_locale();
    FILE *shown = terminal_is_interactive(stdout) ? stdout : stderr;
    HistEvent event;
    line->edit = el_init("cellar", stdin, shown, stderr);
    line->history = history_init();
    if (line->edit == NULL || line->history == NULL) {
        return false;
    }
    history(line->history, &event, H_SETSIZE, KEPT_LINES);
    history(line->history, &event, H_SETUNIQUE, 1);
    el_set(line->edit, EL_CLIENTDATA, line);
    el_set(line->edit, EL_SIGNAL, 0);
    el_set(line->edit, EL_EDITOR, "emacs");
    el_set(line->edit, EL_PROMPT, show_prompt);
    el_set(line->edit, EL_HIST, history, line->history);
    el_set(line->edit, EL_GETCFN, read_character);
    /* the wide call: the narrow one copies the names and never frees them */
    el_wset(line->edit, EL_ADDFN, L"complete", L"complete a command", complete);
    el_set(line->edit, EL_BIND, "^I", "complete", NULL);
    el_set(line->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    return true;
}

/* One line as it was typed; its bytes are added. */
static chat_line_result edit_line(chat_line *line)
{
    el_resize(line->edit);
    /* Before the prompt is seen: what is typed at once would else go through the terminal's own line editing, where
       Ctrl-C throws away what was typed before it. */
    el_set(line->edit, EL_PREP_TERM, 1);
    int n = 0;
    const char *typed = el_gets(line->edit, &n);
    if (line->is_interrupted) {
        const LineInfo *info = el_line(line->edit);
        line->n += (size_t)(info->lastchar - info->buffer); /* typed, and gone */
        el_reset(line->edit);
        return CHAT_LINE_INTERRUPTED;
    }
    if (typed == NULL || n <= 0) {
        return n < 0 ? CHAT_LINE_FAILED : CHAT_LINE_END;
    }
    size_t length = (size_t)n;
    HistEvent event;
    if (typed[0] != '\n') {
        history(line->history, &event, H_ENTER, typed);
    }
    length -= typed[length - 1] == '\n';
    return append(line, typed, length) ? CHAT_LINE_TEXT : CHAT_LINE_FAILED;
}

/* ---- plain ---------------------------------------------------------------------------------- */

static chat_line_result read_plain(chat_line *line)
{
    const size_t before = line->n;
    if (!append(line, "", 0)) {
        return CHAT_LINE_FAILED;
    }
    for (;;) {
        char byte;
        const int n = read_byte(line, &byte);
        if (n < 0) {
            return line->is_interrupted ? CHAT_LINE_INTERRUPTED : CHAT_LINE_FAILED;
        }
        if (n == 0) {
            return line->n > before ? CHAT_LINE_TEXT : CHAT_LINE_END;
        }
        if (byte == '\n') {
            return CHAT_LINE_TEXT;
        }
        if (!append(line, &byte, 1)) {
            return CHAT_LINE_FAILED;
        }
    }
}

/* ---- both ----------------------------------------------------------------------------------- */

cellar_status chat_line_open(const char *const *words, chat_line **out, cellar_error *error)
{
    *out = calloc(1, sizeof **out);
    const bool is_edited = terminal_is_interactive(stdin) &&
                           (terminal_is_interactive(stdout) || terminal_is_interactive(stderr));
    if (*out != NULL) {
        (*out)->words = words;
    }
    if (*out == NULL || (is_edited && !open_edit(*out))) {
        chat_line_close(*out);
        *out = NULL;
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for editing lines");
    }
    return CELLAR_OK;
}

void chat_line_close(chat_line *line)
{
    if (line != NULL) {
        if (line->history != NULL) {
            history_end(line->history);
        }
        if (line->edit != NULL) {
            el_end(line->edit);
        }
        free(line->text);
        free(line);
    }
}

bool chat_line_is_edited(const chat_line *line)
{
    return line->edit != NULL;
}

chat_line_result chat_line_read(chat_line *line, const char *prompt, const char **text, size_t *n)
{
    line->prompt = prompt;
    line->n = 0;
    line->is_interrupted = false;
    chat_line_result result;
    for (;;) {
        result = line->edit != NULL ? edit_line(line) : read_plain(line);
        if (result != CHAT_LINE_TEXT || line->n == 0 || line->text[line->n - 1] != '\\') {
            break;
        }
        line->text[line->n - 1] = '\n'; /* and it goes on */
        line->prompt = "...> ";
    }
    if (result == CHAT_LINE_END && line->n > 0) {
        result = CHAT_LINE_TEXT; /* the input ended behind a backslash */
    }
    *text = line->text;
    *n = line->n;
    return result;
}
