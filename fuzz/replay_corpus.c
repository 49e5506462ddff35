/*
 * replay_corpus.c: run a fuzz target over the files of its corpus, without a fuzzer.
 *
 *     corpus_gguf fuzz/corpus/gguf        every file of the folder
 *     corpus_gguf crash-1234 other-file   just these
 *
 * The Makefile links this main with each fuzz/fuzz_<parser>.c, so that what the fuzzer once found is tested
 * by every `make check`, with any compiler and sanitizer. A target that fails ends the process (that is how
 * fuzz targets report); the name of the file is printed first and flushed, so the last line tells which one.
 * On top of its files, each target gets the empty input and every prefix of each file up to 64 bytes: the
 * cuts inside a header that a corpus seldom holds.
 */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST_PREFIX = 64, LARGEST_FILE = 64 << 20 };

static unsigned n_passed, n_failed;

static void fail(const char *path, const char *why)
{
    printf("FAIL %s: %s\n", path, why);
    n_failed++;
}

/* The whole file; NULL with errno set. *size is its length. */
static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    uint8_t *bytes = NULL;
    struct stat info;
    if (fstat(fileno(file), &info) == 0) {
        if (info.st_size > LARGEST_FILE) {
            errno = EFBIG;
        } else {
            *size = (size_t)info.st_size;
            bytes = malloc(*size + 1);
            if (bytes && fread(bytes, 1, *size, file) != *size) {
                free(bytes);
                bytes = NULL;
                errno = EIO;
            }
        }
    }
    fclose(file);
    return bytes;
}

static void replay_file(const char *path)
{
    size_t size = 0;
    uint8_t *bytes = read_file(path, &size);
    if (!bytes) {
        fail(path, strerror(errno));
        return;
    }
    printf("%s\n", path);
    fflush(stdout);
    for (size_t n = 0; n < size && n <= LONGEST_PREFIX; n++) {
        LLVMFuzzerTestOneInput(bytes, n);
    }
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    n_passed++;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void replay_folder(const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, is_visible, alphasort);
    if (n < 0) {
        fail(folder, strerror(errno));
        return;
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (length < 0 || (size_t)length >= sizeof path) {
            fail(entries[i]->d_name, "the path is too long");
        } else {
            replay_file(path);
        }
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER|FILE...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        struct stat info;
        if (stat(argv[i], &info) != 0) {
            fail(argv[i], strerror(errno));
        } else if (S_ISDIR(info.st_mode)) {
            replay_folder(argv[i]);
        } else {
            replay_file(argv[i]);
        }
    }
    if (n_passed == 0 && n_failed == 0) fail(argv[1], "there is no file here");
    printf("%u passed, %u failed, 0 skipped\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
