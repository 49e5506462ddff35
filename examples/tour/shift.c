/*
 * shift.c: a conversation that is longer than its memory.
 *
 * When the cells are full, cellar_begin says CELLAR_FULL and has changed nothing. The engine makes room:
 * keep the beginning, forget the oldest part of the rest, and let what follows stand where that was. No
 * row is touched; the keys are met as if they had been rotated for their new positions.
 */
#include "toy_model.h"

int main(void)
{
    cellar_layer layer = toy_layer();
    cellar_config config = toy_config(&layer, 64);
    cellar_memory *memory;
    cellar_statistics statistics;
    cellar_error error;
    char guess[2] = "", text[400] = "sing: row, row, row your boat. row, ";
    uint32_t from = 0;
    int n_shifts = 0;
    must(cellar_create(&config, &memory, &error), &error);

    while (strlen(text) < 150) {
        cellar_status status = toy_read(memory, 0, text, from, guess, &error);
        if (status == CELLAR_FULL) {
            cellar_pos n_forgotten;
            must(cellar_shift_context(memory, 0, 6, 0, &n_forgotten, &error), &error);
            printf("full: forgot %d positions behind the first 6\n", n_forgotten);
            n_shifts++;
            continue;
        }
        must(status, &error);
        from = (uint32_t)strlen(text);
        strcat(text, guess);
    }

    must(cellar_stats(memory, &statistics, &error), &error);
    printf("%s\n", text);
    printf("%zu letters, %u cells, next position %d, rows moved: %llu\n", strlen(text),
           statistics.n_cells, cellar_position_max(memory, 0) + 1,
           (unsigned long long)statistics.rows_moved);
    cellar_destroy(memory);
    return n_shifts > 0 ? 0 : 1;
}
