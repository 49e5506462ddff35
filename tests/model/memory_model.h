/*
 * memory_model.h: what cellar.h promises about groups, pools, sequences and positions, done stupidly.
 *
 * A sequence is one array of entries sorted by position: what it was told to remember, whatever
 * became of it. Each entry says for every group whether the group still has it (`held`): full
 * attention has all, a window may have given up what nobody can see, the recurrent group has the
 * states behind the last few tokens. Every operation is a loop over everything. There are no runs,
 * no counters that are kept up to date, no free map. It is written from the header alone and shares
 * no code with the library, so that a mistake has to be made twice to go unnoticed.
 *
 * An operation is judged (which statuses may the library return? a verdict) and then, if the
 * library did it, done. Where the header leaves a choice a verdict allows more than one status, and
 * what was chosen is learned from the library and checked against what it was free to choose:
 * which cell a token got, which cells a window gave up, which checkpoints were thinned out.
 * Running out of memory ends the test program.
 */
#ifndef MODEL_MEMORY_MODEL_H
#define MODEL_MEMORY_MODEL_H

#include <cellar.h>

#include "recurrence.h"
#include "visibility.h"

#define MODEL_AT_UNSAID ((int64_t)-2)
#define MODEL_REAL_UNKNOWN UINT32_MAX
#define MODEL_NO_SLOT UINT32_MAX
#define MODEL_GROUPS 4
#define MODEL_POOLS 4
#define MODEL_LAYERS 4
#define MODEL_STATE_FLOATS 16 /* of all recurrent layers together */
#define MODEL_NONE UINT32_MAX

/* What one token is, for whoever holds it. */
typedef struct model_cell {
    cellar_token token;
    cellar_pos stored_pos;           /* position at which its keys were rotated */
    cellar_point point;              /* beside that position */
    uint32_t names;                  /* entries that name it; 0: this struct may be used again */
    uint64_t id;                     /* never used twice: names the rows that were stored */
    float state[MODEL_STATE_FLOATS]; /* of the recurrent layers, after it */
} model_cell;

/* Where one group keeps a token: a cell (or a state) of the library. */
typedef struct model_slot {
    uint32_t cell; /* of memory_model.cells */
    uint32_t pool;
    uint32_t refs;  /* entries that hold it; 0: the library's cell may be another's by now */
    uint32_t names; /* entries that name it, held or given up */
    uint32_t real;  /* the library's number, or MODEL_REAL_UNKNOWN */
} model_slot;

typedef struct model_entry {
    cellar_pos pos;
    uint32_t cell;               /* of memory_model.cells */
    uint32_t slot[MODEL_GROUPS]; /* of groups[g].slots */
    uint32_t held;               /* bit g: group g has it */
} model_entry;

typedef struct model_checkpoint {
    cellar_pos position;
    bool must; /* it has to be there; else it may have been dropped */
} model_checkpoint;

typedef struct model_sequence {
    cellar_seq name;
    model_entry *entries; /* sorted by position; in order of reading at one position */
    uint32_t n, capacity;
    model_checkpoint *checkpoints; /* sorted */
    uint32_t n_checkpoints, checkpoint_capacity;
} model_sequence;

typedef struct model_group {
    cellar_layer_kind kind;
    cellar_window window;
    int32_t real;                   /* the library's number of this group */
    uint32_t capacity[MODEL_POOLS]; /* cells of each pool; all states in the first */
    uint32_t most[MODEL_POOLS];     /* the same with what checkpoint_bytes may add at most */
    uint32_t n_kept;                /* states a sequence keeps: 1 + those of rollback_bytes */
    model_slot *slots;
    uint32_t n_slots;
} model_group;

typedef struct memory_model {
    uint32_t n_cells, n_pools, n_groups, n_layers;
    uint32_t (*pool_of)(void *context, cellar_seq seq);
    bool has_points; /* M-RoPE layers */
    uint32_t checkpoint_interval;
    cellar_layer layers[MODEL_LAYERS];
    uint32_t group_of[MODEL_LAYERS];
    uint32_t state_at[MODEL_LAYERS]; /* a recurrent layer's floats in model_cell.state */
    model_group groups[MODEL_GROUPS];
    model_cell *cells;
    uint32_t n_known; /* of cells */
    uint32_t n_sequences;
    model_sequence *sequences; /* every name ever used; empty ones stay */
    uint64_t next_id;
} memory_model;

/* What the library may answer, and where error->at must point. */
typedef struct model_verdict {
    uint32_t allowed; /* MODEL_MAY(status) each */
    int64_t at;       /* for failures; MODEL_AT_UNSAID where the header does not say */
} model_verdict;

#define MODEL_MAY(status) (1u << -(status))

/* One group of full attention in one pool. */
void memory_model_open(memory_model *model, uint32_t n_cells);

/* The groups and pools that the header says a configuration makes. */
void memory_model_open_config(memory_model *model, const cellar_config *config);
void memory_model_close(memory_model *model);

/* The sequence of that name, made empty when it is new. Valid until another name is looked up. */
model_sequence *memory_model_sequence(memory_model *model, cellar_seq name);

uint32_t memory_model_pool(const memory_model *model, cellar_seq seq);

/* Cells of a group (in one pool) that sequences hold; held by more than one entry. */
uint32_t memory_model_count_used(const memory_model *model, uint32_t group, uint32_t pool);
uint32_t memory_model_count_shared(const memory_model *model, uint32_t group);

/* Of what any group holds; -1: nothing. */
cellar_pos memory_model_pos_min(memory_model *model, cellar_seq seq);
cellar_pos memory_model_pos_max(memory_model *model, cellar_seq seq);

/* The first entry of a position, or NULL. */
const model_entry *memory_model_find(memory_model *model, cellar_seq seq, cellar_pos pos);

/* The group of that kind, or MODEL_NONE. */
uint32_t memory_model_recurrent_group(const memory_model *model);
bool memory_model_has_windows(const memory_model *model);

/* After entries were changed by hand: count again who holds what. */
void memory_model_recount(memory_model *model);

/* Where the next token goes: behind the last, image coordinates included; 0 when empty; at most
 * INT32_MAX, where no token can stand. */
int64_t memory_model_next(const memory_model *model, const model_sequence *sequence);

/* The point of a cell that now stands at pos: it moves with its token, out of the range of positions if need
 * be; at most INT32_MAX. */
cellar_point memory_model_point(const model_cell *cell, cellar_pos pos);

/* ---- batches (memory_model_batch.c) ---------------------------------------------------------- */

/* The sequences of token i of a batch; *n of them. */
const cellar_seq *memory_model_batch_seqs(const cellar_batch *batch, uint32_t i, uint32_t *n);

/* May the batch be read? When it may, positions[n_tokens] are where its tokens stand. */
model_verdict memory_model_judge_batch(memory_model *model, const cellar_batch *batch,
                                       cellar_pos *positions);

/* The same for memories of which the header leaves nothing open: the one status it has to be. */
cellar_status memory_model_plan(memory_model *model, const cellar_batch *batch,
                                cellar_pos *positions, int64_t *at);

/* Cells that the batch asks of each pool, in each group that keeps a cell for every token. */
void memory_model_count_wanted(const memory_model *model, const cellar_batch *batch,
                               uint32_t *wanted /* [MODEL_POOLS] */);

/* States that a batch asks for at most: the last ones of each sequence, and one to go on in. */
uint32_t memory_model_count_states(const memory_model *model, const cellar_batch *batch,
                                   uint32_t n_kept);

/* Read a batch that was accepted; cells[n_tokens] become its tokens' places in model->cells. */
void memory_model_append(memory_model *model, const cellar_batch *batch,
                         const cellar_pos *positions, uint32_t *cells);

/* states[n_tokens]: the recurrent layers' states after each token of an accepted batch. */
void memory_model_foresee_states(memory_model *model, const cellar_batch *batch,
                                 const cellar_pos *positions, float (*states)[MODEL_STATE_FLOATS]);

/* The state after the last entry below `end`, by reading all tokens again; zeros before the first. */
void memory_model_recompute_state(memory_model *model, const model_sequence *sequence, uint32_t end,
                                  float *state);

/* ---- windows (memory_model_window.c) --------------------------------------------------------- */

/* Does a query at q of this sequence see the entry in this group? */
bool memory_model_sees(const model_group *group, int64_t q, const model_entry *entry);

/* Does every group have what a token at q must see? */
bool memory_model_has_all(const memory_model *model, const model_sequence *sequence, int64_t q);

/*
 * Can the sequence be cut off and continued at n? Position n - 1 must be held by some group, or be the
 * last that all have given up.
 */
bool memory_model_continues(const memory_model *model, const model_sequence *sequence, int64_t n);

/* The largest position up to n at which it can go on, from a checkpoint if need be. */
cellar_pos memory_model_rewind_target(const memory_model *model, const model_sequence *sequence,
                                      int64_t n);

/* Cells of a pool that the next tokens of all its sequences see. */
uint32_t memory_model_count_needed(const memory_model *model, uint32_t group, uint32_t pool);

/* ---- operations (memory_model_edit.c) -------------------------------------------------------- */

model_verdict memory_model_judge_remove(memory_model *model, cellar_seq seq, cellar_pos p0,
                                        cellar_pos p1);
model_verdict memory_model_judge_copy(memory_model *model, cellar_seq from, cellar_seq to,
                                      cellar_pos p0, cellar_pos p1);
model_verdict memory_model_judge_shift(memory_model *model, cellar_seq seq, cellar_pos p0,
                                       cellar_pos p1, cellar_pos delta);
model_verdict memory_model_judge_divide(memory_model *model, cellar_seq seq, cellar_pos p0,
                                        cellar_pos p1, cellar_pos divisor);
/* *first, *dropped: the range that goes. */
model_verdict memory_model_judge_shift_context(memory_model *model, cellar_seq seq, cellar_pos keep,
                                               cellar_pos discard, cellar_pos *first,
                                               cellar_pos *dropped);

void memory_model_do_remove(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1);
void memory_model_do_copy(memory_model *model, cellar_seq from, cellar_seq to, cellar_pos p0,
                          cellar_pos p1);
void memory_model_do_shift(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                           cellar_pos delta);
void memory_model_do_divide(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                            cellar_pos divisor);
void memory_model_keep(memory_model *model, cellar_seq seq);
void memory_model_clear(memory_model *model);

/* Judged and, where nothing is left open, done: the one status it has to be. */
cellar_status memory_model_remove(memory_model *model, cellar_seq seq, cellar_pos p0,
                                  cellar_pos p1);
cellar_status memory_model_copy(memory_model *model, cellar_seq from, cellar_seq to, cellar_pos p0,
                                cellar_pos p1);
cellar_status memory_model_shift(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                                 cellar_pos delta, int64_t *at);

/* ---- checkpoints (memory_model_checkpoint.c) ------------------------------------------------- */

bool memory_model_has_checkpoint(const model_sequence *sequence, int64_t position);

/* Add a place, or say more firmly that it is there. */
void memory_model_add_checkpoint(model_sequence *sequence, cellar_pos position, bool must);

/* Forget the places in [from, to). */
void memory_model_drop_checkpoints(model_sequence *sequence, int64_t from, int64_t to);

/* From now on those in [from, to) may be gone. */
void memory_model_doubt_checkpoints(model_sequence *sequence, int64_t from, int64_t to);

/* Any of all sequences may have been dropped for want of room. */
void memory_model_doubt_all_checkpoints(memory_model *model);

/* May a checkpoint be made at the end, or is there no room? */
model_verdict memory_model_judge_checkpoint(memory_model *model, cellar_seq seq);

/* ---- shared by the files of the model -------------------------------------------------------- */

void *memory_model_grab(size_t n, size_t size);
void memory_model_push(model_sequence *sequence, const model_entry *entry);
void memory_model_sort(model_sequence *sequence);

/* A new slot of a group for a cell. */
uint32_t memory_model_new_slot(memory_model *model, uint32_t group, uint32_t cell, uint32_t pool);

/* [p0, p1) in plain form, p1 up to 2^31. False: not a range. */
bool memory_model_plain_range(cellar_pos p0, cellar_pos p1, int64_t *from, int64_t *to);

#endif /* MODEL_MEMORY_MODEL_H */
