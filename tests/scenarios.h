/*
 * scenarios.h: the small frame of the scenario tests. A scenario is a function that calls CHECK;
 * its name is a sentence. scenarios.c lists and runs them, scenarios_<what>.c hold them.
 *
 * CHECK notes a failure with its place and goes on, so that one run shows all of them. Nothing here
 * stops the program except running out of memory. CELLAR_CPU=scalar in the environment makes all
 * memories use the scalar kernels.
 */
#ifndef SCENARIOS_H
#define SCENARIOS_H

#include "model/attention_model.h"
#include "model/drive.h"

typedef struct scenario {
    const char *name;
    void (*run)(void);
} scenario;

/* Each table ends with a NULL name. */
extern const scenario scenarios_basic[];    /* scenarios_basic.c: S01, S02, S08, S10, S12, S19 */
extern const scenario scenarios_equality[]; /* scenarios_equality.c: equal to the last bit */
extern const scenario
    scenarios_defects[]; /* scenarios_defects.c: faults of the original, by number */

void scenario_check(bool is_true, const char *text, const char *file, int line);

#define CHECK(condition) scenario_check((condition), #condition, __FILE__, __LINE__)

/* A memory of n_cells with the layers in d, made with the allowed instruction sets. */
void scenario_open(drive *d, uint32_t n_cells, uint32_t n_ubatch);

/* One layer with rotation, two query heads on each of two K/V heads of 8, stored as `type`. */
void scenario_open_rotating(drive *d, cellar_type type, uint32_t n_cells, uint32_t n_ubatch);

/*
 * One layer in which a query sees which tokens there are: keys are zero, so attention is a plain
 * mean, and the value of token t is one-hot at t % SCENARIO_IDS.
 */
#define SCENARIO_IDS 128
void scenario_open_counting(drive *d, uint32_t n_cells, uint32_t n_ubatch);

/* Append n tokens by one-hot values; the tokens the last one saw are seen[SCENARIO_IDS]. */
cellar_status scenario_append(drive *d, cellar_seq seq, cellar_token first, uint32_t n, bool *seen);

uint32_t scenario_used(const drive *d);
uint64_t scenario_rows_written(const drive *d);
uint32_t scenario_count(const bool *seen);

/* Run `act` on d; is everything as before? */
bool scenario_leaves_unchanged(drive *d, void (*act)(drive *d, void *argument), void *argument);

/* The unrotated key of a token moved to `pos` by the model, first K/V head. */
void scenario_expected_key(const drive *d, cellar_token token, cellar_pos stored, cellar_pos pos,
                           double *k);

bool scenario_same_bits(const float *a, const float *b, size_t n);

/* True if no number is NaN or infinite. */
bool scenario_all_finite(const float *a, size_t n);

#endif /* SCENARIOS_H */
