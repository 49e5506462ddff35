/*
 * support_story.c: see the header.
 *
 * The operations are those of unit_soundness.c, without its questions. Sequence names are far apart, so that
 * their order is not that of their making.
 */
#include "support_story.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/random.h"
#include "support_faulty.h"

static const cellar_type types[] = {CELLAR_F32,  CELLAR_F16,  CELLAR_BF16, CELLAR_Q8_0,
                                    CELLAR_Q4_0, CELLAR_Q4_1, CELLAR_Q5_1, CELLAR_IQ4_NL};

static cellar_type some_type(story *s)
{
    return types[random_below(&s->random, sizeof types / sizeof *types)];
}

/* ---- the memory ------------------------------------------------------------------------------ */

static void vary_layer(story *s, cellar_layer *layer)
{
    layer->k_type = some_type(s);
    layer->v_type = some_type(s);
    layer->rotate_k = random_one_in(&s->random, 4);
    layer->rotate_v = random_one_in(&s->random, 4);
    if (random_one_in(&s->random, 3)) layer->n_heads = layer->n_kv_heads = 3;
    static cellar_row_store store;
    store = faulty_store();
    if (random_one_in(&s->random, 4)) layer->store = &store;
}

static void add_layers(story *s)
{
    small_memory *small = &s->small;
    uint32_t kinds = 1 + random_below(&s->random, 7);
    s->has_states = kinds & 4;
    if (kinds & 1) vary_layer(s, small_add_attention(small, 0));
    if (kinds & 2) {
        cellar_layer *layer = small_add_attention(small, 1 + random_below(&s->random, 12));
        vary_layer(s, layer);
        layer->window.kind = (cellar_window_kind)(1 + random_below(&s->random, 3));
        if (random_one_in(&s->random, 3)) layer->window.n_sinks = random_below(&s->random, 4);
    }
    if ((kinds & 1) && random_one_in(&s->random, 3)) {
        cellar_layer *layer = small_add_attention(small, 0);
        layer->v_in_k = true;
        layer->v_size = 8;
        layer->rope.first = 8;
        layer->rope.n_rot = 24;
    }
    bool is_2d = random_one_in(&s->random, 3);
    for (uint32_t i = 0; is_2d && i < small->config.n_layers; i++) {
        cellar_rope *rope = &small->layers[i].rope;
        rope->kind = CELLAR_ROPE_MROPE;
        rope->sections[0] = rope->n_rot ? 6 : 8;
        rope->sections[1] = rope->n_rot ? 6 : 8;
    }
    if (s->has_states) small_add_recurrent(small);
}

void story_plan(story *s, uint64_t seed)
{
    *s = (story){.random = seed * 77, .seed = seed};
    small_init(&s->small, 40 + random_below(&s->random, 120));
    add_layers(s);
    cellar_config *config = &s->small.config;
    config->n_pools = 1 + random_below(&s->random, 3);
    config->n_sequences = config->n_pools + random_below(&s->random, 4);
    config->n_ubatch = 1 + random_below(&s->random, 8);
    config->is_window_full = random_one_in(&s->random, 4);
    config->rollback_bytes = random_below(&s->random, 3) * 400;
    config->checkpoint_bytes = random_below(&s->random, 3) * 4000;
    if (random_one_in(&s->random, 2)) config->checkpoint_interval = 1 + random_below(&s->random, 9);
}

void story_open(story *s)
{
    small_open(&s->small);
}

void story_close(story *s)
{
    small_close(&s->small);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void fill(story *s, float *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        numbers[i] = (float)random_between(&s->random, -1000, 1000) / 250.0f;
}

static void write_states(story *s, uint32_t ubatch, uint32_t layer)
{
    cellar_memory *memory = s->small.memory;
    cellar_ubatch its;
    assert_int_equal(cellar_get_ubatch(memory, ubatch, &its, NULL), CELLAR_OK);
    for (uint32_t segment = 0; segment < its.n_segments; segment++) {
        cellar_states states;
        assert_int_equal(cellar_get_states(memory, ubatch, segment, &states, NULL), CELLAR_OK);
        for (uint32_t t = 0; t < states.n_targets; t++)
            for (uint32_t k = 0; k < s->small.layers[layer].n_states; k++)
                fill(s, cellar_state_data(memory, states.targets[t], layer, k),
                     s->small.layers[layer].state_sizes[k]);
    }
    assert_int_equal(cellar_confirm(memory, ubatch, layer, NULL), CELLAR_OK);
}

static void store_all(story *s)
{
    cellar_memory *memory = s->small.memory;
    static float k[STORY_BATCH * 3 * SMALL_HEAD], v[STORY_BATCH * 3 * SMALL_HEAD];
    static float out[STORY_BATCH * 3 * SMALL_HEAD];
    for (uint32_t u = 0; u < cellar_count_ubatches(memory); u++)
        for (uint32_t i = 0; i < s->small.config.n_layers; i++) {
            const cellar_layer *layer = &s->small.layers[i];
            if (layer->kind == CELLAR_LAYER_RECURRENT) {
                write_states(s, u, i);
                continue;
            }
            fill(s, k, sizeof k / sizeof *k);
            fill(s, v, sizeof v / sizeof *v);
            assert_int_equal(cellar_store(memory, u, i, k, layer->v_in_k ? NULL : v, NULL),
                             CELLAR_OK);
            assert_int_equal(cellar_attend(memory, u, i, k, out, NULL), CELLAR_OK);
        }
}

/* A batch of one or two sequences, some of whose tokens stand in both. */
static cellar_status begin(story *s, cellar_seq a, cellar_seq b)
{
    cellar_token tokens[STORY_BATCH];
    cellar_seq seqs[2 * STORY_BATCH];
    uint32_t seq_begin[STORY_BATCH + 1] = {0}, n = 1 + random_below(&s->random, STORY_BATCH);
    bool checkpoints[STORY_BATCH], is_shared = a != b && random_one_in(&s->random, 4);
    for (uint32_t i = 0, at = 0; i < n; i++) {
        tokens[i] = (cellar_token)random_below(&s->random, 1000) - 1;
        checkpoints[i] = random_one_in(&s->random, 4);
        seqs[at++] = is_shared || random_one_in(&s->random, 2) ? a : b;
        if (is_shared) seqs[at++] = b;
        seq_begin[i + 1] = at;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = random_one_in(&s->random, 9) ? NULL : tokens;
    batch.seqs = seqs;
    batch.seq_begin = seq_begin;
    if (random_one_in(&s->random, 2)) batch.checkpoints = checkpoints;
    return cellar_begin(s->small.memory, &batch, NULL);
}

/* An image of 2 x 3 patches at one position, in memories that know 2-D positions. */
static cellar_status begin_image(story *s, cellar_seq seq)
{
    cellar_pos positions[6];
    cellar_point points[6];
    cellar_seq seqs[6];
    cellar_sequence_info info;
    assert_int_equal(cellar_get_sequence(s->small.memory, seq, &info, NULL), CELLAR_OK);
    for (int i = 0; i < 6; i++) {
        positions[i] = info.pos_next;
        points[i] = (cellar_point){info.pos_next + i / 3, info.pos_next + i % 3};
        seqs[i] = seq;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 6;
    batch.positions = positions;
    batch.points = points;
    batch.seqs = seqs;
    return cellar_begin(s->small.memory, &batch, NULL);
}

static void finish(story *s)
{
    store_all(s);
    assert_int_equal(cellar_commit(s->small.memory, NULL), CELLAR_OK);
}

static void read_some(story *s, cellar_seq a, cellar_seq b)
{
    bool is_image = random_one_in(&s->random, 4);
    if ((is_image ? begin_image(s, a) : begin(s, a, b)) != CELLAR_OK) return;
    if (random_one_in(&s->random, 6)) {
        if (random_one_in(&s->random, 2)) store_all(s);
        cellar_abort(s->small.memory);
    } else {
        finish(s);
    }
}

cellar_status story_read(story *s, cellar_seq seq, uint32_t n)
{
    cellar_token tokens[STORY_BATCH];
    cellar_seq seqs[STORY_BATCH];
    assert_true(n <= STORY_BATCH);
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (cellar_token)random_below(&s->random, 1000);
        seqs[i] = seq;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    cellar_status status = cellar_begin(s->small.memory, &batch, NULL);
    if (status == CELLAR_OK) finish(s);
    return status;
}

/* ---- operations ------------------------------------------------------------------------------ */

static void reshape(story *s, cellar_seq a)
{
    cellar_memory *memory = s->small.memory;
    uint32_t n = random_below(&s->random, 80), pool = n % s->small.config.n_pools;
    switch (random_below(&s->random, 6)) {
    case 0:
        (void)!cellar_keep(memory, a, NULL);
        break;
    case 1:
    case 2:
        (void)!cellar_compact(memory, n, NULL, NULL);
        break;
    case 3:
        (void)!cellar_resize(memory, pool, 20 + n, NULL);
        break;
    case 4:
        (void)!cellar_settle(memory, a, NULL);
        break;
    default:
        (void)!cellar_remove(memory, a, 0, -1, NULL);
        break;
    }
}

static void edit(story *s, cellar_seq a, cellar_seq b, cellar_pos p0, cellar_pos p1)
{
    cellar_memory *memory = s->small.memory;
    cellar_pos from, begin_at = random_one_in(&s->random, 2) ? 0 : p0;
    cellar_pos delta = random_between(&s->random, -5, 5);
    switch (random_below(&s->random, 9)) {
    case 0:
    case 1:
        (void)!cellar_copy(memory, a, b, begin_at, p1, NULL);
        break;
    case 2:
    case 3:
        (void)!cellar_remove(memory, a, p0, p1, NULL);
        break;
    case 4:
        (void)!cellar_shift(memory, a, begin_at, p1, delta, NULL);
        break;
    case 5:
        (void)!cellar_rewind(memory, a, p0, &from, NULL);
        break;
    case 6:
        (void)!cellar_checkpoint(memory, a, NULL);
        break;
    case 7:
        (void)!cellar_drop_checkpoints(memory, a, p0, p1, NULL);
        break;
    default:
        (void)!cellar_divide(memory, a, p0, p1, 2, NULL);
        break;
    }
}

void story_change(story *s)
{
    static const cellar_seq names[STORY_SEQUENCES] = {70, 3, 1000000, 0, 12, 5};
    cellar_seq a = names[random_below(&s->random, STORY_SEQUENCES)];
    cellar_seq b = names[random_below(&s->random, STORY_SEQUENCES)];
    cellar_pos end = cellar_position_max(s->small.memory, a) + 1;
    cellar_pos p0 = random_between(&s->random, 0, end + 1);
    cellar_pos p1 = random_one_in(&s->random, 2) ? -1 : p0 + (int32_t)random_below(&s->random, 10);
    uint32_t kind = random_below(&s->random, 20);
    if (kind < 10)
        read_some(s, a, b);
    else if (kind < 18)
        edit(s, a, b, p0, p1);
    else
        reshape(s, a);
}
