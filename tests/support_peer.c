/*
 * support_peer.c: see the header.
 *
 * A thread listens, and each connection has one of its own. What is held is a plain list under a lock. Commands are
 * only understood in the form that clients send: arrays of counted strings.
 */
#define _GNU_SOURCE /* accept4, memmem */
#include "support_peer.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ITEMS = 4096, MOST_LINKS = 64, MOST_PARTS = 6 };

typedef struct item {
    char *key, *value;
    size_t size;
} item;

struct peer {
    int listener;
    char address[64];
    const char *password;
    pthread_t thread, links[MOST_LINKS];
    int sockets[MOST_LINKS];
    size_t n_links;
    atomic_bool is_stopping;
    atomic_uint n_commands, n_asked;
    pthread_mutex_t lock; /* of what is below */
    peer_mood mood;
    unsigned n_given; /* values, since the mood was set */
    char other[64];   /* host:port */
    item items[MOST_ITEMS];
    size_t n_items;
};

typedef struct peer_link {
    peer *peer;
    int socket;
    char *bytes; /* [n] that were read and not understood yet */
    size_t n, capacity;
    bool is_known, is_over;
} peer_link;

/* ---- what is held (with the lock) ------------------------------------------------------------ */

static item *find(peer *p, const char *key)
{
    for (size_t i = 0; i < p->n_items; i++) {
        if (strcmp(p->items[i].key, key) == 0) {
            return &p->items[i];
        }
    }
    return NULL;
}

static void forget(peer *p, item *its)
{
    free(its->key);
    free(its->value);
    *its = p->items[--p->n_items];
}

static void put(peer *p, const char *key, const char *value, size_t size)
{
    item *its = find(p, key);
    if (its != NULL) {
        forget(p, its);
    }
    if (p->n_items == MOST_ITEMS) {
        abort(); /* the test is wrong */
    }
    its = &p->items[p->n_items++];
    *its = (item){.key = strdup(key), .value = malloc(size + 1), .size = size};
    memcpy(its->value, value, size);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void say(peer_link *l, const void *bytes, size_t n)
{
    for (const char *at = bytes; n > 0 && !l->is_over;) {
        const ssize_t sent = send(l->socket, at, n, MSG_NOSIGNAL);
        if (sent <= 0) {
            l->is_over = true;
            return;
        }
        at += sent;
        n -= (size_t)sent;
    }
}

static void say_line(peer_link *l, const char *line)
{
    say(l, line, strlen(line));
    say(l, "\r\n", 2);
}

static void say_number(peer_link *l, int number)
{
    char line[32];
    snprintf(line, sizeof line, ":%d", number);
    say_line(l, line);
}

static void say_value(peer_link *l, const item *its, size_t most)
{
    char line[32];
    if (its == NULL) {
        say_line(l, "$-1");
        return;
    }
    snprintf(line, sizeof line, "$%zu", its->size);
    say_line(l, line);
    say(l, its->value, its->size < most ? its->size : most);
    say(l, "\r\n", 2);
}

/* A value without an end, in small parts, as long as somebody listens. */
static void say_for_ever(peer_link *l)
{
    static const char part[4096] = {'x'};
    say_line(l, "$1000000000000");
    while (!l->is_over && !atomic_load(&l->peer->is_stopping)) {
        say(l, part, sizeof part);
    }
}

typedef struct command {
    char *parts[MOST_PARTS]; /* NUL-terminated copies */
    size_t sizes[MOST_PARTS], n;
} command;

static bool is_verb(const command *c, const char *verb)
{
    return strcasecmp(c->parts[0], verb) == 0;
}

/* Moods that do not depend on the command. true: that was the answer. */
static bool answer_in_mood(peer_link *l, peer_mood mood, const char *other)
{
    char line[128];
    switch (mood) {
    case PEER_LOADING:
        say_line(l, "-LOADING Redis is loading the dataset in memory");
        return true;
    case PEER_SILENT:
        return true;
    case PEER_GARBAGE:
        say_line(l, "HTTP/1.1 400 Bad Request");
        return true;
    case PEER_CLOSED:
        l->is_over = true;
        return true;
    case PEER_MOVED:
    case PEER_ASKS:
        snprintf(line, sizeof line, "-%s 1234 %s", mood == PEER_MOVED ? "MOVED" : "ASK", other);
        say_line(l, line);
        return true;
    case PEER_WRONG_MOVE:
        say_line(l, "-MOVED 77 nowhere:99999999");
        return true;
    case PEER_LATER:
        say_line(l, "-TRYAGAIN Multiple keys request during rehashing of slot");
        return true;
    case PEER_LIST:
        say_line(l, "-WRONGTYPE Operation against a key holding the wrong kind of value");
        return true;
    default:
        return false;
    }
}

static void get(peer_link *l, peer_mood mood, const item *its)
{
    switch (mood) {
    case PEER_ARRAY:
        say_line(l, "*2000000000");
        return;
    case PEER_HUGE:
        say_for_ever(l);
        return;
    case PEER_TIRED:
        if (l->peer->n_given++ < 2) {
            say_value(l, its, SIZE_MAX);
        }
        return;
    case PEER_SLOW:
        nanosleep(&(const struct timespec){.tv_nsec = 500000000}, NULL);
        say_value(l, its, SIZE_MAX);
        return;
    case PEER_CUT:
        say_value(l, its, its != NULL ? its->size / 2 : 0);
        l->is_over = true;
        return;
    default:
        say_value(l, its, SIZE_MAX);
    }
}

static void answer_key(peer_link *l, peer_mood mood, const command *c)
{
    peer *p = l->peer;
    item *its = find(p, c->parts[1]);
    if (is_verb(c, "EXISTS")) {
        say_number(l, its != NULL);
    } else if (is_verb(c, "EXPIRE")) {
        say_number(l, its != NULL);
    } else if (is_verb(c, "GET")) {
        get(l, mood, its);
    } else if (is_verb(c, "DEL")) {
        say_number(l, its != NULL);
        if (its != NULL) {
            forget(p, its);
        }
    } else if (is_verb(c, "SET") && c->n == 5 && mood == PEER_FULL) {
        say_line(l, "-OOM command not allowed when used memory > 'maxmemory'.");
    } else if (is_verb(c, "SET") && c->n == 5) {
        put(p, c->parts[1], c->parts[2], c->sizes[2]);
        say_line(l, "+OK");
    } else {
        say_line(l, "-ERR unknown command");
    }
}

static void answer(peer_link *l, const command *c)
{
    peer *p = l->peer;
    atomic_fetch_add(&p->n_commands, 1);
    if (is_verb(c, "AUTH")) {
        l->is_known = p->password != NULL && strcmp(c->parts[c->n - 1], p->password) == 0;
        say_line(l, l->is_known ? "+OK" : "-WRONGPASS invalid username-password pair");
        return;
    }
    if (!l->is_known) {
        say_line(l, "-NOAUTH Authentication required.");
        return;
    }
    if (is_verb(c, "ASKING")) {
        atomic_fetch_add(&p->n_asked, 1);
        say_line(l, "+OK");
        return;
    }
    pthread_mutex_lock(&p->lock);
    const peer_mood mood = p->mood;
    if (!answer_in_mood(l, mood, p->other)) {
        if (is_verb(c, "SELECT")) {
            say_line(l, "+OK");
        } else if (c->n >= 2) {
            answer_key(l, mood, c);
        } else {
            say_line(l, "-ERR wrong number of arguments");
        }
    }
    pthread_mutex_unlock(&p->lock);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* A number at *at, behind a sign, up to the line end. false: it is not all here. */
static bool read_size(const peer_link *l, size_t *at, size_t *number)
{
    const char *end = *at < l->n ? memmem(l->bytes + *at, l->n - *at, "\r\n", 2) : NULL;
    if (end == NULL) {
        return false;
    }
    *number = strtoull(l->bytes + *at + 1, NULL, 10);
    *at = (size_t)(end - l->bytes) + 2;
    return true;
}

/* The next command; false: it is not all here. */
static bool read_command(peer_link *l, command *c)
{
    size_t at = 0;
    *c = (command){.n = 0};
    size_t n;
    if (!read_size(l, &at, &n) || n > MOST_PARTS) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        size_t size;
        if (!read_size(l, &at, &size) || at + size + 2 > l->n) {
            for (size_t j = 0; j < i; j++) {
                free(c->parts[j]);
            }
            return false;
        }
        c->parts[i] = malloc(size + 1);
        memcpy(c->parts[i], l->bytes + at, size);
        c->parts[i][size] = '\0';
        c->sizes[i] = size;
        at += size + 2;
    }
    c->n = n;
    memmove(l->bytes, l->bytes + at, l->n - at);
    l->n -= at;
    return n > 0;
}

static void *run_link(void *argument)
{
    peer_link *l = argument;
    command c;
    while (!l->is_over && !atomic_load(&l->peer->is_stopping)) {
        struct pollfd its = {.fd = l->socket, .events = POLLIN};
        if (poll(&its, 1, 20) == 0) {
            continue;
        }
        if (l->capacity - l->n < 65536) {
            l->capacity = 2 * l->capacity + 65536;
            l->bytes = realloc(l->bytes, l->capacity);
        }
        const ssize_t got = recv(l->socket, l->bytes + l->n, l->capacity - l->n, 0);
        if (got <= 0) {
            break;
        }
        l->n += (size_t)got;
        while (!l->is_over && read_command(l, &c)) {
            answer(l, &c);
            for (size_t i = 0; i < c.n; i++) {
                free(c.parts[i]);
            }
        }
    }
    shutdown(l->socket, SHUT_RDWR);
    free(l->bytes);
    free(l);
    return NULL;
}

static void *run_peer(void *argument)
{
    peer *p = argument;
    while (!atomic_load(&p->is_stopping)) {
        struct pollfd its = {.fd = p->listener, .events = POLLIN};
        if (poll(&its, 1, 20) <= 0) {
            continue;
        }
        const int socket = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
        if (socket < 0 || p->n_links == MOST_LINKS) {
            if (socket >= 0) {
                close(socket);
            }
            continue;
        }
        peer_link *l = calloc(1, sizeof *l);
        *l = (peer_link){.peer = p, .socket = socket, .is_known = p->password == NULL};
        p->sockets[p->n_links] = socket;
        if (pthread_create(&p->links[p->n_links], NULL, run_link, l) != 0) {
            abort();
        }
        p->n_links++;
    }
    return NULL;
}

/* ---- beginning, end, questions --------------------------------------------------------------- */

peer *peer_start(const char *password)
{
    peer *p = calloc(1, sizeof *p);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    p->password = password;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p->listener < 0 || bind(p->listener, (struct sockaddr *)&at, size) != 0 ||
        listen(p->listener, 16) != 0 ||
        getsockname(p->listener, (struct sockaddr *)&at, &size) != 0) {
        abort();
    }
    snprintf(p->address, sizeof p->address, "redis://127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    pthread_mutex_init(&p->lock, NULL);
    if (pthread_create(&p->thread, NULL, run_peer, p) != 0) {
        abort();
    }
    return p;
}

void peer_stop(peer *p)
{
    atomic_store(&p->is_stopping, true);
    pthread_join(p->thread, NULL);
    for (size_t i = 0; i < p->n_links; i++) {
        pthread_join(p->links[i], NULL);
        close(p->sockets[i]);
    }
    close(p->listener);
    while (p->n_items > 0) {
        forget(p, &p->items[0]);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}

const char *peer_address(const peer *p)
{
    return p->address;
}

void peer_set(peer *p, peer_mood mood, const peer *other)
{
    pthread_mutex_lock(&p->lock);
    p->mood = mood;
    p->n_given = 0;
    snprintf(p->other, sizeof p->other, "%s", other != NULL ? other->address + 8 : "");
    pthread_mutex_unlock(&p->lock);
}

size_t peer_count(peer *p)
{
    pthread_mutex_lock(&p->lock);
    const size_t n = p->n_items;
    pthread_mutex_unlock(&p->lock);
    return n;
}

const char *peer_key(peer *p, size_t i)
{
    pthread_mutex_lock(&p->lock);
    const char *key = i < p->n_items ? p->items[i].key : "";
    pthread_mutex_unlock(&p->lock);
    return key;
}

void peer_damage(peer *p, size_t i, size_t at)
{
    pthread_mutex_lock(&p->lock);
    p->items[i].value[at % p->items[i].size] ^= 0x20;
    pthread_mutex_unlock(&p->lock);
}

void peer_forget(peer *p, size_t i)
{
    pthread_mutex_lock(&p->lock);
    forget(p, &p->items[i]);
    pthread_mutex_unlock(&p->lock);
}

unsigned peer_commands(peer *p)
{
    return atomic_load(&p->n_commands);
}

unsigned peer_asked(peer *p)
{
    return atomic_load(&p->n_asked);
}
