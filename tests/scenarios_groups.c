/*
 * scenarios_groups.c: S14, and the faults D3, D30, D37, D39, D41 and D44: several kinds of layers in one memory
 * that every operation reaches, parts of a text that are used again, and cells that lie far apart.
 *
 * S14 is a policy of a caller: its matcher stands here, made of cellar_remove and cellar_shift.
 * Whether a caller uses tokens that were moved, and what it reports of them, is not the library's.
 */
#include "scenarios.h"

#include <stdlib.h>
#include <string.h>

enum { A, B, C };
#define MOST 256

/* ---- S14: re-using chunks after the prefix ends ---------------------------------------------- */

typedef struct reuse {
    uint32_t n_prefix; /* exact: nothing before them has changed */
    uint32_t n_moved;  /* approximate: they were read with other tokens before them */
} reuse;

static uint32_t count_same(const cellar_token *a, uint32_t n_a, const cellar_token *b, uint32_t n_b)
{
    uint32_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n])
        n++;
    return n;
}

/*
 * Make seq, which holds `old`, hold as much of `wanted` from the beginning on as it has: the common
 * prefix, and then stretches of at least `least` tokens in their order, moved down.
 */
static reuse match(drive *d, cellar_seq seq, const cellar_token *old, uint32_t n_old,
                   const cellar_token *wanted, uint32_t n_wanted, uint32_t least)
{
    reuse result = {count_same(old, n_old, wanted, n_wanted), 0};
    uint32_t to = result.n_prefix, from = to;
    while (from < n_old && to < n_wanted) {
        uint32_t n = count_same(old + from, n_old - from, wanted + to, n_wanted - to);
        if (n < least) {
            from++;
            continue;
        }
        cellar_pos p0 = (cellar_pos)from, delta = (cellar_pos)to - p0;
        CHECK(cellar_remove(d->memory, seq, (cellar_pos)to, p0, NULL) == CELLAR_OK);
        CHECK(cellar_shift(d->memory, seq, p0, p0 + (cellar_pos)n, delta, NULL) == CELLAR_OK);
        to += n;
        from += n;
        result.n_moved += n;
    }
    CHECK(cellar_remove(d->memory, seq, (cellar_pos)to, -1, NULL) == CELLAR_OK);
    return result;
}

static const cellar_token s14_prompt[] = {10, 11, 14, 15, 16, 19, 20, 21, 99};
enum { S14_PROMPT = sizeof s14_prompt / sizeof *s14_prompt };

/* Twelve tokens 10..21 are held; then the prompt is matched and the rest of it read. */
static void s14_least(uint32_t least, reuse want, uint32_t n_evaluated)
{
    drive d;
    cellar_token old[12];
    scenario_key keys[S14_PROMPT];
    scenario_open_rotating(&d, CELLAR_F32, 32, 16);
    float *got = drive_grab(S14_PROMPT * play_row_size(&d), sizeof *got);
    scenario_tokens(old, 10, 12);
    CHECK(play_append(&d, A, 10, 12, NULL, NULL) == CELLAR_OK);
    reuse found = match(&d, A, old, 12, s14_prompt, S14_PROMPT, least);
    uint32_t n = found.n_prefix + found.n_moved;
    CHECK(found.n_prefix == want.n_prefix && found.n_moved == want.n_moved);
    CHECK(scenario_used(&d) == n && S14_PROMPT - n == n_evaluated);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = S14_PROMPT - n;
    batch.tokens = s14_prompt + n;
    CHECK(play_step(&d, &batch, got, NULL) == CELLAR_OK);
    CHECK(scenario_used(&d) == S14_PROMPT);
    CHECK(cellar_position_max(d.memory, A) == S14_PROMPT - 1);
    for (uint32_t i = 0; i < S14_PROMPT; i++) /* token t was stored for position t - 10 */
        keys[i] = (scenario_key){s14_prompt[i], i < n ? s14_prompt[i] - 10 : (cellar_pos)i,
                                 (cellar_pos)i};
    CHECK(scenario_worst(&d, 0, &d.layers[0], 99, S14_PROMPT - 1, keys, S14_PROMPT,
                         got + (n_evaluated - 1) * play_row_size(&d)) < 1);
    free(got);
    drive_close(&d);
}

static void s14(void)
{
    s14_least(2, (reuse){2, 6}, 1);
    s14_least(4, (reuse){2, 0}, 7);
}

/* ---- D39, D44: every operation reaches every layer ------------------------------------------- */

static const uint32_t state_sizes[] = {16, 32};

/* Full, window, chunked, recurrent: what four memories of the original would be. */
static cellar_config shape_all(drive *d)
{
    cellar_config config = scenario_config(256, 8);
    memset(d, 0, sizeof *d);
    d->seed = 95;
    d->n_layers = 4;
    d->layers[0] = scenario_layer(CELLAR_F32, 8);
    d->layers[1] = scenario_window_layer(CELLAR_WINDOW_STANDARD, 6);
    d->layers[2] = scenario_window_layer(CELLAR_WINDOW_CHUNKED, 10);
    d->layers[3] = play_recurrent_layer(state_sizes, 2);
    config.n_sequences = 6;
    config.is_window_full = true;
    config.rollback_bytes = 3 * play_state_bytes(d);
    return config;
}

/* Keep only some layers of d: the others remember nothing. */
static void leave_layers(drive *d, uint32_t mask)
{
    for (uint32_t l = 0; l < d->n_layers; l++)
        if (!(mask & 1u << l)) {
            d->layers[l] = cellar_layer_init();
            d->layers[l].kind = CELLAR_LAYER_NONE;
        }
}

/* A conversation that is forked, taken back, moved and joined; writes 5 rows of output. */
static void converse(drive *d, float *out)
{
    size_t row = play_row_size(d);
    CHECK(play_append(d, A, 0, 40, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d->memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d->memory, B, 38, -1, NULL) == CELLAR_OK);
    CHECK(play_append(d, B, 100, 5, NULL, NULL) == CELLAR_OK);
    CHECK(play_append(d, A, 200, 3, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d->memory, B, C, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d->memory, C, 0, -1, 25, NULL) == CELLAR_OK);
    CHECK(play_append(d, C, 300, 2, NULL, NULL) == CELLAR_OK);
    CHECK(play_probe(d, A, 900, out) == CELLAR_OK);
    CHECK(play_probe(d, B, 900, out + row) == CELLAR_OK);
    CHECK(play_probe(d, C, 900, out + 2 * row) == CELLAR_OK);
    CHECK(cellar_remove(d->memory, A, 0, -1, NULL) == CELLAR_OK);
    CHECK(play_append(d, A, 400, 12, NULL, NULL) == CELLAR_OK);
    CHECK(play_probe(d, A, 900, out + 3 * row) == CELLAR_OK);
    CHECK(cellar_keep(d->memory, B, NULL) == CELLAR_OK);
    CHECK(play_probe(d, B, 901, out + 4 * row) == CELLAR_OK);
    CHECK(cellar_check(d->memory, NULL) == CELLAR_OK);
}

/* The first and last float of a layer in a row of d. */
static size_t place_of(const drive *d, uint32_t layer, size_t *size)
{
    drive part = *d;
    part.n_layers = layer;
    size_t first = play_row_size(&part);
    part.n_layers = layer + 1;
    *size = play_row_size(&part) - first;
    return first;
}

static void d44(void)
{
    drive all, one;
    cellar_config config = shape_all(&all);
    size_t row = play_row_size(&all);
    float *together = drive_grab(5 * row, sizeof *together),
          *alone = drive_grab(5 * row, sizeof *alone);
    scenario_make(&all, &config);
    CHECK(cellar_count_groups(all.memory) == 4);
    converse(&all, together);
    for (uint32_t l = 0; l < all.n_layers; l++) {
        size_t size, first = place_of(&all, l, &size);
        shape_all(&one);
        leave_layers(&one, 1u << l);
        scenario_make(&one, &config);
        CHECK(cellar_count_groups(one.memory) == 1 && play_row_size(&one) == size);
        converse(&one, alone);
        for (uint32_t i = 0; i < 5; i++)
            CHECK(scenario_same_bits(together + i * row + first, alone + i * size, size));
        drive_close(&one);
    }
    CHECK(scenario_all_finite(together, 5 * row));
    free(together);
    free(alone);
    drive_close(&all);
}

/* The layers of a draft model are more layers of the same memory: operations are no no-ops there. */
static void d39(void)
{
    drive d, draft;
    cellar_config config = shape_all(&d);
    float *both = drive_grab(5 * play_row_size(&d), sizeof *both), *alone;
    d.layers[2] = d.layers[0]; /* the draft's: one that sees everything, one window */
    d.layers[3] = d.layers[1];
    draft = d;
    leave_layers(&draft, 12);
    scenario_make(&d, &config);
    scenario_make(&draft, &config);
    CHECK(cellar_group_of_layer(d.memory, 0) == cellar_group_of_layer(d.memory, 2));
    size_t size, first = place_of(&d, 2, &size);
    size += size;
    alone = drive_grab(5 * size, sizeof *alone);
    CHECK(play_row_size(&draft) == size);
    converse(&d, both);
    converse(&draft, alone);
    for (uint32_t i = 0; i < 5; i++)
        CHECK(scenario_same_bits(both + i * play_row_size(&d) + first, alone + i * size, size));
    free(both);
    free(alone);
    drive_close(&d);
    drive_close(&draft);
}

/* A draft layer that reads the rows of another stores nothing; asked alike, it answers alike. */
static void d39_reads(void)
{
    drive d, own;
    float got[32], want[32], q[32], k[16], v[16];
    cellar_token token = 77;
    cellar_seq seq = B;
    cellar_config config = shape_all(&d);
    d.n_layers = 2;
    d.layers[1] = d.layers[0];
    own = d;
    d.layers[1].reads_layer = 0;
    scenario_make(&d, &config);
    scenario_make(&own, &config);
    cellar_group_info shared = {0}, owned = {0};
    CHECK(cellar_get_group(d.memory, 0, &shared, NULL) == CELLAR_OK);
    CHECK(cellar_get_group(own.memory, 0, &owned, NULL) == CELLAR_OK);
    CHECK(2 * shared.row_bytes == owned.row_bytes && shared.row_bytes > 0);
    drive_close(&own);

    float *out = drive_grab(5 * play_row_size(&d), sizeof *out);
    converse(&d, out);
    free(out);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.tokens = &token;
    batch.seqs = &seq;
    drive_token_row(&d, 0, DRIVE_Q, token, q);
    drive_token_row(&d, 0, DRIVE_K, token, k);
    drive_token_row(&d, 0, DRIVE_V, token, v);
    CHECK(cellar_begin(d.memory, &batch, NULL) == CELLAR_OK);
    CHECK(cellar_attend(d.memory, 0, 1, q, want, NULL) == CELLAR_INVALID); /* not stored yet */
    CHECK(cellar_store(d.memory, 0, 0, k, v, NULL) == CELLAR_OK);
    CHECK(cellar_store(d.memory, 0, 1, k, v, NULL) == CELLAR_INVALID);
    CHECK(cellar_attend(d.memory, 0, 0, q, got, NULL) == CELLAR_OK);
    CHECK(cellar_attend(d.memory, 0, 1, q, want, NULL) == CELLAR_OK);
    CHECK(scenario_same_bits(got, want, 32));
    CHECK(cellar_commit(d.memory, NULL) == CELLAR_OK);
    drive_close(&d);
}

/* ---- D3, D30, D37: in every group ------------------------------------------------------------ */

static void copy_again(drive *d, void *argument)
{
    (void)argument;
    for (int i = 0; i < 3; i++)
        CHECK(cellar_copy(d->memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d->memory, A, B, 7, 7, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d->memory, A, A, 0, -1, NULL) == CELLAR_OK);
}

static void d3(void)
{
    drive d;
    cellar_config config = shape_all(&d);
    scenario_make(&d, &config);
    CHECK(play_append(&d, A, 0, 40, NULL, NULL) == CELLAR_OK);
    CHECK(play_append(&d, B, 100, 20, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, copy_again, NULL));
    CHECK(cellar_remove(d.memory, A, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(d.memory, B) == 39);
    CHECK(cellar_remove(d.memory, B, 0, -1, NULL) == CELLAR_OK); /* nobody holds it any more */
    for (uint32_t l = 0; l < d.n_layers; l++)
        CHECK(play_count_cells(&d, l, UINT32_MAX) == 0);
    drive_close(&d);
}

/* No operation on sequences writes a row, and what falls below zero falls for one of them. */
static void d30(void)
{
    drive d;
    cellar_statistics stats = {0};
    cellar_config config = shape_all(&d);
    d.n_layers = 3; /* those that can forget a part */
    config.rollback_bytes = 0;
    scenario_make(&d, &config);
    CHECK(play_append(&d, A, 0, 40, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_stats(d.memory, &stats, NULL) == CELLAR_OK);
    uint64_t written = stats.rows_written, moved = stats.rows_moved;
    CHECK(cellar_copy(d.memory, A, B, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, C, 0, 25, NULL) == CELLAR_OK);
    for (int i = 0; i < 10; i++)
        CHECK(cellar_shift(d.memory, B, 20, -1, i % 2 ? -9 : 9, NULL) == CELLAR_OK);
    CHECK(cellar_shift_context(d.memory, B, 5, 10, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_divide(d.memory, C, 0, -1, 2, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 0, -1, -30, NULL) == CELLAR_OK);
    for (uint32_t l = 0; l < 3; l++) {
        play_extent a = play_group_extent(&d, l, A), b = play_group_extent(&d, l, B);
        play_extent c = play_group_extent(&d, l, C);
        CHECK(a.n == 10 && a.min == 0 && a.max == 9);
        CHECK(b.n == 30 && b.min == 0 && b.max == 29);
        CHECK(c.n == 25 && c.min == 0 && c.max == 12);
        CHECK(play_count_cells(&d, l, UINT32_MAX) == 40);
    }
    CHECK(cellar_stats(d.memory, &stats, NULL) == CELLAR_OK);
    CHECK(stats.rows_written == written && stats.rows_moved == moved);
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    drive_close(&d);
}

/* ---- D41: cells far apart -------------------------------------------------------------------- */

/* A's 300 tokens lie below B's 10; without A, only B's are looked at. */
static void open_d41(drive *d)
{
    scenario_open_rotating(d, CELLAR_F32, 512, 64);
    CHECK(play_append(d, A, 0, 300, NULL, NULL) == CELLAR_OK);
    CHECK(play_append(d, B, 500, 10, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d->memory, A, 0, -1, NULL) == CELLAR_OK);
}

/* What an engine would have to look at for one more token of B: cells in a range, and in pages. */
static void count_exported(drive *d, uint32_t *n_kv, uint32_t *n_pages)
{
    cellar_token token = 600;
    cellar_seq seq = B;
    uint32_t indptr[2] = {0}, indices[512], last_length[1] = {0};
    cellar_extent extent = {0};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.tokens = &token;
    batch.seqs = &seq;
    CHECK(cellar_begin(d->memory, &batch, NULL) == CELLAR_OK);
    CHECK(cellar_export_extent(d->memory, 0, 0, 1, &extent, NULL, 0, NULL) == CELLAR_OK);
    CHECK(cellar_export_pages(d->memory, 0, 0, 1, indptr, indices, 512, last_length, NULL) ==
          CELLAR_OK);
    cellar_abort(d->memory);
    *n_kv = extent.n_kv;
    *n_pages = indptr[1];
}

static void d41(void)
{
    drive d;
    float before[32], after[32];
    uint32_t n_kv, n_pages, n_moved = 0;
    open_d41(&d);
    count_exported(&d, &n_kv, &n_pages);
    CHECK(n_pages == 11); /* its own tokens, wherever they lie */
    CHECK(play_probe(&d, B, 600, before) == CELLAR_OK);
    CHECK(cellar_compact(d.memory, 4, &n_moved, NULL) == CELLAR_OK && n_moved <= 4);
    CHECK(play_probe(&d, B, 600, after) == CELLAR_OK);
    CHECK(scenario_same_bits(before, after, 32));
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    CHECK(cellar_compact(d.memory, 512, &n_moved, NULL) == CELLAR_OK);
    CHECK(cellar_compact(d.memory, 512, &n_moved, NULL) == CELLAR_OK && n_moved == 0);
    count_exported(&d, &n_kv, &n_pages);
    CHECK(n_kv <= 64 && n_pages == 11); /* B now lies at the bottom */
    CHECK(play_probe(&d, B, 600, after) == CELLAR_OK);
    CHECK(scenario_same_bits(before, after, 32));
    drive_close(&d);
}

static void compact_nothing(drive *d, void *argument)
{
    uint32_t n_moved = 7;
    (void)argument;
    CHECK(cellar_compact(d->memory, 0, &n_moved, NULL) == CELLAR_OK && n_moved == 0);
}

/* Interleaved sequences of which two go: what is left becomes long runs, and answers alike. */
static void d41_scattered(void)
{
    enum { N = 60 };
    drive d;
    float before[3][32], after[32];
    cellar_sequence_info info = {0};
    scenario_open_rotating(&d, CELLAR_F16, 5 * N, 8);
    for (int32_t i = 0; i < 5 * N; i++)
        CHECK(play_append(&d, i % 5, 1000 * (i % 5) + i, 1, NULL, NULL) == CELLAR_OK);
    for (cellar_seq s = 3; s < 5; s++)
        CHECK(cellar_remove(d.memory, s, 0, -1, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, 9, 0, 30, NULL) == CELLAR_OK); /* shared cells move, too */
    for (cellar_seq s = A; s <= C; s++)
        CHECK(play_probe(&d, s, 9000, before[s]) == CELLAR_OK);
    CHECK(scenario_leaves_unchanged(&d, compact_nothing, NULL));
    for (uint32_t round = 0, n_moved = 1; n_moved > 0 && round < 200; round++) {
        CHECK(cellar_compact(d.memory, 7, &n_moved, NULL) == CELLAR_OK && n_moved <= 7);
        CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
        CHECK(round < 199);
    }
    for (cellar_seq s = A; s <= C; s++) {
        CHECK(play_probe(&d, s, 9000, after) == CELLAR_OK);
        CHECK(scenario_same_bits(before[s], after, 32));
        CHECK(cellar_get_sequence(d.memory, s, &info, NULL) == CELLAR_OK);
        CHECK(info.n_cells == N && info.n_runs <= N / 32 + 2);
    }
    CHECK(cellar_position_max(d.memory, 9) == 29);
    drive_close(&d);
}

const scenario scenarios_groups[] = {
    {"S14 chunks behind the prefix are moved and used again", s14},
    {"D44 full, window, chunked and recurrent layers are one memory", d44},
    {"D39 every operation reaches the layers of a draft", d39},
    {"D39 a layer that reads another's rows stores nothing", d39_reads},
    {"D3 repeating a copy changes nothing in any group", d3},
    {"D30 D37 no operation on sequences writes a row in any group", d30},
    {"D41 cells far apart cost no more, and can be brought together", d41},
    {"D41 compaction goes on piece by piece and changes no answer", d41_scattered},
    {NULL, NULL},
};
