/*
 * quantize.c: decode, encode and write tensors, a batch of pieces at a time.
 *
 * A piece is 65,536 numbers, whole blocks of every type on both sides; each thread decodes and encodes one,
 * then they are written in order. A tensor's numbers follow each other without gaps between rows, so
 * pieces need not know rows. Memory: 512 KiB for each thread.
 *
 * What was written is opened again before it may take its name: a model that loads must still load, or
 * the rules of quantize_choose.c are wrong for it and the user is told instead of given a broken file.
 */
#include "engine/quantize.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf_internal.h"
#include "engine/model.h"
#include "engine/threads.h"
#include "kernels.h"
#include "report.h"

#define PIECE ((size_t)65536)  /* numbers; a multiple of every block */
#define COPY ((size_t)1 << 20) /* bytes copied between two looks at progress() */
#define QUANTIZATION_VERSION 2 /* of the packed layouts, as GGUF counts them */
#define NONE UINT64_MAX

/* One batch of pieces of one tensor. */
typedef struct batch {
    const cl_kernels *kernels;
    const cl_weight *from;     /* how the tensor's numbers are decoded */
    const unsigned char *data; /* of the tensor */
    uint32_t type;             /* to encode them as */
    size_t block, block_bytes; /* of it */
    uint64_t first, n;         /* numbers of the tensor in this batch */
    float *numbers;            /* [threads][PIECE] */
    unsigned char *bytes;      /* [threads][PIECE * 4] room */
    uint64_t bad[512]; /* for each thread: the first number that cannot be written, or NONE */
} batch;

typedef struct writing {
    const gguf_file *file;
    const quantize_options *options;
    gguf_write *w;
    threads *threads;
    uint32_t n_threads;
    cl_kernels kernels;
    cl_matmul_table table;
    batch batch;
    uint64_t n_done, n_all; /* bytes */
} writing;

/* ---- pieces --------------------------------------------------------------------------------- */

/* The first of n numbers that the type cannot hold; n: none. */
static size_t find_bad(uint32_t type, const float *x, size_t n)
{
    const bool holds_all = type == CL_WEIGHT_F32 || type == CL_WEIGHT_BF16;
    const float most = type == CL_WEIGHT_F16 ? 65520.0f : INFINITY; /* rounds to infinity */
    for (size_t i = 0; i < n && !holds_all; i++)
        if (!(fabsf(x[i]) < most)) return i;
    return n;
}

static void do_piece(void *argument, uint32_t part, uint32_t n_parts)
{
    batch *b = argument;
    (void)n_parts;
    const uint64_t begin = (uint64_t)part * PIECE;
    b->bad[part] = NONE;
    if (begin >= b->n) return;
    const size_t n = b->n - begin < PIECE ? (size_t)(b->n - begin) : PIECE;
    const uint64_t at = b->first + begin;
    float *x = b->numbers + begin;
    b->from->decode(x, b->data + at / b->from->block * b->from->block_bytes, n);
    const size_t bad = find_bad(b->type, x, n);
    if (bad < n)
        b->bad[part] = at + bad;
    else
        quantize_encode(b->kernels, b->type, b->bytes + begin / b->block * b->block_bytes, x, n);
}

static cellar_status refuse_number(const writing *s, const gguf_tensor *tensor, uint64_t at,
                                   cellar_error *error)
{
    float number[256]; /* of one block */
    const batch *b = &s->batch;
    const uint64_t block = at / b->from->block;
    b->from->decode(number, b->data + block * b->from->block_bytes, b->from->block);
    const float x = number[at % b->from->block];
    if (isfinite(x))
        return report(error, CELLAR_INVALID, (int64_t)at,
                      "tensor %.*s: number %" PRIu64 " is %g, too large for F16: choose BF16, or "
                      "keep it (--keep)",
                      GGUF_SHOW(tensor->name), at, (double)x);
    return report(error, CELLAR_CORRUPT, (int64_t)at,
                  "tensor %.*s: number %" PRIu64 " is %g: the model is damaged, or has to be "
                  "written as BF16 or F32",
                  GGUF_SHOW(tensor->name), at, (double)x);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static cellar_status tell(writing *s, uint64_t n, cellar_error *error)
{
    const quantize_options *o = s->options;
    s->n_done += n;
    if (o->progress != NULL && !o->progress(o->context, s->n_done, s->n_all))
        return report(error, CELLAR_REFUSED, (int64_t)s->n_done, "stopped, nothing was written");
    return CELLAR_OK;
}

static cellar_status copy_tensor(writing *s, const gguf_tensor *tensor, cellar_error *error)
{
    for (uint64_t at = 0; at < tensor->n_bytes; at += COPY) {
        const size_t n = tensor->n_bytes - at < COPY ? (size_t)(tensor->n_bytes - at) : COPY;
        GGUF_TRY(gguf_write_bytes(s->w, (const unsigned char *)tensor->data + at, n, error));
        GGUF_TRY(tell(s, n, error));
    }
    return CELLAR_OK;
}

static cellar_status change_tensor(writing *s, const gguf_tensor *tensor, uint32_t type,
                                   cellar_error *error)
{
    batch *b = &s->batch;
    uint32_t block = 0, block_bytes = 0;
    (void)gguf_type_block(type, NULL, &block, &block_bytes);
    b->from = &s->table.weight[tensor->type];
    b->data = tensor->data;
    b->type = type;
    b->block = block;
    b->block_bytes = block_bytes;
    const uint64_t most = (uint64_t)s->n_threads * PIECE;
    for (b->first = 0; b->first < tensor->n_elements; b->first += b->n) {
        b->n = tensor->n_elements - b->first < most ? tensor->n_elements - b->first : most;
        threads_run(s->threads, do_piece, b);
        for (uint32_t i = 0; i < s->n_threads; i++)
            if (b->bad[i] != NONE) return refuse_number(s, tensor, b->bad[i], error);
        const size_t n_bytes = (size_t)(b->n / block * block_bytes);
        GGUF_TRY(gguf_write_bytes(s->w, b->bytes, n_bytes, error));
        GGUF_TRY(tell(s, n_bytes, error));
    }
    return CELLAR_OK;
}

static cellar_status write_tensors(writing *s, const quantize_choice *choices,
                                   const uint64_t *offsets, cellar_error *error)
{
    for (uint32_t i = 0; i < gguf_count_tensors(s->file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(s->file, i);
        GGUF_TRY(gguf_write_pad(s->w, offsets[i], error));
        GGUF_TRY(choices[i].type == tensor->type
                     ? copy_tensor(s, tensor, error)
                     : change_tensor(s, tensor, choices[i].type, error));
    }
    return gguf_write_pad(s->w, s->n_all, error);
}

/* ---- the file ------------------------------------------------------------------------------- */

static bool is_packed(uint32_t type)
{
    uint32_t block = 0;
    return gguf_type_block(type, NULL, &block, NULL) && block > 1;
}

static cellar_status write_file(writing *s, const quantize_choice *choices, uint32_t *types,
                                uint64_t *offsets, cellar_error *error)
{
    gguf_write_changes changes = {.types = types, .file_type = s->options->type->file_type};
    for (uint32_t i = 0; i < gguf_count_tensors(s->file); i++) {
        types[i] = choices[i].type;
        if (is_packed(types[i])) changes.quantization_version = QUANTIZATION_VERSION;
    }
    GGUF_TRY(gguf_write_head(s->w, s->file, &changes, offsets, &s->n_all, error));
    GGUF_TRY(write_tensors(s, choices, offsets, error));
    return gguf_write_flush(s->w, error);
}

static bool loads(const gguf_file *file, cellar_error *error)
{
    model *m = NULL;
    const cellar_status status = model_load(file, &m, error);
    model_free(m);
    return status == CELLAR_OK;
}

/* Is what was written as good as what was read? */
static cellar_status check_written(const writing *s, cellar_error *error)
{
    gguf_file *written = NULL;
    cellar_error why;
    cellar_status status = gguf_open(gguf_write_name(s->w), &written, &why);
    if (status != CELLAR_OK)
        return report(error, status, -1, "what was written cannot be read back: %.150s",
                      why.message);
    if (loads(s->file, NULL) && !loads(written, &why))
        status = report(error, CELLAR_UNSUPPORTED, -1,
                        "the model would no longer load (%.120s); --keep NAME leaves a tensor as "
                        "it is",
                        why.message);
    gguf_close(written);
    return status;
}

static cellar_status make_buffers(writing *s, cellar_error *error)
{
    GGUF_TRY(threads_create(s->options->n_threads, &s->threads, error));
    s->n_threads = threads_count(s->threads);
    s->batch.numbers = malloc(s->n_threads * PIECE * sizeof(float));
    s->batch.bytes = malloc(s->n_threads * PIECE * sizeof(float));
    if (s->batch.numbers == NULL || s->batch.bytes == NULL)
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %" PRIu32 " threads",
                      s->n_threads);
    return CELLAR_OK;
}

cellar_status quantize_write(const gguf_file *file, const quantize_options *options,
                             const quantize_choice *choices, gguf_write *w, uint64_t *size,
                             cellar_error *error)
{
    writing *s = calloc(1, sizeof *s);
    uint32_t *types = calloc((size_t)gguf_count_tensors(file) + 1, sizeof *types);
    uint64_t *offsets = calloc((size_t)gguf_count_tensors(file) + 1, sizeof *offsets);
    cellar_status status = CELLAR_NO_MEMORY;
    if (s == NULL || types == NULL || offsets == NULL) {
        (void)report(error, CELLAR_NO_MEMORY, -1, "no memory for the table of tensors");
    } else {
        s->file = file;
        s->options = options;
        s->w = w;
        cl_kernels_fill(&s->kernels, options->cpu_mask);
        cl_matmul_fill(&s->table, options->cpu_mask);
        s->batch.kernels = &s->kernels;
        status = make_buffers(s, error);
        if (status == CELLAR_OK) status = write_file(s, choices, types, offsets, error);
        if (status == CELLAR_OK) status = check_written(s, error);
        *size = s->n_all;
        threads_destroy(s->threads);
        free(s->batch.numbers);
        free(s->batch.bytes);
    }
    free(s);
    free(types);
    free(offsets);
    return status;
}
