/*
 * ggml_attention.c: an engine whose keys and values are ggml tensors.
 *
 *     cc -std=c11 examples/ggml/ggml_attention.c $(pkg-config --cflags --libs cellar ggml) -lggml-cpu -lggml-base -lm
 *     tests/ggml.sh                                 (builds and runs it where ggml is installed)
 *
 * Cellar does the bookkeeping, ggml computes. Each export becomes an input of a graph:
 *
 *     cellar_export_rows       the indices of ggml_set_rows: where K and V of a micro-batch go
 *     cellar_export_elements   the same, element by element, for values that are kept transposed
 *     cellar_export_extent     how many rows the views of K and V have, and where they begin
 *     cellar_export_mask       the mask of ggml_soft_max_ext (f32) or ggml_flash_attn_ext (f16)
 *     the list of moves        after a shift: gather rows, turn them with ggml_rope_ext, scatter them
 *
 * Layer 0 sees everything, keeps V transposed and attends step by step; layer 1 has a sliding window and uses
 * flash attention. As in own_tensors.c a second memory stores and attends by itself, both are given the
 * same rows, through a fork and a shift, and must agree up to the rounding of f32. Ends with 1 if they do not,
 * with 2 if a call fails.
 */
#include <cellar.h>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_LAYERS = 2,
    N_HEADS = 4,
    N_KV_HEADS = 2,
    HEAD = 64,
    KV_ROW = N_KV_HEADS * HEAD,
    Q_ROW = N_HEADS * HEAD,
    N_CELLS = 160,
    N_UBATCH = 16,
    PAD = 32,
    WINDOW = 24,
    LONGEST = 64 /* tokens of a sequence or batch */
};

static const float rope_base = 10000;

typedef struct engine {
    cellar_memory *memory;
    ggml_backend_t backend;
    ggml_gallocr_t graphs; /* room for what a graph computes */
    struct ggml_context *tensors;
    ggml_backend_buffer_t rows;
    struct ggml_tensor *k[N_LAYERS]; /* [n_rows][KV_ROW] */
    struct ggml_tensor *v[N_LAYERS]; /* layer 0: transposed, [KV_ROW][n_rows] */
    uint32_t n_rows[N_LAYERS];
    void *mask;
} engine;

static void must(cellar_status status, const cellar_error *error)
{
    if (status == CELLAR_OK) return;
    fprintf(stderr, "ggml_attention: %s: %s\n", cellar_status_text(status), error->message);
    exit(2);
}

static void *need(void *pointer, const char *what)
{
    if (pointer) return pointer;
    fprintf(stderr, "ggml_attention: no room for %s\n", what);
    exit(2);
}

/* ---- the memory and its tensors -------------------------------------------------------------- */

static cellar_memory *create_memory(bool is_external)
{
    cellar_layer layers[N_LAYERS];
    for (int l = 0; l < N_LAYERS; l++) {
        layers[l] = cellar_layer_init();
        layers[l].n_heads = N_HEADS;
        layers[l].n_kv_heads = N_KV_HEADS;
        layers[l].k_size = layers[l].v_size = HEAD;
        layers[l].k_type = layers[l].v_type = CELLAR_F32;
        layers[l].rope.kind = CELLAR_ROPE_NEOX;
        layers[l].rope.base = (double)rope_base;
        layers[l].is_external = is_external;
    }
    layers[1].window = (cellar_window){.kind = CELLAR_WINDOW_STANDARD, .size = WINDOW};
    cellar_config config = cellar_config_init();
    config.n_layers = N_LAYERS;
    config.layers = layers;
    config.n_cells = N_CELLS;
    config.n_ubatch = N_UBATCH;
    config.n_sequences = 3;
    cellar_memory *memory;
    cellar_error error;
    must(cellar_create(&config, &memory, &error), &error);
    return memory;
}

static void create_tensors(engine *e)
{
    cellar_error error;
    uint32_t largest = 0;
    e->backend = need(ggml_backend_cpu_init(), "a backend");
    e->graphs = need(ggml_gallocr_new(ggml_backend_get_default_buffer_type(e->backend)), "graphs");
    e->tensors = need(
        ggml_init((struct ggml_init_params){2 * N_LAYERS * ggml_tensor_overhead(), NULL, true}),
        "tensors");
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        cellar_group_info group;
        cellar_extent extent;
        uint32_t number = (uint32_t)cellar_group_of_layer(e->memory, l);
        must(cellar_get_group(e->memory, number, &group, &error), &error);
        must(cellar_export_largest(e->memory, l, PAD, &extent, &error), &error);
        if (extent.n_kv > largest) largest = extent.n_kv;
        e->n_rows[l] = group.n_cells;
        e->k[l] = ggml_new_tensor_2d(e->tensors, GGML_TYPE_F32, KV_ROW, group.n_cells);
        e->v[l] = l == 0 ? ggml_new_tensor_2d(e->tensors, GGML_TYPE_F32, group.n_cells, KV_ROW)
                         : ggml_new_tensor_2d(e->tensors, GGML_TYPE_F32, KV_ROW, group.n_cells);
    }
    e->rows = need(ggml_backend_alloc_ctx_tensors(e->tensors, e->backend), "rows");
    /* Rows that nobody has written yet are masked, but multiplied: they must be numbers. */
    ggml_backend_buffer_clear(e->rows, 0);
    e->mask = need(malloc((size_t)N_UBATCH * largest * sizeof(float)), "masks");
}

static void destroy_engine(engine *e)
{
    free(e->mask);
    ggml_backend_buffer_free(e->rows);
    ggml_free(e->tensors);
    ggml_gallocr_free(e->graphs);
    ggml_backend_free(e->backend);
    cellar_destroy(e->memory);
}

/* ---- a graph --------------------------------------------------------------------------------- */

enum { MOST_INPUTS = 8 };

/* A graph and its inputs, whose bytes are set when it has been given room. */
typedef struct plan {
    struct ggml_context *context;
    struct ggml_cgraph *graph;
    struct ggml_tensor *inputs[MOST_INPUTS];
    const void *bytes[MOST_INPUTS];
    int n_inputs;
} plan;

static plan begin_plan(void)
{
    plan p = {.n_inputs = 0};
    size_t size = 64 * ggml_tensor_overhead() + ggml_graph_overhead();
    p.context = need(ggml_init((struct ggml_init_params){size, NULL, true}), "a graph");
    p.graph = ggml_new_graph(p.context);
    return p;
}

static struct ggml_tensor *input(plan *p, enum ggml_type type, int64_t n0, int64_t n1, int64_t n2,
                                 const void *bytes)
{
    struct ggml_tensor *tensor = ggml_new_tensor_3d(p->context, type, n0, n1, n2);
    ggml_set_input(tensor);
    p->inputs[p->n_inputs] = tensor;
    p->bytes[p->n_inputs++] = bytes;
    return tensor;
}

static void end_plan(engine *e, plan *p, struct ggml_tensor *result, float *out)
{
    if (!ggml_gallocr_alloc_graph(e->graphs, p->graph)) need(NULL, "a graph");
    for (int i = 0; i < p->n_inputs; i++)
        ggml_backend_tensor_set(p->inputs[i], p->bytes[i], 0, ggml_nbytes(p->inputs[i]));
    if (ggml_backend_graph_compute(e->backend, p->graph) != GGML_STATUS_SUCCESS)
        need(NULL, "computing");
    if (result) ggml_backend_tensor_get(result, out, 0, ggml_nbytes(result));
    ggml_free(p->context);
}

static struct ggml_tensor *rotate(plan *p, struct ggml_tensor *heads, struct ggml_tensor *positions)
{
    return ggml_rope_ext(p->context, heads, positions, NULL, HEAD, GGML_ROPE_TYPE_NEOX, 0,
                         rope_base, 1, 0, 1, 32, 1);
}

/* ---- a layer: store, then attend ------------------------------------------------------------- */

/* Elements one by one: the tensor as rows of a single number. */
static struct ggml_tensor *as_elements(plan *p, struct ggml_tensor *tensor)
{
    return ggml_reshape_2d(p->context, tensor, 1, ggml_nelements(tensor));
}

/* q, k, v of a micro-batch, not rotated; out [n][Q_ROW]. */
static void compute_in_ggml(engine *e, uint32_t number, const cellar_ubatch *ubatch, uint32_t layer,
                            const float *q, const float *k, const float *v, float *out)
{
    int64_t rows[N_UBATCH], elements[N_UBATCH * KV_ROW];
    uint32_t n = ubatch->n_tokens;
    cellar_extent extent;
    cellar_stream stream; /* one pool: one stream, of all tokens */
    cellar_error error;
    bool is_flash = layer == 1;
    must(cellar_export_rows(e->memory, number, layer, rows, &error), &error);
    must(cellar_export_extent(e->memory, number, layer, PAD, &extent, &stream, 1, &error), &error);
    must(cellar_export_mask(e->memory, number, layer, extent.n_kv,
                            is_flash ? CELLAR_F16 : CELLAR_F32, e->mask, &error),
         &error);
    if (!is_flash) must(cellar_export_elements(e->memory, number, layer, elements, &error), &error);

    plan p = begin_plan();
    struct ggml_context *c = p.context;
    struct ggml_tensor *positions = input(&p, GGML_TYPE_I32, n, 1, 1, ubatch->positions);
    struct ggml_tensor *mask = input(&p, is_flash ? GGML_TYPE_F16 : GGML_TYPE_F32, extent.n_kv, n,
                                     1, e->mask);
    struct ggml_tensor *k_rows = input(&p, GGML_TYPE_I64, n, 1, 1, rows);
    struct ggml_tensor *new_k = rotate(&p, input(&p, GGML_TYPE_F32, HEAD, N_KV_HEADS, n, k),
                                       positions);
    struct ggml_tensor *new_v = input(&p, GGML_TYPE_F32, KV_ROW, n, 1, v);

    /* Store: these come first in the graph, and what follows reads what they wrote. */
    ggml_build_forward_expand(
        p.graph, ggml_set_rows(c, e->k[layer], ggml_reshape_2d(c, new_k, KV_ROW, n), k_rows));
    if (is_flash) {
        ggml_build_forward_expand(p.graph, ggml_set_rows(c, e->v[layer], new_v, k_rows));
    } else {
        struct ggml_tensor *v_elements = input(&p, GGML_TYPE_I64, (int64_t)n * KV_ROW, 1, 1,
                                               elements);
        ggml_build_forward_expand(p.graph, ggml_set_rows(c, as_elements(&p, e->v[layer]),
                                                         as_elements(&p, new_v), v_elements));
    }

    /* Attend to rows first_cell .. first_cell + n_kv. */
    const size_t f32 = sizeof(float), first = stream.first_cell;
    const float scale = 1 / sqrtf(HEAD);
    struct ggml_tensor *queries = rotate(&p, input(&p, GGML_TYPE_F32, HEAD, N_HEADS, n, q),
                                         positions);
    queries = ggml_permute(c, queries, 0, 2, 1, 3);
    struct ggml_tensor *keys = ggml_view_3d(c, e->k[layer], HEAD, extent.n_kv, N_KV_HEADS,
                                            KV_ROW * f32, HEAD * f32, first * KV_ROW * f32);
    struct ggml_tensor *result;
    if (is_flash) {
        struct ggml_tensor *values = ggml_view_3d(c, e->v[layer], HEAD, extent.n_kv, N_KV_HEADS,
                                                  KV_ROW * f32, HEAD * f32, first * KV_ROW * f32);
        result = ggml_flash_attn_ext(c, queries, keys, values, mask, scale, 0, 0);
        ggml_flash_attn_ext_set_prec(result, GGML_PREC_F32);
    } else {
        size_t column = e->n_rows[layer] * f32;
        struct ggml_tensor *values = ggml_view_3d(c, e->v[layer], extent.n_kv, HEAD, N_KV_HEADS,
                                                  column, column * HEAD, first * f32);
        struct ggml_tensor *scores = ggml_mul_mat(c, keys, queries);
        struct ggml_tensor *weights = ggml_soft_max_ext(c, scores, mask, scale, 0);
        result = ggml_mul_mat(c, values, weights);
        result = ggml_cont(c, ggml_permute(c, result, 0, 2, 1, 3));
    }
    ggml_set_output(result);
    ggml_build_forward_expand(p.graph, result);
    end_plan(e, &p, result, out);
    must(cellar_confirm(e->memory, number, layer, &error), &error);
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Rows of one layer that move: row from[i] becomes row to[i], its keys turned by turn[i]. */
typedef struct moves {
    const engine *e;
    uint32_t layer;
    int n;
    int32_t from[N_CELLS], turn[N_CELLS];
    int64_t to[N_CELLS];
} moves;

static bool note_move(void *context, const cellar_move *move)
{
    moves *m = context;
    if (cellar_group_of_layer(m->e->memory, m->layer) != (int32_t)move->group) return true;
    for (uint32_t i = 0; i < move->n && m->n < N_CELLS; i++, m->n++) {
        m->from[m->n] = (int32_t)(move->from + i);
        m->to[m->n] = move->to + i;
        m->turn[m->n] = move->turn;
    }
    return true;
}

/* The list's promise, no move writes what a later one reads, allows gathering all before scattering. */
static void apply_moves(engine *e, const moves *m)
{
    static int32_t from_elements[N_CELLS * KV_ROW];
    static int64_t to_elements[N_CELLS * KV_ROW];
    plan p = begin_plan();
    struct ggml_context *c = p.context;
    struct ggml_tensor *from = input(&p, GGML_TYPE_I32, m->n, 1, 1, m->from);
    struct ggml_tensor *to = input(&p, GGML_TYPE_I64, m->n, 1, 1, m->to);
    struct ggml_tensor *turn = input(&p, GGML_TYPE_I32, m->n, 1, 1, m->turn);
    struct ggml_tensor *keys = ggml_get_rows(c, e->k[m->layer], from);
    keys = rotate(&p, ggml_reshape_3d(c, keys, HEAD, N_KV_HEADS, m->n), turn);
    keys = ggml_reshape_2d(c, keys, KV_ROW, m->n);
    ggml_build_forward_expand(p.graph, ggml_set_rows(c, e->k[m->layer], keys, to));
    struct ggml_tensor *v = e->v[m->layer];
    if (m->layer == 0) {
        for (int i = 0; i < m->n; i++)
            for (int j = 0; j < KV_ROW; j++) {
                from_elements[i * KV_ROW + j] = j * (int32_t)e->n_rows[0] + m->from[i];
                to_elements[i * KV_ROW + j] = j * (int64_t)e->n_rows[0] + m->to[i];
            }
        from = input(&p, GGML_TYPE_I32, (int64_t)m->n * KV_ROW, 1, 1, from_elements);
        to = input(&p, GGML_TYPE_I64, (int64_t)m->n * KV_ROW, 1, 1, to_elements);
        v = as_elements(&p, v);
    }
    ggml_build_forward_expand(p.graph, ggml_set_rows(c, v, ggml_get_rows(c, v, from), to));
    end_plan(e, &p, NULL, NULL);
}

/* After a shift: bring the keys of a sequence to where they stand now. */
static void settle(engine *e, cellar_seq seq)
{
    cellar_error error;
    must(cellar_settle(e->memory, seq, &error), &error);
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        moves m = {.e = e, .layer = l};
        must(cellar_visit_moves(e->memory, note_move, &m, &error), &error);
        if (m.n > 0) apply_moves(e, &m);
    }
    must(cellar_confirm_moves(e->memory, &error), &error);
}

/* ---- a step, in ggml and in the library ------------------------------------------------------ */

typedef struct comparison {
    double worst;
    uint32_t n;
} comparison;

/* What a model would compute: numbers in [-1, 1) that depend on token, layer and kind alone. */
static void make_row(float *to, int n, cellar_token token, uint32_t layer, uint32_t kind)
{
    uint32_t x = (uint32_t)token * 2654435761u + layer * 97u + kind * 1013u + 1u;
    for (int i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        to[i] = (float)(x >> 8) * 0x1p-23f - 1.0f;
    }
}

static void compute_layer(engine *e, cellar_memory *library, uint32_t number,
                          const cellar_ubatch *ubatch, uint32_t layer, const cellar_token *tokens,
                          comparison *result)
{
    float k[N_UBATCH * KV_ROW], v[N_UBATCH * KV_ROW], q[N_UBATCH * Q_ROW];
    float own[N_UBATCH * Q_ROW], its[N_UBATCH * Q_ROW];
    cellar_error error;
    for (uint32_t i = 0; i < ubatch->n_tokens; i++) {
        cellar_token token = tokens[ubatch->indices[i]];
        make_row(k + i * KV_ROW, KV_ROW, token, layer, 0);
        make_row(v + i * KV_ROW, KV_ROW, token, layer, 1);
        make_row(q + i * Q_ROW, Q_ROW, token, layer, 2);
    }
    compute_in_ggml(e, number, ubatch, layer, q, k, v, own);
    must(cellar_store(library, number, layer, k, v, &error), &error);
    must(cellar_attend(library, number, layer, q, its, &error), &error);
    for (uint32_t i = 0; i < ubatch->n_tokens * Q_ROW; i++) {
        double difference = fabs((double)own[i] - (double)its[i]);
        if (isnan(difference)) difference = INFINITY;
        if (difference > result->worst) result->worst = difference;
        result->n++;
    }
}

/* n[s] new tokens for each of three sequences, at their ends. */
static void read_tokens(engine *e, cellar_memory *library, const uint32_t n[3], cellar_token first,
                        comparison *result)
{
    cellar_token tokens[LONGEST];
    cellar_seq seqs[LONGEST];
    cellar_batch batch = cellar_batch_init();
    cellar_error error;
    batch.tokens = tokens;
    batch.seqs = seqs;
    for (cellar_seq s = 0; s < 3; s++)
        for (uint32_t i = 0; i < n[s]; i++, batch.n_tokens++) {
            seqs[batch.n_tokens] = s;
            tokens[batch.n_tokens] = first + (cellar_token)batch.n_tokens;
        }
    must(cellar_begin(e->memory, &batch, &error), &error);
    must(cellar_begin(library, &batch, &error), &error);
    for (uint32_t u = 0; u < cellar_count_ubatches(e->memory); u++) {
        cellar_ubatch ubatch;
        must(cellar_get_ubatch(e->memory, u, &ubatch, &error), &error);
        for (uint32_t l = 0; l < N_LAYERS; l++)
            compute_layer(e, library, u, &ubatch, l, tokens, result);
    }
    must(cellar_commit(e->memory, &error), &error);
    must(cellar_commit(library, &error), &error);
}

/*
 * How far two f32 engines may be apart: as in own_tensors.c, where each term is explained, with one more.
 * An engine that gets the frequencies base^(-2i/HEAD) of its pairs by multiplying is off by some i + 2
 * roundings of an angle, position times frequency, in pair i; (i + 2) base^(-2i/HEAD) is below 3.
 */
static double bound(void)
{
    double u = 0x1p-24, angle = 3 * LONGEST * u;
    double score = sqrt(HEAD) * ((HEAD + 13) * u + 4 * angle);
    return 2 * (2 * score + (2 * LONGEST + 10) * u);
}

int main(void)
{
    engine e = {.memory = create_memory(true)};
    cellar_memory *library = create_memory(false);
    comparison result = {0, 0};
    cellar_error error;
    create_tensors(&e);

    /* Two conversations; then 2 goes on from where 0 is. No row is copied. */
    read_tokens(&e, library, (const uint32_t[]){30, 12, 0}, 1000, &result);
    must(cellar_copy(e.memory, 0, 2, 0, -1, &error), &error);
    must(cellar_copy(library, 0, 2, 0, -1, &error), &error);
    read_tokens(&e, library, (const uint32_t[]){7, 3, 5}, 2000, &result);

    /* 0 forgets positions 4..11. What 2 shares with it is copied and turned, the rest turned in place. */
    must(cellar_shift_context(e.memory, 0, 4, 8, NULL, &error), &error);
    must(cellar_shift_context(library, 0, 4, 8, NULL, &error), &error);
    settle(&e, 0);
    for (int i = 0; i < 8; i++)
        read_tokens(&e, library, (const uint32_t[]){1, 1, 1}, 3000 + 3 * i, &result);

    printf("%u results, worst difference %.2e, allowed %.2e\n", result.n, result.worst, bound());
    destroy_engine(&e);
    cellar_destroy(library);
    return result.worst <= bound() ? 0 : 1;
}
