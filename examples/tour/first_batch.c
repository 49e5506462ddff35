/*
 * first_batch.c: a memory, and a first batch of three tokens.
 *
 * One layer with 4 query heads and 2 heads of keys and values. A model would compute q, k and v; here
 * they are made up. Every call says whether it worked, and why not; a failed call changed nothing.
 */
#include <cellar.h>

#include <stdio.h>

static float q[3][4][64], k[3][2][64], v[3][2][64], out[3][4][64];

/* What a model would compute from the tokens, not rotated by position: that is Cellar's part. */
static void compute(void)
{
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 64; i++) {
            for (int h = 0; h < 4; h++)
                q[t][h][i] = (float)(i % (h + 2)) / 8;
            for (int h = 0; h < 2; h++) {
                k[t][h][i] = (float)(i % (t + 2)) / 8;
                v[t][h][i] = (float)(t + 1);
            }
        }
}

int main(void)
{
    cellar_error error;
    cellar_memory *memory;
    int code = 1;

    cellar_layer layer = cellar_layer_init();
    layer.n_heads = 4;
    layer.n_kv_heads = 2;
    layer.k_size = layer.v_size = 64;
    layer.rope.kind = CELLAR_ROPE_NEOX;
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = 4096;
    if (cellar_create(&config, &memory, &error) != CELLAR_OK) goto failed;

    /* Three tokens at the end of sequence 0, which is empty: positions 0, 1, 2. */
    cellar_token tokens[] = {11, 12, 13};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 3;
    batch.tokens = tokens;
    if (cellar_begin(memory, &batch, &error) != CELLAR_OK) goto failed;

    /* At most config.n_ubatch tokens are computed at once: three are one micro-batch, number 0. */
    compute();
    if (cellar_store(memory, 0, 0, k[0][0], v[0][0], &error) != CELLAR_OK) goto failed;
    if (cellar_attend(memory, 0, 0, q[0][0], out[0][0], &error) != CELLAR_OK) goto failed;
    if (cellar_commit(memory, &error) != CELLAR_OK) goto failed;

    for (int t = 0; t < 3; t++)
        printf("token %d sees %d, result %.3f\n", t, t + 1, (double)out[t][0][0]);
    printf("sequence 0 holds positions %d to %d\n", cellar_position_min(memory, 0),
           cellar_position_max(memory, 0));
    code = 0;

failed:
    if (code) fprintf(stderr, "%s: %s\n", cellar_status_text(error.status), error.message);
    cellar_destroy(memory); /* an open step ends with it; NULL is allowed */
    return code;
}
