/*
 * shared_link.c: see the header.
 *
 * The reader of hiredis calls back for every part of a reply; what it gets are values of ours, so a large
 * one is copied once. It may only buffer so many bytes for one reply: what would be more is the store's or an
 * attacker's mistake, and ends the connection.
 */
#include "shared/shared_link.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

#if !defined(CELLAR_NO_SHARED) && __has_include(<hiredis/hiredis.h>)

#include <hiredis/hiredis.h>

#define RECEIVED_BYTES ((size_t)1 << 17) /* at a time */

struct shared_link {
    shared_socket *socket;
    redisReader *reader;
    redisReplyObjectFunctions functions;
    char *out; /* [n_out] to be sent */
    size_t n_out, capacity;
    size_t most, n_fed; /* bytes for one reply, and those that came since the last one */
    char *received;     /* [RECEIVED_BYTES] */
};

cellar_status shared_link_check_build(cellar_error *error)
{
    (void)error;
    return CELLAR_OK;
}

/* ---- values --------------------------------------------------------------------------------- */

static void *make_value(shared_kind kind, int64_t number)
{
    shared_reply *r = calloc(1, sizeof *r);
    if (r != NULL) {
        r->kind = kind;
        r->number = number;
    }
    return r;
}

static void free_value(void *value)
{
    shared_reply *r = value;
    if (r != NULL) {
        free(r->bytes);
        free(r);
    }
}

static void *make_string(const redisReadTask *task, char *bytes, size_t n)
{
    const shared_kind kind = task->type == REDIS_REPLY_ERROR    ? SHARED_REFUSAL
                             : task->type == REDIS_REPLY_STATUS ? SHARED_WORD
                                                                : SHARED_BYTES;
    shared_reply *r = make_value(kind, 0);
    if (r == NULL || (r->bytes = malloc(n + 1)) == NULL) {
        free(r);
        return NULL;
    }
    memcpy(r->bytes, bytes, n);
    r->bytes[n] = '\0';
    r->size = n;
    return r;
}

/* Nothing here asks for an array: whoever sends one is no store of ours. */
static void *refuse_array(const redisReadTask *task, int n)
{
    (void)task, (void)n;
    return NULL;
}

static void *make_number(const redisReadTask *task, long long number)
{
    (void)task;
    return make_value(SHARED_NUMBER, number);
}

static void *make_nothing(const redisReadTask *task)
{
    (void)task;
    return make_value(SHARED_NOTHING, 0);
}

/* ---- commands ------------------------------------------------------------------------------- */

cellar_status shared_link_add(shared_link *l, const shared_command *command, cellar_error *error)
{
    char *text = NULL;
    const char *parts[SHARED_MOST_PARTS];
    memcpy(parts, command->parts, sizeof parts);
    const int n = redisFormatCommandArgv(&text, (int)command->n, parts, command->sizes);
    size_t need = l->n_out + (n > 0 ? (size_t)n : 0);
    if (n > 0 && need > l->capacity) {
        need = need < 4096 ? 4096 : need + need / 2;
        char *out = realloc(l->out, need);
        if (out != NULL) {
            l->out = out;
            l->capacity = need;
        } else {
            need = 0;
        }
    }
    if (n <= 0 || need == 0) {
        redisFreeCommand(text);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a command");
    }
    memcpy(l->out + l->n_out, text, (size_t)n);
    l->n_out += (size_t)n;
    redisFreeCommand(text);
    return CELLAR_OK;
}

cellar_status shared_link_send(shared_link *l, const shared_wait *wait, cellar_error *error)
{
    const size_t n = l->n_out;
    l->n_out = 0;
    const cellar_status status = shared_socket_send(l->socket, l->out, n, wait, error);
    if (l->capacity > ((size_t)1 << 20)) { /* a large value was sent: give that back */
        free(l->out);
        l->out = NULL;
        l->capacity = 0;
    }
    return status;
}

/* ---- replies -------------------------------------------------------------------------------- */

cellar_status shared_link_read(shared_link *l, const shared_wait *wait, shared_reply *out,
                               cellar_error *error)
{
    for (;;) {
        void *value = NULL;
        if (redisReaderGetReply(l->reader, &value) != REDIS_OK) {
            return report(error, CELLAR_IO, -1, "what came is no reply: %.100s", l->reader->errstr);
        }
        if (value != NULL) {
            *out = *(shared_reply *)value;
            free(value);
            l->n_fed = 0;
            return CELLAR_OK;
        }
        size_t n = 0;
        const cellar_status status = shared_socket_receive(l->socket, l->received, RECEIVED_BYTES,
                                                           &n, wait, error);
        if (status != CELLAR_OK) {
            return status;
        }
        l->n_fed += n;
        if (l->n_fed > l->most) {
            return report(error, CELLAR_IO, -1, "a reply is longer than %zu bytes", l->most);
        }
        if (redisReaderFeed(l->reader, l->received, n) != REDIS_OK) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for a reply");
        }
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

static cellar_status say(shared_link *l, const char *const *parts, unsigned n,
                         const shared_wait *wait, const char *what, cellar_error *error)
{
    shared_command command = {.n = n};
    for (unsigned i = 0; i < n; i++) {
        command.parts[i] = parts[i];
        command.sizes[i] = strlen(parts[i]);
    }
    shared_reply reply = {.bytes = NULL};
    cellar_status status = shared_link_add(l, &command, error);
    status = status == CELLAR_OK ? shared_link_send(l, wait, error) : status;
    status = status == CELLAR_OK ? shared_link_read(l, wait, &reply, error) : status;
    if (status == CELLAR_OK && reply.kind != SHARED_WORD) {
        status = report(error, CELLAR_IO, -1, "%s was refused: %.100s", what,
                        reply.bytes != NULL ? reply.bytes : "");
    }
    free(reply.bytes);
    return status;
}

static cellar_status log_in(shared_link *l, const shared_address *a, const shared_wait *wait,
                            cellar_error *error)
{
    cellar_status status = CELLAR_OK;
    if (a->password[0] != '\0') {
        const char *const named[] = {"AUTH", a->user, a->password};
        const char *const unnamed[] = {"AUTH", a->password};
        const bool has_user = a->user[0] != '\0';
        status = say(l, has_user ? named : unnamed, has_user ? 3 : 2, wait, "the login", error);
    }
    if (status == CELLAR_OK && a->database != 0) {
        char number[16];
        size_t n = 0;
        for (uint32_t left = a->database, unit = 1000000; unit > 0; unit /= 10) {
            if (left >= unit || n > 0) {
                number[n++] = (char)('0' + left / unit % 10);
            }
        }
        number[n] = '\0';
        const char *const select[] = {"SELECT", number};
        status = say(l, select, 2, wait, "the database", error);
    }
    return status;
}

cellar_status shared_link_open(const shared_login *login, const shared_address *address,
                               const shared_wait *wait, shared_link **out, cellar_error *error)
{
    *out = NULL;
    shared_link *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a connection");
    }
    l->functions = (redisReplyObjectFunctions){.createString = make_string,
                                               .createArray = refuse_array,
                                               .createInteger = make_number,
                                               .createNil = make_nothing,
                                               .freeObject = free_value};
    l->most = login->most_bytes;
    l->received = malloc(RECEIVED_BYTES);
    l->reader = redisReaderCreateWithFunctions(&l->functions);
    cellar_status status = l->received == NULL || l->reader == NULL
                               ? report(error, CELLAR_NO_MEMORY, -1, "no memory for a connection")
                               : shared_socket_open(address->host, address->port, login->tls, wait,
                                                    &l->socket, error);
    if (status == CELLAR_OK) {
        l->reader->maxbuf = 0; /* keep what the reader has allocated between replies */
        status = log_in(l, address, wait, error);
    }
    if (status != CELLAR_OK) {
        shared_link_close(l);
        return status;
    }
    *out = l;
    return CELLAR_OK;
}

void shared_link_close(shared_link *l)
{
    if (l != NULL) {
        shared_socket_close(l->socket);
        if (l->reader != NULL) {
            redisReaderFree(l->reader);
        }
        free(l->out);
        free(l->received);
        free(l);
    }
}

#else

cellar_status shared_link_check_build(cellar_error *error)
{
    return report(error, CELLAR_UNSUPPORTED, -1,
                  "this program was built without hiredis: it has no shared store");
}

cellar_status shared_link_open(const shared_login *login, const shared_address *address,
                               const shared_wait *wait, shared_link **out, cellar_error *error)
{
    (void)login, (void)address, (void)wait;
    *out = NULL;
    return shared_link_check_build(error);
}

void shared_link_close(shared_link *l)
{
    (void)l;
}

cellar_status shared_link_add(shared_link *l, const shared_command *command, cellar_error *error)
{
    (void)l, (void)command;
    return shared_link_check_build(error);
}

cellar_status shared_link_send(shared_link *l, const shared_wait *wait, cellar_error *error)
{
    (void)l, (void)wait;
    return shared_link_check_build(error);
}

cellar_status shared_link_read(shared_link *l, const shared_wait *wait, shared_reply *out,
                               cellar_error *error)
{
    (void)l, (void)wait, (void)out;
    return shared_link_check_build(error);
}

#endif
