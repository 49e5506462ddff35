/*
 * crash_saves.c: the two ways of saving that the crash test interrupts.
 *
 * Whole: two memories, one longer than the other, are saved over each other in turns. Journal: the
 * child reads some more tokens and appends them; if it got through, the parent reads the same tokens,
 * so that it goes on from the same state. Either way the sessions that may be in the file are known
 * as bytes, because the same content is always written as the same bytes.
 */
#define _XOPEN_SOURCE 700
#include "crash.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/drive.h"
#include "support_session.h"

enum { STEP = 128, N_CELLS = 4096, WINDOW = 64, TOKENS_A = 1500, TOKENS_B = 2500, MORE = 100 };

/* What a memory is saved as, as a whole. */
static void write_whole(const cellar_memory *memory, parcel *to)
{
    cellar_error error;
    crash_must(parcel_write(to, memory, NULL, &error) == CELLAR_OK, "a session is written", &error);
}

/* ---- memories -------------------------------------------------------------------------------- */

static void open_memory(drive *d, uint64_t seed)
{
    cellar_config config = cellar_config_init();
    cellar_error error;
    memset(d, 0, sizeof *d);
    d->seed = seed;
    d->n_layers = 2;
    d->layers[0] = drive_layer(4, 4, 32, 32);
    d->layers[1] = drive_layer(4, 2, 32, 32);
    d->layers[1].window.kind = CELLAR_WINDOW_STANDARD;
    d->layers[1].window.size = WINDOW;
    config.n_cells = N_CELLS;
    config.n_ubatch = STEP;
    const cellar_status status = drive_open(d, &config, &error);
    crash_must(status == CELLAR_OK, "a memory is made", &error);
    if (status != CELLAR_OK) exit(1);
}

static void read_tokens(drive *d, uint32_t n)
{
    cellar_sequence_info info;
    cellar_error error;
    uint32_t first = 0;
    if (cellar_get_sequence(d->memory, 0, &info, &error) == CELLAR_OK && info.pos_max >= 0)
        first = (uint32_t)info.pos_max + 1;
    for (uint32_t done = 0, some; done < n; done += some) {
        some = n - done < STEP ? n - done : STEP;
        crash_must(drive_append(d, 0, (cellar_token)(first + done), some, NULL) == CELLAR_OK,
                   "tokens are read", NULL);
    }
}

/* ---- the world ------------------------------------------------------------------------------- */

typedef struct world {
    char folder[64], path[80];
    drive d[2];
    parcel sessions[2], found; /* what the file may be; what it is */
    uint32_t old, n_rounds;    /* which of them is the old one */
    cellar_journal *journal;
} world;

static world *open_world(uint64_t seed)
{
    world *w = drive_grab(1, sizeof *w);
    strcpy(w->folder, "/tmp/cellar-crash-XXXXXX");
    if (!mkdtemp(w->folder)) {
        perror("crash: a folder");
        exit(1);
    }
    snprintf(w->path, sizeof w->path, "%s/session", w->folder);
    for (int i = 0; i < 2; i++)
        open_memory(&w->d[i], seed);
    return w;
}

static void close_world(void *context)
{
    world *w = context;
    cellar_close_journal(w->journal);
    for (int i = 0; i < 2; i++) {
        drive_close(&w->d[i]);
        parcel_free(&w->sessions[i]);
    }
    parcel_free(&w->found);
    unlink(w->path);
    crash_must(rmdir(w->folder) == 0, "nothing but the file is left", NULL);
    free(w);
}

static uint32_t count_left(void *context)
{
    const world *w = context;
    uint32_t n = 0;
    DIR *stream = opendir(w->folder);
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
             strcmp(entry->d_name, "session") != 0;
    if (stream) closedir(stream);
    return n;
}

/* The file, opened, checked, loaded into a memory like the others, and written again. */
static bool find(world *w)
{
    cellar_session *session;
    cellar_error error;
    const cellar_load_options options = cellar_load_options_init();
    cellar_status status = cellar_open_session(w->path, NULL, &session, &error);
    crash_must(status == CELLAR_OK, "the file opens", &error);
    if (status != CELLAR_OK) return false;
    drive d;
    open_memory(&d, w->d[0].seed);
    status = cellar_check_session(session, &error);
    crash_must(status == CELLAR_OK, "the file passes its check", &error);
    if (status == CELLAR_OK) {
        status = cellar_load_session(d.memory, session, &options, &error);
        crash_must(status == CELLAR_OK, "the file loads", &error);
    }
    cellar_close_session(session);
    if (status == CELLAR_OK) write_whole(d.memory, &w->found);
    drive_close(&d);
    return status == CELLAR_OK;
}

static crash_outcome look(void *context)
{
    world *w = context;
    if (!find(w)) return CRASH_NEITHER;
    return parcel_equal(&w->found, &w->sessions[w->old])    ? CRASH_OLD
           : parcel_equal(&w->found, &w->sessions[!w->old]) ? CRASH_NEW
                                                            : CRASH_NEITHER;
}

/* ---- whole ----------------------------------------------------------------------------------- */

static void *open_whole(uint64_t seed)
{
    world *w = open_world(seed);
    read_tokens(&w->d[0], TOKENS_A);
    read_tokens(&w->d[1], TOKENS_B);
    for (int i = 0; i < 2; i++)
        write_whole(w->d[i].memory, &w->sessions[i]);
    return w;
}

static bool save(const world *w, uint32_t i)
{
    const cellar_save_options options = cellar_save_options_init();
    return cellar_save_session(w->d[i].memory, &options, w->path, NULL) == CELLAR_OK;
}

static void prepare_whole(void *context)
{
    world *w = context;
    w->old = !w->old;
    crash_must(save(w, w->old), "the parent saves", NULL);
}

static void begin_whole(void *context)
{
    (void)context;
}

static bool save_whole(void *context)
{
    const world *w = context;
    return save(w, !w->old);
}

/* ---- journal --------------------------------------------------------------------------------- */

static bool save_to_journal(world *w, uint64_t *n)
{
    const cellar_save_options options = cellar_save_options_init();
    return cellar_save_journal(w->journal, &options, n, NULL) == CELLAR_OK;
}

static void *open_journal(uint64_t seed)
{
    world *w = open_world(seed);
    cellar_error error;
    read_tokens(&w->d[0], TOKENS_B);
    read_tokens(&w->d[1], TOKENS_B + MORE);
    crash_must(cellar_open_journal(w->d[0].memory, w->path, &w->journal, &error) == CELLAR_OK,
               "a journal is opened", &error);
    for (int i = 0; i < 2; i++)
        write_whole(w->d[i].memory, &w->sessions[i]);
    return w;
}

/*
 * Shorter again by what a child may have added: the parent's memory never had it. Saved whole if a
 * child got through; in every other round something is appended after that, so that the child finds
 * both of the forms that a file may have.
 */
static void prepare_journal(void *context)
{
    world *w = context;
    w->old = 0;
    for (uint32_t i = 0; i < 1 + w->n_rounds % 2; i++)
        crash_must(save_to_journal(w, NULL), "the parent saves to the journal", NULL);
    w->n_rounds++;
}

static void begin_journal(void *context)
{
    world *w = context;
    read_tokens(&w->d[0], MORE);
}

static bool save_journal(void *context)
{
    world *w = context;
    uint64_t n_written;
    return save_to_journal(w, &n_written) && n_written < w->sessions[0].size / 2;
}

const crash_kind crash_kinds[] = {
    {.name = "whole",
     .open = open_whole,
     .close = close_world,
     .prepare = prepare_whole,
     .begin = begin_whole,
     .save = save_whole,
     .look = look,
     .count_left = count_left},
    {.name = "journal",
     .open = open_journal,
     .close = close_world,
     .prepare = prepare_journal,
     .begin = begin_journal,
     .save = save_journal,
     .look = look,
     .count_left = count_left},
};
const uint32_t crash_n_kinds = sizeof crash_kinds / sizeof *crash_kinds;
