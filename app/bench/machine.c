/*
 * machine.c: what the system says about the machine.
 *
 * Names come from files and calls of the system and end up on terminals and in JSON, so all but printable
 * ASCII is replaced. The name of the host is not asked for. What cannot be found is "unknown", or 0.
 */
#define _GNU_SOURCE /* sched_getaffinity */

#include "bench/machine.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cpu_choice.h"
#include "report.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

static void make_printable(char *text)
{
    for (char *c = text; *c != '\0'; c++) {
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    }
}

/* What stands behind the colon of the first line that begins with `key` in a file of such lines. */
static bool find_line(const char *path, const char *key, char *to, size_t size)
{
    char line[256];
    bool is_found = false;
    FILE *file = fopen(path, "r");
    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) == 0 && colon != NULL) {
            const char *value = colon + 1 + strspn(colon + 1, " \t");
            snprintf(to, size, "%s", value);
            to[strcspn(to, "\n")] = '\0';
            is_found = to[0] != '\0';
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return is_found;
}

static uint32_t count_processors(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) {
        return (uint32_t)CPU_COUNT(&set);
    }
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (uint32_t)n;
}

machine_description machine_describe(uint32_t cpu_mask)
{
    machine_description m = {.compiler = COMPILER,
                             .version = cellar_version(),
                             .kernels = cpu_choice_name(cpu_mask),
                             .n_processors = count_processors()};
    struct utsname names;
    if (!find_line("/proc/cpuinfo", "model name", m.processor, sizeof m.processor)) {
        snprintf(m.processor, sizeof m.processor, "unknown");
    }
    snprintf(m.system, sizeof m.system, "unknown");
    if (uname(&names) == 0) {
        snprintf(m.system, sizeof m.system, "%.40s %.70s %.40s", names.sysname, names.release,
                 names.machine);
    }
    make_printable(m.processor);
    make_printable(m.system);
    const long n_pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    m.memory = n_pages > 0 && page > 0 ? (uint64_t)n_pages * (uint64_t)page : 0;
    return m;
}

uint64_t machine_free_bytes(void)
{
    char text[64];
    uint64_t kibibytes = 0;
    if (find_line("/proc/meminfo", "MemAvailable", text, sizeof text) &&
        sscanf(text, "%" SCNu64, &kibibytes) == 1 && kibibytes <= UINT64_MAX / 1024) {
        return kibibytes * 1024;
    }
    return UINT64_MAX;
}

cellar_status machine_has_room(uint64_t bytes, const char *what, cellar_error *error)
{
    const uint64_t there = machine_free_bytes();
    if (bytes <= there) {
        return CELLAR_OK;
    }
    return report(error, CELLAR_NO_MEMORY, -1,
                  "%s would take %" PRIu64 " MiB, and %" PRIu64 " MiB of memory are free: ask for "
                  "less",
                  what, (bytes >> 20) + 1, there >> 20);
}
