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
#include "model/play.h"

typedef struct scenario {
    const char *name;
    void (*run)(void);
} scenario;

/* Each table ends with a NULL name. */
extern const scenario scenarios_basic[];       /* S01, S02, S08, S10, S12, S19 for one pool */
extern const scenario scenarios_equality[];    /* equal to the last bit */
extern const scenario scenarios_defects[];     /* faults of the original, by number */
extern const scenario scenarios_windows[];     /* S04, S06; sliding windows */
extern const scenario scenarios_recurrent[];   /* S16; recurrent and hybrid memories */
extern const scenario scenarios_checkpoints[]; /* S04, S17: going back to a checkpoint */
extern const scenario scenarios_kept[];        /* which checkpoints stay */
extern const scenario scenarios_pools[];       /* S07; several pools, splits of batches */
extern const scenario scenarios_positions[];   /* S12; division, M-RoPE, settling */
extern const scenario scenarios_types[];       /* S11; quantised rows */
extern const scenario scenarios_free[];        /* S19: what free cells hold is never seen */
extern const scenario scenarios_groups[];      /* S14; several groups in one memory */
extern const scenario scenarios_sessions[];    /* S19, S20; saved and loaded */
extern const scenario scenarios_story[];       /* stories at random, in every kind of memory */

/* S22 and S24 are a store's and a server's: unit_prefix_stores.c, unit_prefix_keys.c, unit_serve_reuse.c. */

void scenario_check(bool is_true, const char *text, const char *file, int line);

#define CHECK(condition) scenario_check((condition), #condition, __FILE__, __LINE__)

/* A configuration with the allowed instruction sets. */
cellar_config scenario_config(uint32_t n_cells, uint32_t n_ubatch);

/* A memory with the layers in d. A failure is noted; every call on d then fails. */
void scenario_make(drive *d, const cellar_config *config);

/* A memory of n_cells with the layers in d, made with the allowed instruction sets. */
void scenario_open(drive *d, uint32_t n_cells, uint32_t n_ubatch);

/* Two query heads on each of two K/V heads of `size`, rotated (NEOX) and stored as `type`. */
cellar_layer scenario_layer(cellar_type type, uint32_t size);

/* The same with a window, keys and values f32. */
cellar_layer scenario_window_layer(cellar_window_kind kind, uint32_t size);

/* Malloc and free, every block filled with this byte first: 0xff is NaN in every row type. */
cellar_allocator scenario_allocator(const unsigned char *byte);

/* One layer with rotation, two query heads on each of two K/V heads of 8, stored as `type`. */
void scenario_open_rotating(drive *d, cellar_type type, uint32_t n_cells, uint32_t n_ubatch);

/*
 * One layer in which a query sees which tokens there are: keys are zero, so attention is a plain
 * mean, and the value of token t is one-hot at t % SCENARIO_IDS.
 */
#define SCENARIO_IDS 128
void scenario_shape_counting(drive *d);
void scenario_open_counting(drive *d, uint32_t n_cells, uint32_t n_ubatch);

/* Append n tokens by one-hot values; the tokens the last one saw are seen[SCENARIO_IDS]. */
cellar_status scenario_append(drive *d, cellar_seq seq, cellar_token first, uint32_t n, bool *seen);

uint32_t scenario_used(const drive *d);
uint64_t scenario_rows_written(const drive *d);
uint32_t scenario_count(const bool *seen);

/*
 * Run `act` on d; is everything as before? Runs, cells, counts, what can be asked of sequences
 * 0..15 and their checkpoints.
 */
bool scenario_leaves_unchanged(drive *d, void (*act)(drive *d, void *argument), void *argument);

/* The unrotated key of a token moved to `pos` by the model, first K/V head. */
void scenario_expected_key(const drive *d, cellar_token token, cellar_pos stored, cellar_pos pos,
                           double *k);

/* A key that a query sees: of a token, stored for one position, standing at another. */
typedef struct scenario_key {
    cellar_token token;
    cellar_pos stored, pos;
} scenario_key;

/*
 * Attention of a token at `pos` over n keys by brute force, with the rows of layer `number` of d as
 * `layer` says: the worst difference to got[n_heads][v_size] in honest roundings; below 1 is right.
 */
double scenario_worst(const drive *d, uint32_t number, const cellar_layer *layer,
                      cellar_token token, cellar_pos pos, const scenario_key *keys, uint32_t n,
                      const float *got);

/* Everything a caller can ask, folded into one number; scenarios_picture.c. */
uint64_t scenario_picture(const cellar_memory *memory);

/*
 * What a memory of the same layers and configuration answers that reads `tokens` [n] in order and
 * nothing else: out [n][row]. One token a step when n_at_once is 1, and so on.
 */
float *scenario_plainly(const drive *d, const cellar_config *config, const cellar_token *tokens,
                        uint32_t n, uint32_t n_at_once);

/* The tokens first, first + 1, ..., written to tokens [n]; returns where to go on. */
cellar_token *scenario_tokens(cellar_token *tokens, cellar_token first, uint32_t n);

/* `got` [n][row] is what the last n of n_all tokens give when read plainly, to the last bit. */
bool scenario_answers_plainly(const drive *d, const cellar_config *config,
                              const cellar_token *tokens, uint32_t n_all, const float *got,
                              uint32_t n);

bool scenario_same_bits(const float *a, const float *b, size_t n);

/* True if no number is NaN or infinite. */
bool scenario_all_finite(const float *a, size_t n);

#endif /* SCENARIOS_H */
