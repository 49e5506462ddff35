/*
 * cellar.h: the memory of a language model, as a library.
 *
 * Cellar keeps what a model has read (the K and V rows of its attention layers, the states of its
 * recurrent ones) so that nothing is read twice. An inference engine hands it the keys, values and
 * queries of a micro-batch; Cellar stores them, attends, and afterwards forks, rewinds, shifts and
 * shares what was read by editing a few numbers, not by moving rows.
 *
 * THE IDEAS, in a few lines
 *   memory     everything one loaded model remembers. Layers that remember alike form a group: full
 *              attention, a sliding window, recurrent states. Every operation goes to all groups or
 *              to none.
 *   cell       room for one token: its K and V rows in every layer of a group (or, in the recurrent
 *              group, the states after it). Written once, then only counted: it is never changed
 *              while any sequence holds it, so sharing needs no copy.
 *   sequence   one conversation, named by any number >= 0 that the caller likes. Inside it is a
 *              sorted list of runs: "these consecutive cells stand at these consecutive positions".
 *   shift      a run may stand elsewhere than where its keys were rotated. The difference is applied
 *              to the query instead: <R(p) q, R(s + d) k> = <R(p - d) q, R(s) k>. No row is touched,
 *              and another sequence that shares the cells notices nothing.
 *   step       a transaction: begin (all cells reserved, or none), store and attend micro-batch by
 *              micro-batch, commit or abort. Nothing else sees a change before the commit.
 *   checkpoint a place to which a sequence can return although a window has passed on or a state was
 *              overwritten: it holds the cells that this needs, and nothing is copied.
 *   library    what was read, found again by its tokens: a new sequence begins as a fork of the one that
 *              is worth most to it, also after that has ended, left the cells or the process.
 *
 * THE CALLS OF A WHOLE PROGRAM, in their order (one layer; main, fail and the model that computes q, k
 * and v are the program's own: `tests/header.c` has them, and compiles and runs what stands here)
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
 *   Sequences  Any cellar_seq >= 0. A sequence exists while it holds something; there is no limit
 *              on their number and nothing to create or close.
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
 *   - A window group gives up cells that no query can see any more, the oldest first, when it needs
 *     room. A sequence can therefore not be rewound to everywhere: rewind_min says how far without
 *     reading again, cellar_rewind goes as far as is possible and says where to go on.
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

/* Why, finer than the status: for programs that have to decide what to do. Name, value, text. */
#define CELLAR_REASONS(X)                                                                          \
    X(CELLAR_REASON_NONE, 0, "")                                                                   \
    X(CELLAR_REASON_ARGUMENT, 1, "an argument breaks a rule")                                      \
    X(CELLAR_REASON_NO_CELLS, 2, "not enough free cells")                                          \
    X(CELLAR_REASON_NO_STATES, 3, "not enough free recurrent states")                              \
    X(CELLAR_REASON_SCATTERED, 4, "enough free cells, but not in one stretch")                     \
    X(CELLAR_REASON_STEP_OPEN, 5, "a step is open")                                                \
    X(CELLAR_REASON_MOVES_PENDING, 6, "row moves wait for the engine to apply them")               \
    X(CELLAR_REASON_WINDOW_PASSED, 7, "a sliding window has given up what this needs")             \
    X(CELLAR_REASON_NO_STATE, 8, "no recurrent state is kept at that position")                    \
    X(CELLAR_REASON_STATE_IS_WHOLE, 9, "a recurrent state cannot forget or move a part")           \
    X(CELLAR_REASON_POSITION_GONE, 10, "the position before is not held")                          \
    X(CELLAR_REASON_POSITION_HELD, 11, "the position is held already")                             \
    X(CELLAR_REASON_POSITION_RANGE, 12, "a position leaves the range of positions")                \
    X(CELLAR_REASON_POSITION_ORDER, 13, "not the next position of its sequence")                   \
    X(CELLAR_REASON_DIVERGED, 14, "the sequences do not hold the same cells")                      \
    X(CELLAR_REASON_POOLS, 15, "the sequences live in different pools")                            \
    X(CELLAR_REASON_SHIFTED, 16, "a shift is left that an export cannot express")                  \
    X(CELLAR_REASON_BUDGET, 17, "the byte budget is used up")                                      \
    X(CELLAR_REASON_ALLOCATOR, 18, "the allocator has no more memory")                             \
    X(CELLAR_REASON_STORE, 19, "a store of the caller failed")                                     \
    X(CELLAR_REASON_INVARIANT, 20, "an invariant does not hold")

typedef enum cellar_reason {
#define CELLAR_REASON_ENUM(name, value, text) name = value,
    CELLAR_REASONS(CELLAR_REASON_ENUM)
#undef CELLAR_REASON_ENUM
} cellar_reason;

/*
 * What went wrong. In the caller's memory, so that reporting a failure never allocates. A call that
 * succeeds leaves it alone.
 */
typedef struct cellar_error {
    cellar_status status;
    cellar_reason reason;
    int64_t at;        /* where: offset in a file, token of a batch, layer, position; -1: nowhere */
    char message[232]; /* what, where, what to do; ends with NUL, one line, no full stop needed */
} cellar_error;

/* The text of a status ("not enough free cells"), or "unknown status". Static; never freed. */
CELLAR_API const char *cellar_status_text(cellar_status status);

/* The text of a reason, or "unknown reason". Static; never freed. */
CELLAR_API const char *cellar_reason_text(cellar_reason reason);

/* ---- basic types ----------------------------------------------------------------------------- */

typedef int32_t cellar_pos;   /* a position in a sequence, >= 0; -1: none */
typedef int32_t cellar_seq;   /* a sequence's name, any number >= 0 */
typedef int32_t cellar_token; /* a token id; kept with its cell, never interpreted; -1: unknown */

/*
 * How the numbers of a stored row are written; the values are those of GGUF. The quantised types
 * work on blocks of 32 numbers, so heads must have a multiple of 32 elements; their layouts are in
 * docs/kernels.md. Rounding is to nearest.
 */
typedef enum cellar_type {
    CELLAR_F32 = 0,     /* 4 bytes each */
    CELLAR_F16 = 1,     /* IEEE 754 binary16, 2 bytes each, ties to even */
    CELLAR_Q4_0 = 2,    /* 4 bits and a scale: 18 bytes a block */
    CELLAR_Q4_1 = 3,    /* 4 bits, a scale and an offset: 20 bytes a block */
    CELLAR_Q5_0 = 6,    /* 5 bits and a scale: 22 bytes a block */
    CELLAR_Q5_1 = 7,    /* 5 bits, a scale and an offset: 24 bytes a block */
    CELLAR_Q8_0 = 8,    /* 8 bits and a scale: 34 bytes a block */
    CELLAR_IQ4_NL = 20, /* 4 bits that choose from 16 unevenly spaced levels: 18 bytes a block */
    CELLAR_BF16 = 30,   /* the upper half of a binary32, 2 bytes each, ties to even */
} cellar_type;

/* The name of a row type as the program spells it ("q8_0"); NULL: not a row type. Static. */
CELLAR_API const char *cellar_type_name(cellar_type type);

/* Numbers in a block of the type (1 or 32); 0: not a row type. */
CELLAR_API uint32_t cellar_type_block(cellar_type type);

/* Bytes of n numbers, a multiple of the type's block; 0 if it is not, or does not fit. */
CELLAR_API size_t cellar_type_bytes(cellar_type type, size_t n);

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
    CELLAR_ROPE_MROPE = 3,  /* as NEOX, but pairs turn by one of three coordinates: `sections` */
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
    /*
     * [n_rot/2] divisors of the frequencies, 1e-9..1e9, or INFINITY: such a pair does not turn. Or
     * NULL. Copied.
     */
    const float *factors;
    double yarn_ext;  /* 0: plain linear scaling (default); 1: YaRN; between: a mixture */
    double yarn_attn; /* 1e-9..1000; default 1 */
    double yarn_beta_fast, yarn_beta_slow; /* default 32 and 1; used with yarn_ext > 0 */
    uint32_t yarn_context; /* context the model was trained with; > 0 when yarn_ext > 0 */
    uint32_t first;        /* where the rotating elements begin in a head; default 0 */
    /*
     * CELLAR_ROPE_MROPE (Qwen2-VL: Wang et al., arXiv:2409.12191, section 2.1): the first
     * sections[0] pairs turn by the position, the next sections[1] by y, the next sections[2] by x,
     * the last sections[3] not at all. Their sum is n_rot/2.
     */
    uint32_t sections[4];
} cellar_rope;

typedef enum cellar_layer_kind {
    CELLAR_LAYER_ATTENTION = 0, /* a K and a V row for each token */
    CELLAR_LAYER_RECURRENT = 1, /* a state of fixed size, replaced by each token */
    CELLAR_LAYER_NONE = 2,      /* remembers nothing */
} cellar_layer_kind;

/*
 * Which keys a query at position q sees beside what causality allows. Layers with the same window
 * form a group. `size` is called W.
 */
typedef enum cellar_window_kind {
    CELLAR_WINDOW_NONE = 0,      /* all */
    CELLAR_WINDOW_STANDARD = 1,  /* those at p > q - W: the last W, its own included */
    CELLAR_WINDOW_CHUNKED = 2,   /* those at p >= floor(q / W) * W: of its own chunk */
    CELLAR_WINDOW_SYMMETRIC = 3, /* those with |q - p| <= W / 2 (rounded down) */
} cellar_window_kind;

typedef struct cellar_window {
    cellar_window_kind kind;
    uint32_t size;    /* W: 1..2^30 unless kind is NONE */
    uint32_t n_sinks; /* keys at positions below this are seen, and kept, always; default 0 */
} cellar_window;

/*
 * A learned bias for the distance between key and query (T5: Raffel et al., arXiv:1910.10683). The
 * distance r = k - q falls into a bucket: with is_bidirectional the upper half of the buckets is
 * for r > 0 and both halves hold |r|, else all hold max(-r, 0). Of the buckets that hold the same r
 * the first half (rounded down) has one distance each; the others grow logarithmically up to
 * max_distance.
 */
typedef struct cellar_buckets {
    uint32_t n;            /* buckets, even, at most 4096; 0: no such bias */
    uint32_t max_distance; /* > n / 2; with is_bidirectional > n / 4 */
    bool is_bidirectional;
    const float *bias; /* [n][n_heads], added to the scores; copied */
} cellar_buckets;

/*
 * Where the rows of a layer live, when the caller wants to say: a device's memory, huge pages, a
 * mapped file. Buffers are asked for when the memory is created or grows. All functions but
 * `address` must be there. With `address` not NULL and returning a pointer, rows are read and
 * written there and the other calls are not used for that buffer; otherwise everything goes through
 * them. Offsets and sizes are in bytes. false: failed; the operation then ends with CELLAR_IO. read
 * may run on several workers at once.
 */
typedef struct cellar_row_store {
    void *(*allocate)(void *context, size_t size); /* a buffer, or NULL; contents undefined */
    void (*release)(void *context, void *buffer, size_t size);
    void *(*address)(void *context, void *buffer); /* aligned to 64; may be NULL */
    bool (*read)(void *context, void *buffer, size_t offset, void *to, size_t size);
    bool (*write)(void *context, void *buffer, size_t offset, const void *from, size_t size);
    bool (*copy)(void *context, void *to, size_t to_offset, void *from, size_t from_offset,
                 size_t size);
    bool (*clear)(void *context, void *buffer, size_t offset, size_t size); /* to zeros */
    void *context;
} cellar_row_store;

/*
 * What one layer of the model remembers and how it attends. Layers may differ from each other in
 * everything. The fields up to `rope` are all that a plain transformer needs.
 */
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
    cellar_window window;

    /*
     * The layer whose rows this one reads, -1 (default): its own. It must store rows of its own, of
     * the same shape, rotations, rope, window and is_external; this layer then stores nothing, and
     * its own k_type, v_type and store are not used.
     */
    int32_t reads_layer;
    /*
     * V is the first v_size elements of the K row (multi-head latent attention); no V is stored and
     * cellar_store takes NULL for it. Rotating elements must lie behind v_size.
     */
    bool v_in_k;
    /*
     * Turn rows by an orthonormal Hadamard matrix before they are stored (each stretch of the
     * largest power of two that divides the head), which spreads outliers and makes quantising
     * kinder. Queries are turned alike, results back. rotate_k and v_in_k exclude each other.
     */
    bool rotate_k, rotate_v;

    /* > 0: a score s becomes softcap * tanh(s / softcap), before ALiBi and buckets add theirs */
    float softcap;
    float alibi_max_bias; /* > 0: ALiBi (Press et al., arXiv:2108.12409); 8 in the paper */
    const float *sinks;   /* [n_heads] a logit that only enlarges the denominator; NULL; copied */
    cellar_buckets buckets;

    /* CELLAR_LAYER_RECURRENT: the state is n_states tensors of state_sizes[i] f32 each. */
    uint32_t n_states;           /* 1..64 */
    const uint32_t *state_sizes; /* [n_states], each 1..2^28; copied */

    /*
     * The caller keeps the rows (or states) in tensors of its own and uses the exports; the library
     * only does the bookkeeping. All layers of a group, or none.
     */
    bool is_external;
    const cellar_row_store *store; /* NULL: the allocator's memory; copied; attention layers only */
} cellar_layer;

/* Instruction sets that cpu_mask can allow. What the processor lacks is never used. */
#define CELLAR_CPU_SCALAR 0u
#define CELLAR_CPU_AVX2 1u   /* AVX2 + FMA + F16C */
#define CELLAR_CPU_AVX512 2u /* with AVX2: AVX-512 F, BW, DQ, VL, VNNI */
#define CELLAR_CPU_NEON 4u   /* AArch64 */
#define CELLAR_CPU_ALL 0xffffffffu

/* How a batch is cut into micro-batches. */
typedef enum cellar_split {
    CELLAR_SPLIT_AUTO = 0,        /* EQUAL with recurrent layers or several pools, else SIMPLE */
    CELLAR_SPLIT_SIMPLE = 1,      /* in order, n_ubatch at a time */
    CELLAR_SPLIT_EQUAL = 2,       /* the same number of tokens from each sequence that takes part */
    CELLAR_SPLIT_BY_SEQUENCE = 3, /* tokens of one sequence only */
} cellar_split;

typedef struct cellar_config {
    size_t struct_size;         /* set by cellar_config_init */
    uint32_t n_layers;          /* >= 1 */
    const cellar_layer *layers; /* [n_layers], each from cellar_layer_init; copied */
    uint32_t n_cells;           /* tokens the memory can hold, over all pools, 1..2^30 */
    uint32_t n_ubatch;          /* most tokens computed at once, 1..65536; default 512 */
    cellar_allocator allocator; /* all NULL: malloc and free */
    cellar_workers workers;
    uint32_t cpu_mask; /* default CELLAR_CPU_ALL */
    cellar_split split;

    /*
     * Pools ("streams"): each has cells of its own that nobody else can use. A sequence lives in one
     * pool, which follows from its name. Default: one.
     */
    uint32_t n_pools;           /* 1..65536 */
    const uint32_t *pool_cells; /* [n_pools], their sum is n_cells; NULL: equal shares; copied */
    uint32_t (*pool_of)(void *context, cellar_seq seq); /* < n_pools; NULL: seq % n_pools */
    void *pool_context;

    /*
     * Room of groups that do not keep everything. A window group gets, in each pool, n_sequences /
     * n_pools (rounded up) times (W + n_sinks), plus n_ubatch cells, but never more than n_cells;
     * or just as many cells as full attention when is_window_full. The recurrent group gets for each
     * of n_sequences two times one state and those of rollback_bytes; when more sequences share it, a
     * step may keep fewer of its last states. Bytes of states are counted as they are kept: each
     * tensor of each layer rounded up to a multiple of 64. What the engine keeps itself counts 0, so
     * rollback_bytes and checkpoint_bytes make no room for it.
     */
    uint32_t n_sequences; /* that grow side by side, 1..2^20; default 1 */
    bool is_window_full;
    uint64_t
        rollback_bytes; /* a sequence: its last states stay, as many as fit in this; default 0 */

    /* Checkpoints: see cellar_checkpoint. They take part of the room of window and recurrent groups. */
    uint64_t checkpoint_bytes; /* room for them on top; default 0 */
    uint32_t
        checkpoint_interval; /* make one every so many positions; 0 (default): only when told */

    uint64_t budget_bytes; /* nothing is allocated beyond this; 0 (default): no limit */
    /*
     * A sequence whose runs have more different shifts than this has their keys rotated again when
     * a step begins (as cellar_settle does; as far as there is room, not in external groups, and not
     * when a token stands in several sequences). 0: never; default 256.
     */
    uint32_t max_shifts;
    bool is_contiguous; /* a micro-batch's tokens of one sequence must lie in one stretch */
    float
        compaction_threshold; /* 0..1: cellar_statistics.wants_compaction from there on; 0: never */
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
    layer.reads_layer = -1;
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
    config.n_pools = 1;
    config.n_sequences = 1;
    config.max_shifts = 256;
    return config;
}

/* ---- life cycle ------------------------------------------------------------------------------ */

typedef struct cellar_memory cellar_memory;

/* What bytes are for. */
typedef enum cellar_bytes_kind {
    CELLAR_BYTES_OBJECT = 0,  /* the memory itself, layer descriptions, rotation frequencies */
    CELLAR_BYTES_CELLS = 1,   /* counts, positions and tokens of cells; the free map */
    CELLAR_BYTES_ROWS = 2,    /* the K and V rows */
    CELLAR_BYTES_STATES = 3,  /* the states of recurrent layers */
    CELLAR_BYTES_SCRATCH = 4, /* room that attention computes in */
    CELLAR_BYTES_RUNS = 5,    /* sequences and their runs: grows with what is remembered */
    CELLAR_BYTES_STEP = 6,    /* the plan of a step: grows to the largest batch seen */
    CELLAR_BYTES_KINDS = 7
} cellar_bytes_kind;

/* Bytes by kind; `total` is their sum. */
typedef struct cellar_sizes {
    uint64_t bytes[CELLAR_BYTES_KINDS];
    uint64_t total;
} cellar_sizes;

/*
 * The exact bytes that cellar_create would ask of the allocator (and of the layers' own stores),
 * without asking for any. Runs and steps are 0 at first and grow with use (16 bytes a run; see
 * cellar_stats). CELLAR_INVALID: what is wrong with the configuration, also when its size does not
 * fit in 64 bits.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_measure(const cellar_config *config,
                                                        cellar_sizes *sizes, cellar_error *error);

/* One item of the breakdown of a memory's bytes. */
typedef struct cellar_bytes {
    cellar_bytes_kind kind;
    int32_t group;    /* -1: of no group */
    int32_t layer;    /* -1: of no single layer */
    const char *what; /* "K", "V", "state", "cells", ...; static */
    cellar_type type; /* of rows */
    bool is_callers;  /* in a store of the caller */
    uint64_t bytes;
} cellar_bytes;

/* Return false to stop. */
typedef bool (*cellar_bytes_visitor)(void *context, const cellar_bytes *bytes);

/*
 * What cellar_measure adds up, item by item: object, scratch, and for each group its cells and the
 * rows or states of each of its layers. CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_visit_plan(const cellar_config *config,
                                                           cellar_bytes_visitor visitor,
                                                           void *context, cellar_error *error);

/*
 * Make a memory with all cells free. On success *memory is the caller's, to be given to
 * cellar_destroy; on failure it is NULL and nothing is held. CELLAR_INVALID, also when the plan
 * exceeds budget_bytes; CELLAR_NO_MEMORY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_create(const cellar_config *config,
                                                       cellar_memory **memory, cellar_error *error);

/* Give everything back, an open step included. NULL is allowed. */
CELLAR_API void cellar_destroy(cellar_memory *memory);

/* The instruction set the kernels use: "scalar", "avx2", "avx512" or "neon". Static; never freed. */
CELLAR_API const char *cellar_cpu(const cellar_memory *memory);

/*
 * Give a pool more or fewer cells. Growing asks for the memory of the new cells only and moves
 * nothing. Shrinking moves rows out of the cells that go, which needs as many free ones. Window
 * groups follow by the rule of cellar_config. CELLAR_FULL: too much is held; error->at is how many
 * cells are. CELLAR_NO_MEMORY, also when the budget forbids it; CELLAR_INVALID, CELLAR_BUSY,
 * CELLAR_IO.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_resize(cellar_memory *memory, uint32_t pool,
                                                       uint32_t n_cells, cellar_error *error);

/* ---- a step: begin, store, attend, commit ---------------------------------------------------- */

/* Where a token stands in an image, beside its position; text has y = x = position. */
typedef struct cellar_point {
    cellar_pos y, x; /* >= 0, at most 32767 away from the token's position */
} cellar_point;

/*
 * Tokens to be read. Token i stands in the sequences
 *     seqs[seq_begin[i]] .. seqs[seq_begin[i + 1] - 1]      (seq_begin given: n_tokens + 1 entries)
 *     seqs[i]                                               (seq_begin NULL)
 *     sequence 0                                            (both NULL)
 * at position positions[i], or, when positions is NULL, at the next position of its sequences
 * (cellar_sequence_info.pos_next).
 *
 * The first position of a sequence in a batch must be its next position (any position >= 0 if it is
 * empty), and positions of one sequence rise by one from token to token. In a memory with M-RoPE
 * layers positions may leave gaps, and with `points` given tokens may share a position with the one
 * before them (of tokens at one position, each sees those that are not behind it in reading order:
 * smaller y, or the same y and no larger x; that holds for layers that are not causal too).
 * A token in several sequences needs all of them to hold the same cells at the same positions so
 * far, because it is computed once and can only have read one past.
 */
typedef struct cellar_batch {
    size_t struct_size;          /* set by cellar_batch_init */
    uint32_t n_tokens;           /* >= 1 */
    const cellar_token *tokens;  /* [n_tokens] or NULL: unknown */
    const cellar_pos *positions; /* [n_tokens] or NULL */
    const uint32_t *seq_begin;   /* [n_tokens + 1] from 0, rising by >= 1 each; or NULL */
    const cellar_seq *seqs;      /* no sequence twice for one token; or NULL */
    const cellar_point *points;  /* [n_tokens] or NULL: text; needs M-RoPE layers */
    const bool
        *checkpoints; /* [n_tokens] or NULL: make a checkpoint after this token, if possible */
} cellar_batch;

/* An empty batch; fill in n_tokens and what is known. */
static inline cellar_batch cellar_batch_init(void)
{
    cellar_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.struct_size = sizeof batch;
    return batch;
}

/* Consecutive tokens of a micro-batch that stand in the same sequences. */
typedef struct cellar_segment {
    cellar_seq seq;           /* the first of them */
    uint32_t first, n_tokens; /* tokens first..first+n_tokens-1 of the micro-batch */
} cellar_segment;

/* A piece of the batch that is computed at once. Its arrays are valid until the step ends. */
typedef struct cellar_ubatch {
    uint32_t n_tokens;           /* 1..n_ubatch */
    const uint32_t *indices;     /* [n_tokens] which tokens of the batch, in the order of k, v, q */
    const cellar_pos *positions; /* [n_tokens] where they stand */
    uint32_t n_segments;         /* with EQUAL and BY_SEQUENCE splits: one for each sequence set */
    const cellar_segment *segments;
} cellar_ubatch;

/*
 * Open a step: split the batch into micro-batches and reserve a cell for each token, for all of
 * them or for none. CELLAR_FULL: the message and error->at say how many cells (or states) were
 * missing. (A batch of more tokens than there are cells is refused so before its tokens are looked
 * at.) CELLAR_INVALID: error->at is the token that breaks a rule. CELLAR_REPLAY: a group no longer
 * has what the next token of a sequence must see; error->at is the position from which it must be
 * read again (see cellar_rewind). CELLAR_BUSY: a step is open already, or moves are pending.
 * CELLAR_NO_MEMORY.
 * A window group without enough free cells gives up cells that no query can see any more, the
 * oldest first, and checkpoints after those: cells of sequences, and where the batch has no room even
 * then, those of its own first tokens that later ones do not see. (What such a step has overtaken, an
 * abort would have needed: it goes at the commit, so that a sequence has no gap behind its sinks.)
 * Room must be for what the next token of each sequence sees, since an abort must restore it; for
 * one micro-batch; and for what that sees of the micro-batches before it.
 * A sequence with more than max_shifts different shifts may have its keys rotated again here; that
 * stays so if the step is refused later or aborted. It changes cells and shifts, never what is held.
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
 * v [n_tokens][n_kv_heads][v_size] (NULL with v_in_k), k not yet rotated. Layers may come in any
 * order; the micro-batches of one layer come in theirs, each once. (Where a window group has no
 * room for the batch beside checkpoints and what the next tokens see, a layer must attend to a
 * micro-batch before its next one is stored, which may reuse cells: cellar_attend says so.) The
 * reserved cells are not part of any sequence before the commit. CELLAR_INVALID, CELLAR_IO: the
 * step should be aborted.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_store(cellar_memory *memory, uint32_t ubatch,
                                                      uint32_t layer, const float *k,
                                                      const float *v, cellar_error *error);

/*
 * Attend: q [n_tokens][n_heads][k_size], not rotated, gives out [n_tokens][n_heads][v_size]; each
 * token sees the committed cells of its sequence and the tokens of this step up to and in this
 * micro-batch, of those (causal layers) the ones at its own position and before. cellar_store must
 * have been called for the micro-batch and layer (or for the layer whose rows it reads). A window
 * hides keys as cellar_window_kind says. A query that sees nothing gives zeros. q and out must not
 * overlap. Nothing is allocated. The result depends on the rows, their positions and the query alone: not on where cells lie, who
 * shares them, how the batch was split or how many workers there are. CELLAR_INVALID, CELLAR_IO.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_attend(cellar_memory *memory, uint32_t ubatch,
                                                       uint32_t layer, const float *q, float *out,
                                                       cellar_error *error);

#define CELLAR_NO_STATE UINT32_MAX

/* The recurrent states of one segment of a micro-batch. Arrays are valid until the step ends. */
typedef struct cellar_states {
    uint32_t source;         /* the state to start from; CELLAR_NO_STATE: zeros */
    uint32_t n_targets;      /* >= 1 */
    const uint32_t *targets; /* [n_targets] states to be written */
    const uint32_t *after;   /* [n_targets] after how many tokens of the segment; the last: all */
} cellar_states;

/*
 * Which states a segment reads and writes. The target of one micro-batch is the source of the next,
 * and may be the same state (computed in place). CELLAR_INVALID, also when no layer is recurrent.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_get_states(const cellar_memory *memory,
                                                           uint32_t ubatch, uint32_t segment,
                                                           cellar_states *out, cellar_error *error);

/*
 * One tensor of a layer's part of a state: state_sizes[tensor] floats, aligned to 64 bytes. Only
 * targets of the open step may be written. NULL: no such state, layer or tensor, or kept by the
 * engine. Valid until the memory is resized or destroyed.
 */
CELLAR_API float *cellar_state_data(const cellar_memory *memory, uint32_t state, uint32_t layer,
                                    uint32_t tensor);

/*
 * Say that the caller has written a layer's part of a micro-batch itself: the states of a recurrent
 * layer, or the rows of an external one. In the order in which cellar_store would be called.
 * CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_confirm(cellar_memory *memory, uint32_t ubatch,
                                                        uint32_t layer, cellar_error *error);

/*
 * End the step: its tokens become part of their sequences. CELLAR_INVALID: no step is open, or a
 * layer was not stored (or confirmed) for every micro-batch; the step then stays open, to be
 * completed or aborted. Cannot fail otherwise.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_commit(cellar_memory *memory, cellar_error *error);

/*
 * End the step as if it had never begun: all bookkeeping is as before it. Two exceptions, when the
 * step needed room: cells behind a sliding window that it has written over are gone (and
 * rewind_min changes; what the next token sees is never among them), and so are checkpoints whose cells or states
 * it took (states and external rows count as written from cellar_begin on). No step open: no effect.
 */
CELLAR_API void cellar_abort(cellar_memory *memory);

/* ---- sequences ------------------------------------------------------------------------------- */

/*
 * Forget [p0, p1) of a sequence. Cells that nobody else holds become free. Removing what is not
 * there is no error, and removing a whole sequence never fails. CELLAR_REFUSED: a recurrent state
 * would have to forget what it cannot: only an end may go, and only back to a position whose state
 * is kept (rollback_bytes, checkpoints); error->at is the largest such position <= p0, or 0.
 * Cost: the runs touched, and a counter for each cell touched. CELLAR_INVALID, CELLAR_BUSY,
 * CELLAR_NO_MEMORY (splitting a run can need room for one more).
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_remove(cellar_memory *memory, cellar_seq seq,
                                                       cellar_pos p0, cellar_pos p1,
                                                       cellar_error *error);

/*
 * Make [p0, p1) of `to` hold exactly what [p0, p1) of `from` holds: what `to` had there is
 * forgotten, then the cells are shared; no row is copied. Repeating it changes nothing; from == to
 * is no change. Positions outside the range stay. With p0 = 0 and p1 = -1 it is a fork.
 * Between pools the rows are copied, before the call returns; CELLAR_FULL if the other pool has no
 * room (windows and checkpoints give up nothing for it). CELLAR_REFUSED: a recurrent group can
 * only copy a beginning, to a sequence that holds nothing outside the range, up to the end or to a
 * position whose state is kept (error->at: the largest such position <= p1, or 0). Cost: the runs
 * touched, and a counter for each cell. CELLAR_INVALID, CELLAR_BUSY, CELLAR_NO_MEMORY, CELLAR_IO.
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
 * (Positions that a window has given up move with their range, and count here like held ones.)
 * It is also refused when it would have to move, or to forget below 0, a part of what a recurrent
 * state has read. Checkpoints of the sequence stay if they lie neither behind the first token that
 * moves nor behind where that comes to stand. Also CELLAR_BUSY, CELLAR_NO_MEMORY. Cost: the runs
 * touched; all runs of the sequence when the range moves past others.
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
 * Divide the positions in [p0, p1) by `divisor` (>= 1), rounding down, so that several tokens come
 * to share one ("self-extend": Jin et al., arXiv:2401.01325). Keys are met as if they had been
 * rotated for their new positions. CELLAR_REFUSED as cellar_shift, and when the range would pass
 * positions that are not divided (error->at: where its first token would stand); and for whatever
 * a recurrent state has read; checkpoints as there. Cost: a run for each token of the range until
 * their rows are rotated again (cellar_config.max_shifts, cellar_settle).
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_divide(cellar_memory *memory, cellar_seq seq,
                                                       cellar_pos p0, cellar_pos p1,
                                                       cellar_pos divisor, cellar_error *error);

/*
 * Rotate the keys of a sequence where they lie, so that no shift is left: in place if nobody else
 * holds a cell and its rows have an address, else into free ones. Never needed for correct results;
 * it makes a sequence of many different shifts cheap to attend to again, and engines with tensors of
 * their own need it after a shift (their part is in the list of moves). Rounds each key once more.
 * The sequence then shares its once shifted cells with nobody. In a group where no layer rotates keys
 * there is nothing to rotate, and shared cells keep their shift. CELLAR_FULL (error->at: cells that
 * are missing), CELLAR_IO and all others: nothing was changed. CELLAR_INVALID, CELLAR_BUSY,
 * CELLAR_NO_MEMORY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_settle(cellar_memory *memory, cellar_seq seq,
                                                       cellar_error *error);

/*
 * Forget everything. Rows are not overwritten, but never read again. CELLAR_INVALID, CELLAR_BUSY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_clear(cellar_memory *memory, cellar_error *error);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/*
 * Attention that sees everything can be rewound to any position for nothing. A window that has
 * passed on and a recurrent state cannot; for them a checkpoint keeps what going on from its
 * position needs: the cells of the window, the state. Nothing is copied: cells are counted once
 * more, so checkpoints near each other share theirs, and forks share their checkpoints. A memory
 * without such groups needs none, and these calls do nothing there.
 *
 * When room runs out, the checkpoint goes whose loss widens the gap between its neighbours least in
 * proportion to its distance from the end: dense near the end, thinning out behind.
 */

/*
 * Make a checkpoint at the end of a sequence. CELLAR_FULL: there is no room, even after thinning.
 * CELLAR_REPLAY: the sequence cannot continue from its end itself. CELLAR_INVALID, CELLAR_BUSY,
 * CELLAR_NO_MEMORY. An empty sequence: no effect.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_checkpoint(cellar_memory *memory, cellar_seq seq,
                                                           cellar_error *error);

/* Forget the checkpoints of a sequence at positions in [p0, p1). CELLAR_INVALID, CELLAR_BUSY. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_drop_checkpoints(cellar_memory *memory,
                                                                 cellar_seq seq, cellar_pos p0,
                                                                 cellar_pos p1,
                                                                 cellar_error *error);

/*
 * Shorten a sequence so that it can go on at position n, or at the largest position before n from
 * which every group can go on: by itself or from a checkpoint; 0 in the worst case. *replay_from
 * (not NULL) becomes that position: tokens [*replay_from, n) have to be read again, none if it is
 * n. Later checkpoints of this sequence are forgotten. CELLAR_INVALID, CELLAR_BUSY,
 * CELLAR_NO_MEMORY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_rewind(cellar_memory *memory, cellar_seq seq,
                                                       cellar_pos n, cellar_pos *replay_from,
                                                       cellar_error *error);

/* A checkpoint as a sequence has it. */
typedef struct cellar_checkpoint_info {
    cellar_pos position; /* behind the last token that a return to it leaves */
    uint32_t n_holders;  /* sequences that have it */
    uint32_t n_cells;    /* window cells it holds, shared ones included */
    uint32_t state;      /* the recurrent state it holds; CELLAR_NO_STATE: none */
} cellar_checkpoint_info;

/* Return false to stop. */
typedef bool (*cellar_checkpoint_visitor)(void *context, const cellar_checkpoint_info *info);

/* Show the checkpoints of a sequence, in order of position. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_visit_checkpoints(const cellar_memory *memory,
                                                                  cellar_seq seq,
                                                                  cellar_checkpoint_visitor visitor,
                                                                  void *context,
                                                                  cellar_error *error);

/* ---- questions ------------------------------------------------------------------------------- */

/*
 * The smallest position that a sequence holds in any group; -1: none (or no such sequence, or a bad
 * argument). A recurrent group holds the positions whose states it keeps.
 */
CELLAR_API cellar_pos cellar_position_min(const cellar_memory *memory, cellar_seq seq);

/* The largest position that a sequence holds; -1: none (or no such sequence, or a bad argument). */
CELLAR_API cellar_pos cellar_position_max(const cellar_memory *memory, cellar_seq seq);

/* What a sequence is, in numbers. An unknown sequence is an empty one. */
typedef struct cellar_sequence_info {
    cellar_pos pos_min, pos_max; /* -1: holds nothing */
    /*
     * Where the next token goes: pos_max + 1; behind an image its largest coordinate + 1; empty: 0;
     * INT32_MAX: nowhere.
     */
    cellar_pos pos_next;
    /*
     * The sequence can be cut off and continued at, or behind, every held position from here on
     * without reading again; 0: at all of them; INT32_MAX: at none behind a gap among the sinks.
     * (Places before may still be possible: cellar_can_continue.)
     */
    cellar_pos rewind_min;
    uint32_t n_cells;  /* cells and states held, over all groups */
    uint32_t n_shared; /* of these, held by another sequence or a checkpoint too */
    uint32_t n_runs;
    uint32_t n_shifts; /* different shifts among its runs, 0 not counted */
    uint32_t n_checkpoints;
    uint32_t pool;
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
 * again and without a checkpoint? CELLAR_OK: yes: n is 0, or position n - 1 is held (or was the
 * last one that all windows gave up), and every group has what a query at n must see.
 * CELLAR_REPLAY: no; *replay_from (may be NULL) is the position from which tokens have to be read
 * again: where cellar_rewind would go. CELLAR_INVALID. Cost: a binary search of the runs, and a
 * look at its checkpoints.
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

/* ---- exports: for engines with tensors of their own ------------------------------------------ */

/*
 * A layer with is_external keeps its rows in the engine's tensors, one row for each cell: cell c of
 * the layer's group is row c, of cellar_group_info.n_cells rows (blocks are whole, so these can be
 * more than configured). Rows not written yet are masked, but have to be numbers. The engine asks
 * where the tokens of a micro-batch go and which rows they may look at, in the dense form that tensor
 * libraries want. Exports work for other layers too, and only read. All of them are CELLAR_INVALID
 * outside a step, for layers that do not attend, and for NULL arrays.
 *
 * An engine rotates K and Q by the positions of the micro-batch, as the layer's rope says. After a
 * shift, its stored keys are rotated for old positions: cellar_settle puts the turns that are due
 * into the list of moves, and until it is called masks and pages are refused (CELLAR_REFUSED,
 * CELLAR_REASON_SHIFTED; error->at is the first such position). Layers without a rope need none of
 * this. examples/own_tensors.c is a whole engine of this kind.
 */

/*
 * Which cells a micro-batch may look at: for each stream (pool that takes part) a range of n_kv of
 * them. EQUAL splits keep the tokens of a pool together. Where a SIMPLE split does not, there is one
 * stream for all tokens, over all cells: pool 0, first_cell 0.
 */
typedef struct cellar_stream {
    uint32_t pool;
    /*
     * Where the range begins: at the pool's first cell in this group, or before it when the pool is
     * smaller than others and n_kv cells from there would end behind the last cell of the group.
     */
    uint32_t first_cell;
    uint32_t n_cells;         /* of the pool */
    uint32_t first, n_tokens; /* tokens of the micro-batch that live in it */
} cellar_stream;

typedef struct cellar_extent {
    uint32_t n_streams;
    uint32_t n_kv; /* cells from first_cell on that cover every held one, padded; same for all */
} cellar_extent;

/*
 * The extent of a micro-batch; streams [capacity] (may be NULL with capacity 0) gets its streams.
 * n_kv is a multiple of pad (>= 1) or all cells of the largest pool (of the group, when there is one
 * stream for several pools). It is the same for all micro-batches of a step with one pool.
 * CELLAR_INVALID also when there are more streams than capacity (and it is not 0).
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_export_extent(
    const cellar_memory *memory, uint32_t ubatch, uint32_t layer, uint32_t pad,
    cellar_extent *extent, cellar_stream *streams, uint32_t capacity, cellar_error *error);

/*
 * The most streams, and the most cells of one, that a micro-batch can have on a full memory: what
 * buffers must be sized for. Works outside a step too.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_export_largest(const cellar_memory *memory,
                                                               uint32_t layer, uint32_t pad,
                                                               cellar_extent *extent,
                                                               cellar_error *error);

/* rows[n_tokens]: the cell of each token of the micro-batch: the row its K and V go to. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_export_rows(const cellar_memory *memory,
                                                            uint32_t ubatch, uint32_t layer,
                                                            int64_t *rows, cellar_error *error);

/*
 * For an engine that keeps V transposed: elements[n_tokens][n_kv_heads * v_size], where element j of
 * cell c lies at j * N + c, N being all cells of the group (cellar_group_info). CELLAR_INVALID also
 * with v_in_k.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_export_elements(const cellar_memory *memory,
                                                                uint32_t ubatch, uint32_t layer,
                                                                int64_t *elements,
                                                                cellar_error *error);

/*
 * mask[n_tokens][n_kv] of CELLAR_F32 or CELLAR_F16: 0 where the token sees the cell first_cell + j
 * of its stream, -infinity where not; with ALiBi layers -|k - q| instead of 0 (slopes are the
 * engine's; F16 holds distances up to 65504, farther ones count as that). n_kv as
 * cellar_export_extent gave it. CELLAR_REFUSED: see above. Cost: what is written, and the runs seen.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_export_mask(const cellar_memory *memory,
                                                            uint32_t ubatch, uint32_t layer,
                                                            uint32_t n_kv, cellar_type type,
                                                            void *mask, cellar_error *error);

/*
 * buckets[n_tokens][n_kv]: the bucket of cellar_buckets for each pair; 0 where nothing is seen.
 * CELLAR_INVALID also for layers without buckets.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_export_buckets(const cellar_memory *memory,
                                                               uint32_t ubatch, uint32_t layer,
                                                               uint32_t n_kv, int32_t *buckets,
                                                               cellar_error *error);

/*
 * Page tables, as paged attention kernels take them: for each segment of the micro-batch the pages
 * of page_size cells that hold what its sequence holds, in order of position: pages
 * indices[indptr[s]] .. indices[indptr[s + 1] - 1], of which the last holds last_length[s] cells.
 * Page i is cells i * page_size and on. indptr [n_segments + 1], last_length [n_segments], indices
 * [capacity] (NULL with 0). The list ends with the segment's last token (layers that are not causal:
 * with the micro-batch), so a causal kernel aligns the ends of queries and keys. With a window it
 * has the pages of which the segment's first token sees a part; later tokens may see less.
 * Page size 1 always works. Larger ones must divide the group's cells (powers of two up to 32 do)
 * and need whole pages in order (CELLAR_REFUSED, CELLAR_REASON_SCATTERED; cellar_compact helps).
 * CELLAR_INVALID: capacity too small; error->at is what is needed.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_export_pages(const cellar_memory *memory,
                                                             uint32_t ubatch, uint32_t layer,
                                                             uint32_t page_size, uint32_t *indptr,
                                                             uint32_t *indices, uint32_t capacity,
                                                             uint32_t *last_length,
                                                             cellar_error *error);

/*
 * Rows of an external group that the engine has to move in its tensors, for all layers of the
 * group: for i < n, row to + i becomes row from + i, with K rotated further by `turn` positions (0:
 * not at all; from == to: only rotated). In order; a move never writes what a later one reads.
 */
typedef struct cellar_move {
    uint32_t group, from, to, n;
    cellar_pos turn;
} cellar_move;

/* Return false to stop. */
typedef bool (*cellar_move_visitor)(void *context, const cellar_move *move);

/*
 * The moves that copying between pools, settling, compacting and resizing have left for the engine.
 * While there are any, cellar_begin and all operations that would add some return CELLAR_BUSY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_visit_moves(const cellar_memory *memory,
                                                            cellar_move_visitor visitor,
                                                            void *context, cellar_error *error);

/* The engine has applied all moves. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_confirm_moves(cellar_memory *memory,
                                                              cellar_error *error);

/* ---- compaction ------------------------------------------------------------------------------ */

/*
 * Move at most max_rows cells so that runs become longer and held cells lie lower. Never needed:
 * free cells are always usable; it makes attention stream better and lowers n_kv. Deterministic; calls
 * of one size come to an end. *n_moved (may be NULL): cells moved. 0 is the sign that calls of this
 * size (>= 1) have nothing left to do; fewer than max_rows is no sign, since a call moves no row of an
 * external group twice, and does not end between cells at which several sequences part. After a
 * failure what was moved before it stays moved, which only cell numbers show. CELLAR_INVALID,
 * CELLAR_BUSY (also while moves wait for cellar_confirm_moves), CELLAR_NO_MEMORY, CELLAR_IO.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_compact(cellar_memory *memory, uint32_t max_rows,
                                                        uint32_t *n_moved, cellar_error *error);

/* ---- sessions: saving and loading ------------------------------------------------------------ */

/*
 * A session is what some sequences hold, written down: rows, states, positions, shifts, checkpoints.
 * docs/session-format.md is the format. It does not depend on cells, pools or sizes of the memory it
 * came from, and can be loaded into another one of the same model, whose row types may differ (rows
 * are then converted; with the same types they come back bit for bit). External layers cannot be
 * saved: their rows are the engine's (CELLAR_UNSUPPORTED).
 */

/* A named value. Names: 1..255 bytes of UTF-8 without control characters, no two alike in one list. */
typedef struct cellar_note {
    const char *name;
    const void *value; /* any bytes, at most 16 MiB; NULL with size 0 */
    size_t size;
} cellar_note;

/* What a sequence has read, as the engine keeps it; a recurrent model's states cannot tell. */
typedef struct cellar_log {
    cellar_seq seq;
    uint32_t n_tokens;
    const cellar_token *tokens;
} cellar_log;

/* What to save. */
typedef struct cellar_save_options {
    size_t struct_size;          /* set by cellar_save_options_init */
    const cellar_seq *sequences; /* [n_sequences] that exist, none twice; NULL: all */
    uint32_t n_sequences, n_facts, n_notes, n_logs;
    /*
     * [n_facts] who the model is: architecture, a hash of its weights, adapters, a tenant. Loading
     * compares them, name by name, with those of the memory's engine. The layers are written and
     * compared without being named here.
     */
    const cellar_note *facts;
    const cellar_note *notes; /* [n_notes] whatever is to be kept with it: a title, say */
    const cellar_log *logs;   /* [n_logs] at most one for each sequence that is saved */
} cellar_save_options;

/* How to load. */
typedef struct cellar_load_options {
    size_t struct_size;          /* set by cellar_load_options_init */
    const cellar_seq *sequences; /* [n_sequences] of the session; NULL: all that it has */
    const cellar_seq *as;        /* [n_sequences] their names in the memory; NULL: the same */
    uint32_t n_sequences, n_facts;
    const cellar_note *facts; /* [n_facts] the session must have the same: no more, no fewer */
    bool ignores_facts;       /* do not compare them, for tools that know what they do */
} cellar_load_options;

/* Everything, without facts, notes or logs. */
static inline cellar_save_options cellar_save_options_init(void)
{
    cellar_save_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    return options;
}

/* Everything, under the names it had; a session with facts is refused. */
static inline cellar_load_options cellar_load_options_init(void)
{
    cellar_load_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    return options;
}

/* Where a session is written, from front to back. false: failed; nothing more is written. */
typedef struct cellar_writer {
    bool (*write)(void *context, const void *bytes, size_t size);
    void *context;
} cellar_writer;

/* Where a session is read from: any stretch at any time. false: failed. */
typedef struct cellar_reader {
    bool (*read)(void *context, uint64_t offset, void *to, size_t size);
    uint64_t size;
    void *context;
} cellar_reader;

/*
 * The exact bytes that cellar_write_session would write. CELLAR_INVALID: a rule above is broken;
 * CELLAR_NOT_FOUND: a sequence does not exist (error->at); CELLAR_UNSUPPORTED; CELLAR_BUSY: a step
 * is open (what is being computed is not part of a session); CELLAR_NO_MEMORY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_measure_session(const cellar_memory *memory,
                                                                const cellar_save_options *options,
                                                                uint64_t *bytes,
                                                                cellar_error *error);

/*
 * Write a session. Needs room for the runs of what is saved and a few rows, whatever the size; it
 * comes from the memory's allocator and is given back at once, so the budget does not count it.
 * The memory must not be changed meanwhile. Statuses as above; CELLAR_IO: the writer or a store
 * failed.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_write_session(const cellar_memory *memory,
                                                              const cellar_save_options *options,
                                                              const cellar_writer *writer,
                                                              cellar_error *error);

/*
 * Write a session to a file, mode 0600, or leave the file that is there as it is: a temporary file in
 * the same folder is written, synced and renamed, and the folder synced. `path` may not name a link,
 * a folder or anything but a plain file (CELLAR_INVALID). CELLAR_IO: the message names the step that
 * failed and the reason. Other statuses as above.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_save_session(const cellar_memory *memory,
                                                             const cellar_save_options *options,
                                                             const char *path, cellar_error *error);

/* A session that is open for reading. One thread at a time uses it. */
typedef struct cellar_session cellar_session;

/*
 * Open a session: a file (it stays open; what replaces it meanwhile is not noticed), bytes (which must stay until it is closed), or a reader. Header, index, layers, notes,
 * logs and lists are checked and in memory then, rows are not looked at. On success *session is the caller's,
 * for cellar_close_session. allocator NULL: malloc and free. CELLAR_NOT_FOUND, CELLAR_IO;
 * CELLAR_CORRUPT (error->at: offset), CELLAR_UNSUPPORTED: another version; CELLAR_INVALID: not a
 * plain file; CELLAR_NO_MEMORY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_open_session(const char *path,
                                                             const cellar_allocator *allocator,
                                                             cellar_session **session,
                                                             cellar_error *error);
/* The same from bytes in memory. */
CELLAR_API CELLAR_MUST_USE cellar_status
cellar_open_session_bytes(const void *bytes, size_t size, const cellar_allocator *allocator,
                          cellar_session **session, cellar_error *error);
/* The same through a reader, which is asked for a stretch at a time, by one thread. */
CELLAR_API CELLAR_MUST_USE cellar_status
cellar_open_session_reader(const cellar_reader *reader, const cellar_allocator *allocator,
                           cellar_session **session, cellar_error *error);

/* NULL is allowed. */
CELLAR_API void cellar_close_session(cellar_session *session);

/* Read everything and compare every checksum. CELLAR_CORRUPT, CELLAR_IO, CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_check_session(const cellar_session *session,
                                                              cellar_error *error);

typedef struct cellar_session_info {
    uint64_t bytes;      /* of the file that count */
    uint64_t live_bytes; /* of these, that this state of the session needs */
    uint64_t generation; /* times it was saved to this file */
    uint32_t n_facts, n_notes, n_sequences, n_checkpoints, n_groups, n_layers;
    uint64_t n_cells; /* over all groups, states included */
    bool is_journal;  /* something was appended to it */
} cellar_session_info;

/* Describe a session. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_describe_session(const cellar_session *session,
                                                                 cellar_session_info *out,
                                                                 cellar_error *error);

/* Fact i. Its pointers are valid until the session is closed. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_get_session_fact(const cellar_session *session,
                                                                 uint32_t i, cellar_note *out,
                                                                 cellar_error *error);
/* Note i, likewise. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_get_session_note(const cellar_session *session,
                                                                 uint32_t i, cellar_note *out,
                                                                 cellar_error *error);

/* A sequence of a session. */
typedef struct cellar_session_sequence {
    cellar_seq seq;
    cellar_pos pos_min, pos_max;             /* -1: holds nothing */
    uint32_t n_cells, n_runs, n_checkpoints; /* over all groups */
    uint32_t n_tokens;                       /* of its log */
    const cellar_token *tokens;              /* [n_tokens], valid until the session is closed */
} cellar_session_sequence;

/* Sequence i, in the order of their names. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_get_session_sequence(const cellar_session *session,
                                                                     uint32_t i,
                                                                     cellar_session_sequence *out,
                                                                     cellar_error *error);

/*
 * A configuration that can hold the session: its layers, its cells, room for its checkpoints. What
 * a tool needs that has no model at hand: attention would lack what is not saved (sinks, buckets).
 * Its arrays are valid until the session is closed. CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_get_session_config(const cellar_session *session,
                                                                   cellar_config *out,
                                                                   cellar_error *error);

/*
 * Load sequences into a memory. Those that have a name in use are replaced, at the end, when nothing
 * can fail any more: until then both need room. CELLAR_MISMATCH: another model: the message names
 * what differs; error->at is the layer, -1 for facts. CELLAR_NOT_FOUND: the session has no such
 * sequence. CELLAR_FULL: error->at cells (or states) are missing. Groups with a window give up older cells that
 * no query can see, their own and then those of the session, before that; checkpoints for which there is no room are left out
 * (cellar_statistics.checkpoints_dropped counts them). CELLAR_CORRUPT: as it says, nothing is loaded. CELLAR_INVALID, CELLAR_BUSY,
 * CELLAR_IO, CELLAR_NO_MEMORY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_load_session(cellar_memory *memory,
                                                             const cellar_session *session,
                                                             const cellar_load_options *options,
                                                             cellar_error *error);

/*
 * A file that is saved to again and again. It remembers which cells of the memory are in the file
 * already, so that saving costs what was added since, not the whole: new sections are appended, and
 * the old session stands until they are all on the disk. When over half of the file is no longer
 * needed, or somebody else has put another file in its place, it is saved whole.
 */
typedef struct cellar_journal cellar_journal;

/*
 * Make a journal for a file, which need not exist and is not looked at yet. It belongs to the memory,
 * and must be closed before that is destroyed. CELLAR_INVALID, CELLAR_NO_MEMORY;
 * CELLAR_UNSUPPORTED: external layers.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_open_journal(cellar_memory *memory,
                                                             const char *path,
                                                             cellar_journal **journal,
                                                             cellar_error *error);

/* Load from its file as cellar_open_session and cellar_load_session do. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_load_journal(cellar_journal *journal,
                                                             const cellar_load_options *options,
                                                             cellar_error *error);

/*
 * Save to its file as cellar_save_session does, appending where possible. *n_written (may be NULL):
 * bytes that were written. CELLAR_BUSY also: another process is saving to the file.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_save_journal(cellar_journal *journal,
                                                             const cellar_save_options *options,
                                                             uint64_t *n_written,
                                                             cellar_error *error);

/* The file stays. NULL is allowed. */
CELLAR_API void cellar_close_journal(cellar_journal *journal);

/* ---- the prefix library ---------------------------------------------------------------------- */

/*
 * A prompt begins, more often than not, like something that was read before: a system prompt, the
 * conversation so far. The library knows what was read: sequences that are running, sequences that it
 * retains in the cells after their end, and sequences that left the cells for a store in RAM or for files
 * in a folder. A new sequence starts as a fork of the one that is worth most to it.
 * docs/prefix-library.md says what is promised, and when.
 *
 *     cellar_library_attach     a new sequence: reuse what there is, and be found by others from now on
 *     cellar_library_begin      cellar_begin, making room by evicting retained sequences
 *     cellar_library_extend     after each commit: these tokens were read
 *     cellar_library_retain     at its end: the library keeps it, its name is free again
 *
 * Tokens are compared one by one; a hash never decides. A prefix is reused only under an equal key. One
 * thread at a time uses a library and its memory: both under one lock of the caller.
 */
typedef struct cellar_library cellar_library;

typedef struct cellar_library_config {
    size_t struct_size;       /* set by cellar_library_config_init */
    const cellar_note *facts; /* [n_facts] who the model is; copied; see cellar_prefix_key */
    uint32_t n_facts;
    /*
     * Retained sequences have names from here on, which nobody else may use; running ones have names
     * below. Default 2^30.
     */
    cellar_seq first_seq;
    uint32_t n_entries;   /* most sequences that are known, in all places; 1..2^20, default 1024 */
    uint64_t index_bytes; /* most bytes for tokens, keys and entries; default 64 MiB */
    uint64_t ram_bytes;   /* most bytes of the store in RAM; default 0: there is none */
    const char *folder;   /* where files go; it must exist. Default NULL: nowhere */
    uint64_t disk_bytes;  /* most bytes of all its files together; 0: there are none */
    bool does_tell_domains;     /* CELLAR_PREFIX_OTHER_DOMAIN is reported; default false */
    cellar_allocator allocator; /* of the index and the store; all NULL: malloc and free */
} cellar_library_config;

/* The defaults; facts, stores and limits are the caller's to fill in. Cannot fail. */
static inline cellar_library_config cellar_library_config_init(void)
{
    cellar_library_config config;
    memset(&config, 0, sizeof config);
    config.struct_size = sizeof config;
    config.first_seq = 1 << 30;
    config.n_entries = 1024;
    config.index_bytes = (uint64_t)64 << 20;
    return config;
}

/*
 * What has to be equal, beside the tokens, before a prefix is reused. All of it is compared byte by
 * byte, each part under its own name, so an adapter "t1" is not a tenant "t1". The library adds the
 * facts of its configuration and the row types of the memory.
 */
typedef struct cellar_prefix_key {
    size_t struct_size; /* set by cellar_prefix_key_init */
    /*
     * [n_facts] what rows depend on beside weights and tokens: adapters with the hash of their weights
     * and their scales, control vectors, a hash of the images that placeholders stand for. In any
     * order; names are none of the configuration's and do not begin with "prefix.".
     */
    const cellar_note *facts;
    uint32_t n_facts;
    size_t domain_size, salt_size; /* at most 4096 each */
    /*
     * [domain_size] who it belongs to; nobody else finds it. Files hold it as it is: a hash of an API
     * key, not the key.
     */
    const void *domain;
    const void *salt; /* [salt_size] whatever else its owner wants to keep apart */
    /*
     * The domain does not count: found by, and given to, all whose key is shared too (and otherwise
     * equal). What has a domain of its own stays unseen by them.
     */
    bool is_shared;
} cellar_prefix_key;

/* No facts, the empty domain, no salt. */
static inline cellar_prefix_key cellar_prefix_key_init(void)
{
    cellar_prefix_key key;
    memset(&key, 0, sizeof key);
    key.struct_size = sizeof key;
    return key;
}

/* Where reused tokens came from. Name, value, text. */
#define CELLAR_PREFIX_SOURCES(X)                                                                   \
    X(CELLAR_PREFIX_FROM_NOWHERE, 0, "none")                                                       \
    X(CELLAR_PREFIX_FROM_CELLS, 1, "cells")                                                        \
    X(CELLAR_PREFIX_FROM_RAM, 2, "ram")                                                            \
    X(CELLAR_PREFIX_FROM_DISK, 3, "disk")

typedef enum cellar_prefix_source {
#define CELLAR_PREFIX_SOURCE_ENUM(name, value, text) name = value,
    CELLAR_PREFIX_SOURCES(CELLAR_PREFIX_SOURCE_ENUM)
#undef CELLAR_PREFIX_SOURCE_ENUM
        CELLAR_PREFIX_N_SOURCES = 4
} cellar_prefix_source;

/* Why not more tokens were reused. Name, value, text (for logs and metrics). */
#define CELLAR_PREFIX_REASONS(X)                                                                   \
    X(CELLAR_PREFIX_WHOLE, 0, "whole")               /* all that were asked for */                 \
    X(CELLAR_PREFIX_COLD, 1, "cold")                 /* nothing begins with its first token */     \
    X(CELLAR_PREFIX_ENDED, 2, "ended")               /* what is known ends; the rest is new */     \
    X(CELLAR_PREFIX_DIVERGED, 3, "diverged")         /* what is known goes on otherwise */         \
    X(CELLAR_PREFIX_WINDOW_LOST, 4, "window-lost")   /* a sliding window has passed on */          \
    X(CELLAR_PREFIX_STATE_LOST, 5, "state-lost")     /* no recurrent state is kept there */        \
    X(CELLAR_PREFIX_EVICTED, 6, "evicted")           /* more was known, and given up for room */   \
    X(CELLAR_PREFIX_COMING, 7, "coming")             /* a running sequence is still to read it */  \
    X(CELLAR_PREFIX_OTHER_DOMAIN, 8, "other-domain") /* it belongs to somebody else */             \
    X(CELLAR_PREFIX_DAMAGED, 9, "damaged")           /* a stored one was not what it should be */  \
    X(CELLAR_PREFIX_UNREADABLE, 10, "unreadable")    /* a stored one could not be read */          \
    X(CELLAR_PREFIX_NO_ROOM, 11, "no-room")          /* no cells for a stored one */

typedef enum cellar_prefix_reason {
#define CELLAR_PREFIX_REASON_ENUM(name, value, text) name = value,
    CELLAR_PREFIX_REASONS(CELLAR_PREFIX_REASON_ENUM)
#undef CELLAR_PREFIX_REASON_ENUM
        CELLAR_PREFIX_N_REASONS = 12
} cellar_prefix_reason;

/* "cells", "window-lost"; "unknown". Static; never freed. */
CELLAR_API const char *cellar_prefix_source_text(cellar_prefix_source source);
CELLAR_API const char *cellar_prefix_reason_text(cellar_prefix_reason reason);

/* What was found for a prompt, and what became of it. */
typedef struct cellar_prefix {
    uint32_t matched;  /* tokens that some sequence has read and that agree, at most `most` */
    uint32_t reusable; /* of one sequence: after as many every group of the memory can go on */
    uint32_t reused;   /* cellar_library_attach: that the new sequence holds now; else 0 */
    cellar_prefix_source source; /* of what is reusable, or reused */
    cellar_prefix_reason reason; /* why it is not `most` */
    /*
     * The first token of the prompt that differs from the sequence which agrees longest, and what
     * that has there; -1: it only ends.
     */
    int64_t diverged_at;
    cellar_token diverged_token;
    uint64_t entry; /* where it is taken from; 0: nowhere */
    /*
     * A running sequence has been told that it will read so many tokens of this prompt (more than are
     * matched); 0: none. Who can wait attaches later.
     */
    uint32_t coming;
    cellar_seq coming_seq; /* -1: none */
} cellar_prefix;

/*
 * Make a library for a memory, and know again what the folder's files hold: each is opened and checked,
 * but for its rows; what is damaged is removed. On success *library is the caller's, for
 * cellar_library_destroy, before the memory goes. CELLAR_INVALID, CELLAR_NO_MEMORY; CELLAR_UNSUPPORTED:
 * a store, and external layers; CELLAR_IO, CELLAR_NOT_FOUND: the folder; CELLAR_BUSY: another library
 * has it, or a step is open.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_create(cellar_memory *memory,
                                                               const cellar_library_config *config,
                                                               cellar_library **library,
                                                               cellar_error *error);

/*
 * Forget the retained sequences and give everything back; files stay, running sequences too. No step
 * may be open. NULL is allowed.
 */
CELLAR_API void cellar_library_destroy(cellar_library *library);

/*
 * What cellar_library_attach would find for a prompt: tokens [n_tokens], of which at most `most` are to
 * be reused (n_tokens - 1, if the last one has to be read for its logits). Changes nothing. CELLAR_INVALID,
 * CELLAR_NO_MEMORY. Cost: log(entries) comparisons of tokens, which go on where the last one ended, and
 * a question to the memory for each entry that may be worth more than the best so far.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_find(
    const cellar_library *library, const cellar_prefix_key *key, const cellar_token *tokens,
    uint32_t n_tokens, uint32_t most, cellar_prefix *out, cellar_error *error);

/*
 * Begin a running sequence. `seq` (below first_seq) holds nothing; it comes to hold the first out->reused
 * tokens: a fork of a sequence in the cells, running ones included, or loaded from a store. What
 * tokens [n_tokens] say further is noted as what it is about to read. What could not be read, or has
 * no room, makes less reused, and the reason says so; it is no failure. CELLAR_INVALID, CELLAR_BUSY,
 * CELLAR_NO_MEMORY; CELLAR_FULL: n_entries or index_bytes are used up by running and pinned sequences.
 * Cost: as cellar_library_find and cellar_copy; from a store, loading. Retained sequences may be evicted
 * to make room.
 */
CELLAR_API CELLAR_MUST_USE cellar_status
cellar_library_attach(cellar_library *library, const cellar_prefix_key *key, cellar_seq seq,
                      const cellar_token *tokens, uint32_t n_tokens, uint32_t most,
                      cellar_prefix *out, cellar_error *error);

/*
 * A running sequence has read n_tokens more, and they are committed. tokens [n_tokens], or NULL: those
 * that it was about to read. Token i of a sequence stands at position i. CELLAR_INVALID, also when the
 * memory does not hold so many; CELLAR_NO_MEMORY; CELLAR_FULL: index_bytes; the sequence then stays
 * known as far as it was. Cost: the new tokens, seldom a move within the index.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_extend(cellar_library *library,
                                                               cellar_seq seq,
                                                               const cellar_token *tokens,
                                                               uint32_t n_tokens,
                                                               cellar_error *error);

/*
 * A running sequence stands for its first n_tokens only: it was rewound, or what follows is no plain
 * text any more (shifted, say: then it must not be extended again). CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_cut(cellar_library *library, cellar_seq seq,
                                                            uint32_t n_tokens, cellar_error *error);

/*
 * End a running sequence and keep what it has read, also if that is not all it was about to read. The
 * memory forgets `seq`; its cells are held under a name of the library. *entry (may be NULL): its
 * number; 0: it has read nothing. An older one that it makes superfluous goes. CELLAR_INVALID,
 * CELLAR_BUSY, CELLAR_NO_MEMORY. Cost: as cellar_copy.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_retain(cellar_library *library,
                                                               cellar_seq seq, uint64_t *entry,
                                                               cellar_error *error);

/* End a running sequence and keep nothing. What `seq` holds in the memory stays. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_release(cellar_library *library,
                                                                cellar_seq seq,
                                                                cellar_error *error);

/*
 * cellar_begin; while it says CELLAR_FULL, the retained sequence that was not used for longest is
 * evicted from the cells, pinned ones never, and it is tried again. What is evicted goes to the store in
 * RAM, to the folder, or is lost. Statuses of cellar_begin.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_begin(cellar_library *library,
                                                              const cellar_batch *batch,
                                                              cellar_error *error);

/*
 * Evict likewise until n_cells are free in the pool, in every group that attends to everything.
 * CELLAR_FULL: error->at cells are still missing; what was evicted is. CELLAR_INVALID, CELLAR_BUSY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_make_room(cellar_library *library,
                                                                  uint32_t pool, uint32_t n_cells,
                                                                  cellar_error *error);

/*
 * Evict one entry from the cells, pinned or not. CELLAR_NOT_FOUND; CELLAR_REFUSED: it is running;
 * CELLAR_BUSY.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_evict(cellar_library *library,
                                                              uint64_t entry, cellar_error *error);

/* Forget an entry wherever it is, its file too. Statuses as before; CELLAR_IO: the file stays. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_drop(cellar_library *library,
                                                             uint64_t entry, cellar_error *error);

/*
 * Pin an entry, or not any more: nothing evicts it from where it is. A running one stays pinned when it
 * is retained. CELLAR_NOT_FOUND.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_pin(cellar_library *library, uint64_t entry,
                                                            bool is_pinned, cellar_error *error);

/*
 * Write what is retained or in RAM, and not yet in the folder, to files, the last used first, until
 * most_bytes are written (at least one file, if there is any to write). *n_bytes (may be NULL): what was
 * written; 0: nothing is left to do. Each file appears whole or not at all. CELLAR_UNSUPPORTED: no
 * folder; CELLAR_IO, CELLAR_BUSY, CELLAR_NO_MEMORY: what was written before stays.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_persist(cellar_library *library,
                                                                uint64_t most_bytes,
                                                                uint64_t *n_bytes,
                                                                cellar_error *error);

/*
 * Sharing between processes. A caller who has a store of its own, on a network say, carries parts of what
 * was read from one library to another: export writes one, supply takes one in. Nothing is called
 * back: the caller decides when it waits for its store, and on which thread; library and memory are only needed
 * for the two calls. docs/shared-tier.md is such a store.
 */

/*
 * Can a part hold a stretch of positions alone? True where every group attends to everything. Else (windows,
 * states) a part is a whole beginning, and ends where a sequence can go on.
 */
CELLAR_API bool cellar_library_divides(const cellar_library *library);

/*
 * Write what has to be equal beside the tokens, the library's own facts included: bytes that are equal if and only if the
 * keys are. For names in a store; the parts have the key in themselves as well. CELLAR_INVALID,
 * CELLAR_NO_MEMORY; CELLAR_IO: the writer failed.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_write_key(const cellar_library *library,
                                                                  const cellar_prefix_key *key,
                                                                  const cellar_writer *writer,
                                                                  cellar_error *error);

/*
 * Write tokens [from, to) of an entry that is in the cells, running or not: a session of one sequence with
 * the key as facts and all tokens before `to` as its log. CELLAR_NOT_FOUND: no such entry; CELLAR_REFUSED:
 * it is not in the cells, or (error->at: the largest place before it) cannot be gone on from at `to`;
 * CELLAR_INVALID also: from > 0 where sequences do not divide. CELLAR_FULL, CELLAR_BUSY, CELLAR_NO_MEMORY;
 * CELLAR_IO: the writer failed. Cost: a fork, and writing the rows.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_export(cellar_library *library,
                                                               uint64_t entry, uint32_t from,
                                                               uint32_t to,
                                                               const cellar_writer *writer,
                                                               cellar_error *error);

/*
 * Take a part in: bytes [size] from anywhere. It has to go on where the running sequence `seq` ends, or before, and
 * to hold tokens that this is about to read (those of cellar_library_attach). Everything is checked as
 * in cellar_load_session, every token is compared. *n_ready (may be NULL): how many tokens the sequence has read
 * now. Retained sequences may be evicted to make room. CELLAR_CORRUPT, CELLAR_UNSUPPORTED, CELLAR_MISMATCH: the part is damaged, or of another
 * model, key or text; CELLAR_INVALID also: there is a gap before it. CELLAR_FULL, CELLAR_BUSY,
 * CELLAR_NO_MEMORY. The sequence is then as it was. Cost: loading the rows.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_supply(cellar_library *library,
                                                               cellar_seq seq, const void *bytes,
                                                               size_t size, uint32_t *n_ready,
                                                               cellar_error *error);

/* A sequence that the library knows. */
typedef struct cellar_entry {
    uint64_t entry;     /* its number, > 0; never given twice */
    uint64_t last_used; /* larger: later */
    cellar_seq seq;     /* its name in the memory; -1: it is not in the cells */
    bool is_running;    /* `seq` is the caller's; else the library's */
    bool is_pinned;
    bool is_shared;             /* as cellar_prefix_key */
    uint32_t n_tokens;          /* that it has read */
    uint32_t n_planned;         /* of a running one: that it is about to read, those included */
    uint64_t ram_bytes;         /* in the store in RAM; 0: not there */
    uint64_t disk_bytes;        /* of its file; 0: there is none */
    const cellar_token *tokens; /* [n_planned] valid until the library changes */
    const void *domain;         /* [domain_size] likewise */
    size_t domain_size;
} cellar_entry;

/* Return false to stop. The library must not be changed meanwhile. */
typedef bool (*cellar_entry_visitor)(void *context, const cellar_entry *entry);

/* Show every entry, key by key, in the order of their tokens. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_visit(const cellar_library *library,
                                                              cellar_entry_visitor visitor,
                                                              void *context, cellar_error *error);

typedef struct cellar_library_statistics {
    uint32_t n_entries, n_running, n_retained, n_in_ram, n_on_disk, n_pinned;
    uint64_t index_bytes, ram_bytes, disk_bytes; /* used now */
    /* since the library was made: */
    uint64_t n_attached;                         /* sequences */
    uint64_t n_tokens_asked, n_tokens_reused;    /* of these */
    uint64_t by_source[CELLAR_PREFIX_N_SOURCES]; /* of these */
    uint64_t by_reason[CELLAR_PREFIX_N_REASONS]; /* of these */
    uint64_t n_evicted;                          /* from the cells */
    uint64_t n_to_ram, n_to_disk;                /* written there */
    uint64_t n_lost;                             /* gone from the last place, for want of room */
    uint64_t n_damaged;                          /* stored ones that were removed for that */
    uint64_t n_failures;                         /* stored ones not written or not read */
} cellar_library_statistics;

/* Count. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_stats(const cellar_library *library,
                                                              cellar_library_statistics *out,
                                                              cellar_error *error);

/*
 * Check what the library promises of itself, the expensive way: order, sums, limits, and that the
 * memory holds what entries say. CELLAR_CORRUPT names what fails. For tests.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_library_check(const cellar_library *library,
                                                              cellar_error *error);

/* ---- inspection ------------------------------------------------------------------------------ */

/* A group of layers that remember alike. */
typedef struct cellar_group_info {
    cellar_layer_kind kind; /* ATTENTION or RECURRENT */
    cellar_window window;
    uint32_t n_layers;
    uint32_t n_cells; /* over all pools, cells that only fill up blocks included; or states */
    uint32_t n_used;  /* held by a sequence or a checkpoint, or reserved by the open step */
    uint32_t n_free;
    uint64_t row_bytes; /* of one cell over all layers; of one state, padding not counted */
    bool is_external;
} cellar_group_info;

/* How many groups there are; 0 for NULL. */
CELLAR_API uint32_t cellar_count_groups(const cellar_memory *memory);

/* Describe a group. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_get_group(const cellar_memory *memory,
                                                          uint32_t group, cellar_group_info *out,
                                                          cellar_error *error);

/* The group of a layer; -1: it belongs to none, or there is no such layer. */
CELLAR_API int32_t cellar_group_of_layer(const cellar_memory *memory, uint32_t layer);

typedef struct cellar_statistics {
    uint32_t n_cells; /* of the largest attention group; of the states if there is none */
    uint32_t n_used;  /* of these, held by at least one sequence, or reserved by the open step */
    uint32_t n_free;
    uint32_t n_shared;     /* held more than once */
    uint32_t longest_free; /* the longest stretch of free cells */
    uint32_t n_sequences;  /* that hold something */
    uint64_t n_runs;       /* over all groups */
    uint32_t n_checkpoints;
    uint32_t n_moves; /* that wait for the engine */
    /*
     * Places where a sequence goes on in cells that do not follow, for each 32 cells held; 0..1. Each
     * counts once, however many share it, and not at all where sequences part.
     */
    float fragmentation;
    bool wants_compaction; /* fragmentation >= cellar_config.compaction_threshold > 0 */
    cellar_sizes sizes;    /* bytes held now, those in stores of the caller included */
    uint64_t budget_bytes;
    uint64_t rows_written; /* K/V rows of one layer written since creation; sharing writes none */
    uint64_t rows_moved;   /* copied between cells: between pools, settling, compacting, resizing */
    uint64_t cells_reclaimed;     /* given up behind windows; a shared one once for each holder */
    uint64_t checkpoints_dropped; /* for want of room */
} cellar_statistics;

/* Count. Cost: a scan of the free map and of the sequences. CELLAR_INVALID. */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_stats(const cellar_memory *memory,
                                                      cellar_statistics *out, cellar_error *error);

/*
 * What cellar_visit_plan shows of a configuration, of a memory as it is now; also runs and steps.
 * CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_visit_bytes(const cellar_memory *memory,
                                                            cellar_bytes_visitor visitor,
                                                            void *context, cellar_error *error);

/* A run: cells cell..cell+len-1, of which cell + i stands at pos + i * step in sequence seq. */
typedef struct cellar_run {
    cellar_seq seq;
    cellar_pos pos;
    uint32_t cell, len;
    uint32_t step;    /* 1; or 0: tokens that share a position */
    cellar_pos shift; /* how far from where the keys were rotated: pos - stored_pos */
    uint32_t group;
} cellar_run;

/* A cell that is held (in the recurrent group: a state; it stands at its last token's position). */
typedef struct cellar_cell {
    uint32_t cell;
    uint32_t refs;         /* runs that hold it (and checkpoints, and the open step) */
    cellar_pos stored_pos; /* the position its keys are rotated for */
    cellar_token token;
    cellar_point point; /* the same position without M-RoPE */
    uint32_t group, pool;
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

/*
 * Show every cell that is held or reserved, group by group, in the order of their numbers.
 * CELLAR_INVALID.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_visit_cells(const cellar_memory *memory,
                                                            cellar_cell_visitor visitor,
                                                            void *context, cellar_error *error);

/* Takes one line of text, without the line feed. Return false to stop. */
typedef bool (*cellar_line_writer)(void *context, const char *line);

/*
 * A map of the memory for people: for each pool of each group a head line and lines of 64 cells,
 * each cell one character: `.` free, `+` held more than once, `?` reserved by the open step, `#`
 * held by a checkpoint only, else the last digit of its sequence's number. CELLAR_INVALID;
 * CELLAR_NO_MEMORY: a byte for each cell is asked of the allocator meanwhile.
 */
CELLAR_API CELLAR_MUST_USE cellar_status cellar_dump(const cellar_memory *memory,
                                                     cellar_line_writer write, void *context,
                                                     cellar_error *error);

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
