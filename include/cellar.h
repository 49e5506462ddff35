/*
 * cellar.h: the memory of a language model, as a library.
 *
 * Cellar keeps what a transformer has read (the K and V rows of every layer) so that nothing is
 * read twice. An inference engine hands it the keys, values and queries of a micro-batch; Cellar
 * stores them, attends, and afterwards forks, rewinds, shifts and shares what was read by editing
 * a few numbers, not by moving rows.
 *
 * THE IDEAS, in ten lines
 *   memory     everything one loaded model remembers: the rows of all its layers, one pool of cells.
 *   cell       room for one token: its K and V rows in every layer. Written once, then only counted:
 *              it is never changed while any sequence holds it, so sharing needs no copy.
 *   sequence   one conversation, named by any number >= 0 that the caller likes. Inside it is a
 *              sorted list of runs: "these consecutive cells stand at these consecutive positions".
 *   shift      a run may stand elsewhere than where its keys were rotated. The difference is applied
 *              to the query instead: <R(p) q, R(s + d) k> = <R(p - d) q, R(s) k>. No row is touched,
 *              and another sequence that shares the cells notices nothing.
 *   step       a transaction: begin (all cells reserved, or none), store and attend micro-batch by
 *              micro-batch, commit or abort. Nothing else sees a change before the commit.
 *
 * A WHOLE PROGRAM (one layer; `tests/header.c` compiles and runs it)
 *
 *     cellar_layer layer = cellar_layer_init();
 *     layer.n_heads = 4; layer.n_kv_heads = 2; layer.k_size = layer.v_size = 64;
 *     layer.rope.kind = CELLAR_ROPE_NORMAL;
 *     cellar_config config = cellar_config_init();
 *     config.n_layers = 1; config.layers = &layer; config.n_cells = 4096;
 *     cellar_memory *memory;
 *     cellar_error error;
 *     if (cellar_create(&config, &memory, &error) != CELLAR_OK) return fail(error.message);
 *     cellar_batch batch = cellar_batch_init();
 *     batch.n_tokens = 3; batch.tokens = (cellar_token[]){11, 12, 13};
 *     if (cellar_begin(memory, &batch, &error) != CELLAR_OK) return fail(error.message);
 *     // compute q [3][4][64], k [3][2][64], v [3][2][64], not rotated; micro-batch 0, layer 0:
 *     if (cellar_store(memory, 0, 0, k, v, &error) != CELLAR_OK) return fail(error.message);
 *     if (cellar_attend(memory, 0, 0, q, out, &error) != CELLAR_OK) return fail(error.message);
 *     if (cellar_commit(memory, &error) != CELLAR_OK) return fail(error.message);
 *     // out [3][4][64] is there, sequence 0 holds three tokens; fork it into 7: no row moves
 *     if (cellar_copy(memory, 0, 7, 0, -1, &error) != CELLAR_OK) return fail(error.message);
 *     cellar_destroy(memory);
 *
 * RULES THAT HOLD EVERYWHERE
 *   Errors     A call that can fail returns a cellar_status and takes a cellar_error (or NULL) last.
 *              A failed call changed nothing, unless its comment says otherwise. No argument, however
 *              wrong, aborts the process (a pointer to memory that is not yours excepted).
 *   Ranges     [p0, p1) of positions. p0 < 0 means 0; p1 < 0 means "to the end"; p0 == p1 is empty and
 *              legal; p0 > p1 >= 0 is CELLAR_INVALID.
 *   Sequences  Any cellar_seq >= 0. A sequence exists while it holds cells; there is no limit on
 *              their number and nothing to create or close.
 *   Units      Sizes of heads in elements, of memory in bytes, positions in tokens.
 *   Threads    One thread at a time uses a memory; different memories are independent. Calls that take
 *              a `const cellar_memory *` only read, and may run side by side while nothing else does.
 *   Ownership  The caller owns every pointer it passes in and may free it when the call returns
 *              (allocator and workers excepted: their functions and contexts must outlive the memory).
 *
 * CAVEATS
 *   - Between cellar_begin and cellar_commit or cellar_abort, calls that would change the memory
 *     return CELLAR_BUSY; queries answer for the state before the step.
 *   - Position queries describe the positions present. After a middle range was removed and nothing
 *     was shifted into the gap, positions between min and max are missing; that is legal.
 *   - Shifting is exact for the positions of keys. It cannot change what deeper layers read into a
 *     token while the removed tokens were still there; no cache can.
 */
#ifndef CELLAR_H
#define CELLAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CELLAR_API __attribute__((visibility("default")))
#define CELLAR_MUST_USE __attribute__((warn_unused_result))
#else
#define CELLAR_API
#define CELLAR_MUST_USE
#endif

/* ---- version --------------------------------------------------------------------------------- */

#define CELLAR_VERSION_MAJOR 0
#define CELLAR_VERSION_MINOR 1
#define CELLAR_VERSION_PATCH 0

/* The version of the library that is linked, as "major.minor.patch". Static; never freed. */
CELLAR_API const char *cellar_version(void);

/* ---- status and errors ----------------------------------------------------------------------- */

/* Every status: name, value, text. Errors are negative. */
#define CELLAR_STATUSES(X)                                                                         \
    X(CELLAR_OK, 0, "ok")                                                                          \
    X(CELLAR_INVALID, -1, "invalid argument")                                                      \
    X(CELLAR_FULL, -2, "not enough free cells")                                                    \
    X(CELLAR_REPLAY, -3, "must be read again from an earlier position")                            \
    X(CELLAR_REFUSED, -4, "the memory cannot do this without becoming wrong")                      \
    X(CELLAR_BUSY, -5, "a step is open")                                                           \
    X(CELLAR_NO_MEMORY, -6, "the allocator has no more memory")                                    \
    X(CELLAR_UNSUPPORTED, -7, "not supported")                                                     \
    X(CELLAR_CORRUPT, -8, "damaged data")                                                          \
    X(CELLAR_MISMATCH, -9, "belongs to something else")                                            \
    X(CELLAR_IO, -10, "input or output failed")                                                    \
    X(CELLAR_NOT_FOUND, -11, "not found")

typedef enum cellar_status {
#define CELLAR_STATUS_ENUM(name, value, text) name = value,
    CELLAR_STATUSES(CELLAR_STATUS_ENUM)
#undef CELLAR_STATUS_ENUM
} cellar_status;

/*
 * What went wrong. In the caller's memory, so that reporting a failure never allocates. A call that
 * succeeds leaves it alone.
 */
typedef struct cellar_error {
    cellar_status status;
    int64_t at;        /* where: offset in a file, token of a batch, layer, position; -1: nowhere */
    char message[232]; /* what, where, what to do; ends with NUL, one line, no full stop needed */
} cellar_error;

/* The text of a status ("not enough free cells"), or "unknown status". Static; never freed. */
CELLAR_API const char *cellar_status_text(cellar_status status);

/* ---- basic types ----------------------------------------------------------------------------- */

typedef int32_t cellar_pos;   /* a position in a sequence, >= 0; -1: none */
typedef int32_t cellar_seq;   /* a sequence's name, any number >= 0 */
typedef int32_t cellar_token; /* a token id; kept with its cell, never interpreted; -1: unknown */

/* How the numbers of a stored row are written. */
typedef enum cellar_type {
    CELLAR_F32 = 0, /* 4 bytes each */
    CELLAR_F16 = 1, /* IEEE 754 binary16, 2 bytes each, rounded to nearest even */
} cellar_type;

/* ---- configuration --------------------------------------------------------------------------- */

/* Where the library's memory comes from. `allocate` returns NULL when there is none. */
typedef struct cellar_allocator {
    /* `size` bytes aligned to `align` (a power of two, at most 4096); contents undefined. */
    void *(*allocate)(void *context, size_t size, size_t align);
    /* Grow or shrink in place or by moving, keeping the first min(old, new) bytes; NULL: the old
     * block stays. May be absent (NULL): the library then allocates, copies and releases. */
    void *(*resize)(void *context, void *block, size_t old_size, size_t new_size, size_t align);
    void (*release)(void *context, void *block, size_t size);
    void *context;
} cellar_allocator;

/* One part of a job that is split into n_parts; parts may run at the same time. */
typedef void (*cellar_task)(void *argument, uint32_t part, uint32_t n_parts);

/*
 * Threads that the engine lends to the library while a call runs. `run` must call
 * task(argument, part, n) for every part 0..n-1, on any threads, and return when all are done.
 * Results do not depend on n.
 */
typedef struct cellar_workers {
    uint32_t n; /* 0 or 1: everything runs on the calling thread and `run` may be NULL */
    void (*run)(void *context, cellar_task task, void *argument);
    void *context;
} cellar_workers;

typedef enum cellar_rope_kind {
    CELLAR_ROPE_NONE = 0,   /* keys are stored as they come; a shift only moves positions */
    CELLAR_ROPE_NORMAL = 1, /* element 2i is rotated with 2i+1 */
    CELLAR_ROPE_NEOX = 2,   /* element i is rotated with i + n_rot/2 */
} cellar_rope_kind;

/*
 * A rotary position embedding (Su et al., arXiv:2104.09864). Pair i of position p turns by p *
 * base^(-2i/n_rot) * scale / factors[i]. With yarn_ext > 0 the angle is mixed from the scaled and
 * the unscaled frequency pair by pair, and the rotating elements of keys and queries are multiplied
 * by yarn_attn * (1 + 0.1 ln(1/scale)) (YaRN: Peng et al., arXiv:2309.00071, section 3); with
 * yarn_ext == 0 they are multiplied by yarn_attn alone. The magnitude is applied once, when a row
 * is stored or a query rotated; a shift is a pure rotation.
 */
typedef struct cellar_rope {
    cellar_rope_kind kind;
    uint32_t n_rot; /* leading elements of a head that rotate: even, <= k_size; 0: the whole head */
    double base;    /* 1e-9..1e9; default 10000 */
    double scale;   /* 1e-9..1e9; 1 / (linear factor); default 1 */
    const float *factors; /* [n_rot/2] divisors of the frequencies, 1e-9..1e9, or NULL; copied */
    double yarn_ext;      /* 0: plain linear scaling (default); 1: YaRN; between: a mixture */
    double yarn_attn;     /* 1e-9..1000; default 1 */
    double yarn_beta_fast, yarn_beta_slow; /* default 32 and 1; used with yarn_ext > 0 */
    uint32_t yarn_context; /* context the model was trained with; > 0 when yarn_ext > 0 */
} cellar_rope;

typedef enum cellar_layer_kind {
    CELLAR_LAYER_ATTENTION = 0, /* every token sees the whole sequence before it */
} cellar_layer_kind;

/* What one layer of the model remembers and how it attends. Layers may differ from each other. */
typedef struct cellar_layer {
    size_t struct_size; /* set by cellar_layer_init */
    cellar_layer_kind kind;
    uint32_t n_heads;           /* query heads, 1..65536; a multiple of n_kv_heads */
    uint32_t n_kv_heads;        /* K/V heads, >= 1 */
    uint32_t k_size;            /* elements of a K head (and of a query head), 1..65536 */
    uint32_t v_size;            /* elements of a V head, 1..65536 */
    cellar_type k_type, v_type; /* how rows are stored; default CELLAR_F16 */
    float scale;                /* of <q, k> before the softmax; 0: 1/sqrt(k_size) */
    bool is_causal; /* default true; false: every token sees its whole micro-batch and all before */
    cellar_rope rope;
} cellar_layer;

/* Instruction sets that cpu_mask can allow. What the processor lacks is never used. */
#define CELLAR_CPU_SCALAR 0u
#define CELLAR_CPU_AVX2 1u /* AVX2 + FMA + F16C */
#define CELLAR_CPU_ALL 0xffffffffu

typedef struct cellar_config {
    size_t struct_size;         /* set by cellar_config_init */
    uint32_t n_layers;          /* >= 1 */
    const cellar_layer *layers; /* [n_layers], each from cellar_layer_init; copied */
    uint32_t n_cells;           /* tokens the memory can hold, 1..2^30 */
    uint32_t n_ubatch;          /* most tokens computed at once, 1..65536; default 512 */
    cellar_allocator allocator; /* all NULL: malloc and free */
    cellar_workers workers;
    uint32_t cpu_mask; /* default CELLAR_CPU_ALL */
} cellar_config;

/* A layer with every default; fill in n_heads, n_kv_heads, k_size, v_size and rope. */
static inline cellar_layer cellar_layer_init(void)
{
    cellar_layer layer;
    memset(&layer, 0, sizeof layer);
    layer.struct_size = sizeof layer;
    layer.k_type = layer.v_type = CELLAR_F16;
    layer.is_causal = true;
    layer.rope.base = 10000.0;
    layer.rope.scale = 1.0;
    layer.rope.yarn_attn = 1.0;
    layer.rope.yarn_beta_fast = 32.0;
    layer.rope.yarn_beta_slow = 1.0;
    return layer;
}

/* A configuration with every default; fill in n_layers, layers and n_cells. */
static inline cellar_config cellar_config_init(void)
{
    cellar_config config;
    memset(&config, 0, sizeof config);
    config.struct_size = sizeof config;
    config.n_ubatch = 512;
    config.cpu_mask = CELLAR_CPU_ALL;
    return config;
}

/* ---- life cycle ------------------------------------------------------------------------------ */

typedef struct cellar_memory cellar_memory;

/* What bytes are for. */
typedef enum cellar_bytes_kind {
    CELLAR_BYTES_OBJECT = 0,  /* the memory itself, layer descriptions, rotation frequencies */
    CELLAR_BYTES_CELLS = 1,   /* counts, positions and tokens of cells; the free map */
    CELLAR_BYTES_ROWS = 2,    /* the K and V rows */
    CELLAR_BYTES_SCRATCH = 3, /* room that attention computes in */
    CELLAR_BYTES_RUNS = 4,    /* sequences and their runs: grows with what is remembered */
    CELLAR_BYTES_STEP = 5,    /* the plan of a step: grows to the largest batch seen */
    CELLAR_BYTES_KINDS = 6
} cellar_bytes_kind;

/* Bytes by kind; `total` is their sum. */
typedef struct cellar_sizes {
    uint64_t bytes[CELLAR_BYTES_KINDS];
    uint64_t total;
} cellar_sizes;

/*
 * The exact bytes that cellar_create would ask of the allocator, without asking for any. Runs and
 * steps are 0 at first and grow with use (16 bytes a run; see cellar_stats). CELLAR_INVALID: what
 * is wrong with the configuration, also when its size does not fit in 64 bits.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_measure(const cellar_config *config,
                                                        cellar_sizes *sizes, cellar_error *error);

/*
 * Make a memory with all cells free. On success *memory is the caller's, to be given to
 * cellar_destroy; on failure it is NULL and nothing is held. CELLAR_INVALID, CELLAR_NO_MEMORY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_create(const cellar_config *config,
                                                       cellar_memory **memory, cellar_error *error);

/* Give everything back, an open step included. NULL is allowed. */
CELLAR_API void cellar_destroy(cellar_memory *memory);

/* The instruction set the kernels use: "scalar" or "avx2". Static; never freed. */
CELLAR_API const char *cellar_cpu(const cellar_memory *memory);

/* ---- a step: begin, store, attend, commit ---------------------------------------------------- */

/*
 * Tokens to be read. Token i stands in the sequences
 *     seqs[seq_begin[i]] .. seqs[seq_begin[i + 1] - 1]      (seq_begin given: n_tokens + 1 entries)
 *     seqs[i]                                               (seq_begin NULL)
 *     sequence 0                                            (both NULL)
 * at position positions[i], or, when positions is NULL, at the next position of its sequences.
 *
 * The first position of a sequence in a batch must be its next position (any position >= 0 if it is
 * empty), and positions of one sequence rise by one from token to token. A token in several
 * sequences needs all of them to hold the same cells at the same positions so far, because it is
 * computed once and can only have read one past.
 */
typedef struct cellar_batch {
    size_t struct_size;          /* set by cellar_batch_init */
    uint32_t n_tokens;           /* >= 1 */
    const cellar_token *tokens;  /* [n_tokens] or NULL: unknown */
    const cellar_pos *positions; /* [n_tokens] or NULL */
    const uint32_t *seq_begin;   /* [n_tokens + 1] from 0, rising by >= 1 each; or NULL */
    const cellar_seq *seqs;      /* no sequence twice for one token; or NULL */
} cellar_batch;

/* An empty batch; fill in n_tokens and what is known. */
static inline cellar_batch cellar_batch_init(void)
{
    cellar_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.struct_size = sizeof batch;
    return batch;
}

/* A piece of the batch that is computed at once. Its arrays are valid until the step ends. */
typedef struct cellar_ubatch {
    uint32_t n_tokens;           /* 1..n_ubatch */
    const uint32_t *indices;     /* [n_tokens] which tokens of the batch, in order */
    const cellar_pos *positions; /* [n_tokens] where they stand */
} cellar_ubatch;

/*
 * Open a step: split the batch into micro-batches and reserve a cell for each token, for all of
 * them or for none. CELLAR_FULL: the message and error->at say how many cells were missing.
 * (A batch of more tokens than there are cells is refused so before its tokens are looked at.)
 * CELLAR_INVALID: error->at is the token that breaks a rule. CELLAR_BUSY: a step is open already.
 * CELLAR_NO_MEMORY.
 * Cost: the batch, plus the runs of its sequences, plus a scan of the free map (a bit a cell) when
 * a sequence cannot simply continue where it ended.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_begin(cellar_memory *memory,
                                                      const cellar_batch *batch,
                                                      cellar_error *error);

/* How many micro-batches the open step has; 0 when none is open. */
CELLAR_API uint32_t cellar_count_ubatches(const cellar_memory *memory);

/* Describe micro-batch i of the open step. CELLAR_INVALID: no step, or no such micro-batch. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_get_ubatch(const cellar_memory *memory,
                                                           uint32_t ubatch, cellar_ubatch *out,
                                                           cellar_error *error);

/*
 * Store the keys and values of a micro-batch for one layer: k [n_tokens][n_kv_heads][k_size] and
 * v [n_tokens][n_kv_heads][v_size], k not yet rotated. Layers may come in any order; the
 * micro-batches of one layer come in theirs, each once. The reserved cells are not part of any
 * sequence before the commit. CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_store(cellar_memory *memory, uint32_t ubatch,
                                                      uint32_t layer, const float *k,
                                                      const float *v, cellar_error *error);

/*
 * Attend: q [n_tokens][n_heads][k_size], not rotated, gives out [n_tokens][n_heads][v_size]; each
 * token sees the committed cells of its sequence and the tokens of this step up to and in this
 * micro-batch, of those (causal layers) the ones at its own position and before. cellar_store must
 * have been called for the micro-batch and layer. q and out must not overlap. Nothing is allocated.
 * The result depends on the rows, their positions and the query alone: not on where cells lie, who
 * shares them, how the batch was split or how many workers there are. CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_attend(cellar_memory *memory, uint32_t ubatch,
                                                       uint32_t layer, const float *q, float *out,
                                                       cellar_error *error);

/*
 * End the step: its tokens become part of their sequences. CELLAR_INVALID: no step is open, or a
 * layer was not stored for every micro-batch; the step then stays open, to be completed or aborted.
 * Cannot fail otherwise.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_commit(cellar_memory *memory, cellar_error *error);

/*
 * End the step as if it had never begun: all bookkeeping is as before it. No step open: no
 * effect.
 */
CELLAR_API void cellar_abort(cellar_memory *memory);

/* ---- sequences ------------------------------------------------------------------------------- */

/*
 * Forget [p0, p1) of a sequence. Cells that nobody else holds become free. Removing what is not
 * there is no error. Cost: the runs touched, and a counter for each cell touched. CELLAR_INVALID,
 * CELLAR_BUSY, CELLAR_NO_MEMORY (splitting a run can need room for one more).
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_remove(cellar_memory *memory, cellar_seq seq,
                                                       cellar_pos p0, cellar_pos p1,
                                                       cellar_error *error);

/*
 * Make [p0, p1) of `to` hold exactly what [p0, p1) of `from` holds: what `to` had there is
 * forgotten, then the cells are shared; no row is copied. Repeating it changes nothing; from == to
 * is no change. Positions outside the range stay. With p0 = 0 and p1 = -1 it is a fork. Cost: the
 * runs touched, and a counter for each cell. CELLAR_INVALID, CELLAR_BUSY, CELLAR_NO_MEMORY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_copy(cellar_memory *memory, cellar_seq from,
                                                     cellar_seq to, cellar_pos p0, cellar_pos p1,
                                                     cellar_error *error);

/* Forget every sequence but `seq`. CELLAR_INVALID, CELLAR_BUSY. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_keep(cellar_memory *memory, cellar_seq seq,
                                                     cellar_error *error);

/*
 * Move [p0, p1) of a sequence by `delta` positions. Tokens that would come to stand below 0 are
 * forgotten (by this sequence only). No row is touched and no other sequence changes.
 * CELLAR_INVALID: a position would exceed INT32_MAX - 1. CELLAR_REFUSED: the range would land on
 * positions that the sequence holds already; error->at is the first of them; remove those before.
 * Also CELLAR_BUSY, CELLAR_NO_MEMORY. Cost: the runs touched; all runs of the sequence when the
 * range moves past others.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_shift(cellar_memory *memory, cellar_seq seq,
                                                      cellar_pos p0, cellar_pos p1,
                                                      cellar_pos delta, cellar_error *error);

/*
 * Make room in a long conversation ("context shift"): keep the first `keep` positions of the
 * sequence, forget the next `discard`, and move the rest down to close the gap. discard == 0: half
 * of what follows the kept part. *n_discarded (may be NULL) becomes what was used. With n = pos_max
 * + 1 - pos_min: CELLAR_INVALID unless 0 <= keep < n and 0 <= discard <= n - keep, or if half of
 * the rest is nothing. Otherwise as cellar_remove and cellar_shift, both or neither.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_shift_context(cellar_memory *memory, cellar_seq seq,
                                                              cellar_pos keep, cellar_pos discard,
                                                              cellar_pos *n_discarded,
                                                              cellar_error *error);

/*
 * Forget everything. Rows are not overwritten, but never read again. CELLAR_INVALID, CELLAR_BUSY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_clear(cellar_memory *memory, cellar_error *error);

/* ---- questions ------------------------------------------------------------------------------- */

/*
 * The smallest position that a sequence holds; -1: none (or no such sequence, or a bad argument).
 */
CELLAR_API cellar_pos cellar_position_min(const cellar_memory *memory, cellar_seq seq);

/* The largest position that a sequence holds; -1: none (or no such sequence, or a bad argument). */
CELLAR_API cellar_pos cellar_position_max(const cellar_memory *memory, cellar_seq seq);

/* What a sequence is, in numbers. An unknown sequence is an empty one. */
typedef struct cellar_sequence_info {
    cellar_pos pos_min, pos_max; /* -1: holds nothing */
    cellar_pos pos_next;         /* its logical length: where the next token goes; 0 when empty */
    cellar_pos
        rewind_min;    /* the smallest n > 0 at which it can continue; 0 if its start is there */
    uint32_t n_cells;  /* cells held */
    uint32_t n_shared; /* of these, held by another sequence too */
    uint32_t n_runs;
} cellar_sequence_info;

/*
 * Describe a sequence. Cost: its runs, and a look at each of its cells for n_shared.
 * CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_get_sequence(const cellar_memory *memory,
                                                             cellar_seq seq,
                                                             cellar_sequence_info *out,
                                                             cellar_error *error);

/*
 * Can the sequence be continued at position n, if [n, end) were removed, without reading anything
 * again? CELLAR_OK: yes: position n - 1 is held, or n is 0. CELLAR_REPLAY: no; *replay_from (may be
 * NULL) is the position from which tokens have to be read again: behind the last one below n that
 * is held, or 0. CELLAR_INVALID. Cost: a binary search of the runs.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_can_continue(const cellar_memory *memory,
                                                             cellar_seq seq, cellar_pos n,
                                                             cellar_pos *replay_from,
                                                             cellar_error *error);

/*
 * Read the rows of [p0, p0 + n) of a sequence back as f32: k [n][n_kv_heads][k_size], rotated for
 * the positions at which they stand in this sequence, and v [n][n_kv_heads][v_size]. Either may be
 * NULL. CELLAR_NOT_FOUND: a position is missing (error->at); what was written to k and v is
 * undefined. CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_read_rows(const cellar_memory *memory,
                                                          cellar_seq seq, uint32_t layer,
                                                          cellar_pos p0, uint32_t n, float *k,
                                                          float *v, cellar_error *error);

/* ---- inspection ------------------------------------------------------------------------------ */

typedef struct cellar_statistics {
    uint32_t n_cells;
    uint32_t n_used; /* held by at least one sequence, or reserved by the open step */
    uint32_t n_free;
    uint32_t n_shared;     /* held more than once */
    uint32_t longest_free; /* the longest stretch of free cells */
    uint32_t n_sequences;  /* that hold something */
    uint64_t n_runs;
    cellar_sizes sizes;    /* bytes held now */
    uint64_t rows_written; /* K/V rows of one layer written since creation; sharing writes none */
} cellar_statistics;

/* Count. Cost: a scan of the free map and of the sequences. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_stats(const cellar_memory *memory,
                                                      cellar_statistics *out, cellar_error *error);

/* A run: cells cell..cell+len-1, of which cell + i stands at pos + i * step in sequence seq. */
typedef struct cellar_run {
    cellar_seq seq;
    cellar_pos pos;
    uint32_t cell, len;
    uint32_t step;    /* 1; or 0: tokens that share a position */
    cellar_pos shift; /* how far from where the keys were rotated: pos - stored_pos */
} cellar_run;

/* A cell that is held. */
typedef struct cellar_cell {
    uint32_t cell;
    uint32_t refs;         /* runs that hold it (and the open step) */
    cellar_pos stored_pos; /* the position its keys are rotated for */
    cellar_token token;
} cellar_cell;

/* Return false to stop. The memory must not be changed meanwhile. */
typedef bool (*cellar_run_visitor)(void *context, const cellar_run *run);
typedef bool (*cellar_cell_visitor)(void *context, const cellar_cell *cell);

/*
 * Show every run of sequence seq, or of every sequence when seq is -1 (sequences in no particular
 * order, the runs of each in order of position). CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_visit_runs(const cellar_memory *memory,
                                                           cellar_seq seq,
                                                           cellar_run_visitor visitor,
                                                           void *context, cellar_error *error);

/* Show every cell that is held or reserved, in the order of their numbers. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_visit_cells(const cellar_memory *memory,
                                                            cellar_cell_visitor visitor,
                                                            void *context, cellar_error *error);

/*
 * Check every invariant that the design promises (docs/design.md, "What always holds"), the
 * expensive way. CELLAR_CORRUPT names the one that fails: a bug in Cellar, or somebody wrote over
 * its memory. CELLAR_NO_MEMORY: four bytes a cell are asked of the allocator meanwhile.
 * CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_check(const cellar_memory *memory,
                                                      cellar_error *error);

#ifdef __cplusplus
}
#endif

#endif /* CELLAR_H */
