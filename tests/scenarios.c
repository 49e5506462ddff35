/*
 * scenarios.c: tests that tell a story, each with the name of what it shows.
 *
 * S-numbers are the scenarios that the project set itself, D-numbers the faults of an older design
 * that must not come back. "Same result" means equal to the last bit. A scenario that fails prints
 * the condition and its place, and the others still run. Usage: scenarios [WORD]: only those whose
 * name contains WORD. Ends with `N passed, N failed, 0 skipped`; exits 1 when one failed.
 */
#include "scenarios.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t n_broken; /* failed checks of the scenario that runs */

void scenario_check(bool is_true, const char *text, const char *file, int line)
{
    if (is_true) return;
    n_broken++;
    const char *slash = strrchr(file, '/');
    printf("    %s:%d: not so: %s\n", slash ? slash + 1 : file, line, text);
}

static uint32_t allowed_cpu(void)
{
    const char *name = getenv("CELLAR_CPU");
    return name && !strcmp(name, "scalar") ? CELLAR_CPU_SCALAR : CELLAR_CPU_ALL;
}

cellar_config scenario_config(uint32_t n_cells, uint32_t n_ubatch)
{
    cellar_config config = cellar_config_init();
    config.n_cells = n_cells;
    config.n_ubatch = n_ubatch;
    config.cpu_mask = allowed_cpu();
    return config;
}

void scenario_make(drive *d, const cellar_config *config)
{
    cellar_error error = {0};
    if (drive_open(d, config, &error) == CELLAR_OK) return;
    n_broken++;
    printf("    cellar_create: %s\n", error.message);
}

void scenario_open(drive *d, uint32_t n_cells, uint32_t n_ubatch)
{
    cellar_config config = scenario_config(n_cells, n_ubatch);
    scenario_make(d, &config);
}

cellar_layer scenario_layer(cellar_type type, uint32_t size)
{
    cellar_layer layer = drive_layer(4, 2, size, size);
    layer.rope.kind = CELLAR_ROPE_NEOX;
    layer.k_type = layer.v_type = type;
    return layer;
}

cellar_layer scenario_window_layer(cellar_window_kind kind, uint32_t size)
{
    cellar_layer layer = scenario_layer(CELLAR_F32, 8);
    layer.window.kind = kind;
    layer.window.size = size;
    return layer;
}

void scenario_open_rotating(drive *d, cellar_type type, uint32_t n_cells, uint32_t n_ubatch)
{
    memset(d, 0, sizeof *d);
    d->seed = 11;
    d->n_layers = 1;
    d->layers[0] = scenario_layer(type, 8);
    scenario_open(d, n_cells, n_ubatch);
}

static void *allocate_filled(void *context, size_t size, size_t align)
{
    size_t unit = align < sizeof(void *) ? sizeof(void *) : align;
    size_t rounded = (size + unit - 1) / unit * unit;
    void *block = aligned_alloc(unit, rounded ? rounded : unit);
    if (block) memset(block, *(const unsigned char *)context, rounded ? rounded : unit);
    return block;
}

static void release_filled(void *context, void *block, size_t size)
{
    (void)context;
    (void)size;
    free(block);
}

cellar_allocator scenario_allocator(const unsigned char *byte)
{
    union { /* the context is only read */
        const unsigned char *in;
        void *out;
    } context = {byte};
    return (cellar_allocator){allocate_filled, NULL, release_filled, context.out};
}

/* ---- seeing which tokens a query sees -------------------------------------------------------- */

void scenario_shape_counting(drive *d)
{
    memset(d, 0, sizeof *d);
    d->n_layers = 1;
    d->layers[0] = drive_layer(1, 1, 2, SCENARIO_IDS);
    d->layers[0].rope.kind = CELLAR_ROPE_NORMAL;
}

void scenario_open_counting(drive *d, uint32_t n_cells, uint32_t n_ubatch)
{
    scenario_shape_counting(d);
    scenario_open(d, n_cells, n_ubatch);
}

static cellar_status count_ubatch(drive *d, uint32_t u, const cellar_token *tokens, float *mean)
{
    cellar_ubatch ubatch;
    cellar_status status = cellar_get_ubatch(d->memory, u, &ubatch, NULL);
    if (status != CELLAR_OK) return status;
    float *k = drive_grab((size_t)ubatch.n_tokens * 2, sizeof *k);
    float *v = drive_grab((size_t)ubatch.n_tokens * SCENARIO_IDS, sizeof *v);
    float *q = drive_grab((size_t)ubatch.n_tokens * 2, sizeof *q);
    float *out = drive_grab((size_t)ubatch.n_tokens * SCENARIO_IDS, sizeof *out);
    for (uint32_t i = 0; i < ubatch.n_tokens; i++) {
        v[i * SCENARIO_IDS + tokens[ubatch.indices[i]] % SCENARIO_IDS] = 1;
        q[2 * i] = 1;
    }
    status = cellar_store(d->memory, u, 0, k, v, NULL);
    if (status == CELLAR_OK) status = cellar_attend(d->memory, u, 0, q, out, NULL);
    memcpy(mean, out + (size_t)(ubatch.n_tokens - 1) * SCENARIO_IDS, SCENARIO_IDS * sizeof *mean);
    free(k);
    free(v);
    free(q);
    free(out);
    return status;
}

cellar_status scenario_append(drive *d, cellar_seq seq, cellar_token first, uint32_t n, bool *seen)
{
    cellar_token *tokens = drive_grab(n, sizeof *tokens);
    cellar_seq *seqs = drive_grab(n, sizeof *seqs);
    float mean[SCENARIO_IDS] = {0};
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = first + (cellar_token)i;
        seqs[i] = seq;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    cellar_status status = cellar_begin(d->memory, &batch, NULL);
    uint32_t n_ubatches = status == CELLAR_OK ? cellar_count_ubatches(d->memory) : 0;
    for (uint32_t u = 0; u < n_ubatches && status == CELLAR_OK; u++)
        status = count_ubatch(d, u, tokens, mean);
    if (n_ubatches > 0 && status == CELLAR_OK) status = cellar_commit(d->memory, NULL);
    for (uint32_t i = 0; i < SCENARIO_IDS && seen; i++)
        seen[i] = mean[i] > 0;
    free(tokens);
    free(seqs);
    return status;
}

uint32_t scenario_count(const bool *seen)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < SCENARIO_IDS; i++)
        n += seen[i];
    return n;
}

/* ---- small helpers --------------------------------------------------------------------------- */

static cellar_statistics stats_of(const drive *d)
{
    cellar_statistics stats = {0};
    CHECK(cellar_stats(d->memory, &stats, NULL) == CELLAR_OK);
    return stats;
}

uint32_t scenario_used(const drive *d)
{
    return stats_of(d).n_used;
}

uint64_t scenario_rows_written(const drive *d)
{
    return stats_of(d).rows_written;
}

bool scenario_leaves_unchanged(drive *d, void (*act)(drive *d, void *argument), void *argument)
{
    drive_snapshot before = {0}, after = {0};
    char why[200] = "the memory could not be visited";
    bool is_same = drive_snapshot_take(&before, d->memory);
    uint64_t picture = scenario_picture(d->memory);
    act(d, argument);
    is_same = is_same && drive_snapshot_take(&after, d->memory) &&
              drive_snapshot_equal(&before, &after, why);
    if (!is_same) printf("    changed: %s\n", why);
    if (is_same && picture != scenario_picture(d->memory)) {
        printf("    changed: something that no run, cell or count shows\n");
        is_same = false;
    }
    drive_snapshot_free(&before);
    drive_snapshot_free(&after);
    return is_same;
}

void scenario_expected_key(const drive *d, cellar_token token, cellar_pos stored, cellar_pos pos,
                           double *k)
{
    const cellar_layer *layer = &d->layers[0];
    float *raw_k = drive_grab((size_t)layer->n_kv_heads * layer->k_size, sizeof *raw_k);
    float *raw_v = drive_grab((size_t)layer->n_kv_heads * layer->v_size, sizeof *raw_v);
    double *v = drive_grab((size_t)layer->n_kv_heads * layer->v_size, sizeof *v);
    size_t n_k = (size_t)layer->n_kv_heads * layer->k_size;
    double *all = drive_grab(2 * n_k, sizeof *all);
    drive_token_row(d, 0, DRIVE_K, token, raw_k);
    const attention_model_row row = {pos, stored, raw_k, raw_v};
    attention_model_rows(layer, &row, all, v, all + n_k);
    memcpy(k, all, layer->k_size * sizeof *k);
    free(raw_k);
    free(raw_v);
    free(v);
    free(all);
}

double scenario_worst(const drive *d, uint32_t number, const cellar_layer *layer,
                      cellar_token token, cellar_pos pos, const scenario_key *keys, uint32_t n,
                      const float *got)
{
    size_t k_row = (size_t)layer->n_kv_heads * layer->k_size;
    size_t v_row = (size_t)layer->n_kv_heads * layer->v_size;
    size_t n_out = (size_t)layer->n_heads * layer->v_size;
    attention_model_row *rows = drive_grab(n, sizeof *rows);
    float *k = drive_grab(n * k_row, sizeof *k), *v = drive_grab(n * v_row, sizeof *v);
    float *q = drive_grab((size_t)layer->n_heads * layer->k_size, sizeof *q);
    double *out = drive_grab(n_out + layer->n_heads, sizeof *out);
    for (uint32_t i = 0; i < n; i++) {
        drive_token_row(d, number, DRIVE_K, keys[i].token, k + i * k_row);
        drive_token_row(d, number, DRIVE_V, keys[i].token, v + i * v_row);
        rows[i] = (attention_model_row){keys[i].pos, keys[i].stored, k + i * k_row, v + i * v_row};
    }
    drive_token_row(d, number, DRIVE_Q, token, q);
    attention_model_attend(layer, q, pos, rows, n, out, out + n_out);
    double worst = attention_model_worst(layer, got, out, out + n_out);
    free(rows);
    free(k);
    free(v);
    free(q);
    free(out);
    return worst;
}

float *scenario_plainly(const drive *d, const cellar_config *config, const cellar_token *tokens,
                        uint32_t n, uint32_t n_at_once)
{
    drive plain = *d;
    cellar_config alone = *config;
    size_t row = play_row_size(d);
    float *out = drive_grab(n * row, sizeof *out);
    alone.n_cells = config->n_pools * (n + 64);
    alone.pool_cells = NULL;
    alone.n_sequences = config->n_pools;
    alone.checkpoint_bytes = alone.rollback_bytes = 0;
    scenario_make(&plain, &alone);
    for (uint32_t i = 0; i < n; i += n_at_once) {
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = n - i < n_at_once ? n - i : n_at_once;
        batch.tokens = tokens + i;
        scenario_check(play_step(&plain, &batch, out + i * row, NULL) == CELLAR_OK,
                       "a plain run is read", __FILE__, __LINE__);
    }
    drive_close(&plain);
    return out;
}

cellar_token *scenario_tokens(cellar_token *tokens, cellar_token first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = first + (cellar_token)i;
    return tokens + n;
}

bool scenario_answers_plainly(const drive *d, const cellar_config *config,
                              const cellar_token *tokens, uint32_t n_all, const float *got,
                              uint32_t n)
{
    size_t row = play_row_size(d);
    float *want = scenario_plainly(d, config, tokens, n_all, 1);
    bool is_same = scenario_same_bits(got, want + (n_all - n) * row, n * row);
    free(want);
    return is_same;
}

bool scenario_same_bits(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

bool scenario_all_finite(const float *a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(a[i])) return false;
    return true;
}

/* ---- running --------------------------------------------------------------------------------- */

static const scenario *const tables[] = {
    scenarios_basic,       scenarios_equality, scenarios_defects,   scenarios_windows,
    scenarios_recurrent,   scenarios_pools,    scenarios_positions, scenarios_types,
    scenarios_checkpoints, scenarios_kept,     scenarios_free,      scenarios_groups,
    scenarios_sessions,    scenarios_story,
};

int main(int argc, char **argv)
{
    uint32_t passed = 0, failed = 0;
    const char *word = argc > 1 ? argv[1] : "";
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const scenario *s = tables[t]; s->name; s++) {
            if (!strstr(s->name, word)) continue;
            n_broken = 0;
            s->run();
            printf("%s %s\n", n_broken ? "FAIL" : "ok  ", s->name);
            fflush(stdout);
            *(n_broken ? &failed : &passed) += 1;
        }
    printf("%u passed, %u failed, 0 skipped\n", passed, failed);
    return failed > 0 || passed == 0;
}
