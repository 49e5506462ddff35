/*
 * header.c: cellar.h alone, as strict C11, and the program of its first comment.
 *
 * The public header has to compile by itself, first in the file and with -pedantic -Werror. The program that
 * stands at its top is copied here, completed by some keys, values and queries, and has to do what its comments
 * say. The last test reads both files and finds every line of the comment in the copy, in order, so that the
 * two cannot drift apart.
 */
#include "cellar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int n_passed, n_failed, n_skipped;

static void expect(int is_true, const char *what)
{
    if (is_true) {
        n_passed++;
    } else {
        n_failed++;
        printf("FAIL %s\n", what);
    }
}

static int fail(const char *message)
{
    printf("FAIL %s\n0 passed, 1 failed, 0 skipped\n", message);
    return 1;
}

/* What the header's program leaves to its reader: what the model computes. */
static float q[3 * 4 * 64], k[3 * 2 * 64], v[3 * 2 * 64], out[3 * 4 * 64];

static void compute(void)
{
    for (int i = 0; i < 3 * 4 * 64; i++)
        q[i] = (float)sin(0.1 * i);
    for (int i = 0; i < 3 * 2 * 64; i++)
        k[i] = (float)cos(0.2 * i);
    for (int i = 0; i < 3 * 2 * 64; i++)
        v[i] = (float)i / (3 * 2 * 64);
}

/* As it stands in cellar.h, line by line. */
/* clang-format off */
static int run_program(void)
{
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = 4; layer.n_kv_heads = 2; layer.k_size = layer.v_size = 64;
    layer.rope.kind = CELLAR_ROPE_NORMAL;
    cellar_config config = cellar_config_init();
    config.n_layers = 1; config.layers = &layer; config.n_cells = 4096;
    cellar_memory *memory;
    cellar_error error;
    if (cellar_create(&config, &memory, &error) != CELLAR_OK) return fail(error.message);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 3; batch.tokens = (cellar_token[]){11, 12, 13};
    if (cellar_begin(memory, &batch, &error) != CELLAR_OK) return fail(error.message);
    // compute q [3][4][64], k [3][2][64], v [3][2][64], not rotated; micro-batch 0, layer 0:
    compute();
    if (cellar_store(memory, 0, 0, k, v, &error) != CELLAR_OK) return fail(error.message);
    if (cellar_attend(memory, 0, 0, q, out, &error) != CELLAR_OK) return fail(error.message);
    if (cellar_commit(memory, &error) != CELLAR_OK) return fail(error.message);
    // out [3][4][64] is there, sequence 0 holds three tokens; fork it into 7: no row moves
    if (cellar_copy(memory, 0, 7, 0, -1, &error) != CELLAR_OK) return fail(error.message);
    /* clang-format on */

    cellar_statistics statistics;
    expect(cellar_check(memory, &error) == CELLAR_OK, "the memory is sound");
    expect(cellar_position_max(memory, 0) == 2, "sequence 0 ends at position 2");
    expect(cellar_position_max(memory, 7) == 2, "so does its fork");
    expect(cellar_stats(memory, &statistics, &error) == CELLAR_OK && statistics.n_used == 3 &&
               statistics.n_shared == 3,
           "three cells are used, all of them shared");
    cellar_destroy(memory);
    return 0;
}

/* The next line of the file without the spaces around it; false at the end. */
static int next_line(FILE *file, char *line, int size)
{
    if (!fgets(line, size, file)) return 0;
    size_t length = strcspn(line, "\r\n");
    while (length > 0 && line[length - 1] == ' ')
        length--;
    line[length] = '\0';
    const size_t indent = strspn(line, " ");
    memmove(line, line + indent, length - indent + 1);
    return 1;
}

/* Find each line of the header's program in this file, in order. */
static void compare_with_comment(FILE *header, FILE *copy)
{
    char wanted[512], line[512];
    while (next_line(header, wanted, sizeof wanted) && !strstr(wanted, "A WHOLE PROGRAM")) {}
    while (next_line(header, wanted, sizeof wanted) && strcmp(wanted, "*") != 0) {} /* its end */
    int n_lines = 0;
    while (next_line(header, wanted, sizeof wanted) && !strstr(wanted, "RULES THAT HOLD")) {
        char *text = wanted + strspn(wanted, "* ");
        if (!*text) continue;
        int is_found = 0;
        while (!is_found && next_line(copy, line, sizeof line))
            is_found = strcmp(line, text) == 0;
        if (!is_found) {
            printf("not in header.c, or not in this order: %s\n", text);
            expect(0, "the program in cellar.h is the one that was tested");
            return;
        }
        n_lines++;
    }
    expect(n_lines > 15, "the program in cellar.h is the one that was tested");
}

int main(void)
{
    if (run_program() != 0) return 1;
    /* The first token sees itself alone, so its result is its own value, up to the rounding of f16. */
    int is_own = 1;
    for (int i = 0; i < 64; i++)
        is_own = is_own && fabs((double)out[i] - (double)v[i]) <= 1e-3;
    expect(is_own, "the first token attends to itself");
    expect(strcmp(cellar_status_text(CELLAR_FULL), "not enough free cells") == 0,
           "a status has its text");

    FILE *header = fopen("include/cellar.h", "r");
    FILE *copy = fopen("tests/header.c", "r");
    if (header && copy) {
        compare_with_comment(header, copy);
    } else {
        printf("skip: not in the project's folder, the comment is not compared\n");
        n_skipped++;
    }
    if (header) fclose(header);
    if (copy) fclose(copy);
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed ? 1 : 0;
}
