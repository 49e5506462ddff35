/*
 * faults_memory.c: the N-th allocation fails, N = 1, 2, ... until a run needs no more than that.
 *
 * One script of operations, which makes everything grow that can grow. A failure must be reported
 * as CELLAR_NO_MEMORY by a call that the header allows to fail so, must change nothing that can be
 * seen, and must lose nothing. After a failure that does not last, the same call is made again and
 * the script must end exactly where it ends without failures, to the last bit of its attention
 * results.
 */
#include "faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_ROWS = 64, N_STEPS = 17 };

typedef struct stage {
    drive d;
    tracker t;
    float *out; /* [OUT_ROWS][out_size] of the last step */
    char note[80];
} stage;

/* ---- the script ------------------------------------------------------------------------------ */

/* One token for each of n sequences first, first + 1, ... in one batch. */
static cellar_status append_each(stage *s, cellar_seq first, uint32_t n, cellar_token token)
{
    cellar_token tokens[OUT_ROWS];
    cellar_seq seqs[OUT_ROWS];
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = token + (cellar_token)i;
        seqs[i] = first + (cellar_seq)i;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    return drive_step(&s->d, &batch, s->out, NULL);
}

static cellar_status append_together(stage *s)
{
    static const cellar_token tokens[] = {900, 901};
    static const uint32_t seq_begin[] = {0, 3, 6};
    static const cellar_seq seqs[] = {200, 201, 202, 200, 201, 202};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 2;
    batch.tokens = tokens;
    batch.seq_begin = seq_begin;
    batch.seqs = seqs;
    return drive_step(&s->d, &batch, s->out, NULL);
}

/* Copies of every second cell: as many runs as cells. */
static cellar_status copy_in_pieces(stage *s)
{
    cellar_status status = CELLAR_OK;
    for (cellar_pos p = 0; p < 30 && status == CELLAR_OK; p += 2)
        status = cellar_copy(s->d.memory, 0, 50, p, p + 1, NULL);
    return status;
}

static cellar_status begin_and_abort(stage *s)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 60;
    cellar_status status = cellar_begin(s->d.memory, &batch, NULL);
    cellar_abort(s->d.memory);
    return status;
}

static cellar_status perform(stage *s, int step)
{
    cellar_memory *memory = s->d.memory;
    /* clang-format off */
    switch (step) {
    case 0: return drive_append(&s->d, 0, 0, 40, s->out);
    case 1: return cellar_copy(memory, 0, 1, 0, -1, NULL);
    case 2: return append_each(s, 0, 2, 100);
    case 3: return append_each(s, 0, 6, 200);
    case 4: return append_each(s, 0, 6, 300);
    case 5: return cellar_remove(memory, 0, 10, 13, NULL);
    case 6: return cellar_remove(memory, 0, 20, 21, NULL);
    case 7: return cellar_shift(memory, 0, 21, 30, -1, NULL);
    case 8: return append_each(s, 100, 40, 400); /* many sequences */
    case 9: return copy_in_pieces(s);
    case 10: return append_together(s);
    case 11: return begin_and_abort(s);
    case 12: return cellar_shift_context(memory, 1, 4, 11, NULL, NULL);
    case 13: return cellar_copy(memory, 1, 60, 3, 9, NULL);
    case 14: return cellar_shift(memory, 50, 0, 20, 1000, NULL);
    case 15: return drive_append(&s->d, 0, 700, 9, s->out);
    case 16: return drive_append(&s->d, 1, 800, 9, s->out);
    default: return CELLAR_OK;
    }
    /* clang-format on */
}

/* ---- a run ----------------------------------------------------------------------------------- */

static cellar_status open_stage(stage *s)
{
    cellar_config config = cellar_config_init();
    memset(&s->d, 0, sizeof s->d);
    s->d.seed = 17;
    s->d.n_layers = 2;
    s->d.layers[0] = drive_layer(2, 1, 8, 4);
    s->d.layers[0].rope.kind = CELLAR_ROPE_NEOX;
    s->d.layers[1] = drive_layer(2, 2, 4, 8);
    s->d.layers[1].k_type = CELLAR_F16;
    config.n_cells = 200;
    config.n_ubatch = 16;
    config.allocator = tracker_allocator(&s->t);
    return drive_open(&s->d, &config, NULL);
}

static bool same_bytes_as_stats(const stage *s)
{
    cellar_statistics stats;
    return cellar_stats(s->d.memory, &stats, NULL) == CELLAR_OK && stats.sizes.total == s->t.bytes;
}

/* One step of the script; when it fails, was everything left as it was? Returns the status. */
static cellar_status try_step(stage *s, int step)
{
    drive_snapshot before = {0}, after = {0};
    char why[200] = "";
    CHECK_IN(s->note, drive_snapshot_take(&before, s->d.memory));
    cellar_status status = perform(s, step);
    CHECK_IN(s->note, drive_snapshot_take(&after, s->d.memory));
    if (status != CELLAR_OK && step != 9) { /* step 9 is many calls */
        bool is_same = drive_snapshot_equal(&before, &after, why);
        CHECK_IN(s->note, is_same);
        if (!is_same) printf("    %s\n", why);
    }
    s->t.is_paused = true; /* the check may need memory of its own */
    CHECK_IN(s->note, cellar_check(s->d.memory, NULL) == CELLAR_OK);
    s->t.is_paused = false;
    CHECK_IN(s->note, same_bytes_as_stats(s));
    drive_snapshot_free(&before);
    drive_snapshot_free(&after);
    return status;
}

/* What is remembered, apart from where it lies: (sequence, position, token) of every run. */
static uint64_t fingerprint(const drive_snapshot *picture)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < picture->n_runs; i++)
        for (uint32_t j = 0; j < picture->runs[i].len; j++) {
            uint32_t c = 0;
            while (picture->cells[c].cell != picture->runs[i].cell + j)
                c++;
            uint64_t key = random_mix((uint64_t)picture->runs[i].seq,
                                      (uint64_t)(picture->runs[i].pos + (cellar_pos)j));
            sum += random_mix(key, (uint64_t)picture->cells[c].token);
        }
    return sum;
}

static uint64_t close_stage(stage *s)
{
    drive_snapshot picture = {0};
    uint64_t result = 0;
    if (s->d.memory) {
        CHECK_IN(s->note, drive_snapshot_take(&picture, s->d.memory));
        result = fingerprint(&picture);
        drive_snapshot_free(&picture);
    }
    drive_close(&s->d);
    CHECK_IN(s->note, s->t.bytes == 0 && s->t.n_blocks == 0);
    return result;
}

static void open_or_retry(stage *s)
{
    cellar_status status = open_stage(s);
    if (status == CELLAR_OK) return;
    CHECK_IN(s->note, status == CELLAR_NO_MEMORY && s->d.memory == NULL);
    CHECK_IN(s->note, s->t.bytes == 0 && s->t.n_blocks == 0);
    if (!s->t.is_persistent) CHECK_IN(s->note, open_stage(s) == CELLAR_OK);
}

/* The whole script with the fault that s->t describes; true when the fault was met. */
static bool run_script(stage *s, uint64_t *result)
{
    s->out = drive_grab(OUT_ROWS * 24, sizeof *s->out);
    open_or_retry(s);
    for (int step = 0; step < N_STEPS && s->d.memory; step++) {
        char *end = strchr(s->note, ';');
        snprintf(end ? end : s->note + strlen(s->note), 20, "; step %d", step);
        bool had_failed = s->t.has_failed;
        cellar_status status = try_step(s, step);
        if (status == CELLAR_NO_MEMORY && !s->t.is_persistent) {
            CHECK_IN(s->note, s->t.has_failed && !had_failed);
            status = try_step(s, step);
        }
        CHECK_IN(s->note, status == CELLAR_OK || s->t.is_persistent);
        CHECK_IN(s->note, status == CELLAR_OK || s->t.has_failed);
    }
    *result = 0;
    for (size_t i = 0; i < 9 * s->d.out_size && s->d.memory; i++) {
        uint32_t bits;
        memcpy(&bits, &s->out[i], sizeof bits);
        *result = random_mix(*result, bits);
    }
    *result ^= close_stage(s);
    free(s->out);
    return s->t.has_failed;
}

static void run_all(bool is_persistent, bool can_resize)
{
    stage *s = drive_grab(1, sizeof *s);
    uint64_t want, got, n = 0;
    s->t.can_resize = can_resize;
    run_script(s, &want);
    uint64_t n_asked = s->t.n_asked;
    for (bool was_met = true; was_met;) {
        memset(s, 0, sizeof *s);
        s->t.can_resize = can_resize;
        s->t.is_persistent = is_persistent;
        s->t.fail_at = ++n;
        snprintf(s->note, sizeof s->note, "allocation %llu", (unsigned long long)n);
        was_met = run_script(s, &got);
        CHECK_IN(s->note, is_persistent || got == want);
        CHECK_IN(s->note, n < 10000);
        if (n >= 10000) break;
    }
    CHECK(n == n_asked + 1); /* every allocation was made to fail once */
    CHECK(n > 8);            /* and there were some outside of cellar_create */
    free(s);
}

void faults_transient(void)
{
    run_all(false, true);
}

void faults_persistent(void)
{
    run_all(true, true);
}

/* Calls that may not fail for want of memory, with none to be had; and computing takes none. */
static void go_without_memory(void)
{
    stage *s = drive_grab(1, sizeof *s);
    float zeros[16 * 16] = {0}, out[16 * 16];
    CHECK(open_stage(s) == CELLAR_OK);
    CHECK(drive_append(&s->d, 0, 0, 30, NULL) == CELLAR_OK);
    CHECK(cellar_copy(s->d.memory, 0, 1, 0, 20, NULL) == CELLAR_OK);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 9;
    CHECK(cellar_begin(s->d.memory, &batch, NULL) == CELLAR_OK);
    uint64_t n_asked = s->t.n_asked;
    s->t.fail_at = n_asked + 1;
    s->t.is_persistent = true;
    for (uint32_t l = 0; l < 2; l++) {
        CHECK(cellar_store(s->d.memory, 0, l, zeros, zeros, NULL) == CELLAR_OK);
        CHECK(cellar_attend(s->d.memory, 0, l, zeros, out, NULL) == CELLAR_OK);
    }
    CHECK(cellar_commit(s->d.memory, NULL) == CELLAR_OK);
    CHECK(s->t.n_asked == n_asked); /* between begin and commit nothing is allocated */
    CHECK(cellar_remove(s->d.memory, 1, 0, -1, NULL) == CELLAR_OK); /* splits no run */
    CHECK(cellar_keep(s->d.memory, 0, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(s->d.memory, 0) == 38);
    CHECK(cellar_clear(s->d.memory, NULL) == CELLAR_OK);
    s->t.is_paused = true;
    CHECK(cellar_check(s->d.memory, NULL) == CELLAR_OK);
    close_stage(s);
    free(s);
}

void faults_without_resize(void)
{
    run_all(false, false);
    run_all(true, false);
    go_without_memory();
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void measure_one(uint32_t n_layers, uint32_t n_cells, uint32_t n_ubatch, uint32_t n_workers)
{
    tracker *t = drive_grab(1, sizeof *t);
    float factors[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    cellar_layer layers[DRIVE_LAYERS] = {drive_layer(8, 2, 16, 24), drive_layer(3, 3, 5, 1),
                                         drive_layer(1, 1, 1, 1), drive_layer(16, 1, 80, 64)};
    cellar_config config = cellar_config_init();
    cellar_sizes sizes = {{0}, 0};
    cellar_statistics stats = {0};
    cellar_memory *memory = NULL;
    char note[100];
    snprintf(note, sizeof note, "%u layers, %u cells, %u tokens", n_layers, n_cells, n_ubatch);
    layers[0].rope.kind = CELLAR_ROPE_NEOX;
    layers[0].rope.factors = factors;
    layers[1].k_type = layers[1].v_type = CELLAR_F16;
    config.n_layers = n_layers;
    config.layers = layers;
    config.n_cells = n_cells;
    config.n_ubatch = n_ubatch;
    config.workers.n = n_workers;
    config.allocator = tracker_allocator(t);
    CHECK_IN(note, cellar_measure(&config, &sizes, NULL) == CELLAR_OK);
    CHECK_IN(note, t->n_asked == 0);
    CHECK_IN(note, cellar_create(&config, &memory, NULL) == CELLAR_OK);
    CHECK_IN(note, t->bytes == sizes.total);
    CHECK_IN(note, cellar_stats(memory, &stats, NULL) == CELLAR_OK);
    CHECK_IN(note, memcmp(&stats.sizes, &sizes, sizeof sizes) == 0);
    CHECK_IN(note, sizes.bytes[CELLAR_BYTES_RUNS] == 0 && sizes.bytes[CELLAR_BYTES_STEP] == 0);
    CHECK_IN(note, sizes.bytes[CELLAR_BYTES_ROWS] >= (uint64_t)n_cells * 2 * (16 + 24) * 4);
    cellar_destroy(memory);
    CHECK_IN(note, t->bytes == 0);
    free(t);
}

void faults_sizes(void)
{
    static const uint32_t cells[] = {1, 31, 32, 33, 64, 1000, 4096};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        measure_one(1, cells[i], 512, 0);
        measure_one(4, cells[i], 1, 1);
    }
    measure_one(2, 100, 65536, 0);
}

/* Asks for more than there is, or than fits in 64 bits. */
static void measure_large(uint32_t n_layers, uint32_t n_kv_heads, uint32_t size, uint32_t n_cells,
                          cellar_status expected)
{
    tracker *t = drive_grab(1, sizeof *t);
    cellar_layer *layers = drive_grab(n_layers, sizeof *layers);
    cellar_config config = cellar_config_init();
    cellar_sizes sizes;
    cellar_memory *memory = (cellar_memory *)(void *)t;
    cellar_error error = {0};
    char note[100];
    snprintf(note, sizeof note, "%u layers, %u heads of %u, %u cells", n_layers, n_kv_heads, size,
             n_cells);
    for (uint32_t l = 0; l < n_layers; l++)
        layers[l] = drive_layer(n_kv_heads, n_kv_heads, size, size);
    config.n_layers = n_layers;
    config.layers = layers;
    config.n_cells = n_cells;
    config.n_ubatch = 1;
    config.allocator = tracker_allocator(t);
    t->fail_at = 1;
    t->is_persistent = true;
    CHECK_IN(note, cellar_measure(&config, &sizes, &error) == expected);
    CHECK_IN(note, fault_error_fits(&error, expected));
    cellar_status status = cellar_create(&config, &memory, &error);
    CHECK_IN(note, status == (expected == CELLAR_OK ? CELLAR_NO_MEMORY : expected));
    CHECK_IN(note, fault_error_fits(&error, status) && memory == NULL && t->bytes == 0);
    if (expected == CELLAR_OK)
        CHECK_IN(note, sizes.bytes[CELLAR_BYTES_ROWS] >=
                           (uint64_t)n_layers * n_kv_heads * size * 8 * n_cells);
    free(layers);
    free(t);
}

void faults_large_sizes(void)
{
    const uint32_t most = 1u << 30;
    measure_large(1, 1, 64, most, CELLAR_OK);             /* 2^39 bytes of rows */
    measure_large(100, 64, 256, most, CELLAR_OK);         /* some 2^54 */
    measure_large(1, 65536, 65536, 1, CELLAR_OK);         /* 2^35 in one cell */
    measure_large(1, 65536, 65536, most, CELLAR_INVALID); /* 2^65 */
    measure_large(1, 65536, 32768, most, CELLAR_INVALID); /* 2^64 exactly */
    measure_large(64, 65536, 65536, 1u << 26, CELLAR_INVALID);
    measure_large(1000, 65536, 65536, most / 64, CELLAR_INVALID);
}
