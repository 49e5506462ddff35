/*
 * work.c: the counting of work.h, from the tensors of the file and the layers of the memory.
 *
 * A tensor of two dimensions or more is a matrix that every token is multiplied with, but for tables that
 * are only looked up, the encoder's, and experts, of which a token asks some. A table that has no output matrix
 * beside it is the output matrix itself. Numbers are doubles: they are for ratios, not for
 * sizes of memory. A tensor that this does not understand counts as a matrix.
 */
#include "bench/work.h"

#include <stdio.h>
#include <string.h>

/* What the matrices of a model take and cost. */
typedef struct matrices {
    double bytes, operations;               /* of all layers, for one token */
    double expert_bytes, expert_operations; /* of all experts, asked or not */
    double output_bytes, output_operations; /* for one token whose logits are wanted */
    double n_experts, n_asked;              /* by a token */
} matrices;

static bool begins_with(const gguf_tensor *t, const char *word)
{
    const size_t n = strlen(word);
    return t->name.length >= n && memcmp(t->name.data, word, n) == 0;
}

static bool contains(const gguf_tensor *t, const char *word)
{
    const size_t n = strlen(word);
    for (size_t i = 0; i + n <= t->name.length; i++) {
        if (memcmp(t->name.data + i, word, n) == 0) {
            return true;
        }
    }
    return false;
}

static double read_count(const model *m, const char *what)
{
    char key[160];
    uint32_t n = 0;
    snprintf(key, sizeof key, "%s.%s", m->architecture->name, what);
    return gguf_get_u32(m->file, key, &n, NULL) == CELLAR_OK ? n : 0;
}

static void add_matrix(matrices *all, const gguf_tensor *t, bool is_output)
{
    const double bytes = (double)t->n_bytes, operations = 2 * (double)t->n_elements;
    if (is_output) {
        all->output_bytes += bytes;
        all->output_operations += operations;
    } else if (t->n_dims == 3 && contains(t, "_exps")) {
        all->expert_bytes += bytes;
        all->expert_operations += operations;
    } else {
        all->bytes += bytes;
        all->operations += operations;
    }
}

static matrices count_matrices(const model *m)
{
    static const char *const not_multiplied[] = {
        "token_embd", "per_layer_token_embd", "position_embd", "token_types", "enc.", "v."};
    matrices all = {.n_experts = read_count(m, "expert_count"),
                    .n_asked = read_count(m, "expert_used_count")};
    const bool is_tied = gguf_find_tensor(m->file, "output.weight") == NULL;
    for (uint32_t i = 0; i < gguf_count_tensors(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        const bool is_output = begins_with(t, "output.weight") ||
                               (is_tied && begins_with(t, "token_embd.weight"));
        bool is_table = t->dims[1] <= 1;
        for (size_t k = 0; k < sizeof not_multiplied / sizeof *not_multiplied; k++) {
            is_table = is_table || begins_with(t, not_multiplied[k]);
        }
        if (is_output || !is_table) {
            add_matrix(&all, t, is_output);
        }
    }
    return all;
}

/* Matrices for n tokens computed at once, of which n_wanted give logits. */
static void add_products(bench_work *work, const matrices *all, double n, double n_wanted)
{
    work->bytes += all->bytes;
    work->operations += n * all->operations;
    if (all->n_experts > 0) {
        const double asked = n * all->n_asked;
        const double touched = asked < all->n_experts ? asked : all->n_experts;
        work->bytes += all->expert_bytes * touched / all->n_experts;
        work->operations += n * all->expert_operations * all->n_asked / all->n_experts;
    }
    if (n_wanted > 0) {
        work->bytes += all->output_bytes;
        work->operations += n_wanted * all->output_operations;
    }
}

/* Keys that a query at `position` sees. */
static double count_seen(const cellar_layer *layer, double position)
{
    const double before = position + 1, window = layer->window.size;
    switch (layer->window.kind) {
    case CELLAR_WINDOW_STANDARD:
        return before < window + layer->window.n_sinks ? before : window + layer->window.n_sinks;
    case CELLAR_WINDOW_CHUNKED:
        return before - window * (double)(uint64_t)(position / window);
    case CELLAR_WINDOW_SYMMETRIC:
        return before < window / 2 + 1 ? before : window / 2 + 1;
    default:
        return before;
    }
}

/*
 * Attention of n tokens of one sequence computed at once behind `depth` others. Of these, rows of the first
 * n_read_before are read for another sequence already.
 */
static void add_attention(bench_work *work, const engine *e, const engine_options *options,
                          double n, double depth, double n_read_before)
{
    const model *m = engine_model(e);
    for (uint32_t l = 0; l < m->n_memory_layers; l++) {
        const cellar_layer *layer = &m->memory_layers[l];
        if (layer->kind != CELLAR_LAYER_ATTENTION) {
            continue;
        }
        const double row =
            (double)cellar_type_bytes(options->k_type, (size_t)layer->n_kv_heads * layer->k_size) +
            (layer->v_in_k ? 0
                           : (double)cellar_type_bytes(options->v_type,
                                                       (size_t)layer->n_kv_heads * layer->v_size));
        const double last = count_seen(layer, depth + n - 1), first = count_seen(layer, depth);
        const double seen = first + n - 1, rows = seen < depth + n ? seen : depth + n;
        const double spared = n_read_before - (depth + n - rows);
        work->bytes += row * (rows - (spared > 0 ? spared : 0));
        work->operations += 2.0 * layer->n_heads * (layer->k_size + layer->v_size) * n *
                            (first + last) / 2; /* seen in the middle */
    }
}

bench_work bench_work_of(const engine *e, const engine_options *options, bool is_generation,
                         uint32_t n, uint32_t depth)
{
    const matrices all = count_matrices(engine_model(e));
    bench_work work = {0};
    const uint32_t most = is_generation ? 1 : engine_ubatch(e);
    for (uint32_t done = 0, part; done < n; done += part) {
        part = n - done < most ? n - done : most;
        add_products(&work, &all, part, is_generation || done + part == n);
        add_attention(&work, e, options, part, (double)depth + done, 0);
    }
    return work;
}

bench_work bench_work_of_sequences(const engine *e, const engine_options *options,
                                   const bench_sequences *s)
{
    const matrices all = count_matrices(engine_model(e));
    const uint32_t most = engine_ubatch(e);
    bench_work work = {0};
    for (uint32_t step = 0; step < s->n_generated; step++) {
        for (uint32_t first = 0, n; first < s->n_sequences; first += n) {
            n = s->n_sequences - first < most ? s->n_sequences - first : most;
            add_products(&work, &all, n, n);
            for (uint32_t i = 0; i < n; i++) {
                add_attention(&work, e, options, 1, (double)s->n_prefix + step,
                              i > 0 && !s->is_apart ? s->n_prefix : 0);
            }
        }
    }
    return work;
}
