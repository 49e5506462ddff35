/*
 * placement.c: the search for free stretches.
 *
 * Each preference of placement.h is the same search over a filtered view of the free map: the
 * filter hides blocks that somebody claims, or that are partly used. Choosing the longest stretches
 * exactly would need a sort; two scans with lengths counted by powers of two come within a factor
 * of two of the fewest. A bound on the longest stretch, once it is known, ends scans early: nothing that is
 * wanted longer has to be looked for, and as soon as there are enough of the longest there is no better choice.
 * It is lost when a cell is freed, so that the sequences of one step share one.
 */
#include "placement.h"

#include <assert.h>

#include "bitmap.h"

enum filter { UNTOUCHED_BLOCKS, UNCLAIMED_BLOCKS, ALL_CELLS };

typedef struct search {
    cl_cells *cells; /* only the hints of its pool are changed */
    uint32_t pool;
    uint32_t owner;
    enum filter filter;
    uint32_t excluded, n_excluded; /* cells already chosen: [excluded, excluded + n_excluded) */
} search;

static uint64_t filter_half(const search *s, uint64_t word, uint32_t block)
{
    uint32_t shift = (block & 1) * CL_BLOCK;
    uint64_t half = word >> shift & 0xffffffffu;
    if (half == 0 || block >= s->cells->n_blocks || s->cells->pool_of[block] != s->pool) return 0;
    if (s->filter == ALL_CELLS) return half << shift;
    uint32_t claim = s->cells->claims[block];
    if (claim != 0 && claim != s->owner) return 0;
    if (s->filter == UNTOUCHED_BLOCKS && (claim != 0 || half != 0xffffffffu)) return 0;
    return half << shift;
}

/* Word w of the free map as this search sees it. */
static uint64_t filtered_word(const search *s, uint32_t w)
{
    uint64_t word = s->cells->free_map[w];
    if (word == 0) return 0;
    if (s->n_excluded) word &= ~cl_bitmap_mask(w, s->excluded, s->n_excluded);
    if (s->filter == ALL_CELLS && s->cells->n_pools == 1) return word;
    return filter_half(s, word, 2 * w) | filter_half(s, word, 2 * w + 1);
}

static const cl_pool *pool_of(const search *s)
{
    return &s->cells->pools[s->pool];
}

/* Words of the free map that the pool's blocks lie in end here. */
static uint32_t end_word(const search *s)
{
    return pool_of(s)->end_block / 2 + pool_of(s)->end_block % 2;
}

/* The next stretch at or after *at, cut off somewhere beyond `enough` cells; moves *at behind it. */
static bool next_stretch(const search *s, uint32_t enough, uint32_t *at, cl_stretch *out)
{
    uint32_t w = *at / 64;
    if (w >= end_word(s)) return false;
    uint64_t word = filtered_word(s, w) & (~0ull << (*at % 64));
    while (word == 0) {
        if (++w >= end_word(s)) return false;
        word = filtered_word(s, w);
    }
    uint32_t first = w * 64 + (uint32_t)__builtin_ctzll(word);
    uint64_t taken = ~word & (~0ull << (first % 64)); /* zeros of the view behind `first` */
    while (taken == 0) {
        if (++w >= end_word(s) || w * 64 - first > enough) break;
        taken = ~filtered_word(s, w);
    }
    uint32_t end = w * 64 + (taken ? (uint32_t)__builtin_ctzll(taken) : 0);
    *out = (cl_stretch){first, end - first};
    *at = end;
    return true;
}

/* The block before which this view is known to be empty; NULL: only first_free is known. */
static uint32_t *hint_of(const search *s)
{
    cl_pool *pool = &s->cells->pools[s->pool];
    if (s->filter == UNTOUCHED_BLOCKS) return &pool->first_untouched;
    if (s->filter == UNCLAIMED_BLOCKS) return &pool->first_unclaimed;
    return NULL;
}

/* Where a search of this view may start. Where no stretch has the length of a block, none is untouched. */
static uint32_t start_of(const search *s)
{
    if (s->filter == UNTOUCHED_BLOCKS && pool_of(s)->longest_free < CL_BLOCK)
        return pool_of(s)->end_block * CL_BLOCK;
    const uint32_t *hint = hint_of(s);
    uint32_t known = hint ? *hint * CL_BLOCK : 0;
    return known > pool_of(s)->first_free ? known : pool_of(s)->first_free;
}

/* Look at the whole pool to know how long its stretches are, if that is not known. */
static void know_longest(const search *s)
{
    cl_pool *pool = &s->cells->pools[s->pool];
    const search all = {.cells = s->cells, .pool = s->pool, .filter = ALL_CELLS};
    cl_bitmap_runs runs = {0, 0};
    if (pool->longest_free != UINT32_MAX) return;
    for (uint32_t w = pool->first_free / 64; w < end_word(s); w++)
        cl_bitmap_add_word(&runs, filtered_word(&all, w));
    pool->longest_free = runs.longest;
}

/*
 * One stretch of at least n cells: the first that fits. A search that takes whatever comes, and passes
 * blocks, has proved that those are empty in this view.
 */
static bool first_fit(const search *s, uint32_t n, cl_stretch *out)
{
    uint32_t at = start_of(s), *hint = hint_of(s);
    bool is_found = false;
    cl_stretch found;
    if (n > pool_of(s)->longest_free) return false;
    while (!is_found && next_stretch(s, n, &at, &found))
        is_found = found.len >= n;
    if (is_found) *out = (cl_stretch){found.cell, n};
    if (hint && n <= (s->filter == UNTOUCHED_BLOCKS ? CL_BLOCK : 1))
        *hint = is_found ? found.cell / CL_BLOCK : pool_of(s)->end_block;
    return is_found;
}

/* Has a view as many cells? */
static bool has_cells(const search *s, uint32_t wanted)
{
    uint32_t total = 0, at = start_of(s), *hint = hint_of(s);
    cl_stretch found;
    while (total < wanted && next_stretch(s, wanted, &at, &found))
        total += found.len;
    if (hint && total == 0) *hint = pool_of(s)->end_block;
    return total >= wanted;
}

static uint32_t length_class(uint32_t len)
{
    return 31 - (uint32_t)__builtin_clz(len);
}

/* Take stretches of one length class, or of all above it, until *wanted is 0. */
static uint32_t collect(const search *s, uint32_t class, bool above, uint32_t *wanted,
                        cl_stretch *out)
{
    uint32_t n_out = 0, at = start_of(s);
    cl_stretch found;
    while (*wanted > 0 && next_stretch(s, UINT32_MAX, &at, &found)) {
        uint32_t its = length_class(found.len);
        if (above ? its <= class : its != class) continue;
        if (found.len > *wanted) found.len = *wanted;
        out[n_out++] = found;
        *wanted -= found.len;
    }
    return n_out;
}

/* The longest stretches of this view, until *wanted is 0 or the view is used up. */
static uint32_t longest_first(const search *s, uint32_t *wanted, cl_stretch *out)
{
    const uint32_t top = length_class(pool_of(s)->longest_free), n = *wanted;
    uint64_t in_class[32] = {0};
    uint32_t at = start_of(s);
    cl_stretch found;
    while (in_class[top] < n && next_stretch(s, UINT32_MAX, &at, &found))
        in_class[length_class(found.len)] += found.len;
    uint32_t class = top;
    uint64_t sum = in_class[top];
    while (class > 0 && sum < n)
        sum += in_class[--class];
    uint32_t n_out = class < top ? collect(s, class, true, wanted, out) : 0;
    return n_out + collect(s, class, false, wanted, out + n_out);
}

/* Cells right behind the tail that are free and claimed by nobody else. */
static cl_stretch behind_tail(const cl_cells *cells, const cl_request *request)
{
    cl_stretch stretch = {0, 0};
    if (request->tail == CL_NO_CELL) return stretch;
    stretch.cell = request->tail + 1;
    while (stretch.len < request->n) {
        uint32_t cell = stretch.cell + stretch.len;
        if (cell >= cells->n || !cl_bitmap_get(cells->free_map, cell)) break;
        if (cells->pool_of[cell / CL_BLOCK] != request->pool) break;
        uint32_t claim = cells->claims[cell / CL_BLOCK];
        if (claim != 0 && claim != request->owner) break;
        stretch.len++;
    }
    return stretch;
}

uint32_t cl_placement_choose(cl_cells *cells, const cl_request *request, cl_stretch *out)
{
    assert(request->n <= cells->pools[request->pool].n_free);
    uint32_t n_out = 0, wanted = request->n;
    cl_stretch behind = behind_tail(cells, request);
    if (behind.len > 0) out[n_out++] = behind;
    wanted -= behind.len;
    if (wanted == 0) return n_out;

    search s = {cells, request->pool, request->owner, UNTOUCHED_BLOCKS, behind.cell, behind.len};
    if (wanted > CL_BLOCK) know_longest(&s); /* what hints cannot say */
    if (first_fit(&s, wanted, &out[n_out])) return n_out + 1;
    s.filter = UNCLAIMED_BLOCKS;
    if (wanted > 1) know_longest(&s);
    if (first_fit(&s, wanted, &out[n_out])) return n_out + 1;

    /* Several stretches, all of one view: the narrowest that has enough. */
    s.filter = UNTOUCHED_BLOCKS;
    if (!has_cells(&s, wanted)) s.filter = UNCLAIMED_BLOCKS;
    if (s.filter == UNCLAIMED_BLOCKS && !has_cells(&s, wanted)) s.filter = ALL_CELLS;
    if (s.filter == ALL_CELLS && first_fit(&s, wanted, &out[n_out])) return n_out + 1;
    n_out += longest_first(&s, &wanted, out + n_out);
    assert(wanted == 0);
    return n_out;
}

bool cl_placement_choose_one(cl_cells *cells, const cl_request *request, cl_stretch *out)
{
    if (request->n > cells->pools[request->pool].n_free) return false;
    cl_stretch behind = behind_tail(cells, request);
    if (behind.len == request->n) {
        *out = behind;
        return true;
    }
    search s = {cells, request->pool, request->owner, UNTOUCHED_BLOCKS, 0, 0};
    if (first_fit(&s, request->n, out)) return true;
    s.filter = UNCLAIMED_BLOCKS;
    if (first_fit(&s, request->n, out)) return true;
    s.filter = ALL_CELLS;
    return first_fit(&s, request->n, out);
}

uint32_t cl_placement_claim(const cl_cells *cells, uint32_t owner, uint32_t last)
{
    uint32_t block = last / CL_BLOCK, next = last + 1;
    if (cells->claims[block] != 0 && cells->claims[block] != owner) return CL_NO_BLOCK;
    if (next / CL_BLOCK != block) return CL_NO_BLOCK;
    return cl_bitmap_get(cells->free_map, next) ? block : CL_NO_BLOCK;
}
