/*
 * quantize.h: write a model file with weights of another type.
 *
 * quantize_choose decides the type of every tensor, quantize_write computes and writes them in pieces of
 * a bounded size, however large the model is. What is decided, in this order:
 *
 *   - A tensor that is not a matrix which the engine multiplies with stays as it is: one row only, a
 *     name without ".weight" at its end, norms, and the small tensors of a list in quantize_choose.c
 *     (routers of experts, convolutions, position tables, low-rank mixing) that lose much and save nothing.
 *   - So does one that the user names, and one of a type that cannot be decoded here.
 *   - The output matrix (output.weight; without one token_embd.weight, which is then used for both) gets
 *     the type that the user names for it, else for a type of less than 6 bits Q6_K.
 *   - All others get the type that was asked for.
 *   - Rows that are no multiple of 256 numbers cannot have a K type; they get the type of blocks of 32
 *     that is next in size (quantize_types.c). Rows that are no multiple of 32 stay as they are.
 *
 * A tensor that has its type already is copied byte for byte. Results do not depend on the number of
 * threads.
 */
#ifndef APP_QUANTIZE_H
#define APP_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/gguf.h"
#include "engine/gguf_write.h"

/* ---- types ---------------------------------------------------------------------------------- */

/* A type that can be written. */
typedef struct quantize_type {
    const char *name;
    uint32_t type;      /* its number in GGUF files */
    uint32_t file_type; /* value of general.file_type for a model that is mostly this */
    uint32_t fallback;  /* type for rows that are no multiple of its block; its own: none */
    bool is_coarse;     /* less than 6 bits: the output matrix gets more */
} quantize_type;

/* By name, in any case, or by number; NULL: cannot be written. */
const quantize_type *quantize_find_type(const char *name);
const quantize_type *quantize_type_by_number(uint32_t type);
/* Name a type that exists but cannot be written because it needs an importance matrix? */
bool quantize_needs_matrix(const char *name);
/* "F32, F16, ...". Static. */
const char *quantize_type_names(void);

typedef struct cl_kernels cl_kernels;

/* n numbers, a multiple of the type's block, become packed bytes. All numbers must be finite. */
void quantize_encode(const cl_kernels *kernels, uint32_t type, void *to, const float *from,
                     size_t n);

/* ---- what becomes of each tensor ------------------------------------------------------------ */

typedef enum quantize_reason {
    QUANTIZE_ASKED,    /* gets the type that was asked for */
    QUANTIZE_OUTPUT,   /* gets another because it is the output matrix */
    QUANTIZE_FALLBACK, /* gets another because of the length of its rows */
    QUANTIZE_SMALL,    /* stays: no matrix, or a small one of the list */
    QUANTIZE_ROWS,     /* stays: rows are no multiple of any block */
    QUANTIZE_NAMED,    /* stays: the user says so */
    QUANTIZE_SOURCE    /* stays: its type cannot be decoded */
} quantize_reason;

typedef struct quantize_choice {
    uint32_t type;
    quantize_reason reason;
} quantize_choice;

typedef struct quantize_options {
    const quantize_type *type;
    const quantize_type *output_type; /* NULL: as above */
    const char *keep; /* names of tensors that stay, with commas between; * and ? match; NULL */
    uint32_t n_threads;
    uint32_t cpu_mask;
    void *context;
    /* n_done of n_all bytes have been written; false: stop */
    bool (*progress)(void *context, uint64_t n_done, uint64_t n_all);
} quantize_options;

/*
 * choices [tensors of the file]. CELLAR_INVALID: a name in `keep` matches no tensor, or there are none.
 */
cellar_status quantize_choose(const gguf_file *file, const quantize_options *options,
                              quantize_choice *choices, cellar_error *error);

/*
 * Write the file to `w`, everything but the last step, gguf_write_commit. If this program can run the model,
 * it has been seen to load what was written. *size: of the file.
 *
 * CELLAR_CORRUPT: a weight is no finite number. CELLAR_INVALID: one is too large for the type.
 * CELLAR_REFUSED: progress() stopped it. CELLAR_IO, CELLAR_NO_MEMORY.
 */
cellar_status quantize_write(const gguf_file *file, const quantize_options *options,
                             const quantize_choice *choices, gguf_write *w, uint64_t *size,
                             cellar_error *error);

#endif /* APP_QUANTIZE_H */
