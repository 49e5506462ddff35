/*
 * row_model.c: row types as sets of levels. See row_model.h.
 *
 * A block of a quantised type has levels scale * step[i] + offset, and each number becomes the
 * nearest. The steps are whole numbers from a low to a high one, or the sixteen of IQ4_NL. What is
 * left is how scale and offset are chosen, which `find_grids` does for the numbers as they are and
 * for every choice that slack and f32 arithmetic leave open; the doubt of a number covers what each
 * of those grids makes of the two ends of its slack.
 */
#include "row_model.h"

#include <math.h>

#define UNIT 0x1p-24
#define LARGEST_HALF 65504.0

enum { BLOCK = 32, MOST_GRIDS = 256, MOST_FLIPS = 4 };

const cellar_type row_model_types[ROW_MODEL_TYPES] = {CELLAR_F32,  CELLAR_F16,  CELLAR_BF16,
                                                      CELLAR_Q8_0, CELLAR_Q5_1, CELLAR_Q5_0,
                                                      CELLAR_Q4_1, CELLAR_Q4_0, CELLAR_IQ4_NL};

const char *row_model_name(cellar_type type)
{
    switch (type) {
    case CELLAR_F32:
        return "f32";
    case CELLAR_F16:
        return "f16";
    case CELLAR_BF16:
        return "bf16";
    case CELLAR_Q8_0:
        return "q8_0";
    case CELLAR_Q5_1:
        return "q5_1";
    case CELLAR_Q5_0:
        return "q5_0";
    case CELLAR_Q4_1:
        return "q4_1";
    case CELLAR_Q4_0:
        return "q4_0";
    case CELLAR_IQ4_NL:
        return "iq4_nl";
    }
    return "unknown";
}

uint32_t row_model_block(cellar_type type)
{
    return type == CELLAR_F32 || type == CELLAR_F16 || type == CELLAR_BF16 ? 1 : BLOCK;
}

/* ---- binary formats -------------------------------------------------------------------------- */

/* The nearest number with `bits` leading bits and no bit below 2^lowest. */
static double nearest_binary(double x, int bits, int lowest)
{
    if (x == 0 || !isfinite(x)) return x;
    int exponent;
    frexp(x, &exponent); /* |x| = m 2^exponent, 1/2 <= m < 1: the leading bit is exponent - 1 */
    int last_bit = exponent - bits < lowest ? lowest : exponent - bits;
    return ldexp(rint(ldexp(x, -last_bit)), last_bit);
}

double row_model_f16(double x)
{
    double rounded = nearest_binary(x, 11, -24);
    return fabs(rounded) >= 65536 ? copysign(INFINITY, x) : rounded;
}

double row_model_bf16(double x)
{
    double rounded = nearest_binary(x, 8, -133);
    return fabs(rounded) >= 0x1p128 ? copysign(INFINITY, x) : rounded;
}

static void store_binary(double (*round_one)(double), double *x, const double *slack, double *doubt,
                         uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double s = slack ? slack[i] : 0, stored = round_one(x[i]);
        doubt[i] = fmax(round_one(x[i] + s) - stored, stored - round_one(x[i] - s));
        x[i] = stored;
    }
}

/* ---- levels of a block ----------------------------------------------------------------------- */

typedef struct grid {
    double scale, offset;
    int low, high; /* steps low..high; both 0: those of IQ4_NL */
} grid;

/* The grids that a block may have got; the first is the one for the numbers as they are. */
typedef struct grids {
    grid grid[MOST_GRIDS];
    uint32_t n;
    bool is_hopeless; /* too many: nothing is known but the range */
} grids;

static const double nonlinear_steps[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};

static double nearest_nonlinear(double x)
{
    int low = 0, high = 15; /* halving; of two steps at the same distance the lower is nearest */
    while (low < high) {
        int middle = (low + high) / 2;
        if (2 * x > nonlinear_steps[middle] + nonlinear_steps[middle + 1])
            low = middle + 1;
        else
            high = middle;
    }
    return nonlinear_steps[low];
}

/* What x is read back as. An f32 sum of scale * step and offset is rounded once. */
static double level_of(const grid *g, double x)
{
    if (g->scale == 0) return g->offset;
    double step = (x - g->offset) / g->scale;
    if (g->low == g->high)
        step = nearest_nonlinear(step);
    else
        step = fmin(fmax(rint(step), g->low), g->high);
    return (float)(g->scale * step + g->offset);
}

static void add_grid(grids *all, grid g)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->grid[i].scale == g.scale && all->grid[i].offset == g.offset) return;
    if (all->n == MOST_GRIDS)
        all->is_hopeless = true;
    else
        all->grid[all->n++] = g;
}

/* The half that follows a positive one or 0. */
static double next_half(double half)
{
    int exponent;
    if (half == 0) return 0x1p-24;
    frexp(half, &exponent);
    return half + ldexp(1, exponent - 11 < -24 ? -24 : exponent - 11);
}

/*
 * The nearest half to range / levels, or the next one where that ends more than half a step before
 * the range does; halves end at LARGEST_HALF.
 */
static double scale_for(double range, double levels)
{
    double covered = fmin(range, levels * LARGEST_HALF), half = row_model_f16(covered / levels);
    return covered > (levels + 0.5) * half ? next_half(half) : half;
}

/* The half before a positive one, or below 0. */
static double previous_half(double half)
{
    if (half <= 0) return -next_half(-half);
    int exponent;
    bool is_power = frexp(half, &exponent) == 0.5;
    int last_bit = exponent - (is_power ? 12 : 11);
    return half - ldexp(1, last_bit < -24 ? -24 : last_bit);
}

/* The largest half that is not above x. */
static double half_below(double x)
{
    double inside = fmin(fmax(x, -LARGEST_HALF), LARGEST_HALF), half = row_model_f16(inside);
    return half <= inside ? half : previous_half(half);
}

/* ---- choosing scales ------------------------------------------------------------------------- */

/* A block with the error that each number may have when the library looks at it. */
typedef struct block {
    const double *x;
    double slack[BLOCK];
} block;

static double largest_of(const double *x)
{
    double largest = 0;
    for (int i = 0; i < BLOCK; i++)
        largest = fmax(largest, fabs(x[i]));
    return largest;
}

/* The first number of the largest magnitude. */
static int first_largest(const double *x)
{
    double largest = largest_of(x);
    int i = 0;
    while (fabs(x[i]) != largest)
        i++;
    return i;
}

/* May number i be the first of the largest magnitude for the library? */
static bool may_be_largest(const block *b, int i)
{
    for (int j = 0; j < BLOCK; j++)
        if (fabs(b->x[i]) + b->slack[i] < fabs(b->x[j]) - b->slack[j]) return false;
    return b->slack[i] > 0 || i == first_largest(b->x);
}

/* Three scales: for a range, and for a little less and more. */
static void add_scales(grids *all, double range, double slack, double levels, grid g, double sign)
{
    double error = slack + 2 * UNIT * range;
    const double ranges[] = {range, fmax(range - error, 0), range + error};
    for (int i = 0; i < 3; i++) {
        g.scale = sign * scale_for(ranges[i], levels);
        add_grid(all, g);
    }
}

/* Q8_0: as many steps up as down. */
static void find_even_grids(grids *all, const block *b)
{
    int largest = first_largest(b->x);
    double slack = 0;
    for (int i = 0; i < BLOCK; i++)
        if (may_be_largest(b, i)) slack = fmax(slack, b->slack[i]);
    add_scales(all, fabs(b->x[largest]), slack, 127, (grid){.low = -127, .high = 127}, 1);
}

/* Q4_0, Q5_0: the number of the largest magnitude is the lowest step, whatever its sign. */
static void find_signed_grids(grids *all, const block *b, int zero)
{
    grid g = {.low = -zero, .high = zero - 1};
    int nominal = first_largest(b->x);
    for (int n = -1; n < BLOCK; n++) {
        int i = n < 0 ? nominal : n;
        if (!may_be_largest(b, i)) continue;
        add_scales(all, fabs(b->x[i]), b->slack[i], zero, g, b->x[i] > 0 ? -1 : 1);
    }
}

/* Q4_1, Q5_1: the offset is at or below the smallest number. */
static void find_offset_grids(grids *all, const block *b, int high)
{
    double smallest = b->x[0], largest = b->x[0], slack = 0;
    for (int i = 0; i < BLOCK; i++) {
        smallest = fmin(smallest, b->x[i]);
        largest = fmax(largest, b->x[i]);
        slack = fmax(slack, b->slack[i]);
    }
    const double lowest[] = {smallest, smallest - slack, smallest + slack};
    for (int i = 0; i < 3; i++) {
        grid g = {.offset = half_below(lowest[i] + 0.0), .high = high};
        add_scales(all, fmax(largest - g.offset, 0), slack, high, g, 1);
    }
}

/* ---- IQ4_NL ---------------------------------------------------------------------------------- */

static const double trials[] = {-127, -141, -116, -107, 113, 124, 104, 96};
enum { TRIALS = sizeof trials / sizeof *trials };

/* One way in which a trial may have given each number a step, and the scale that is best for it. */
typedef struct fit {
    double gain, scale;
    double error; /* relative, of the scale; of the gain it is twice that */
} fit;

typedef struct fits {
    fit fit[TRIALS << MOST_FLIPS];
    uint32_t n;
    double least; /* a gain that some trial surely has, whatever its open choices are */
    bool is_hopeless;
} fits;

static fit measure_fit(const double *share, const double *slack, const double *steps)
{
    double product = 0, square = 0, error = 0;
    for (int i = 0; i < BLOCK; i++) {
        product += share[i] * steps[i];
        square += steps[i] * steps[i];
        error += (slack[i] + 12 * UNIT * fabs(share[i])) * fabs(steps[i]);
    }
    return (fit){product * product / square, product / square, error / fabs(product) + 4 * UNIT};
}

/* Is a scale, with a relative error, a normal half: 1 certainly, 0 perhaps, -1 certainly not? */
static int judge_scale(double scale, double error)
{
    double size = fabs(scale);
    if (size * (1 - error) >= 0x1p-14 && size * (1 + error) <= LARGEST_HALF) return 1;
    return size * (1 + error) < 0x1p-14 || size * (1 - error) > LARGEST_HALF ? -1 : 0;
}

/*
 * A trial, with every choice that the slack leaves open; the first is as the numbers are. The
 * library makes one of the choices, so only the least of their gains is sure.
 */
static void add_trial(fits *all, const double *share, const double *slack, double trial,
                      double first)
{
    double steps[BLOCK], other[MOST_FLIPS], least = INFINITY;
    int open[MOST_FLIPS], n_open = 0;
    for (int i = 0; i < BLOCK; i++) {
        double at = share[i] * trial, error = (slack[i] + 2 * UNIT * fabs(share[i])) * fabs(trial);
        double below = nearest_nonlinear(at - error), above = nearest_nonlinear(at + error);
        steps[i] = nearest_nonlinear(at);
        if (below == above) continue;
        if (n_open == MOST_FLIPS) {
            all->is_hopeless = true;
            return;
        }
        other[n_open] = below == steps[i] ? above : below;
        open[n_open++] = i;
    }
    for (unsigned choice = 0; choice < 1u << n_open; choice++) {
        double chosen[BLOCK];
        for (int i = 0; i < BLOCK; i++)
            chosen[i] = steps[i];
        for (int i = 0; i < n_open; i++)
            if (choice >> i & 1) chosen[open[i]] = other[i];
        fit f = measure_fit(share, slack, chosen);
        all->fit[all->n++] = f;
        bool is_normal = judge_scale(f.scale * first, f.error) > 0;
        least = fmin(least, is_normal ? f.gain * (1 - 2 * f.error) : 0);
    }
    all->least = fmax(all->least, least);
}

/* The grids of all fits that may have been the best, `nominal` first. */
static void add_fits(grids *all, const fits *found, double nominal, double first, double slack)
{
    add_grid(all, (grid){.scale = row_model_f16(nominal)});
    for (uint32_t i = 0; i < found->n; i++) {
        const fit *f = &found->fit[i];
        double error = f->error + slack + 2 * UNIT, scale = f->scale * first;
        if (f->gain * (1 + 2 * f->error) < found->least || judge_scale(scale, error) < 0) continue;
        all->is_hopeless |= judge_scale(scale, error) == 0;
        add_grid(all, (grid){.scale = row_model_f16(scale)});
        add_grid(all, (grid){.scale = row_model_f16(scale * (1 - error))});
        add_grid(all, (grid){.scale = row_model_f16(scale * (1 + error))});
    }
}

/*
 * The grids when number `first` is the first of the largest magnitude. Of the trials whose scale is
 * a normal half the one with the largest gain counts; without any, the scale covers the range.
 */
static void add_nonlinear_grids(grids *all, const block *b, int first)
{
    double share[BLOCK], slack[BLOCK], own = fabs(b->x[first]);
    double best = -1, nominal = 0;
    fits found = {.n = 0};
    for (int i = 0; i < BLOCK; i++) {
        share[i] = b->x[i] / b->x[first];
        slack[i] = (b->slack[i] + fabs(share[i]) * b->slack[first]) / own;
    }
    for (int t = 0; t < TRIALS; t++) {
        uint32_t at = found.n;
        add_trial(&found, share, slack, trials[t], b->x[first]);
        if (found.n == at) continue;
        double scale = found.fit[at].scale * b->x[first];
        if (found.fit[at].gain <= best || judge_scale(scale, 0) < 0) continue;
        best = found.fit[at].gain;
        nominal = scale;
    }
    all->is_hopeless |= found.is_hopeless;
    if (best >= 0)
        add_fits(all, &found, nominal, b->x[first], b->slack[first] / own);
    else
        add_scales(all, own, b->slack[first], 127, (grid){0}, b->x[first] > 0 ? -1 : 1);
}

static void find_nonlinear_grids(grids *all, const block *b)
{
    add_nonlinear_grids(all, b, first_largest(b->x));
    for (int i = 0; i < BLOCK; i++)
        if (i != first_largest(b->x) && may_be_largest(b, i)) add_nonlinear_grids(all, b, i);
}

/* ---- a block --------------------------------------------------------------------------------- */

static void find_grids(cellar_type type, grids *all, const block *b)
{
    if (largest_of(b->x) == 0)
        add_grid(all, (grid){0});
    else if (type == CELLAR_Q8_0)
        find_even_grids(all, b);
    else if (type == CELLAR_Q5_0 || type == CELLAR_Q4_0)
        find_signed_grids(all, b, type == CELLAR_Q5_0 ? 16 : 8);
    else if (type == CELLAR_Q5_1 || type == CELLAR_Q4_1)
        find_offset_grids(all, b, type == CELLAR_Q5_1 ? 31 : 15);
    else
        find_nonlinear_grids(all, b);
}

static void store_block(cellar_type type, double *x, const double *slack, double *doubt)
{
    block b = {.x = x};
    grids all = {.n = 0};
    double stored[BLOCK], largest = largest_of(x);
    for (int i = 0; i < BLOCK; i++)
        b.slack[i] = slack ? slack[i] : 0;
    find_grids(type, &all, &b);
    for (int i = 0; i < BLOCK; i++) {
        stored[i] = level_of(&all.grid[0], x[i]);
        doubt[i] = all.is_hopeless ? 2 * largest : 0;
        for (uint32_t g = 0; g < all.n; g++) {
            /* Difference and quotient are rounded once each. */
            double error = b.slack[i] + 2 * UNIT * (fabs(x[i]) + fabs(all.grid[g].offset));
            doubt[i] = fmax(doubt[i], fabs(level_of(&all.grid[g], x[i] - error) - stored[i]));
            doubt[i] = fmax(doubt[i], fabs(level_of(&all.grid[g], x[i] + error) - stored[i]));
        }
    }
    for (int i = 0; i < BLOCK; i++)
        x[i] = stored[i];
}

void row_model_store(cellar_type type, double *x, const double *slack, double *doubt, uint32_t n)
{
    if (type == CELLAR_F16) {
        store_binary(row_model_f16, x, slack, doubt, n);
    } else if (type == CELLAR_BF16) {
        store_binary(row_model_bf16, x, slack, doubt, n);
    } else if (type == CELLAR_F32) {
        for (uint32_t i = 0; i < n; i++)
            doubt[i] = slack ? slack[i] : 0;
    } else {
        for (uint32_t at = 0; at < n; at += BLOCK)
            store_block(type, x + at, slack ? slack + at : NULL, doubt + at);
    }
}
