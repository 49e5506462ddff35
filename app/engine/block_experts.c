/*
 * block_experts.c: choose experts for each token, then take the tokens of one expert after another.
 *
 * An expert's tokens are gathered, go through it as a micro-batch of their own, and what comes out is
 * added to their rows with its weight. So the weights of an expert are read once, however many
 * tokens use it. Cannot fail.
 */
#include "engine/block_experts.h"

#include <math.h>
#include <string.h>

/* An expert that a token uses. */
typedef struct choice {
    uint32_t expert;
    float weight;
} choice;

/* A token that uses the expert at hand. */
typedef struct member {
    uint32_t token;
    float weight;
} member;

#define TAKEN -1.0f /* in the place of a probability */
#define NUMBERS(type) (sizeof(type) / sizeof(float))

/* The buffers of one run. */
typedef struct room {
    float *logits;   /* [n_tokens][n] of the router */
    float *groups;   /* [n_groups] ranks of one token's */
    choice *choices; /* [n_tokens][n_used] by rising expert */
    member *members; /* [n_tokens] */
    float *x;        /* [n_tokens][n_embd] what an expert reads */
    float *y;        /* [n_tokens][n_embd] what it gives */
    float *left;     /* for the expert itself */
} room;

static uint64_t own_room(const block_experts *e)
{
    uint64_t n_embd = e->router.weight.n_in;
    return block_room(e->n) + block_room(e->n_groups) + block_room(e->n_used * NUMBERS(choice)) +
           block_room(NUMBERS(member)) + 2 * block_room(n_embd);
}

uint64_t block_experts_scratch(const block_experts *e)
{
    uint64_t all = own_room(e) + block_ffn_scratch(&e->experts[0]);
    uint64_t shared = block_has(&e->shared.up) ? block_ffn_scratch(&e->shared) + block_room(1) : 0;
    return all > shared ? all : shared;
}

static void cut_room(const block_experts *e, const block_context *c, room *r)
{
    float *left = c->scratch;
    r->logits = block_cut(&left, c, e->n);
    r->groups = block_cut(&left, c, e->n_groups);
    r->choices = (choice *)(void *)block_cut(&left, c, e->n_used * NUMBERS(choice));
    r->members = (member *)(void *)block_cut(&left, c, NUMBERS(member));
    r->x = block_cut(&left, c, c->n_embd);
    r->y = block_cut(&left, c, c->n_embd);
    r->left = left;
}

/* ---- the choice -------------------------------------------------------------------------------- */

/* z [n] becomes probabilities. */
static void make_probabilities(block_router kind, float *z, uint32_t n)
{
    double most = (double)z[0], sum = 0;
    for (uint32_t i = 1; i < n; i++) {
        most = fmax(most, (double)z[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)z[i] - most);
    }
    for (uint32_t i = 0; i < n; i++) {
        double p = kind == BLOCK_ROUTER_SOFTMAX ? exp((double)z[i] - most) / sum
                                                : 1 / (1 + exp(-(double)z[i]));
        z[i] = (float)p;
    }
}

static float rank(const block_experts *e, const float *p, uint32_t expert)
{
    return e->choice_bias == NULL ? p[expert] : p[expert] + e->choice_bias[expert];
}

/* The rank of a group: of its best expert, or of its best two together. NaN is left out. */
static float rank_group(const block_experts *e, const float *p, uint32_t group)
{
    const uint32_t size = e->n / e->n_groups;
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = group * size; i < (group + 1) * size; i++) {
        float its = rank(e, p, i);
        if (its > best) {
            second = best;
            best = its;
        } else if (its > second) {
            second = its;
        }
    }
    return e->kind == BLOCK_ROUTER_SIGMOID && size > 1 ? best + second : best;
}

/* Experts of other groups than the best can not be chosen; of equal ones the first is better. */
static void leave_out_groups(const block_experts *e, float *p, float *ranks)
{
    const uint32_t size = e->n / e->n_groups;
    for (uint32_t group = 0; group < e->n_groups; group++) {
        ranks[group] = rank_group(e, p, group);
    }
    for (uint32_t group = 0; group < e->n_groups; group++) {
        uint32_t n_better = 0;
        for (uint32_t i = 0; i < e->n_groups; i++) {
            n_better += ranks[i] > ranks[group] || (ranks[i] == ranks[group] && i < group);
        }
        for (uint32_t i = 0; n_better >= e->n_groups_used && i < size; i++) {
            p[group * size + i] = TAKEN;
        }
    }
}

/* The best expert whose p is not TAKEN; NaN comes last. */
static uint32_t next_best(const block_experts *e, const float *p)
{
    uint32_t best = e->n;
    for (uint32_t i = 0; i < e->n; i++) {
        if (p[i] == TAKEN) {
            continue;
        }
        if (best == e->n || rank(e, p, i) > rank(e, p, best) ||
            (isnan(rank(e, p, best)) && !isnan(rank(e, p, i)))) {
            best = i;
        }
    }
    return best;
}

static void sort_by_expert(choice *chosen, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        choice moving = chosen[i];
        uint32_t at = i;
        for (; at > 0 && chosen[at - 1].expert > moving.expert; at--) {
            chosen[at] = chosen[at - 1];
        }
        chosen[at] = moving;
    }
}

/* Experts and weights of one token from what the router says of it, which is changed. */
static void choose(const block_experts *e, float *p, float *groups, choice *chosen)
{
    double sum = 0;
    make_probabilities(e->kind, p, e->n);
    if (e->n_groups > 1) {
        leave_out_groups(e, p, groups);
    }
    for (uint32_t i = 0; i < e->n_used; i++) {
        chosen[i].expert = next_best(e, p);
        chosen[i].weight = p[chosen[i].expert];
        p[chosen[i].expert] = TAKEN;
    }
    sort_by_expert(chosen, e->n_used);
    for (uint32_t i = 0; i < e->n_used; i++) {
        sum += (double)chosen[i].weight;
    }
    double by = (double)e->scale / (e->is_renormalised && sum > 0 ? sum : 1);
    for (uint32_t i = 0; i < e->n_used; i++) {
        chosen[i].weight = (float)((double)chosen[i].weight * by);
    }
}

static void choose_for_all(const block_experts *e, const block_context *c, const float *x,
                           const room *r)
{
    const block_product product = {.linear = &e->router, .x = x, .y = r->logits};
    block_multiply(c, &product, 1, c->n_tokens);
    for (uint32_t t = 0; t < c->n_tokens; t++) {
        choose(e, r->logits + (size_t)t * e->n, r->groups, r->choices + (size_t)t * e->n_used);
    }
}

/* ---- experts ----------------------------------------------------------------------------------- */

/* The tokens that use an expert; how many there are. */
static uint32_t find_members(const block_experts *e, uint32_t n_tokens, uint32_t expert,
                             const room *r)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < n_tokens; t++) {
        const choice *chosen = r->choices + (size_t)t * e->n_used;
        for (uint32_t i = 0; i < e->n_used; i++) {
            if (chosen[i].expert == expert) {
                r->members[n++] = (member){t, chosen[i].weight};
            }
        }
    }
    return n;
}

static void run_expert(const block_experts *e, const block_context *c, uint32_t expert,
                       const float *x, float *out, const room *r)
{
    size_t width = c->n_embd;
    block_context inner = *c;
    inner.n_tokens = find_members(e, c->n_tokens, expert, r);
    inner.scratch = r->left;
    if (inner.n_tokens == 0) {
        return;
    }
    for (uint32_t i = 0; i < inner.n_tokens; i++) {
        memcpy(r->x + i * width, x + r->members[i].token * width, width * sizeof *x);
    }
    block_ffn_run(&e->experts[expert], &inner, r->x, r->y, NULL);
    for (uint32_t i = 0; i < inner.n_tokens; i++) {
        float *to = out + r->members[i].token * width;
        for (size_t j = 0; j < width; j++) {
            to[j] += r->members[i].weight * r->y[i * width + j];
        }
    }
}

/* out = the part that all tokens read. */
static void run_shared(const block_experts *e, const block_context *c, const float *x, float *out)
{
    size_t width = c->n_embd;
    block_ffn_run(&e->shared, c, x, out, NULL);
    if (!block_has(&e->shared_gate)) {
        return;
    }
    float *left = c->scratch, *gates = block_cut(&left, c, 1);
    const block_product product = {.linear = &e->shared_gate, .x = x, .y = gates};
    block_multiply(c, &product, 1, c->n_tokens);
    for (uint32_t t = 0; t < c->n_tokens; t++) {
        float by = 1 / (1 + expf(-gates[t]));
        for (size_t j = 0; j < width; j++) {
            out[t * width + j] *= by;
        }
    }
}

void block_experts_run(const block_experts *e, const block_context *c, const float *x, float *out,
                       float *residual)
{
    room r;
    size_t n = (size_t)c->n_tokens * c->n_embd;
    if (block_has(&e->shared.up)) {
        run_shared(e, c, x, out);
    } else {
        memset(out, 0, n * sizeof *out);
    }
    cut_room(e, c, &r);
    choose_for_all(e, c, x, &r);
    for (uint32_t expert = 0; expert < e->n; expert++) {
        run_expert(e, c, expert, x, out, &r);
    }
    for (size_t i = 0; residual != NULL && i < n; i++) {
        residual[i] += out[i];
    }
}
