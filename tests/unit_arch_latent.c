/*
 * unit_arch_latent.c: deepseek2, whose attention can be computed in two ways.
 *
 * A computation in double, written from the papers (keys and values of every head, no cache), says what must
 * come out of either form, with each kind of feed-forward, and with YaRN as its authors have it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "engine/engine.h"
#include "support_latent.h"

enum { N_TOKENS = 21 };

#define NEAR 1e-5 /* standard deviations of the logits */

static const cellar_token tokens[N_TOKENS] = {1,  7, 30, 2, 2,  19, 11, 5, 28, 0, 31,
                                              14, 9, 3,  8, 22, 17, 6,  1, 13, 4};

/* ---- in double --------------------------------------------------------------------------------- */

/* Radians that pair i turns for each position (Peng et al., arXiv:2309.00071, section 3.2). */
static double frequency(latent_variant v, uint32_t i)
{
    const double pi = acos(-1.0), theta = pow(10000.0, -2.0 * i / ROPE);
    if (!v.has_yarn) {
        return theta;
    }
    double low = floor(ROPE * log(YARN_CONTEXT / (32 * 2 * pi)) / (2 * log(10000.0)));
    double high = ceil(ROPE * log(YARN_CONTEXT / (1 * 2 * pi)) / (2 * log(10000.0)));
    low = fmax(low, 0);
    high = fmin(high, ROPE - 1);
    const double ramp = fmin(1, fmax(0, (i - low) / fmax(high - low, 0.001)));
    return theta / YARN_FACTOR * ramp + theta * (1 - ramp);
}

static void rotate(latent_variant v, double *x, uint32_t position)
{
    const double by = v.has_yarn && !v.has_multiplier ? 1 + 0.1 * log(YARN_FACTOR) : 1;
    for (uint32_t i = 0; i < ROPE / 2; i++) {
        const double c = cos(position * frequency(v, i)), s = sin(position * frequency(v, i));
        const double a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = by * (a * c - b * s);
        x[2 * i + 1] = by * (a * s + b * c);
    }
}

/* What attention of one layer remembers of a token. */
typedef struct remembered {
    double k[N_HEADS][K_SIZE], v[N_HEADS][V_SIZE];
} remembered;

/* Weights of a layer of the plain form, whichever form is tested. */
static const float *weights(const recipe *r, uint32_t layer, const char *part)
{
    return recipe_data(r, latent_part(layer, part).text);
}

static void remember(const recipe *r, latent_variant v, uint32_t layer, uint32_t position,
                     const double *h, remembered *to)
{
    double both[LATENT + ROPE], made[N_HEADS][NOPE + V_SIZE];
    plain_multiply(weights(r, layer, "attn_kv_a_mqa"), N_EMBD, LATENT + ROPE, h, both);
    plain_rms(weights(r, layer, "attn_kv_a_norm"), LATENT, EPSILON, both, both);
    rotate(v, both + LATENT, position);
    plain_multiply(weights(r, layer, "attn_kv_b"), LATENT, N_HEADS * (NOPE + V_SIZE), both,
                   made[0]);
    for (uint32_t head = 0; head < N_HEADS; head++) {
        memcpy(to->k[head], made[head], NOPE * sizeof(double));
        memcpy(to->k[head] + NOPE, both + LATENT, ROPE * sizeof(double));
        memcpy(to->v[head], made[head] + NOPE, V_SIZE * sizeof(double));
    }
}

static void ask(const recipe *r, latent_variant v, uint32_t layer, uint32_t position,
                const double *h, double q[N_HEADS][K_SIZE])
{
    double down[Q_RANK];
    if (v.is_lite) {
        plain_multiply(weights(r, layer, "attn_q"), N_EMBD, N_HEADS * K_SIZE, h, q[0]);
    } else {
        plain_multiply(weights(r, layer, "attn_q_a"), N_EMBD, Q_RANK, h, down);
        plain_rms(weights(r, layer, "attn_q_a_norm"), Q_RANK, EPSILON, down, down);
        plain_multiply(weights(r, layer, "attn_q_b"), Q_RANK, N_HEADS * K_SIZE, down, q[0]);
    }
    for (uint32_t head = 0; head < N_HEADS; head++) {
        rotate(v, q[head] + NOPE, position);
    }
}

static void attend(latent_variant v, double q[N_HEADS][K_SIZE], const remembered *of_tokens,
                   uint32_t n, double *out)
{
    const double magnitude = v.has_multiplier ? 1 + LOG_MULTIPLIER * log(YARN_FACTOR) : 1;
    for (uint32_t head = 0; head < N_HEADS; head++) {
        double scores[N_TOKENS];
        for (uint32_t j = 0; j < n; j++) {
            scores[j] = 0;
            for (uint32_t i = 0; i < K_SIZE; i++) {
                scores[j] += q[head][i] * of_tokens[j].k[head][i];
            }
            scores[j] *= magnitude * magnitude / sqrt(K_SIZE);
        }
        plain_softmax(scores, n);
        for (uint32_t i = 0; i < V_SIZE; i++) {
            out[head * V_SIZE + i] = 0;
            for (uint32_t j = 0; j < n; j++) {
                out[head * V_SIZE + i] += scores[j] * of_tokens[j].v[head][i];
            }
        }
    }
}

/* x [N_EMBD] += by * a gated feed-forward of h, n_ff wide, with these weights. */
static void add_gated(const float *w_gate, const float *w_up, const float *w_down, uint32_t n_ff,
                      const double *h, double by, double *x)
{
    double gate[N_FF], up[N_FF], down[N_EMBD];
    plain_multiply(w_gate, N_EMBD, n_ff, h, gate);
    plain_multiply(w_up, N_EMBD, n_ff, h, up);
    for (uint32_t i = 0; i < n_ff; i++) {
        gate[i] = plain_silu(gate[i]) * up[i];
    }
    plain_multiply(w_down, n_ff, N_EMBD, gate, down);
    for (uint32_t i = 0; i < N_EMBD; i++) {
        x[i] += by * down[i];
    }
}

/* How many of the n ranks are better than number i's; of equal ones the first. */
static uint32_t count_better(const double *ranks, uint32_t n, uint32_t i)
{
    uint32_t n_better = 0;
    for (uint32_t j = 0; j < n; j++) {
        n_better += ranks[j] > ranks[i] || (ranks[j] == ranks[i] && j < i);
    }
    return n_better;
}

/* Experts of all but the best groups get the worst rank. */
static void leave_out_groups(latent_variant v, double *ranks)
{
    enum { SIZE = N_EXPERTS / N_GROUPS };
    double groups[N_GROUPS];
    for (uint32_t g = 0; g < N_GROUPS; g++) {
        groups[g] = 0;
        for (uint32_t i = 0; i < SIZE; i++) {
            const uint32_t place = count_better(ranks + g * SIZE, SIZE, i);
            groups[g] += place < (v.experts == BEST_PAIRS ? 2u : 1u) ? ranks[g * SIZE + i] : 0;
        }
    }
    for (uint32_t i = 0; i < N_EXPERTS; i++) {
        if (count_better(groups, N_GROUPS, i / SIZE) >= N_GROUPS_USED) {
            ranks[i] = -INFINITY;
        }
    }
}

static void run_experts(const recipe *r, latent_variant v, const double *h, double *x)
{
    double p[N_EXPERTS], ranks[N_EXPERTS], sum = 0;
    const float *bias = recipe_data(r, "blk.1.exp_probs_b.bias");
    plain_multiply(weights(r, 1, "ffn_gate_inp"), N_EMBD, N_EXPERTS, h, p);
    if (v.experts != BEST_PAIRS) {
        plain_softmax(p, N_EXPERTS);
    }
    for (uint32_t i = 0; i < N_EXPERTS; i++) {
        p[i] = v.experts == BEST_PAIRS ? 1 / (1 + exp(-p[i])) : p[i];
        ranks[i] = p[i] + (bias != NULL ? (double)bias[i] : 0);
    }
    if (v.experts != EXPERTS) {
        leave_out_groups(v, ranks);
    }
    for (uint32_t i = 0; i < N_EXPERTS; i++) {
        sum += count_better(ranks, N_EXPERTS, i) < N_USED ? p[i] : 0;
    }
    for (uint32_t i = 0; i < N_EXPERTS; i++) {
        const size_t at = (size_t)i * N_EMBD * N_EXPERT_FF;
        const double by = p[i] * (v.experts == EXPERTS ? 1 : EXPERT_SCALE) /
                          (v.experts == BEST_PAIRS ? sum : 1);
        if (count_better(ranks, N_EXPERTS, i) < N_USED) {
            add_gated(weights(r, 1, "ffn_gate_exps") + at, weights(r, 1, "ffn_up_exps") + at,
                      weights(r, 1, "ffn_down_exps") + at, N_EXPERT_FF, h, by, x);
        }
    }
    add_gated(weights(r, 1, "ffn_gate_shexp"), weights(r, 1, "ffn_up_shexp"),
              weights(r, 1, "ffn_down_shexp"), N_SHARED * N_EXPERT_FF, h, 1, x);
}

static void feed_forward(const recipe *r, latent_variant v, uint32_t layer, double *x)
{
    double h[N_EMBD];
    plain_rms(weights(r, layer, "ffn_norm"), N_EMBD, EPSILON, x, h);
    if (layer == 1 && v.experts != DENSE) {
        run_experts(r, v, h, x);
    } else {
        add_gated(weights(r, layer, "ffn_gate"), weights(r, layer, "ffn_up"),
                  weights(r, layer, "ffn_down"), N_FF, h, 1, x);
    }
}

/* Logits after each token. v.is_plain: the recipe must be the plain form's. */
static void compute(latent_variant v, double logits[N_TOKENS][N_VOCAB])
{
    v.is_plain = true;
    recipe *r = latent_make(v);
    static remembered all[N_LAYERS][N_TOKENS];
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        double x[N_EMBD], h[N_EMBD], q[N_HEADS][K_SIZE], heads[N_HEADS * V_SIZE], out[N_EMBD];
        for (uint32_t i = 0; i < N_EMBD; i++) {
            x[i] = (double)recipe_data(r, "token_embd.weight")[(uint32_t)tokens[t] * N_EMBD + i];
        }
        for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
            plain_rms(weights(r, layer, "attn_norm"), N_EMBD, EPSILON, x, h);
            remember(r, v, layer, t, h, &all[layer][t]);
            ask(r, v, layer, t, h, q);
            attend(v, q, all[layer], t + 1, heads);
            plain_multiply(weights(r, layer, "attn_output"), N_HEADS * V_SIZE, N_EMBD, heads, out);
            for (uint32_t i = 0; i < N_EMBD; i++) {
                x[i] += out[i];
            }
            feed_forward(r, v, layer, x);
        }
        plain_rms(recipe_data(r, "output_norm.weight"), N_EMBD, EPSILON, x, h);
        plain_multiply(recipe_data(r, "output.weight"), N_EMBD, N_VOCAB, h, logits[t]);
    }
    recipe_destroy(r);
}

/* ---- by the engine ----------------------------------------------------------------------------- */

/* How tokens are read. */
typedef struct manner {
    uint32_t n_ubatch, n_threads, n_first; /* n_first: tokens of the first of two batches */
} manner;

static void read_part(engine *e, uint32_t first, uint32_t n, float *logits)
{
    uint32_t wanted[N_TOKENS];
    for (uint32_t i = 0; i < n; i++) {
        wanted[i] = i;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens + first;
    cellar_error error;
    if (n > 0 && engine_decode(e, &batch, wanted, n, logits + first * N_VOCAB, &error)) {
        fail_msg("%s", error.message);
    }
}

/* logits [N_TOKENS][N_VOCAB]; returns the bytes that a token takes. */
static uint64_t read_all(latent_variant v, manner how, float *logits)
{
    recipe *r = latent_make(v);
    recipe_model made;
    engine *e = NULL;
    engine_options options = engine_defaults();
    options.n_cells = 64;
    options.n_ubatch = how.n_ubatch;
    options.n_threads = how.n_threads;
    options.k_type = options.v_type = CELLAR_F32;
    cellar_error error;
    if (recipe_load(r, &made, &error) || engine_create(made.model, &options, &e, &error)) {
        fail_msg("%s", error.message);
    }
    read_part(e, 0, how.n_first, logits);
    read_part(e, how.n_first, N_TOKENS - how.n_first, logits);
    cellar_group_info group;
    assert_int_equal(cellar_get_group(engine_memory(e), 0, &group, NULL), CELLAR_OK);
    engine_destroy(e);
    recipe_unload(&made);
    recipe_destroy(r);
    return group.row_bytes;
}

static const manner at_once = {.n_ubatch = 64, .n_threads = 1, .n_first = N_TOKENS};

static void assert_near(latent_variant v)
{
    double wanted[N_TOKENS][N_VOCAB];
    float found[N_TOKENS][N_VOCAB];
    compute(v, wanted);
    read_all(v, at_once, found[0]);
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        double distance = plain_distance(found[t], wanted[t], N_VOCAB);
        if (!(distance <= NEAR)) {
            fail_msg("token %u: %g standard deviations away", (unsigned)t, distance);
        }
    }
}

static void both_forms_are_what_the_paper_says(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        assert_near((latent_variant){.is_plain = i & 1,
                                     .is_lite = i & 2,
                                     .has_yarn = i & 4,
                                     .has_multiplier = (i & 12) == 12});
    }
}

static void experts_are_chosen_as_the_papers_say(void **state)
{
    (void)state;
    assert_near((latent_variant){.experts = EXPERTS, .is_lite = true});
    assert_near((latent_variant){.experts = BEST_GROUPS});
    assert_near((latent_variant){.experts = BEST_PAIRS, .is_plain = true});
}

static void the_absorbed_form_gives_the_same_from_less(void **state)
{
    (void)state;
    float absorbed[N_TOKENS][N_VOCAB], plain[N_TOKENS][N_VOCAB];
    const uint64_t few = read_all((latent_variant){.is_plain = false}, at_once, absorbed[0]);
    const uint64_t many = read_all((latent_variant){.is_plain = true}, at_once, plain[0]);
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        double wanted[N_VOCAB];
        for (uint32_t i = 0; i < N_VOCAB; i++) {
            wanted[i] = (double)plain[t][i];
        }
        assert_true(plain_distance(absorbed[t], wanted, N_VOCAB) <= NEAR);
    }
    assert_int_equal(few, N_LAYERS * (LATENT + ROPE) * sizeof(float));
    assert_int_equal(many, N_LAYERS * N_HEADS * (K_SIZE + V_SIZE) * sizeof(float));
}

static void results_do_not_depend_on_how_tokens_are_read(void **state)
{
    (void)state;
    const manner manners[] = {{.n_ubatch = 4, .n_threads = 1, .n_first = N_TOKENS},
                              {.n_ubatch = 64, .n_threads = 3, .n_first = N_TOKENS},
                              {.n_ubatch = 5, .n_threads = 2, .n_first = 13}};
    for (unsigned i = 0; i < 3; i++) {
        const latent_variant v = {.is_plain = i == 1, .experts = i == 2 ? BEST_PAIRS : DENSE};
        float first[N_TOKENS][N_VOCAB], second[N_TOKENS][N_VOCAB];
        read_all(v, at_once, first[0]);
        for (size_t j = 0; j < sizeof manners / sizeof manners[0]; j++) {
            read_all(v, manners[j], second[0]);
            assert_memory_equal(first, second, sizeof first);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_are_what_the_paper_says),
        cmocka_unit_test(experts_are_chosen_as_the_papers_say),
        cmocka_unit_test(the_absorbed_form_gives_the_same_from_less),
        cmocka_unit_test(results_do_not_depend_on_how_tokens_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
