/*
 * block_product.c: matrix products, split over threads by rows of the weights.
 *
 * A job is a short list of products with the same tokens; part p of n computes the p-th stretch of
 * rows of every one of them, adds the bias and goes on to what is done to each value alone (the
 * residual, the gate), because those rows of y are nobody else's. So a layer costs four meetings of
 * the threads (and those of attention): q k v; out; gate and up; down.
 *
 * Where products of whole numbers are faster, what is multiplied with weights of quants is rounded to such
 * before the job, once for all products that read it (kernels/rounded.h); for many tokens that is a job too.
 * Products that read something else follow in a job of their own, since there is room for one such matrix.
 *
 * Stretches begin at multiples of ROWS_TOGETHER, so that kernels can take several rows at once and
 * two threads seldom write to one cache line. The kernels promise that a value does not depend on
 * its neighbours (kernels.h), so the split cannot be seen in the results. Cannot fail.
 */
#include "engine/block.h"

#define ROWS_TOGETHER 16u /* one cache line of y */

typedef struct multiply_job {
    const block_context *c;
    const block_product *products;
    uint32_t n, n_tokens;
    block_activation_function activation; /* of products[0]; NULL: none */
} multiply_job;

/* Roundings that take about as long as a multiplication. */
#define MULTIPLICATIONS_OF_ROUNDING 8u

/* The product for weights of this type if it is one of whole numbers, or NULL. */
static cl_multiply_rounded *rounded_product(const block_context *c, const block_weight *w)
{
    return c->rounded == NULL ? NULL : c->table->multiply_rounded[w->type];
}

static uint32_t stretch_start(uint32_t n_out, uint32_t part, uint32_t n_parts)
{
    if (part == n_parts) {
        return n_out;
    }
    uint64_t row = (uint64_t)n_out * part / n_parts;
    return (uint32_t)(row - row % ROWS_TOGETHER);
}

static void add_to_rows(const cl_matmul_table *table, const block_product *p, uint32_t first,
                        uint32_t last, uint32_t n_tokens)
{
    const float *bias = p->linear->bias;
    size_t stride = p->linear->weight.n_out;
    for (uint32_t t = 0; t < n_tokens; t++) {
        float *y = p->y + t * stride;
        if (bias != NULL) {
            table->add(y + first, bias + first, last - first);
        }
        if (p->residual != NULL) {
            table->add(p->residual + t * stride + first, y + first, last - first);
        }
    }
}

/* y of the first product = activation(y), times y of the second if there is one. */
static void activate_rows(const multiply_job *job, uint32_t first, uint32_t last)
{
    const block_product *gate = &job->products[0];
    size_t stride = gate->linear->weight.n_out;
    for (uint32_t t = 0; t < job->n_tokens; t++) {
        float *g = gate->y + t * stride;
        job->activation(g + first, last - first);
        if (job->n == 2) {
            const float *u = job->products[1].y + t * stride;
            job->c->table->multiply(g + first, u + first, last - first);
        }
    }
}

static void multiply_part(void *argument, uint32_t part, uint32_t n_parts)
{
    const multiply_job *job = argument;
    for (uint32_t i = 0; i < job->n; i++) {
        const block_product *p = &job->products[i];
        const block_weight *w = &p->linear->weight;
        uint32_t first = stretch_start(w->n_out, part, n_parts);
        uint32_t last = stretch_start(w->n_out, part + 1, n_parts);
        if (first == last) {
            continue;
        }
        cl_multiply_rounded *multiply = rounded_product(job->c, w);
        if (multiply != NULL) {
            multiply(w->data, w->row_bytes, w->n_in, first, last, job->c->rounded, job->n_tokens,
                     p->y, w->n_out);
        } else {
            job->c->table->weight[w->type].matmul(w->data, w->row_bytes, w->n_in, first, last, p->x,
                                                  w->n_in, job->n_tokens, p->y, w->n_out);
        }
        add_to_rows(job->c->table, p, first, last, job->n_tokens);
        if (job->activation != NULL && i == job->n - 1) {
            activate_rows(job, first, last);
        }
    }
}

/* Round what the products read: tokens of part `part`. */
static void round_part(void *argument, uint32_t part, uint32_t n_parts)
{
    const multiply_job *job = argument;
    const size_t n_in = job->products[0].linear->weight.n_in;
    const uint32_t end = (uint32_t)((uint64_t)job->n_tokens * (part + 1) / n_parts);
    for (size_t t = (uint64_t)job->n_tokens * part / n_parts; t < end; t++) {
        job->c->table->round((char *)job->c->rounded + t * cl_rounded_bytes(n_in),
                             job->products[0].x + t * n_in, n_in, job->n_tokens);
    }
}

static void round_inputs(multiply_job *job)
{
    for (uint32_t i = 0; i < job->n; i++) {
        const block_weight *w = &job->products[i].linear->weight;
        if (rounded_product(job->c, w) != NULL) {
            job->c->workers->work = (uint64_t)w->n_in * job->n_tokens * MULTIPLICATIONS_OF_ROUNDING;
            block_workers_run(job->c->workers, round_part, job);
            return;
        }
    }
}

static void run(multiply_job *job)
{
    round_inputs(job);
    uint64_t work = 0;
    for (uint32_t i = 0; i < job->n; i++) {
        const block_weight *w = &job->products[i].linear->weight;
        work += (uint64_t)w->n_in * w->n_out;
    }
    job->c->workers->work = work * job->n_tokens;
    block_workers_run(job->c->workers, multiply_part, job);
}

void block_multiply(const block_context *c, const block_product *products, uint32_t n,
                    uint32_t n_tokens)
{
    for (uint32_t first = 0, end; first < n; first = end) {
        for (end = first + 1;
             end < n && (c->rounded == NULL || products[end].x == products[first].x);) {
            end++;
        }
        multiply_job job = {
            .c = c, .products = products + first, .n = end - first, .n_tokens = n_tokens};
        run(&job);
    }
}

void block_multiply_activated(const block_context *c, const block_product *products, uint32_t n,
                              block_activation activation, uint32_t n_tokens)
{
    multiply_job job = {.c = c,
                        .products = products,
                        .n = n,
                        .n_tokens = n_tokens,
                        .activation = c->activations[activation]};
    run(&job);
}
