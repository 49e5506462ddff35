/*
 * unit_golden_tokens.c: real vocabularies against the ids that the models' own tokenizers give.
 *
 * Reads tokenizers/NAME.gguf, NAME.inp and NAME.out below the folder CELLAR_SHARED: texts separated
 * by a line, and one line of ids for each, without special tokens. Skipped, with a word why, where
 * there is no such folder; tests/unit_bpe.c and its neighbours cover the same ground with
 * vocabularies of their own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

static void path_of(char *path, size_t size, const char *folder, const char *file)
{
    const char *shared = getenv("CELLAR_SHARED");
    const int length = snprintf(path, size, "%s/%s/%s", shared != NULL ? shared : "../shared",
                                folder, file);
    assert_in_range(length, 1, size - 1);
}

/* The folder, or the test is skipped. */
static DIR *open_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        print_message("skipped: there is no %s (CELLAR_SHARED names the folder)\n", path);
        skip();
    }
    return folder;
}

/* The next name in a folder with this ending; NULL: no more. */
static const char *next_name(DIR *folder, const char *ending)
{
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot != NULL && strcmp(dot, ending) == 0) {
            return entry->d_name;
        }
    }
    return NULL;
}

static char *read_text(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fail_msg("%s is missing", path);
    }
    char *text = malloc(1 << 16);
    assert_non_null(text);
    *length = fread(text, 1, (1 << 16) - 1, file);
    text[*length] = '\0';
    fclose(file);
    return text;
}

/* One text against one line of ids; returns where the next line begins. */
static char *check(const tokenizer *tok, const char *text, size_t length, char *line)
{
    cellar_token *ids;
    size_t n, n_bytes;
    char *back;
    assert_int_equal(tokenizer_encode(tok, text, length, (tokenize_options){0}, &ids, &n, NULL),
                     CELLAR_OK);
    for (size_t i = 0; i < n; i++) {
        char *end;
        const long expected = strtol(line, &end, 10);
        if (end == line || ids[i] != expected) {
            fail_msg("\"%.*s\": id %zu is %ld, expected %ld", (int)length, text, i, (long)ids[i],
                     end == line ? -1 : expected);
        }
        line = end;
    }
    line += strspn(line, " ");
    if (*line != '\n' && *line != '\0') {
        fail_msg("\"%.*s\": more ids are expected: %.20s", (int)length, text, line);
    }
    assert_int_equal(tokenizer_decode(tok, ids, n, true, &back, &n_bytes, NULL), CELLAR_OK);
    assert_int_equal(n_bytes, length);
    assert_memory_equal(back != NULL ? back : "", text, length);
    free(back);
    free(ids);
    return line + (*line == '\n');
}

/* NAME.gguf, NAME.inp and NAME.out; returns how many texts they have. */
static size_t check_vocabulary(const char *name)
{
    char path[4096], file_name[300];
    size_t length, n = 0;
    gguf_file *file = NULL;
    tokenizer *tok = NULL;
    cellar_error error;
    snprintf(file_name, sizeof file_name, "%s.inp", name);
    path_of(path, sizeof path, "tokenizers", file_name);
    char *texts = read_text(path, &length);
    snprintf(file_name, sizeof file_name, "%s.out", name);
    path_of(path, sizeof path, "tokenizers", file_name);
    char *lines = read_text(path, &(size_t){0}), *line = lines;
    snprintf(file_name, sizeof file_name, "%s.gguf", name);
    path_of(path, sizeof path, "tokenizers", file_name);
    if (gguf_open(path, &file, &error) != CELLAR_OK ||
        tokenizer_create(file, &tok, &error) != CELLAR_OK) {
        fail_msg("%s: %s", path, error.message);
    }
    for (const char *text = texts; text != NULL; n++) {
        const char *end = strstr(text, SEPARATOR);
        line = check(tok, text, end != NULL ? (size_t)(end - text) : strlen(text), line);
        text = end != NULL ? end + strlen(SEPARATOR) : NULL;
    }
    assert_int_equal(*line, '\0');
    tokenizer_destroy(tok);
    gguf_close(file);
    free(lines);
    free(texts);
    return n;
}

static void every_text_gives_the_ids_of_the_model(void **state)
{
    (void)state;
    char path[4096], name[256];
    size_t n_vocabularies = 0;
    path_of(path, sizeof path, "tokenizers", ".");
    DIR *folder = open_folder(path);
    for (const char *found; (found = next_name(folder, ".inp")) != NULL; n_vocabularies++) {
        snprintf(name, sizeof name, "%.*s", (int)(strlen(found) - strlen(".inp")), found);
        const size_t n = check_vocabulary(name);
        print_message("%s: %zu texts\n", name, n);
        assert_true(n > 1);
    }
    closedir(folder);
    assert_true(n_vocabularies >= 4);
}

/* Every model of the folder is a tokenizer, with BOS and EOS as its file says. */
static void every_model_has_a_tokenizer(void **state)
{
    (void)state;
    char path[4096], file_name[300];
    unsigned n = 0;
    path_of(path, sizeof path, "models", "random");
    DIR *folder = open_folder(path);
    for (const char *found; (found = next_name(folder, ".gguf")) != NULL; n++) {
        gguf_file *file = NULL;
        tokenizer *tok = NULL;
        cellar_error error;
        snprintf(file_name, sizeof file_name, "random/%s", found);
        path_of(path, sizeof path, "models", file_name);
        if (gguf_open(path, &file, &error) != CELLAR_OK ||
            tokenizer_create(file, &tok, &error) != CELLAR_OK) {
            fail_msg("%s: %s", path, error.message);
        }
        assert_int_equal(tokenizer_bos(tok), 1);
        assert_int_equal(tokenizer_eos(tok), 2);
        assert_false(tokenizer_adds_bos(tok));
        tokenizer_destroy(tok);
        gguf_close(file);
    }
    closedir(folder);
    assert_int_equal(n, 27);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_text_gives_the_ids_of_the_model),
        cmocka_unit_test(every_model_has_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
