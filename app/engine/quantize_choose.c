/*
 * quantize_choose.c: which type each tensor gets. The rules stand in quantize.h.
 *
 * A file does not say which of its tensors are matrices to multiply with; their names do, and the list of
 * names here errs on the side of leaving a tensor alone: what is left alone is right for every engine.
 */
#define _POSIX_C_SOURCE 200809L

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf_internal.h"
#include "engine/quantize.h"
#include "kernels.h"
#include "report.h"

/* Parts of names of tensors that stay, though they are matrices by shape. */
static const char *const small_tensors[] = {
    "_norm",
    "ffn_gate_inp",
    "position_embd",
    "token_types",
    "attn_rel_b",
    "ssm_conv",
    "shortconv.conv",
    "ssm_a",
    "ssm_d.",
    "ssm_norm",
    "time_mix_w",
    "time_mix_a",
    "time_mix_v0",
    "time_mix_v1",
    "time_mix_v2",
    "time_mix_g1",
    "time_mix_g2",
    "time_mix_lerp",
    "time_mix_decay",
    "time_mix_first",
    "time_mix_ln",
    "time_mix_k_k",
    "time_mix_k_a",
    "time_mix_r_k",
    "channel_mix_lerp",
    "attn_sinks",
    "altup",
    "per_layer_model_proj",
    "rope_freqs",
    "rope_factors",
};

/* A tensor's name with a NUL behind it. */
typedef struct name_text {
    char text[GGUF_MAX_TENSOR_NAME + 1];
} name_text;

static name_text name_of(const gguf_tensor *tensor)
{
    name_text name;
    memcpy(name.text, tensor->name.data, tensor->name.length);
    name.text[tensor->name.length] = '\0';
    return name;
}

static bool is_small(const gguf_tensor *tensor, const char *name)
{
    static const char end[] = ".weight";
    const size_t length = strlen(name), n = sizeof end - 1;
    if (tensor->n_elements == tensor->dims[0] || length < n ||
        strcmp(name + length - n, end) != 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof small_tensors / sizeof *small_tensors; i++) {
        if (strstr(name, small_tensors[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* Does one of the names in the list, with commas between, match? *seen: bits of those that ever did. */
static bool is_named(char *const *names, size_t n_names, bool *seen, const char *name)
{
    bool found = false;
    for (size_t i = 0; i < n_names; i++) {
        if (fnmatch(names[i], name, 0) == 0) {
            seen[i] = found = true;
        }
    }
    return found;
}

static bool can_decode(uint32_t type)
{
    cl_matmul_table table;
    memset(&table, 0, sizeof table);
    cl_matmul_fill(&table, CELLAR_CPU_SCALAR);
    return type < CL_WEIGHT_TYPES && table.weight[type].block != 0;
}

static bool suits(const gguf_tensor *tensor, uint32_t type)
{
    uint32_t block = 0;
    return gguf_type_block(type, NULL, &block, NULL) && tensor->dims[0] % block == 0;
}

/* The type for a tensor whose rows may not suit `wanted`. */
static quantize_choice fit_rows(const gguf_tensor *tensor, const quantize_type *wanted,
                                quantize_reason reason)
{
    if (suits(tensor, wanted->type)) {
        return (quantize_choice){wanted->type, reason};
    }
    if (suits(tensor, wanted->fallback)) {
        return (quantize_choice){wanted->fallback, QUANTIZE_FALLBACK};
    }
    return (quantize_choice){tensor->type, QUANTIZE_ROWS};
}

static quantize_choice choose_matrix(const gguf_tensor *tensor, const quantize_options *o,
                                     bool is_output)
{
    const quantize_type *wanted = o->type;
    if (is_output && o->output_type != NULL) {
        wanted = o->output_type;
    } else if (is_output && o->type->is_coarse) {
        wanted = quantize_type_by_number(CL_WEIGHT_Q6_K);
    }
    return fit_rows(tensor, wanted, wanted == o->type ? QUANTIZE_ASKED : QUANTIZE_OUTPUT);
}

/* The names of a list, cut at its commas, in `text`; names has room for all. */
static size_t cut_list(char *text, char **names)
{
    size_t n = 0;
    char *rest = NULL;
    for (char *name = strtok_r(text, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        names[n++] = name;
    }
    return n;
}

static cellar_status choose_all(const gguf_file *file, const quantize_options *o,
                                char *const *names, size_t n_names, bool *seen,
                                quantize_choice *choices, cellar_error *error)
{
    const char *output = gguf_find_tensor(file, "output.weight") != NULL ? "output.weight"
                                                                         : "token_embd.weight";
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        const name_text name = name_of(tensor);
        choices[i] = (quantize_choice){tensor->type, QUANTIZE_SMALL};
        if (is_named(names, n_names, seen, name.text)) {
            choices[i].reason = QUANTIZE_NAMED;
        } else if (!is_small(tensor, name.text)) {
            if (can_decode(tensor->type)) {
                choices[i] = choose_matrix(tensor, o, strcmp(name.text, output) == 0);
            } else {
                choices[i].reason = QUANTIZE_SOURCE;
            }
        }
    }
    for (size_t i = 0; i < n_names; i++) {
        if (!seen[i]) {
            return report(error, CELLAR_INVALID, (int64_t)i,
                          "option --keep: no tensor is called '%.80s'; 'cellar inspect --tensors' "
                          "lists them",
                          names[i]);
        }
    }
    return CELLAR_OK;
}

cellar_status quantize_choose(const gguf_file *file, const quantize_options *options,
                              quantize_choice *choices, cellar_error *error)
{
    if (gguf_count_tensors(file) == 0) {
        return report(error, CELLAR_INVALID, -1, "has no tensors, so nothing to write");
    }
    const char *keep = options->keep != NULL ? options->keep : "";
    const size_t length = strlen(keep);
    char *text = malloc(length + 1);
    char **names = calloc(length + 1, sizeof *names);
    bool *seen = calloc(length + 1, sizeof *seen);
    cellar_status status;
    if (text == NULL || names == NULL || seen == NULL) {
        status = report(error, CELLAR_NO_MEMORY, -1, "no memory for the names to keep");
    } else {
        memcpy(text, keep, length + 1);
        const size_t n = cut_list(text, names);
        status = choose_all(file, options, names, n, seen, choices, error);
    }
    free(text);
    free(names);
    free(seen);
    return status;
}
