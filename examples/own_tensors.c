/*
 * own_tensors.c: an engine that keeps keys and values in tensors of its own.
 *
 *     make programs && $(make -s where)/examples/own_tensors
 *
 * Cellar does the bookkeeping: who remembers what, where it stands, which rows are free. The engine
 * has one K and one V tensor a layer, rotates, and attends with a dense mask, as tensor libraries
 * do. What an engine has to do is in five functions, in this order:
 *
 *     create_memory     layers with is_external, and buffers sized once
 *     store_layer       rows of K and V go to the cells that Cellar chose
 *     attend_layer      the cells to walk (n_kv) and the mask that says who sees what
 *     read_tokens       a step: begin, all micro-batches and layers, commit
 *     settle            after a shift: turn (and move) rows as the list of moves says
 *
 * Layer 0 is plain; layer 1 keeps V transposed; layer 2 has a sliding window, and so rows of its
 * own numbering. There are no weights: keys, values and queries are made up from token numbers.
 * Beside the engine runs a second memory that stores and attends by itself. Both are given the same
 * rows, through a fork and a shift, and must agree up to the rounding of f32. Prints the worst
 * difference; ends with 1 if it is larger than rounding explains, with 2 if a call fails.
 */
#include <cellar.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_LAYERS = 3,
    N_HEADS = 4,
    N_KV_HEADS = 2,
    HEAD = 16,
    KV_ROW = N_KV_HEADS * HEAD,
    Q_ROW = N_HEADS * HEAD,
    N_CELLS = 160,
    N_UBATCH = 16,
    PAD = 32, /* n_kv as this engine's kernels like it */
    WINDOW = 24,
    LONGEST = 64 /* tokens of a sequence or batch */
};

static const double rope_base = 10000;

typedef struct tensors {
    uint32_t n_rows; /* one for each cell of the layer's group */
    float *k;        /* [n_rows][KV_ROW] */
    float *v;        /* [n_rows][KV_ROW], or transposed [KV_ROW][n_rows] */
    bool is_v_transposed;
} tensors;

typedef struct engine {
    cellar_memory *memory;
    tensors layers[N_LAYERS];
    float *mask, *scores; /* [N_UBATCH][largest n_kv], [largest n_kv] */
    int64_t elements[N_UBATCH * KV_ROW];
} engine;

/* Every call says what went wrong; a real engine would go on living. */
static void must(cellar_status status, const cellar_error *error)
{
    if (status == CELLAR_OK) return;
    fprintf(stderr, "own_tensors: %s: %s\n", cellar_status_text(status), error->message);
    exit(2);
}

static void *zeros(size_t n, size_t size)
{
    void *block = calloc(n, size);
    if (!block) {
        fprintf(stderr, "own_tensors: out of memory\n");
        exit(2);
    }
    return block;
}

/* ---- the memory ------------------------------------------------------------------------------ */

static cellar_memory *create_memory(bool is_external)
{
    cellar_layer layers[N_LAYERS];
    for (int l = 0; l < N_LAYERS; l++) {
        layers[l] = cellar_layer_init();
        layers[l].n_heads = N_HEADS;
        layers[l].n_kv_heads = N_KV_HEADS;
        layers[l].k_size = layers[l].v_size = HEAD;
        layers[l].k_type = layers[l].v_type = CELLAR_F32;
        layers[l].rope.kind =
            CELLAR_ROPE_NEOX; /* also when the engine rotates: shifts depend on it */
        layers[l].rope.base = rope_base;
        layers[l].is_external = is_external;
    }
    layers[2].window = (cellar_window){.kind = CELLAR_WINDOW_STANDARD, .size = WINDOW};
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

/* Tensors with a row for each cell, and buffers for the largest micro-batch there can be. */
static void create_tensors(engine *e)
{
    cellar_error error;
    uint32_t largest = 0;
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        cellar_group_info group;
        cellar_extent extent;
        must(cellar_get_group(e->memory, (uint32_t)cellar_group_of_layer(e->memory, l), &group,
                              &error),
             &error);
        must(cellar_export_largest(e->memory, l, PAD, &extent, &error), &error);
        if (extent.n_kv > largest) largest = extent.n_kv;
        /* Rows that nobody has written yet are masked, but multiplied: they must be numbers. */
        e->layers[l] = (tensors){group.n_cells, zeros(group.n_cells, KV_ROW * sizeof(float)),
                                 zeros(group.n_cells, KV_ROW * sizeof(float)), l == 1};
    }
    e->mask = zeros((size_t)N_UBATCH * largest, sizeof(float));
    e->scores = zeros(largest, sizeof(float));
}

/* ---- store and attend ------------------------------------------------------------------------ */

/* Turn one head by `distance` positions: element i with i + HEAD / 2. */
static void rotate(float *head, double distance)
{
    for (int i = 0; i < HEAD / 2; i++) {
        double angle = distance * pow(rope_base, -2.0 * i / HEAD);
        float c = (float)cos(angle), s = (float)sin(angle);
        float a = head[i], b = head[i + HEAD / 2];
        head[i] = a * c - b * s;
        head[i + HEAD / 2] = a * s + b * c;
    }
}

/* k, v [n_tokens][KV_ROW], not rotated. */
static void store_layer(engine *e, uint32_t number, const cellar_ubatch *ubatch, uint32_t layer,
                        const float *k, const float *v)
{
    tensors *t = &e->layers[layer];
    int64_t rows[N_UBATCH];
    cellar_error error;
    must(cellar_export_rows(e->memory, number, layer, rows, &error), &error);
    for (uint32_t i = 0; i < ubatch->n_tokens; i++) {
        float *row = t->k + rows[i] * KV_ROW;
        memcpy(row, k + i * KV_ROW, KV_ROW * sizeof(float));
        for (int h = 0; h < N_KV_HEADS; h++)
            rotate(row + h * HEAD, ubatch->positions[i]);
    }
    if (t->is_v_transposed) {
        must(cellar_export_elements(e->memory, number, layer, e->elements, &error), &error);
        for (uint32_t i = 0; i < ubatch->n_tokens * KV_ROW; i++)
            t->v[e->elements[i]] = v[i];
    } else {
        for (uint32_t i = 0; i < ubatch->n_tokens; i++)
            memcpy(t->v + rows[i] * KV_ROW, v + i * KV_ROW, KV_ROW * sizeof(float));
    }
    must(cellar_confirm(e->memory, number, layer, &error), &error);
}

/* One query head over n cells from `first` on; those that the mask hides weigh nothing. */
static void attend_head(const tensors *t, uint32_t first, uint32_t n, const float *mask,
                        int kv_head, const float *query, float *scores, float *out)
{
    float largest = -INFINITY, sum = 0;
    for (uint32_t j = 0; j < n; j++) {
        const float *key = t->k + (size_t)(first + j) * KV_ROW + kv_head * HEAD;
        float product = 0;
        for (int i = 0; i < HEAD; i++)
            product += query[i] * key[i];
        scores[j] = product / sqrtf(HEAD) + mask[j];
        largest = fmaxf(largest, scores[j]);
    }
    for (uint32_t j = 0; j < n; j++) {
        scores[j] = expf(scores[j] - largest);
        sum += scores[j];
    }
    for (int i = 0; i < HEAD; i++) {
        size_t element = (size_t)(kv_head * HEAD + i), stride = t->is_v_transposed ? 1 : KV_ROW;
        const float *value = t->is_v_transposed ? t->v + element * t->n_rows + first
                                                : t->v + (size_t)first * KV_ROW + element;
        float total = 0;
        for (uint32_t j = 0; j < n; j++)
            total += scores[j] * value[j * stride];
        out[i] = total / sum;
    }
}

/* q, out [n_tokens][Q_ROW], q not rotated. */
static void attend_layer(engine *e, uint32_t number, const cellar_ubatch *ubatch, uint32_t layer,
                         const float *q, float *out)
{
    cellar_extent extent;
    cellar_stream stream; /* one pool: one stream, of all tokens */
    cellar_error error;
    must(cellar_export_extent(e->memory, number, layer, PAD, &extent, &stream, 1, &error), &error);
    must(cellar_export_mask(e->memory, number, layer, extent.n_kv, CELLAR_F32, e->mask, &error),
         &error);
    for (uint32_t i = 0; i < ubatch->n_tokens; i++)
        for (int h = 0; h < N_HEADS; h++) {
            float query[HEAD];
            memcpy(query, q + i * Q_ROW + h * HEAD, sizeof query);
            rotate(query, ubatch->positions[i]);
            attend_head(&e->layers[layer], stream.first_cell, extent.n_kv,
                        e->mask + (size_t)i * extent.n_kv, h / (N_HEADS / N_KV_HEADS), query,
                        e->scores, out + i * Q_ROW + h * HEAD);
        }
}

/* ---- moves ----------------------------------------------------------------------------------- */

static void move_row(tensors *t, size_t from, size_t to, cellar_pos turn)
{
    if (from != to) {
        memcpy(t->k + to * KV_ROW, t->k + from * KV_ROW, KV_ROW * sizeof(float));
        for (size_t j = 0; j < KV_ROW; j++) {
            if (t->is_v_transposed)
                t->v[j * t->n_rows + to] = t->v[j * t->n_rows + from];
            else
                t->v[to * KV_ROW + j] = t->v[from * KV_ROW + j];
        }
    }
    for (int h = 0; h < N_KV_HEADS && turn != 0; h++)
        rotate(t->k + to * KV_ROW + h * HEAD, turn);
}

/* A move is for all layers of its group. */
static bool apply_move(void *context, const cellar_move *move)
{
    engine *e = context;
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        if (cellar_group_of_layer(e->memory, l) != (int32_t)move->group) continue;
        for (uint32_t i = 0; i < move->n; i++)
            move_row(&e->layers[l], move->from + i, move->to + i, move->turn);
    }
    return true;
}

/* After a shift: bring the keys of a sequence to where they stand now. */
static void settle(engine *e, cellar_seq seq)
{
    cellar_error error;
    must(cellar_settle(e->memory, seq, &error), &error);
    must(cellar_visit_moves(e->memory, apply_move, e, &error), &error);
    must(cellar_confirm_moves(e->memory, &error), &error);
}

/* ---- a step, in the engine and in the library ------------------------------------------------ */

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
    store_layer(e, number, ubatch, layer, k, v);
    attend_layer(e, number, ubatch, layer, q, own);
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
 * How far two f32 engines may be apart. Rows are below 1, so |q||k|/sqrt(HEAD) <= sqrt(HEAD). With u
 * = 2^-24: a rotation errs by 3u (cosine and sine, product, sum) and a pair has four of them at most
 * (query and key, one turn each for a shift); the product errs by HEAD u, the scale by u. Scores
 * that are off by d give results off by 2d. Exponentials err by some 4u, twice (sum and weight); the
 * sum and the weighted sum by u a key. Twice all of it, for two engines.
 */
static double bound(void)
{
    double u = 0x1p-24, score = sqrt(HEAD) * (HEAD + 13) * u;
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

    /* 0 forgets positions 4..11. The library's own rows stay as they are; the engine's are turned. */
    must(cellar_shift_context(e.memory, 0, 4, 8, NULL, &error), &error);
    must(cellar_shift_context(library, 0, 4, 8, NULL, &error), &error);
    settle(&e, 0);
    for (int i = 0; i < 8; i++)
        read_tokens(&e, library, (const uint32_t[]){1, 1, 1}, 3000 + 3 * i, &result);

    printf("%u results, worst difference %.2e, allowed %.2e\n", result.n, result.worst, bound());
    cellar_destroy(e.memory);
    cellar_destroy(library);
    for (int l = 0; l < N_LAYERS; l++) {
        free(e.layers[l].k);
        free(e.layers[l].v);
    }
    free(e.mask);
    free(e.scores);
    return result.worst <= bound() ? 0 : 1;
}
