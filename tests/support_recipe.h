/*
 * support_recipe.h: tiny models of any architecture for tests, from a list of keys and tensors.
 *
 *     recipe *r = recipe_create("t5");
 *     recipe_set_u32(r, "block_count", 2);             // "t5.block_count"
 *     recipe_add(r, "token_embd.weight", 32, 40, 0);   // random, and the same for the same name
 *     recipe_model made;
 *     if (recipe_load(r, &made, &error) == CELLAR_OK) ... made.model ...
 *     recipe_unload(&made);
 *     recipe_destroy(r);
 *
 * What is set or added a second time replaces the first, so a test can take a recipe that is right and
 * make one thing wrong. All tensors are F32, and recipe_data gives their numbers to a test that
 * computes in double, for which the plain_* functions are the parts. For tests only: without memory
 * the program ends with a message.
 */
#ifndef TESTS_SUPPORT_RECIPE_H
#define TESTS_SUPPORT_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/gguf.h"
#include "engine/model.h"

typedef struct recipe recipe;

recipe *recipe_create(const char *architecture);
void recipe_destroy(recipe *r);

/* Keys, without the architecture's name; those that begin with "tokenizer." are taken whole. */
void recipe_set_u32(recipe *r, const char *key, uint32_t value);
void recipe_set_float(recipe *r, const char *key, double value);
void recipe_set_bool(recipe *r, const char *key, bool value);
void recipe_set_text(recipe *r, const char *key, const char *value);
void recipe_set_i32s(recipe *r, const char *key, const int32_t *values, size_t n);
void recipe_drop_key(recipe *r, const char *key); /* which is there */

/*
 * A tensor of d0 numbers, d1 rows of them (0: a vector), d2 matrices (0: one). Vectors are near 1 if
 * they are the weights of a norm and near 0 otherwise; matrices keep the variance of what they
 * multiply. The numbers may be written over.
 */
float *recipe_add(recipe *r, const char *name, uint64_t d0, uint64_t d1, uint64_t d2);
void recipe_drop(recipe *r, const char *name);               /* which is there */
const float *recipe_data(const recipe *r, const char *name); /* NULL: no such tensor */

typedef struct recipe_model {
    unsigned char *bytes;
    gguf_file *file;
    model *model;
} recipe_model;

/* Write, open and load; the model is the caller's, for recipe_unload. */
cellar_status recipe_load(const recipe *r, recipe_model *out, cellar_error *error);
void recipe_unload(recipe_model *made); /* a failed load too */

/*
 * Is loading refused, with this status and a message that has both words in it? If not, what was found
 * is printed. The recipe is gone afterwards.
 */
bool recipe_is_refused(recipe *r, cellar_status status, const char *word, const char *other);
#define assert_recipe_refused(...) assert_true(recipe_is_refused(__VA_ARGS__))

/* ---- in double, as plainly as can be ----------------------------------------------------------- */

/* y[n_out] = w [n_out][n_in] * x[n_in] */
void plain_multiply(const float *w, size_t n_in, size_t n_out, const double *x, double *y);

/* y = w * x / sqrt(mean(x^2) + epsilon); x may be y. */
void plain_rms(const float *w, size_t n, double epsilon, const double *x, double *y);

/* Scores become weights that add up to 1. */
void plain_softmax(double *scores, size_t n);

double plain_silu(double z);
double plain_gelu(double z); /* with tanh */

/* The largest difference of two rows, in standard deviations of the second. */
double plain_distance(const float *found, const double *wanted, size_t n);

#endif /* TESTS_SUPPORT_RECIPE_H */
