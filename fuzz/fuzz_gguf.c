/*
 * fuzz_gguf.c: the GGUF reader on arbitrary bytes.
 *
 * Whatever the bytes are, the file is refused with a message, or everything that the reader then
 * shows can be read: every element of every value, every name, the first and last byte of each
 * tensor; and every key and tensor is found again by its name. The input stands in a heap block of
 * exactly its size, so a sanitizer sees a byte too many; a length that is believed before it is
 * checked runs into the fuzzer's memory limit. Numbers are also read through the typed calls, which
 * must agree with what the value says it is.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf.h"
#include "support_gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(cellar_status status, const cellar_error *error)
{
    const size_t length = strnlen(error->message, sizeof error->message);
    if (error->status != status || length == 0 || length == sizeof error->message) abort();
}

/*
 * Ask for the value as everything that it may not be; at most one integer, one float ... answer
 * fits.
 */
static void read_typed(const gguf_file *file, const gguf_value *value)
{
    char *key = calloc(1, value->key.length + 1);
    if (key == NULL) return;
    memcpy(key, value->key.data, value->key.length);
    uint32_t number;
    double real;
    bool flag;
    gguf_string text;
    const gguf_value *array;
    cellar_error error;
    unsigned n_answers = 0;
    n_answers += gguf_get_u32(file, key, &number, &error) == CELLAR_OK;
    n_answers += gguf_get_float(file, key, &real, &error) == CELLAR_OK;
    n_answers += gguf_get_bool(file, key, &flag, &error) == CELLAR_OK;
    n_answers += gguf_get_string(file, key, &text, &error) == CELLAR_OK;
    n_answers += gguf_get_array(file, key, value->element_type, value->count, &array, &error) ==
                 CELLAR_OK;
    free(key);
    if (n_answers > 1) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) return 0;
    if (size > 0) memcpy(copy, data, size);
    gguf_file *file = NULL;
    cellar_error error;
    memset(&error, 0xff, sizeof error);
    const cellar_status status = gguf_open_memory(copy, size, &file, &error);
    if (status != CELLAR_OK) {
        check_error(status, &error);
        if (file != NULL || error.at > (int64_t)size) abort();
    } else {
        (void)support_gguf_read_all(file);
        for (uint32_t i = 0; i < gguf_count_values(file); i++)
            read_typed(file, gguf_value_at(file, i));
    }
    gguf_close(file);
    free(copy);
    return 0;
}
