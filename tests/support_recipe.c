/*
 * support_recipe.c: recipes are two lists, written as a file when they are loaded.
 *
 * A tensor's numbers come from a generator that its name seeds, so they do not depend on what else
 * there is. Matrices are uniform in +-sqrt(3 / d0). A recipe knows nothing of architectures: a file
 * without a key or with a tensor of another shape is what tests of refusals want.
 */
#include "support_recipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/random_source.h"
#include "gguf_writer.h"

#define MOST 160u /* keys or tensors */
#define NAME 96u

typedef struct recipe_key {
    char name[NAME];
    gguf_type type; /* GGUF_ARRAY: of int32 */
    double number;
    char text[NAME];
    int32_t list[8];
    size_t n;
} recipe_key;

typedef struct recipe_tensor {
    char name[NAME];
    uint64_t dims[3];
    uint32_t n_dims;
    size_t n;
    float *numbers;
} recipe_tensor;

struct recipe {
    char architecture[NAME / 2];
    recipe_key keys[MOST];
    recipe_tensor tensors[MOST];
    size_t n_keys, n_tensors;
};

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "support_recipe: no memory\n");
        exit(1);
    }
    return memory;
}

recipe *recipe_create(const char *architecture)
{
    recipe *r = need(calloc(1, sizeof *r));
    snprintf(r->architecture, sizeof r->architecture, "%s", architecture);
    return r;
}

void recipe_destroy(recipe *r)
{
    for (size_t i = 0; i < r->n_tensors; i++) {
        free(r->tensors[i].numbers);
    }
    free(r);
}

/* ---- keys -------------------------------------------------------------------------------------- */

static size_t key_index(const recipe *r, const char *name)
{
    size_t i = 0;
    while (i < r->n_keys && strcmp(r->keys[i].name, name) != 0) {
        i++;
    }
    return i;
}

static recipe_key *set(recipe *r, const char *key, gguf_type type)
{
    char name[NAME] = {0};
    const int is_whole = strncmp(key, "tokenizer.", 10) == 0;
    snprintf(name, sizeof name, "%s%s%s", is_whole ? "" : r->architecture, is_whole ? "" : ".",
             key);
    size_t i = key_index(r, name);
    if (i == MOST) {
        fprintf(stderr, "support_recipe: too many keys\n");
        exit(1);
    }
    r->n_keys += i == r->n_keys;
    r->keys[i] = (recipe_key){.type = type};
    memcpy(r->keys[i].name, name, sizeof name);
    return &r->keys[i];
}

void recipe_set_u32(recipe *r, const char *key, uint32_t value)
{
    set(r, key, GGUF_UINT32)->number = value;
}

void recipe_set_float(recipe *r, const char *key, double value)
{
    set(r, key, GGUF_FLOAT32)->number = value;
}

void recipe_set_bool(recipe *r, const char *key, bool value)
{
    set(r, key, GGUF_BOOL)->number = value;
}

void recipe_set_text(recipe *r, const char *key, const char *value)
{
    snprintf(set(r, key, GGUF_STRING)->text, NAME, "%s", value);
}

void recipe_set_i32s(recipe *r, const char *key, const int32_t *values, size_t n)
{
    recipe_key *to = set(r, key, GGUF_ARRAY);
    to->n = n < 8 ? n : 8;
    memcpy(to->list, values, to->n * sizeof *values);
}

void recipe_drop_key(recipe *r, const char *key)
{
    const recipe_key *found = set(r, key, GGUF_UINT32);
    size_t i = (size_t)(found - r->keys);
    memmove(&r->keys[i], &r->keys[i + 1], (--r->n_keys - i) * sizeof *r->keys);
}

/* ---- tensors ----------------------------------------------------------------------------------- */

static size_t tensor_index(const recipe *r, const char *name)
{
    size_t i = 0;
    while (i < r->n_tensors && strcmp(r->tensors[i].name, name) != 0) {
        i++;
    }
    return i;
}

static void fill(recipe_tensor *t)
{
    uint64_t seed = 14695981039346656037u; /* FNV-1a of the name */
    for (const char *c = t->name; *c != '\0'; c++) {
        seed = (seed ^ (unsigned char)*c) * 1099511628211u;
    }
    random_source random;
    random_source_seed(&random, seed);
    const int is_norm = strstr(t->name, "norm.weight") != NULL;
    const double spread = t->n_dims > 1 ? sqrt(3.0 / (double)t->dims[0]) : 0.2;
    for (size_t i = 0; i < t->n; i++) {
        double number = spread * (2 * random_source_unit(&random) - 1);
        t->numbers[i] = (float)(number + is_norm);
    }
}

float *recipe_add(recipe *r, const char *name, uint64_t d0, uint64_t d1, uint64_t d2)
{
    size_t i = tensor_index(r, name);
    if (i == MOST) {
        fprintf(stderr, "support_recipe: too many tensors\n");
        exit(1);
    }
    recipe_tensor *t = &r->tensors[i];
    free(t->numbers);
    r->n_tensors += i == r->n_tensors;
    *t = (recipe_tensor){.dims = {d0, d1, d2}, .n_dims = 1u + (d1 > 0) + (d2 > 0)};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->n = (size_t)(d0 * (d1 > 0 ? d1 : 1) * (d2 > 0 ? d2 : 1));
    t->numbers = need(malloc(t->n * sizeof *t->numbers));
    fill(t);
    return t->numbers;
}

void recipe_drop(recipe *r, const char *name)
{
    size_t i = tensor_index(r, name);
    free(r->tensors[i].numbers);
    memmove(&r->tensors[i], &r->tensors[i + 1], (--r->n_tensors - i) * sizeof *r->tensors);
    r->tensors[r->n_tensors].numbers = NULL;
}

const float *recipe_data(const recipe *r, const char *name)
{
    size_t i = tensor_index(r, name);
    return i < r->n_tensors ? r->tensors[i].numbers : NULL;
}

/* ---- the file ---------------------------------------------------------------------------------- */

static void write_key(gguf_writer *writer, const recipe_key *key)
{
    switch (key->type) {
    case GGUF_FLOAT32:
        gguf_writer_add_float(writer, key->name, (float)key->number);
        break;
    case GGUF_BOOL:
        gguf_writer_add_bool(writer, key->name, key->number != 0);
        break;
    case GGUF_STRING:
        gguf_writer_add_string(writer, key->name, key->text);
        break;
    case GGUF_ARRAY:
        gguf_writer_add_array(writer, key->name, GGUF_INT32, key->n, key->list, 4 * key->n);
        break;
    default:
        gguf_writer_add_u32(writer, key->name, (uint32_t)key->number);
        break;
    }
}

cellar_status recipe_load(const recipe *r, recipe_model *out, cellar_error *error)
{
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "general.architecture", r->architecture);
    for (size_t i = 0; i < r->n_keys; i++) {
        write_key(writer, &r->keys[i]);
    }
    for (size_t i = 0; i < r->n_tensors; i++) {
        const recipe_tensor *t = &r->tensors[i];
        gguf_writer_add_tensor(writer, t->name, 0, t->n_dims, t->dims, t->numbers,
                               t->n * sizeof *t->numbers);
    }
    size_t size;
    *out = (recipe_model){.bytes = gguf_writer_finish(writer, &size)};
    gguf_writer_destroy(writer);
    cellar_status status = gguf_open_memory(out->bytes, size, &out->file, error);
    return status == CELLAR_OK ? model_load(out->file, &out->model, error) : status;
}

void recipe_unload(recipe_model *made)
{
    model_free(made->model);
    gguf_close(made->file);
    free(made->bytes);
    *made = (recipe_model){.bytes = NULL};
}

bool recipe_is_refused(recipe *r, cellar_status status, const char *word, const char *other)
{
    recipe_model made;
    cellar_error error = {.message = ""};
    const cellar_status found = recipe_load(r, &made, &error);
    const bool is_right = found == status && strstr(error.message, word) != NULL &&
                          strstr(error.message, other) != NULL && made.model == NULL;
    if (!is_right) {
        fprintf(stderr, "expected '%s' and '%s', found %s: %s\n", word, other,
                cellar_status_text(found), error.message);
    }
    recipe_unload(&made);
    recipe_destroy(r);
    return is_right;
}

/* ---- in double --------------------------------------------------------------------------------- */

void plain_multiply(const float *w, size_t n_in, size_t n_out, const double *x, double *y)
{
    for (size_t i = 0; i < n_out; i++) {
        y[i] = 0;
        for (size_t j = 0; j < n_in; j++) {
            y[i] += (double)w[i * n_in + j] * x[j];
        }
    }
}

void plain_rms(const float *w, size_t n, double epsilon, const double *x, double *y)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        squares += x[i] * x[i];
    }
    const double by = 1 / sqrt(squares / (double)n + epsilon);
    for (size_t i = 0; i < n; i++) {
        y[i] = (double)w[i] * x[i] * by;
    }
}

void plain_softmax(double *scores, size_t n)
{
    double most = scores[0], sum = 0;
    for (size_t i = 1; i < n; i++) {
        most = fmax(most, scores[i]);
    }
    for (size_t i = 0; i < n; i++) {
        scores[i] = exp(scores[i] - most);
        sum += scores[i];
    }
    for (size_t i = 0; i < n; i++) {
        scores[i] /= sum;
    }
}

double plain_silu(double z)
{
    return z / (1 + exp(-z));
}

double plain_gelu(double z)
{
    return 0.5 * z * (1 + tanh(sqrt(2 / acos(-1.0)) * (z + 0.044715 * z * z * z)));
}

double plain_distance(const float *found, const double *wanted, size_t n)
{
    double sum = 0, squares = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        sum += wanted[i];
        squares += wanted[i] * wanted[i];
        double difference = fabs((double)found[i] - wanted[i]);
        worst = difference <= worst || isnan(worst) ? worst : difference;
    }
    const double mean = sum / (double)n;
    return worst / sqrt(squares / (double)n - mean * mean);
}
