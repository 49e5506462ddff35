/*
 * memory_options.c: from the command line to the engine's options.
 *
 * The names of the row types stand here as the table of choices; a test holds them against
 * cellar_type_name. A type whose blocks do not divide a head is refused with the option to change,
 * before the library would refuse it in its own words.
 */
#define _POSIX_C_SOURCE 200809L

#include "cli/memory_options.h"

#include <inttypes.h>
#include <unistd.h>

#include "report.h"

#define DEFAULT_MAX_CELLS 4096
#define DEFAULT_MAX_THREADS 64

const char *const memory_type_names[] = {"f32",  "f16",  "bf16", "q8_0",   "q5_1",
                                         "q5_0", "q4_1", "q4_0", "iq4_nl", NULL};

const cellar_type memory_types[] = {CELLAR_F32,  CELLAR_F16,  CELLAR_BF16,
                                    CELLAR_Q8_0, CELLAR_Q5_1, CELLAR_Q5_0,
                                    CELLAR_Q4_1, CELLAR_Q4_0, CELLAR_IQ4_NL};

/* The index has a bit for K and one for V. */
const char *const memory_rotation_names[] = {"none", "k", "v", "both", NULL};

memory_options memory_options_defaults(void)
{
    return (memory_options){.n_ubatch = 512, .k_type = 1, .v_type = 1};
}

bool memory_options_are_defaults(const memory_options *o)
{
    const memory_options plain = memory_options_defaults();
    return o->n_cells == plain.n_cells && o->n_ubatch == plain.n_ubatch &&
           o->n_threads == plain.n_threads && o->k_type == plain.k_type &&
           o->v_type == plain.v_type && o->rotation == plain.rotation &&
           o->is_exact == plain.is_exact;
}

uint32_t memory_options_threads(int64_t given)
{
    if (given != 0) {
        return (uint32_t)given;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > DEFAULT_MAX_THREADS ? DEFAULT_MAX_THREADS : (uint32_t)n;
}

/* Every layer's heads must be whole blocks of the type. */
static cellar_status check_heads(const model *m, cellar_type type, bool is_k, cellar_error *error)
{
    const uint32_t block = cellar_type_block(type);
    for (uint32_t i = 0; i < m->n_memory_layers; i++) {
        const cellar_layer *layer = &m->memory_layers[i];
        const uint32_t size = is_k ? layer->k_size : layer->v_size;
        if (layer->kind != CELLAR_LAYER_ATTENTION || size % block == 0) {
            continue;
        }
        return report(error, CELLAR_INVALID, i,
                      "option --cache-type-%c: %s stores blocks of %" PRIu32
                      " numbers, but the heads of layer %" PRIu32 " have %" PRIu32
                      "; choose f16, bf16 or f32",
                      is_k ? 'k' : 'v', cellar_type_name(type), block, i, size);
    }
    return CELLAR_OK;
}

cellar_status memory_options_apply(const memory_options *options, const model *m,
                                   engine_options *out, cellar_error *error)
{
    *out = engine_defaults();
    out->n_cells = options->n_cells != 0              ? (uint32_t)options->n_cells
                   : m->n_context < DEFAULT_MAX_CELLS ? m->n_context
                                                      : DEFAULT_MAX_CELLS;
    out->n_ubatch = (uint32_t)options->n_ubatch;
    out->n_threads = memory_options_threads(options->n_threads);
    out->k_type = memory_types[options->k_type];
    out->v_type = memory_types[options->v_type];
    out->is_exact = options->is_exact;
    out->rotate_k = (options->rotation & 1) != 0;
    out->rotate_v = (options->rotation & 2) != 0;
    cellar_status status = check_heads(m, out->k_type, true, error);
    return status == CELLAR_OK ? check_heads(m, out->v_type, false, error) : status;
}
