/*
 * bench_memory.c: what the operations of a memory cost, what it takes, and how fast attention is.
 *
 *   bench_memory [--json] [--quick]
 *
 * Sections: operations on sequences, in pools of 4,096 to 1,048,576 cells that hold 1, 64 and 1024
 * sequences (support_operations.c); windows, states, checkpoints and masks (support_kinds.c); bytes of
 * bookkeeping, which are exact; attention over rows of three types (support_attention.c). Before
 * anything is timed its result is checked, and cellar_check must find nothing; else the program exits
 * with 1. Figures are medians, +- is the spread of the middle half. Nothing here fails for being slow.
 */
#include <stdio.h>
#include <string.h>

#include "support_bench.h"

enum { N_POOLS = 4, N_COUNTS = 3 };

static const uint32_t pools[N_POOLS] = {4096, 32768, 131072, 1048576};
static const uint32_t counts[N_COUNTS] = {1, 64, 1024};

/* ---- tables ---------------------------------------------------------------------------------- */

static bool is_in(const figure *f, const char *section)
{
    return strcmp(f->section, section) == 0;
}

static double spread(const figure *f)
{
    return f->median > 0 ? 50 * (f->high - f->low) / f->median : 0;
}

static const figure *find(const figures *all, const char *name, uint32_t cells, uint32_t sequences)
{
    for (uint32_t i = 0; i < all->n; i++) {
        const figure *f = &all->item[i];
        if (is_in(f, "operations") && f->cells == cells && f->sequences == sequences &&
            strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}

static void print_operations(const figures *all, uint32_t sequences)
{
    printf("ns per call in a memory of %u sequence%s\n  %-28s", sequences,
           sequences == 1 ? "" : "s", "cells");
    for (uint32_t p = 0; p < N_POOLS; p++)
        printf(" %17u", pools[p]);
    printf("\n");
    for (uint32_t i = 0; i < all->n; i++) { /* every name once: at the first pool */
        const figure *first = &all->item[i];
        if (!is_in(first, "operations") || first->cells != pools[0] ||
            first->sequences != sequences)
            continue;
        printf("  %-28s", first->name);
        for (uint32_t p = 0; p < N_POOLS; p++) {
            const figure *f = find(all, first->name, pools[p], sequences);
            printf(" %10.0f +-%3.0f%%", f->median, spread(f));
        }
        printf("\n");
    }
    printf("\n");
}

static void print_kinds(const figures *all)
{
    printf("ns per call in other memories            cells or states  sequences\n");
    for (uint32_t i = 0; i < all->n; i++) {
        const figure *f = &all->item[i];
        if (is_in(f, "kinds"))
            printf("  %-40s %12u %10u %12.0f +-%3.0f%%\n", f->name, f->cells, f->sequences,
                   f->median, spread(f));
    }
    printf("\nbytes of bookkeeping\n");
    for (uint32_t i = 0; i < all->n; i++)
        if (is_in(&all->item[i], "bytes"))
            printf("  %-40s %12.2f\n", all->item[i].name, all->item[i].median);
}

static void print_attention(const figures *all)
{
    printf("\nattention of one layer, 9 heads on 3 of 64, one thread, %s\n", all->cpu);
    printf("  %-20s %6s %7s %14s %16s %13s\n", "rows", "depth", "tokens", "us per call", "GFLOP/s",
           "GB/s of rows");
    for (uint32_t i = 0; i < all->n; i++) {
        const figure *f = &all->item[i];
        if (is_in(f, "attention"))
            printf("  %-20s %6u %7u %14.1f +-%3.0f%% %10.2f %13.2f\n", f->name, f->cells,
                   f->sequences, f->median / 1000, spread(f), f->gflops, f->gbytes);
    }
}

static void print_tables(const figures *all)
{
    for (uint32_t c = 0; c < N_COUNTS; c++)
        print_operations(all, counts[c]);
    print_kinds(all);
    print_attention(all);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void print_json(const figures *all)
{
    printf("{\"cpu\": \"%s\", \"samples\": %u, \"figures\": [", all->cpu, all->n_samples);
    for (uint32_t i = 0; i < all->n; i++) {
        const figure *f = &all->item[i];
        printf("%s\n  {\"section\": \"%s\", \"name\": \"%s\", \"unit\": \"%s\"", i ? "," : "",
               f->section, f->name, f->unit);
        bool is_attention = is_in(f, "attention");
        if (f->cells > 0)
            printf(", \"%s\": %u, \"%s\": %u", is_attention ? "depth" : "cells", f->cells,
                   is_attention ? "tokens" : "sequences", f->sequences);
        printf(", \"median\": %.2f, \"low\": %.2f, \"high\": %.2f", f->median, f->low, f->high);
        if (is_attention) printf(", \"gflops\": %.3f, \"gbytes\": %.3f", f->gflops, f->gbytes);
        printf("}");
    }
    printf("\n]}\n");
}

int main(int argc, char **argv)
{
    static figures all = {.n_samples = BENCH_MOST_SAMPLES, .cpu = ""};
    static const cellar_type types[] = {CELLAR_F16, CELLAR_Q8_0, CELLAR_Q4_0};
    bool is_json = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            is_json = true;
        else if (!strcmp(argv[i], "--quick"))
            all.n_samples = 5;
        else
            return fprintf(stderr, "usage: bench_memory [--json] [--quick]\n"), 2;
    }
    for (uint32_t p = 0; p < N_POOLS; p++)
        for (uint32_t c = 0; c < N_COUNTS; c++)
            bench_operations(&all, pools[p], counts[c]);
    for (uint32_t c = 0; c < N_COUNTS; c++)
        bench_window(&all, counts[c]);
    for (uint32_t c = 0; c < N_COUNTS; c++)
        bench_recurrent(&all, counts[c]);
    bench_checkpoints(&all);
    for (uint32_t p = 0; p < 2; p++)
        bench_masks(&all, pools[p]);
    bench_bytes(&all);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        bench_attention(&all, types[t], 4096);
    (is_json ? print_json : print_tables)(&all);
    return 0;
}
