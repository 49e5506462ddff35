/*
 * sha256.h: SHA-256 (FIPS 180-4) and HMAC (RFC 2104), for names in a store that is not ours.
 *
 * Small and plain: what is hashed here are keys and tokens, kilobytes, never rows. Nothing allocates and
 * nothing fails.
 */
#ifndef APP_SHA256_H
#define APP_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32u
#define SHA256_BLOCK 64u

typedef struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[SHA256_BLOCK]; /* what of the last one has come: n_bytes % 64 */
} sha256;

void sha256_begin(sha256 *s);
void sha256_add(sha256 *s, const void *bytes, size_t n);
void sha256_end(sha256 *s, unsigned char out[SHA256_BYTES]);

/* A key that has been taken in: both hashes as they are behind it. Copied to be used. */
typedef struct hmac_key {
    sha256 inner, outer;
} hmac_key;

void hmac_key_make(hmac_key *key, const void *secret, size_t n);

/* The inner hash, to which a message is added; hmac_end makes the code of it. */
sha256 hmac_begin(const hmac_key *key);
void hmac_end(const hmac_key *key, sha256 *inner, unsigned char out[SHA256_BYTES]);

#endif /* APP_SHA256_H */
