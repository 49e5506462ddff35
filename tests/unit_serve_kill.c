/*
 * unit_serve_kill.c: a server that is killed under load, again and again, over one folder of stored sequences.
 *
 *   unit_serve_kill [--kills N] [--seed N]
 *
 * The server is a child, with so few cells and so little RAM that under load it is always writing files. It is killed at a
 * random moment; in some rounds a file is then damaged on purpose. The next one has to start on the same folder, and
 * every answer has to be what the model writes alone: a file that is not whole is never taken for what it says. That files
 * are used at all is counted, and that they stay within their limit is looked up.
 */
#define _XOPEN_SOURCE 700

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "model/random.h"
#include "support_folder.h"
#include "support_http.h"

#define N_KINDS 16u
#define N_CLIENTS 4u
#define N_TOKENS 8u                    /* of each answer */
#define DISK_BYTES (UINT64_C(3) << 20) /* not enough for all kinds */

static unsigned n_kills = 5, first_seed = 1;

/* ---- what is asked -------------------------------------------------------------------------- */

static char *wanted[N_KINDS];

/* Prompts of about a hundred tokens; each second one begins like the one before it. */
static char *body_of(unsigned k)
{
    uint64_t random = random_mix(k / 2, 5);
    char *body = malloc(2048), *at = body;
    assert_non_null(body);
    at += sprintf(at, "{\"prompt\":[1");
    for (unsigned i = 0; i < 100; i++) {
        const unsigned token = 260 + random_below(&random, 1000);
        at += sprintf(at, ",%u", i < 80 ? token : token + k % 2);
    }
    sprintf(at, "],\"n_predict\":%u,\"temperature\":0,\"ignore_eos\":true}", N_TOKENS);
    return body;
}

/* Ask; status 0: the server is gone, or went away meanwhile. */
static http_answer ask(const served *its, unsigned k)
{
    http_answer none = {.status = 0};
    char *body = body_of(k), head[128];
    const int n = snprintf(head, sizeof head,
                           "POST /completion HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                           "Content-Length: %zu\r\n\r\n",
                           strlen(body));
    const int socket_ = http_try_to_connect(its);
    if (socket_ >= 0) {
        http_send(socket_, head, (size_t)n);
        http_send(socket_, body, strlen(body));
        none = http_receive(socket_);
        close(socket_);
    }
    free(body);
    return none;
}

static served_options options_of_server(void)
{
    served_options options = served_defaults();
    options.n_cells = 256; /* two and a half of them */
    options.reuse.ram_bytes = 1 << 19;
    options.reuse.folder = folder_name;
    options.reuse.disk_bytes = DISK_BYTES;
    return options;
}

static void learn_what_is_wanted(void)
{
    served its;
    served_options options = served_defaults();
    served_start(&its, &options);
    for (unsigned k = 0; k < N_KINDS; k++) {
        http_answer a = ask(&its, k);
        assert_int_equal(a.status, 200);
        wanted[k] = strdup(json_text_at(a.json, "content"));
        http_forget(&a);
    }
    served_stop(&its);
}

/* ---- the server that is killed -------------------------------------------------------------- */

typedef struct child {
    pid_t id;
    served its; /* only its port */
} child;

static void begin(child *c)
{
    int line[2];
    assert_int_equal(pipe(line), 0);
    c->id = fork();
    assert_true(c->id >= 0);
    if (c->id == 0) {
        const served_options options = options_of_server();
        served its;
        close(line[0]);
        served_start(&its, &options);
        (void)!write(line[1], &its.port, sizeof its.port);
        for (;;) {
            pause();
        }
    }
    close(line[1]);
    c->its = (served){.file = NULL};
    /* Nothing comes if it could not start. */
    assert_int_equal(read(line[0], &c->its.port, sizeof c->its.port), sizeof c->its.port);
    close(line[0]);
}

static void end(child *c)
{
    int status;
    kill(c->id, SIGKILL);
    assert_int_equal(waitpid(c->id, &status, 0), c->id);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- clients -------------------------------------------------------------------------------- */

typedef struct client {
    pthread_t thread;
    const served *its;
    uint64_t random;
    atomic_bool *is_over;
    unsigned n_right, n_from_disk;
    char wrong[256];
} client;

static void look_at(client *c, unsigned k, const http_answer *a)
{
    if (a->status != 200) {
        snprintf(c->wrong, sizeof c->wrong, "%d: %.200s", a->status, a->body);
    } else if (strcmp(json_text_at(a->json, "content"), wanted[k]) != 0) {
        snprintf(c->wrong, sizeof c->wrong, "%u: %.100s, not %.100s", k,
                 json_text_at(a->json, "content"), wanted[k]);
    }
    c->n_right++;
    c->n_from_disk += strcmp(json_text_at(a->json, "cellar.source"), "disk") == 0;
}

static void *run_client(void *argument)
{
    client *c = argument;
    while (!atomic_load(c->is_over) && c->wrong[0] == '\0') {
        const unsigned k = random_below(&c->random, N_KINDS);
        http_answer a = ask(c->its, k);
        if (a.json != NULL) { /* else the server was killed while it answered */
            look_at(c, k, &a);
        }
        http_forget(&a);
    }
    return NULL;
}

/* ---- files ---------------------------------------------------------------------------------- */

typedef struct files {
    uint64_t n_bytes;
    unsigned n;
    unsigned damage; /* the file of this number, if below n */
    uint64_t random;
} files;

static void flip_a_bit(const char *path, uint64_t size, uint64_t *random)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    const long at = (long)random_below(random, (uint32_t)size);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    fputc(byte ^ (1 << random_below(random, 8)), file);
    assert_int_equal(fclose(file), 0);
}

static void look_at_file(const char *name, void *context)
{
    files *f = context;
    struct stat its;
    assert_int_equal(stat(folder_path(name), &its), 0);
    f->n_bytes += (uint64_t)its.st_size;
    if (f->n++ == f->damage && its.st_size > 0) {
        flip_a_bit(folder_path(name), (uint64_t)its.st_size, &f->random);
    }
}

/* ---- the test ------------------------------------------------------------------------------- */

/* Every kind once, of a server that is not disturbed. */
static void ask_everything(const served *its, client *total)
{
    for (unsigned k = 0; k < N_KINDS; k++) {
        http_answer a = ask(its, k);
        look_at(total, k, &a);
        http_forget(&a);
        assert_string_equal(total->wrong, "");
    }
}

static void load_until_killed(child *victim, uint64_t *random, client *total)
{
    client clients[N_CLIENTS];
    atomic_bool is_over = false;
    for (unsigned i = 0; i < N_CLIENTS; i++) {
        clients[i] =
            (client){.its = &victim->its, .random = random_next(random), .is_over = &is_over};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
    }
    const struct timespec moment = {.tv_nsec = (long)(20 + random_below(random, 250)) * 1000000};
    nanosleep(&moment, NULL);
    end(victim);
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < N_CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        assert_string_equal(clients[i].wrong, "");
        total->n_right += clients[i].n_right;
        total->n_from_disk += clients[i].n_from_disk;
    }
}

static void a_killed_server_starts_again_and_serves_nothing_damaged(void **state)
{
    (void)state;
    uint64_t random = random_mix(first_seed, 77);
    client total = {.n_right = 0};
    unsigned n_damaged = 0;
    learn_what_is_wanted();
    for (unsigned i = 0; i < n_kills; i++) {
        child victim;
        begin(&victim);
        ask_everything(&victim.its, &total);
        load_until_killed(&victim, &random, &total);
        files f = {.damage = UINT32_MAX};
        folder_for_each(look_at_file, &f);
        /* the limit, and one file that is being written */
        assert_true(f.n_bytes <= DISK_BYTES + (1 << 20));
        if (i % 2 == 1 && f.n > 0) {
            f = (files){.damage = random_below(&random, f.n), .random = random_next(&random)};
            folder_for_each(look_at_file, &f);
            n_damaged++;
        }
    }
    child last;
    begin(&last);
    ask_everything(&last.its, &total);
    end(&last);
    print_message("%u kills, %u files damaged, %u answers right, %u of them partly from disk\n",
                  n_kills, n_damaged, total.n_right, total.n_from_disk);
    assert_true(total.n_from_disk > n_kills);
    for (unsigned k = 0; k < N_KINDS; k++) {
        free(wanted[k]);
    }
}

static int empty_folder(void **state)
{
    folder_for_each(folder_remove, NULL);
    return folder_tear_down(state);
}

int main(int n, char **arguments)
{
    for (int i = 1; i + 1 < n; i += 2) {
        const unsigned value = (unsigned)strtoul(arguments[i + 1], NULL, 10);
        n_kills = strcmp(arguments[i], "--kills") == 0 ? value : n_kills;
        first_seed = strcmp(arguments[i], "--seed") == 0 ? value : first_seed;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_killed_server_starts_again_and_serves_nothing_damaged,
                                        folder_set_up, empty_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
