/*
 * shared_nodes.c: see the header.
 *
 * Node 0 is the one of the address, and is asked about every slot of which nothing is known; a store of one node
 * never says anything else. A pipeline that is redirected is sent again as a whole: looking up twice and writing twice does no
 * harm. Redirections are bounded, in number and in nodes; the oldest node but the first is given up for a new one.
 */
#include "shared/shared_nodes.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "serve/job.h"

#define SLOTS 16384u
#define MOST_REDIRECTIONS 5u

typedef struct node {
    shared_address address;
    shared_link *link; /* NULL: not connected */
} node;

struct shared_nodes {
    shared_login login;
    node nodes[SHARED_MOST_NODES];
    unsigned n, next_victim;
    unsigned char owner[SLOTS]; /* which node */
    uint64_t n_connected;
};

unsigned shared_nodes_slot(const char *tag, size_t n)
{
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)(unsigned char)tag[i] << 8;
        for (unsigned bit = 0; bit < 8; bit++) {
            crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
        }
    }
    return crc % SLOTS;
}

cellar_status shared_nodes_create(const shared_login *login, shared_nodes **out,
                                  cellar_error *error)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the shared store");
    }
    (*out)->login = *login;
    (*out)->nodes[0].address = login->address;
    (*out)->n = 1;
    return CELLAR_OK;
}

void shared_nodes_reset(shared_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->n; i++) {
        shared_link_close(nodes->nodes[i].link);
        nodes->nodes[i].link = NULL;
    }
    memset(nodes->owner, 0, sizeof nodes->owner);
    nodes->n = 1;
}

void shared_nodes_destroy(shared_nodes *nodes)
{
    if (nodes != NULL) {
        shared_nodes_reset(nodes);
        free(nodes);
    }
}

uint64_t shared_nodes_connected(const shared_nodes *nodes)
{
    return nodes->n_connected;
}

/* ---- redirections --------------------------------------------------------------------------- */

/* The node of an address, known or new. */
static unsigned find_node(shared_nodes *nodes, const shared_address *address)
{
    for (unsigned i = 0; i < nodes->n; i++) {
        const shared_address *its = &nodes->nodes[i].address;
        if (its->port == address->port && strcmp(its->host, address->host) == 0) {
            return i;
        }
    }
    unsigned at = nodes->n;
    if (at < SHARED_MOST_NODES) {
        nodes->n++;
    } else {
        at = 1 + nodes->next_victim++ % (SHARED_MOST_NODES - 1);
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            nodes->owner[slot] = nodes->owner[slot] == at ? 0 : nodes->owner[slot];
        }
        shared_link_close(nodes->nodes[at].link);
    }
    nodes->nodes[at] = (node){.address = *address};
    return at;
}

static bool begins(const shared_reply *r, const char *word)
{
    return r->kind == SHARED_REFUSAL && r->bytes != NULL &&
           strncmp(r->bytes, word, strlen(word)) == 0;
}

/* "MOVED 3999 10.0.0.1:6381": where to; false: that is no redirection. */
static bool is_redirected(shared_nodes *nodes, unsigned from, const shared_reply *r, unsigned *to)
{
    const bool is_moved = begins(r, "MOVED ");
    if (!is_moved && !begins(r, "ASK ")) {
        return false;
    }
    const char *at = strchr(r->bytes, ' ') + 1, *space = strchr(at, ' ');
    shared_address address = nodes->nodes[from].address;
    if (space == NULL || !shared_address_move(&address, space + 1, strlen(space + 1))) {
        return false;
    }
    *to = find_node(nodes, &address);
    return true;
}

/* Refusals that mean the node, not the command. */
static bool is_of_node(const shared_reply *r)
{
    static const char *const words[] = {"LOADING",   "CLUSTERDOWN", "MASTERDOWN", "NOAUTH",
                                        "WRONGPASS", "NOPERM",      "UNBLOCKED",  "BUSY"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (begins(r, words[i])) {
            return true;
        }
    }
    return false;
}

/* ---- one pipeline --------------------------------------------------------------------------- */

static cellar_status need_link(shared_nodes *nodes, unsigned which, const shared_wait *wait,
                               double seconds, cellar_error *error)
{
    node *its = &nodes->nodes[which];
    if (its->link != NULL) {
        return CELLAR_OK;
    }
    const shared_wait connecting = {
        .until = job_now() + 2 * seconds, .idle = seconds, .stop = wait->stop};
    const cellar_status status = shared_link_open(&nodes->login, &its->address, &connecting,
                                                  &its->link, error);
    nodes->n_connected += status == CELLAR_OK && which == 0;
    /* Time that was its own and is over is the node's fault. */
    const bool is_stopping = wait->stop != NULL && atomic_load(wait->stop);
    return status == CELLAR_BUSY && !is_stopping
               ? report(error, CELLAR_IO, -1, "no connection within %.1f seconds", 2 * seconds)
               : status;
}

static void forget_replies(shared_reply *replies, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(replies[i].bytes);
        replies[i] = (shared_reply){.kind = SHARED_NOTHING};
    }
}

static cellar_status run_once(shared_link *l, const shared_command *commands, size_t n, bool asks,
                              const shared_wait *wait, shared_reply *replies, cellar_error *error)
{
    static const shared_command asking = {.n = 1, .parts = {"ASKING"}, .sizes = {6}};
    cellar_status status = CELLAR_OK;
    for (size_t i = 0; status == CELLAR_OK && i < n; i++) {
        status = asks ? shared_link_add(l, &asking, error) : CELLAR_OK;
        status = status == CELLAR_OK ? shared_link_add(l, &commands[i], error) : status;
    }
    status = status == CELLAR_OK ? shared_link_send(l, wait, error) : status;
    for (size_t i = 0; status == CELLAR_OK && i < n; i++) {
        shared_reply ignored = {.bytes = NULL};
        status = asks ? shared_link_read(l, wait, &ignored, error) : CELLAR_OK;
        free(ignored.bytes);
        status = status == CELLAR_OK ? shared_link_read(l, wait, &replies[i], error) : status;
    }
    return status;
}

typedef enum outcome { DONE, REDIRECTED, LATER, UNUSABLE } outcome;

/* What the replies say of where the keys are. */
static outcome understand(shared_nodes *nodes, unsigned slot, unsigned *which, bool *asks,
                          const shared_reply *replies, size_t n, cellar_error *error)
{
    for (size_t i = 0; i < n; i++) {
        const shared_reply *r = &replies[i];
        unsigned to;
        if (is_redirected(nodes, *which, r, &to)) {
            *asks = begins(r, "ASK ");
            if (!*asks) {
                nodes->owner[slot] = (unsigned char)to;
            }
            *which = to;
            return REDIRECTED;
        }
        if (begins(r, "TRYAGAIN")) {
            return LATER;
        }
        if (is_of_node(r) || begins(r, "MOVED ") || begins(r, "ASK ")) {
            (void)report(error, CELLAR_IO, -1, "it says %.100s", r->bytes);
            return UNUSABLE;
        }
    }
    return DONE;
}

cellar_status shared_nodes_run(shared_nodes *nodes, const char *tag, size_t n_tag,
                               const shared_command *commands, size_t n, const shared_wait *wait,
                               double connect_seconds, shared_reply *replies, cellar_error *error)
{
    const unsigned slot = shared_nodes_slot(tag, n_tag);
    unsigned which = nodes->owner[slot];
    bool asks = false;
    memset(replies, 0, n * sizeof *replies);
    for (unsigned i = 0; i <= MOST_REDIRECTIONS; i++) {
        cellar_status status = need_link(nodes, which, wait, connect_seconds, error);
        if (status == CELLAR_OK) {
            status = run_once(nodes->nodes[which].link, commands, n, asks, wait, replies, error);
        }
        const outcome its = status == CELLAR_OK
                                ? understand(nodes, slot, &which, &asks, replies, n, error)
                                : UNUSABLE;
        if (its == DONE) {
            return CELLAR_OK;
        }
        forget_replies(replies, n);
        if (its == UNUSABLE) {
            shared_nodes_reset(nodes);
            return status != CELLAR_OK ? status : CELLAR_IO;
        }
        if (its == LATER) {
            break;
        }
    }
    return report(error, CELLAR_NOT_FOUND, -1, "the slot of these keys is on its way");
}
