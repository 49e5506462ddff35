/*
 * streams.c: who shares with whom, and who has cells of its own.
 *
 * Sequences of one pool share cells: a token may even be read for several of them at once. Pools do not share:
 * each has cells that nobody else can take, and copying from one to another copies rows. By default
 * a sequence lives in pool (its name modulo the number of pools).
 */
#include "toy_model.h"

/* Read a text once, as the beginning of three sequences. */
static void read_for_three(cellar_memory *memory, const char *text, const cellar_seq names[3])
{
    cellar_error error;
    cellar_seq seqs[3 * 64];
    uint32_t begin[64 + 1] = {0};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = (uint32_t)strlen(text);
    batch.seqs = seqs;
    batch.seq_begin = begin; /* token i is of seqs[begin[i]] .. seqs[begin[i + 1] - 1] */
    for (uint32_t i = 0; i < batch.n_tokens; i++) {
        memcpy(seqs + 3 * i, names, 3 * sizeof *names);
        begin[i + 1] = 3 * (i + 1);
    }
    char guess;
    must(cellar_begin(memory, &batch, &error), &error);
    must(toy_compute(memory, text, 0, &guess, &error), &error);
    must(cellar_commit(memory, &error), &error);
}

static void show(cellar_memory *memory, const char *what)
{
    cellar_statistics statistics;
    cellar_error error;
    must(cellar_stats(memory, &statistics, &error), &error);
    printf("%-26s %3u cells used, %3u shared, %3llu rows moved\n", what, statistics.n_used,
           statistics.n_shared, (unsigned long long)statistics.rows_moved);
}

int main(void)
{
    cellar_layer layer = toy_layer();
    cellar_config config = toy_config(&layer, 512);
    config.n_pools = 2; /* 256 cells each: sequences 0, 2, 4, ... and 1, 3, 5, ... */
    cellar_memory *memory;
    cellar_error error;
    char text[200] = "roses are red, violets are blue. ";
    uint32_t length = (uint32_t)strlen(text);
    must(cellar_create(&config, &memory, &error), &error);

    read_for_three(memory, text, (cellar_seq[]){0, 2, 4});
    show(memory, "read for 0, 2 and 4");
    must(cellar_copy(memory, 0, 6, 0, -1, &error), &error);
    show(memory, "forked into 6, same pool");
    must(cellar_copy(memory, 0, 1, 0, -1, &error), &error);
    show(memory, "copied into 1, other pool");

    toy_say(memory, 1, strcat(text, "violets are"), length);
    printf("%s\n", text + length);
    cellar_destroy(memory);
    return 0;
}
