/*
 * shared_names.c: see the header, and docs/shared-tier.md.
 *
 * Numbers go into the hash as four bytes, the lowest first, whatever the machine's order, so that servers on different
 * ones find each other's blocks.
 */
#include "shared/shared_names.h"

#include <string.h>

static const char title[] = "cellar shared 1\n";

static void add_number(sha256 *s, uint32_t number)
{
    const unsigned char bytes[4] = {(unsigned char)number, (unsigned char)(number >> 8),
                                    (unsigned char)(number >> 16), (unsigned char)(number >> 24)};
    sha256_add(s, bytes, sizeof bytes);
}

void shared_names_root(const hmac_key *secret, const void *key, size_t n, shared_name *out)
{
    sha256 s = hmac_begin(secret);
    sha256_add(&s, title, sizeof title - 1);
    add_number(&s, SHARED_BLOCK);
    sha256_add(&s, key, n);
    hmac_end(secret, &s, out->bytes);
}

void shared_names_chain(const hmac_key *secret, const shared_name *root, const cellar_token *tokens,
                        size_t n, shared_name *out)
{
    for (size_t i = 0; i < n; i++) {
        sha256 s = hmac_begin(secret);
        sha256_add(&s, i > 0 ? out[i - 1].bytes : root->bytes, SHA256_BYTES);
        for (size_t t = 0; t < SHARED_BLOCK; t++) {
            add_number(&s, (uint32_t)tokens[i * SHARED_BLOCK + t]);
        }
        hmac_end(secret, &s, out[i].bytes);
    }
}

static char *write_digits(char *to, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    return to;
}

void shared_names_write(const shared_name *first, const shared_name *name,
                        char out[SHARED_KEY_BYTES])
{
    char *to = out;
    memcpy(to, "cellar:{", 8);
    to = write_digits(to + 8, first->bytes, 8);
    *to++ = '}';
    *to++ = ':';
    to = write_digits(to, name->bytes, SHA256_BYTES);
    *to = '\0';
}
