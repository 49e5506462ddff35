/*
 * encoder.c: texts in, encodings out (encoder.h).
 *
 * Who holds what is one list, sorted by sequence. A reading is prepared whole before the first layer runs: the
 * texts are found, what they replace and whether the rest has room is counted, and every byte that is needed
 * is allocated, the new list too. Then the layers run, which may be stopped or fail; last the lists
 * change places, which cannot. Lists are short and readings rare, so each makes its list anew.
 */
#include "engine/encoder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

/* An encoding and how many sequences hold it. */
typedef struct kept {
    block_encoding encoding;
    uint32_t n_holders;
    uint32_t n_leaving; /* holders that get another; only while a reading is prepared */
} kept;

typedef struct holder {
    cellar_seq seq;
    kept *what;
} holder;

struct encoder {
    const model *model;
    cellar_memory *memory;
    uint32_t n_ubatch, n_most; /* tokens */
    holder *holders;           /* [n_holders], sorted by seq, no seq twice */
    size_t n_holders;
    uint64_t n_tokens; /* in all encodings */
};

/* What is prepared before a text is read: the texts, who will hold them, room for the new list. */
typedef struct reading {
    block_text *texts; /* [n_texts] */
    kept **made;       /* [n_texts] */
    uint32_t n_texts;
    holder *added; /* [n_added], sorted by seq */
    size_t n_added;
    holder *list; /* room for [n_holders + n_added] */
} reading;

/* ---- life cycle -------------------------------------------------------------------------------- */

cellar_status encoder_create(const model *m, const encoder_options *options, encoder **out,
                             cellar_error *error)
{
    *out = NULL;
    encoder *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the encoder");
    }
    cellar_layer *layers = malloc(m->encoder->n_memory_layers * sizeof *layers);
    cellar_status status = CELLAR_NO_MEMORY;
    if (layers != NULL) {
        cellar_config config = cellar_config_init();
        for (uint32_t i = 0; i < m->encoder->n_memory_layers; i++) {
            layers[i] = m->encoder->memory_layers[i];
            layers[i].k_type = layers[i].v_type = CELLAR_F32;
        }
        config.n_layers = m->encoder->n_memory_layers;
        config.layers = layers;
        config.n_cells = config.n_ubatch = options->n_ubatch;
        config.split = CELLAR_SPLIT_SIMPLE;
        config.cpu_mask = options->cpu_mask;
        config.workers = (cellar_workers){
            .n = options->n_threads, .run = block_workers_run, .context = options->workers};
        status = cellar_create(&config, &e->memory, error);
    }
    free(layers);
    if (status != CELLAR_OK) {
        encoder_destroy(e);
        return status != CELLAR_NO_MEMORY
                   ? status
                   : report(error, status, -1,
                            "no memory for an encoder of %" PRIu32 " tokens at once (--ubatch)",
                            options->n_ubatch);
    }
    e->model = m;
    e->n_ubatch = options->n_ubatch;
    e->n_most = options->n_kept;
    *out = e;
    return CELLAR_OK;
}

static void release(encoder *e, kept *what)
{
    if (--what->n_holders > 0) {
        return;
    }
    e->n_tokens -= what->encoding.n_tokens;
    free(what->encoding.rows);
    free(what);
}

void encoder_destroy(encoder *e)
{
    if (e == NULL) {
        return;
    }
    for (size_t i = 0; i < e->n_holders; i++) {
        release(e, e->holders[i].what);
    }
    free(e->holders);
    cellar_destroy(e->memory);
    free(e);
}

uint64_t encoder_bytes(const encoder *e)
{
    cellar_statistics statistics;
    uint64_t bytes = e->n_holders * sizeof *e->holders +
                     e->n_tokens * e->model->encoder->numbers * sizeof(float);
    if (cellar_stats(e->memory, &statistics, NULL) == CELLAR_OK) {
        bytes += statistics.sizes.total;
    }
    return bytes;
}

/* ---- who holds what ---------------------------------------------------------------------------- */

static int compare_holders(const void *a, const void *b)
{
    const holder *x = a, *y = b;
    return (x->seq > y->seq) - (x->seq < y->seq);
}

static holder *find_holder(const encoder *e, cellar_seq seq)
{
    const holder wanted = {.seq = seq};
    return e->n_holders == 0
               ? NULL
               : bsearch(&wanted, e->holders, e->n_holders, sizeof *e->holders, compare_holders);
}

const block_encoding *encoder_find(const encoder *e, cellar_seq seq)
{
    const holder *found = find_holder(e, seq);
    return found == NULL ? NULL : &found->what->encoding;
}

void encoder_forget(encoder *e, cellar_seq seq)
{
    holder *found = find_holder(e, seq);
    if (found == NULL) {
        return;
    }
    release(e, found->what);
    size_t behind = e->n_holders - (size_t)(found - e->holders) - 1;
    memmove(found, found + 1, behind * sizeof *found);
    e->n_holders--;
}

/* Merge `added`, sorted, into the list; where both name a sequence it gets what is added. */
static void change_holders(encoder *e, const holder *added, size_t n_added, holder *list)
{
    size_t n = 0, i = 0;
    for (size_t j = 0; j < n_added; j++) {
        while (i < e->n_holders && e->holders[i].seq < added[j].seq) {
            list[n++] = e->holders[i++];
        }
        added[j].what->n_holders++; /* first, as it may be what is released */
        if (i < e->n_holders && e->holders[i].seq == added[j].seq) {
            release(e, e->holders[i++].what);
        }
        list[n++] = added[j];
    }
    while (i < e->n_holders) {
        list[n++] = e->holders[i++];
    }
    free(e->holders);
    e->holders = list;
    e->n_holders = n;
}

cellar_status encoder_share(encoder *e, cellar_seq from, cellar_seq to, cellar_error *error)
{
    const holder *found = find_holder(e, from);
    if (found == NULL) {
        return report(error, CELLAR_NOT_FOUND, -1,
                      "sequence %" PRId64 " has no encoding to share: encode a text for it first",
                      (int64_t)from);
    }
    if (to < 0) {
        return report(error, CELLAR_INVALID, -1, "expected a sequence >= 0, found %" PRId64,
                      (int64_t)to);
    }
    holder *list = malloc((e->n_holders + 1) * sizeof *list);
    if (list == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a list of encodings");
    }
    const holder added = {.seq = to, .what = found->what};
    change_holders(e, &added, 1, list);
    return CELLAR_OK;
}

/* ---- preparing --------------------------------------------------------------------------------- */

/* The sequences of token i; *n of them. */
static const cellar_seq *members(const cellar_batch *batch, uint32_t i, uint32_t *n)
{
    static const cellar_seq first_sequence = 0;
    *n = 1;
    if (batch->seq_begin != NULL) {
        *n = batch->seq_begin[i + 1] - batch->seq_begin[i];
        return batch->seqs + batch->seq_begin[i];
    }
    return batch->seqs != NULL ? batch->seqs + i : &first_sequence;
}

static bool goes_on(const cellar_batch *batch, uint32_t i)
{
    uint32_t n_before, n;
    const cellar_seq *before = members(batch, i - 1, &n_before), *its = members(batch, i, &n);
    return n == n_before && memcmp(before, its, n * sizeof *its) == 0;
}

static void free_reading(reading *r)
{
    for (uint32_t i = 0; r->made != NULL && i < r->n_texts; i++) {
        if (r->made[i] != NULL) {
            free(r->made[i]->encoding.rows);
            free(r->made[i]);
        }
    }
    free(r->texts);
    free(r->made);
    free(r->added);
    free(r->list);
}

/* Find the texts and who will hold them. The batch is one that a memory has accepted. */
static cellar_status find_texts(const encoder *e, const cellar_batch *batch, reading *r,
                                cellar_error *error)
{
    r->n_added = 0;
    for (uint32_t i = 0; i < batch->n_tokens; i++) {
        if (i == 0 || !goes_on(batch, i)) {
            uint32_t n;
            members(batch, i, &n);
            r->n_added += n;
            r->n_texts++;
        }
    }
    r->texts = calloc(r->n_texts, sizeof *r->texts);
    r->made = calloc(r->n_texts, sizeof *r->made);
    r->added = calloc(r->n_added, sizeof *r->added);
    r->list = calloc(e->n_holders + r->n_added, sizeof *r->list);
    if (r->texts == NULL || r->made == NULL || r->added == NULL || r->list == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a list of encodings");
    }
    holder *to = r->added;
    uint32_t text = UINT32_MAX;
    for (uint32_t i = 0; i < batch->n_tokens; i++) {
        if (i > 0 && goes_on(batch, i)) {
            r->texts[text].encoding.n_tokens++;
            continue;
        }
        r->texts[++text] = (block_text){.first = i, .encoding = {.n_tokens = 1}};
        if ((r->made[text] = calloc(1, sizeof *r->made[text])) == NULL) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for an encoding");
        }
        uint32_t n;
        const cellar_seq *seqs = members(batch, i, &n);
        for (uint32_t j = 0; j < n; j++) {
            *to++ = (holder){.seq = seqs[j], .what = r->made[text]};
        }
    }
    return CELLAR_OK;
}

static cellar_status check_holders(reading *r, cellar_error *error)
{
    qsort(r->added, r->n_added, sizeof *r->added, compare_holders);
    for (size_t i = 1; i < r->n_added; i++) {
        if (r->added[i].seq == r->added[i - 1].seq) {
            return report(error, CELLAR_INVALID, -1,
                          "sequence %" PRId64
                          ": expected one text, whose tokens follow each other and stand in the "
                          "same sequences, found several",
                          (int64_t)r->added[i].seq);
        }
    }
    return CELLAR_OK;
}

/* Is there room for n more tokens when what the new texts replace is gone? */
static cellar_status check_room(const encoder *e, const reading *r, uint32_t n, cellar_error *error)
{
    uint64_t n_tokens = e->n_tokens + n;
    for (size_t i = 0; i < r->n_added; i++) {
        const holder *old = find_holder(e, r->added[i].seq);
        if (old != NULL && ++old->what->n_leaving == old->what->n_holders) {
            n_tokens -= old->what->encoding.n_tokens;
        }
    }
    for (size_t i = 0; i < e->n_holders; i++) {
        e->holders[i].what->n_leaving = 0;
    }
    if (n_tokens > e->n_most) {
        const uint64_t missing = n_tokens - e->n_most;
        return report(error, CELLAR_FULL, (int64_t)missing,
                      "encodings of %" PRIu32 " tokens have room, %" PRIu64
                      " would be missing: forget some, or make the engine with more (n_encoded)",
                      e->n_most, missing);
    }
    return CELLAR_OK;
}

static cellar_status allocate_rows(const encoder *e, const reading *r, cellar_error *error)
{
    for (uint32_t i = 0; i < r->n_texts; i++) {
        block_encoding *encoding = &r->texts[i].encoding;
        size_t n_bytes;
        if (__builtin_mul_overflow((size_t)encoding->n_tokens,
                                   e->model->encoder->numbers * sizeof(float), &n_bytes) ||
            (encoding->rows = malloc(n_bytes)) == NULL) {
            return report(error, CELLAR_NO_MEMORY, -1,
                          "no memory for the encoding of %" PRIu32 " tokens", encoding->n_tokens);
        }
        r->made[i]->encoding = *encoding;
    }
    return CELLAR_OK;
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* One layer, as a step of the memory that is given up again. */
static cellar_status run_layer(const encoder *e, uint32_t layer, block_context *c,
                               const cellar_batch *batch, cellar_error *error)
{
    if (block_is_stopped(c)) {
        return report(error, CELLAR_REFUSED, layer, "stopped by the caller");
    }
    cellar_status status = cellar_begin(e->memory, batch, error);
    if (status != CELLAR_OK) {
        return status;
    }
    status = cellar_get_ubatch(e->memory, 0, &c->place, error);
    if (status == CELLAR_OK) {
        status = e->model->architecture->run_encoder_layer(e->model, layer, c, error);
    }
    cellar_abort(e->memory);
    return status;
}

static cellar_status run(const encoder *e, block_context *c, const cellar_batch *batch,
                         const reading *r, cellar_error *error)
{
    const model_encoder *its = e->model->encoder;
    c->memory = e->memory;
    c->ubatch = 0;
    c->n_tokens = c->n_keys = batch->n_tokens;
    for (uint32_t i = 0; i < its->n_layers; i++) {
        cellar_status status = run_layer(e, i, c, batch, error);
        if (status != CELLAR_OK) {
            return status;
        }
    }
    block_norm_run(&its->norm, c, c->x, c->h, c->n_tokens);
    for (uint32_t i = 0; i < its->n_readers; i++) {
        block_cross_attention_encode(its->readers[i], c, c->h, r->texts, r->n_texts);
    }
    return CELLAR_OK;
}

/* Everything that can be refused, before anything is computed. */
static cellar_status prepare(encoder *e, const cellar_batch *batch, reading *r, cellar_error *error)
{
    if (batch->n_tokens > e->n_ubatch) {
        return report(error, CELLAR_FULL, batch->n_tokens - e->n_ubatch,
                      "an encoder reads a text at once, expected at most %" PRIu32
                      " tokens, found %" PRIu32 ": use larger micro-batches (--ubatch)",
                      e->n_ubatch, batch->n_tokens);
    }
    cellar_status status = cellar_begin(e->memory, batch, error); /* checks the batch */
    cellar_abort(e->memory);
    if (status != CELLAR_OK || (status = find_texts(e, batch, r, error)) ||
        (status = check_holders(r, error)) || (status = check_room(e, r, batch->n_tokens, error))) {
        return status;
    }
    return allocate_rows(e, r, error);
}

cellar_status encoder_read(encoder *e, block_context *c, const cellar_batch *batch,
                           cellar_error *error)
{
    reading r = {.n_texts = 0};
    cellar_status status = prepare(e, batch, &r, error);
    if (status == CELLAR_OK) {
        status = run(e, c, batch, &r, error);
    }
    if (status == CELLAR_OK) {
        e->n_tokens += batch->n_tokens;
        change_holders(e, r.added, r.n_added, r.list);
        r.list = NULL;
        memset(r.made, 0, r.n_texts * sizeof *r.made); /* they are held */
    }
    free_reading(&r);
    return status;
}
