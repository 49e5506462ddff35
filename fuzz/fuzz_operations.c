/*
 * fuzz_operations.c: any sequence of calls, with any arguments, leaves a memory sound.
 *
 * The input is read as a list of operations: a byte that says which, then its arguments, positions and
 * sequences mostly small and sometimes extreme. After each one every invariant is checked, a refusal
 * must have changed no count, and what attention gives must be finite: rows of cells that are not
 * held are filled with NaN beforehand by whoever held them last, so a read of a free cell shows.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cellar.h"

#define N_CELLS 70
#define N_UBATCH 5
#define K_SIZE 4
#define V_SIZE 3
#define N_HEADS 2
#define MAX_TOKENS 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *data;
    size_t size, at;
} input;

static uint8_t next_byte(input *in)
{
    return in->at < in->size ? in->data[in->at++] : 0;
}

/* Small numbers as they are; the top of the byte's range stands for the edges of the type. */
static int32_t next_number(input *in)
{
    static const int32_t edges[] = {-1,      -2,  INT32_MIN, INT32_MAX, INT32_MAX - 1,
                                    1 << 30, -64, 1000};
    uint8_t byte = next_byte(in);
    return byte < 248 ? byte % 80 : edges[byte - 248];
}

static cellar_seq next_sequence(input *in)
{
    uint8_t byte = next_byte(in);
    return byte == 255 ? -1 : byte == 254 ? INT32_MAX : byte % 5;
}

static void demand(bool holds)
{
    if (!holds) abort();
}

static cellar_statistics look(const cellar_memory *memory)
{
    cellar_statistics stats;
    demand(cellar_check(memory, NULL) == CELLAR_OK);
    demand(cellar_stats(memory, &stats, NULL) == CELLAR_OK);
    return stats;
}

/* Store and attend every micro-batch; keys and values are NaN when the step will be aborted. */
static void compute(cellar_memory *memory, bool poison)
{
    float k[N_UBATCH * K_SIZE], v[N_UBATCH * V_SIZE];
    float q[N_UBATCH * N_HEADS * K_SIZE], out[N_UBATCH * N_HEADS * V_SIZE];
    for (uint32_t u = 0; u < cellar_count_ubatches(memory); u++) {
        cellar_ubatch ubatch;
        demand(cellar_get_ubatch(memory, u, &ubatch, NULL) == CELLAR_OK);
        demand(ubatch.n_tokens >= 1 && ubatch.n_tokens <= N_UBATCH);
        for (size_t i = 0; i < sizeof k / sizeof *k; i++)
            k[i] = poison ? NAN : (float)(i % 7) - 3;
        for (size_t i = 0; i < sizeof v / sizeof *v; i++)
            v[i] = poison ? NAN : (float)(i % 5);
        for (size_t i = 0; i < sizeof q / sizeof *q; i++)
            q[i] = (float)(i % 3) - 1;
        demand(cellar_store(memory, u, 0, k, v, NULL) == CELLAR_OK);
        demand(cellar_attend(memory, u, 0, q, out, NULL) == CELLAR_OK);
        for (uint32_t i = 0; !poison && i < ubatch.n_tokens * N_HEADS * V_SIZE; i++)
            demand(isfinite(out[i]));
    }
}

static void do_step(cellar_memory *memory, input *in)
{
    cellar_seq seqs[2 * MAX_TOKENS];
    cellar_pos positions[MAX_TOKENS];
    uint32_t begin[MAX_TOKENS + 1] = {0};
    uint8_t shape = next_byte(in);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1 + shape % MAX_TOKENS;
    for (uint32_t i = 0, n = 0; i < batch.n_tokens; i++) {
        seqs[n++] = next_sequence(in);
        if (shape & 0x40 && next_byte(in) % 4 == 0) seqs[n++] = next_sequence(in);
        begin[i + 1] = n;
        positions[i] = shape & 0x80 ? next_number(in) : 0;
    }
    batch.seqs = seqs;
    batch.seq_begin = begin;
    if (shape & 0x80) batch.positions = positions;
    cellar_statistics before = look(memory);
    cellar_status status = cellar_begin(memory, &batch, NULL);
    bool abort_it = next_byte(in) % 3 == 0;
    if (status == CELLAR_OK) {
        look(memory);
        demand(cellar_remove(memory, 0, 0, -1, NULL) == CELLAR_BUSY);
        compute(memory, abort_it);
        if (abort_it)
            cellar_abort(memory);
        else
            demand(cellar_commit(memory, NULL) == CELLAR_OK);
    }
    cellar_statistics after = look(memory);
    uint32_t expected = before.n_used + (status == CELLAR_OK && !abort_it ? batch.n_tokens : 0);
    demand(after.n_used == expected);
}

static cellar_status do_operation(cellar_memory *memory, input *in, uint8_t kind)
{
    cellar_seq seq = next_sequence(in), to = next_sequence(in);
    cellar_pos p0 = next_number(in), p1 = next_number(in), delta = next_number(in);
    if (next_byte(in) & 1) delta = delta == INT32_MIN ? delta : -delta;
    switch (kind % 7) {
    case 0:
        return cellar_remove(memory, seq, p0, p1, NULL);
    case 1:
        return cellar_copy(memory, seq, to, p0, p1, NULL);
    case 2:
        return cellar_shift(memory, seq, p0, p1, delta, NULL);
    case 3:
        return cellar_shift_context(memory, seq, p0, p1, NULL, NULL);
    case 4:
        return cellar_keep(memory, seq, NULL);
    case 5:
        return cellar_can_continue(memory, seq, p0, NULL, NULL);
    default:
        return p0 == 7 ? cellar_clear(memory, NULL) : CELLAR_INVALID;
    }
}

static cellar_memory *new_memory(void)
{
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = N_HEADS;
    layer.n_kv_heads = 1;
    layer.k_size = K_SIZE;
    layer.v_size = V_SIZE;
    layer.rope.kind = CELLAR_ROPE_NORMAL;
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = N_CELLS;
    config.n_ubatch = N_UBATCH;
    cellar_memory *memory;
    demand(cellar_create(&config, &memory, NULL) == CELLAR_OK);
    return memory;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    demand(copy != NULL);
    if (size) memcpy(copy, data, size);
    input in = {copy, size, 0};
    cellar_memory *memory = new_memory();
    while (in.at < in.size) {
        uint8_t kind = next_byte(&in);
        if (kind % 3 == 0) {
            do_step(memory, &in);
            continue;
        }
        cellar_statistics before = look(memory);
        cellar_status status = do_operation(memory, &in, kind / 3);
        cellar_statistics after = look(memory);
        if (status != CELLAR_OK)
            demand(before.n_used == after.n_used && before.n_runs == after.n_runs);
        demand(after.rows_written == before.rows_written);
    }
    cellar_destroy(memory);
    free(copy);
    return 0;
}
