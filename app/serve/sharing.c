/*
 * sharing.c: see the header.
 *
 * An offer is an entry with the names of its blocks; block by block it is written into the store's queue, past what the
 * store is known to have, until the queue is full or the entry left the cells. Offers are few and the oldest goes for
 * a new one. A prompt has the names of those of its blocks that are not here.
 */
#include "serve/sharing.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

#define MOST_OFFERS 256u
#define MOST_HITS 64u /* entries whose hits are counted */
#define HITS_TO_OFFER 2u
#define WRITE_BYTES ((size_t)8 << 20) /* at a time, while nobody waits */
#define CHECKPOINTS 2u                /* of a sequence that does not divide */
#define UNKNOWN_SECONDS 0.5           /* that a prompt waits before anything was measured */
#define DEFAULT_EXPIRE 86400u

/* An entry of which something is to be written. */
typedef struct offer {
    uint64_t entry;
    shared_name *names; /* [n] of its blocks */
    size_t n, next;     /* the next to be written; behind the last one: those that end before */
    size_t n_checkpoints;
    size_t bytes; /* of the last value */
} offer;

typedef struct hit {
    uint64_t entry;
    unsigned n;
} hit;

struct sharing {
    reuse *reuse;
    shared_store *store;
    hmac_key secret;
    double wait_seconds; /* 0: what reading would take */
    bool divides;
    offer offers[MOST_OFFERS]; /* [n_offers] the oldest first */
    size_t n_offers;
    hit hits[MOST_HITS];
    size_t next_hit;
};

struct sharing_prompt {
    shared_name first;  /* of the text */
    shared_name *names; /* [n] of blocks that are not here */
    size_t n, n_tokens; /* tokens that are missing, if all came */
    shared_fetch *fetch;
    double until;
    bool was_tried, is_ready;
    const shared_value *values; /* [n_values], the first of names[at] */
    size_t n_values, at, next;
};

/* ---- making --------------------------------------------------------------------------------- */

cellar_status sharing_create(reuse *r, const sharing_options *options, void (*wake)(void *context),
                             void *context, sharing **out, cellar_error *error)
{
    *out = NULL;
    sharing *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the shared store");
    }
    s->reuse = r;
    s->divides = reuse_divides(r);
    s->wait_seconds = options->wait_seconds;
    hmac_key_make(&s->secret, options->secret, options->secret_bytes);
    const shared_store_options its = {
        .address = options->address,
        .password = options->password,
        .ca_file = options->ca_file,
        .most_bytes = options->most_bytes,
        .expire_seconds = options->expire_seconds > 0 ? options->expire_seconds : DEFAULT_EXPIRE,
        .logs = options->logs,
        .wake = wake,
        .context = context};
    const cellar_status status = shared_store_create(&its, &s->store, error);
    if (status != CELLAR_OK) {
        free(s);
        return status;
    }
    *out = s;
    return CELLAR_OK;
}

static void drop_offer(sharing *s, size_t i)
{
    free(s->offers[i].names);
    s->n_offers--;
    memmove(&s->offers[i], &s->offers[i + 1], (s->n_offers - i) * sizeof *s->offers);
}

void sharing_destroy(sharing *s)
{
    if (s != NULL) {
        while (s->n_offers > 0) {
            drop_offer(s, s->n_offers - 1);
        }
        shared_store_destroy(s->store);
        free(s);
    }
}

void sharing_drain(sharing *s, double seconds)
{
    if (s != NULL) {
        shared_store_drain(s->store, seconds);
    }
}

shared_counters sharing_count(sharing *s)
{
    return s != NULL ? shared_store_count(s->store) : (shared_counters){.n_fetches = 0};
}

/* ---- bytes that are written ----------------------------------------------------------------- */

typedef struct page {
    char *bytes; /* [n] of [capacity] */
    size_t n, capacity;
} page;

static bool add_to_page(void *context, const void *bytes, size_t size)
{
    page *p = context;
    if (size > SIZE_MAX / 4 - p->n) {
        return false;
    }
    if (p->n + size > p->capacity) {
        const size_t capacity = (p->n + size) + (p->n + size) / 2;
        char *grown = realloc(p->bytes, capacity);
        if (grown == NULL) {
            return false;
        }
        p->bytes = grown;
        p->capacity = capacity;
    }
    if (size > 0) {
        memcpy(p->bytes + p->n, bytes, size);
    }
    p->n += size;
    return true;
}

/* The names of the first n blocks of a text; NULL: no memory. */
static shared_name *make_names(const sharing *s, const char *owner, const char *salt,
                               const cellar_token *tokens, size_t n)
{
    page key = {.bytes = NULL};
    const cellar_writer writer = {add_to_page, &key};
    shared_name root;
    shared_name *names = malloc(n * sizeof *names);
    const bool has_key = names != NULL && reuse_write_key(s->reuse, owner, salt, &writer);
    if (has_key) {
        shared_names_root(&s->secret, key.bytes, key.n, &root);
        shared_names_chain(&s->secret, &root, tokens, n, names);
    } else {
        free(names);
        names = NULL;
    }
    free(key.bytes);
    return names;
}

/* ---- prompts -------------------------------------------------------------------------------- */

sharing_prompt *sharing_prompt_create(sharing *s, const char *owner, const char *salt,
                                      const cellar_token *tokens, size_t n, size_t n_have)
{
    const size_t n_blocks = n > 0 ? (n - 1) / SHARED_BLOCK : 0, n_here = n_have / SHARED_BLOCK;
    if (n_blocks <= n_here) {
        return NULL;
    }
    sharing_prompt *p = calloc(1, sizeof *p);
    if (p == NULL || (p->names = make_names(s, owner, salt, tokens, n_blocks)) == NULL) {
        free(p);
        return NULL;
    }
    p->first = p->names[0];
    p->n = n_blocks - n_here;
    memmove(p->names, p->names + n_here, p->n * sizeof *p->names);
    p->n_tokens = n_blocks * SHARED_BLOCK - n_have;
    return p;
}

void sharing_prompt_destroy(sharing *s, sharing_prompt *p)
{
    if (p != NULL) {
        if (p->fetch != NULL) {
            shared_store_release(s->store, p->fetch);
        }
        free(p->names);
        free(p);
    }
}

bool sharing_is_same(const sharing_prompt *a, const sharing_prompt *b)
{
    return memcmp(&a->names[0], &b->names[0], sizeof a->names[0]) == 0;
}

void sharing_fetch(sharing *s, sharing_prompt *p, double token_seconds)
{
    if (p->was_tried) {
        return;
    }
    double seconds = (double)p->n_tokens * token_seconds;
    seconds = s->wait_seconds > 0 ? s->wait_seconds : token_seconds > 0 ? seconds : UNKNOWN_SECONDS;
    p->was_tried = true;
    p->until = job_now() + seconds;
    p->fetch = shared_store_fetch(s->store, &p->first, p->names, p->n, !s->divides, p->until);
}

bool sharing_is_fetching(sharing *s, sharing_prompt *p)
{
    if (p->fetch == NULL || p->is_ready) {
        return false;
    }
    p->is_ready = shared_store_poll(s->store, p->fetch, &p->values, &p->n_values, &p->at);
    if (!p->is_ready && job_now() >= p->until) {
        shared_store_cut(s->store, p->fetch, &p->values, &p->n_values, &p->at);
        p->is_ready = true;
    }
    return !p->is_ready;
}

double sharing_until(const sharing_prompt *p)
{
    return p->until;
}

/* Is that the value's fault? Then it is no good to anybody. */
static bool is_damaged(cellar_status status)
{
    return status == CELLAR_CORRUPT || status == CELLAR_MISMATCH || status == CELLAR_UNSUPPORTED;
}

bool sharing_supply(sharing *s, sharing_prompt *p, reuse_entry *entry, double seconds,
                    size_t *n_held)
{
    const double until = job_now() + seconds;
    while (p->is_ready && p->next < p->n_values) {
        const shared_value *value = &p->values[p->next];
        const cellar_status status = reuse_supply(s->reuse, entry, value->bytes, value->size,
                                                  n_held);
        if (is_damaged(status)) {
            shared_store_reject(s->store, &p->first, &p->names[p->at + p->next]);
        }
        p->next = status == CELLAR_OK ? p->next + 1 : p->n_values;
        if (p->next < p->n_values && job_now() >= until) {
            return true;
        }
    }
    return false;
}

/* ---- offers --------------------------------------------------------------------------------- */

static offer *find_offer(sharing *s, uint64_t entry)
{
    for (size_t i = 0; i < s->n_offers; i++) {
        if (s->offers[i].entry == entry) {
            return &s->offers[i];
        }
    }
    return NULL;
}

void sharing_offer(sharing *s, const char *owner, const char *salt, uint64_t entry, size_t n_most)
{
    cellar_entry its;
    if (s == NULL || entry == 0 || !reuse_find(s->reuse, entry, &its)) {
        return;
    }
    const size_t n_tokens = its.n_tokens < n_most ? its.n_tokens : n_most;
    const size_t n = n_tokens / SHARED_BLOCK;
    shared_name *names = n > 0 ? make_names(s, owner, salt, its.tokens, n) : NULL;
    if (names == NULL) {
        return;
    }
    offer *o = find_offer(s, entry);
    if (o == NULL && s->n_offers == MOST_OFFERS) {
        drop_offer(s, 0);
    }
    if (o == NULL) {
        o = &s->offers[s->n_offers++];
        *o = (offer){.entry = entry};
    }
    free(o->names);
    o->names = names;
    o->n = n;
    o->next = s->divides ? 0 : n;
    o->n_checkpoints = 0;
}

void sharing_note_hit(sharing *s, const char *owner, const char *salt, uint64_t entry, size_t n)
{
    if (s == NULL || entry == 0) {
        return;
    }
    hit *its = NULL;
    for (size_t i = 0; i < MOST_HITS && its == NULL; i++) {
        its = s->hits[i].entry == entry ? &s->hits[i] : NULL;
    }
    if (its == NULL) {
        its = &s->hits[s->next_hit++ % MOST_HITS];
        *its = (hit){.entry = entry};
    }
    if (++its->n == HITS_TO_OFFER) {
        sharing_offer(s, owner, salt, entry, n);
    }
}

/* Write tokens of an entry into the queue. CELLAR_FULL: there is no room for so much now. */
static cellar_status write_value(sharing *s, offer *o, size_t from, size_t to, size_t *bytes,
                                 cellar_error *error)
{
    page p = {.capacity = o->bytes};
    if (!shared_store_takes(s->store, o->bytes)) {
        return CELLAR_FULL;
    }
    p.bytes = malloc(p.capacity + 1); /* as large as the last one, most likely */
    const cellar_writer writer = {add_to_page, &p};
    const cellar_status status = p.bytes != NULL
                                     ? reuse_export(s->reuse, o->entry, from * SHARED_BLOCK,
                                                    to * SHARED_BLOCK, &writer, error)
                                     : CELLAR_NO_MEMORY;
    if (status != CELLAR_OK) {
        free(p.bytes);
        return status;
    }
    o->bytes = p.n;
    *bytes += p.n;
    return shared_store_put(s->store, &o->names[0], &o->names[to - 1], p.bytes, p.n) ? CELLAR_OK
                                                                                     : CELLAR_FULL;
}

/* One block more; *is_done: that was the last. */
static cellar_status write_block(sharing *s, offer *o, size_t *bytes, bool *is_done)
{
    while (o->next < o->n && shared_store_knows(s->store, &o->names[o->next])) {
        o->next++;
    }
    *is_done = o->next >= o->n;
    if (*is_done) {
        return CELLAR_OK;
    }
    const cellar_status status = write_value(s, o, o->next, o->next + 1, bytes, NULL);
    o->next += status == CELLAR_OK;
    *is_done = o->next >= o->n;
    return status;
}

/* The next place before o->next after which the entry can be gone on from. */
static cellar_status write_checkpoint(sharing *s, offer *o, size_t *bytes, bool *is_done)
{
    while (o->next > 0 && o->n_checkpoints < CHECKPOINTS) {
        cellar_error error = {.at = -1};
        const size_t end = o->next;
        if (shared_store_knows(s->store, &o->names[end - 1])) {
            o->next--;
            o->n_checkpoints++;
            continue;
        }
        const cellar_status status = write_value(s, o, 0, end, bytes, &error);
        if (status == CELLAR_OK) {
            o->next--;
            o->n_checkpoints++;
            break;
        }
        const size_t before = error.at > 0 ? (size_t)error.at / SHARED_BLOCK : 0;
        if (status != CELLAR_REFUSED || before >= end) {
            return status;
        }
        o->next = before;
    }
    *is_done = o->next == 0 || o->n_checkpoints >= CHECKPOINTS;
    return CELLAR_OK;
}

bool sharing_write(sharing *s, bool is_busy)
{
    size_t bytes = 0, n = 0;
    while (s != NULL && s->n_offers > 0 && (n == 0 || (!is_busy && bytes < WRITE_BYTES))) {
        offer *o = &s->offers[0];
        bool is_done = false;
        const cellar_status status = s->divides ? write_block(s, o, &bytes, &is_done)
                                                : write_checkpoint(s, o, &bytes, &is_done);
        if (status == CELLAR_FULL) {
            return n > 0;
        }
        n++;
        if (status != CELLAR_OK || is_done) { /* or it left the cells */
            drop_offer(s, 0);
        }
    }
    return n > 0;
}

bool sharing_is_done(const sharing *s)
{
    return s == NULL || s->n_offers == 0;
}

bool sharing_wants_mark(const sharing *s, size_t n, size_t n_prompt)
{
    return s != NULL && !s->divides && n % SHARED_BLOCK == 0 &&
           (n >= n_prompt || n + SHARED_BLOCK >= n_prompt);
}
