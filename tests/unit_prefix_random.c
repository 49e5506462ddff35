/*
 * unit_prefix_random.c: random histories of a prefix library, beside a plain list of texts.
 *
 * The list has the tokens of every entry and nothing else: no order, no tree. What a prompt can reuse is found by comparing it with
 * all of them and asking the memory of each. After every operation the library shows what it knows,
 * which must be in the list as it is; what it no longer knows must have been given up for a reason. Contents are
 * checked on the way (support_prefix.h). A failure prints the seed and the operation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_folder.h"
#include "support_prefix.h"

enum { LONGEST = 64, RECORDS = 400, RUNNING = 3, KEYS = 3 };

typedef struct record {
    uint64_t number;
    uint32_t key, n_ready, n_planned;
    cellar_token tokens[LONGEST];
    bool is_running, is_pinned, is_shown, is_stored;
    cellar_seq seq; /* -1: not in the cells */
} record;

typedef struct history {
    world w;
    cellar_prefix_key keys[KEYS];
    record records[RECORDS];
    uint32_t n_records;
    uint32_t n_evicted_away; /* evicted when told to, with no store to go to */
    uint32_t state;          /* of the random numbers */
    bool is_bounded;         /* entries may be lost for want of room */
    bool is_exact;           /* what is stored is worth what it was in the cells */
} history;

static cellar_error error;

static void must(cellar_status status)
{
    if (status != CELLAR_OK) fail_msg("%s: %s", cellar_status_text(status), error.message);
}

static uint32_t below(history *h, uint32_t n)
{
    h->state = h->state * 1664525u + 1013904223u;
    return (h->state >> 8) % n;
}

static void make_tokens(history *h, cellar_token *to, uint32_t n)
{
    /* Mostly one of two stems, then one of few tokens: much in common, many places to part. */
    cellar_token stem = (cellar_token)below(h, 2) * 100;
    uint32_t n_stem = below(h, n + 1);
    for (uint32_t i = 0; i < n; i++)
        to[i] = i < n_stem ? stem + (cellar_token)i : (cellar_token)below(h, 3);
}

/* ---- the list ---------------------------------------------------------------------------------- */

static uint32_t count_common(const record *r, const cellar_token *tokens, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && i < r->n_planned && r->tokens[i] == tokens[i])
        i++;
    return i;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static record *find_record(history *h, uint64_t number)
{
    for (uint32_t i = 0; i < h->n_records; i++)
        if (h->records[i].number == number) return &h->records[i];
    return NULL;
}

static record *find_running(history *h, cellar_seq seq)
{
    for (uint32_t i = 0; i < h->n_records; i++)
        if (h->records[i].is_running && h->records[i].seq == seq) return &h->records[i];
    return NULL;
}

static bool is_owned_alike(const cellar_prefix_key *key, const cellar_entry *entry)
{
    if (key->is_shared || entry->is_shared) return key->is_shared == entry->is_shared;
    return key->domain_size == entry->domain_size &&
           (key->domain_size == 0 || memcmp(key->domain, entry->domain, key->domain_size) == 0);
}

static bool compare_entry(void *context, const cellar_entry *entry)
{
    history *h = context;
    record *r = find_record(h, entry->entry);
    assert_non_null(r);
    assert_false(r->is_shown);
    r->is_shown = true;
    assert_int_equal(entry->n_tokens, r->n_ready);
    assert_int_equal(entry->n_planned, r->n_planned);
    assert_memory_equal(entry->tokens, r->tokens, r->n_planned * sizeof *r->tokens);
    assert_int_equal(entry->is_running, r->is_running);
    assert_int_equal(entry->is_pinned, r->is_pinned);
    assert_true(is_owned_alike(&h->keys[r->key], entry));
    if (r->is_running) assert_int_equal(entry->seq, r->seq);
    r->seq = entry->seq;
    r->is_stored = entry->ram_bytes > 0 || entry->disk_bytes > 0;
    assert_true(r->seq >= 0 || r->is_stored);
    if (r->seq >= 0) world_expect(&h->w, r->seq, r->tokens, r->is_running ? 0 : r->n_ready);
    return true;
}

/* Does another entry of the key begin with all that this one had? */
static bool is_contained(const history *h, const record *r)
{
    for (uint32_t i = 0; i < h->n_records; i++) {
        const record *other = &h->records[i];
        if (other != r && other->is_shown && other->key == r->key &&
            count_common(other, r->tokens, r->n_ready) == r->n_ready)
            return true;
    }
    return false;
}

/* The library shows all that it knows; the list follows. */
static void compare_all(history *h)
{
    for (uint32_t i = 0; i < h->n_records; i++)
        h->records[i].is_shown = false;
    must(cellar_library_visit(h->w.library, compare_entry, h, &error));
    if (!h->is_bounded) assert_int_equal(world_stats(&h->w).n_lost, h->n_evicted_away);
    for (uint32_t i = h->n_records; i-- > 0;) {
        record *r = &h->records[i];
        if (r->is_shown) continue;
        assert_false(r->is_running || r->is_pinned);
        assert_true(h->is_bounded || is_contained(h, r));
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->n_records; i++)
        if (h->records[i].is_shown) h->records[n++] = h->records[i];
    h->n_records = n;
    world_check(&h->w);
}

/* What a record is worth to a prompt with which it has so many tokens in common. */
static uint32_t worth(const history *h, const record *r, uint32_t common)
{
    cellar_pos from;
    uint32_t n = smaller(common, r->n_ready);
    if (r->seq < 0 || r->is_stored) return n; /* at most */
    if (n == 0) return 0;
    if (cellar_can_continue(h->w.small.memory, r->seq, (cellar_pos)n, &from, NULL) == CELLAR_OK)
        return n;
    return (uint32_t)from;
}

typedef struct expectation {
    uint32_t matched, reusable, coming, longest;
} expectation;

static expectation expect_of(const history *h, uint32_t key, const cellar_token *tokens, uint32_t n)
{
    expectation e = {0, 0, 0, 0};
    for (uint32_t i = 0; i < h->n_records; i++) {
        const record *r = &h->records[i];
        if (r->key != key) continue;
        uint32_t common = count_common(r, tokens, n), used = smaller(common, n - 1);
        if (common > e.longest) e.longest = common;
        if (smaller(used, r->n_ready) > e.matched) e.matched = smaller(used, r->n_ready);
        if (r->is_running && used > r->n_ready && used > e.coming) e.coming = used;
        if (worth(h, r, used) > e.reusable) e.reusable = worth(h, r, used);
    }
    if (e.coming <= e.matched) e.coming = 0;
    return e;
}

static bool has_differing(const history *h, uint32_t key, const cellar_token *tokens, uint32_t n,
                          uint32_t at, cellar_token token)
{
    for (uint32_t i = 0; i < h->n_records; i++) {
        const record *r = &h->records[i];
        if (r->key == key && count_common(r, tokens, n) == at && r->n_planned > at &&
            r->tokens[at] == token)
            return true;
    }
    return false;
}

/* ---- operations -------------------------------------------------------------------------------- */

static void attach(history *h, cellar_seq seq)
{
    if (h->n_records == RECORDS) return;
    record r = {.key = below(h, KEYS), .seq = seq, .is_running = true};
    r.n_planned = 1 + below(h, LONGEST - 8);
    make_tokens(h, r.tokens, r.n_planned);
    uint32_t before = h->n_records;
    if (before > 0 && below(h, 2) == 0) { /* go on where another one is */
        const record *other = &h->records[below(h, before)];
        uint32_t n = smaller(below(h, other->n_planned + 1), r.n_planned);
        memcpy(r.tokens, other->tokens, n * sizeof *r.tokens);
        r.key = other->key;
    }
    expectation e = expect_of(h, r.key, r.tokens, r.n_planned);
    cellar_prefix told = world_attach(&h->w, &h->keys[r.key], seq, r.tokens, r.n_planned);
    if (h->is_bounded) { /* others may have been forgotten for the new one */
        assert_true(told.matched <= e.matched && told.reused <= e.reusable);
        assert_true(told.diverged_at <= (int64_t)e.longest);
    } else {
        assert_int_equal(told.matched, e.matched);
        assert_int_equal(told.coming, e.coming);
        assert_true(h->is_exact ? told.reused == e.reusable : told.reused <= e.reusable);
        if (told.diverged_at >= 0) {
            assert_int_equal(told.diverged_at, e.longest);
            assert_true(
                has_differing(h, r.key, r.tokens, r.n_planned, e.longest, told.diverged_token));
        }
    }
    assert_int_equal(told.reused > 0, told.source != CELLAR_PREFIX_FROM_NOWHERE);
    r.n_ready = told.reused;
    cellar_library_statistics stats = world_stats(&h->w);
    assert_true(stats.n_running <= RUNNING);
    r.number = told.entry; /* any: found below by its name */
    h->records[h->n_records++] = r;
}

typedef struct naming {
    cellar_seq seq;
    uint64_t number;
} naming;

static bool find_name(void *context, const cellar_entry *entry)
{
    naming *n = context;
    if (!entry->is_running || entry->seq != n->seq) return true;
    n->number = entry->entry;
    return false;
}

static void number_last(history *h, cellar_seq seq)
{
    naming n = {seq, 0};
    must(cellar_library_visit(h->w.library, find_name, &n, &error));
    assert_true(n.number > 0);
    h->records[h->n_records - 1].number = n.number;
}

static void read_on(history *h, record *r)
{
    uint32_t left = LONGEST - r->n_ready, n = r->n_ready + below(h, smaller(left, 12) + 1);
    if (n > r->n_planned || below(h, 6) == 0) { /* it goes on otherwise than was planned */
        for (uint32_t i = smaller(r->n_planned, n); i < n; i++)
            r->tokens[i] = (cellar_token)below(h, 3);
        if (n > r->n_ready && below(h, 2) == 0) {
            r->tokens[n - 1] = (cellar_token)below(h, 3) + 1000;
            r->n_planned = n;
        }
        if (n > r->n_planned) r->n_planned = n;
    }
    world_read(&h->w, r->seq, r->tokens, r->n_ready, n, below(h, 3) == 0);
    r->n_ready = n;
}

static void cut_off(history *h, record *r)
{
    cellar_pos from;
    if (r->n_ready == 0) return;
    must(cellar_rewind(h->w.small.memory, r->seq, (cellar_pos)below(h, r->n_ready + 1), &from,
                       &error));
    must(cellar_library_cut(h->w.library, r->seq, (uint32_t)from, &error));
    r->n_ready = r->n_planned = (uint32_t)from;
}

static void end(history *h, record *r)
{
    if (below(h, 4) > 0) {
        uint64_t number = world_retain(&h->w, r->seq);
        assert_int_equal(number, r->n_ready > 0 ? r->number : 0);
        r->is_running = false;
        r->n_planned = r->n_ready;
        if (number == 0) *r = h->records[--h->n_records];
        return;
    }
    must(cellar_library_release(h->w.library, r->seq, &error));
    must(cellar_remove(h->w.small.memory, r->seq, 0, -1, &error));
    *r = h->records[--h->n_records];
}

static void restart(history *h)
{
    if (!h->w.config.folder) return;
    must(cellar_library_persist(h->w.library, UINT64_MAX, NULL, &error));
    compare_all(h);
    for (uint32_t i = h->n_records; i-- > 0;) {
        record *r = &h->records[i];
        if (r->is_running) {
            must(cellar_library_release(h->w.library, r->seq, &error));
            must(cellar_remove(h->w.small.memory, r->seq, 0, -1, &error));
        }
    }
    world_restart(&h->w);
    h->n_evicted_away = 0;
    h->n_records = 0; /* numbers are new: what there is is learnt below */
}

static bool learn_entry(void *context, const cellar_entry *entry)
{
    history *h = context;
    record *r = &h->records[h->n_records++];
    *r = (record){.number = entry->entry, .n_ready = entry->n_tokens, .seq = -1};
    r->n_planned = r->n_ready;
    memcpy(r->tokens, entry->tokens, r->n_ready * sizeof *r->tokens);
    while (!is_owned_alike(&h->keys[r->key], entry))
        assert_true(++r->key < KEYS);
    return true;
}

/* Something about an entry by its number. */
static void handle_entry(history *h)
{
    if (h->n_records == 0) return;
    record *r = &h->records[below(h, h->n_records)];
    uint32_t what = below(h, 4);
    if (what == 0) {
        r->is_pinned = !r->is_pinned;
        must(cellar_library_pin(h->w.library, r->number, r->is_pinned, &error));
        return;
    }
    cellar_status status = what == 1 ? cellar_library_drop(h->w.library, r->number, &error)
                                     : cellar_library_evict(h->w.library, r->number, &error);
    if (r->is_running) {
        assert_int_equal(status, CELLAR_REFUSED);
        return;
    }
    must(status);
    bool is_gone = !world_entry(&h->w, r->number, NULL);
    assert_true(is_gone || what != 1);
    h->n_evicted_away += is_gone && what != 1;
    if (is_gone) *r = h->records[--h->n_records];
}

static void operate(history *h, uint32_t i)
{
    cellar_seq seq = (cellar_seq)below(h, RUNNING);
    record *running = find_running(h, seq);
    uint32_t what = below(h, 40);
    if (what == 0 && i % 4 == 0) {
        restart(h);
        if (h->n_records == 0) must(cellar_library_visit(h->w.library, learn_entry, h, &error));
    } else if (what == 1) {
        if (h->w.config.folder) must(cellar_library_persist(h->w.library, 1, NULL, &error));
    } else if (what < 6) {
        handle_entry(h);
    } else if (!running) {
        attach(h, seq);
        number_last(h, seq);
    } else if (what < 24) {
        read_on(h, running);
    } else if (what < 27) {
        cut_off(h, running);
    } else {
        end(h, running);
    }
}

typedef struct setting {
    uint32_t n_cells;
    uint64_t ram_bytes, disk_bytes;
    uint32_t n_entries, n_operations, n_seeds;
    bool is_bounded;
} setting;

static void play(world_kind kind, const setting *s, uint32_t seed)
{
    static history h;
    memset(&h, 0, sizeof h);
    h.state = seed;
    world_init(&h.w, kind, s->n_cells);
    h.w.config.ram_bytes = s->ram_bytes;
    h.w.config.folder = s->disk_bytes > 0 ? folder_name : NULL;
    h.w.config.disk_bytes = s->disk_bytes;
    h.w.config.n_entries = s->n_entries;
    h.is_bounded = s->is_bounded;
    h.is_exact = kind == WORLD_FULL || (s->ram_bytes == 0 && s->disk_bytes == 0);
    if (!s->is_bounded) { /* nothing is ever evicted for want of room */
        h.w.small.config.n_sequences = RECORDS;
        h.w.small.config.checkpoint_bytes = 1 << 20;
    }
    for (uint32_t i = 0; i < KEYS; i++)
        h.keys[i] = cellar_prefix_key_init();
    h.keys[1].domain = "someone";
    h.keys[1].domain_size = 7;
    h.keys[2].is_shared = true;
    prefix_world_open(&h.w);
    for (uint32_t i = 0; i < s->n_operations; i++) {
        operate(&h, i);
        compare_all(&h);
    }
    prefix_world_close(&h.w);
    folder_for_each(folder_remove, NULL);
}

static void play_all(const setting *s)
{
    for (world_kind kind = 0; kind < WORLD_KINDS; kind++)
        for (uint32_t seed = 1; seed <= s->n_seeds; seed++) {
            print_message("kind %d, seed %u\n", (int)kind, seed);
            play(kind, s, seed * 977 + (uint32_t)kind);
        }
}

static void in_the_cells_with_room_for_all(void **state)
{
    (void)state;
    /* Evicting is dropping here, so entries may go when they are told to: handle_entry takes them out. */
    const setting s = {16384, 0, 0, RECORDS, 1500, 3, false};
    play_all(&s);
}

static void with_stores_and_room_for_all(void **state)
{
    (void)state;
    const setting s = {16384, 64 << 20, 64 << 20, RECORDS, 300, 1, false};
    play_all(&s);
}

static void with_little_of_everything(void **state)
{
    (void)state;
    const setting s = {256, 60000, 90000, 12, 400, 1, true};
    play_all(&s);
}

static void on_disk_alone(void **state)
{
    (void)state;
    const setting s = {256, 0, 120000, 30, 250, 1, true};
    play_all(&s);
}

int main(void)
{
#define FOLDER_TEST(test) cmocka_unit_test_setup_teardown(test, folder_set_up, folder_tear_down)
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(in_the_cells_with_room_for_all),
        FOLDER_TEST(with_stores_and_room_for_all),
        FOLDER_TEST(with_little_of_everything),
        FOLDER_TEST(on_disk_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
