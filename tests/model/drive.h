/*
 * drive.h: what every test of the memory does with the real library: make rows out of token ids,
 * run a batch through a step, and take a picture of everything that can be seen.
 *
 * The rows of a token (keys, values, query) are random numbers that depend on the seed, the layer
 * and the token id alone. So two memories that hold the same tokens at the same positions must
 * answer alike, however they got there, and a test can ask for equality to the last bit.
 *
 * A recurrent layer's states are computed as an engine would: from the source that the library
 * names, token by token (recurrence.h), into the targets.
 *
 * A snapshot holds every run, every cell, every checkpoint and the counts. Two snapshots are equal
 * when no caller could tell the two moments apart, except by bytes held in reserve (sizes) and by
 * what counts work done and not what is remembered (rows_written, cells_reclaimed). Running out of memory ends the test program,
 * the library's own allocator excepted.
 */
#ifndef MODEL_DRIVE_H
#define MODEL_DRIVE_H

#include <cellar.h>

#include "random.h"
#include "recurrence.h"

#define DRIVE_LAYERS 4

typedef enum drive_row { DRIVE_Q = 0, DRIVE_K = 1, DRIVE_V = 2 } drive_row;

typedef struct drive {
    cellar_memory *memory;
    cellar_layer layers[DRIVE_LAYERS];
    uint32_t n_layers, n_ubatch;
    uint64_t seed;
    size_t out_size; /* floats that attention gives for one token, all layers together */
} drive;

/* zero-filled block; ends the program when there is none */
void *drive_grab(size_t n, size_t size);

/* Numbers in [-1, 1) that depend on the key alone. */
void drive_fill(float *to, size_t n, uint64_t key);

/* The rows of one token for one layer, as drive_step hands them over. */
void drive_token_row(const drive *d, uint32_t layer, drive_row what, cellar_token token, float *to);

/* A layer of the given shape without rotation, stored as f32. */
cellar_layer drive_layer(uint32_t n_heads, uint32_t n_kv_heads, uint32_t k_size, uint32_t v_size);

/* Make a memory from the layers in *d (n_layers of them) and the other fields of config. */
cellar_status drive_open(drive *d, const cellar_config *config, cellar_error *error);
void drive_close(drive *d);

/* One layer's part of a state, tensor behind tensor: [recurrence_size]. False: no such state. */
bool drive_read_state(const drive *d, uint32_t state, uint32_t layer, float *to);
bool drive_write_state(const drive *d, uint32_t state, uint32_t layer, const float *from);

/*
 * One whole step: begin, store and attend every micro-batch and layer, commit. out
 * [n_tokens][out_size] or NULL. Tokens must be given. A step that fails on the way is aborted and
 * its status returned.
 */
cellar_status drive_step(drive *d, const cellar_batch *batch, float *out, cellar_error *error);

/* n tokens first, first + 1, ... at the end of one sequence. */
cellar_status drive_append(drive *d, cellar_seq seq, cellar_token first, uint32_t n, float *out);

/* The same, one token a step. */
cellar_status drive_append_singly(drive *d, cellar_seq seq, cellar_token first, uint32_t n,
                                  float *out);

/* What one more token would see: a step that is aborted. out [out_size]. */
cellar_status drive_probe(drive *d, cellar_seq seq, cellar_token token, float *out);

/* ---- snapshots ------------------------------------------------------------------------------- */

#define DRIVE_GROUPS 8

typedef struct drive_checkpoint {
    cellar_seq seq;
    cellar_checkpoint_info info;
} drive_checkpoint;

typedef struct drive_snapshot {
    cellar_run *runs; /* sorted by sequence, then as visited: by group, then by position */
    cellar_cell *cells;
    drive_checkpoint *checkpoints; /* of every sequence that holds something */
    uint32_t n_runs, n_cells, n_checkpoints, n_groups;
    uint32_t run_capacity, cell_capacity, checkpoint_capacity;
    cellar_group_info groups[DRIVE_GROUPS];
    cellar_statistics stats;
    const cellar_seq *names; /* set by the caller: ask these for checkpoints; NULL: who holds any */
    uint32_t n_names;
} drive_snapshot;

/* Fill a snapshot (zeroed, or used before). False: a call failed; says so on stderr. */
bool drive_snapshot_take(drive_snapshot *snapshot, const cellar_memory *memory);
void drive_snapshot_free(drive_snapshot *snapshot);

/* Same runs, cells, checkpoints and counts? If not, `why` [200] names the first difference. */
bool drive_snapshot_equal(const drive_snapshot *a, const drive_snapshot *b, char *why);

/*
 * Is b what is left of a when some checkpoints are gone, and with them the only holders of at most
 * n_cells cells of `group`?
 */
bool drive_snapshot_within(const drive_snapshot *a, const drive_snapshot *b, uint32_t group,
                           uint32_t n_cells, char *why);

#endif /* MODEL_DRIVE_H */
