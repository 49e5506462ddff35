/*
 * exports.c: Cellar keeps the books, the engine keeps the tensors.
 *
 * With is_external a layer has no rows in the memory: cell c is row c of the engine's own tensors. For each
 * micro-batch the engine asks where its tokens go and what they may look at, in the dense form that
 * tensor libraries and GPUs want. Two whole engines of this kind are examples/own_tensors.c and examples/ggml.
 */
#include "toy_model.h"

/* Four new tokens for each of two sequences; shown instead of computed. */
static void step(cellar_memory *memory)
{
    cellar_error error;
    cellar_extent extent;
    cellar_stream stream;
    cellar_ubatch ubatch;
    int64_t rows[TOY_UBATCH];
    float mask[TOY_UBATCH * 64];
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 8;
    batch.seqs = (cellar_seq[]){0, 0, 0, 0, 1, 1, 1, 1};
    must(cellar_begin(memory, &batch, &error), &error);
    must(cellar_get_ubatch(memory, 0, &ubatch, &error), &error);
    must(cellar_export_rows(memory, 0, 0, rows, &error), &error);
    must(cellar_export_extent(memory, 0, 0, 8, &extent, &stream, 1, &error), &error);
    must(cellar_export_mask(memory, 0, 0, extent.n_kv, CELLAR_F32, mask, &error), &error);

    printf("sequence  position  row  sees, of rows %u to %u\n", stream.first_cell,
           stream.first_cell + extent.n_kv - 1);
    for (uint32_t i = 0; i < ubatch.n_tokens; i++) {
        printf("%8d  %8d  %3lld  ", batch.seqs[ubatch.indices[i]], ubatch.positions[i],
               (long long)rows[i]);
        for (uint32_t j = 0; j < extent.n_kv; j++)
            putchar(mask[i * extent.n_kv + j] == 0 ? '#' : '.');
        putchar('\n');
    }
    /* Here the engine writes K and V to those rows, and attends with the mask. Then it says so: */
    must(cellar_confirm(memory, 0, 0, &error), &error);
    must(cellar_commit(memory, &error), &error);
}

static bool show_move(void *context, const cellar_move *move)
{
    (void)context;
    printf("rows %u to %u come from %u on, keys turned by %d\n", move->to, move->to + move->n - 1,
           move->from, move->turn);
    return true;
}

int main(void)
{
    cellar_layer layer = toy_layer();
    layer.is_external = true;
    cellar_config config = toy_config(&layer, 64);
    cellar_memory *memory;
    cellar_error error;
    must(cellar_create(&config, &memory, &error), &error);
    step(memory);
    must(cellar_copy(memory, 0, 1, 0, 2, &error), &error); /* 1 begins with two rows of 0 */
    step(memory);

    /* A mask knows nothing of angles: after a shift the keys themselves have to be turned. */
    must(cellar_shift_context(memory, 0, 2, 2, NULL, &error), &error);
    must(cellar_settle(memory, 0, &error), &error);
    must(cellar_visit_moves(memory, show_move, NULL, &error), &error);
    must(cellar_confirm_moves(memory, &error), &error);
    cellar_destroy(memory);
    return 0;
}
