/*
 * states.c: a recurrent layer, and checkpoints to return to.
 *
 * Such a layer remembers one state of fixed size, here: how often each letter was read. It cannot forget a
 * part. What Cellar can do is keep states: each step writes a new one, a fork shares it, an aborted step
 * leaves the old one, and a checkpoint keeps one for as long as it is wanted.
 */
#include <cellar.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t n_letters = 256;

static void must(cellar_status status, const cellar_error *error)
{
    if (status == CELLAR_OK) return;
    fprintf(stderr, "%s: %s\n", cellar_status_text(status), error->message);
    exit(1);
}

/* The step's part of one segment: from its source to each of its targets. */
static void count(cellar_memory *memory, const cellar_states *states, const char *letters)
{
    float counts[256] = {0};
    if (states->source != CELLAR_NO_STATE)
        memcpy(counts, cellar_state_data(memory, states->source, 0, 0), sizeof counts);
    uint32_t done = 0;
    for (uint32_t i = 0; i < states->n_targets; i++) {
        for (; done < states->after[i]; done++)
            counts[(unsigned char)letters[done]]++;
        memcpy(cellar_state_data(memory, states->targets[i], 0, 0), counts, sizeof counts);
    }
}

/* Read text at the end of a sequence; a checkpoint behind its last letter, if wanted. */
static void read_text(cellar_memory *memory, cellar_seq seq, const char *text,
                      bool wants_checkpoint)
{
    cellar_error error;
    cellar_seq seqs[64];
    bool checkpoints[64] = {false};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = (uint32_t)strlen(text);
    batch.seqs = seqs;
    batch.checkpoints = checkpoints;
    for (uint32_t i = 0; i < batch.n_tokens; i++)
        seqs[i] = seq;
    checkpoints[batch.n_tokens - 1] = wants_checkpoint;
    must(cellar_begin(memory, &batch, &error), &error);
    for (uint32_t number = 0; number < cellar_count_ubatches(memory); number++) {
        cellar_ubatch ubatch;
        cellar_states states; /* of segment 0: there is one sequence */
        must(cellar_get_ubatch(memory, number, &ubatch, &error), &error);
        must(cellar_get_states(memory, number, 0, &states, &error), &error);
        count(memory, &states, text + ubatch.indices[0]);
        must(cellar_confirm(memory, number, 0, &error), &error); /* layer 0 is written */
    }
    must(cellar_commit(memory, &error), &error);
}

static bool show_end(void *context, const cellar_cell *cell)
{
    cellar_memory *memory = context;
    const float *counts = cellar_state_data(memory, cell->cell, 0, 0);
    printf("  state %u, after %d letters, held %u times: e %.0f, o %.0f\n", cell->cell,
           cell->stored_pos + 1, cell->refs, (double)counts['e'], (double)counts['o']);
    return true;
}

int main(void)
{
    cellar_layer layer = cellar_layer_init();
    layer.kind = CELLAR_LAYER_RECURRENT;
    layer.n_states = 1;
    layer.state_sizes = &n_letters;
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = 512;
    config.n_sequences = 2;
    config.checkpoint_bytes = 8 * n_letters * sizeof(float); /* room for eight */
    cellar_memory *memory;
    cellar_error error;
    cellar_pos from;
    must(cellar_create(&config, &memory, &error), &error);

    read_text(memory, 0, "the tree. ", true);
    read_text(memory, 0, "the wood. ", false);
    must(cellar_copy(memory, 0, 1, 0, -1, &error), &error);
    printf("0 is forked into 1:\n");
    must(cellar_visit_cells(memory, show_end, memory, &error), &error);

    cellar_status status = cellar_remove(memory, 0, 14, -1, &error);
    printf("remove from 14 on: %s (the last place before is %lld)\n", cellar_status_text(status),
           (long long)error.at);
    must(cellar_rewind(memory, 0, 14, &from, &error), &error);
    printf("rewind to 14: back at %d, the letters from there are read again\n", from);
    read_text(memory, 0, "the ", false);
    must(cellar_visit_cells(memory, show_end, memory, &error), &error);
    cellar_destroy(memory);
    return 0;
}
