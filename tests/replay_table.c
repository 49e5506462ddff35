/*
 * replay_table.c: the worst differences of a trace on one page.
 *
 *     worst differences in standard deviations
 *                    f32      f16      q8_0/f32
 *     a_plain        7.2e-06  0.0021   0.016
 *     e_shift        6.2e-06  0.0022   -
 *
 * A line for each kind of run, a column for each pair of row types (K/V, one name if they are the same),
 * in the order in which they were met. Skipped runs are not in it. What has no more room (which no
 * trace comes near) is left out, and the table says so.
 */
#include "replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *type_name(cellar_type type)
{
    const char *name = cellar_type_name(type);
    return name == NULL ? "?" : name;
}

/* The index of `name` in a list, to which it is added; REPLAY_TABLE_SIZE: the list is full. */
static uint32_t find_or_add(char (*names)[REPLAY_TABLE_NAME], uint32_t *n, const char *name)
{
    uint32_t i = 0;
    while (i < *n && strncmp(names[i], name, REPLAY_TABLE_NAME - 1) != 0) {
        i++;
    }
    if (i == *n && i < REPLAY_TABLE_SIZE) {
        snprintf(names[i], REPLAY_TABLE_NAME, "%s", name);
        ++*n;
    }
    return i;
}

void replay_table_add(replay_table *table, const char *run, const replay_config *config,
                      double worst)
{
    char rows[REPLAY_TABLE_NAME];
    if (config->k_type == config->v_type) {
        snprintf(rows, sizeof rows, "%s", type_name(config->k_type));
    } else {
        snprintf(rows, sizeof rows, "%s/%s", type_name(config->k_type), type_name(config->v_type));
    }
    uint32_t line = find_or_add(table->runs, &table->n_runs, run);
    uint32_t column = find_or_add(table->rows, &table->n_rows, rows);
    if (line == REPLAY_TABLE_SIZE || column == REPLAY_TABLE_SIZE) {
        table->is_cut = true;
        return;
    }
    table->worst[line][column] = fmax(table->worst[line][column], worst);
    table->is_there[line][column] = true;
}

static void print_field(const replay_table *table, uint32_t column, const char *text)
{
    bool is_last = column + 1 == table->n_rows;
    printf(is_last ? " %s\n" : " %-9s", text);
}

void replay_table_print(const replay_table *table)
{
    if (table->n_runs == 0) {
        return;
    }
    printf("worst differences in standard deviations%s\n%-18s",
           table->is_cut ? ", not all of them" : "", "");
    for (uint32_t column = 0; column < table->n_rows; column++) {
        print_field(table, column, table->rows[column]);
    }
    for (uint32_t line = 0; line < table->n_runs; line++) {
        printf("%-18s", table->runs[line]);
        for (uint32_t column = 0; column < table->n_rows; column++) {
            char text[32] = "-";
            if (table->is_there[line][column]) {
                snprintf(text, sizeof text, "%.2g", table->worst[line][column]);
            }
            print_field(table, column, text);
        }
    }
}
