/*
 * chat_map.c: /memory: the cells, drawn.
 *
 * Every cell is a letter: of the conversation that holds it, + if several do, # if only a checkpoint
 * does, . if nobody does. Runs say who holds what (cellar_visit_runs), cells what is held at all. A
 * large memory is drawn with several cells to a letter, the commonest of them, so that a map never
 * has more than a screen. On a terminal the letters have the colours of their conversations.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/chat.h"
#include "report.h"

#define COLUMNS 64u
#define MOST_LINES 16u

/* What a cell is; below N_LETTERS: of that conversation. */
enum { N_LETTERS = 26, SHARED = 26, CHECKPOINT, FREE, N_KINDS };

typedef struct map {
    const dialogues *all;
    uint32_t group, n_cells;
    unsigned char *kinds; /* [n_cells] */
    uint32_t *n_own;      /* [dialogues] cells that it holds alone */
    uint32_t *n_shared;   /* [dialogues] cells that others hold too */
    uint32_t counts[N_KINDS];
} map;

static unsigned index_of(const dialogues *all, cellar_seq seq)
{
    for (uint32_t i = 0; i < all->n; i++) {
        if (all->list[i]->seq == seq) {
            return i;
        }
    }
    return all->n;
}

static bool mark_cell(void *context, const cellar_cell *cell)
{
    map *m = context;
    if (cell->group == m->group && cell->cell < m->n_cells) {
        m->kinds[cell->cell] = CHECKPOINT; /* unless a run says otherwise */
    }
    return true;
}

static bool mark_run(void *context, const cellar_run *run)
{
    map *m = context;
    const unsigned letter = index_of(m->all, run->seq) % N_LETTERS;
    for (uint32_t i = 0; run->group == m->group && i < run->len; i++) {
        unsigned char *kind = &m->kinds[run->cell + i];
        *kind = *kind == CHECKPOINT ? (unsigned char)letter : SHARED;
    }
    return true;
}

static bool count_run(void *context, const cellar_run *run)
{
    map *m = context;
    const unsigned at = index_of(m->all, run->seq);
    for (uint32_t i = 0; run->group == m->group && at < m->all->n && i < run->len; i++) {
        *(m->kinds[run->cell + i] == SHARED ? &m->n_shared[at] : &m->n_own[at]) += 1;
    }
    return true;
}

/* The commonest kind of a stretch; of equals, the one that holds something. */
static unsigned commonest(const map *m, uint32_t first, uint32_t n)
{
    uint32_t counts[N_KINDS] = {0};
    for (uint32_t i = first; i < first + n && i < m->n_cells; i++) {
        counts[m->kinds[i]]++;
    }
    unsigned best = 0;
    for (unsigned kind = 1; kind < N_KINDS; kind++) {
        best = counts[kind] > counts[best] ? kind : best;
    }
    return best;
}

static char letter_of(unsigned kind)
{
    return kind == FREE         ? '.'
           : kind == SHARED     ? '+'
           : kind == CHECKPOINT ? '#'
                                : (char)('a' + kind);
}

/* Letters of one kind in its colour. */
static void begin_colour(unsigned kind)
{
    if (kind == FREE) {
        fputs("\x1b[2m", stdout);
    } else if (kind == SHARED) {
        fputs("\x1b[1;37m", stdout);
    } else if (kind == CHECKPOINT) {
        fputs("\x1b[33m", stdout);
    } else {
        static const int colours[] = {32, 36, 35, 34, 31};
        printf("\x1b[%dm", colours[kind % 5]);
    }
}

static void draw(const map *m, bool is_coloured)
{
    const uint32_t most = COLUMNS * MOST_LINES;
    const uint32_t step = m->n_cells <= most ? 1 : (m->n_cells + most - 1) / most;
    if (step > 1) {
        printf("each letter stands for %" PRIu32 " cells\n", step);
    }
    for (uint32_t line = 0; line < m->n_cells; line += COLUMNS * step) {
        unsigned shown = N_KINDS;
        fputs("  ", stdout);
        for (uint32_t i = line; i < line + COLUMNS * step && i < m->n_cells; i += step) {
            const unsigned kind = commonest(m, i, step);
            if (is_coloured && kind != shown) {
                fputs("\x1b[0m", stdout);
                begin_colour(kind);
                shown = kind;
            }
            fputc(letter_of(kind), stdout);
        }
        fputs(is_coloured ? "\x1b[0m\n" : "\n", stdout);
    }
}

static const char *name_of(const cellar_group_info *info)
{
    return info->kind == CELLAR_LAYER_RECURRENT      ? "states"
           : info->window.kind != CELLAR_WINDOW_NONE ? "cells of a window"
                                                     : "cells";
}

static void tell_group(map *m, const cellar_group_info *info, bool is_coloured)
{
    for (uint32_t i = 0; i < m->n_cells; i++) {
        m->counts[m->kinds[i]]++;
    }
    printf("%" PRIu32 " %s for %" PRIu32 " layer%s: %" PRIu32 " used, %" PRIu32 " free, %" PRIu32
           " shared, %" PRIu32 " held by checkpoints alone\n",
           m->n_cells, name_of(info), info->n_layers, chat_plural(info->n_layers), info->n_used,
           info->n_free, m->counts[SHARED], m->counts[CHECKPOINT]);
    draw(m, is_coloured);
}

/* One group; false: no memory. */
static bool show_group(chat *c, uint32_t group, bool is_coloured, map *m)
{
    cellar_memory *memory = engine_memory(c->engine);
    cellar_group_info info;
    if (cellar_get_group(memory, group, &info, NULL) != CELLAR_OK) {
        return true;
    }
    memset(m->counts, 0, sizeof m->counts);
    m->group = group;
    m->n_cells = info.n_cells;
    m->kinds = malloc((size_t)info.n_cells + 1);
    if (m->kinds == NULL) {
        return false;
    }
    memset(m->kinds, FREE, info.n_cells);
    if (cellar_visit_cells(memory, mark_cell, m, NULL) == CELLAR_OK &&
        cellar_visit_runs(memory, -1, mark_run, m, NULL) == CELLAR_OK &&
        cellar_visit_runs(memory, -1, count_run, m, NULL) == CELLAR_OK) {
        tell_group(m, &info, is_coloured);
    }
    free(m->kinds);
    return true;
}

static void tell_conversations(const chat *c, const map *m)
{
    for (uint32_t i = 0; i < c->all.n; i++) {
        const dialogue *d = c->all.list[i];
        cellar_sequence_info info;
        if (cellar_get_sequence(engine_memory(c->engine), d->seq, &info, NULL) != CELLAR_OK) {
            continue;
        }
        printf("  %c %s: %" PRIu32 " token%s, %" PRIu32 " in cells of its own, %" PRIu32
               " in shared ones, %" PRIu32 " checkpoint%s\n",
               letter_of(i % N_LETTERS), d->name, dialogue_held(&c->all, d),
               chat_plural(dialogue_held(&c->all, d)), m->n_own[i], m->n_shared[i],
               info.n_checkpoints, chat_plural(info.n_checkpoints));
    }
    puts("  + shared, # held by a checkpoint, . free");
}

void chat_map(chat *c)
{
    map m = {.all = &c->all};
    m.n_own = calloc((size_t)c->all.n + 1, sizeof *m.n_own);
    m.n_shared = calloc((size_t)c->all.n + 1, sizeof *m.n_shared);
    bool is_good = m.n_own != NULL && m.n_shared != NULL;
    const uint32_t n = cellar_count_groups(engine_memory(c->engine));
    for (uint32_t group = 0; is_good && group < n; group++) {
        is_good = show_group(c, group, terminal_has_colour(stdout), &m);
    }
    if (is_good) {
        tell_conversations(c, &m);
    } else {
        cellar_error error;
        report(&error, CELLAR_NO_MEMORY, -1, "no memory for the map");
        chat_fail(c, NULL, &error);
    }
    free(m.n_own);
    free(m.n_shared);
}
