/*
 * support_journal.c: see the header.
 *
 * The file is read whole each time and parsed by the second reader, so that nothing of what the library
 * believes of it is believed here.
 */
#include "support_journal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support_folder.h"
#include "support_parsed_compare.h"

const char *journal_path(void)
{
    return folder_path("session");
}

/* ---- files ------------------------------------------------------------------------------------- */

parcel journal_read_file(void)
{
    parcel p = {NULL, 0, 0};
    FILE *file = fopen(journal_path(), "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    p.size = p.capacity = (size_t)ftell(file);
    rewind(file);
    p.bytes = malloc(p.size + 1);
    assert_non_null(p.bytes);
    assert_int_equal(fread(p.bytes, 1, p.size, file), p.size);
    fclose(file);
    return p;
}

/* The file holds what the memory holds. Returns whether it is a journal. */
bool journal_expect_file(const cellar_memory *memory)
{
    parcel file = journal_read_file();
    parsed_session parsed;
    parsed_read(&parsed, file.bytes, file.size);
    parsed_compare(memory, &parsed, !parsed.is_journal);
    bool is_journal = parsed.is_journal;
    parsed_free(&parsed);
    parcel_free(&file);
    return is_journal;
}

void journal_must(cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK) fail_msg("%s: %s", cellar_status_text(status), error->message);
}

cellar_journal *journal_open(cellar_memory *memory)
{
    cellar_journal *journal = NULL;
    cellar_error error = {0};
    journal_must(cellar_open_journal(memory, journal_path(), &journal, &error), &error);
    return journal;
}

uint64_t journal_save(cellar_journal *journal, const cellar_save_options *options)
{
    cellar_save_options all = cellar_save_options_init();
    cellar_error error = {0};
    uint64_t n = 0;
    journal_must(cellar_save_journal(journal, options ? options : &all, &n, &error), &error);
    return n;
}

/* Both memories are written as the same bytes. */
void journal_expect_same(const cellar_memory *a, const cellar_memory *b)
{
    parcel x = {NULL, 0, 0}, y = {NULL, 0, 0};
    cellar_error error = {0};
    journal_must(parcel_write(&x, a, NULL, &error), &error);
    journal_must(parcel_write(&y, b, NULL, &error), &error);
    assert_true(parcel_equal(&x, &y));
    parcel_free(&x);
    parcel_free(&y);
}

/* A memory of the same layers with room for everything, loaded from the journal. */
cellar_journal *journal_load_copy(const story *s, story *copy)
{
    cellar_load_options options = cellar_load_options_init();
    cellar_error error = {0};
    story_plan(copy, s->seed);
    copy->small.config.n_cells = 4096;
    copy->small.config.is_window_full = true;
    copy->small.config.n_sequences = 64;
    copy->small.config.checkpoint_bytes = 1 << 20;
    story_open(copy);
    cellar_journal *journal = journal_open(copy->small.memory);
    journal_must(cellar_load_journal(journal, &options, &error), &error);
    return journal;
}
