/*
 * support_journal.h: one journal, for tests that save and load it again and again.
 *
 * What should work is asserted (cmocka) with the message of the library.
 */
#ifndef SUPPORT_JOURNAL_H
#define SUPPORT_JOURNAL_H

#include "support_session.h"
#include "support_story.h"

/* Its file, in the folder of support_folder.h, which each test sets up and tears down. */
const char *journal_path(void);

void journal_must(cellar_status status, const cellar_error *error);
cellar_journal *journal_open(cellar_memory *memory);

/* Save (options NULL: everything); how many bytes were written. */
uint64_t journal_save(cellar_journal *journal, const cellar_save_options *options);
parcel journal_read_file(void);

/* The file holds what the memory holds. Returns whether something was appended to it. */
bool journal_expect_file(const cellar_memory *memory);

/* Both memories are written as the same bytes. */
void journal_expect_same(const cellar_memory *a, const cellar_memory *b);

/* A memory of the story's layers with more room, loaded from the file; its journal. */
cellar_journal *journal_load_copy(const story *s, story *copy);

#endif /* SUPPORT_JOURNAL_H */
