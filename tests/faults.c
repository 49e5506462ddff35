/*
 * faults.c: what happens when something goes wrong: no memory at any moment, numbers that do not
 * fit, wrong arguments everywhere. In each case the call must say so, nothing may have changed, and
 * nothing may be lost.
 *
 * Ends with `N passed, N failed, N skipped`, counting groups; a failed check prints its condition
 * and place. Exits 1 when one failed.
 */
#define _POSIX_C_SOURCE 200809L
#include "faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t n_broken;

void fault_check(bool is_true, const char *text, const char *file, int line, const char *note)
{
    if (is_true) return;
    if (n_broken++ > 20) return;
    const char *slash = strrchr(file, '/');
    printf("    %s:%d: not so%s%s: %s\n", slash ? slash + 1 : file, line, *note ? " in " : "", note,
           text);
}

bool fault_error_fits(const cellar_error *error, cellar_status status)
{
    return status == CELLAR_OK ||
           (error->status == status && memchr(error->message, 0, sizeof error->message) &&
            error->message[0] && !strchr(error->message, '\n'));
}

/* ---- the allocator --------------------------------------------------------------------------- */

static bool refuses(tracker *t)
{
    if (t->is_paused) return false;
    t->n_asked++;
    if (!t->fail_at || t->n_asked < t->fail_at || (t->has_failed && !t->is_persistent))
        return false;
    t->has_failed = true;
    return true;
}

static tracked_block *find_block(tracker *t, const void *address)
{
    for (uint32_t i = 0; i < t->n_blocks; i++)
        if (t->blocks[i].address == address) return &t->blocks[i];
    return NULL;
}

static void *tracked_allocate(void *context, size_t size, size_t align)
{
    tracker *t = context;
    void *address;
    CHECK(size > 0 && align > 0 && (align & (align - 1)) == 0 && align <= 4096);
    if (refuses(t) || t->n_blocks == sizeof t->blocks / sizeof *t->blocks ||
        posix_memalign(&address, align < sizeof(void *) ? sizeof(void *) : align, size) != 0)
        return NULL;
    memset(address, 0xa5, size);
    t->blocks[t->n_blocks++] = (tracked_block){address, size, align};
    t->bytes += size;
    return address;
}

static void tracked_release(void *context, void *address, size_t size)
{
    tracker *t = context;
    tracked_block *block = find_block(t, address);
    CHECK(block && block->size == size);
    if (!block) return;
    t->bytes -= block->size;
    memset(address, 0xdd, block->size);
    free(address);
    *block = t->blocks[--t->n_blocks];
}

static void *tracked_resize(void *context, void *address, size_t old_size, size_t new_size,
                            size_t align)
{
    tracker *t = context;
    tracked_block *block = find_block(t, address);
    CHECK(block && block->size == old_size && block->align == align && new_size > 0);
    if (!block) return NULL;
    void *moved = tracked_allocate(context, new_size,
                                   align); /* always moves: stale pointers show */
    if (moved) {
        memcpy(moved, address, old_size < new_size ? old_size : new_size);
        tracked_release(context, address, old_size);
    }
    return moved;
}

cellar_allocator tracker_allocator(tracker *t)
{
    return (cellar_allocator){tracked_allocate, t->can_resize ? tracked_resize : NULL,
                              tracked_release, t};
}

/* ---- running --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {
    {"an allocation that fails once is survived, and the call works when repeated",
     faults_transient},
    {"when no memory is left for good, failing calls change nothing", faults_persistent},
    {"the same without a resize function", faults_without_resize},
    {"cellar_measure tells what cellar_create asks for, kind by kind", faults_sizes},
    {"sizes that do not fit are refused", faults_large_sizes},
    {"a bad configuration is refused and holds nothing", faults_configurations},
    {"a bad argument of any call gives its status and changes nothing", faults_calls},
    {"no memory at all is an error everywhere", faults_null_memory},
    {"structures of another size are refused", faults_struct_sizes},
};

int main(void)
{
    uint32_t passed = 0, failed = 0;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        n_broken = 0;
        groups[i].run();
        printf("%s %s\n", n_broken ? "FAIL" : "ok  ", groups[i].name);
        fflush(stdout);
        *(n_broken ? &failed : &passed) += 1;
    }
    printf("%u passed, %u failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
