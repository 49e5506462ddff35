/*
 * model_read.h: what architectures use to read a model file: checked numbers, checked tensors.
 *
 * Keys are given without the architecture's name: "block_count" reads "llama.block_count". Every
 * call that fails has said why in *error, with the whole key or tensor name, what was expected and
 * what was found. Memory that these calls allocate belongs to the model and goes with it.
 */
#ifndef APP_MODEL_READ_H
#define APP_MODEL_READ_H

#include "engine/model.h"

#define MODEL_KEY_SIZE 160u /* room for a key or tensor name that this program asks for */

/* Is the key there? */
bool model_has_key(const model *m, const char *key);

/* Its value as gguf.h has it; NULL: there is no such key. */
const gguf_value *model_find_value(const model *m, const char *key);

/* A required integer in [min, max]. */
cellar_status model_read_u32(const model *m, const char *key, uint32_t min, uint32_t max,
                             uint32_t *out, cellar_error *error);

/* The same, or `absent` if there is no such key. */
cellar_status model_read_u32_or(const model *m, const char *key, uint32_t min, uint32_t max,
                                uint32_t absent, uint32_t *out, cellar_error *error);

/*
 * An integer in [min, max] for each layer: out [n_layers]. The file may give one number for all or
 * an array of n_layers; if it has no such key every layer gets absent[layer], and with absent NULL
 * the key is required.
 */
cellar_status model_read_per_layer(const model *m, const char *key, uint32_t min, uint32_t max,
                                   const uint32_t *absent, uint32_t *out, cellar_error *error);

/* A number in [min, max], finite, or *out as it was if there is no such key. */
cellar_status model_read_number_or(const model *m, const char *key, double min, double max,
                                   double *out, cellar_error *error);

/* The same, and greater than 0; required when is_required. */
cellar_status model_read_positive(const model *m, const char *key, bool is_required, double *out,
                                  cellar_error *error);

/* A string, or a string of length 0 if there is no such key. */
cellar_status model_read_string_or(const model *m, const char *key, gguf_string *out,
                                   cellar_error *error);

/*
 * The rotary embedding of heads of k_size elements: rope.* keys, the older rope.scale_linear, and
 * the tensor rope_freqs.weight if there is one. The kind is the architecture's to say; out->kind
 * must be set before.
 */
cellar_status model_read_rope(model *m, uint32_t k_size, cellar_rope *out, cellar_error *error);

/* Tensor `name` of n divisors of frequencies; one of 1e15 or more becomes INFINITY. */
cellar_status model_read_divisors(model *m, const char *name, uint32_t n, const float **out,
                                  cellar_error *error);

/*
 * The rotary embedding of layers with a window, where that is another one: as *full, but with
 * rope.freq_base_swa (absent: `base`) and rope.dimension_count_swa (absent: as many as *full, at most
 * k_size), without scaling and divisors, which are for reading far.
 */
cellar_status model_read_window_rope(const model *m, uint32_t k_size, const cellar_rope *full,
                                     double base, cellar_rope *out, cellar_error *error);

/* "expected <what>, found <number>" for a key whose value is wrong: CELLAR_CORRUPT. */
cellar_status model_refuse_key(const model *m, const char *key, const char *what, double found,
                               cellar_error *error);

/* ---- tensors -------------------------------------------------------------------------------- */

/* Is the tensor there? */
bool model_has_tensor(const model *m, const char *name);

/* Matrix `name` of n_out rows of n_in numbers, in a weight type that kernels know. */
cellar_status model_read_weight(model *m, const char *name, uint32_t n_in, uint32_t n_out,
                                block_weight *out, cellar_error *error);

/*
 * Matrix `name` as n_matrices of them, each of n_out rows of n_in numbers: out->n_out is that of one,
 * and one begins n_out * row_bytes after another.
 */
cellar_status model_read_weights(model *m, const char *name, uint32_t n_in, uint32_t n_out,
                                 uint32_t n_matrices, block_weight *out, cellar_error *error);

/*
 * `name`, n numbers (F32, F16 or BF16) in any shape, as f32: dimensions other than the first only say
 * how they are grouped.
 */
cellar_status model_read_vector(model *m, const char *name, uint32_t n, const float **out,
                                cellar_error *error);

/* "<prefix>.weight" [n_out][n_in], and "<prefix>.bias" [n_out] if the file has it. */
cellar_status model_read_linear(model *m, const char *prefix, uint32_t n_in, uint32_t n_out,
                                block_linear *out, cellar_error *error);

/* A norm: "<prefix>.weight" [n_groups][width], and "<prefix>.bias" if the file has it. */
cellar_status model_read_norm(model *m, const char *prefix, block_norm_kind kind, uint32_t width,
                              uint32_t n_groups, double epsilon, block_norm *out,
                              cellar_error *error);

/* ---- memory --------------------------------------------------------------------------------- */

/*
 * n * size zeroed bytes that live as long as the model; NULL when there are none (*error is set).
 */
void *model_allocate(model *m, size_t n, size_t size, cellar_error *error);

#endif /* APP_MODEL_READ_H */
