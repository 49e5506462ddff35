/*
 * scenarios.c: tests that tell a story, each with the name of what it shows.
 *
 * S-numbers are the scenarios that the project set itself, D-numbers the faults of an older design
 * that must not come back. "Same result" means equal to the last bit. A scenario that fails prints
 * the condition and its place, and the others still run. Usage: scenarios [WORD]: only those whose
 * name contains WORD. Ends with `N passed, N failed, N skipped`; exits 1 when one failed.
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

void scenario_open(drive *d, uint32_t n_cells, uint32_t n_ubatch)
{
    cellar_config config = cellar_config_init();
    cellar_error error = {0};
    config.n_cells = n_cells;
    config.n_ubatch = n_ubatch;
    config.cpu_mask = allowed_cpu();
    if (drive_open(d, &config, &error) != CELLAR_OK) {
        fprintf(stderr, "scenarios: cellar_create: %s\n", error.message);
        exit(1);
    }
}

void scenario_open_rotating(drive *d, cellar_type type, uint32_t n_cells, uint32_t n_ubatch)
{
    memset(d, 0, sizeof *d);
    d->seed = 11;
    d->n_layers = 1;
    d->layers[0] = drive_layer(4, 2, 8, 8);
    d->layers[0].rope.kind = CELLAR_ROPE_NEOX;
    d->layers[0].k_type = d->layers[0].v_type = type;
    scenario_open(d, n_cells, n_ubatch);
}

/* ---- seeing which tokens a query sees -------------------------------------------------------- */

void scenario_open_counting(drive *d, uint32_t n_cells, uint32_t n_ubatch)
{
    memset(d, 0, sizeof *d);
    d->n_layers = 1;
    d->layers[0] = drive_layer(1, 1, 2, SCENARIO_IDS);
    d->layers[0].rope.kind = CELLAR_ROPE_NORMAL;
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
    act(d, argument);
    is_same = is_same && drive_snapshot_take(&after, d->memory) &&
              drive_snapshot_equal(&before, &after, why);
    if (!is_same) printf("    changed: %s\n", why);
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

int main(int argc, char **argv)
{
    const scenario *const tables[] = {scenarios_basic, scenarios_equality, scenarios_defects};
    uint32_t passed = 0, failed = 0;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const scenario *s = tables[t]; s->name; s++) {
            if (argc > 1 && !strstr(s->name, argv[1])) continue;
            n_broken = 0;
            s->run();
            printf("%s %s\n", n_broken ? "FAIL" : "ok  ", s->name);
            fflush(stdout);
            *(n_broken ? &failed : &passed) += 1;
        }
    printf("%u passed, %u failed, 0 skipped\n", passed, failed);
    return failed > 0 || passed == 0;
}
