/*
 * seeds_session.c: the first inputs of fuzz_session, written into a folder.
 *
 *     seeds_session fuzz/corpus/session
 *
 * For each kind of small memory: its session as a file, and the same in sections; with facts, notes
 * and logs. The corpus is checked in; this makes it anew when the format changes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_session.h"
#include "support_session_worlds.h"

static void must(bool is_so, const char *what)
{
    if (is_so) return;
    fprintf(stderr, "seeds_session: %s\n", what);
    exit(1);
}

static void write_seed(const char *folder, const char *name, int kind, const unsigned char *choices,
                       const parcel *rest)
{
    char path[4096];
    must(snprintf(path, sizeof path, "%s/%s%d", folder, name, kind) < (int)sizeof path, "a name");
    FILE *file = fopen(path, "wb");
    must(file && fwrite(choices, 1, 4, file) == 4 &&
             fwrite(rest->bytes, 1, rest->size, file) == rest->size && fclose(file) == 0,
         path);
}

/* The sections one behind the other, as the fuzz target takes them. */
static void in_sections(const parcel *file, parcel *to)
{
    static parts list;
    parts_take(&list, file);
    to->bytes = malloc(file->size + (size_t)list.n * 8);
    must(to->bytes != NULL, "no memory");
    unsigned char *at = to->bytes;
    for (uint32_t i = 0; i < list.n; i++) {
        const part *p = &list.items[i];
        *at++ = (unsigned char)p->entry.kind;
        *at++ = (unsigned char)p->entry.part;
        at = cl_put_u16(at, (uint16_t)p->entry.first);
        at = cl_put_u16(at, (uint16_t)p->entry.count);
        at = cl_put_u16(at, (uint16_t)p->size);
        memcpy(at, p->bytes, p->size);
        at += p->size;
    }
    to->size = (size_t)(at - to->bytes);
    parts_free(&list);
}

static void save_world(world_kind kind, parcel *to)
{
    static const cellar_token tokens[] = {100, 101, 102, 103, 104, -1};
    const cellar_note facts[] = {{"architecture", "tiny", 4}, {"weights", "\0\1\2\3\4\5", 6}};
    const cellar_note notes[] = {{"title", "A story", 7}, {"nothing", NULL, 0}};
    const cellar_log logs[] = {{.seq = 0, .n_tokens = 5, .tokens = tokens},
                               {.seq = 3, .n_tokens = 6, .tokens = tokens}};
    cellar_save_options options = cellar_save_options_init();
    cellar_error error = {.message = ""};
    drive d;
    options.facts = facts;
    options.notes = notes;
    options.logs = logs;
    options.n_facts = options.n_notes = options.n_logs = 2;
    must(world_open(&d, kind, 0, NULL), "a memory");
    world_fill(&d, kind);
    must(parcel_write(to, d.memory, &options, &error) == CELLAR_OK, error.message);
    drive_close(&d);
}

int main(int argc, char **argv)
{
    if (argc != 2) return fprintf(stderr, "usage: seeds_session FOLDER\n"), 2;
    for (int kind = 0; kind < WORLD_KINDS; kind++) {
        const unsigned char world = (unsigned char)kind, filled = 0x80 | 8;
        parcel file = {NULL, 0, 0}, sections = {NULL, 0, 0};
        save_world((world_kind)kind, &file);
        in_sections(&file, &sections);
        write_seed(argv[1], "file", kind, (const unsigned char[]){0, world, 0, 0}, &file);
        write_seed(argv[1], "mended", kind,
                   (const unsigned char[]){1, (unsigned char)(world | filled), 255, 0}, &file);
        write_seed(argv[1], "sections", kind, (const unsigned char[]){2, world, 0, 0}, &sections);
        parcel_free(&file);
        parcel_free(&sections);
    }
    return 0;
}
