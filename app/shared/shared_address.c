/*
 * shared_address.c: an address from left to right: scheme, user and password, host, port, database.
 *
 * The last "@" ends what is secret, since a password that was not encoded may hold one. Names are taken as they
 * are, but for percent signs; control characters are in none of them.
 */
#include "shared/shared_address.h"

#include <string.h>

#include "report.h"

#define DEFAULT_PORT 6379u
#define MOST_DATABASE 1000000u

static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)((at - digits) % 16) : -1;
}

/* Copy n bytes, of which %XX is one. false: too long, a wrong %XX, or a byte that is in no name. */
static bool decode(const char *from, size_t n, char *to, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)from[i];
        if (byte == '%') {
            const int high = i + 2 < n ? digit_of(from[i + 1]) : -1;
            const int low = i + 2 < n ? digit_of(from[i + 2]) : -1;
            if (high < 0 || low < 0) {
                return false;
            }
            byte = (unsigned char)(high << 4 | low);
            i += 2;
        }
        if (byte < 0x20 || byte == 0x7f || used + 1 >= size) {
            return false;
        }
        to[used++] = (char)byte;
    }
    to[used] = '\0';
    return true;
}

static bool read_number(const char *from, size_t n, uint32_t most, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (from[i] < '0' || from[i] > '9' || *out > most / 10) {
            return false;
        }
        *out = *out * 10 + (uint32_t)(from[i] - '0');
    }
    return n > 0 && *out <= most;
}

/* "host", "host:port", "[address]", "[address]:port". */
static bool read_place(const char *from, size_t n, shared_address *out)
{
    const bool is_bracketed = n > 0 && from[0] == '[';
    const char *end = is_bracketed ? memchr(from, ']', n) : memchr(from, ':', n);
    if (is_bracketed && end == NULL) {
        return false;
    }
    const size_t n_host = end != NULL ? (size_t)(end - from) : n;
    const char *port = end == NULL ? from + n : is_bracketed ? end + 1 : end;
    const size_t skip = is_bracketed ? 1 : 0, n_port = (size_t)(from + n - port);
    uint32_t number = out->port;
    if (n_port > 0 && (port[0] != ':' || !read_number(port + 1, n_port - 1, UINT16_MAX, &number) ||
                       number == 0)) {
        return false;
    }
    out->port = (uint16_t)number;
    return n_host > skip && decode(from + skip, n_host - skip, out->host, sizeof out->host) &&
           out->host[0] != '\0';
}

static bool read_secret(const char *from, size_t n, shared_address *out)
{
    const char *colon = memchr(from, ':', n);
    if (colon == NULL) {
        return false; /* a user alone cannot log in */
    }
    const size_t n_user = (size_t)(colon - from);
    return decode(from, n_user, out->user, sizeof out->user) &&
           decode(colon + 1, n - n_user - 1, out->password, sizeof out->password) &&
           out->password[0] != '\0';
}

cellar_status shared_address_read(const char *text, shared_address *out, cellar_error *error)
{
    *out = (shared_address){.port = DEFAULT_PORT};
    out->has_tls = strncmp(text, "rediss://", 9) == 0;
    if (!out->has_tls && strncmp(text, "redis://", 8) != 0) {
        return report(error, CELLAR_INVALID, -1,
                      "the address of the shared store begins with redis:// or rediss://");
    }
    const char *at = strstr(text, "://") + 3, *secret_end = strrchr(at, '@');
    if (secret_end != NULL) {
        if (!read_secret(at, (size_t)(secret_end - at), out)) {
            return report(error, CELLAR_INVALID, -1,
                          "the address of the shared store: before \"@\" has to be user:password, "
                          "special characters as %%XX");
        }
        at = secret_end + 1;
    }
    const char *slash = strchr(at, '/');
    const size_t n = slash != NULL ? (size_t)(slash - at) : strlen(at);
    if (!read_place(at, n, out)) {
        return report(error, CELLAR_INVALID, -1,
                      "the address of the shared store: that is no host and port (host:6379, "
                      "[::1]:6379)");
    }
    if (slash != NULL && slash[1] != '\0' &&
        !read_number(slash + 1, strlen(slash + 1), MOST_DATABASE, &out->database)) {
        return report(error, CELLAR_INVALID, -1,
                      "the address of the shared store: behind \"/\" has to be the number of a "
                      "database");
    }
    return CELLAR_OK;
}

bool shared_address_move(shared_address *address, const char *text, size_t n)
{
    shared_address moved = *address;
    size_t colon = n;
    while (colon > 0 && text[colon - 1] != ':') {
        colon--;
    }
    uint32_t port;
    if (colon == 0 || !read_number(text + colon, n - colon, UINT16_MAX, &port) || port == 0) {
        return false;
    }
    moved.port = (uint16_t)port;
    if (colon > 1 && !decode(text, colon - 1, moved.host, sizeof moved.host)) {
        return false;
    }
    *address = moved;
    return true;
}
