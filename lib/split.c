/*
 * split.c: which tokens of a batch are computed together.
 *
 *   simple        in the order of the batch, n_ubatch at a time
 *   equal         the same number of tokens from each sequence that takes part in the micro-batch, those
 *                 of one sequence side by side: what scans of recurrent layers and streams want
 *   by sequence   tokens of one sequence only
 *
 * A sequence's tokens always keep their order. Tokens that stand in several sequences belong to all of
 * them at once: the unit is the set of sequences, and two sets that overlap never meet in one
 * micro-batch of the latter two kinds. Choosing writes an order; afterwards all arrays are brought into
 * it, so that nobody else has to know how a batch was cut.
 */
#include <string.h>

#include "error.h"
#include "sort.h"
#include "step.h"

/* Tokens of each member, in order, and how far they have been given out. */
typedef struct splitter {
    cl_step *step;
    uint32_t n_ubatch;
    uint32_t *order;       /* [n_tokens] the result */
    uint32_t n_order;      /* given out so far */
    uint32_t *token_begin; /* [n_members + 1] into tokens_of */
    uint32_t *tokens_of;   /* [n_memberships] */
    uint32_t *cursor;      /* [n_members] next of its tokens, into tokens_of */
    int64_t *by_pool;      /* [n_members] pool and member, in order of pool */
    uint32_t *units;       /* [n_members] first members of the sets chosen for this micro-batch */
    uint32_t *used_in;     /* [n_members] micro-batch in which it was chosen last, + 1 */
    void *moved;           /* an array being brought into order */
    uint32_t *moved_begin, *moved_members;
} splitter;

static cellar_status carve(splitter *s, cl_alloc *alloc, cellar_error *error)
{
    cl_step *step = s->step;
    size_t n = step->n_tokens, n_members = step->n_members;
    size_t n_memberships = step->member_begin[n], total = 0;
    cl_arena *arena = &step->split_arena;
    bool fits = cl_arena_add(&total, n, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_members + 1, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_memberships, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_members, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_members, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_members, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_members, sizeof(int64_t)) &&
                cl_arena_add(&total, n, sizeof(uint64_t)) &&
                cl_arena_add(&total, n + 1, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_memberships, sizeof(uint32_t));
    if (!fits || !cl_arena_reset(arena, alloc, total))
        return cl_error_no_memory(error, "splitting a batch", total);
    s->order = cl_arena_take(arena, n, sizeof(uint32_t));
    s->token_begin = cl_arena_take(arena, n_members + 1, sizeof(uint32_t));
    s->tokens_of = cl_arena_take(arena, n_memberships, sizeof(uint32_t));
    s->cursor = cl_arena_take(arena, n_members, sizeof(uint32_t));
    s->units = cl_arena_take(arena, n_members, sizeof(uint32_t));
    s->used_in = cl_arena_take(arena, n_members, sizeof(uint32_t));
    s->by_pool = cl_arena_take(arena, n_members, sizeof(int64_t));
    s->moved = cl_arena_take(arena, n, sizeof(uint64_t));
    s->moved_begin = cl_arena_take(arena, n + 1, sizeof(uint32_t));
    s->moved_members = cl_arena_take(arena, n_memberships, sizeof(uint32_t));
    return CELLAR_OK;
}

static uint32_t count_members(const cl_step *step, uint32_t token)
{
    return step->member_begin[token + 1] - step->member_begin[token];
}

static bool same_members(const cl_step *step, uint32_t a, uint32_t b)
{
    uint32_t n = count_members(step, a);
    return n == count_members(step, b) &&
           memcmp(step->member_of + step->member_begin[a], step->member_of + step->member_begin[b],
                  n * sizeof *step->member_of) == 0;
}

/* ---- by sets of sequences -------------------------------------------------------------------- */

/* List the tokens of each member, and the members pool by pool. */
static void list_tokens(splitter *s)
{
    cl_step *step = s->step;
    uint32_t n_members = step->n_members, at = 0;
    for (uint32_t m = 0; m < n_members; m++) {
        s->token_begin[m] = s->cursor[m] = at;
        at += step->members[m].n_tokens;
        s->used_in[m] = 0;
        s->by_pool[m] = ((int64_t)step->members[m].pool << 32) | m;
    }
    s->token_begin[n_members] = at;
    for (uint32_t i = 0; i < step->n_tokens; i++)
        for (uint32_t k = step->member_begin[i]; k < step->member_begin[i + 1]; k++)
            s->tokens_of[s->cursor[step->member_of[k]]++] = i;
    for (uint32_t m = 0; m < n_members; m++)
        s->cursor[m] = s->token_begin[m];
    cl_sort(s->by_pool, n_members);
}

/*
 * The token that member m gives next, if it is next for all of its members too and none of them is in
 * micro-batch `ubatch` yet; UINT32_MAX otherwise.
 */
static uint32_t ready_token(const splitter *s, uint32_t m, uint32_t ubatch)
{
    const cl_step *step = s->step;
    if (s->cursor[m] == s->token_begin[m + 1]) return UINT32_MAX;
    uint32_t token = s->tokens_of[s->cursor[m]];
    for (uint32_t k = step->member_begin[token]; k < step->member_begin[token + 1]; k++) {
        uint32_t other = step->member_of[k];
        if (s->used_in[other] == ubatch + 1 || s->tokens_of[s->cursor[other]] != token)
            return UINT32_MAX;
    }
    return token;
}

/* How many tokens in a row, from its next on, member m has with the same set of sequences. */
static uint32_t count_alike(const splitter *s, uint32_t m, uint32_t enough)
{
    uint32_t first = s->cursor[m], n = 1;
    while (n < enough && first + n < s->token_begin[m + 1] &&
           same_members(s->step, s->tokens_of[first], s->tokens_of[first + n]))
        n++;
    return n;
}

/* Give out n tokens of member m's set as one segment. */
static void give_out(splitter *s, uint32_t m, uint32_t n, uint32_t ubatch)
{
    cl_step *step = s->step;
    uint32_t in_ubatch = s->n_order - step->ubatch_begin[ubatch];
    step->segments[step->n_segments++] = (cellar_segment){step->members[m].id, in_ubatch, n};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t token = s->tokens_of[s->cursor[m]];
        s->order[s->n_order++] = token;
        for (uint32_t k = step->member_begin[token]; k < step->member_begin[token + 1]; k++)
            s->cursor[step->member_of[k]]++;
    }
}

/* One micro-batch of at most max_units sets with equally many tokens each. */
static void take_equal(splitter *s, uint32_t ubatch, uint32_t max_units)
{
    cl_step *step = s->step;
    uint32_t n_units = 0, n_each = s->n_ubatch;
    for (uint32_t i = 0; i < step->n_members && n_units < max_units; i++) {
        uint32_t m = (uint32_t)s->by_pool[i], token = ready_token(s, m, ubatch);
        if (token == UINT32_MAX) continue;
        uint32_t first = step->member_of[step->member_begin[token]];
        for (uint32_t k = step->member_begin[token]; k < step->member_begin[token + 1]; k++)
            s->used_in[step->member_of[k]] = ubatch + 1;
        s->units[n_units++] = first;
        uint32_t alike = count_alike(s, first, n_each);
        if (alike < n_each) n_each = alike;
    }
    if (n_each > s->n_ubatch / n_units) n_each = s->n_ubatch / n_units;
    for (uint32_t u = 0; u < n_units; u++)
        give_out(s, s->units[u], n_each, ubatch);
}

static void split_by_sets(splitter *s, uint32_t max_units)
{
    cl_step *step = s->step;
    list_tokens(s);
    while (s->n_order < step->n_tokens) {
        uint32_t ubatch = step->n_ubatches++;
        step->ubatch_begin[ubatch] = s->n_order;
        step->segment_begin[ubatch] = step->n_segments;
        take_equal(s, ubatch, max_units);
    }
}

/* ---- simple ---------------------------------------------------------------------------------- */

static void split_simply(splitter *s)
{
    cl_step *step = s->step;
    for (uint32_t i = 0; i < step->n_tokens; i++) {
        s->order[i] = i;
        bool is_first = i % s->n_ubatch == 0;
        if (is_first) {
            step->ubatch_begin[step->n_ubatches] = i;
            step->segment_begin[step->n_ubatches++] = step->n_segments;
        }
        if (is_first || !same_members(step, i - 1, i)) {
            cellar_seq id = step->members[step->member_of[step->member_begin[i]]].id;
            step->segments[step->n_segments++] = (cellar_segment){id, i % s->n_ubatch, 0};
        }
        step->segments[step->n_segments - 1].n_tokens++;
    }
    s->n_order = step->n_tokens;
}

/* ---- into the order of computation ----------------------------------------------------------- */

static void move_array(const splitter *s, void *array, size_t size)
{
    if (!array) return;
    unsigned char *from = array, *to = s->moved;
    for (uint32_t i = 0; i < s->step->n_tokens; i++)
        memcpy(to + i * size, from + s->order[i] * size, size);
    memcpy(array, to, s->step->n_tokens * size);
}

static void move_members(const splitter *s)
{
    cl_step *step = s->step;
    uint32_t at = 0;
    for (uint32_t i = 0; i < step->n_tokens; i++) {
        uint32_t token = s->order[i], n = count_members(step, token);
        s->moved_begin[i] = at;
        memcpy(s->moved_members + at, step->member_of + step->member_begin[token],
               n * sizeof *step->member_of);
        at += n;
    }
    s->moved_begin[step->n_tokens] = at;
    memcpy(step->member_begin, s->moved_begin, (step->n_tokens + 1) * sizeof *step->member_begin);
    memcpy(step->member_of, s->moved_members, at * sizeof *step->member_of);
}

static void apply_order(const splitter *s)
{
    cl_step *step = s->step;
    move_array(s, step->indices, sizeof *step->indices);
    move_array(s, step->positions, sizeof *step->positions);
    move_array(s, step->points, sizeof *step->points);
    move_array(s, step->tokens, sizeof *step->tokens);
    move_array(s, step->checkpoints, sizeof *step->checkpoints);
    move_members(s);
}

cellar_status cl_step_split(cl_step *step, const cl_step_rules *rules, cl_alloc *alloc,
                            cellar_error *error)
{
    splitter s = {.step = step, .n_ubatch = rules->n_ubatch};
    CL_TRY(carve(&s, alloc, error));
    step->n_ubatches = step->n_segments = 0;
    if (rules->split == CELLAR_SPLIT_SIMPLE) {
        split_simply(&s);
    } else {
        split_by_sets(&s, rules->split == CELLAR_SPLIT_EQUAL ? rules->n_ubatch : 1);
        apply_order(&s);
    }
    step->ubatch_begin[step->n_ubatches] = step->n_tokens;
    step->segment_begin[step->n_ubatches] = step->n_segments;
    return CELLAR_OK;
}
