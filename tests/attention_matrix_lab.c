/*
 * attention_matrix_lab.c: a memory beside the plainest model of it. See attention_matrix.h.
 *
 * The model is a list of (token, position) for each sequence; what a query sees is asked of
 * visibility.h pair by pair. The memory's allocator hands out blocks full of NaN, so that nothing
 * that was not written can be read unnoticed.
 */
#include "attention_matrix.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/visibility.h"

enum { CLUTTER = 4, CLUTTER_SEQ = 1000, MOST_WORKERS = 8 };

/* Numbers of one query head times keys that one step may cost to compare. */
enum { COMPARE_COST = 600000 };

void lab_note(lab *l, const char *format, ...)
{
    if (l->n_wrong++ > 0) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(l->message, sizeof l->message, format, arguments);
    va_end(arguments);
}

static bool is_ok(lab *l, const char *call, cellar_status status, const cellar_error *error)
{
    if (status == CELLAR_OK) return true;
    lab_note(l, "%s: %s: %s", call, cellar_status_text(status), error->message);
    return false;
}

static const cellar_layer *target_of(const lab *l)
{
    return &l->layers->layer[l->layers->target];
}

/* ---- what the memory is given ---------------------------------------------------------------- */

/* Every byte 0xff: a NaN in f32, f16 and bf16, and as the scale of a quantised block. */
static void *allocate_nan(void *context, size_t size, size_t align)
{
    (void)context;
    size_t rounded = (size + align - 1) / align * align;
    void *block = aligned_alloc(align < sizeof(void *) ? sizeof(void *) : align,
                                rounded ? rounded : align);
    if (block) memset(block, 0xff, rounded);
    return block;
}

static void release_nan(void *context, void *block, size_t size)
{
    (void)context;
    (void)size;
    free(block);
}

typedef struct job {
    cellar_task task;
    void *argument;
    uint32_t part, n_parts;
} job;

static void *run_part(void *argument)
{
    const job *j = argument;
    j->task(j->argument, j->part, j->n_parts);
    return NULL;
}

/* A thread for each part; where there is none, the part runs here. */
static void run_threads(void *context, cellar_task task, void *argument)
{
    uint32_t n = *(const uint32_t *)context;
    pthread_t threads[MOST_WORKERS];
    bool is_running[MOST_WORKERS];
    job jobs[MOST_WORKERS];
    for (uint32_t i = 0; i < n; i++) {
        jobs[i] = (job){task, argument, i, n};
        is_running[i] = pthread_create(&threads[i], NULL, run_part, &jobs[i]) == 0;
        if (!is_running[i]) run_part(&jobs[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (is_running[i]) pthread_join(threads[i], NULL);
}

/* Floats in the largest rows that a layer takes for one token. */
static size_t largest_row(const lab *l)
{
    size_t most = 0;
    for (uint32_t i = 0; i < l->layers->n; i++) {
        const cellar_layer *layer = &l->layers->layer[i];
        size_t size = layer->k_size > layer->v_size ? layer->k_size : layer->v_size;
        most = layer->n_kv_heads * size > most ? layer->n_kv_heads * size : most;
    }
    return most;
}

/* One step of the clutter: a token for each of a few sequences, all of its rows NaN. */
static bool clutter_step(lab *l, cellar_seq first, const float *rows)
{
    cellar_error error = {0};
    cellar_seq seqs[CLUTTER];
    for (int i = 0; i < CLUTTER; i++)
        seqs[i] = first + i;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = CLUTTER;
    batch.seqs = seqs;
    if (!is_ok(l, "clutter: begin", cellar_begin(l->memory, &batch, &error), &error)) return false;
    for (uint32_t u = 0; u < cellar_count_ubatches(l->memory); u++)
        for (uint32_t i = 0; i < l->layers->n; i++) {
            const cellar_layer *layer = &l->layers->layer[i];
            const float *v = layer->v_in_k ? NULL : rows;
            if (layer->reads_layer < 0)
                is_ok(l, "clutter: store", cellar_store(l->memory, u, i, rows, v, &error), &error);
        }
    return is_ok(l, "clutter: commit", cellar_commit(l->memory, &error), &error);
}

/* Sequences of NaN that grow side by side and go again, but for every third: holes everywhere. */
static void clutter(lab *l)
{
    cellar_error error = {0};
    size_t n = CLUTTER * largest_row(l);
    float *rows = drive_grab(n, sizeof *rows);
    for (size_t i = 0; i < n; i++)
        rows[i] = NAN;
    for (cellar_seq round = 0; round < 12; round++)
        if (!clutter_step(l, CLUTTER_SEQ + round % 6 * CLUTTER, rows)) break;
    for (cellar_seq i = 0; i < 6 * CLUTTER; i++)
        if (i % 3)
            is_ok(l, "clutter: remove", cellar_remove(l->memory, CLUTTER_SEQ + i, 0, -1, &error),
                  &error);
    free(rows);
}

void lab_open(lab *l, matrix_layers *layers, const lab_way *way, uint64_t seed)
{
    cellar_error error = {0};
    cellar_config config = cellar_config_init();
    memset(l, 0, sizeof *l);
    l->layers = layers;
    l->way = *way;
    l->seed = seed;
    l->model = *target_of(l);
    l->chance = random_mix(seed, 7);
    l->tokens = drive_grab(LAB_TOKENS, sizeof *l->tokens);
    l->sequences = drive_grab(LAB_SEQUENCES, sizeof *l->sequences);
    l->out_size = (size_t)target_of(l)->n_heads * target_of(l)->v_size;
    l->results = drive_grab(LAB_TOKENS * l->out_size, sizeof *l->results);
    config.n_layers = layers->n;
    config.layers = layers->layer;
    config.n_cells = way->n_cells;
    config.n_ubatch = way->n_ubatch;
    config.split = way->split;
    config.is_window_full = way->is_window_full;
    config.n_sequences = way->is_window_full ? 1 : LAB_SEQUENCES;
    config.cpu_mask = way->is_scalar ? CELLAR_CPU_SCALAR : CELLAR_CPU_ALL;
    config.allocator = (cellar_allocator){.allocate = allocate_nan, .release = release_nan};
    config.workers = (cellar_workers){way->n_workers, run_threads, &l->way.n_workers};
    if (is_ok(l, "cellar_create", cellar_create(&config, &l->memory, &error), &error) &&
        way->is_cluttered)
        clutter(l);
}

void lab_close(lab *l)
{
    cellar_destroy(l->memory);
    for (uint32_t i = 0; i < LAB_TOKENS; i++)
        if (l->tokens[i].stored.k) attention_model_stored_free(&l->tokens[i].stored);
    free(l->tokens);
    free(l->sequences);
    free(l->results);
}

/* The rows of a token: numbers in [-1, 1), now and then a large one. */
static void fill_row(const lab *l, uint32_t layer, uint32_t token, drive_row what, float *to,
                     size_t n)
{
    uint64_t key = random_mix(random_mix(l->seed, layer * 3u + what), token);
    drive_fill(to, n, key);
    for (size_t i = 0; i < n; i++) {
        if (what == DRIVE_Q)
            to[i] *= 3;
        else if (random_mix(key, i) % 29 == 0)
            to[i] *= 6;
        if (l->tokens[token].is_poison) to[i] = NAN;
    }
}

static size_t size_of(const cellar_layer *layer, drive_row what)
{
    if (what == DRIVE_Q) return (size_t)layer->n_heads * layer->k_size;
    return (size_t)layer->n_kv_heads * (what == DRIVE_K ? layer->k_size : layer->v_size);
}

/* The layer whose rows a layer reads. */
static uint32_t source_of(const lab *l, uint32_t layer)
{
    int32_t reads = l->layers->layer[layer].reads_layer;
    return reads < 0 ? layer : (uint32_t)reads;
}

static const attention_model_stored *stored_of(lab *l, uint32_t token)
{
    const cellar_layer *layer = &l->model;
    lab_token *t = &l->tokens[token];
    if (t->stored.k) return &t->stored;
    uint32_t source = l->model.reads_layer < 0 ? l->layers->target
                                               : source_of(l, l->layers->target);
    float *k = drive_grab(size_of(layer, DRIVE_K), sizeof *k);
    float *v = drive_grab(size_of(layer, DRIVE_V), sizeof *v);
    fill_row(l, source, token, DRIVE_K, k, size_of(layer, DRIVE_K));
    fill_row(l, source, token, DRIVE_V, v, size_of(layer, DRIVE_V));
    attention_model_store(layer, k, v, t->stored_pos, t->point, &t->stored);
    free(k);
    free(v);
    return &t->stored;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* A batch as the lab sees it. */
typedef struct lab_batch {
    uint32_t n;
    uint32_t token[LAB_TOKENS], ubatch[LAB_TOKENS];
    cellar_seq seq[LAB_TOKENS];
    cellar_pos pos[LAB_TOKENS];
} lab_batch;

enum { TEXT = 3, LINES = 2, COLUMNS = 3, PERIOD = TEXT + LINES * COLUMNS };

/*
 * Where the next token of a sequence stands: after three tokens of text comes an image of two lines
 * and three columns, all of it at one position; text goes on behind its longer side. What a
 * sequence has behind a copied or cut off image counts on from the last token's own number.
 */
static void place_token(lab *l, uint32_t token, bool is_empty, lab_entry last, cellar_pos *pos)
{
    lab_token *t = &l->tokens[token];
    uint32_t phase = token % PERIOD, before = is_empty ? 0 : last.token % PERIOD;
    t->point = (cellar_point){0, 0};
    *pos = is_empty ? 0 : last.pos + 1;
    if (l->layers->has_points) {
        bool is_in_image = phase >= TEXT, was_in_image = !is_empty && before >= TEXT;
        bool goes_on = was_in_image && is_in_image && last.token + 1 == token;
        if (was_in_image && !goes_on) *pos = last.pos + COLUMNS;
        if (is_in_image) {
            uint32_t at = phase - TEXT;
            t->point = (cellar_point){(cellar_pos)(at / COLUMNS), (cellar_pos)(at % COLUMNS)};
            if (goes_on) *pos = last.pos;
        }
    }
    t->stored_pos = *pos;
}

static lab_entry last_of(const lab *l, const lab_batch *b, cellar_seq seq, bool *is_empty)
{
    const lab_sequence *s = &l->sequences[seq];
    *is_empty = false;
    for (uint32_t i = b->n; i-- > 0;)
        if (b->seq[i] == seq) return (lab_entry){b->token[i], b->pos[i]};
    if (s->n > 0) return s->entries[s->n - 1];
    *is_empty = true;
    return (lab_entry){0, 0};
}

static void add_token(lab *l, lab_batch *b, cellar_seq seq, uint32_t token)
{
    bool is_empty;
    lab_entry last = last_of(l, b, seq, &is_empty);
    place_token(l, token, is_empty, last, &b->pos[b->n]);
    b->token[b->n] = token;
    b->seq[b->n++] = seq;
}

/* Everything that token `me` of the batch sees, in the order in which it was read. */
static uint32_t look(lab *l, const lab_batch *b, uint32_t me, attention_model_key *keys)
{
    const cellar_layer *layer = &l->model;
    const lab_sequence *past = &l->sequences[b->seq[me]];
    cellar_point point = l->tokens[b->token[me]].point;
    uint32_t n = 0;
    for (uint32_t i = 0; i < past->n + b->n; i++) {
        uint32_t at = i < past->n ? 0 : i - past->n;
        bool is_new = i >= past->n;
        lab_entry entry = is_new ? (lab_entry){b->token[at], b->pos[at]} : past->entries[i];
        const lab_token *token = &l->tokens[entry.token];
        if (is_new && (b->seq[at] != b->seq[me] || b->ubatch[at] > b->ubatch[me])) continue;
        if (!attention_model_sees(layer, b->pos[me], point, entry.pos, token->point,
                                  is_new && b->ubatch[at] == b->ubatch[me]))
            continue;
        keys[n++] = (attention_model_key){stored_of(l, entry.token), entry.pos, token->stored_pos};
    }
    return n;
}

static void compare(lab *l, const lab_batch *b, uint32_t me, const float *q)
{
    const cellar_layer *layer = &l->model;
    const float *got = l->results + b->token[me] * l->out_size;
    attention_model_key *keys = drive_grab(2 * LAB_TOKENS, sizeof *keys);
    double *out = drive_grab(l->out_size, sizeof *out);
    double *bound = drive_grab(layer->n_heads, sizeof *bound);
    uint32_t n = look(l, b, me, keys);
    attention_model_attend_keys(layer, q, b->pos[me], l->tokens[b->token[me]].point, keys, n, out,
                                bound);
    double worst = attention_model_worst(layer, got, out, bound);
    l->worst = fmax(l->worst, worst);
    l->n_compared++;
    if (worst > 1)
        lab_note(l, "sequence %d, token %u at position %d over %u keys: %.3g times the bound away",
                 b->seq[me], b->token[me], b->pos[me], n, worst);
    free(keys);
    free(out);
    free(bound);
}

/* Is this query compared? The last of a sequence always, others by chance. */
static bool is_chosen(lab *l, const lab_batch *b, uint32_t me)
{
    const cellar_layer *layer = target_of(l);
    bool is_last = true;
    for (uint32_t i = me + 1; i < b->n; i++)
        is_last &= b->seq[i] != b->seq[me];
    uint32_t cost = layer->n_heads * (layer->k_size + layer->v_size) * 60;
    uint32_t most = COMPARE_COST / cost < l->way.n_compared ? COMPARE_COST / cost
                                                            : l->way.n_compared;
    if (is_last) return b->n > 1 || random_below(&l->chance, 24) < most;
    return random_below(&l->chance, b->n) < most;
}

static float *gather(const lab *l, uint32_t layer, drive_row what, const lab_batch *b,
                     const cellar_ubatch *ubatch)
{
    size_t size = size_of(&l->layers->layer[layer], what);
    float *rows = drive_grab(ubatch->n_tokens * size, sizeof *rows);
    for (uint32_t i = 0; i < ubatch->n_tokens; i++)
        fill_row(l, layer, b->token[ubatch->indices[i]], what, rows + i * size, size);
    return rows;
}

static void attend(lab *l, lab_batch *b, uint32_t u, const cellar_ubatch *ubatch)
{
    cellar_error error = {0};
    uint32_t target = l->layers->target;
    size_t q_size = size_of(target_of(l), DRIVE_Q);
    float *q = gather(l, target, DRIVE_Q, b, ubatch);
    float *out = drive_grab(ubatch->n_tokens * l->out_size, sizeof *out);
    memset(out, 0xff, ubatch->n_tokens * l->out_size * sizeof *out);
    is_ok(l, "cellar_attend", cellar_attend(l->memory, u, target, q, out, &error), &error);
    for (uint32_t i = 0; i < ubatch->n_tokens; i++) {
        uint32_t me = ubatch->indices[i];
        memcpy(l->results + b->token[me] * l->out_size, out + i * l->out_size,
               l->out_size * sizeof *out);
        if (l->way.n_compared > 0 && is_chosen(l, b, me)) compare(l, b, me, q + i * q_size);
    }
    free(q);
    free(out);
}

static void run_ubatch(lab *l, lab_batch *b, uint32_t u)
{
    cellar_error error = {0};
    cellar_ubatch ubatch;
    if (!is_ok(l, "cellar_get_ubatch", cellar_get_ubatch(l->memory, u, &ubatch, &error), &error))
        return;
    for (uint32_t i = 0; i < ubatch.n_tokens; i++) {
        uint32_t me = ubatch.indices[i];
        if (ubatch.positions[i] != b->pos[me])
            lab_note(l, "token %u stands at %d in its micro-batch, not at %d", b->token[me],
                     ubatch.positions[i], b->pos[me]);
        b->ubatch[me] = u;
        l->tokens[b->token[me]].serial = l->n_ubatches;
    }
    l->n_ubatches++;
    for (uint32_t layer = 0; layer < l->layers->n; layer++) {
        if (source_of(l, layer) != layer) continue;
        float *k = gather(l, layer, DRIVE_K, b, &ubatch);
        float *v = l->layers->layer[layer].v_in_k ? NULL : gather(l, layer, DRIVE_V, b, &ubatch);
        is_ok(l, "cellar_store", cellar_store(l->memory, u, layer, k, v, &error), &error);
        free(k);
        free(v);
    }
    attend(l, b, u, &ubatch);
}

static void run_batch(lab *l, lab_batch *b)
{
    cellar_error error = {0};
    cellar_batch batch = cellar_batch_init();
    cellar_token tokens[LAB_TOKENS];
    cellar_point points[LAB_TOKENS];
    for (uint32_t i = 0; i < b->n; i++) {
        cellar_point point = l->tokens[b->token[i]].point;
        tokens[i] = (cellar_token)b->token[i];
        points[i] = (cellar_point){b->pos[i] + point.y, b->pos[i] + point.x};
        b->ubatch[i] = UINT32_MAX;
    }
    batch.n_tokens = b->n;
    batch.tokens = tokens;
    batch.positions = b->pos;
    batch.seqs = b->seq;
    batch.points = l->layers->has_points ? points : NULL;
    if (!is_ok(l, "cellar_begin", cellar_begin(l->memory, &batch, &error), &error)) return;
    for (uint32_t u = 0; u < cellar_count_ubatches(l->memory); u++)
        run_ubatch(l, b, u);
    is_ok(l, "cellar_commit", cellar_commit(l->memory, &error), &error);
    for (uint32_t i = 0; i < b->n; i++) {
        lab_sequence *s = &l->sequences[b->seq[i]];
        s->entries[s->n++] = (lab_entry){b->token[i], b->pos[i]};
        if (b->ubatch[i] == UINT32_MAX) lab_note(l, "token %u is in no micro-batch", b->token[i]);
    }
    b->n = 0;
}

void lab_append_many(lab *l, const cellar_seq *seqs, const uint32_t *first, const uint32_t *n,
                     uint32_t n_seqs)
{
    lab_batch *b = drive_grab(1, sizeof *b);
    uint32_t most = l->way.piece ? l->way.piece : LAB_TOKENS, longest = 0;
    if (l->n_wrong > 0) n_seqs = 0; /* the first thing wrong is what counts */
    for (uint32_t i = 0; i < n_seqs; i++)
        longest = n[i] > longest ? n[i] : longest;
    for (uint32_t turn = 0; turn < longest; turn++)
        for (uint32_t i = 0; i < n_seqs; i++) {
            if (turn >= n[i]) continue;
            add_token(l, b, seqs[i], first[i] + turn);
            if (b->n == most) run_batch(l, b);
        }
    if (b->n > 0) run_batch(l, b);
    free(b);
}

void lab_append(lab *l, cellar_seq seq, uint32_t first, uint32_t n)
{
    lab_append_many(l, &seq, &first, &n, 1);
}

void lab_append_singly(lab *l, cellar_seq seq, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        lab_append(l, seq, first + i, 1);
}

bool lab_sees(const lab *l, uint32_t at, uint32_t key)
{
    const lab_token *query = &l->tokens[at], *other = &l->tokens[key];
    return other->serial <= query->serial &&
           attention_model_sees(target_of(l), query->stored_pos, query->point, other->stored_pos,
                                other->point, other->serial == query->serial);
}
