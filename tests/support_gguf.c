/*
 * support_gguf.c: read everything that an opened GGUF file shows; expect a refusal (see
 * support_gguf.h).
 *
 * The bytes of a bad file are copied to a heap block of exactly their size, so that a sanitizer
 * sees a read behind the last one.
 */
#define _POSIX_C_SOURCE 200809L

#include "support_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

static uint64_t mix(uint64_t sum, uint64_t value)
{
    return (sum ^ value) * 0x100000001b3u;
}

static uint64_t read_bytes(uint64_t sum, const char *data, size_t length)
{
    for (size_t i = 0; i < length; i++)
        sum = mix(sum, (unsigned char)data[i]);
    return sum;
}

static void must_be(const void *found, const void *wanted, const char *what)
{
    if (found == wanted) return;
    fprintf(stderr, "%s: look-up by name does not lead back to it\n", what);
    abort();
}

/* The name as a C string, for the look-ups; the caller frees it. Without memory, NULL. */
static char *copy_name(gguf_string name)
{
    char *copy = malloc(name.length + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, name.data, name.length);
    copy[name.length] = '\0';
    return copy;
}

static uint64_t read_value(const gguf_file *file, const gguf_value *value)
{
    uint64_t sum = read_bytes(value->type, value->key.data, value->key.length);
    char *key = copy_name(value->key);
    if (key != NULL) must_be(gguf_find_value(file, key), value, "key");
    free(key);
    for (uint64_t i = 0; i < value->count; i++) {
        if (value->strings != NULL) {
            sum = read_bytes(sum, value->strings[i].data, value->strings[i].length);
            continue;
        }
        const double number = gguf_number_at(value, i);
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        sum = mix(sum, bits);
        if (value->element_type != GGUF_FLOAT32 && value->element_type != GGUF_FLOAT64)
            sum = mix(sum, (uint64_t)gguf_integer_at(value, i));
    }
    return sum;
}

static uint64_t read_tensor(const gguf_file *file, const gguf_tensor *tensor)
{
    const unsigned char *data = tensor->data;
    char *name = copy_name(tensor->name);
    if (name != NULL) must_be(gguf_find_tensor(file, name), tensor, "tensor");
    free(name);
    const uint64_t sum = read_bytes(tensor->n_elements, tensor->name.data, tensor->name.length);
    return mix(mix(sum, data[0]), data[tensor->n_bytes - 1]);
}

uint64_t support_gguf_read_all(const gguf_file *file)
{
    uint64_t sum = mix(gguf_size(file), gguf_version(file) + gguf_alignment(file));
    for (uint32_t i = 0; i < gguf_count_values(file); i++)
        sum = mix(sum, read_value(file, gguf_value_at(file, i)));
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++)
        sum = mix(sum, read_tensor(file, gguf_tensor_at(file, i)));
    return sum;
}

bool support_gguf_is_refused(const char *what, const unsigned char *bytes, size_t size,
                             cellar_status status, size_t at, const char *word)
{
    unsigned char *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) return false;
    if (size > 0) memcpy(copy, bytes, size);
    cellar_error error = {.status = CELLAR_OK, .at = -1};
    gguf_file *file = NULL;
    const clock_t before = clock();
    const cellar_status got = gguf_open_memory(copy, size, &file, &error);
    const double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    char place[32];
    snprintf(place, sizeof place, "(byte %zu)", at);
    const bool is_right = got == status && error.status == status && error.at == (int64_t)at &&
                          file == NULL && strstr(error.message, word) != NULL &&
                          strstr(error.message, place) != NULL && seconds < 0.1;
    if (!is_right)
        fprintf(stderr, "%s: status %d at %lld in %.3f s: %s\n   expected %d at %zu, \"%s\"\n",
                what, got, (long long)error.at, seconds, error.message, status, at, word);
    gguf_close(file);
    free(copy);
    return is_right;
}

/* ---- little memory -------------------------------------------------------------------------- */

/* What the process has mapped now, in bytes; 0: not known. */
static rlim_t mapped_now(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    const int n = fscanf(file, "%lu", &pages);
    fclose(file);
    return n == 1 ? (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Sanitizers and valgrind take address space of their own, so a limit says nothing about ours. */
static bool is_watched(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    return HAS_SANITIZER || (preloaded != NULL && strstr(preloaded, "vgpreload") != NULL);
}

int support_gguf_in_little_memory(size_t more, int (*task)(void))
{
    const rlim_t now = mapped_now();
    if (is_watched() || now == 0) return -1;
    const pid_t child = fork();
    if (child < 0) return -1;
    if (child == 0) {
        const struct rlimit limit = {now + more, now + more};
        _exit(setrlimit(RLIMIT_AS, &limit) == 0 ? task() : 98);
    }
    int result = 0;
    if (waitpid(child, &result, 0) != child) return 97;
    return WIFEXITED(result) ? WEXITSTATUS(result) : 96;
}
