/*
 * crash.c: a process that is killed while it saves leaves the old session or the new one.
 *
 *   crash [--moments N] [--seed N]
 *
 * Again and again a session is saved, and then a child begins to save the next one over it and is
 * killed at a random moment, anywhere between its first step and a little behind its last. Then the
 * file must open, pass its check, and load as the old session or the new one, to the last byte: what
 * was loaded is written again and compared. Half of the moments are for saving whole, half for
 * appending to a journal. What the children left behind in the folder must be gone after the next
 * save. How long a save takes is measured first, with children that are
 * left alone, so that moments fall into it on any machine.
 *
 * Power failures are not tested: what was written stays in the system's cache here. That everything is
 * on the disk before something refers to it follows from the order of calls (session_file.c).
 */
#define _XOPEN_SOURCE 700
#include "crash.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint32_t n_broken;

void crash_must(bool is_so, const char *what, const cellar_error *error)
{
    if (is_so) return;
    printf("    not so: %s%s%s\n", what, error ? ": " : "", error ? error->message : "");
    n_broken++;
}

/* ---- killing --------------------------------------------------------------------------------- */

double crash_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void wait_until(double moment)
{
    while (crash_now() < moment) { /* sleeping is too coarse for what takes a millisecond */
    }
}

/*
 * Saves in a child, which is killed `after` seconds from the start of that (< 0: never). Returns how
 * long it ran, < 0: it was killed.
 */
static double run_child(const crash_kind *kind, void *world, double after)
{
    int started[2];
    char byte = 0;
    if (pipe(started) != 0) {
        perror("crash: pipe");
        exit(1);
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        kind->begin(world);
        if (write(started[1], &byte, 1) != 1) _exit(3);
        _exit(kind->save(world) ? 0 : 2);
    }
    crash_must(child > 0 && read(started[0], &byte, 1) == 1, "a child starts", NULL);
    const double start = crash_now();
    if (after >= 0) {
        wait_until(start + after);
        kill(child, SIGKILL);
    }
    int status;
    waitpid(child, &status, 0);
    const double seconds = crash_now() - start;
    close(started[0]);
    close(started[1]);
    const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    crash_must(was_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
               "the child saves, or is killed", NULL);
    return was_killed ? -1 : seconds;
}

/* ---- the moments ----------------------------------------------------------------------------- */

/* The median of a few saves. */
static double measure(const crash_kind *kind, void *world)
{
    double seconds[5];
    for (int i = 0; i < 5; i++) {
        kind->prepare(world);
        seconds[i] = run_child(kind, world, -1);
        crash_must(kind->look(world) == CRASH_NEW, "a child that is left alone saves", NULL);
        for (int j = i; j > 0 && seconds[j] < seconds[j - 1]; j--) {
            const double swapped = seconds[j];
            seconds[j] = seconds[j - 1];
            seconds[j - 1] = swapped;
        }
    }
    return seconds[2];
}

static void try_kind(const crash_kind *kind, uint32_t n_moments, uint64_t *random)
{
    void *world = kind->open(random_next(random));
    const double seconds = measure(kind, world);
    uint32_t n[3] = {0}, n_killed = 0, n_left = 0;
    for (uint32_t i = 0; i < n_moments; i++) {
        kind->prepare(world);
        if (kind->count_left(world) != 0) crash_must(false, "a save removes what was left", NULL);
        const double unit = (double)random_below(random, 1 << 20) / (1 << 20); /* spread evenly */
        n_killed += run_child(kind, world, 1.25 * seconds * (i + unit) / n_moments) < 0;
        n_left += kind->count_left(world);
        const crash_outcome outcome = kind->look(world);
        n[outcome]++;
        crash_must(outcome != CRASH_NEITHER, "it is the old session or the new one", NULL);
    }
    printf("%s, %.1f ms: %u moments, %u killed; %u old, %u new, %u neither; %u files left\n",
           kind->name, seconds * 1e3, n_moments, n_killed, n[CRASH_OLD], n[CRASH_NEW],
           n[CRASH_NEITHER], n_left);
    crash_must(n[CRASH_OLD] > 0, "some are killed early enough", NULL);
    kind->prepare(world);
    kind->close(world);
}

int main(int argc, char **argv)
{
    unsigned long moments = 24, seed = (unsigned long)time(NULL);
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--moments") == 0)
            moments = strtoul(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
            seed = strtoul(argv[++i], NULL, 10);
        else
            return fprintf(stderr, "usage: crash [--moments N] [--seed N]\n"), 2;
    }
    printf("crash --moments %lu --seed %lu\n", moments, seed);
    uint64_t random = seed;
    uint32_t n_passed = 0, n_failed = 0;
    for (uint32_t i = 0; i < crash_n_kinds; i++) {
        n_broken = 0;
        try_kind(&crash_kinds[i], (uint32_t)(moments + i) / crash_n_kinds, &random);
        *(n_broken ? &n_failed : &n_passed) += 1;
    }
    printf("%u passed, %u failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}
