/*
 * attention_matrix_wrong.c: is the bound tight enough to see anything? See attention_matrix.h.
 *
 * For each feature the reference gets one thing a little wrong, as a library might: a window one
 * longer, a slope a tenth steeper, x and y mixed up. For each row type it rounds to another. Each
 * of them has to be told from the library by some result; one that is not noticed is a failure.
 */
#include "attention_matrix.h"

#include <stdio.h>
#include <string.h>

/* Spoil the reference for a feature; false: there is nothing to spoil in this case. */
static bool spoil(feature f, lab *l)
{
    cellar_layer *model = &l->model;
    uint32_t *sections = model->rope.sections, kept = sections[1];
    switch (f) {
    case FEATURE_PLAIN:
        model->scale = 1.03f * (model->scale != 0 ? model->scale : 0.1f);
        break;
    case FEATURE_WINDOW:
    case FEATURE_CHUNKED:
        model->window.size += 1;
        break;
    case FEATURE_SYMMETRIC:
    case FEATURE_SYMMETRIC_NOT_CAUSAL:
        model->window.size += 2;
        break;
    case FEATURE_KEPT:
        model->window.n_sinks -= 1;
        break;
    case FEATURE_NOT_CAUSAL:
        model->is_causal = true;
        break;
    case FEATURE_ALIBI:
        model->alibi_max_bias *= 1.1f;
        break;
    case FEATURE_SOFTCAP:
        model->softcap *= 1.1f;
        break;
    case FEATURE_SINKS:
        model->sinks = NULL;
        break;
    case FEATURE_BUCKETS_ONE:
    case FEATURE_BUCKETS_BOTH:
        model->buckets.max_distance *= 3;
        break;
    case FEATURE_MROPE_TEXT:
        model->rope.kind = CELLAR_ROPE_NORMAL;
        break;
    case FEATURE_MROPE_IMAGE:
        sections[1] = sections[0]; /* y turns what the position should */
        sections[0] = kept;
        return sections[0] != sections[1];
    case FEATURE_ROPE_INSIDE:
        model->rope.first -= 1;
        break;
    case FEATURE_YARN:
        model->rope.yarn_attn = 1.05;
        break;
    case FEATURE_V_IN_K:
        model->rope.base *= 2;
        return model->rope.kind != CELLAR_ROPE_NONE;
    case FEATURE_READS_LAYER:
        model->reads_layer = -1;
        break;
    case FEATURE_HADAMARD_K:
        model->rotate_k = false;
        break;
    case FEATURE_HADAMARD_V:
        model->rotate_v = false;
        break;
    case FEATURE_HADAMARD_BOTH:
        model->rotate_k = model->rotate_v = false;
        break;
    case FEATURE_KINDS:
        break;
    }
    return true;
}

/* Live through the case with a spoiled reference: is it noticed? -1: nothing to spoil. */
static int is_noticed(const matrix_case *c, int k_type, int v_type)
{
    matrix_layers layers;
    lab l;
    lab_way way = story_way(c);
    int answer = -1;
    way.n_compared = 40;
    if (matrix_make_layers(c, &layers)) {
        lab_open(&l, &layers, &way, c->seed);
        bool is_spoiled = k_type >= 0 || v_type >= 0 || spoil(c->first, &l);
        if (k_type >= 0) l.model.k_type = (cellar_type)k_type;
        if (v_type >= 0) l.model.v_type = (cellar_type)v_type;
        bool was_well = l.n_wrong == 0;
        if (is_spoiled) {
            story_run(&l, c);
            answer = was_well && l.worst > 1;
        }
        lab_close(&l);
    }
    matrix_free_layers(&layers);
    return answer;
}

static void judge(const char *what, const matrix_case *c, int answer, matrix_totals *totals)
{
    *(answer > 0 ? &totals->passed : &totals->failed) += 1;
    if (answer <= 0)
        printf("FAIL a wrong reference for %s was not noticed (K %s, V %s, seed %#llx)\n", what,
               row_model_name(c->k_type), row_model_name(c->v_type), (unsigned long long)c->seed);
}

void wrong_run(uint64_t seed, matrix_totals *totals)
{
    uint64_t random = random_mix(seed, 60);
    for (int f = 0; f < FEATURE_KINDS; f++) {
        /* Turning by Hadamard shows in what rounding does, and only there. */
        bool is_turned = f == FEATURE_HADAMARD_K || f == FEATURE_HADAMARD_V ||
                         f == FEATURE_HADAMARD_BOTH;
        cellar_type type = is_turned ? CELLAR_Q4_0 : CELLAR_F16;
        matrix_case c = {.first = (feature)f,
                         .second = (feature)f,
                         .k_type = type,
                         .v_type = type,
                         .heads = 1,
                         .sizes = 1,
                         .situation = SITUATION_UBATCHES};
        int answer = -1;
        for (int i = 0; i < 20 && answer < 0; i++) {
            c.seed = random_next(&random);
            answer = is_noticed(&c, -1, -1);
        }
        judge(feature_names[f], &c, answer, totals);
    }
    for (int t = 0; t < ROW_MODEL_TYPES; t++) {
        cellar_type type = row_model_types[t], other = row_model_types[(t + 1) % ROW_MODEL_TYPES];
        matrix_case c = {.k_type = type,
                         .v_type = type,
                         .heads = 1,
                         .sizes = 1,
                         .situation = SITUATION_UBATCHES,
                         .seed = random_next(&random)};
        judge("rounding K", &c, is_noticed(&c, (int)other, -1), totals);
        judge("rounding V", &c, is_noticed(&c, -1, (int)other), totals);
    }
}
