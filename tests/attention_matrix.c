/*
 * attention_matrix.c: attention for every feature with every row type, shape and situation, beside
 * a reference in double precision.
 *
 *   attention_matrix [--seed N] [--repeat N] [--only WORD] [--case N]
 *
 * The whole product would be far too long. Every feature meets every type, every shape, every
 * situation and every other feature that it can be combined with; every pair of K and V types
 * occurs; what a pair leaves open is drawn from the seed, which is printed. --repeat takes several
 * seeds, --only cases of one feature or type, --case one that failed. Then the same histories are
 * lived in other ways, and with NaN in rows that nobody may look at (attention_matrix_equal.c); and
 * references that are wrong on purpose have to be noticed (attention_matrix_wrong.c).
 * Prints `N passed, N failed, N skipped`; exits 1 when something failed.
 */
#include "attention_matrix.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    uint64_t seed;
    uint32_t repeat;
    const char *only;
    int64_t one; /* -1: all */
} settings;

/* What is left open in a case. */
enum { ANY = -1 };

typedef struct matrix_run {
    const settings *s;
    uint64_t random;
    uint32_t number;
    matrix_totals totals;
    double worst_of[FEATURE_KINDS];
} matrix_run;

void matrix_report(const matrix_case *c, const char *what, const lab *l)
{
    printf("FAIL %s: %s", what, feature_names[c->first]);
    if (c->second != c->first) printf(" + %s", feature_names[c->second]);
    printf(", K %s V %s, heads %u/%u, sizes %u/%u, %s, %s kernels, seed %#llx\n"
           "     worst difference / bound %.3g; %s\n",
           row_model_name(c->k_type), row_model_name(c->v_type), matrix_heads[c->heads][0],
           matrix_heads[c->heads][1], matrix_sizes[c->sizes][0], matrix_sizes[c->sizes][1],
           situation_names[c->situation], c->is_scalar ? "scalar" : "best",
           (unsigned long long)c->seed, l->worst, l->message);
}

static bool is_wanted(const settings *s, const matrix_case *c)
{
    return !s->only || strstr(feature_names[c->first], s->only) ||
           strstr(feature_names[c->second], s->only) ||
           !strcmp(row_model_name(c->k_type), s->only) ||
           !strcmp(row_model_name(c->v_type), s->only) ||
           strstr(situation_names[c->situation], s->only);
}

static void run_case(matrix_run *r, const matrix_case *c)
{
    matrix_layers layers;
    lab l;
    int64_t number = r->number++;
    if ((r->s->one >= 0 && r->s->one != number) || !is_wanted(r->s, c)) return;
    if (!matrix_make_layers(c, &layers)) {
        r->totals.skipped++;
    } else {
        lab_way way = story_way(c);
        lab_open(&l, &layers, &way, c->seed);
        story_run(&l, c);
        cellar_error error = {0};
        if (l.n_wrong == 0 && cellar_check(l.memory, &error) != CELLAR_OK)
            lab_note(&l, "cellar_check: %s", error.message);
        if (l.n_wrong == 0 && l.n_compared == 0) lab_note(&l, "nothing was compared");
        r->totals.worst = fmax(r->totals.worst, l.worst);
        r->worst_of[c->first] = fmax(r->worst_of[c->first], l.worst);
        r->totals.n_compared += l.n_compared;
        if (l.n_wrong > 0) {
            char name[40];
            snprintf(name, sizeof name, "case %lld", (long long)number);
            matrix_report(c, name, &l);
        }
        *(l.n_wrong > 0 ? &r->totals.failed : &r->totals.passed) += 1;
        lab_close(&l);
    }
    matrix_free_layers(&layers);
}

/* A case with everything drawn that is ANY. Types that do not go with the sizes change to f16. */
static void draw(matrix_run *r, int first, int second, int k_type, int v_type, int heads, int sizes,
                 int situation_kind)
{
    uint64_t *random = &r->random;
    /* Many heads of large sizes cost most and show least. */
    static const uint32_t likely_heads[] = {0, 1, 1, 1, 2, 2, 3};
    bool has_k = k_type != ANY, has_v = v_type != ANY;
    matrix_case c;
    c.first = (feature)(first != ANY ? (uint32_t)first : random_below(random, FEATURE_KINDS));
    c.second = second != ANY ? (feature)second : c.first;
    c.k_type = row_model_types[has_k ? (uint32_t)k_type : random_below(random, ROW_MODEL_TYPES)];
    c.v_type = row_model_types[has_v ? (uint32_t)v_type : random_below(random, ROW_MODEL_TYPES)];
    c.heads = heads != ANY ? (uint32_t)heads : likely_heads[random_below(random, 7)];
    c.sizes = sizes != ANY ? (uint32_t)sizes : random_below(random, SIZES);
    while (sizes == ANY && !matrix_takes(c.sizes, c.k_type, c.v_type))
        c.sizes = random_below(random, SIZES);
    while (!matrix_takes(c.sizes, c.k_type, c.v_type)) {
        c.k_type = row_model_types[random_below(random, 3)]; /* f32, f16, bf16 */
        c.v_type = row_model_types[random_below(random, 3)];
    }
    c.situation = (situation)(situation_kind != ANY ? (uint32_t)situation_kind
                                                    : random_below(random, SITUATION_KINDS));
    c.is_scalar = random_one_in(random, 3);
    c.seed = random_next(random);
    run_case(r, &c);
}

static void run_matrix(matrix_run *r)
{
    for (int f = 0; f < FEATURE_KINDS; f++) {
        for (int t = 0; t < ROW_MODEL_TYPES; t++)
            draw(r, f, ANY, t, t, ANY, ANY, ANY);
        for (int h = 0; h < HEADS; h++)
            for (int s = 0; s < SIZES; s++)
                draw(r, f, ANY, ANY, ANY, h, s, ANY);
        for (int s = 0; s < SITUATION_KINDS; s++)
            draw(r, f, ANY, ANY, ANY, ANY, ANY, s);
        for (int g = f + 1; g < FEATURE_KINDS; g++)
            if (matrix_is_pair((feature)f, (feature)g)) draw(r, f, g, ANY, ANY, ANY, ANY, ANY);
    }
    for (int k = 0; k < ROW_MODEL_TYPES; k++)
        for (int v = 0; v < ROW_MODEL_TYPES; v++)
            for (int s = 0; s < 3; s++) /* 32/32, 64/64, 96/64 */
                draw(r, ANY, ANY, k, v, s, s, ANY);
    for (int t = 0; t < ROW_MODEL_TYPES; t++)
        for (int h = 0; h < HEADS; h++)
            for (int s = 0; s < SIZES; s++)
                if (matrix_takes((uint32_t)s, row_model_types[t], row_model_types[t]))
                    draw(r, FEATURE_PLAIN, ANY, t, t, h, s, ANY);
}

static bool parse_number(const char *text, uint64_t *to)
{
    char *end;
    errno = 0;
    *to = strtoull(text, &end, 0);
    return errno == 0 && *text != '-' && end != text && *end == 0;
}

static bool parse(int argc, char **argv, settings *s)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t number = 0;
        bool is_number = parse_number(argv[i + 1], &number);
        if (!strcmp(argv[i], "--only"))
            s->only = argv[i + 1];
        else if (!strcmp(argv[i], "--seed") && is_number)
            s->seed = number;
        else if (!strcmp(argv[i], "--repeat") && is_number && number >= 1 && number <= 1000000)
            s->repeat = (uint32_t)number;
        else if (!strcmp(argv[i], "--case") && is_number && number < 1000000)
            s->one = (int64_t)number;
        else
            return false;
    }
    return argc % 2 == 1;
}

int main(int argc, char **argv)
{
    settings s = {.seed = 1, .repeat = 1, .one = -1};
    if (!parse(argc, argv, &s)) {
        fprintf(stderr,
                "usage: attention_matrix [--seed N] [--repeat N] [--only WORD] [--case N]\n");
        return 2;
    }
    matrix_run r = {.s = &s};
    for (uint32_t i = 0; i < s.repeat; i++) {
        r.random = random_mix(s.seed + i, 0);
        r.number = 0;
        printf("seed %llu\n", (unsigned long long)(s.seed + i));
        run_matrix(&r);
        if (s.only || s.one >= 0) continue;
        equal_run(s.seed + i, 1, &r.totals);
        poison_run(s.seed + i, &r.totals);
        wrong_run(s.seed + i, &r.totals);
    }
    for (int f = 0; f < FEATURE_KINDS; f++)
        printf("  %-32s worst difference / bound %.3f\n", feature_names[f], r.worst_of[f]);
    printf("%u results compared with the reference\n", r.totals.n_compared);
    if (r.totals.skipped > 0)
        printf(
            "skipped: %u shapes that cannot have their feature (no pair of elements to rotate)\n",
            r.totals.skipped);
    printf("%u passed, %u failed, %u skipped\n", r.totals.passed, r.totals.failed,
           r.totals.skipped);
    return r.totals.failed > 0;
}
