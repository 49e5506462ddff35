/*
 * support_gguf.h: what several tests of the GGUF reader share: reading all that a good file shows,
 * and expecting that a bad one is refused.
 *
 * Used by unit_gguf*.c and by the fuzz target. Nothing here depends on cmocka.
 */
#ifndef TESTS_SUPPORT_GGUF_H
#define TESTS_SUPPORT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/gguf.h"

/*
 * Read all that an opened file shows: every key, every element of every value, every name, the
 * first and the last byte of each tensor; look every key and tensor up by name. Returns a checksum,
 * so that no read can be left out. Sanitizers watch; a look-up that does not lead back ends the
 * program.
 */
uint64_t support_gguf_read_all(const gguf_file *file);

/*
 * Open the bytes; the reader must refuse them with `status` at byte `at`, with a message that holds
 * `word` and the byte, within 100 ms. Returns false, and says what happened, if it does otherwise.
 */
bool support_gguf_is_refused(const char *what, const unsigned char *bytes, size_t size,
                             cellar_status status, size_t at, const char *word);

/*
 * Run a task in a child process that can map `more` bytes beyond what this one has mapped. Returns
 * what the task returned (0..95), a larger number if the child died, -1 if it cannot be tried here.
 */
int support_gguf_in_little_memory(size_t more, int (*task)(void));

#endif /* TESTS_SUPPORT_GGUF_H */
