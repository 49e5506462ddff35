/*
 * memory_model.h: what cellar.h promises about cells, sequences and positions, done stupidly.
 *
 * A pool is an array of cells; a sequence is an array of (position, cell), sorted by position;
 * every operation is a loop over everything. There are no runs, no counters that are kept up to
 * date, no free map. It is written from the header alone and shares no code with the library, so
 * that a mistake has to be made twice to go unnoticed.
 *
 * Every operation returns the status that the library must return and changes nothing unless that
 * is CELLAR_OK. `at` is what error->at must be, or -2 where the header does not say. Which cell the
 * library puts a token in is not predicted: `real` is learned when the token is committed.
 * Running out of memory ends the test program.
 */
#ifndef MODEL_MEMORY_MODEL_H
#define MODEL_MEMORY_MODEL_H

#include <cellar.h>

#define MODEL_AT_UNSAID (-2)
#define MODEL_REAL_UNKNOWN UINT32_MAX

typedef struct model_entry {
    cellar_pos pos;
    uint32_t cell; /* index in memory_model.cells */
} model_entry;

typedef struct model_cell {
    cellar_token token;
    cellar_pos stored_pos; /* position at which its keys were rotated */
    uint32_t refs;         /* entries of all sequences that name it; 0: free */
    uint32_t real;         /* the library's number of this cell, or MODEL_REAL_UNKNOWN */
    uint64_t id;           /* never used twice: names the rows that were stored */
} model_cell;

typedef struct model_sequence {
    cellar_seq name;
    model_entry *entries; /* sorted by position */
    uint32_t n, capacity;
} model_sequence;

typedef struct memory_model {
    uint32_t n_cells;
    model_cell *cells; /* [n_cells] */
    uint32_t n_sequences;
    model_sequence *sequences; /* every name ever used; empty ones stay */
    uint64_t next_id;
} memory_model;

void memory_model_open(memory_model *model, uint32_t n_cells);
void memory_model_close(memory_model *model);

/* The sequence of that name, made empty when it is new. Valid until another name is looked up. */
model_sequence *memory_model_sequence(memory_model *model, cellar_seq name);

uint32_t memory_model_count_used(const memory_model *model);
uint32_t memory_model_count_shared(const memory_model *model);
cellar_pos memory_model_pos_min(memory_model *model, cellar_seq seq);
cellar_pos memory_model_pos_max(memory_model *model, cellar_seq seq);

/* The entry of a position, or NULL. */
const model_entry *memory_model_find(memory_model *model, cellar_seq seq, cellar_pos pos);

/*
 * Would the batch be accepted? On CELLAR_OK positions[n_tokens] are where the tokens stand. The
 * batch's arrays may be NULL as the header allows.
 */
cellar_status memory_model_plan(memory_model *model, const cellar_batch *batch,
                                cellar_pos *positions, int64_t *at);

/* Add a batch that memory_model_plan accepted; cells[n_tokens] become the cells that were taken. */
void memory_model_append(memory_model *model, const cellar_batch *batch,
                         const cellar_pos *positions, uint32_t *cells);

/* The sequences of token i of a batch; *n of them. */
const cellar_seq *memory_model_batch_seqs(const cellar_batch *batch, uint32_t i, uint32_t *n);

cellar_status memory_model_remove(memory_model *model, cellar_seq seq, cellar_pos p0,
                                  cellar_pos p1);
cellar_status memory_model_copy(memory_model *model, cellar_seq from, cellar_seq to, cellar_pos p0,
                                cellar_pos p1);
cellar_status memory_model_keep(memory_model *model, cellar_seq seq);
cellar_status memory_model_shift(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                                 cellar_pos delta, int64_t *at);
cellar_status memory_model_shift_context(memory_model *model, cellar_seq seq, cellar_pos keep,
                                         cellar_pos discard, cellar_pos *n_discarded);
void memory_model_clear(memory_model *model);

#endif /* MODEL_MEMORY_MODEL_H */
