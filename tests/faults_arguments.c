/*
 * faults_arguments.c: every public call with every kind of wrong argument. Each row of the tables
 * is one call: it must return the status that stands there, fill the error, and change nothing.
 *
 * Written from the header. Where it allows two readings (a structure of another size), both are
 * accepted: what counts is that the call fails and does no harm.
 */
#include "faults.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- configurations -------------------------------------------------------------------------- */

typedef struct setup {
    cellar_config config;
    cellar_layer layers[2];
    float factors[8];
} setup;

static void make_setup(setup *s)
{
    s->config = cellar_config_init();
    for (int l = 0; l < 2; l++) {
        s->layers[l] = drive_layer(4, 2, 16, 8);
        s->layers[l].rope.kind = CELLAR_ROPE_NORMAL;
    }
    for (int i = 0; i < 8; i++)
        s->factors[i] = 1;
    s->config.n_layers = 2;
    s->config.layers = s->layers;
    s->config.n_cells = 64;
}

static void *no_block(void *context, size_t size, size_t align)
{
    (void)context;
    (void)size;
    (void)align;
    return NULL;
}

/* Break one thing. False: no such number. */
static bool spoil(setup *s, int number)
{
    cellar_config *c = &s->config;
    cellar_layer *l = &s->layers[1];
    /* clang-format off */
    switch (number) {
    case 0: c->struct_size = 0; break;
    case 1: c->n_layers = 0; break;
    case 2: c->layers = NULL; break;
    case 3: c->n_cells = 0; break;
    case 4: c->n_cells = (1u << 30) + 1; break;
    case 5: c->n_cells = UINT32_MAX; break;
    case 6: c->n_ubatch = 0; break;
    case 7: c->n_ubatch = 65537; break;
    case 8: c->n_ubatch = UINT32_MAX; break;
    case 9: c->workers.n = 2; break; /* without run */
    case 10: c->allocator.allocate = no_block; break; /* without release */
    case 11: l->struct_size = 0; break;
    case 12: l->kind = (cellar_layer_kind)99; break;
    case 13: l->n_heads = 0; break;
    case 14: l->n_heads = 65537; break;
    case 15: l->n_heads = 5; break; /* not a multiple of 2 */
    case 16: l->n_kv_heads = 0; break;
    case 17: l->n_kv_heads = 8; break;
    case 18: l->n_kv_heads = UINT32_MAX; break;
    case 19: l->k_size = 0; break;
    case 20: l->k_size = 65537; break;
    case 21: l->k_size = UINT32_MAX; break;
    case 22: l->v_size = 0; break;
    case 23: l->v_size = 65537; break;
    case 24: l->k_type = (cellar_type)2; break;
    case 25: l->v_type = (cellar_type)-1; break;
    case 26: l->scale = NAN; break;
    case 27: l->scale = INFINITY; break;
    case 28: l->rope.kind = (cellar_rope_kind)3; break;
    case 29: l->rope.n_rot = 3; break;
    case 30: l->rope.n_rot = 18; break;
    case 31: l->rope.n_rot = UINT32_MAX; break;
    case 32: l->k_size = 15; break; /* the whole head rotates: odd */
    case 33: l->rope.base = 0; break;
    case 34: l->rope.base = -10000; break;
    case 35: l->rope.base = (double)NAN; break;
    case 36: l->rope.base = (double)INFINITY; break;
    case 37: l->rope.scale = 0; break;
    case 38: l->rope.scale = -1; break;
    case 39: l->rope.scale = (double)NAN; break;
    case 40: l->rope.factors = s->factors; s->factors[7] = 0; break;
    case 41: l->rope.factors = s->factors; s->factors[0] = -1; break;
    case 42: l->rope.factors = s->factors; s->factors[3] = NAN; break;
    case 43: l->rope.yarn_ext = (double)NAN; break;
    case 44: l->rope.yarn_ext = -1; break;
    case 45: l->rope.yarn_ext = 1; break; /* without yarn_context */
    case 46: l->rope.yarn_attn = (double)NAN; break;
    case 47:
        l->rope.yarn_ext = 1;
        l->rope.yarn_context = 64;
        l->rope.yarn_beta_fast = (double)NAN;
        break;
    case 48:
        l->rope.yarn_ext = 1;
        l->rope.yarn_context = 64;
        l->rope.yarn_beta_slow = 0;
        break;
    case 49: l->rope.yarn_ext = 2; break;
    case 50: c->n_layers = 0; c->layers = NULL; break;
    default: return false;
    }
    /* clang-format on */
    return true;
}

void faults_configurations(void)
{
    setup *s = drive_grab(1, sizeof *s);
    tracker *t = drive_grab(1, sizeof *t);
    int n = 0;
    for (make_setup(s); spoil(s, n); make_setup(s), n++) {
        cellar_sizes sizes;
        cellar_memory *memory = (cellar_memory *)(void *)s; /* has to become NULL */
        cellar_error error;
        char note[] = {(char)('0' + n / 10), (char)('0' + n % 10), 0};
        if (n != 10) s->config.allocator = tracker_allocator(t);
        memset(&error, 0x5a, sizeof error);
        CHECK_IN(note, cellar_measure(&s->config, &sizes, &error) == CELLAR_INVALID);
        CHECK_IN(note, fault_error_fits(&error, CELLAR_INVALID));
        memset(&error, 0x5a, sizeof error);
        CHECK_IN(note, cellar_create(&s->config, &memory, &error) == CELLAR_INVALID);
        CHECK_IN(note, fault_error_fits(&error, CELLAR_INVALID) && memory == NULL);
        CHECK_IN(note, cellar_measure(&s->config, &sizes, NULL) == CELLAR_INVALID);
        CHECK_IN(note, t->n_asked == 0);
    }
    CHECK(n > 50);
    cellar_memory *memory = NULL;
    cellar_sizes sizes;
    make_setup(s);
    CHECK(cellar_measure(NULL, &sizes, NULL) == CELLAR_INVALID);
    CHECK(cellar_measure(&s->config, NULL, NULL) == CELLAR_INVALID);
    CHECK(cellar_create(NULL, &memory, NULL) == CELLAR_INVALID && memory == NULL);
    CHECK(cellar_create(&s->config, NULL, NULL) == CELLAR_INVALID);
    CHECK(cellar_create(&s->config, &memory, NULL) == CELLAR_OK); /* the unbroken one is good */
    cellar_destroy(memory);
    free(t);
    free(s);
}

/* Structures as another version of the header would have them. */
void faults_struct_sizes(void)
{
    static const size_t sizes[] = {1, 7, sizeof(size_t), SIZE_MAX, (size_t)1 << 40};
    setup *s = drive_grab(1, sizeof *s);
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        cellar_memory *memory = NULL;
        make_setup(s);
        *(i % 2 ? &s->config.struct_size : &s->layers[1].struct_size) = sizes[i / 2];
        cellar_status status = cellar_create(&s->config, &memory, NULL);
        CHECK((status == CELLAR_INVALID || status == CELLAR_UNSUPPORTED) && memory == NULL);
    }
    make_setup(s);
    cellar_memory *memory = NULL;
    CHECK(cellar_create(&s->config, &memory, NULL) == CELLAR_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = 1;
        batch.struct_size = sizes[i];
        cellar_status status = cellar_begin(memory, &batch, NULL);
        CHECK(status == CELLAR_INVALID || status == CELLAR_UNSUPPORTED);
    }
    cellar_destroy(memory);
    free(s);
}

/* ---- calls on a good memory ------------------------------------------------------------------ */

static float rows[4096];
static cellar_sequence_info info;
static cellar_ubatch ubatch;
static cellar_pos out_pos;

static bool see_run(void *context, const cellar_run *run)
{
    (void)context;
    (void)run;
    return true;
}

static bool see_cell(void *context, const cellar_cell *cell)
{
    (void)context;
    (void)cell;
    return true;
}

/* One call with a wrong argument; *want becomes what it must return. False: no such number. */
static bool call_wrongly(cellar_memory *m, int number, cellar_error *e, cellar_status *got,
                         cellar_status *want)
{
    *want = CELLAR_INVALID;
    /* clang-format off */
    switch (number) {
    case 0: *got = cellar_begin(m, NULL, e); break;
    case 1: *got = cellar_get_ubatch(m, 0, &ubatch, e); break;
    case 2: *got = cellar_store(m, 0, 0, rows, rows, e); break;
    case 3: *got = cellar_attend(m, 0, 0, rows, rows + 2048, e); break;
    case 4: *got = cellar_commit(m, e); break;
    case 5: *got = cellar_remove(m, -1, 0, -1, e); break;
    case 6: *got = cellar_remove(m, INT32_MIN, 0, -1, e); break;
    case 7: *got = cellar_remove(m, 0, 3, 2, e); break;
    case 8: *got = cellar_remove(m, 0, INT32_MAX, 0, e); break;
    case 9: *got = cellar_copy(m, -1, 1, 0, -1, e); break;
    case 10: *got = cellar_copy(m, 0, -1, 0, -1, e); break;
    case 11: *got = cellar_copy(m, 0, 1, 2, 1, e); break;
    case 12: *got = cellar_copy(m, -1, -1, 0, -1, e); break;
    case 13: *got = cellar_copy(m, 0, 0, 2, 1, e); break;
    case 14: *got = cellar_keep(m, -1, e); break;
    case 15: *got = cellar_shift(m, -1, 0, -1, 1, e); break;
    case 16: *got = cellar_shift(m, 0, 2, 1, 1, e); break;
    case 17: *got = cellar_shift(m, 0, 0, -1, INT32_MAX, e); break;
    case 18: *got = cellar_shift(m, 0, 0, 2, 2, e); *want = CELLAR_REFUSED; break;
    case 19: *got = cellar_shift_context(m, -1, 0, 0, NULL, e); break;
    case 20: *got = cellar_shift_context(m, 0, -1, 0, NULL, e); break;
    case 21: *got = cellar_shift_context(m, 0, 8, 0, NULL, e); break;
    case 22: *got = cellar_shift_context(m, 0, 2, 7, NULL, e); break;
    case 23: *got = cellar_shift_context(m, 0, 7, 0, NULL, e); break;
    case 24: *got = cellar_shift_context(m, 0, 0, -1, NULL, e); break;
    case 25: *got = cellar_shift_context(m, 0, INT32_MAX, INT32_MAX, NULL, e); break;
    case 26: *got = cellar_shift_context(m, 99, 0, 0, NULL, e); break; /* empty */
    case 27: *got = cellar_shift_context(m, 99, 0, 1, NULL, e); break;
    case 28: *got = cellar_get_sequence(m, -1, &info, e); break;
    case 29: *got = cellar_get_sequence(m, 0, NULL, e); break;
    case 30: *got = cellar_can_continue(m, -1, 0, &out_pos, e); break;
    case 31: *got = cellar_can_continue(m, 0, -1, &out_pos, e); break;
    case 32: *got = cellar_can_continue(m, 0, 9, &out_pos, e); *want = CELLAR_REPLAY; break;
    case 33: *got = cellar_read_rows(m, -1, 0, 0, 1, rows, rows, e); break;
    case 34: *got = cellar_read_rows(m, 0, 2, 0, 1, rows, rows, e); break;
    case 35: *got = cellar_read_rows(m, 0, UINT32_MAX, 0, 1, rows, rows, e); break;
    case 36: *got = cellar_read_rows(m, 0, 0, -1, 1, rows, rows, e); break;
    case 37: *got = cellar_read_rows(m, 0, 0, 8, 1, rows, rows, e); *want = CELLAR_NOT_FOUND; break;
    case 38:
        *got = cellar_read_rows(m, 99, 0, 0, 1, rows, rows, e);
        *want = CELLAR_NOT_FOUND;
        break;
    case 39: *got = cellar_stats(m, NULL, e); break;
    case 40: *got = cellar_visit_runs(m, -2, see_run, NULL, e); break;
    case 41: *got = cellar_visit_runs(m, -1, NULL, NULL, e); break;
    case 42: *got = cellar_visit_cells(m, NULL, NULL, e); break;
    default: return false;
    }
    /* clang-format on */
    return true;
}

/* The same in an open step: wrong stays wrong. */
static bool call_wrongly_in_step(cellar_memory *m, int number, cellar_error *e, cellar_status *got)
{
    /* clang-format off */
    switch (number) {
    case 0: *got = cellar_get_ubatch(m, 1, &ubatch, e); break;
    case 1: *got = cellar_get_ubatch(m, UINT32_MAX, &ubatch, e); break;
    case 2: *got = cellar_get_ubatch(m, 0, NULL, e); break;
    case 3: *got = cellar_store(m, 1, 0, rows, rows, e); break;
    case 4: *got = cellar_store(m, 0, 2, rows, rows, e); break;
    case 5: *got = cellar_store(m, UINT32_MAX, UINT32_MAX, rows, rows, e); break;
    case 6: *got = cellar_store(m, 0, 0, NULL, rows, e); break;
    case 7: *got = cellar_store(m, 0, 0, rows, NULL, e); break;
    case 8: *got = cellar_attend(m, 0, 0, rows, rows + 2048, e); break; /* not stored */
    case 9: *got = cellar_attend(m, 1, 0, rows, rows + 2048, e); break;
    case 10: *got = cellar_attend(m, 0, 2, rows, rows + 2048, e); break;
    case 11: *got = cellar_attend(m, 0, 0, NULL, rows, e); break;
    case 12: *got = cellar_attend(m, 0, 0, rows, NULL, e); break;
    case 13: *got = cellar_commit(m, e); break; /* nothing stored */
    default: return false;
    }
    /* clang-format on */
    return true;
}

static void make_memory(drive *d)
{
    cellar_config config = cellar_config_init();
    memset(d, 0, sizeof *d);
    d->n_layers = 2;
    d->layers[0] = d->layers[1] = drive_layer(4, 2, 16, 8);
    d->layers[0].rope.kind = CELLAR_ROPE_NEOX;
    config.n_cells = 32;
    CHECK(drive_open(d, &config, NULL) == CELLAR_OK);
    CHECK(drive_append(d, 0, 0, 8, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d->memory, 0, 1, 0, 4, NULL) == CELLAR_OK);
}

void faults_calls(void)
{
    drive d;
    drive_snapshot before = {0}, after = {0};
    char why[200];
    cellar_status got = CELLAR_OK, want = CELLAR_OK;
    cellar_error error;
    int n = 0;
    make_memory(&d);
    CHECK(drive_snapshot_take(&before, d.memory));
    for (memset(&error, 0x5a, sizeof error); call_wrongly(d.memory, n, &error, &got, &want); n++) {
        char note[] = {(char)('0' + n / 10), (char)('0' + n % 10), 0};
        CHECK_IN(note, got == want && fault_error_fits(&error, got));
        call_wrongly(d.memory, n, NULL, &got, &want); /* and nobody who wants to know */
        CHECK_IN(note, got == want);
        CHECK_IN(note, drive_snapshot_take(&after, d.memory) &&
                           drive_snapshot_equal(&before, &after, why));
        memset(&error, 0x5a, sizeof error);
    }
    CHECK(n > 40);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 3;
    CHECK(cellar_begin(d.memory, &batch, NULL) == CELLAR_OK);
    CHECK(drive_snapshot_take(&before, d.memory));
    for (n = 0; call_wrongly_in_step(d.memory, n, &error, &got); n++) {
        char note[] = {'s', 't', 'e', 'p', ' ', (char)('0' + n / 10), (char)('0' + n % 10), 0};
        CHECK_IN(note, got == CELLAR_INVALID && fault_error_fits(&error, got));
        CHECK_IN(note, drive_snapshot_take(&after, d.memory) &&
                           drive_snapshot_equal(&before, &after, why));
    }
    cellar_abort(d.memory);
    CHECK(cellar_position_min(d.memory, -1) == -1 &&
          cellar_position_max(d.memory, INT32_MIN) == -1);
    CHECK(cellar_position_min(d.memory, 99) == -1 && cellar_position_max(d.memory, 99) == -1);
    CHECK(cellar_check(d.memory, NULL) == CELLAR_OK);
    drive_snapshot_free(&before);
    drive_snapshot_free(&after);
    drive_close(&d);
}

void faults_null_memory(void)
{
    cellar_batch batch = cellar_batch_init();
    cellar_statistics stats;
    cellar_error error;
    cellar_status got = CELLAR_OK, want = CELLAR_OK;
    batch.n_tokens = 1;
    for (int n = 0; call_wrongly(NULL, n, &error, &got, &want); n++)
        CHECK(got == CELLAR_INVALID && fault_error_fits(&error, got));
    CHECK(cellar_begin(NULL, &batch, &error) == CELLAR_INVALID);
    CHECK(cellar_stats(NULL, &stats, &error) == CELLAR_INVALID);
    CHECK(cellar_visit_runs(NULL, -1, see_run, NULL, &error) == CELLAR_INVALID);
    CHECK(cellar_visit_cells(NULL, see_cell, NULL, &error) == CELLAR_INVALID);
    CHECK(cellar_get_sequence(NULL, 0, &info, &error) == CELLAR_INVALID);
    CHECK(cellar_can_continue(NULL, 0, 0, &out_pos, &error) == CELLAR_INVALID);
    CHECK(cellar_remove(NULL, 0, 0, -1, &error) == CELLAR_INVALID);
    CHECK(cellar_keep(NULL, 0, &error) == CELLAR_INVALID);
    CHECK(cellar_clear(NULL, &error) == CELLAR_INVALID);
    CHECK(cellar_check(NULL, &error) != CELLAR_OK);
    CHECK(cellar_position_min(NULL, 0) == -1 && cellar_position_max(NULL, 0) == -1);
    CHECK(cellar_count_ubatches(NULL) == 0);
    (void)cellar_cpu(NULL); /* anything, but no crash */
    cellar_abort(NULL);
    cellar_destroy(NULL);
    CHECK(strcmp(cellar_status_text(CELLAR_FULL), "not enough free cells") == 0);
    CHECK(strcmp(cellar_status_text((cellar_status)-99), "unknown status") == 0);
    CHECK(strcmp(cellar_status_text((cellar_status)1), "unknown status") == 0);
}
