/*
 * bench_session.c: how fast sessions are saved and loaded, against what the machine can do at all.
 *
 *   bench_session [--json] [--quick] [--folder DIR]
 *
 * A model's memory (24 layers, 2 K/V heads of 64 in f16: 12 KiB a token) is saved to a file and loaded
 * from it. In the same run, turn by turn so that all meet the same machine, the same bytes are copied
 * from memory to memory, read from the file, and written and synced to a file. "cached" means that
 * the file is in the system's page cache and the rows of the memory have been used before.
 *
 * Then a conversation of 32,768 tokens is resumed, as a program does it that has just begun: memory
 * made, file opened, loaded, and one token attended in every layer; with the page cache and without.
 * What was loaded is compared with what was saved before anything is timed. Figures are medians, +- is
 * the spread of the middle half; nothing here fails for being slow. Files go to DIR (TMPDIR, /tmp).
 */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/threads.h"
#include "model/random.h"
#include "support_bench.h"

enum {
    LAYERS = 24,
    HEADS = 14,
    KV_HEADS = 2,
    SIZE = 64,
    UBATCH = 512,
    TOKENS = 20480,  /* saved and loaded */
    RESUMED = 32768, /* of the conversation that is resumed */
    PIECE = 1 << 20  /* bytes that are read and written at once */
};

typedef struct session_bench {
    char path[512], plain[512]; /* the session; a file of as many bytes */
    cellar_layer layers[LAYERS];
    float *rows, *q, *out; /* of a micro-batch */
    threads *threads;
    uint32_t n_threads;
} session_bench;

/* ---- memories -------------------------------------------------------------------------------- */

static cellar_memory *create(session_bench *b, uint32_t n_cells)
{
    cellar_config config = cellar_config_init();
    cellar_memory *memory;
    cellar_error error = {0};
    config.n_layers = LAYERS;
    config.layers = b->layers;
    config.n_cells = n_cells;
    config.n_ubatch = UBATCH;
    config.workers = (cellar_workers){b->n_threads, threads_run, b->threads};
    bench_must(cellar_create(&config, &memory, &error), "create", &error);
    return memory;
}

static void read_tokens(session_bench *b, cellar_memory *memory, uint32_t n)
{
    cellar_error error = {0};
    for (uint32_t done = 0; done < n; done += UBATCH) {
        bench_begin(memory, NULL, UBATCH);
        for (uint32_t l = 0; l < LAYERS; l++) {
            const float *rows = b->rows + (done / UBATCH + l) % 7; /* not twice the same */
            bench_must(cellar_store(memory, 0, l, rows, rows + 1, &error), "store", &error);
        }
        bench_must(cellar_commit(memory, &error), "commit", &error);
    }
}

/* One token more, in every layer. */
static void attend_token(session_bench *b, cellar_memory *memory)
{
    cellar_error error = {0};
    bench_begin(memory, NULL, 1);
    for (uint32_t l = 0; l < LAYERS; l++) {
        bench_must(cellar_store(memory, 0, l, b->rows, b->rows, &error), "store", &error);
        bench_must(cellar_attend(memory, 0, l, b->q, b->out, &error), "attend", &error);
    }
    bench_must(cellar_commit(memory, &error), "commit", &error);
}

static void save(const session_bench *b, const cellar_memory *memory)
{
    const cellar_save_options options = cellar_save_options_init();
    cellar_error error = {0};
    bench_must(cellar_save_session(memory, &options, b->path, &error), "save", &error);
}

static void load(const session_bench *b, cellar_memory *memory)
{
    const cellar_load_options options = cellar_load_options_init();
    cellar_session *session;
    cellar_error error = {0};
    bench_must(cellar_open_session(b->path, NULL, &session, &error), "open", &error);
    bench_must(cellar_load_session(memory, session, &options, &error), "load", &error);
    cellar_close_session(session);
}

/* ---- what the machine can do ------------------------------------------------------------------- */

static int open_file(const char *path, int flags)
{
    const int file = open(path, flags | O_CLOEXEC, 0600);
    bench_claim(file >= 0, "files can be opened in the folder (--folder)");
    return file;
}

static size_t size_of(const char *path)
{
    const int file = open_file(path, O_RDONLY);
    const off_t size = lseek(file, 0, SEEK_END);
    close(file);
    bench_claim(size > 0, "the file has bytes");
    return (size_t)size;
}

static void read_file(const char *path, unsigned char *to, size_t size)
{
    const int file = open_file(path, O_RDONLY);
    for (size_t at = 0; at < size;) {
        const ssize_t n = read(file, to + at, size - at < PIECE ? size - at : PIECE);
        bench_claim(n > 0, "the file can be read");
        at += (size_t)n;
    }
    close(file);
}

static void write_file(const char *path, const unsigned char *from, size_t size)
{
    unlink(path); /* as saving does it: into a new file */
    const int file = open_file(path, O_WRONLY | O_CREAT | O_EXCL);
    for (size_t at = 0; at < size;) {
        const ssize_t n = write(file, from + at, size - at < PIECE ? size - at : PIECE);
        bench_claim(n > 0, "the file can be written");
        at += (size_t)n;
    }
    bench_claim(fsync(file) == 0, "the file can be synced");
    close(file);
}

/* Out of the page cache, as far as the system does what it is asked. */
static void drop_from_cache(const char *path)
{
    const int file = open_file(path, O_RDONLY);
    fsync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
}

/* ---- saving and loading ------------------------------------------------------------------------ */

/* A memory that was loaded is saved as the same bytes. */
static void prove(const session_bench *b, cellar_memory *memory, unsigned char *bytes,
                  unsigned char *again, size_t size)
{
    cellar_error error = {0};
    read_file(b->path, bytes, size);
    bench_must(cellar_clear(memory, &error), "clear", &error);
    load(b, memory);
    bench_must(cellar_check(memory, &error), "check", &error);
    save(b, memory);
    bench_claim(size_of(b->path) == size, "what is loaded has the size of what was saved");
    read_file(b->path, again, size);
    bench_claim(memcmp(bytes, again, size) == 0, "what is loaded is what was saved");
}

enum { COPY, READ, LOAD, WRITE, SAVE, WAYS };

static void add_rates(figures *all, double seconds[WAYS][BENCH_MOST_SAMPLES], size_t size)
{
    static const char *const names[WAYS] = {"memcpy", "read", "load, cached", "write + fsync",
                                            "save"};
    for (int way = 0; way < WAYS; way++) {
        const figure what = {.section = "rates", .name = names[way], .unit = "ns", .cells = TOKENS};
        figure *added = bench_add(all, what, seconds[way]);
        added->gbytes = (double)size / added->median;
    }
}

static void bench_rates(session_bench *b, figures *all)
{
    static double ns[WAYS][BENCH_MOST_SAMPLES];
    cellar_memory *memory = create(b, TOKENS + UBATCH);
    cellar_error error = {0};
    read_tokens(b, memory, TOKENS);
    save(b, memory);
    const size_t size = size_of(b->path);
    unsigned char *bytes = bench_allocate(size, 1), *again = bench_allocate(size, 1);
    prove(b, memory, bytes, again, size);
    for (uint32_t i = 0; i < all->n_samples; i++)
        for (int turn = 0; turn < WAYS; turn++) {
            /* What is written last finds the disk busy: both take that place in turns. */
            static const int orders[2][WAYS] = {{COPY, WRITE, READ, LOAD, SAVE},
                                                {COPY, SAVE, READ, LOAD, WRITE}};
            const int way = orders[i % 2][turn];
            if (way == LOAD) bench_must(cellar_clear(memory, &error), "clear", &error);
            const double start = bench_now();
            if (way == COPY) memcpy(again, bytes, size);
            if (way == READ) read_file(b->path, again, size);
            if (way == LOAD) load(b, memory);
            if (way == WRITE) write_file(b->plain, bytes, size);
            if (way == SAVE) save(b, memory);
            ns[way][i] = bench_now() - start;
        }
    add_rates(all, ns, size);
    cellar_destroy(memory);
    free(bytes);
    free(again);
}

/* ---- resuming ---------------------------------------------------------------------------------- */

static void bench_resume(session_bench *b, figures *all)
{
    static double ns[2][BENCH_MOST_SAMPLES];
    static const char *const names[2] = {"resume, file cached", "resume, file not cached"};
    cellar_memory *memory = create(b, RESUMED);
    read_tokens(b, memory, RESUMED);
    save(b, memory);
    cellar_destroy(memory);
    for (uint32_t i = 0; i < all->n_samples; i++)
        for (int is_cold = 0; is_cold < 2; is_cold++) {
            if (is_cold) drop_from_cache(b->path);
            const double start = bench_now();
            memory = create(b, RESUMED + UBATCH);
            load(b, memory);
            attend_token(b, memory);
            ns[is_cold][i] = bench_now() - start;
            cellar_destroy(memory);
        }
    for (int i = 0; i < 2; i++) {
        const figure what = {.section = "resume", .name = names[i], .unit = "ns", .cells = RESUMED};
        figure *added = bench_add(all, what, ns[i]);
        added->gbytes = (double)size_of(b->path) / added->median;
    }
}

/* ---- printing ---------------------------------------------------------------------------------- */

static double spread(const figure *f)
{
    return f->median > 0 ? 50 * (f->high - f->low) / f->median : 0;
}

static void print_table(const figures *all, uint32_t n_threads)
{
    printf("sessions, %d tokens of %d layers, 2 x %d x %d f16, %u thread%s\n", TOKENS, LAYERS,
           KV_HEADS, SIZE, n_threads, n_threads == 1 ? "" : "s");
    for (uint32_t i = 0; i < all->n; i++) {
        const figure *f = &all->item[i];
        printf("  %-24s %6u tokens %9.1f ms +-%3.0f%% %8.2f GB/s", f->name, f->cells,
               f->median / 1e6, spread(f), f->gbytes);
        if (strcmp(f->section, "rates") == 0 && (i % WAYS == LOAD || i % WAYS == SAVE)) {
            const figure *base = f - (i % WAYS == LOAD ? LOAD - COPY : SAVE - WRITE);
            printf("   %.2f of %s", f->gbytes / base->gbytes, base->name);
        }
        printf("\n");
    }
}

static void print_json(const figures *all, uint32_t n_threads)
{
    printf("{\"threads\": %u, \"samples\": %u, \"figures\": [", n_threads, all->n_samples);
    for (uint32_t i = 0; i < all->n; i++) {
        const figure *f = &all->item[i];
        printf("%s\n  {\"section\": \"%s\", \"name\": \"%s\", \"tokens\": %u, \"unit\": \"ns\", "
               "\"median\": %.0f, \"low\": %.0f, \"high\": %.0f, \"gbytes\": %.3f}",
               i ? "," : "", f->section, f->name, f->cells, f->median, f->low, f->high, f->gbytes);
    }
    printf("\n]}");
}

static void open_bench(session_bench *b, const char *folder)
{
    static const size_t n_rows = (size_t)UBATCH * KV_HEADS * SIZE + 8;
    uint64_t seed = 1;
    snprintf(b->path, sizeof b->path, "%s/cellar-bench-%ld.session", folder, (long)getpid());
    snprintf(b->plain, sizeof b->plain, "%s/cellar-bench-%ld.plain", folder, (long)getpid());
    for (uint32_t l = 0; l < LAYERS; l++) {
        b->layers[l] = cellar_layer_init();
        b->layers[l].n_heads = HEADS;
        b->layers[l].n_kv_heads = KV_HEADS;
        b->layers[l].k_size = b->layers[l].v_size = SIZE;
        b->layers[l].rope.kind = CELLAR_ROPE_NEOX;
    }
    b->rows = bench_allocate(n_rows, sizeof *b->rows);
    b->q = bench_allocate(HEADS * SIZE, sizeof *b->q);
    b->out = bench_allocate(HEADS * SIZE, sizeof *b->out);
    for (size_t i = 0; i < n_rows; i++)
        b->rows[i] = random_float(&seed);
    for (size_t i = 0; i < HEADS * SIZE; i++)
        b->q[i] = random_float(&seed);
}

static void run(session_bench *b, uint32_t n_threads, uint32_t n_samples, bool is_json)
{
    figures all = {.n_samples = n_samples, .cpu = ""};
    cellar_error error = {0};
    b->n_threads = n_threads;
    bench_must(threads_create(n_threads, &b->threads, &error), "threads", &error);
    bench_rates(b, &all);
    bench_resume(b, &all);
    threads_destroy(b->threads);
    (is_json ? print_json : print_table)(&all, n_threads);
}

int main(int argc, char **argv)
{
    static session_bench b;
    const char *folder = getenv("TMPDIR");
    uint32_t n_samples = 8;
    bool is_json = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            is_json = true;
        else if (!strcmp(argv[i], "--quick"))
            n_samples = 4;
        else if (!strcmp(argv[i], "--folder") && i + 1 < argc)
            folder = argv[++i];
        else
            return fprintf(stderr, "usage: bench_session [--json] [--quick] [--folder DIR]\n"), 2;
    }
    open_bench(&b, folder && *folder ? folder : "/tmp");
    printf("%s", is_json ? "[" : "");
    run(&b, 1, n_samples, is_json);
    printf("%s", is_json ? "," : "");
    run(&b, 2, n_samples, is_json);
    printf("%s", is_json ? "]\n" : "");
    unlink(b.path);
    unlink(b.plain);
    free(b.rows);
    free(b.q);
    free(b.out);
    return 0;
}
